"""One task at work over memory: what happens to a letter whose task is called off, broken or released at any of its awaits."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.record_batch import Builder
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.live_settings import Settings
from headgate.agents.operators.pipeline.trouble import may_pass
from headgate.agents.port.absence import Unread as Absent
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.runtime.copies.copies import Copies
from headgate.agents.runtime.copies.directory import NoDirectory
from headgate.agents.runtime.reading.intake import BEHIND_S, PartitionHead
from headgate.agents.runtime.reading.old_reads import OldReads
from headgate.agents.runtime.store.state import TaskStore
from headgate.agents.runtime.task.notes import StatusNotes
from headgate.agents.runtime.task.solitude import Solitude
from headgate.agents.runtime.task.task import TaskActor
from headgate.agents.runtime.task.task_intake import TaskIntake
from headgate.agents.runtime.task.turns import SHIFT_NS, LoopTurns
from headgate.agents.runtime.writing.buffer import Joining, Listed, Spanned, TaskBuffer
from headgate.agents.state.marks import FileMarks, read
from headgate.agents.state.store import NoDisk
from headgate.agents.tracing.traces import NoTraces
from headgate.agents.worker.faust_app import new_app
from headgate.agents.worker.mailbox import AgentMailbox
from headgate.core.errors import EnvironmentFault
from headgate.core.machine import Now
from headgate.core.names import StreamPartition
from headgate.core.orders import Abandon, Release, RunView, Start
from headgate.core.task import protocol as t
from headgate.core.task.plan import InputPlan, TaskPlan, TaskSettings
from headgate.core.task.suspects import Mark, Suspects

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]
IN = StreamPartition("in", 0)
NAME = "Partition 0"
RUN = RunView("r1", "u1")


class Joined(Joining):
    """The open transaction, with what stands in it to be looked at."""

    def __init__(self) -> None:
        super().__init__(
            transactional=True,
            batch=lambda limit: Builder(limit, None, transactional=True),
            batch_bytes=1 << 20,
            max_pending_bytes=1 << 30,
            wake=int,
            now_ms=lambda: 0,
        )
        self.open: list[tuple[str, bytes | None]] = []

    def _join(self, task: str, target: StreamPartition, part: Listed | Spanned) -> None:
        listed = part if isinstance(part, Listed) else part.listed()
        self.open += [(target.stream, value) for value in listed.values]


class Life:
    """The process around one task (`port.Process`): it runs coroutines, and keeps what they raise."""

    def __init__(self) -> None:
        self.app = new_app("task-actor")
        self.app.flow_control.resume()  # as its start would do, which takes seconds
        self.errors: list[BaseException] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def crash(self, error: BaseException) -> None:
        self.errors.append(error)

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.errors.append(error)

    async def serve(self, name: str, work: Any) -> Any:
        return self.spawn(work, name)

    def mailbox(self, name: str, on_letter: Any, on_gone: Any, on_again: Any) -> AgentMailbox:
        return AgentMailbox(self.app, name, on_letter, on_gone, on_again=on_again)


class Job:
    """The job that the task reports to (`task.TaskJob`)."""

    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.letters: list[Any] = []

    def report(self, report: Any) -> None:
        self.reports.append(report)

    def letters_left(self, task: str, grant: int) -> list[Any]:
        return []

    async def say_letters(self, task: str, grant: int, marks: Any) -> None:
        self.letters.append([one[2:5] for one in marks])


class Producers:
    """The transactions of one task (`task.TaskProducers`), in memory."""

    def __init__(self, *topics: str) -> None:
        self.careful: set[str] = set()
        self.outbox = Joined()
        for topic in topics:
            self.outbox.know(topic, 1)
        self.committed: list[tuple[str, bytes | None]] = []
        self.positions: list[int] = []
        self.astray: list[str] = []
        self.asked: list[str] = []
        self.urgent: list[bool] = []
        self.learning: Any = None
        """Awaited when a topic is asked for."""
        self.actor: TaskActor
        self._commits = 0

    def buffer(self, task: str) -> TaskBuffer:
        return self.outbox.buffer(task)

    async def room(self) -> None: ...

    gathers = False
    rest_s = 0.0

    def gather_until(self) -> float | None: ...
    def arrived(self, took_s: float) -> None: ...

    async def learn(self, topic: str) -> None:
        self.asked.append(topic)
        if self.learning is not None:
            await self.learning()
        self.outbox.know(topic, 1)

    def want_commit(self, task: str, urgent: bool) -> None:
        self.urgent.append(urgent)
        asyncio.get_running_loop().call_soon(self.commit)

    def poisoned(self, task: str, why: str) -> None:
        self.astray.append(why)

    def commit(self) -> None:
        """One transaction, as a committer has it: whose outputs stand in it without positions spoils it."""
        self._commits += 1
        wrote = self.actor.seal(self._commits)
        self.actor.announce()
        rows, self.outbox.open = self.outbox.open, []
        if not wrote:
            self.astray += [topic for topic, _ in rows]
            return
        self.committed += [(topic, value) for topic, value in rows]
        self.positions.append(self.actor.contribution._positions[IN])
        self.actor.apply(self._commits)
        self.actor.committed(self._commits)


class Unread:
    """An intake that reads nothing: a test gives the chunks."""

    async def run(self) -> None: ...
    async def stop(self) -> None: ...
    def wake(self) -> None: ...
    def decided(self) -> None: ...
    def bound(self, order: Any) -> None: ...
    def seek(self, positions: Any) -> None: ...

    def stop_fetching(self, order: Any) -> dict[StreamPartition, int]:
        return {}


class Marked:
    """The marks of a task, in order, and those that are kept."""

    left = ()

    def __init__(self) -> None:
        self.begun: list[Mark] = []
        self.kept: list[Mark] | None = None

    def begin(self, mark: Mark) -> None:
        self.begun.append(mark)

    def end(self) -> None:
        pass

    def keep(self, marks: Any) -> None:
        self.kept = list(marks)

    def close(self) -> None:
        pass


class Empty:
    """Logs without a record (`port.Offsets`)."""

    async def start_of(self, at: StreamPartition) -> int:
        return 0

    async def end_of(self, at: StreamPartition, *, committed: bool) -> int:
        return 0

    async def of_time(self, at: StreamPartition, ms: int) -> int | None: ...

    async def topic_id(self, topic: str) -> str:
        return ""


class Host:
    """What a task needs of its process (`task.TaskNeeds`), with memory instead of a broker, and the task that a test looks at."""

    port = KafkaPort(ClientSettings("nobody:1"))
    offsets = Empty()
    spark: Any = None
    sinks: Any = None
    unread = Absent()

    def __init__(self, app: hg.App, **settings: Any) -> None:
        self.declared = Declared(app)
        self.settings = Settings(settings)
        self.process = Life()
        self.job = Job()
        self.producers = Producers("out", self.declared.topics.dead_letters)
        self.old_reads = OldReads(self.declared.graph, self.offsets, lambda topic: None, int)
        self.solitude = Solitude(self.port.clock)
        self.turns = LoopTurns(None, lambda: False)
        self.counters: dict[str, Counter[str]] = {}
        self.marked = Marked()
        self.traces = NoTraces()
        self.copies = Copies(self, self.declared, lambda table: NoDirectory(), None, lambda: "u1")

    async def width(self, topic: str) -> int:
        return 0

    async def check_streams(self, plan: TaskPlan) -> None: ...  # these jobs have one stage

    def open_state(self, task: str, log_partition: int) -> TaskStore:
        async def ends(_: StreamPartition) -> tuple[int, int, int]:
            return 0, 0, 10**15

        at = StreamPartition("log", log_partition)
        return TaskStore(
            self.port,
            self.declared,
            task,
            at,
            job_uuid="u1",
            disk=NoDisk(),
            decoded=None,
            clock=lambda: self.port.clock.now().wall,
            ends=ends,
        )

    @property
    def actor(self) -> TaskActor:
        return self.producers.actor

    @property
    def counts(self) -> Counter[str]:
        return self.counters[NAME]

    def give(self, *values: bytes, at: int = 0) -> None:
        """A chunk, as the intake gives it."""
        chunk = Chunk.of(IN, list(values), timestamps=[1000 + n for n in range(len(values))], base=at)
        self.process.spawn(partial(self.actor.under_way.take, chunk), "give")

    def release(self) -> None:
        self.actor.feed(Release("moved"))

    def said(self) -> list[str]:
        return [one.state for one in self.job.reports]

    def values(self, topic: str = "out") -> list[bytes | None]:
        return [value for name, value in self.producers.committed if name == topic]


class Alone:
    """The other tasks of the process (`task.TaskStarts`): there are none."""

    def gone(self, task: str) -> None: ...
    def again(self, start: Start, *orders: Any) -> None: ...


async def until(true: Any) -> None:
    """Let the loop turn until this holds."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def running(app: hg.App, settings: TaskSettings | None = None, **more: Any) -> Any:
    """A task that runs, and its host."""
    host = Host(app, **more)
    plan = TaskPlan("job/1", NAME, (InputPlan("in", (0,), 1),), settings=settings or TaskSettings())
    start = Start(NAME, 1, RUN, 0)
    host.producers.actor = actor = TaskActor(host, Alone(), plan, start)
    actor.reading._made = lambda positions: Unread()  # type: ignore[method-assign, assignment]
    await actor.mailbox.start()
    actor.feed(start)
    await until(lambda: actor.machine.phase == "running")
    try:
        yield host
    finally:
        await actor.kill()
    assert host.process.errors == []


