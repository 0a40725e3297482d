"""The committer says flush and commit, and the outbox does them: each after the answer to the one before, whatever that is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog.testing

from headgate.agents.port.errors import Fenced, OutboxError, OutcomeUnknown, ProducerBroken
from headgate.agents.runtime.reading.gathering import GRACE_S
from headgate.agents.runtime.writing.buffer import LogWrite
from headgate.agents.runtime.writing.committing import Committing
from headgate.agents.runtime.writing.outbox import Outbox
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort, MemoryProducer
from headgate.agents.tracing.contexts import NO_LINKS, Links
from headgate.core.names import StreamPartition
from headgate.core.task.committer import commit_protocol as e

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[Any]]:
    """What is logged, kept instead of printed."""
    with structlog.testing.capture_logs() as lines:
        yield lines


OUT, LOG = StreamPartition("out", 0), StreamPartition("log", 0)


class Odd(MemoryProducer):
    """A producer in memory that says what it is asked, and at one place does something else."""

    said: list[str]
    hooks: dict[str, Any]

    async def begin(self) -> None:
        await self._does("begin")
        await super().begin()

    async def send(self, at: StreamPartition, batch: Any) -> asyncio.Future[int]:
        await self._does("send")
        answer = await super().send(at, batch)
        later: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def acknowledge() -> None:
            try:
                await self._does("acknowledge")
                later.set_result(answer.result())
            except asyncio.CancelledError:
                later.cancel()
            except Exception as error:  # noqa: BLE001 - whatever it is
                later.set_exception(error)

        self.acknowledging = asyncio.get_running_loop().create_task(acknowledge())
        return later

    async def commit(self) -> None:
        await self._does("commit")
        await super().commit()

    async def _does(self, what: str) -> None:
        self.said.append(what)
        if what in self.hooks:
            await self.hooks[what]()


class Task:
    """A task that has one record and its checkpoint in each transaction (`committing.Writer`)."""

    log_end, arriving, behind = 0, False, False

    def __init__(self, rig: Rig, name: str) -> None:
        self.rig, self.name = rig, name
        self.buffer = rig.outbox.buffer(name)
        self.told: list[Any] = []

    def writes(self, values: list[bytes]) -> None:
        self.buffer.emit("out", 0, None, values, 1)
        self.buffer.complete()

    def seal(self, txn: int) -> list[LogWrite]:
        self.rig.said.append(f"seal {self.name}")
        return [LogWrite(self.name, LOG, [b"checkpoint"], [b"%d" % txn], 1)]

    def traced_work(self) -> Links:
        return NO_LINKS

    def announce(self) -> None:
        pass

    def patient(self, rest_s: float) -> bool:
        return False

    def go_on(self) -> None:
        pass

    def apply(self, position: int) -> None:
        self.rig.said.append(f"apply {self.name}")

    def committed(self, txn: int) -> None:
        self.told.append(txn)

    def feed(self, event: Any) -> bool:
        self.told.append(event)
        return True


class Rig:
    """A committer's edge over logs in memory; its host, too."""

    def __init__(self, *, direct: bool = False, **hooks: Any) -> None:
        self.logs = Logs({})
        self.clock = VirtualClock(0)
        self.port = MemoryPort(self.logs, self.clock)
        self.said: list[str] = []
        self.hooks = hooks
        self.crashed: list[BaseException] = []
        self.over: list[e.IncarnationOver] = []
        self.gathered = False
        self.outbox = self._outbox("id")
        self.direct = self._outbox(None) if direct else None
        self.committing = Committing(self, "one", self.outbox, interval_s=0.0, timeout_s=60.0, direct=self.direct)
        self.tasks = {name: Task(self, name) for name in ("a", "b")}

    def _outbox(self, name: str | None) -> Outbox:
        def producer(*_: Any, **__: Any) -> Odd:
            made = Odd(self.logs, name)
            made.said, made.hooks = self.said, self.hooks
            return made

        outbox = Outbox(SimpleNamespace(clock=self.clock, producer=producer), name, batch_bytes=200)  # type: ignore[arg-type]
        outbox.know("out", 1)
        return outbox

    def writer(self, task: str) -> Task | None:
        return self.tasks.get(task)

    def crash(self, error: BaseException) -> None:
        self.crashed.append(error)

    def incarnation_over(self, incarnation: str, order: e.IncarnationOver) -> None:
        self.over.append(order)

    def arriving(self) -> bool:
        return self.gathered

    def patient(self) -> frozenset[str]:
        return frozenset()

    async def _own(self, outbox: Outbox) -> None:
        try:
            await outbox.run()
        except OutboxError as error:
            self.committing.failed(error)

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """With the coroutines that own the producers."""
        both = [one for one in (self.outbox, self.direct) if one is not None]
        for one in both:
            await one.start()
        self.owners = [asyncio.get_running_loop().create_task(self._own(one)) for one in both]
        try:
            yield self
        finally:
            self.committing.stop()
            for one in both:
                await one.stop()
            await asyncio.wait(self.owners)

    def wants(self, *tasks: str) -> None:
        """As tasks say it; the clock is asked at once."""
        for task in tasks:
            self.committing.want(task, False)
        while self.clock.ring():
            pass

    def read(self) -> list[bytes | None]:
        return [record.value for record in self.logs.records(OUT)]


