"""User code that never returns, while its task drains: whichever function it is, the drain gets an answer that names task and function.

Samza's hole 20: with a timeout of callbacks and none for the drain, a drain failed at once; without the first, the second did not exist.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

import headgate as hg
from headgate.core.orders import RunChanged

from .test_task import RUN, running, until

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]
DRAINS = RunChanged(replace(RUN, draining="d1"))


async def hangs(*_: Any) -> Any:
    await asyncio.Event().wait()


class Hangs(hg.Actor):
    on_batch = hangs


class HangsAtDrain(hg.Actor):
    on_drain = hangs


class HangsInTimer(hg.Actor):
    def on_batch(self, ctx: Any, batch: Any) -> None:
        ctx.timer("far", after="1h")

    on_timer = hangs


def acting(cls: type[hg.Actor]) -> Any:
    return lambda app: app.actor(app.input("in"))(cls)


def agent(app: hg.App) -> None:
    @app.agent(app.input("in"), sink=None)
    async def follows(batches: hg.Batches) -> None:
        async for _ in batches:
            await hangs()


IN_FLIGHT = {
    "hangs": acting(Hangs),
    "agent.<locals>.follows": agent,
    "hangs ": lambda app: app.input("in").map_async(hangs).to("out"),
    "hangs  ": lambda app: app.input("in").sink(hangs),
}


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
@pytest.mark.parametrize("name", IN_FLIGHT)
async def test_what_is_awaited_when_a_drain_begins_fails_the_task_and_is_named(name: str, policy: str) -> None:
    """An actor, an agent, `map_async`, a sink: once, at once, without retries, and whatever the policy: no record is to blame."""
    app = hg.App("job", on_error=policy)
    IN_FLIGHT[name](app)
    async with running(app, **{"drain.callback-timeout": "50ms"}) as host:
        host.give(b"1", b"2", b"3")
        await until(lambda: host.actor.site.patience._awaited)
        host.actor.feed(DRAINS)
        await until(lambda: "failed" in host.said())
        why = host.job.reports[-1].why
        assert f"{name.strip()} did not finish within 0.05 s (the setting drain.callback-timeout)" in why
        assert not host.job.reports[-1].passing
        assert (host.producers.committed, host.counts["records_failed"]) == ([], 0)


@pytest.mark.parametrize("cls", [HangsAtDrain, HangsInTimer])
async def test_a_hook_that_hangs_in_a_drain_fails_the_task_and_is_named(cls: type[hg.Actor]) -> None:
    """What is complete is committed; the drain goes on when the code is mended."""
    app = hg.App("job")
    acting(cls)(app)
    async with running(app, **{"drain.callback-timeout": "50ms"}) as host:
        host.give(b"1")
        await until(lambda: host.producers.positions[-1:] == [1])
        host.actor.feed(DRAINS)
        await until(lambda: "failed" in host.said())
        assert "hangs did not finish within 0.05 s (the setting drain.callback-timeout)" in host.job.reports[-1].why
        assert f"'{cls.__name__}'" in host.job.reports[-1].why


async def test_a_hook_that_ignores_its_cancellation_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some client libraries do. The task fails all the same."""
    monkeypatch.setattr("headgate.agents.patience.HUNG_S", 0.01)
    gate = asyncio.Event()

    class Stubborn(hg.Actor):
        async def on_drain(self, ctx: Any) -> None:
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue

    app = hg.App("job")
    acting(Stubborn)(app)
    async with running(app, **{"drain.callback-timeout": "50ms", "release.timeout": "300ms"}) as host:
        host.actor.feed(DRAINS)
        await until(lambda: "failed" in host.said())
        assert "Stubborn.on_drain did not finish" in host.job.reports[-1].why
        assert "ignores its cancellation" in host.job.reports[-1].why
        gate.set()