class Names(hg.Actor):
    """Writes each record to the topic that it names; `bad` ones it refuses."""

    async def on_batch(self, ctx: Any, batch: Any) -> None:
        for one in batch:
            if one.value.get("bad"):
                raise ValueError("bad record")
            ctx.emit(one.value.get("to", "out"), one.value["n"])


def naming(policy: str = "skip", actor: type[hg.Actor] = Names) -> hg.App:
    app = hg.App("job", on_error=policy)
    app.actor(app.input("in"))(actor)
    return app


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
async def test_a_topic_that_is_met_while_bad_records_are_found_costs_no_record(policy: str) -> None:
    """The record behind a bad one names a topic of which nobody knows yet. It was taken for bad itself, and left out."""
    async with running(naming(policy)) as host:
        host.give(b'{"bad":1}', b'{"n":1}', b'{"n":2,"to":"new"}', b'{"n":3}')
        await until(lambda: host.producers.positions[-1:] == [4])
        assert (host.values(), host.values("new")) == ([b"1", b"3"], [b"2"])
        assert host.producers.asked == ["new"]
        assert (host.counts["records_failed"], host.counts["dead_letters"]) == (1, int(policy == "dead_letter"))


@contextlib.asynccontextmanager
async def suspected(*marks: Mark, policy: str = "dead_letter") -> Any:
    """A task whose predecessors left these marks behind."""
    async with running(naming(policy)) as host:
        host.actor.suspicion.marks = host.marked
        host.actor.suspicion.suspects = Suspects(marks)
        yield host


