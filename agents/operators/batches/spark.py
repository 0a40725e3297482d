"""`.batch(...)`, or `.window(...)`, with `.spark(...)` as operators of a task: rows are stored in the task's own tables, closed into
batches, and sent to Spark.

    rows → blocks → closed, committed → Spark → results (see `spark_results`)

A batch step has one open batch, or behind a window one for each window; a row of hopping windows is in each of its batches. Windows here
belong to the task, not to a key.

What it promises:

- A batch goes to Spark only when its closing is durable: a retry, or the next owner of the task, passes the same rows under the same id.
- While a result is missing, no end, drain or maximal watermark passes, and no event time that is newer than the oldest missing result
  (`owed_ms`).
- While more batches wait than may be in flight, no more chunks are taken from the streams that lead here.
- A row whose fields do not fit the declared columns is that row's error, before anything of it is stored. What a seal writes was checked
  when it came: all rows have the columns that the step declares.
- A window that a watermark has closed stays closed, also across restarts and runs: rows for it are late, and are counted.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ....core.batching import origins
from ....core.batching.batch_progress import AtSpark, StepBatches
from ....core.batching.batches import AGE, Bridge, Limits, WindowBounds
from ....core.batching.ranges import Range
from ....core.columns.schema import ColumnSchema, ColumnSpec
from ....core.errors import DataError, LimitReached
from ....core.names import StreamPartition
from ....core.progress.frames import MAX_TIME
from ....core.windows.results import CLOCK, DRAIN, WATERMARK
from ....core.windows.spans import Spans
from ...job.steps.batches import BatchStep
from ...records.columns.fitting import columns_of_values
from ...records.columns.logical_arrow import logical_in
from ...records.columns.object_columns import ObjectColumns
from ...records.columns.records import Records, offsets_at
from ...records.columns.window_rows import rows_of_times
from ...records.layout import Buffer, longs
from ...records.memory.longs import gathered
from ...records.memory.taking import take_batch
from ...records.memory.vectors import Vector, VectorBatch
from ...records.values.nesting import nesting
from ..base.stateless import BYTES, VALUES, Env, Operator, UserCodeError, failing
from ..windows.floors import Floor
from ..windows.late_rows import write_late
from ..windows.open_windows import OpenCounts
from ..windows.windowed import LateCounts
from .batch_blocks import ENOUGH_BYTES
from .batch_rows import BatchRows
from .batches_seen import BatchesSeen, Circumstances
from .collecting import Collector, Incoming
from .referenced import Referenced
from .spark_results import Results

RUN = "run"
NO_VALUE = "a record without a value (a tombstone) is no row, and a sink deletes none"
LEAVE_OUT = 'leave it out: .filter(lambda value: value is not None) before it, or on_error="skip", which counts it'
STEP_BATCHES = 1_000
"""The maximum number of batches that one step closes."""


class BatchOp(Operator):
    """Collects rows into bounded batches, and takes in Spark's results."""

    letters = True
    gives_keys = True
    keeps_origins = True
    awaits = True  # so that nothing is pushed here while a transaction is sealed
    flags = ("watermark", "flushed", "floor")

    def __init__(self, step: BatchStep, env: Env) -> None:
        super().__init__(step, env)
        self.batch_step = step
        self.wants_keys = "" if step.late is None else BYTES
        if step.key_column is not None:
            self.wants_keys = VALUES
        self.table = env.table(step.name)
        self.rows = BatchRows(self.table)
        columns = step.schema or step.rows
        self.shaped: Callable[[VectorBatch], VectorBatch | ObjectColumns] = lambda batch: batch
        """What Spark gets of columns."""
        if columns is not None and (columns.nested or columns.logical):
            of, logical = nesting(columns.columns), logical_in(columns.columns)
            self.shaped = lambda batch: ObjectColumns(batch, of, logical)
        self.collector = Collector(self.rows, lambda: self.limits)
        self.seen = BatchesSeen(
            env.task,
            step.name,
            self.rows.kept,
            env.now_ms,
            self._at_spark().retries,
            to_sink=step.for_sink,
            traces=env.traces,
        )
        self.reference = None if step.reference is None else Referenced(self.rows, self)
        self.results = Results(self.rows, self, self._sources, self.seen, self.reference)
        window = step.window
        self.spans: Spans | None = None if window is None else window.spans
        self.by_clock = window is not None and window.by_clock
        self.floor = Floor.of(self.table, 0 if window is None else window.grace_ms)
        self.late_counts = LateCounts()
        """Late rows since the task started on this worker."""
        self._late_now = LateCounts()
        """Late rows of the running letter."""
        self._sealed: deque[int] = deque()
        """The turn of the next closing at each seal that is not durable yet."""
        self._durable = 0
        """Batches with earlier turns are durably closed."""

    # ---------------------------------------------------------------------------------------------------------- surroundings

    @property
    def _env(self) -> Any:
        return self.env

    @property
    def limits(self) -> Limits:
        """What closes a batch: what the step says, and else the settings that it names, which may change at any time."""
        step = self.batch_step
        if not step.limited_by:
            return Limits(step.max_rows, step.max_bytes, step.max_age_ms)
        rows, age_ms = self._env.batch_limits[step.limited_by]
        return Limits(step.max_rows or rows, step.max_bytes, age_ms if step.max_age_ms is None else step.max_age_ms)

    @property
    def bridge(self) -> Bridge:
        """What its batches go to."""
        return self._env.sinks if self.batch_step.for_sink else self._env.spark

    def _sources(self) -> frozenset[str]:
        return self._env.reads.get(id(self), frozenset())

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def push(self, rows: Records) -> None:
        """Add rows to their open batches; close each whenever it is full."""
        before = self.rows.book.turn
        if self.reference is not None:
            self._refer(rows)
            self.env.wants_commit |= self.rows.book.turn != before
            return
        try:
            self._collect(rows)
        except UserCodeError:
            raise
        except Exception as cause:
            raise UserCodeError(self.step, cause) from cause
        if self.batch_step.gathered:
            self._must_hold()
        if self.rows.book.turn != before or self.rows.blocks.gathered >= ENOUGH_BYTES:
            self.env.wants_commit = True

    def _table_of(self, rows: Records) -> Any:
        """The declared columns of the rows, by name. Raises a `UserCodeError` that names the rows that do not fit."""
        schema, key = self.batch_step.schema, self.batch_step.key_column
        if rows.vectors is not None and schema is not None:  # without an object for each row
            batch, picked = rows.batch(schema)
            if schema.logical or key is not None:  # what stands in rows that are not selected may be no such value
                batch, picked = take_batch(batch, picked), None
            if key is not None:
                (vector,) = self._vectors(self._keyed(rows, key), ColumnSchema((key,)), rows)
                batch = VectorBatch((key.name, *batch.names), (vector, *batch.vectors), len(rows))
            return self.bridge.select(self.shaped(batch), picked)
        declared = self.batch_step.rows
        assert declared is not None, "rows reach a batch only with the columns that its stages declare"
        vectors: Sequence[Vector]
        if key is None:
            vectors = self._vectors(rows.values, declared, rows)
        else:
            (of_key,) = self._vectors(self._keyed(rows, key), ColumnSchema((key,)), rows)
            others = declared.only(name for name in declared.names if name != key.name)
            made = dict(zip(others.names, self._vectors(rows.values, others, rows), strict=True))
            vectors = [of_key if name == key.name else made[name] for name in declared.names]
        batch = VectorBatch(declared.names, tuple(vectors), len(rows))
        return self.bridge.select(self.shaped(batch), None)

    def _vectors(self, values: Sequence[Any], schema: ColumnSchema, rows: Records) -> list[Vector]:
        """The columns of values of these rows. Raises a `UserCodeError` that names those that do not fit."""
        columns, bad = columns_of_values(values, schema)
        if bad:
            if self.batch_step.for_sink:
                bad = [(at, DataError(NO_VALUE, remedy=LEAVE_OUT) if values[at] is None else why) for at, why in bad]
            raise failing(self.step, bad, rows)
        return [Vector.of(one.type, columns[one.name]) for one in schema.columns]

    def _keyed(self, rows: Records, column: ColumnSpec) -> list[dict[str, Any]]:
        """The keys of rows, each as a value with this field."""
        keys = rows.shown_keys()
        return [{column.name: key} for key in (keys if keys is not None else [None] * len(rows))]

    def refer_to(self, at: StreamPartition, first: int, behind: int, latest_ms: int) -> None:
        """Add offsets to the open batch; close it whenever it is full. `latest_ms`: the greatest event time that their records may have."""
        assert self.reference is not None, "offsets reach a batch only if it is declared to be by reference"
        before = self.rows.book.turn
        self.reference.add(Range(*at, first, behind, self.env.topic_id(at)), self.limits, latest_ms)
        if self.rows.book.turn != before:
            self.env.wants_commit = True

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        schema = self.batch_step.schema
        return behind if schema is None else frozenset(schema.names)

    def _collect(self, rows: Records) -> None:
        if self.spans is None:
            came_from = self._came_from(rows.offsets, len(rows))
            self._add(None, Incoming(self._table_of(rows), came_from, rows.selected_times()))
        else:
            self._into_windows(self.spans, rows, self._table_of(rows))

    def _refer(self, rows: Records) -> None:
        """Add the frames of these rows to the open batch."""
        assert self.reference is not None
        offsets = rows.offsets
        assert offsets is not None, "its source was asked for the offsets of rows"
        self.reference.add_rows(StreamPartition(*self._env.at()), offsets, rows.selected_times(), self.limits)

    def needed(self) -> dict[StreamPartition, int]:
        return {} if self.reference is None else self.reference.needed()

    def _must_hold(self) -> None:
        """Refuse more than a task may hold of what it gathers."""
        size, most = self.rows.book.size, self._env.gather_max_bytes
        if size > most:
            raise LimitReached(
                f"the open batches of '{self.step.name}' ({self.step.where}) hold {size} bytes of all tasks' rows, and "
                f"gather.max-bytes is {most}",
                remedy="raise gather.max-bytes, make smaller batches or windows, or let each task have its own: omit .gather()",
            )

    def _add(self, window: WindowBounds | None, incoming: Incoming) -> None:
        self.collector.add(self.bridge, window, incoming, self.env.now_ms())

    def _into_windows(self, spans: Spans, rows: Records, table: Any) -> None:
        """Add each row to the open batches of its windows; find the late rows."""
        offsets, times = rows.offsets, rows.selected_times()
        placed_by = array("q", [self._now()] * len(rows)) if self.by_clock else times
        found = rows_of_times(spans, placed_by, None, self.floor.closed)
        for end, places in sorted(found.open, key=lambda one: one[0]):
            part = Incoming(table, self._came_from(offsets, len(rows)), times)
            if places is not None:
                some = None if offsets is None else offsets_at(offsets, places)
                came_from = self._came_from(some, len(longs(places)))
                part = Incoming(self.bridge.take(table, places), came_from, gathered(times, places))
            self._add(WindowBounds(end - spans.size, end), part)
        late = 0 if found.late is None else len(longs(found.late))
        self._late_now = self._late_now.plus(late, found.partly)
        if found.late is not None and self.batch_step.late is not None:
            write_late(
                self, _picked(rows, found.late, self.batch_step), self.batch_step.late, self.batch_step.late_serde
            )

    def _came_from(self, offsets: Sequence[int] | None, count: int) -> Sequence[origins.Origin]:
        if offsets is None:
            at = self._env.origin()
            return origins.among(at.stream, at.partition, at.offsets, count)
        stream, partition = self._env.at()
        if isinstance(offsets, range | memoryview):
            return origins.origins_of(stream, partition, offsets)
        return origins.runs_of(stream, partition, offsets)

    def _now(self) -> int:
        """The time of the clock, but never before the floor."""
        return max(self.env.now_ms(), self.floor.at)

    @property
    def full(self) -> bool:
        """Whether no more chunks should be taken: so many batches wait, or so many rows wait for a commit."""
        return self._many_wait or self.rows.blocks.gathered >= 2 * ENOUGH_BYTES

    @property
    def _many_wait(self) -> bool:
        """Whether so many closed batches wait that no more rows should be taken."""
        return self.rows.kept.full(self._env.spark_in_flight)

    @property
    def full_why(self) -> str:
        if self._many_wait:
            count = len(self.rows.kept.closed)
            return (
                f"{count} batches of '{self.step.name}' wait for {'its sink' if self.batch_step.for_sink else 'Spark'}"
            )
        return f"rows of '{self.step.name}' wait for a commit"

    # --------------------------------------------------------------------------------------------------------------- closing

    def _close(self, why: str, windows: Sequence[WindowBounds | None]) -> bool:
        """Close the open batches of these windows, as many as a step may. Returns whether there were any."""
        closed = self.collector.close(why, windows[:STEP_BATCHES])
        if closed:
            self.env.wants_commit = True
        return closed

    def _close_passed(self) -> bool:
        """Close the windows that time has passed. Returns whether there are more."""
        windows = [] if self.spans is None else self.rows.book.due(self.floor.closed)
        self._close(CLOCK if self.by_clock else WATERMARK, windows)
        return len(windows) > STEP_BATCHES

    async def on_watermark(self, watermark: int) -> bool:
        """Close the windows that event time has passed. The maximal time precedes a drain: every result must be out before it passes. Any
        other time passes at once."""
        more = False
        if watermark == MAX_TIME:
            more = await self.on_close(DRAIN)
        elif self.spans is not None and not self.by_clock:
            self.floor = self.floor.raised(watermark, self.table)
            more = self._close_passed()
        if not more:
            self.watermark = watermark
        return more

    async def on_close(self, cause: str) -> bool:
        """Close the open batches, then take the results one by one, waiting for each. A batch is not begun before its closing is durable.
        The floor stays: the next run may open these windows again."""
        if self._close_passed():
            return True
        if not self.batch_step.keeps_open and self._close(cause, self.rows.book.due()):
            return True
        first = self.rows.book.first()
        if first is None:
            return False
        if first.turn < self._durable:
            self._start()
            await self.results.take(first)
        return True

    # ---------------------------------------------------------------------------------------------------- letters and commits

    def complete(self) -> None:
        """The letter is complete."""
        self.rows.complete()
        self.results.keep(self.rows.kept.closed)
        self.seen.complete(self.rows.kept)
        if self._late_now != LateCounts():
            self.env.count("late_rows", self._late_now.rows)
            self.env.count("late_for_some_windows", self._late_now.partly)
            self.late_counts, self._late_now = self.late_counts.plus(*self._late_now), LateCounts()

    def drop(self) -> None:
        """The letter failed."""
        self.rows.drop()
        self.results.drop()
        self._late_now = LateCounts()

    def suspend(self) -> Any:
        """Set aside the changes of the letter. A result that is taken in over several letters stays where it is."""
        late_now, self._late_now = self._late_now, LateCounts()
        return self.rows.suspend(), late_now

    def resume(self, aside: Any) -> None:
        """Resume the letter."""
        book, self._late_now = aside
        self.rows.resume(book)

    def seal(self) -> None:
        """The transaction closes: what was gathered for the open batches is written."""
        was_full = self.full
        self.rows.seal(self.bridge)
        if was_full:
            self._env.poke()

    def sealed(self) -> None:
        """Everything complete joins the transaction that closes."""
        self._sealed.append(self.rows.kept.turn)
        self.results.written.sealed()

    def durable(self) -> None:
        """What the oldest seal held is committed (or everything is restored): Spark may begin with the batches that are closed in it."""
        self._durable = self._sealed.popleft() if self._sealed else self.rows.kept.turn
        self.results.written.durable()
        self._start()

    def room_changed(self) -> None:
        """The number of batches that may run at a time has changed."""
        self._start()

    def _start(self) -> None:
        durable = [one for one in self.rows.kept.closed if one.turn < self._durable]
        if durable:
            self.results.start(durable)

    def due(self) -> tuple[int, str] | None:
        """When a result is available, the open batch reaches its maximum age, or the clock closes a window."""
        first, book = self.rows.kept.first(), self.rows.kept
        wanted: list[tuple[int, str]] = []
        if first is not None and first.turn < self._durable:
            if (again_ms := self.results.again_ms(first)) is not None:
                wanted.append((again_ms, RUN))
            elif self.results.ready(first):
                wanted.append((self.env.now_ms(), RUN))
        if (old := book.due_ms(self.limits)) is not None:
            wanted.append((old, AGE))
        if self.by_clock and (end := book.first_end()) is not None:
            wanted.append((end, CLOCK))
        return min(wanted, default=None)

    def owes(self) -> bool:
        """Whether a closed batch still has its result to emit, or something is due."""
        return self.rows.kept.first() is not None or self.due() is not None

    def owed_ms(self) -> int | None:
        """The least timestamp of the results to come. That of an open batch without a window can only grow."""
        if self.reference is not None:
            return self.reference.owed_ms(self.watermark)
        return self.rows.kept.owed_ms()

    async def work(self, key: str) -> bool:
        """Take a result, or close what is too old or what the clock has passed."""
        now = self.env.now_ms()
        if key == CLOCK:
            self.floor = self.floor.raised(now, self.table)
            return self._close_passed()
        if key == AGE:
            old = self.rows.book.due_ms(self.limits)
            if old is not None and old <= now:
                self._close(AGE, self.rows.book.due())
            return False
        first = self.rows.book.first()
        if first is None or first.turn >= self._durable:
            return False
        if self.results.waits(first):
            return False
        if self.results.again_ms(first) is not None:
            self.results.start_over([one for one in self.rows.kept.closed if one.turn < self._durable])
            return False
        self._start()
        return await self.results.take(first)

    def opened(self) -> tuple[OpenCounts, LateCounts] | None:
        """The open windows with their rows, and how many rows were late."""
        if self.spans is None:
            return None
        book = self.rows.kept
        return OpenCounts(
            len(book.open), sum(one.rows for one in book.open.values()), book.first_end()
        ), self.late_counts

    async def close(self) -> None:
        """The task is released: cancel the running batches."""
        self.seen.close()
        await self.results.stop()

    def batches(self) -> StepBatches:
        ranges = None if self.reference is None else self.reference.shown
        now = Circumstances(
            self.env.now_ms(),
            self._durable,
            self._env.spark_in_flight,
            self.limits,
            self._at_spark(),
            ranges,
            self._many_wait,
        )
        return self.seen.look(now)

    def _at_spark(self) -> AtSpark:
        return AtSpark() if self.bridge is None else self.bridge.seen()


def _picked(rows: Records, places: Buffer, step: BatchStep) -> Records:
    """These rows, as rows."""
    if rows.vectors is None:
        return rows.at(longs(places).tolist())
    chosen = places if rows.picked is None else gathered(rows.picked, places)
    return rows.kept(chosen).of_columns(() if step.schema is None else step.schema.names)
