"""The test driver: a whole job in one process, in memory, in virtual time. `headgate.testing.Driver`.

    with hg.testing.Driver(app) as d:
        d.send("orders", {"country": "DE", "amount": 3})
        assert d.read("totals") == [hg.Record("DE", {"n": 1, "total": 3})]

It runs what a worker runs: the machines of core, the operators, tables and their transactions, real frames through intermediate
streams, watermarks, end of stream and drain. What it leaves out is Kafka, Faust, and time: clocks move by `advance` alone, and no
call returns before everything that follows from it is processed and committed. The same calls always give the same results.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

from ..core import commit_events as ce
from ..core import task_events as t
from ..core.commit import Committer
from ..core.errors import HeadgateError
from ..core.graph import Graph
from ..core.graph_resolve import resolve
from ..core.machine import Now, Tick
from ..core.model import JobModel, producer_sets
from ..core.names import StreamPartition
from ..core.orders import RunView
from ..core.settings import duration_ms, parse
from ..core.task_plan import TaskSettings
from . import steps as s
from .declared import Declared
from .plans import grouper
from .record import Headers, Record
from .selecting import column_of
from .store import MemoryStore
from .testing_loop import AT_SPARK, VirtualLoop
from .testing_reads import DeadLetter, TableReader, as_it_is, dead_letter_of, record_of, result_of
from .testing_task import DriverTask
from .testing_topics import Emitted, MemoryTopics

if TYPE_CHECKING:
    from .app import App

OPEN_END = 2**53
"""Where the inputs of a driver end, for as long as nobody has called `end`."""
UUID = "00000000-0000-4000-8000-000000000000"
MOST_TURNS = 1_000_000


class DriverError(HeadgateError):
    """The driver was asked for something that cannot be."""


class Driver:
    """Runs a job for a test. `partitions` says how wide topics are; every other topic has one partition.

    `now` is where the wall clock begins, in ms. `settings` are those of the job. A failing chunk is not tried again, unless
    `settings={"error.retries": …}` says so. `spark` is the session for stages of Spark.
    """

    def __init__(
        self,
        app: App,
        *,
        partitions: Mapping[str, int] | None = None,
        spark: Any = None,
        now: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.app = app
        self.declared = Declared(app)
        self.spark = _spark(self.declared, spark)
        self.counters: Counter[str] = Counter()
        """What was counted: join_misses, dead_letters, records_skipped …"""
        self._settings: dict[str, Any] = {"error.retries": 0, **app.settings, **(settings or {})}
        self._now = Now(0.0, now)
        self._loop = VirtualLoop()
        self._closed = False
        self._ended: set[str] = set()
        self._committer = Committer(interval_s=0.0)
        self._instructions: deque[Any] = deque()
        self._model = self._make_model(dict(partitions or {}))
        self.topics = MemoryTopics({**dict(partitions or {}), **self._model.streams})
        self._inputs = {step.topic: step for step in self.declared.steps if isinstance(step, s.InputStep)}
        self._stores = {task: MemoryStore(UUID) for task in self._model.tasks}
        self._log_ends = dict.fromkeys(self._model.tasks, 0)
        self._runs = itertools.count(1)
        self._grants = itertools.count(1)
        self.tasks: dict[str, DriverTask] = {}
        self._run = RunView("", "")
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what user code has running."""
        if not self._closed:
            self._closed = True
            for task in self.tasks.values():
                if task.pipeline is not None:
                    self._loop.run_until_complete(task.pipeline.close())
            if self.spark is not None:
                self._loop.run_until_complete(self.spark.close())
            self._loop.close()

    # ------------------------------------------------------------------------------------------------------------ the job

    def _make_model(self, asked: dict[str, int]) -> JobModel:
        graph = self.declared.graph
        known = {*graph.input, *graph.writer, *graph.outputs}
        for topic in asked:
            if topic not in known and topic not in {
                step.sink for step in self.app.steps if isinstance(step, s.AgentStep)
            }:
                raise DriverError(
                    f"partitions={{'{topic}': …}}: the job has no such topic", remedy=f"it has {sorted(known)}"
                )
        stages = tuple(
            replace(one, width=one.width or asked.get(one.writes[0])) if one.verb == "repartition" else one
            for one in graph.stages
        )
        tasks = resolve(
            Graph(graph.inputs, stages),
            {stream: asked.get(stream, 1) for stream in graph.input},
            grouper=grouper(self._settings),
            name=self._setting("grouper"),
        )
        return JobModel(1, 1, tasks=tasks, producers=producer_sets(graph.fed, tasks, {}))

    def _begin(self, run: RunView | None = None) -> None:
        """Make the tasks, as a worker does that is granted them, and let them restore."""
        producers = self._model.producers
        self._run = run or RunView(f"run-{next(self._runs)}", UUID, producers=producers)
        value = self._setting
        settings = TaskSettings(
            watermark_interval_s=0.0,
            idle_timeout_s=value("watermark.idle-timeout") / 1000,
            watermark_quorum=value("watermark.quorum"),
            aggregate_above=value("control.aggregate-above"),
            error_retries=value("error.retries"),
        )
        for task in self._model.tasks:
            plan = self.declared.task_plan(task, self._model, settings)
            inputs = tuple(self._bounded(one) for one in plan.inputs)
            self._start(replace(plan, inputs=inputs))
        self._settle()

    def _start(self, plan: Any, *, careful: bool = False) -> None:
        task = plan.task
        made = DriverTask(
            self,
            plan,
            self._stores[task],
            chunk_records=self._setting("chunk.max-records"),
            careful=careful,
        )
        made.log_end = self._log_ends[task]
        self.tasks[task] = made
        made.start(next(self._grants), self._run, list(self._model.tasks).index(task))

    async def _let_go(self, task: DriverTask) -> None:
        if task.pipeline is not None:
            await task.pipeline.close()
        self._stores[task.name] = task.store
        self._log_ends[task.name] = task.log_end

    def _bounded(self, one: Any) -> Any:
        """Each input ends when the test says so; offsets that were declared stand."""
        if not one.external:
            return one
        until = {p: one.until_of.get(p, OPEN_END) for p in one.partitions}
        return replace(one, start="oldest", until=None, until_of=until)

    def _setting(self, name: str) -> Any:
        from ..core.settings import find

        return parse(name, self._settings.get(name, find(name).default))

    def restart(self) -> None:
        """All tasks die and come back from what was committed. After `drain` or `end` of all inputs a new run begins."""
        for task in self.tasks.values():
            self._loop.run_until_complete(self._let_go(task))
        over = all({"drained", "ended"} & set(task.said) for task in self.tasks.values())
        self._committer = Committer(interval_s=0.0)
        self._instructions.clear()
        self.topics.open.clear()
        if over:
            self._ended.clear()
        self._begin(None if over else self._run)

    # ----------------------------------------------------------------------------------------------------- what tests call

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        at: int | None = None,
        headers: Headers | Mapping[str, bytes] = (),
        partition: int | None = None,
    ) -> None:
        """One record into an input; returns when all that follows is committed. None is a tombstone.

        Value and key are written with the input's serdes; bytes are written as they are. `at` is Kafka's timestamp (ms).
        """
        self.send_all(topic, [Record(key, value, self._wall(at), tuple(_pairs(headers)))], partition=partition)

    def send_all(self, topic: str, values: Iterable[Any], *, partition: int | None = None) -> None:
        """Several records at once (values, or `hg.Record`s): where they share a partition, one chunk."""
        step = self._input(topic)
        for one in values:
            record = one if isinstance(one, Record) else Record(None, one, self._now.wall)
            key = self._key(step, record)
            value = record.value
            raw = value if value is None or isinstance(value, bytes) else step.serde.dumps(value)
            where = partition
            if where is None:
                where = 0 if key is None else self.topics.partitioner(topic).one(key)
            if not 0 <= where < self.topics.width(topic):
                raise DriverError(
                    f"'{topic}' has {self.topics.width(topic)} partitions, and no partition {where}",
                    remedy=f'Driver(app, partitions={{"{topic}": {where + 1}}})',
                )
            self.topics.append(StreamPartition(topic, where), key, raw, record.timestamp, record.headers)
        self._settle()

    def _key(self, step: s.InputStep, record: Record[Any, Any]) -> bytes | None:
        key = record.key
        if key is None and step.key is not None and record.value is not None and not isinstance(record.value, bytes):
            key = column_of(step.key)([record.value])[0]
        if key is None or isinstance(key, bytes):
            return key
        return (step.key_serde or self.app.key_serde).dumps(key)

    def advance(self, duration: str | float) -> None:
        """Move both clocks: `"1m"`, or seconds. Whatever is due on the way happens at its time."""
        left = duration_ms(duration)
        until = Now(round(self._now.mono + left / 1000, 6), self._now.wall + left)
        for _ in range(MOST_TURNS):
            due = min((one for task in self.tasks.values() if (one := task.next_s()) is not None), default=until.mono)
            moment = min(max(due, self._now.mono), until.mono)
            step = moment - self._now.mono
            self._now = Now(moment, self._now.wall + round(step * 1000)) if moment < until.mono else until
            for task in self.tasks.values():
                task.tick()
            self._settle()
            if self._now == until:
                return
        self._stuck()

    def read(self, topic: str, *, partition: int | None = None) -> list[Record[Any, Any]]:
        """What was committed to a topic since it was last read, in order; without control messages."""
        if topic in self.declared.graph.writer:
            raise DriverError(
                f"'{topic}' is the job's own stream; its frames are not for tests", remedy="read an output"
            )
        serde, key_serde = self._serdes(topic)
        found = [one for one in self.topics.drain(topic) if partition is None or one.partition == partition]
        return [record_of(one, serde, key_serde) for one in found]

    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters since the last call."""
        return [dead_letter_of(one) for one in self.topics.drain(self.declared.topics.dead_letters)]

    def table(self, name: str) -> TableReader:
        """A table by its name (of `app.table`, `stream.table`, or an aggregate's step), as committed."""
        names = [spec.name for spec in self.declared.tables()]
        if name not in names:
            raise DriverError(f"the job has no table '{name}'", remedy=f"it has {', '.join(sorted(names)) or 'none'}")
        parts = {task.name: task.tables.table(name) for task in self.tasks.values()}
        finish: Any = as_it_is
        for step in self.declared.steps:
            if isinstance(step, s.AggregateStep) and step.name == name:
                finish = result_of(step)
        return TableReader(name, parts, finish)

    def end(self, *topics: str) -> None:
        """These inputs have ended (all, if none is named). When all have, the run ends."""
        for topic in topics or tuple(self._inputs):
            self._input(topic)
            self._ended.add(topic)
            for task in self.tasks.values():
                task.end(topic, OPEN_END)
        self._settle()

    def drain(self) -> None:
        """Drain the run: what is there is processed, windows, timers and batches flush. `restart` begins the next run."""
        self._run = replace(self._run, draining="drain-1")
        for task in self.tasks.values():
            task.feed(t.RunChanged(self._run))
        self._settle()
        missing = [task.name for task in self.tasks.values() if not {"drained", "ended"} & set(task.said)]
        if missing:
            raise DriverError(f"the drain is not complete: {', '.join(missing)}", remedy="see driver.states")

    @property
    def states(self) -> dict[str, str]:
        """Each task's state."""
        return {task.name: task.machine.state for task in self.tasks.values()}

    @property
    def watermarks(self) -> dict[str, dict[str, int]]:
        """What each task's operators have been told of time, by stream."""
        return {
            task.name: {stream: heard.ts for stream, heard in task.machine.letters.heard.items()}
            for task in self.tasks.values()
        }

    @property
    def wall_ms(self) -> int:
        """The wall clock, in ms."""
        return self._now.wall

    # ------------------------------------------------------------------------------------------------- what a task needs

    def _wall(self, at: int | None) -> int:
        return self._now.wall if at is None else at

    def _input(self, topic: str) -> s.InputStep:
        step = self._inputs.get(topic)
        if step is None:
            raise DriverError(f"'{topic}' is no input of the job", remedy=f"it has {', '.join(sorted(self._inputs))}")
        if topic in self._ended:
            raise DriverError(f"'{topic}' has ended", remedy="send before end(), or restart() for the next run")
        return step

    def _serdes(self, topic: str) -> tuple[Any, Any]:
        for step in self.declared.steps:
            if isinstance(step, s.ToStep) and step.topic == topic:
                return step.serde, step.key_serde
            if isinstance(step, s.AgentStep) and step.sink == topic:
                return step.sink_serde, step.sink_key_serde
        step = self._inputs.get(topic)
        return (step.serde, step.key_serde or self.app.key_serde) if step else (self.app.serde, self.app.key_serde)

    def now(self) -> Now:
        """Both clocks."""
        return self._now

    def patience_s(self) -> float:
        """How long awaited user code may take."""
        return self._setting("await.timeout") / 1000

    def count(self, task: str, name: str, amount: int) -> None:
        """Something that users want to know."""
        self.counters[name] += amount

    def resolve(self, order: t.Resolve) -> t.Resolved:
        """Where to start and to end."""
        until = {at: bound if isinstance(bound, int) else OPEN_END for at, bound in order.until.items()}
        ends = {at: len(self.topics.records(at)) for at in order.ends}
        return t.Resolved(order.request, dict.fromkeys(order.positions, 0), until, ends)

    def want_commit(self, task: str, urgent: bool) -> None:
        """There is something to commit."""
        self._commit_event(ce.Wanted(task, urgent))

    # ------------------------------------------------------------------------------------------------------- to a standstill

    def _settle(self) -> None:
        """Process and commit until nothing is left to do; then raise what user code raised."""
        if self._closed:
            raise DriverError("the driver is closed")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop.run_until_complete(self._until_quiet())
        else:
            raise DriverError(
                "the driver cannot be used inside of a running event loop", remedy="write the test as a plain function"
            )
        for task in self.tasks.values():
            failure, task.failure = task.failure, None
            if failure is not None:
                raise failure

    async def _until_quiet(self) -> None:
        for _ in range(MOST_TURNS):
            turned = False
            for task in self.tasks.values():
                turned = await task.turn() or turned
            if (
                await self._mended()
                or turned
                or self._commit_turn()
                or any(task.work() for task in self.tasks.values())
            ):
                continue
            running = [one for one in asyncio.all_tasks() if one.get_name().startswith(AT_SPARK)]
            if not running:
                return
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        self._stuck()

    async def _mended(self) -> bool:
        """A commit failed on what a task held back: as on a worker, it begins anew where it was committed, and holds nothing back."""
        spoilt = [task for task in self.tasks.values() if task.spoilt is not None]
        for task in spoilt:
            self._void(task)
            await self._let_go(task)
            self._start(task.plan, careful=True)
            for topic in self._ended:
                self.tasks[task.name].end(topic, OPEN_END)
        return bool(spoilt)

    def _void(self, task: DriverTask) -> None:
        self.topics.open = [one for one in self.topics.open if one.task != task.name]

    def _stuck(self) -> NoReturn:
        raise DriverError(f"the job does not come to rest; its tasks are {self.states}")

    def _commit_event(self, event: Any) -> None:
        self._instructions.extend(self._committer.handle(event, self._now))

    def _commit_turn(self) -> bool:
        """Carry out what the committer said; whether there was anything."""
        deadline = self._committer.deadline()
        if not self._instructions and deadline is not None and deadline <= self._now.mono:
            self._commit_event(Tick())
        did = bool(self._instructions)
        while self._instructions:
            match self._instructions.popleft():
                case ce.Begin(txn):
                    self._commit_event(ce.Begun(txn))
                case ce.Seal(txn, names):
                    self._seal(txn, names)
                case ce.Flush(txn):
                    self._commit_event(ce.Sent(txn))
                    self._commit_event(ce.Acked(txn))
                case ce.Commit(txn):
                    self._commit(txn)
                case ce.Apply(txn, task, position):
                    self.tasks[task].apply(position)
                    self._commit_event(ce.Applied(txn, task))
                case ce.TellDone(txn, task, position):
                    self.tasks[task].feed(t.CommitDone(txn, position))
                case _:
                    pass
        return did

    def _seal(self, txn: int, names: Iterable[str]) -> None:
        took: set[str] = set()
        for name in names:
            task = self.tasks[name]
            if task.seal(txn):
                took.add(name)
            elif task.spoilt is not None:
                self._void(task)
        self._commit_event(ce.Sealed(txn, frozenset(took)))

    def _commit(self, txn: int) -> None:
        emitted: list[Emitted] = self.topics.open
        self.topics.open = []
        self.topics.commit(emitted)
        for name in self._committer.tasks:
            self.tasks[name].log_end += 1
        self._commit_event(ce.Committed(txn, {name: self.tasks[name].log_end for name in self._committer.tasks}))


def _spark(declared: Declared, session: Any) -> Any:
    """Who runs functions of PySpark, on the test's own session if it gives one."""
    if not any(isinstance(step, s.SparkStep) for step in declared.steps):
        return None
    from ..spark_bridge.session import Spark

    return Spark("local[1]", session=session)


def _pairs(headers: Headers | Mapping[str, bytes]) -> Iterable[tuple[str, bytes | None]]:
    return headers.items() if isinstance(headers, Mapping) else headers


__all__ = ["DeadLetter", "Driver", "DriverError", "TableReader"]