async def test_a_suspected_chunk_runs_row_by_row_and_is_cleared() -> None:
    """Each row is marked before it runs, so that the one that kills its worker is known. It is still one letter. What the rows have done
    together is looked at in front of the one that raised, and at the end."""
    async with suspected(Mark(IN, 1, 3)) as host:
        host.give(b'{"n":0}', b'{"n":1}', b'{"bad":1}', b'{"n":3}')
        await until(lambda: host.producers.positions[-1:] == [4])
        assert host.values() == [b"0", b"1", b"3"]
        rows = [(one.first, one.row, one.deaths) for one in host.marked.begun]
        first = [(0, 0, 1), (1, 0, 2), (2, 0, 2)]
        assert rows == [*first, (0, 0, 1), (1, 0, 2), (0, -1, 2), (3, 0, 1), (0, -1, 2)]
        assert host.counts["dead_letters"] == 1
        await until(lambda: host.marked.kept == [])
        assert host.actor.suspicion.suspects.marks == []


async def test_a_suspected_chunk_is_said_in_spans_and_marked_row_by_row() -> None:
    """Each row was said in a write of its own, while nothing else of the worker ran. Behind a row that fails the rows before it run again,
    and are said as one."""
    async with suspected(Mark(IN, 0, 400)) as host:
        host.actor.suspicion.announced.active = True
        host.give(*(b'{"bad":1}' if n == 350 else b'{"n":%d}' % n for n in range(400)))
        await until(lambda: host.producers.positions[-1:] == [400])
        said = [marks[0] for marks in host.job.letters if marks]
        assert said[:27] == [(n, n + 13, -1) for n in range(0, 351, 13)]
        behind = [(n, n + 13, -1) for n in range(351, 390, 13)]
        assert said[27:] == [(0, 351, -1), (0, 400, -1), *behind, (390, 400, -1), (0, 400, -1)]
        assert {one.deaths for one in host.marked.begun[:350]} == {2}
        assert [one.first for one in host.marked.begun[:351]] == list(range(351))
        assert len(host.marked.begun) == 351 + 399 + 2