async def turns(condition: Any) -> None:
    """Until it holds; everything here is in memory."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to hold")


async def test_each_step_follows_the_answer_to_the_one_before() -> None:
    async with Rig().running() as rig:
        rig.tasks["a"].writes([b"1"])
        rig.wants("a")
        await turns(lambda: rig.tasks["a"].told)
        assert rig.said == ["seal a", "begin", "send", "send", "acknowledge", "acknowledge", "commit", "apply a"]
        assert rig.tasks["a"].told == [1]
        assert rig.read() == [b"1"]


async def test_tasks_that_want_it_in_the_same_turn_share_a_transaction() -> None:
    async with Rig().running() as rig:
        rig.wants("a", "b")
        await turns(lambda: all(task.told for task in rig.tasks.values()))
        assert (rig.said.count("commit"), rig.committing.commits) == (1, 1)


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_commit_waits_a_little_for_what_was_gathered_for_it(arrives: bool) -> None:
    """Processed a moment later, it would wait for the next commit."""
    async with Rig().running() as rig:
        rig.gathered = True
        rig.wants("a")
        await asyncio.sleep(0)
        assert rig.committing.machine.view.state == "beginning"
        rig.clock.move(rig.clock.now().mono + GRACE_S / 2)
        assert rig.said == []
        rig.tasks["a"].writes([b"1"])
        if arrives:
            rig.gathered = False
            rig.committing.arrived(0.01)
        else:
            while not rig.clock.move(rig.clock.now().mono + GRACE_S):
                rig.clock.ring()
            rig.clock.ring()
        await turns(lambda: rig.tasks["a"].told)
        assert rig.tasks["a"].told == [1]
        assert rig.read() == [b"1"]


async def test_nothing_to_commit_asks_the_producer_for_nothing() -> None:
    async with Rig().running() as rig:
        rig.tasks.clear()
        rig.wants("a")
        await turns(lambda: (rig.committing.machine.view.txn, rig.committing.machine.view.state) == (1, "idle"))
        assert rig.said == []


@pytest.mark.parametrize("where", ["acknowledge", "commit"])
async def test_nothing_of_the_next_transaction_is_sent_before_the_first_is_committed(where: str) -> None:
    """Batches fill up while the broker is slow: sent then, they would stand in a transaction that holds no position of theirs."""
    go, reached = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        reached.set()
        await go.wait()

    async with Rig(**{where: waits}).running() as rig:
        rig.tasks["a"].writes([b"1"])
        rig.wants("a")
        await reached.wait()
        for _ in range(3):
            rig.tasks["a"].writes([b"x" * 300])
        for _ in range(50):
            await asyncio.sleep(0)
        assert rig.logs.log(OUT).end == 1
        go.set()
        await turns(lambda: rig.logs.log(OUT).end > 2)
        assert rig.read() == [b"1"]


class Unheard(Exception):
    """Nobody has heard of it."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Fenced("another has it"), {"fenced"}),
        (ProducerBroken("it broke"), {"failed"}),
        (OutcomeUnknown("no answer"), {"unknown"}),
        (Unheard(), {"failed", "unknown"}),
        (asyncio.CancelledError(), {"unknown"}),
    ],
    ids=["fenced", "broken", "unknown", "unheard", "cancelled"],
)
@pytest.mark.parametrize("where", ["begin", "send", "acknowledge", "commit"])
async def test_whatever_is_raised_anywhere_ends_this_life_once(
    where: str, error: BaseException, kind: set[str]
) -> None:
    """And never commits, never applies, never tells a task that anything was done, never ends the worker."""

    async def raises() -> None:
        raise error

    async with Rig(**{where: raises}).running() as rig:
        rig.tasks["a"].writes([b"1"])
        rig.wants("a", "b")
        await turns(lambda: rig.over)
        rig.wants("a")
        await asyncio.wait(rig.owners)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(rig.over) == 1
        assert rig.over[0].kind in kind
        assert rig.said.count("commit") == (where == "commit")
        assert [one for one in rig.said if one.startswith("apply")] == []
        assert [task.told for task in rig.tasks.values()] == [[], []]
        assert (rig.crashed, rig.read()) == ([], [])


