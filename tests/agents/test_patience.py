"""How long user code may be awaited, in a drain and otherwise. Samza's hole 20: its limit of a drain fired at once, or was never armed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.agents.patience import AWAIT, DRAIN, DrainTimeout, Patience

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]


def of(hung: Any = None, **limits: float) -> tuple[Patience, dict[str, float]]:
    given = {AWAIT: limits.get("wait", 0.0), DRAIN: limits.get("drain", 0.0)}
    return Patience(given.__getitem__, hung or (lambda _: None)), given


async def never() -> None:
    await asyncio.Event().wait()


async def test_awaited_user_code_fails_when_its_time_is_over_and_may_take_any_time_without_a_limit() -> None:
    """A hung service held its task for ever; and where nobody has set `await.timeout`, slow code is no failure."""
    limited, _ = of(wait=0.01)
    with pytest.raises(TimeoutError, match=r"ask did not finish within 0.01 s \(the setting await.timeout\)") as failed:
        await limited.within("ask", never())
    assert not isinstance(failed.value, DrainTimeout)
    free, _ = of(drain=0.0)
    free.drains()
    assert await free.within("ask", asyncio.sleep(0.02, "done")) == "done"


async def test_the_limit_of_a_drain_holds_only_in_a_drain_and_names_the_function() -> None:
    """It is armed whether there is another limit or not; the smaller one counts."""
    for wait in (0.0, 3600.0):
        patience, _ = of(wait=wait, drain=0.01)
        assert await patience.within("ask", asyncio.sleep(0.03, "done")) == "done"
        patience.drains()
        with pytest.raises(DrainTimeout, match=r"Count.on_drain did not finish within 0.01 s \(the setting drain.call"):
            await patience.within("Count.on_drain", never())
    patience, _ = of(wait=0.01, drain=3600.0)
    patience.drains()
    with pytest.raises(TimeoutError, match=r"await\.timeout"):
        await patience.within("ask", never())


async def test_what_is_awaited_when_the_drain_begins_is_limited_from_then_on() -> None:
    """What it took before does not count: a function that has run for an hour is not cut off at once."""
    patience, _ = of(drain=0.5)
    loop, gate = asyncio.get_running_loop(), asyncio.Event()
    hangs = loop.create_task(patience.within("slow", never()))
    ends = loop.create_task(patience.within("fast", gate.wait()))
    await asyncio.sleep(0.6)  # longer than the limit: this time must not count
    patience.drains()
    await asyncio.sleep(0)
    assert not ends.done()
    gate.set()
    assert await ends is True
    with pytest.raises(DrainTimeout, match="slow did not"):
        await hangs


async def test_a_changed_setting_applies_to_what_is_awaited_now() -> None:
    """An operator need not wait for the old limit of a function that hangs."""
    patience, given = of(drain=3600.0)
    patience.drains()
    hangs = asyncio.get_running_loop().create_task(patience.within("slow", never()))
    await asyncio.sleep(0)
    given[DRAIN] = 0.01
    patience.look()
    with pytest.raises(DrainTimeout):
        await hangs


async def test_a_function_that_ignores_its_cancellation_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some client libraries do: its task must fail all the same."""
    monkeypatch.setattr("headgate.agents.patience.HUNG_S", 0.01)
    told: list[str] = []
    gate = asyncio.Event()

    async def stubborn() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    def hung(why: str) -> None:
        told.append(why)
        gate.set()

    patience, _ = of(hung, drain=0.01)
    patience.drains()
    await patience.within("stubborn", stubborn())
    assert told == [
        "stubborn did not finish within 0.01 s (the setting drain.callback-timeout), and ignores its cancellation"
    ]