async def test_a_record_that_ended_two_workers_becomes_a_dead_letter_without_running() -> None:
    """Exactly that record, and the others go on."""
    async with suspected(Mark(IN, 1, 2, 0, 2), Mark(IN, 0, 3)) as host:
        host.give(b'{"n":0}', b'{"n":1}', b'{"n":2}')
        await until(lambda: host.producers.positions[-1:] == [3])
        assert host.values() == [b"0", b"2"]
        assert host.values(host.declared.topics.dead_letters) == [b'{"n":1}']
        assert [one.first for one in host.marked.begun if one.row == 0] == [0, 2]


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        (Mark(IN, 1, 2, 0, 2), "record at in[0] offset 1: this record: 2 workers have ended in the middle of it"),
        (Mark(IN, 0, 3, deaths=3), "in:0 offsets 0 to 2: 3 workers have ended in the middle of it"),
    ],
)
async def test_what_no_policy_leaves_out_fails_its_task_by_name(mark: Mark, why: str) -> None:
    """It does not run again before the task starts anew: then its code may be another one, and it is tried alone once more."""
    async with suspected(mark, policy="fail") as host:
        host.give(b'{"n":0}', b'{"n":1}', b'{"n":2}')
        await until(lambda: "failed" in host.said())
        assert host.job.reports[-1].why.startswith(why)
        assert (host.values(), host.marked.begun, host.marked.kept) == ([], [], [replace(mark, deaths=mark.deaths - 1)])


async def test_a_letter_with_a_long_name_is_known_again(tmp_path: Path) -> None:
    """Users name timers as they like. Its mark held the beginning of the name, so nobody knew it again: it ended worker after worker, for
    ever."""
    left = list[Mark]()

    class Timed(hg.Actor):
        def on_batch(self, ctx: Any, batch: Any) -> None:
            ctx.timer("é" * 500, after="1ms")

        def on_timer(self, ctx: Any, name: str, timestamp: int) -> None:
            left.extend(read(tmp_path / "1"))

    async with running(naming("fail", Timed)) as host:
        host.actor.suspicion.marks = FileMarks(tmp_path, 1)
        host.give(b'{"n":0}')
        await until(lambda: left)
    async with running(naming("fail", Timed)) as host:
        host.actor.suspicion.suspects = Suspects([replace(left[0], deaths=3)])
        host.give(b'{"n":0}')
        await until(lambda: "failed" in host.said())
        assert ": 3 workers have ended in the middle of it" in host.job.reports[-1].why


