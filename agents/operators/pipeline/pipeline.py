"""The operators of a task, connected: chunks of the streams that it reads go in; rows go out to topics, tables and intermediate streams.

A pipeline belongs to one task and processes one letter at a time. `await pipeline.chunk(...)` runs a chunk through all operators, awaited
work included. Afterwards either all output is in the ready buffer, or an exception was raised and `drop()` has discarded everything.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, Protocol, cast

from ....core.batching.batch_progress import StepBatches
from ....core.errors import RowRefused
from ....core.graph.checks import met
from ....core.names import StreamPartition
from ....core.orders import UNPARK, Unpark
from ....core.progress.came_from import OffsetRange
from ...cancellation import passes
from ...job.declare.declared_table import bound
from ...job.derive.declaration import Declared
from ...job.steps.sources import SourceStep
from ...job.steps.step import Step
from ...job.types.schemas import CLOSED, PARKED
from ...learning import MustLearn, to_learn
from ...measured import Meter
from ...patience import Patience
from ...records.columns.batch import Batch
from ...records.columns.records import Records
from ...records.frames.arrow_frames import FrameWriter
from ...records.frames.chunks import Chunk
from ...records.frames.range_buffer import UnreadRecords
from ...records.kafka.spans import SpannedRecords
from ...records.layout import Buffer
from ...records.limits import MOST_BYTES
from ...records.values.record import Headers
from ...step_work import StepTotals
from ...tracing.traces import NoTraces, Traces
from ..actors.asynchronous import Deferred
from ..base.bad_records import BadRecord, NoColumns
from ..base.letter import LetterPart
from ..base.stateless import (
    BYTES,
    VALUES,
    Operator,
    Relay,
    Uncaught,
    UserCodeError,
)
from ..base.trace_header import named_rows, named_spans
from ..failures.failures import chunk_id
from ..failures.kinds import ErrorKinds
from ..failures.parked import Parked, ParkedChunk
from ..failures.result_rows import push_result
from ..joins.joined import JoinOp, SideRows
from ..shuffle.spreading import Before, Spread
from ..source.column_source import ColumnSource
from ..source.decode import ReadsChunks, SourceOp
from ..source.key_test import KeyTest
from ..windows.open_windows import OpenCounts
from ..windows.windowed import LateCounts
from .letter_bounds import frame_bounds, letter_bounds
from .made import operator_of
from .step_clock import StepClock

P = ParamSpec("P")
DEEP = 100
"""The number of steps whose calls nest. Python allows about a thousand frames, and each step takes two or three."""
StepTimes = Sequence[tuple[str, int]]
"""Steps by name, each with the event time that it is told."""


class ReadyBuffer(Protocol):
    """The task's ready buffer: the outputs of the running chunk, until it is completed or dropped."""

    def emit(
        self,
        topic: str,
        partition: int | None,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        timestamps: list[int] | int,
        headers: list[Any] | None = None,
    ) -> tuple[int, int]:
        """Returns how many of the records have another timestamp in Kafka than their event time, and how many are older than their topic
        keeps records."""
        ...

    def emit_spans(
        self, topic: str, partition: int | None, records: SpannedRecords, rows: Buffer | None = None
    ) -> tuple[int, int]: ...
    def complete(self) -> None: ...
    def drop(self) -> None: ...


class _Nothing:
    """The source of a chunk of which nothing is read: an unreadable frame that is left out."""

    def read(self, chunk: Chunk, skip: frozenset[int]) -> int | None:
        """See `SourceOp`."""


