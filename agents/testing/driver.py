"""The test driver: a whole job in one process, in memory, in virtual time. `headgate.testing.Driver`.

    with hg.testing.Driver(app) as d:
        d.send("orders", {"country": "DE", "amount": 3})
        assert d.read("totals") == [hg.Record("DE", {"n": 1, "total": 3})]

It runs the same code as a worker: the runtime (`runtime`) with its tasks, intakes, choosers, outbox and committer, over logs in memory
(`testing.port`). It leaves out Kafka, Faust and real time: clocks move only by `advance`, and no call returns before everything that
follows from it is processed and committed. The same calls always give the same results.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

from ...core.coordination.messages import SetRequest
from ...core.coordination.metadata import MetadataStore
from ...core.coordination.requests import DRAIN
from ...core.graph.graph import SHARE, Graph
from ...core.graph.grouping import counts as widths
from ...core.graph.model import JobModel, producer_sets
from ...core.graph.resolve import resolve, shared_widths
from ...core.names import StreamPartition
from ...core.orders import Report, RunView, Start, TaskReported
from ...core.settings import VirtualTime, duration_ms
from ...core.task import protocol as t
from ...core.task.plan import TaskPlan
from ..job.derive.declaration import Declared
from ..job.derive.plans import grouper, task_settings
from ..job.steps.keyed import AggregateStep, WindowStep
from ..job.steps.sources import InputStep
from ..live_settings import Settings
from ..records.columns.selecting import nested_column_of
from ..records.values.record import SAME_TIME, Headers, Record
from ..registry.memory import MemoryRegistry, taught
from ..registry.serde import connect
from ..runtime.host.runtime import Runtime
from ..sinks.delivery import delivery_for
from .clock import VirtualClock
from .host import DriverHost
from .logs import Logs, in_columns
from .loop import VirtualLoop, in_thread
from .other_jobs import OtherJobs, rows_of_frame
from .port import MemoryPort
from .quiet import quiet
from .reads import DeadLetter, TableReader, WindowReader, as_it_is, dead_letter_of, record_of, result_of
from .state import ID, DriverError, MemoryJob
from .targets import MemoryTargets

if TYPE_CHECKING:
    from ..job.declare.app import App
    from ..runtime.store.state import TaskStore
    from ..runtime.task.task import TaskActor

__tracebackhide__ = True
"""pytest leaves out the driver's frames: a failed test shows the line of the test, and before it that of the job."""
OPEN_END = 2**40
"""The end of a driver's inputs until `end` is called. Each run's end is this much further than the last."""
OWN_SETTINGS = {"commit.interval": VirtualTime("0ms")}
ANSWERS = 3
"""How often the broker answers at the end of each advance of the clock."""
MOST_INCARNATIONS = 10
"""The most producers that may die one after the other during one call."""