async def test_an_owner_that_is_fenced_and_lives_withdraws_what_it_has_said_of_its_letter() -> None:
    """It had only lost its network. The next owner took the letter for one that had ended its worker, and after two fences judged it."""
    begun = asyncio.Event()

    class Long(hg.Actor):
        async def on_batch(self, ctx: Any, batch: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

    async with running(naming("fail", Long)) as host:
        said = host.job.letters
        host.actor.suspicion.announced.active = True
        host.give(b'{"n":0}', b'{"n":1}', at=5)
        await until(begun.is_set)
        assert said == [[(5, 7, -1)]]
        host.actor.feed(Abandon("fenced"))
        await host.actor.ended.wait()
        await asyncio.sleep(0)
        assert said[1:] == [[]]


@pytest.mark.parametrize("active", [True, False])
async def test_a_release_says_whether_the_death_before_is_still_open(active: bool) -> None:
    """A move ended the care with which a task runs after a death, and its next owner met the same record unprepared."""
    async with running(naming("fail")) as host:
        host.actor.suspicion.announced.active = active
        host.actor.feed(Release("moved"))
        await host.actor.ended.wait()
        assert (host.job.reports[-1].state, host.job.reports[-1].unproven) == ("released", active)


async def test_a_failure_is_over_when_its_letter_has_ended_well() -> None:
    """The status went on showing it, with its traceback, for as long as the task ran."""
    healed = False

    def once(value: Any) -> Any:
        if not healed:
            raise ValueError("boom")
        return value

    app = hg.App("job")
    app.input("in").map(once).to("out")
    async with running(app) as host:
        notes = host.actor.site.notes
        host.give(b'{"n": 1}')
        await until(lambda: notes.open("retry") is not None)
        assert "boom" in notes.open("failure").detail
        assert "once" in notes.open("failure").traceback
        healed = True
        await until(lambda: host.values() == [b'{"n":1}'])
        assert (notes.open("failure"), notes.open("retry")) == (None, None)
        assert notes.said["failure"].until_ms >= notes.said["failure"].since_ms


async def test_a_failure_of_a_letter_that_is_called_off_is_over_and_that_of_a_failed_task_is_not() -> None:
    """After a seek past the record nothing fails any more, although nothing may come for days."""
    app = hg.App("job")
    app.input("in").map(lambda value: value["missing"]).to("out")
    async with running(app) as host:
        notes = host.actor.site.notes
        host.give(b'{"n": 1}')
        await until(lambda: notes.open("failure") is not None)
        host.actor.under_way.drop(t.DropChunk("seek"))
        assert (notes.open("failure"), notes.open("retry")) == (None, None)
    async with running(app, TaskSettings(error_retries=0)) as host:
        notes = host.actor.site.notes
        host.give(b'{"n": 1}')
        await until(lambda: "failed" in host.said())
        assert None not in (notes.open("failed"), notes.open("failure"))


class Hides(hg.Actor):
    """Catches whatever an emit raises, or puts an error of its own in its place."""

    async def on_batch(self, ctx: Any, batch: Any) -> None:
        for one in batch:
            try:
                ctx.emit(one.value["to"], one.value["n"])
            except Exception as error:  # noqa: BLE001 - as users do
                if "raises" in one.value:
                    raise KeyError("of its own") from None
                self.last = error


@pytest.mark.parametrize("record", [b'{"to":"new","n":1}', b'{"to":"new","n":1,"raises":1}'])
async def test_user_code_that_catches_everything_hides_no_topic(record: bytes) -> None:
    """That a topic must be asked for first is none of a user's business, and yet their `except` lost the record."""
    async with running(naming("skip", Hides)) as host:
        host.give(record)
        await until(lambda: host.producers.positions[-1:] == [1])
        assert host.values("new") == [b"1"]


LEARNS = [KafkaConnectionError("away"), EnvironmentFault("no permission"), ValueError("odd"), asyncio.CancelledError()]


@pytest.mark.parametrize("error", LEARNS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("policy", ["skip", "fail"])
async def test_a_topic_that_cannot_be_asked_for_is_no_fault_of_a_record(policy: str, error: BaseException) -> None:
    """The broker is away for a moment: the record was skipped for it. Now the task fails, and is started again by itself."""

    async def away() -> None:
        raise error

    async with running(naming(policy)) as host:
        host.producers.learning = away
        host.give(b'{"n":1}', b'{"n":2,"to":"new"}')
        await until(lambda: "failed" in host.said())
        last = host.job.reports[-1]
        assert (last.passing, host.producers.committed, host.producers.astray) == (True, [], [])
        assert "new" in last.why
        assert host.counts["records_failed"] == 0


async def test_a_release_while_a_topic_is_asked_for_runs_nothing_more() -> None:
    """The letter was run once more when the answer came, beside the next owner of the task."""
    calls, gate = [], asyncio.Event()

    class Counts(Names):
        async def on_batch(self, ctx: Any, batch: Any) -> None:
            calls.append(len(batch.values))
            await super().on_batch(ctx, batch)

    async with running(naming("skip", Counts)) as host:
        host.producers.learning = gate.wait
        host.give(b'{"n":2,"to":"new"}')
        await until(lambda: host.producers.asked)
        host.release()
        gate.set()
        await until(lambda: "released" in host.said())
        assert (calls, host.producers.committed, host.producers.astray) == ([1], [], [])


async def test_a_task_that_breaks_in_the_turn_of_a_retry_commits_nothing_of_it() -> None:
    """The chunk was run again all the same, and its outputs stood in the transaction without its position: they came twice."""
    fails = [True]

    def once(value: Any) -> Any:
        if fails.pop() if fails else False:
            raise ValueError("once")
        return value

    app = hg.App("job")
    app.input("in").map(once).to("out")
    async with running(app, TaskSettings(error_backoff_s=3600.0)) as host:
        host.give(b"1")
        await until(lambda: host.actor.machine.work.retry_s is not None)
        host.actor.machine.work.retry_s = 0.0
        host.actor.feed(t.Tick())
        host.release()
        await until(lambda: "released" in host.said())
        assert (host.producers.committed, host.producers.outbox.open, host.producers.astray) == ([], [], [])


async def test_a_release_in_the_turn_of_a_step_does_not_wait_for_it() -> None:
    """The step was not dropped, for it had not begun; and then it ran, on a task that was leaving."""
    fired = []

    class Waits(hg.Actor):
        async def on_batch(self, ctx: Any, batch: Any) -> None:
            ctx.timer("t", after="1h")

        async def on_timer(self, ctx: Any, name: str, at: int) -> None:
            fired.append(name)

    async with running(naming("fail", Waits)) as host:
        host.give(b"1")
        await until(lambda: host.producers.positions[-1:] == [1])
        host.actor.due._is_due(host.actor.site.pipeline.due()[1])
        host.release()
        await until(lambda: "released" in host.said())
        assert fired == []


async def test_what_a_released_task_is_doing_ends_before_its_hooks_and_its_store() -> None:
    """User code that awaits went on beside `on_stop`, and beside the next owner of the task."""
    story, gate = [], asyncio.Event()

    class Long(hg.Actor):
        async def on_batch(self, ctx: Any, batch: Any) -> None:
            story.append("begins")
            try:
                await gate.wait()
            finally:
                story.append("ends")

        async def on_stop(self, ctx: Any) -> None:
            story.append("stops")

    async with running(naming("fail", Long)) as host:
        host.give(b"1")
        await until(lambda: story)
        host.release()
        await until(lambda: "released" in host.said())
        assert story == ["begins", "ends", "stops"]


async def test_no_more_records_are_tried_when_the_task_is_released() -> None:
    """Looking for a bad record goes on for as long as user code takes; a task that is released has nothing to look for."""
    tried, gate, reached = [], asyncio.Event(), asyncio.Event()

    class Tries(hg.Actor):
        async def on_batch(self, ctx: Any, batch: Any) -> None:
            tried.append(len(batch.values))
            if len(tried) == 2:
                reached.set()
                with contextlib.suppress(asyncio.CancelledError):
                    await gate.wait()
            raise ValueError("bad record")

    async with running(naming("skip", Tries)) as host:
        host.give(*[b"1"] * 8)
        await reached.wait()
        host.release()
        await until(lambda: "released" in host.said())
        gate.set()
        assert tried == [8, 4]


class Reads:
    """A consumer's answers, as an intake waits for them; once it is stopped, filling is an error."""

    def __init__(self) -> None:
        self.answered, self.waits, self.stopped = asyncio.Event(), asyncio.Event(), False

    async def start(self) -> None:
        pass

    async def fill(self, timeout_s: float | None) -> bool:
        if self.stopped:
            raise EnvironmentFault("it is not started")
        self.waits.set()
        await self.answered.wait()
        self.answered.clear()
        return True

    async def stop(self) -> None:
        self.stopped = True
        await asyncio.sleep(0)

    def heads(self) -> dict[StreamPartition, Any]:
        return {}

    def troubles(self) -> list[tuple[StreamPartition, str | None]]:
        return []


NO_CHOOSER: Any = SimpleNamespace()


async def nobody(chunk: Chunk) -> None:
    """Takes no chunk."""


def reading(intake: Any) -> tuple[TaskIntake, asyncio.Task[None]]:
    site: Any = SimpleNamespace(plan=SimpleNamespace(inputs=()), idle=asyncio.Event())
    made = TaskIntake(site, Host(naming()), intake, NO_CHOOSER, {}, nobody)
    return made, asyncio.get_running_loop().create_task(made.run())


async def test_an_answer_that_comes_while_the_intake_stops_is_no_failure() -> None:
    """The consumer was gone for it; the task that had just failed at a record was told of a broker, and began again and again."""
    reads = Reads()
    intake, running_ = reading(reads)
    await reads.waits.wait()
    reads.answered.set()
    await intake.stop()
    await running_


class Withdrawn:
    """What is reported about inputs, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def tell(self, at: str, why: str) -> None:
        self.said.append((at, why))

    def back(self, at: str) -> None:
        self.said.append((at, "is read again"))

    def left(self, at: str) -> None:
        self.said.append((at, "has left"))


async def test_what_is_reported_of_inputs_is_withdrawn_when_the_task_goes_and_while_a_letter_lasts() -> None:
    """`inputs are not read` went on for minutes after the recovery, and under the next incarnation, which did not own them."""
    reads, withdrawn = Reads(), Withdrawn()
    now: list[tuple[StreamPartition, str | None]] = []
    reads.troubles = lambda: now  # type: ignore[method-assign]
    intake, running_ = reading(reads)
    intake._unread = withdrawn  # type: ignore[assignment]
    for why in ("no answer", None, None, "no answer"):
        now[:] = [(IN, why)]
        reads.waits.clear()
        reads.answered.set()
        await reads.waits.wait()
    await intake.stop()
    await running_
    assert [why for _, why in withdrawn.said] == ["no answer", "is read again", "no answer", "has left"]


async def test_answers_with_a_long_time_between_them_do_not_say_that_nothing_came_meanwhile() -> None:
    """A worker that was stopped for seconds finds an old answer when it wakes: its sources were idle then, and what had waited was late."""
    told: list[Any] = []
    clock = SimpleNamespace(now=lambda: Now(clock.s, 0), s=100.0)
    site: Any = SimpleNamespace(plan=SimpleNamespace(inputs=()), feed=told.append, pipeline=None)
    reads: Any = Reads()
    intake = TaskIntake(site, Host(naming()), reads, NO_CHOOSER, {}, nobody)
    intake._clock = clock  # type: ignore[assignment]
    for number, after_s in enumerate((0.5, 0.5, 3.5, 0.5)):
        clock.s += after_s
        head: Any = SimpleNamespace(
            degraded=None, answered_age_s=0.1, answers=number + 1, at_end=True, end_reached=False, position=7
        )
        intake._tell_end(IN, head)
    at_end = t.AtEnd(IN, 7, False, 0.1)
    assert [type(one) for one in told] == [t.AtEnd, t.AtEnd, t.NotAnswered, t.AtEnd, t.AtEnd]
    assert told[-1] == at_end


OTHER = StreamPartition("other", 0)


def head(at: StreamPartition, position: int, stable: int | None, **more: Any) -> PartitionHead:
    """A partition whose log can be read up to `stable`."""
    known: dict[str, Any] = dict.fromkeys(PartitionHead.__dataclass_fields__)
    return PartitionHead(**{**known, "at": at, "position": position, "stable": stable, **more})


async def test_a_task_is_behind_while_it_may_read_more_and_then_fetches_what_was_held_back() -> None:
    """A commit need not wait for it, and it need not take part in each one."""
    gone_on: list[bool] = []
    site: Any = SimpleNamespace(plan=SimpleNamespace(inputs=()), behind=False)
    site.machine = SimpleNamespace(may_take=lambda at: at != OTHER)
    reads: Any = Reads()
    reads.go_on = lambda: gone_on.append(True)
    intake = TaskIntake(site, Host(naming()), reads, NO_CHOOSER, {}, nobody)
    taken = Chunk.of(IN, [b"1", b"2"], base=5)
    assert not intake._behind({IN: head(IN, 5, 6)}, ()), "in virtual time all work is little, and nobody waits"
    intake._turns.patient = True
    for more, stable, full, chunk, behind in (
        ({}, 5, (), None, False),
        ({}, 6, (), None, True),
        ({}, None, (), None, False),
        ({}, 6, ("in",), None, False),
        ({"paused": True}, 6, (), None, False),
        ({"end_reached": True}, 6, (), None, False),
        ({}, 7, (), taken, False),
        ({}, 8, (), taken, True),
    ):
        heads = {IN: head(IN, 5, stable, **more), OTHER: head(OTHER, 0, 9)}
        assert intake._behind(heads, full, chunk) is behind
    for behind in (True, True, False, False):
        intake._now_behind(behind)
    assert site.behind is False
    assert gone_on == [True]


class Buffered(Reads):
    """A partition with ten records at once, of which each letter takes five."""

    def __init__(self) -> None:
        super().__init__()
        self.position, self.gone_on = 0, list[int]()
        self.skips, self.arriving, self.lags = SimpleNamespace(mark=lambda chunk: None), False, {}

    def heads(self) -> dict[StreamPartition, Any]:
        return {IN: head(IN, self.position, 10, count=10 - self.position, bulk=False)}

    def unread(self, at: StreamPartition) -> bool:
        return True

    def take(self, at: StreamPartition, *_: Any) -> Chunk:
        chunk = Chunk.of(IN, [b"1"] * 5, base=self.position)
        self.position += 5
        return chunk

    def let_go(self) -> None:
        """It holds nothing."""

    def go_on(self) -> None:
        self.gone_on.append(self.position)


async def test_what_was_held_back_is_fetched_once_the_last_letter_of_a_backlog_is_taken() -> None:
    """It stayed held back for its 1.5 s: the letter itself had withdrawn that there was a backlog, and nothing was there to be withdrawn
    later. So the outputs of a partition stood still for so long after each short backlog, as it comes with a move."""
    taken = asyncio.Queue[tuple[int, bool]]()
    site: Any = SimpleNamespace(plan=SimpleNamespace(inputs=()), idle=asyncio.Event(), behind=False, pipeline=None)
    site.machine = SimpleNamespace(may_take=lambda at: True)
    site.view = SimpleNamespace(closed={}, time_of=lambda at: None)
    site.count = site.feed = lambda *_: None
    site.idle.set()
    choice = SimpleNamespace(at=IN, max_records=5, up_to_ms=None)
    chooser: Any = SimpleNamespace(until=None, room=0, reason="", choose=lambda *_: choice, rows=lambda bulk: 5)
    chooser.taken = chooser.nothing = lambda *_: None
    chooser.tier = lambda stream: 0
    reads: Any = Buffered()

    async def take(chunk: Chunk) -> None:
        taken.put_nowait((chunk.next_position, site.behind))

    intake = TaskIntake(site, Host(naming()), reads, chooser, {}, take)
    intake._turns.patient = True
    running_ = asyncio.get_running_loop().create_task(intake.run())
    assert [await taken.get(), await taken.get()] == [(5, True), (10, False)]
    assert reads.gone_on == [10]
    await intake.stop()
    await running_


async def test_a_task_with_a_backlog_waits_with_its_commit_until_it_has_worked_for_a_shift() -> None:
    async with running(naming()) as host:
        actor = host.actor
        assert not actor.patient(0.0)
        actor.site.behind = True
        assert actor.patient(0.0)
        actor.contribution.letter_ended(SHIFT_NS)
        assert not actor.patient(0.0)
        host.give(b'{"n": 1}')
        await until(lambda: host.values())
        assert actor.patient(0.0)


async def test_readers_do_not_wait_an_interval_for_the_first_outputs_of_an_owner() -> None:
    """A move stood still for a commit interval more. The commits behind the first one are those of the worker."""
    async with running(naming()) as host:
        host.actor.contribution._awaited = True  # as it is outside of virtual time
        for n in range(2):
            host.give(b'{"n": 1}', at=n)
            await until(lambda: host.producers.positions[-1:] == [n + 1])  # noqa: B023
        assert host.producers.urgent[-2:] == [True, False]


async def test_a_task_without_a_backlog_rests_after_a_commit_while_another_one_has_a_backlog() -> None:
    """60 such tasks took part in each commit, and took half of the main loop from the ones with a backlog."""
    async with running(naming()) as host:
        actor = host.actor
        host.give(b'{"n": 1}')
        await until(lambda: host.values())
        assert actor.patient(1e9)
        assert not actor.patient(0.0), "no other task has a backlog"
        assert host.actor.reading._seldom_until(0.0) is None
        host.producers.gathers, host.producers.rest_s = True, 1e9
        assert host.actor.reading._seldom_until(0.0) == actor.site.took_part_s + 1e9
        actor.site.behind = True
        assert host.actor.reading._seldom_until(7.0) == 7.0 + BEHIND_S
        actor.site.behind = False
        actor.contribution.letter_ended(SHIFT_NS)
        assert not actor.patient(1e9)


async def test_degraded_is_withdrawn_once_every_input_answers_again_and_when_the_task_goes() -> None:
    """It was shown for hours after the broker was back, while nothing else was wrong."""
    other = StreamPartition("in", 1)
    notes = StatusNotes(lambda: 0)
    site: Any = SimpleNamespace(plan=SimpleNamespace(inputs=()), notes=notes, pipeline=None)
    site.feed = lambda event: notes.say("degraded", f"no fetch of {event.at} is answered")
    reads: Any = Reads()
    now = {IN: "no answer", other: "no answer"}
    reads.troubles = now.items
    intake = TaskIntake(site, Host(naming()), reads, NO_CHOOSER, {}, nobody)
    silent: Any = SimpleNamespace(degraded="no answer", answered_age_s=40.0, answers=1, at_end=False)
    silent.end_reached = silent.blocked = False

    def said() -> list[str]:
        for at in now:
            silent.answers += 1
            if now[at] is not None:
                intake._tell_end(at, silent)
        intake._tell_troubles()
        return list(notes.said)

    assert said() == ["degraded"]
    now[IN] = None
    assert said() == ["degraded"]
    now[other] = None
    assert said() == []
    now[other] = "no answer"
    assert said() == ["degraded"]
    await intake.stop()
    assert notes.said == {}


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KafkaConnectionError("away")])
async def test_a_client_that_fails_while_it_reads_ends_the_intake_with_what_may_pass(error: BaseException) -> None:
    """Cancelled by its own library it read no more, and said nothing; and what a broker did was taken for the task's own fault."""

    class Fails(Reads):
        async def fill(self, timeout_s: float | None) -> bool:
            raise error

    intake, running_ = reading(Fails())
    done, _ = await asyncio.wait([running_], timeout=20)
    await intake.stop()
    assert done
    failed = running_.exception()
    assert failed is not None
    assert may_pass(failed)