@pytest.mark.parametrize("where", ["begin", "send", "acknowledge", "commit"])
async def test_an_owner_that_is_called_off_in_the_middle_leaves_an_unknown_outcome(where: str) -> None:
    reached = asyncio.Event()

    async def waits() -> None:
        reached.set()
        await asyncio.Event().wait()

    async with Rig(**{where: waits}).running() as rig:
        rig.wants("a")
        await reached.wait()
        rig.owners[0].cancel()
        await turns(lambda: rig.over)
        assert [one.kind for one in rig.over] == ["unknown"]
        assert rig.tasks["a"].told == []


async def test_what_a_task_has_written_without_its_position_is_never_committed() -> None:
    """Its seal contributes nothing: it has failed half-way."""
    async with Rig().running() as rig:
        rig.tasks["a"].writes([b"1"])
        rig.tasks["a"].seal = lambda txn: []  # type: ignore[method-assign]
        rig.committing.spoil("a", "half a chunk")
        rig.committing.feed(e.Wanted("b"))
        await turns(lambda: rig.over)
        assert rig.over[0].blamed == {"a"}
        assert "half a chunk" in rig.over[0].why
        assert "commit" not in rig.said


async def test_a_seal_that_raises_costs_a_life_and_not_the_worker() -> None:
    def raises(_: int) -> list[LogWrite]:
        raise Unheard("a fault of ours")

    async with Rig().running() as rig:
        rig.tasks["a"].seal = raises  # type: ignore[method-assign]
        rig.wants("a")
        await turns(lambda: rig.over)
        assert "a fault of ours" in rig.over[0].why
        assert (rig.crashed, rig.said) == ([], [])


async def test_what_raises_behind_a_commit_reaches_the_worker() -> None:
    """The transaction counts, and what follows from it must not be lost without a word: nobody would commit again."""

    def raises(*_: Any) -> None:
        raise Unheard

    async with Rig().running() as rig:
        rig.tasks["a"].committed = raises  # type: ignore[method-assign]
        rig.wants("a")
        await turns(lambda: rig.crashed)
        assert [type(one) for one in rig.crashed] == [Unheard]


async def test_whoever_is_stopped_hears_nothing_more() -> None:
    """Its incarnation is over, and the tasks are another's."""
    go = asyncio.Event()
    async with Rig(commit=go.wait).running() as rig:
        rig.wants("a")
        await turns(lambda: "commit" in rig.said)
        rig.committing.spoil("a", "too late")
        rig.committing.stop()
        go.set()
        await turns(lambda: not rig.logs.log(LOG).open)
        for _ in range(5):
            await asyncio.sleep(0)
        assert (rig.over, rig.tasks["a"].told) == ([], [])


async def test_the_plain_producer_has_written_before_positions_are_committed() -> None:
    """at_least_once: what is behind a position that is durable must be there."""
    async with Rig(direct=True).running() as rig:
        assert rig.direct is not None
        buffer = rig.direct.buffer("a")
        buffer.emit("out", 0, None, [b"1", b"2"], 1)
        buffer.complete()
        rig.wants("a")
        await turns(lambda: "commit" in rig.said)
        assert rig.read() == [b"1", b"2"]


async def test_a_plain_producer_that_fails_keeps_positions_from_being_committed() -> None:
    async with Rig(direct=True).running() as rig:
        assert rig.direct is not None
        await rig.direct.stop()
        rig.wants("a")
        await turns(lambda: rig.over)
        assert "commit" not in rig.said
        assert rig.crashed == []


async def test_an_outbox_is_asked_for_one_thing_at_a_time_and_in_order() -> None:
    async with Rig().running() as rig:
        await rig.outbox.free()
        rig.outbox.divide()
        with pytest.raises(RuntimeError, match="neither committed nor given up"):
            rig.outbox.divide()
        asked = rig.outbox.commit()
        with pytest.raises(RuntimeError, match="two things"):
            rig.outbox.free()
        with pytest.raises(OutcomeUnknown, match="must be flushed"):
            await asked