class Driver:
    """Runs a job for a test.

    `partitions`: the number of partitions of topics; all others have one. `now`: the start of the wall clock, in ms; `max_future=` of
    inputs is measured against it, and applies only if it is given. `settings`: the settings of the job. A failing chunk is not
    retried, unless `settings={"error.retries": …}` says so. `spark`: the Spark session in which `.spark(…)` stages run; a job that has
    any needs one. `schemas`: the schema registry of `hg.avro()` and the like, id (or `uuid.UUID`, or subject) → schema; what serdes write
    gets an id by itself. `topics`: those that exist, besides those in `partitions`, for inputs by pattern.
    """

    def __init__(
        self,
        app: App,
        *,
        partitions: Mapping[str, int] | None = None,
        spark: Any = None,
        now: int | None = None,
        settings: Mapping[str, Any] | None = None,
        schemas: Mapping[Any, Any] | None = None,
        topics: Iterable[str] = (),
    ) -> None:
        self.app = app
        self.declared = Declared(app, fetches_all=True, found=(*topics, *(partitions or {})))
        connect(self.declared.steps, partial(MemoryRegistry, schemas))
        self.spark = _spark(self.declared, spark)
        self._declared_settings = {"error.retries": 0, "spark.in-flight": 1, **app.settings, **(settings or {})}
        self._settings = Settings({**self._declared_settings, **OWN_SETTINGS})
        self._closed = False
        self._ended: set[str] = set()
        self._model = self._make_model(dict(partitions or {}))
        self._clock = VirtualClock(now or 0)
        self.topics = Logs({**dict(partitions or {}), **self._model.widths})
        self._port = MemoryPort(self.topics, self._clock)
        if now is not None:
            self._port.broker.saw(now, self._clock.now())
        self._inputs = self.declared.inputs
        self._writes = {
            topic: (step.serde.at(topic, "value"), (step.key_serde or self.app.key_serde).at(topic, "key"))
            for topic, step in self._inputs.items()
        }
        """How tests write values and keys to the inputs."""
        self._expires = any(spec.ttl_ms is not None for spec in self.declared.tables())
        self._loop = VirtualLoop(self._clock.ring)
        self._runs = itertools.count(1)
        self._grants = itertools.count(1)
        self._job = MemoryJob(str(app.job), self.declared.graph, self._model, self._clock.now)
        self._run = RunView("", "")
        self._bounds: dict[StreamPartition, int] = {}
        """The end of each input in this run."""
        self._others = {
            topic: OtherJobs(topic, step.producers, self.topics)
            for topic, step in self._inputs.items()
            if step.producers
        }
        """The jobs that write the shared streams that this one reads."""
        self._incarnations = 0
        self._host = DriverHost(
            self._loop,
            plan=_weak(self._plan),
            run=_weak(self._view),
            again=_weak(self._next_incarnation),
            trouble_of=_weak(self._trouble_of),
            reported=_weak(self._reported),
            starts_again=_weak(self._starts_again),
        )
        self._runtime = Runtime(
            ID,
            self._host,
            self._host,
            self._port,
            self.declared,
            self._settings,
            MemoryTargets(self.declared, self.topics, len(self._model.tasks)),
            self._port,
            spark=self.spark,
            sinks=delivery_for(self.declared.steps, of_test=True),
        )
        self._abandoned = weakref.finalize(self, _end, self._loop, self._runtime, self._host)
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> NoReturn:
        raise DriverError(
            "a test driver is a plain block, in coroutines, too",
            remedy="with hg.testing.Driver(app) as driver: …; nothing of it is awaited",
        )

    async def __aexit__(self, *_: object) -> None:
        """Only so that `async with` says what to write instead."""

    def close(self) -> None:
        """End what user code has running."""
        if not self._closed:
            self._closed = True
            self._abandoned()

    # ------------------------------------------------------------------------------------------------------------ the job

    def _make_model(self, asked: dict[str, int]) -> JobModel:
        graph = self.declared.graph
        known = {*graph.input, *graph.framed, *graph.outputs}
        for topic in asked:
            if topic not in known and not any(topic in step.written for step in self.app.steps):
                raise DriverError(
                    f"partitions={{'{topic}': …}}: the job has no such topic", remedy=f"it has {sorted(known)}"
                )
        stages = tuple(
            replace(one, width=one.width or asked.get(one.writes[0])) if one.verb in ("repartition", SHARE) else one
            for one in graph.stages
        )
        sized = Graph(graph.inputs, stages)
        tasks = resolve(
            sized,
            {stream: asked.get(stream, 1) for stream in graph.input},
            grouper=grouper(self._settings.given),
            name=self._settings.text("grouper"),
        )
        wanted = dict.fromkeys(tasks, ID)
        return JobModel(
            1,
            1,
            tasks=tasks,
            wanted=wanted,
            processors=(ID,),
            producers=producer_sets(graph.fed, tasks, {}),
            shared=shared_widths(sized, widths(tasks), {}),
        )

    def _begin(self) -> None:
        """Begin a new run."""
        self._job.begin(f"run-{next(self._runs)}", self._settings.given)
        self._take_settings()
        self._run = self._job.state.run_view() or self._run
        for topic in self._inputs:
            for partition in range(self.topics.width(topic)):
                at = StreamPartition(topic, partition)
                self._bounds[at] = (self.topics.log(at).end // OPEN_END + 1) * OPEN_END
        self._settle(self._live())

    async def _live(self) -> None:
        """Start a producer and all tasks, as in a worker that is granted all of them."""
        await self._runtime.producers.begin(ID, ID)
        for task in self._model.tasks:
            self._start(task)

    def _starts_again(self, report: TaskReported) -> bool:
        """Start a task again that has lost a copy of a table: it waits until that is there."""
        lost = report.passing and report.why == self._runtime.copies.lost_why
        if lost:
            self._start(report.task)
        return lost

    def _start(self, task: str) -> None:
        grant = next(self._grants)
        self._job.granted(task, grant)
        self._runtime.granted.tell(task, Start(task, grant, self._run, list(self._model.tasks).index(task)))

    async def _next_incarnation(self, why: str) -> None:
        """Start again after the producer died. Uncommitted work is lost: as on a worker, all tasks restart from their last commit."""
        self._incarnations += 1
        if self._incarnations > MOST_INCARNATIONS:
            raise DriverError(f"no transaction can be committed: {why}")
        for actor in list(self._runtime.actors.values()):
            await actor.ended.wait()
        await self._live()

    def _view(self) -> RunView:
        return self._run

    def _trouble_of(self, task: str) -> BaseException | None:
        actor = self.tasks.get(task)
        if actor is None:  # it has failed before it was restored
            return next((one.error for one in self._runtime.copies.all.values() if one.error is not None), None)
        if (trouble := actor.failures.trouble) is None:
            return None
        if (place := actor.failures.place) and place not in getattr(trouble, "__notes__", ()):
            trouble.add_note(place)
        return trouble

    def _reported(self, report: Report) -> None:
        self._job.reported(report)

    def _plan(self, task: str) -> TaskPlan:
        plan = self.declared.task_plan(task, self._model, task_settings(self._settings.given))
        graph = self.declared.graph
        alike = graph.bounded or all(one.until is None for one in graph.counted)  # `end` is as `--bounded`
        return replace(plan, inputs=tuple(self._bounded(one) for one in plan.inputs), bounded=alike)

    def _bounded(self, one: Any) -> Any:
        """Make the input end when the test says so. Declared offsets stay."""
        if not one.external or (one.jobs and one.ends):
            return one
        open_ends = {p: self._bounds[StreamPartition(one.stream, p)] for p in one.partitions}
        return replace(one, start="oldest", until=None, until_of={**open_ends, **one.until_of})

    def restart(self) -> None:
        """Kill all tasks and start them again from what was committed. If the run is over (after `drain`, or `end` of all inputs), begin a
        new one.
        """
        over = not self._open()
        self._settle(_shut_down(self._runtime, self._host))
        self._host.begin()
        if over:
            self._ended.clear()
            self._begin()
        else:
            self._settle(self._live())

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
        """Send one record to an input. Returns when everything that follows from it is committed. A value of None is a tombstone.

        Value and key are encoded with the input's serdes; bytes are written as they are. `at` is Kafka's timestamp (ms). For a stream of
        another job it is the event time, and also the watermark that its producers say next.
        """
        self.send_all(topic, [Record(key, value, self._wall(at), tuple(_pairs(headers)))], partition=partition)

    def send_all(self, topic: str, values: Iterable[Any], *, partition: int | None = None) -> None:
        """Send several records at once (values, or `hg.Record`s). Those that share a partition form one chunk."""
        step = self._input(topic)
        written: dict[int, list[Any]] = {}
        for one in values:
            record = one if isinstance(one, Record) else Record(None, one, self.wall_ms)
            key, raw, headers = self._sent(step, record)
            where = partition
            if where is None:
                where = 0 if key is None else self.topics.partitioner(topic).one(key)
            if not 0 <= where < self.topics.width(topic):
                raise DriverError(
                    f"'{topic}' has {self.topics.width(topic)} partitions, but no partition {where}",
                    remedy=f'Driver(app, partitions={{"{topic}": {where + 1}}})',
                )
            at = self.wall_ms if record.timestamp == SAME_TIME else record.timestamp
            written.setdefault(where, []).append((key, raw, at, headers))
        others = self._others.get(topic)
        for where, rows in written.items():
            if others is None:
                self.topics.write(StreamPartition(topic, where), *in_columns(rows))
            else:
                others.rows(where, rows)
        if others is not None:
            others.watermark()
        self._settle()

    def recreate(self, topic: str) -> None:
        """Delete an input topic with all its records, and make it again under the same name, empty. Its `on_lost` decides what follows."""
        self._input(topic)
        self.topics.remake(topic)
        self._settle()

    def follow(self, topic: str, job: Driver) -> None:
        """Receive what the job of another driver has shared in this stream since the last call, its control messages included."""
        self._input(topic)
        if topic not in self._others:
            raise DriverError(f"'{topic}' is no stream of another job", remedy=f"app.input('{topic}', producers=[…])")
        if topic not in job.declared.graph.shared:
            raise DriverError(f"the job '{job.app.job}' does not share '{topic}'", remedy=f".share('{topic}')")
        if job.topics.width(topic) != self.topics.width(topic):
            width = job.topics.width(topic)
            raise DriverError(
                f"'{topic}' has {width} partitions there", remedy=f'Driver(…, partitions={{"{topic}": {width}}})'
            )
        self._others[topic].copy(job.topics)
        self._settle()

    def _sent(self, step: InputStep, record: Record[Any, Any]) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers of a record as they stand in an input. A header in which a serde names the schema of what it has encoded
        here replaces one of that name."""
        parts: list[bytes | None] = []
        headers = list(record.headers)
        for serde, part in zip(self._writes[step.topic], (record.value, self._key(step, record)), strict=True):
            if part is None or isinstance(part, bytes):
                parts.append(part)
                continue
            parts.append(taught(serde.dumps, part))
            if (own := serde.header()) is not None:
                headers = [*(one for one in headers if one[0] != serde.header_name), (serde.header_name, own)]
        return parts[1], parts[0], headers

    def _key(self, step: InputStep, record: Record[Any, Any]) -> Any:
        """The key of a record: the given one, or that which its value holds."""
        key = record.key
        if key is None and step.key is not None and record.value is not None and not isinstance(record.value, bytes):
            with contextlib.suppress(KeyError, AttributeError):  # what a record without the field is, the job says
                key = nested_column_of(step.key)([record.value])[0]
        return key

    def advance(self, duration: str | float) -> None:
        """Move both clocks: `"1m"`, or a number of seconds. Whatever is due on the way happens at its time."""
        until_s = self._clock.now().mono + duration_ms(duration) / 1000
        there = False
        while not there:
            there = self._clock.move(until_s)
            for consumer in list(self._port.consumers):  # first: a broker answers fetches all the time
                consumer.answer_all()
            self._settle()
            for _ in range(
                ANSWERS if there else 0
            ):  # what is idle is lifted by answers that were asked for after the others went on
                for consumer in list(self._port.consumers):
                    consumer.answer_all()
                self._settle()
            if self._expires:
                self._settle(self._look_for_expired())

    async def _look_for_expired(self) -> None:
        for actor in self.tasks.values():
            actor.contribution.upkeep()

    def read(self, topic: str, *, partition: int | None = None) -> list[Record[Any, Any]]:
        """The records committed to a topic since the last call, in order, without control messages."""
        if topic in self.declared.graph.writer:
            raise DriverError(
                f"'{topic}' is an internal stream of the job, which tests cannot read", remedy="read an output"
            )
        serde, key_serde = self._serdes(topic)
        found = [one for one in self.topics.drain(topic) if partition is None or one.partition == partition]
        if topic in self.declared.graph.shared or topic in self._others:
            found = [row for one in found for row in rows_of_frame(one)]
        return [taught(record_of, one, serde, key_serde) for one in found]

    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters since the last call."""
        return [dead_letter_of(one) for one in self.topics.drain(self.declared.topics.dead_letters)]

    def table(self, name: str) -> TableReader | WindowReader:
        """The committed rows of a table, by its name (of `app.table`, `stream.table`, or the step of an aggregate or a window).

        An aggregate has its results by key. A window has the open ones by `(key, window_start)`, each with `window_start`, `window_end` and
        its aggregates so far, or with its `rows`.
        """
        names = [spec.name for spec in self.declared.every_table()]
        if name not in names:
            raise DriverError(f"the job has no table '{name}'", remedy=f"it has {', '.join(sorted(names)) or 'none'}")
        if name in self.declared.copied:
            copy = self._runtime.copies.all[name].table
            return TableReader(name, {} if copy is None else {"the copy": copy}, as_it_is)
        parts = {task: self._state(task, number).table(name) for number, task in enumerate(self._model.tasks)}
        finish: Any = as_it_is
        for step in self.declared.steps:
            if isinstance(step, WindowStep) and step.name == name:
                return WindowReader(step, parts)
            if isinstance(step, AggregateStep) and step.name == name:
                finish = result_of(step)
        return TableReader(name, parts, finish)

    def _state(self, task: str, number: int) -> TaskStore:
        """The state of a task; for a failed task, what is committed."""
        actor = self.tasks.get(task)
        if actor is not None and actor.state.tables is not None:
            return actor.state
        found = self._runtime.open_state(task, number)
        self._settle(_restored(found))
        return found

    def end(self, *topics: str) -> None:
        """End these inputs, or all of them. When all have ended, the run ends. An input with `until="producers"` ends because all of its
        producers say that they have ended."""
        for topic in topics or tuple(self._inputs):
            self._input(topic)
            if topic in self.declared.graph.copied:  # a copy follows its topic, and never ends
                continue
            self._ended.add(topic)
            if topic in self._others and self._inputs[topic].until == "producers":
                self._others[topic].end()
                continue
            for partition in range(self.topics.width(topic)):
                at = StreamPartition(topic, partition)
                self.topics.end_at(at, max(self._bounds[at], self.topics.log(at).end))
        self._settle()

    def drain(self) -> None:
        """Drain the run: existing records are processed; windows, timers and batches are flushed. `restart` begins the next run."""
        if self._run.draining is None:
            self._ask(SetRequest(f"drain-{self._run.run_id}", DRAIN))
        else:
            self._settle()
        if missing := self._open():
            raise DriverError(f"the drain is not complete: {', '.join(missing)}", remedy="see driver.states")

    def _open(self) -> list[str]:
        """The tasks that have not finished."""
        found = zip(self._model.tasks, self._host.said(self._model.tasks), strict=True)
        return [task for task, said in found if not {"drained", "ended"} & said]

    @property
    def metadata(self) -> MetadataStore:
        """Overrides, tasks and requests of the job, as `hg.metadata(JOB)` returns them for a running job. Settings take effect as there."""
        return MetadataStore(lambda: self._job.state, self._ask)

    def _ask(self, request: SetRequest) -> None:
        self._job.ask(request)
        self._settle(self._follow())
        if not self._open():
            self._job.drained()

    async def _follow(self) -> None:
        """Apply the effects of a request."""
        self._take_settings()
        for actor in self.tasks.values():
            actor.take_settings()
        before, self._run = self._run, self._job.state.run_view() or self._run
        if before != self._run:
            for task in self._model.tasks:
                self._runtime.granted.tell(task, t.RunChanged(self._run))

    def _take_settings(self) -> None:
        self._settings.given = {**self._declared_settings, **self._job.state.overrides, **OWN_SETTINGS}

    @property
    def tasks(self) -> dict[str, TaskActor]:
        """The tasks."""
        actors = self._runtime.actors
        return {task: actors[task] for task in self._model.tasks if task in actors}

    @property
    def counters(self) -> Counter[str]:
        """The counters of all tasks together: join_misses, dead_letters, records_skipped …"""
        found: Counter[str] = Counter()
        for counts in self._runtime.counters.values():
            found.update(counts)
        return found

    @property
    def states(self) -> dict[str, str]:
        """The state of each task."""
        return {name: actor.machine.phase for name, actor in self.tasks.items()}

    @property
    def watermarks(self) -> dict[str, dict[str, int]]:
        """The watermarks that each task's operators have received, by stream."""
        return {name: actor.machine.view.heard for name, actor in self.tasks.items()}

    @property
    def wall_ms(self) -> int:
        """The wall clock, in ms."""
        return self._clock.now().wall

    # ------------------------------------------------------------------------------------------------- what a task needs

    def _wall(self, at: int | None) -> int:
        return self.wall_ms if at is None else at

    def _input(self, topic: str) -> InputStep:
        step = self._inputs.get(topic)
        if step is None:
            raise DriverError(
                f"'{topic}' is not an input of the job", remedy=f"it has {', '.join(sorted(self._inputs))}"
            )
        if topic in self._ended:
            raise DriverError(f"'{topic}' has ended", remedy="send before end(), or restart() for the next run")
        return step

    def _serdes(self, topic: str) -> tuple[Any, Any]:
        for step in self.declared.steps:
            if topic in step.written:
                return step.written[topic]
        step = self._inputs.get(topic)
        return (
            (step.serde, step.key_serde or self.app.key_serde) if step else (self.app.serde, self.app.output_key_serde)
        )

    # ------------------------------------------------------------------------------------------------------- to a standstill

    def _settle(self, work: Coroutine[Any, Any, None] | None = None) -> None:
        """Do this work, then process and commit until nothing is left to do. Raises what user code raised."""
        if self._closed:
            _discard(work)
            raise DriverError("the driver is closed")
        if self._loop.is_running():
            _discard(work)
            raise DriverError(
                "the driver is called by the code of the job that it runs", remedy="call it from the test alone"
            )
        self._incarnations = 0
        with quiet():
            in_thread(lambda: self._loop.until_quiet(self._host, work))
        self._host.raise_failure()


async def _shut_down(runtime: Runtime, host: DriverHost) -> None:
    for actor in list(runtime.actors.values()):
        await actor.kill()
    await runtime.copies.stop()
    await runtime.producers.drop()
    await host.end()


def _end(loop: VirtualLoop, runtime: Runtime, host: DriverHost) -> None:
    """End a driver's runtime, also for a driver that was never closed and is garbage collected."""

    def end() -> None:
        loop.run_until_complete(_shut_down(runtime, host))
        if runtime.spark is not None:
            loop.run_until_complete(runtime.spark.close())
        if runtime.sinks is not None:
            loop.run_until_complete(runtime.sinks.close())

    with quiet():
        in_thread(end)
    loop.close()


def _weak(method: Any) -> Any:
    """A call of a method that does not keep its object alive."""
    found = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        return found()(*args)  # type: ignore[misc]  # the owner is alive while this is called

    return call


async def _restored(state: TaskStore) -> None:
    await state.open()
    ends = await state.log_ends()
    await state.restore(t.Restore(ends.start, ends.end), lambda _: None)


def _discard(work: Any) -> None:
    if work is not None:
        work.close()


def _spark(declared: Declared, session: Any) -> Any:
    """What runs PySpark functions, in the test's own session; None if the job has none."""
    found = next((step for step in declared.steps if step.in_spark), None)
    if found is None:
        return None
    if session is None:
        raise DriverError(
            f"the job passes batches to Spark, in '{found.name}' ({found.where}), and this driver has no session",
            remedy="Driver(app, spark=session), with a session of your own: "
            'SparkSession.builder.master("local[1]").getOrCreate(), once for all tests',
        )
    from ...spark_bridge.session.session import Spark

    return Spark("local[1]", session=session)


def _pairs(headers: Headers | Mapping[str, bytes]) -> Iterable[tuple[str, bytes | None]]:
    return headers.items() if isinstance(headers, Mapping) else headers