class Pipeline:
    """Everything that a task does with records."""

    outlasts = False
    """Whether the task waits for a sink's target that is away, as long as it takes; in virtual time, no one would bring it back."""
    holds_back = False
    """Whether operators may hold something back for the commit."""
    under: tuple[str, int] = "", 0
    """The id of the job's life, and the grant under which the task runs."""
    spark_in_flight = 4
    spark_timeout_s = 3600.0
    gather_max_bytes = 1 << 30
    batch_max_bytes = MOST_BYTES

    def __init__(
        self,
        declared: Declared,
        task: str,
        *,
        buffer: ReadyBuffer,
        seal_buffer: ReadyBuffer,
        table: Callable[[str], Any],
        widths: Mapping[str, int],
        now_ms: Callable[[], int],
        count: Callable[[str, int], None],
        streams: Iterable[str],
        timers: Collection[str] = (),
        prepare: Callable[[], None] | None = None,
        careful: bool = False,
        patience: Patience | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`timers`: the periodic functions that this task calls, by their steps.

        `prepare` encodes what the letter changed in tables. If something cannot be encoded, it raises, and the letter has failed.

        `careful`: nothing is held back for the commit. A failure at a commit costs the whole transaction. After one, the same records run
        again in this mode, where the failing record is found among them, and its policy decides.

        `patience`: how long user code may be awaited; without it there is no limit.
        """
        self.declared = declared
        self.graph = declared.graph
        self.app = declared.app
        self.task = task
        self.buffer = buffer
        self.seal_buffer = seal_buffer
        self.table = table
        self.now_ms = now_ms
        self._count = count
        self._counted: Counter[str] = Counter()
        self._errors = ErrorKinds()
        """What the running letter counts: it is told when the letter is complete, and forgotten if it fails, since it then runs again."""
        self.patience = patience or Patience()
        self.traces = traces or NoTraces()
        """Where operators have spans of what others do for them."""
        self._prepare = prepare
        self._careful = careful
        self.trouble: BaseException | None = None
        """The error with which the last chunk failed."""
        self._unknown: MustLearn | None = None
        """What the letter must learn first, though user code may have caught the error that says so."""
        self._deferred: deque[Deferred] = deque()
        self._later: deque[Callable[[], None]] = deque()
        self.push_result: Callable[[Operator, Records], None] | None = None
        self._running: tuple[Chunk, Callable[[], Records], Callable[[], list[int] | None]] | None = None
        self._skipped: frozenset[int] = frozenset()
        self.wants_commit = False
        self._seen: dict[StreamPartition, int] = {}
        """The greatest event times of records of inputs that were read elsewhere, by the running letter's results."""
        self._stopping: list[Operator] = []
        """The actors that the running letter stops."""
        self._before: list[tuple[Operator, tuple[Any, ...]]] = []
        """The flags of the operators when the letter began."""
        self.meter = Meter()
        """What measures the running letter."""
        self._clock: StepClock | None = None
        """What measures the steps; None in virtual time."""
        self.keys: KeyTest | None = None
        """Tests by which partitioner the inputs were partitioned."""
        self.spark: Any = None
        """The bridge that runs PySpark functions; only jobs that use Spark have one."""
        self.sinks: Any = None
        """The bridge to sinks; only jobs that have any need one."""
        self.batch_limits: Mapping[str, tuple[int, int]] = {}
        """Rows and age of batches whose steps leave them to settings."""
        self.topic_id: Callable[[StreamPartition], str] = lambda at: ""
        """The id of the topic that the offsets of a partition belong to; empty if it is not known."""
        self.adopted: Callable[[], Mapping[str, str]] = dict
        """The ids of topics that are taken for the same as their successors."""
        self.bootstraps: Callable[[], bool] = lambda: False
        """Whether something must still be read before anything else is: what needs no record waits for it."""
        self.poke: Callable[[], None] = _nothing
        """Called when the result of `due()` may have changed without a letter."""
        self.operators: list[Operator] = []
        self.sources: dict[str, SourceOp] = {}
        self.reads: dict[int, frozenset[str]] = {}
        """The streams of this task whose records reach an operator, by the operator's id."""
        self._timers = timers
        self._spread = Spread(widths, lambda *rows: self._write(self.buffer.emit, *rows), self._before_it)
        self._trace: bytes | None = None
        """The span in which records of outputs are written, as a header names it; None if they do not name it."""
        self._assemble(set(streams), careful)

    # --------------------------------------------------------------------------------------------------- put together

    def _assemble(self, streams: set[str], careful: bool) -> None:
        made: dict[int, Operator] = {}
        depth: dict[int, int] = {}
        for step in self.declared.steps:
            if id(step) in self.declared.copied_steps:  # the worker runs it, once for all of its tasks
                continue
            if isinstance(step, SourceStep):
                made[id(step)] = self.sources[step.stream(self.declared)] = SourceOp(step, self)
                depth[id(step)] = 0
            if not step.staged or (step.by_clock and step.name not in self._timers):
                continue
            operator = operator_of(step, self)
            takes: list[Operator] = [operator] * len(step.parents)
            if isinstance(operator, JoinOp):
                takes = [*operator.sides()]
                self.operators += takes
            self.operators.append(operator)
            for parent, child in zip(step.parents, takes, strict=True):
                made[id(parent)].children.append(child)
            if id(step) in made:
                continue
            made[id(step)] = operator
            depth[id(step)] = 1 + max((depth[id(parent)] for parent in step.parents), default=0)
            if not depth[id(step)] % DEEP:
                made[id(step)] = relay = Relay(step, self)
                operator.children.append(relay)
                self.operators.append(relay)
        wants: dict[int, bool] = {}
        """Whether at or behind an operator a step awaits, is told the event time, or a failure may cost only a record: then aggregates
        before it emit at once."""
        for operator in reversed(self.operators):  # parents come before children
            below = any(wants[id(child)] for child in operator.children)
            wants[id(operator)] = below or operator.awaits or operator.letters or self._may_leave_out(operator)
            operator.at_once = careful or below
            if careful:
                operator.be_careful()
        self._unlearned = self._written_late()
        self.bounds = letter_bounds(self.operators, self.sources)
        needed: dict[int, frozenset[str]] = {}
        """The columns that an operator needs of its rows, by the operator's id."""
        for operator in reversed(self.operators):
            needed[id(operator)] = operator.reads(frozenset[str]().union(*(needed[id(c)] for c in operator.children)))
        for source in self.sources.values():
            source.wants_keys = _wanted(source)
            source.see_children(lambda child: needed[id(child)], ColumnSource)
        self._spread.most = frame_bounds(self.bounds, self.sources)
        graph = self.declared.graph
        for one in map(partial(met, graph), graph.stages):
            for stream in one if len(one) > 1 else ():
                if stream in self.sources:
                    self.sources[stream].only_text = True
        for operator in self.operators:
            name = self.declared.name(operator.step)
            self.reads[id(operator)] = graph.flow(name) & streams
            for topic in self.reads[id(operator)] if operator.keeps_origins or operator.names_origins else ():
                source = self.sources[topic]
                source.wants_offsets |= operator.keeps_origins or not source.step.framed
                source.wants_origins |= operator.names_origins and source.step.framed
        for source in self.sources.values():
            source.wants_origins &= not source.wants_offsets
        self.sources = {topic: source for topic, source in self.sources.items() if topic in streams}
        self._hearing = [operator for operator in self.operators if operator.letters]
        self.parked = Parked(self.table(PARKED), self.sources, now_ms=self.now_ms)
        self._recall()

    def _written_late(self) -> list[Any]:
        """The serdes that ask a registry and write what is held back for a commit. At a commit no one can ask."""
        behind, found = set[int](), list[Any]()
        for operator in self.operators:  # parents come before children
            if id(operator) in behind:
                found += [serde for serde in operator.writes if serde.asks]
            if id(operator) in behind or type(operator).seal is not Operator.seal:
                self.holds_back = True
                behind |= {id(child) for child in operator.children}
        return found

    def measure(self, totals: StepTotals, now_ns: Callable[[], int]) -> None:
        """From now on, measure by this clock what each step takes, and add it up in `totals`."""
        self._clock = clock = StepClock(totals, now_ns, every=any(operator.awaits for operator in self.operators))
        self.meter.within = clock.within
        for operator in self.operators:
            if not isinstance(operator, Relay):  # it stands for a step that is measured already
                clock.follow(operator, self.declared.name(operator.step))
        for source in self.sources.values():
            for reader in (source, source.instead):
                if reader is not None:
                    clock.follow_reader(reader, self.declared.name(source.step))

    def trace(self, header: bytes | None, *, outputs: bool) -> None:
        """From now on, frames are written in this span, and with `outputs` the records of outputs name it, too; None: in none."""
        self._spread.trace = header
        self._trace = header if outputs else None

    @property
    def named(self) -> tuple[bytes | None, bool]:
        """The span to which what is written belongs, and whether outputs name it, as `trace` takes them."""
        return self._spread.trace, self._trace is not None

    def measures_letter(self) -> None:
        """Measure what each step takes of the next letter."""
        if self._clock is not None:
            self._clock.trace()

    def measured_letter(self) -> dict[str, int]:
        """What each step has taken of that letter, which is over, in nanoseconds."""
        return {} if self._clock is None else self._clock.traced()

    def _may_leave_out(self, operator: Operator) -> bool:
        """Whether a failure of user code in this operator may cost only a record: then it must happen while the record's chunk runs."""
        inputs = self.declared.inputs.values()
        policies = (
            [operator.step.on_error] if operator.step.on_error else [self.app.on_error, *(i.on_error for i in inputs)]
        )
        lenient = any(policy not in (None, "fail") for policy in policies)
        return operator.step.by_row and lenient

    # ------------------------------------------------------------------------------------------------- what operators need

    def origin(self) -> Batch[Any, Any]:
        """The origin of the running rows; empty for a letter that is not a chunk."""
        if self._running is None:
            return Batch("", 0, Records([], []))
        chunk, rows, own = self._running
        offsets = own()
        if offsets is None:
            offsets = chunk.columns.offset_column()
        return Batch(
            chunk.at.stream, chunk.at.partition, rows(), offsets, {"id": chunk_id(chunk, offsets, self._skipped)}
        )

    def at(self) -> tuple[str, int]:
        """The stream and partition of the running rows; an empty name for a letter that is not a chunk."""
        return ("", 0) if self._running is None else (self._running[0].at.stream, self._running[0].at.partition)

    def emit(
        self,
        topic: str,
        partition: int | None,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
    ) -> None:
        """Write rows to a topic, as part of the running letter."""
        if self._trace is not None:
            headers = named_rows(headers, len(values), self._trace)
        self._write(self.buffer.emit, topic, partition, keys, values, timestamps, headers)

    def emit_spans(
        self, topic: str, partition: int | None, records: SpannedRecords, rows: Buffer | None = None
    ) -> None:
        """As `emit`, of records that lie in buffers."""
        if self._trace is not None:
            records = named_spans(records, self._trace)
        self._write(self.buffer.emit_spans, topic, partition, records, rows)

    def _write(self, write: Callable[P, tuple[int, int]], *rows: P.args, **named: P.kwargs) -> None:
        """Write to the buffer, and note what must be learned first."""
        try:
            found = write(*rows, **named)
        except MustLearn as error:
            self._unknown = error
            raise
        self._count_times(*found)

    def _count_times(self, restamped: int, expiring: int) -> None:
        if restamped:
            self.count("records_restamped", restamped)
        if expiring:
            self.count("records_expiring", expiring)

    def _before_it(self) -> Before | None:
        """The records of the running chunk; None for a letter that is not a chunk."""
        if self._running is None:
            return None
        chunk = self._running[0]
        at, columns = chunk.at, chunk.columns
        records = OffsetRange(f"{at.stream}[{at.partition}]", columns.offset(0), columns.offset(len(columns) - 1))
        source = self.sources[at.stream]
        if not source.step.framed:
            return Before(str(records), str(records), records.first)
        frames = f"frame{'s' * (records.first < records.last)} {records}"
        origins = chunk.origins if source.wants_origins else None
        return Before(frames, frames if origins is None else origins.said, 0 if source.wants_origins else records.first)

    def shuffle(
        self,
        name: str,
        everyone: bool,
        keys: list[Any],
        timestamps: list[int],
        values: list[Any],
        headers: list[Any] | None = None,
        plan: int | None = None,
        offsets: Sequence[int] | None = None,
    ) -> None:
        """Write rows, or partial states of a plan, to an intermediate stream: in batch frames, each row to the partition of its key."""
        topic = self.declared.topics.intermediate(name)
        self._spread.rows(topic, everyone, keys, timestamps, values, headers, plan, offsets)

    def share(
        self,
        topic: str,
        keys: list[Any],
        timestamps: list[int],
        values: list[Any],
        headers: list[Any] | None = None,
        offsets: Sequence[int] | None = None,
    ) -> None:
        """Write rows to a stream that other jobs read, in the same way."""
        self._spread.rows(topic, False, keys, timestamps, values, headers, None, offsets)

    def shuffle_columns(self, name: str, everyone: bool, writer: FrameWriter, of: Records) -> None:
        """Write rows in columns, or partial states, to an intermediate stream: in frames of this writer, each row to the partition of its
        key."""
        self._spread.columns(self.declared.topics.intermediate(name), everyone, writer, of)

    def share_columns(self, topic: str, writer: FrameWriter, of: Records) -> None:
        """Write rows in columns to a stream that other jobs read, in the same way."""
        self._spread.columns(topic, False, writer, of)

    def stop(self, actor: Operator) -> None:
        """After this letter, this actor takes no more rows in this run."""
        if actor not in self._stopping:
            self._stopping.append(actor)
            self.table(CLOSED).update({self._mark("stop", actor): "stop"})

    def defer(self, work: Deferred) -> None:
        """Await this before the letter completes, after what was deferred earlier."""
        self._deferred.append(work if self._clock is None else self._clock.deferred(work))

    def later(self, forward: Callable[[], None]) -> None:
        """Forward rows by this function when the current call has returned, before anything else of the letter."""
        self._later.append(forward if self._clock is None else self._clock.later(forward))

    def _flow(self) -> None:
        while self._later:
            self._later.popleft()()

    def saw(self, at: StreamPartition, greatest: int) -> None:
        """Executors have read records of this partition, up to this event time."""
        self._seen[at] = max(self._seen.get(at, greatest), greatest)

    def seen(self) -> tuple[tuple[StreamPartition, int], ...]:
        """What executors have read for the letter that is complete. Told once."""
        seen, self._seen = self._seen, {}
        return tuple(seen.items())

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter that users see, when the letter is complete."""
        self._counted[name] += amount

    def failed(self, step: Step, error: BaseException) -> None:
        """Count a record that failed with an error of this step, when the letter is complete."""
        self.count("records_failed")
        self.count(self.counter_of(error, step))

    def counter_of(self, error: BaseException, step: Step | None) -> str:
        """The counter for an error: that of the step whose user code has raised it, or else of this one."""
        by = error.step if isinstance(error, UserCodeError) else step
        return self._errors.counter("-" if by is None else self.declared.called(by), error)

    def _tell_counts(self) -> None:
        counted, self._counted = self._counted, Counter()
        for name, amount in counted.items():
            self._count(name, amount)

    # ---------------------------------------------------------------------------------------------------------- a letter

    async def chunk(self, chunk: Chunk, skip: frozenset[int] = frozenset()) -> int | None:
        """Run a chunk, without the rows in `skip`. Returns its greatest event time. If user code or data raise, nothing is kept.

        Where columns are read instead of rows, a chunk that fails is run again as rows, which decide what is bad, and why.

        Raises `MustLearn`, even if user code has caught it, when something must be learned before the chunk can run.
        """
        source = self.sources[chunk.at.stream]
        if chunk.skipped:
            skip |= chunk.skipped
            if chunk.bad is not None:
                return await self._whole(_Nothing(), chunk, skip)
        unread = isinstance(chunk.columns, UnreadRecords)
        if source.instead is not None and not unread and not self._careful and chunk.bad is None and chunk.plan is None:
            try:
                return await self._whole(source.instead, chunk, skip)
            except (BadRecord, NoColumns, UserCodeError) as error:
                if isinstance(error, UserCodeError) and error.step.irrevocable:
                    raise
                if isinstance(error, BadRecord) and (known := source.judged(chunk, error)) is not None:
                    self.trouble = known
                    raise known from None
        return await self._whole(source, chunk, skip)

    async def by_row(
        self,
        chunk: Chunk,
        skip: frozenset[int],
        *,
        each: Callable[[int], Awaitable[None]],
        looks: frozenset[int] = frozenset(),
        upto: int | None = None,
    ) -> int | None:
        """As `chunk`, but the rows before `upto` run one at a time, still as one letter. `each` is called with the index of each row before
        it runs, and with -1 when what all of them have done is looked at: behind the last row, and before those in `looks`. After each row
        it would take too long, since it is all that the letter has done.
        """
        self._begin()
        greatest: int | None = None
        rows, skip = chunk.pick(0, len(chunk)), skip | self._kept_back(chunk)
        for index in range(len(chunk) if upto is None else upto):
            if index in looks:
                await self._looked_at(each)
            if index in skip or index in chunk.skipped:
                continue
            await each(index)
            with self._dropping():
                found = await self._run(self.sources[chunk.at.stream], rows.pick(index, index + 1), frozenset())
            greatest = found if greatest is None or (found is not None and found > greatest) else greatest
        await self._looked_at(each)
        if chunk.skipped:
            self.count("records_skipped", len(chunk.skipped))
        return greatest

    async def _looked_at(self, each: Callable[[int], Awaitable[None]]) -> None:
        await each(-1)
        with self._dropping():
            self._refuse()

    async def _whole(self, source: ReadsChunks, chunk: Chunk, skip: frozenset[int]) -> int | None:
        self._begin()
        with self._dropping():
            greatest = await self._run(source, chunk, skip | self._kept_back(chunk))
            self._refuse()
        if chunk.skipped:
            self.count("records_skipped", len(chunk.skipped))
        return greatest

    async def _run(self, source: ReadsChunks, chunk: Chunk, skip: frozenset[int]) -> int | None:
        """Run rows of the letter that has begun."""
        if self._clock is not None:
            self._clock.chunk_begins()
        greatest = source.read(chunk, skip)
        self._flow()
        await self.settle()
        if self._unknown is not None:
            raise self._unknown
        return greatest

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        """The operators work on a chunk here. If one raises, nothing of the letter is kept."""
        try:
            with bound(cast("Any", self)):
                yield
        except BaseException as error:
            self.trouble = error
            self._failed(error)
            raise

    def _kept_back(self, chunk: Chunk) -> frozenset[int]:
        """The rows of a chunk that are parked, and do not run."""
        kept = self.parked.keep_back(chunk)
        if isinstance(chunk, ParkedChunk):
            self.count("parked_records_released", len(chunk) - len(kept))
        elif kept:
            self.count("records_parked", len(kept))
        return kept

    async def step(
        self, kind: str, stream: str | None, ts: int | None, key: str, cause: str, times: StepTimes = ()
    ) -> bool:
        """Run one bounded step of a letter that is not a chunk. Returns whether there is more. If user code raises, nothing is kept."""
        self._running = None
        self._begin()
        if self._clock is not None:
            self._clock.step_begins()
        self.push_result = push_result
        try:
            with bound(cast("Any", self)):
                more = await self._step(kind, stream, key, cause, times)
                self._flow()
                await self.settle()
                self._refuse()
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            self.push_result = None
        return more

    def _failed(self, error: BaseException) -> None:
        """Drop the letter. Raise the error that should be reported in place of `error`, if there is one."""
        unknown = self._unknown or to_learn(error)
        self.drop()
        if passes(error):
            return
        if unknown is not None:
            raise unknown from None
        if not isinstance(error, Exception):
            raise Uncaught(error) from error

    def _begin(self) -> None:
        """A letter begins: remember the flags of the operators, so that `drop` can restore them."""
        while self._unlearned:
            self._unlearned[-1].know()
            self._unlearned.pop()
        self._unknown = None
        self._before = [(op, tuple(getattr(op, flag) for flag in op.flags)) for op in self.operators if op.flags]

    def _refuse(self) -> None:
        """The letter has run: whatever cannot be accepted raises now, because completing cannot fail."""
        if self._unknown is not None:
            raise self._unknown
        for operator in self.operators:
            operator.prepare()
        if self._prepare is not None:
            try:
                self._prepare()
            except RowRefused as error:
                owner = self._keeper(error.table)
                if owner is None:
                    raise
                raise UserCodeError(owner, error) from error

    def _keeper(self, table: str) -> Step | None:
        """The step that keeps this table; its policy decides about rows that cannot be stored. None for a table of the app."""
        return next((one for one in self.declared.steps if one.answers_for_rows and one.name == table), None)

    async def _step(self, kind: str, stream: str | None, key: str, cause: str, times: StepTimes) -> bool:
        if kind == "watermark":
            return await self._watermark(times)
        if kind in ("end", "drain"):
            return await self._close(stream, cause or kind)
        if kind == UNPARK:
            self.parked.unpark(Unpark.of(key))
            self.count("records_skipped", len(self.parked.left_out))
            self.count("parked_records_released", len(self.parked.left_out))
            return False
        name, _, what = key.partition("/")
        for op in self.operators:
            if op.step.name == name:
                return await (self._flush(op, "end") if op.stopped else op.work(what))
        return False

    async def _watermark(self, times: StepTimes) -> bool:
        """Tell operators the event time. Parents come first, and a child is told only when its parents have nothing more to do for it."""
        known = dict(times)
        for op in self.operators:
            ts = known.get(self.declared.name(op.step)) if op.letters else None
            before = op.watermark
            if ts is None or (before is not None and ts <= before):
                continue
            more = await op.on_watermark(ts)
            self._flow()
            if more:
                op.watermark = before  # the next step tells the operator again
                return True
        return False

    def knows(self, times: Mapping[str, int]) -> None:
        """Before the first letter, set the event time that each step had been told when the task last ended."""
        for op in self.operators:
            if op.letters:
                op.watermark = times.get(self.declared.name(op.step))

    async def _close(self, stream: str | None, cause: str) -> bool:
        """Flush, once, each operator that reads only closed streams. A table of the task holds the closed streams, so that they survive a
        restart.

        Parents come before children, and a child is flushed in the step after its parents' last one.
        """
        closed: Any = self.table(CLOSED)
        if stream is not None:
            closed.update({stream: cause})
        for op in self.operators:
            streams = sorted(self.reads[id(op)])
            if not op.letters or not streams or op.flushed:
                continue
            if stream is None or None not in closed.get_many(streams):
                await self._flush(op, cause)
                return True
        return False

    async def _flush(self, op: Operator, cause: str) -> bool:
        """Do one step of flushing an operator, unless it has been flushed. Returns whether there is more."""
        if op.flushed:
            return False
        if await op.on_close(cause):
            return True
        op.flushed = True
        self.table(CLOSED).update({self._mark("step", op): cause})
        return False

    def _mark(self, kind: str, op: Operator) -> str:
        """The key under which the table of what is closed says that an operator was flushed or has stopped."""
        return f"{kind}:{self.declared.name(op.step)}"

    def _recall(self) -> None:
        """Before the first letter of a life: which operators have stopped or were flushed in this run."""
        closed = self.table(CLOSED)
        self.parked.finish(
            stream
            for stream, how in zip(self.sources, closed.get_many(list(self.sources)), strict=True)
            if how is not None
        )
        for op in self.operators:
            if op.letters:
                stop, step = closed.get_many([self._mark("stop", op), self._mark("step", op)])
                op.stopped, op.flushed = stop is not None, step is not None

    def _given_up(self) -> frozenset[str]:
        """The inputs whose rows reach nothing but actors that have stopped."""
        return frozenset(
            topic for topic, source in self.sources.items() if source.step.foreign and not _reaches(source)
        )

    def due(self) -> tuple[int, str] | None:
        """When (wall ms) an operator next needs a letter of its own, and for what."""
        found = [
            (at, f"{op.step.name}/{what}")
            for op in self.operators
            for at, what in [op.due() or (None, "")]
            if at is not None
        ]
        if (at := self.parked.due()) is not None:
            found.append((at, PARKED))
        if (at := self.parked.lets_go_ms()) is not None:
            found.append((at, f"{PARKED}/held"))
        return min(found, default=None)

    def tried_again(self, stream: str | None, key: str, *, ends: bool) -> ParkedChunk | None:
        """The parked records that this letter tries again, before anything else that it does: those that are due, or, if its stream `ends`,
        all of it."""
        if ends and stream is not None:
            return self.parked.take_last(stream)
        return self.parked.take() if key == PARKED else None

    def may_park(self, stream: str) -> bool:
        """Whether records of this stream can wait. Those that executors read by reference cannot."""
        by_reference = (op for op in self.operators if op.step.ranges)
        return not any(stream in self.reads[id(op)] for op in by_reference)

    def owes(self) -> bool:
        """Whether an operator has something to do even if no further record arrives."""
        return any(op.owes() for op in self.operators)

    def owed(self) -> tuple[tuple[str, int], ...]:
        """By step, the least timestamp of the results that it still has to emit; by stream, that of its records that are parked and hold
        time."""
        owed = ((self.declared.name(op.step), op.owed_ms()) for op in self._hearing)
        return (*((name, ms) for name, ms in owed if ms is not None), *self.parked.held().items())

    def windows(self) -> list[tuple[str, OpenCounts, LateCounts]]:
        """By window, what is open, and the late rows."""
        found: list[tuple[str, OpenCounts, LateCounts]] = []
        for op in self.operators:
            opened = op.opened()
            if opened is not None:
                found.append((op.step.name, *opened))
        return found

    def joins(self) -> list[tuple[str, tuple[SideRows, SideRows]]]:
        """By join, what is known of its sides."""
        return [(op.step.name, op.counts()) for op in self.operators if isinstance(op, JoinOp)]

    def needed(self) -> dict[StreamPartition, int]:
        """By partition, the first offset that unfinished work still needs, though the task has read on; as of the complete letters."""
        found: dict[StreamPartition, int] = {}
        for operator in self._hearing:
            for at, offset in operator.needed().items():
                found[at] = min(found.get(at, offset), offset)
        return found

    def batches(self) -> list[StepBatches]:
        """The batches of each step that collects some."""
        return [found for op in self.operators if (found := op.batches()) is not None]

    def runs(
        self,
        chunk: Chunk,
        rows: Callable[[], Records],
        offsets: Callable[[], list[int] | None],
        skipped: frozenset[int],
    ) -> None:
        """Record which rows of this chunk run now, and their offsets (None: those of the chunk). Both are made if a step asks for them."""
        self._running = (chunk, rows, offsets)
        self._skipped = skipped

    async def settle(self) -> None:
        """Await all deferred work."""
        while self._deferred:
            await self._deferred.popleft()()
            self._flow()

    def complete(self) -> tuple[bool, frozenset[str]]:
        """The letter is complete: its outputs and changes count. Returns whether it wants a commit, and the inputs that it has ended."""
        for operator in self.operators:
            operator.complete()
        self.parked.complete()
        self.buffer.complete()
        self._tell_counts()
        commit, stopping = self.wants_commit, self._stopping
        self.wants_commit, self._stopping = False, []
        self._before = []
        self._running = None  # its records are let go: the next letter of this task may be long in coming
        for actor in stopping:
            actor.stopped = True
        return commit, self._given_up() if stopping else frozenset()

    def drop(self) -> None:
        """The letter failed: discard its rows, its changes and its flags."""
        self._deferred.clear()
        self._later.clear()
        self._unknown = None
        self._seen = {}
        self._counted.clear()
        self.wants_commit, self._stopping = False, []
        for operator, values in self._before:
            for flag, value in zip(operator.flags, values, strict=True):
                setattr(operator, flag, value)
        for operator in self.operators:
            operator.drop()
        self.parked.drop()
        self.buffer.drop()

    def seal(self) -> None:
        """The open transaction closes, or a marker is about to be announced: emit what was held back.

        A chunk may be in the middle of an await. What it has done so far is set aside, because it belongs to the next transaction.
        """
        parts: list[LetterPart] = [*self.operators, self.parked]
        aside = [part.suspend() for part in parts]
        running, self._running = self._running, None
        buffer, self.buffer = self.buffer, self.seal_buffer
        later, self._later = self._later, deque()
        unknown, self._unknown = self._unknown, None
        push, self.push_result = self.push_result, None
        counted, self._counted = self._counted, Counter()
        measuring = None if self._clock is None else self._clock.suspend()
        try:
            with bound(cast("Any", self)):
                for operator in self.operators:  # parents come before children, which pass on what their parents emit
                    operator.prepare()
                    operator.complete()
                    operator.seal()
                    self._flow()
                self._refuse()
            for operator in self.operators:
                operator.complete()
            self.buffer.complete()
            self._tell_counts()
        except BaseException:
            self.buffer.drop()
            raise
        finally:
            self.buffer, self._later, self._unknown, self._counted = buffer, later, unknown, counted
            self._running, self.push_result = running, push
            if self._clock is not None and measuring is not None:
                self._clock.resume(measuring)
            for part, kept in zip(parts, aside, strict=True):
                part.resume(kept)

    def held(self) -> frozenset[str]:
        """The streams from which no more chunks should be taken for now, because an operator behind them is full."""
        return frozenset[str]().union(*(self.reads[id(op)] for op in self.operators if op.full))

    def held_why(self) -> str:
        """Why no more chunks are taken from these streams, in words; empty if there are none."""
        full = [(sorted(self.reads[id(op)]), op.full_why) for op in self.operators if op.full]
        return "; ".join(f"{', '.join(streams)}: {why}" for streams, why in full if streams)

    def sealed(self) -> None:
        """Everything complete joins the transaction that closes."""
        for operator in self.operators:
            operator.sealed()

    def runs_under(self, job_uuid: str, grant: int) -> None:
        """The id of the job's life, and the grant under which the task runs from now on."""
        self.under = job_uuid, grant
        self.parked.begin(grant)

    def durable(self) -> None:
        """What was sealed is committed, or the restored state is known: steps that wait for this may continue."""
        for operator in self.operators:
            operator.durable()

    def fly(self, batches: int, gathered: int, limits: Mapping[str, tuple[int, int]]) -> None:
        """From now on, at most `batches` batches of a step may run at a time, and behind a gather at most `gathered` bytes may be open;
        `limits` close batches."""
        self.spark_in_flight, self.gather_max_bytes, self.batch_limits = batches, gathered, limits
        for operator in self.operators:
            operator.room_changed()
        self.poke()

    async def close(self) -> None:
        """Close all operators, which ends running user code. Raises the errors of user code, after all have been closed."""
        errors: list[Exception] = []
        for operator in self.operators:
            try:
                await operator.close()
            except Exception as error:  # noqa: BLE001 - the other operators must be closed all the same
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("user code did not end cleanly", errors)


def _wanted(source: Operator) -> str:
    """What later steps need of a source's keys: nothing, the bytes (to compare them), or the values (to show them to user code)."""
    found, stack = set[str](), list(source.children)
    seen = set[int]()
    while stack:
        operator = stack.pop()
        if id(operator) not in seen:
            seen.add(id(operator))
            found.add(operator.wants_keys)
            stack += [] if operator.gives_keys else operator.children
    return max(found, key=["", BYTES, VALUES].index, default="")


def _reaches(source: Operator) -> bool:
    """Whether rows of this source reach the end of a chain of steps without passing an actor that has stopped."""
    stack: list[Operator] = [source]
    while stack:
        operator = stack.pop()
        if operator.stopped:
            continue
        if not operator.children:
            return True
        stack += operator.children
    return False


def _nothing() -> None:
    """The default `poke`."""
