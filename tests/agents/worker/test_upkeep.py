"""Upkeep: nothing depends on it, so nothing that it calls may end a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from structlog.testing import capture_logs

from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.worker.housekeeping import LOOK_AFTER, OFF_MS, Upkeep
from headgate.core.errors import EnvironmentFault, StoreUnreadable
from headgate.core.names import StreamPartition

IN, BETWEEN = StreamPartition("in", 0), StreamPartition("between", 0)
ERRORS = [
    EnvironmentFault("no"),
    KafkaError("no"),
    OSError("no"),
    RuntimeError("a bug of the client"),
    asyncio.CancelledError("unasked"),
    TimeoutError(),
]


class Client:
    """A client that fails so often, and then does its work."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.done: list[Any] = []

    async def _call(self, what: Any) -> Any:
        if self._errors:
            raise self._errors.pop(0)
        self.done.append(what)
        return {}

    publish = trim = _call

    async def stop(self) -> None:
        """Nothing is open."""


def actor(*, raises: BaseException | None = None) -> Any:
    failed: list[BaseException] = []

    def upkeep(known_ms: int | None) -> None:
        if raises is not None:
            raise raises

    contribution = SimpleNamespace(durable={IN: 5}, done={BETWEEN: 7}, upkeep=upkeep)
    return SimpleNamespace(contribution=contribution, failures=SimpleNamespace(broken=failed.append), failed=failed)


def made(client: Client, ahead_ms: Callable[[], int | None] = lambda: None) -> Upkeep:
    between = frozenset({"between"})
    upkeep = Upkeep(
        ClientSettings("nobody:1"),
        "group",
        client,  # type: ignore[arg-type]
        between,
        turn_s=0.0,
        ahead_ms=ahead_ms,
        known_ms=lambda: 0,
    )
    upkeep._publisher = client  # type: ignore[assignment]
    return upkeep


@pytest.mark.asyncio
@pytest.mark.parametrize("error", ERRORS, ids=[type(one).__name__ for one in ERRORS])
async def test_whatever_a_client_raises_the_work_is_done_at_a_later_turn(error: BaseException) -> None:
    """Every error of `delete_records` and of publishing ended the worker, an unasked cancellation, too."""
    client = Client(error, error)
    upkeep = made(client)
    await upkeep.turn([actor()], trim=True)
    assert client.done == []
    await upkeep.turn([actor()], trim=True)
    assert client.done == [{IN: 5}, {BETWEEN: 7}]


@pytest.mark.asyncio
async def test_a_cancellation_that_was_asked_for_ends_it() -> None:
    """A worker that stops does not wait for a client that hangs."""
    begun = asyncio.Event()

    class Hanging(Client):
        async def publish(self, what: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

    running = asyncio.get_running_loop().create_task(made(Hanging()).run({"Partition 0": actor()}))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.asyncio
async def test_what_fails_in_the_state_of_a_task_fails_that_task_alone() -> None:
    """The other tasks of the worker, and its upkeep, go on."""
    broken, whole, client = actor(raises=StoreUnreadable("its directory", "a damaged block")), actor(), Client()
    await made(client).turn([broken, whole], trim=True)
    assert [type(one) for one in broken.failed] == [StoreUnreadable]
    assert (whole.failed, client.done) == ([], [{IN: 5}, {BETWEEN: 7}])


@pytest.mark.asyncio
async def test_a_clock_that_is_a_minute_off_the_brokers_is_said_once_and_taken_back() -> None:
    """In both directions, and not while the broker's time is unknown or no task runs here."""
    ahead: list[int | None] = [None]
    upkeep = made(Client(), lambda: ahead[0])

    async def said(ms: int | None, *actors: Any) -> list[tuple[str, int | None]]:
        ahead[0] = ms
        with capture_logs() as lines:
            for _ in range(3 * LOOK_AFTER):
                await upkeep.turn(actors, trim=False)
        return [(one["log_level"], one.get("ahead_s")) for one in lines if one["log_level"] != "debug"]

    assert await said(None, actor()) == []
    assert await said(OFF_MS, actor()) == []
    assert await said(OFF_MS + 1000) == []
    assert await said(OFF_MS + 1000, actor()) == [("warning", 61)]
    assert await said(5, actor()) == [("info", None)]
    assert await said(-90_000, actor()) == [("warning", -90)]
