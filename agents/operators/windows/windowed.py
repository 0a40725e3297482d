"""`.window(…).agg(…)` and `.window(…).process(…)` as an operator of a task: groups rows by key and window, and emits a result for each, or
the rows themselves, when its window closes.

`open_windows` keeps what is open, `session_arrays` or `open_sessions` does so for sessions, `open_sliding` for sliding windows, `open_rows`
keeps rows for an actor. Here is what they have in common: the *floor* (`floors`), stored in the transaction of its letter; late rows; and
the results.

Promises:

- A letter that fails leaves no trace.
- A window that a watermark has closed stays closed, also across restarts and runs: rows for it are late, and are counted.
- Closing proceeds in steps of bounded size, ordered by end, then by the bytes of the key. The progress of a step is stored in its own
  transaction.
- Rows that arrive with a letter are in their windows before that letter closes them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from ....core.progress.frames import MAX_TIME, NO_TIME
from ....core.windows import sessions, sliding, spans
from ....core.windows.results import (
    CLOCK,
    CLOSED_FIELD,
    DRAIN,
    EARLY,
    END_FIELD,
    START_FIELD,
    WATERMARK,
    result_time,
)
from ....core.windows.spans import Spans
from ...job.steps.keyed import WindowStep
from ...records.columns.records import Records
from ...records.columns.window_rows import WindowedRows, rows_of_ends, rows_of_times
from ...records.layout import Buffer, longs
from ...records.memory.record_spans import packed
from ...records.memory.vectors import Vector, VectorBatch
from ...records.values.record import Headers
from ..base.addends import Addends, ColumnAddends, PartialAddends, chunk_keys, keyed, same_keys, vectors_of
from ..base.key_arrays import KeyArrays
from ..base.stateless import BYTES, Env, Operator, UserCodeError, blaming, encode
from ..failures.result_rows import leave_out
from .closed_windows import ClosedWindows
from .combined_windows import plan_of_partials
from .floors import Floor
from .late_rows import write_late
from .open_rows import OpenRows
from .open_sessions import OpenSessions
from .open_sliding import OpenSliding, RefusedRow
from .open_windows import OpenCounts, OpenWindows
from .session_arrays import SessionArrays, open_sessions

Assign = Callable[[Buffer | None], WindowedRows]
KeptState = OpenSessions | SessionArrays | OpenSliding | OpenRows | OpenWindows
"""What is kept of the windows of a step."""
STEP_RESULTS = 10_000
"""The maximum number of results of one step: the outputs of a letter must not exceed what one transaction should hold."""
STEP_SESSIONS = 500
"""The maximum number of sessions whose rows one step passes to an actor."""


class LateCounts(NamedTuple):
    """The number of rows that were late for all of their windows, and for some of them."""

    rows: int = 0
    partly: int = 0

    def plus(self, rows: int, partly: int) -> LateCounts:
        """The sum of both."""
        return LateCounts(self.rows + rows, self.partly + partly)


def _listed(rows: Buffer | list[int] | None) -> list[int]:
    return rows if isinstance(rows, list) else [] if rows is None else longs(rows).tolist()


class WindowOp(Operator):
    """Aggregates for each key and window, of event time or of the clock."""

    letters = True
    wants_keys = BYTES
    gives_keys = True
    flags = ("watermark", "flushed", "floor", "next_early")
    of_letter = ("kept", "_late_now")

    def __init__(self, step: WindowStep, env: Env) -> None:
        super().__init__(step, env)
        self.window_step = step
        window = step.window
        self.plan = step.plan
        self.table = env.table(step.name)
        self.partial = step.takes_partials
        rule = sessions.closed_up_to if window.of_sessions else spans.closed_up_to
        self.floor = Floor.of(self.table, window.grace_ms, rule)
        self.kept: KeptState
        if window.sliding:
            self.kept = OpenSliding(step, self.table, floored=self.floor.at > NO_TIME)
        elif window.spans is None:
            self.kept = open_sessions(window.gap_ms, step.plan, self.table, arrays=step.in_arrays)
        elif step.rows is not None:
            self.kept = OpenRows(window.spans, self.table)
        else:
            self.kept = self._of_spans(window.spans, arrays=step.in_arrays)
        self.room = STEP_SESSIONS if window.of_sessions and step.rows is not None else STEP_RESULTS
        """What one step of closing gives."""
        self.windows_of_row = 1 if window.spans is None else window.spans.held_by
        self.by_clock = window.by_clock
        self.next_early = env.now_ms() + (step.early_ms or 0)
        """When early results are due next, if anything has changed."""
        self.late_counts = LateCounts()
        """Late rows since the task started on this worker."""
        self._late_now = LateCounts()
        """Late rows of the running letter."""

    def _of_spans(self, spans: Spans, *, arrays: bool) -> OpenWindows:
        early = self.window_step.updates
        return OpenWindows(spans, self.plan, self.table, arrays=arrays, early=early, partial=self.partial)

    def be_careful(self) -> None:
        """A commit has failed on what was held back: from now on, each letter writes its changes to the table."""
        if isinstance(self.kept, OpenWindows):
            self.kept = self._of_spans(self.kept.spans, arrays=False)
        elif isinstance(self.kept, SessionArrays):
            self.kept = self.kept.in_lists()
        self.kept.careful = True

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def push(self, rows: Records) -> None:
        kept = self.kept
        if self.partial:
            if not self._push_vectors(rows):
                self._push_states(keyed(self, rows, self.window_step.key_serde), rows)
            return
        if rows.vectors is not None:
            if isinstance(kept, SessionArrays) or (isinstance(kept, OpenWindows) and kept.arrays):
                if self._push_columns(kept, rows):
                    return
                kept = self._sessions_in_lists()
            rows = rows.of_columns(self._fields)
        keys, times, values = keyed(self, rows, self.window_step.key_serde), rows.timestamps, rows.values
        if self.window_step.rows is not None:
            values = self._entries(rows)
        if self.by_clock:
            times = [self._now()] * len(times)
        if isinstance(kept, OpenWindows):
            of = Addends(self.window_step, keys, values, times)
            with of.blaming():
                found = kept.take_blocks(self._by_time(array("q", times)), of, None, len(times))
            late, partly = _listed(found.late), found.partly
        elif isinstance(kept, SessionArrays):
            of = Addends(self.window_step, keys, values, times)
            with of.blaming():
                taken = kept.take(of, array("q", times), None, self.floor.closed)
                if taken is None:
                    taken = self._sessions_in_lists().take(of.listed(), times, values, self.floor.closed).late
            late, partly = _listed(taken), 0
        else:
            with blaming(self.step, self.plan.lacking(values)):
                late, partly = kept.take(keys, times, values, self.floor.closed)
        self._late_now = self._late_now.plus(len(late), partly)
        self._late(rows, late)

    def _sessions_in_lists(self) -> OpenSessions:
        """A state is no number of 64 bits any more: from now on, all of them are objects."""
        assert isinstance(self.kept, SessionArrays)
        self.kept = self.kept.in_lists()
        return self.kept

    def _caught_up(self) -> KeptState:
        """What is kept, with all that the letter has taken."""
        kept = self.kept
        return self._sessions_in_lists() if isinstance(kept, SessionArrays) and not kept.caught_up() else kept

    def _push_states(self, keys: list[Any], rows: Records) -> None:
        """Merge partial states, each behind the end of its pane and its number of rows."""
        kept, values, times = self.kept, rows.values, rows.timestamps
        assert isinstance(kept, OpenWindows)
        if rows.plan != self.plan.digest:
            values = self._of_former_code(rows.plan, values)
        if not values:
            return
        with blaming(self.window_step):
            ends, counts, *states = map(list, zip(*values, strict=True))
        of = Addends(self.window_step, keys, None, times, states=states)
        with of.blaming():
            found = kept.take_blocks(self._windows_of(array("q", ends), array("q", times)), of, None, len(times))
        self._late_partials(found, counts, times)

    def _push_columns(self, kept: OpenWindows | SessionArrays, chunk: Records) -> bool:
        """False if they do not fit into arrays."""
        times = array("q", [self._now()]) * chunk.base_length if self.by_clock else chunk.times
        serde = self.window_step.key_serde
        of = ColumnAddends(self.window_step, chunk, lambda some: chunk_keys(self, some, serde))
        with of.blaming():
            if isinstance(kept, OpenWindows):
                found = kept.take_blocks(self._by_time(times), of, chunk.picked, len(chunk))
            elif (taken := kept.take(of, times, chunk.picked, self.floor.closed)) is None:
                return False
            else:
                found = WindowedRows([], taken or None, 0)
        if found.late is not None:
            keyed(self, chunk.kept(found.late), serde)  # a row that is late has a key, too
        late = _listed(found.late)
        self._late_now = self._late_now.plus(len(late), found.partly)
        if found.late is not None and self.window_step.late is not None:
            self._late(chunk.kept(found.late).of_columns(self._fields), list(range(len(late))))
        return True

    def _now(self) -> int:
        """The time of the clock, but never before the floor."""
        return max(self.env.now_ms(), self.floor.at)

    @property
    def wants_states(self) -> bool:
        return self.partial and isinstance(self.kept, OpenWindows) and self.kept.arrays and self.plan.numeric

    @cached_property
    def _arriving(self) -> KeyArrays:
        """What reads partial states."""
        return KeyArrays(plan_of_partials(self.window_step))

    def _push_vectors(self, rows: Records) -> bool:
        """Merge partial states as columns. False if they must be merged one by one: these are of former code, or no numbers."""
        kept = self.kept
        if not isinstance(kept, OpenWindows) or not kept.arrays or not self.plan.numeric or rows.vectors is None:
            return False
        if not same_keys(self.window_step.key_serde, rows.key_serde) or rows.plan != self.plan.digest:
            return False
        vectors = vectors_of(self._arriving, rows)
        if vectors is None:
            return False
        ends, counts, *states = vectors
        of = PartialAddends(self.window_step, rows, states, lambda: [one[2:] for one in rows.values])
        with of.blaming():
            found = kept.take_blocks(self._windows_of(ends.data, rows.times), of, None, len(rows))
        self._late_partials(found, longs(counts.data), longs(rows.times))
        return True

    def _by_time(self, times: Buffer) -> Assign:
        """Assigns rows to the windows that are open now."""
        spans, closed = self.window_step.window.spans, self.floor.closed
        assert spans is not None
        return lambda rows: rows_of_times(spans, times, rows, closed)

    def _windows_of(self, ends: Buffer, times: Buffer) -> Assign:
        """Assigns partial states: a window is the pane of its states, or each pane belongs to all windows that hold its rows."""
        spans, closed = self.window_step.window.spans, self.floor.closed
        assert spans is not None
        if spans.every == spans.size:
            return lambda rows: rows_of_ends(ends, closed)  # each is in one window, so they come in one block
        return self._by_time(times)

    def _late_partials(self, found: WindowedRows, counts: Sequence[int], times: Sequence[int]) -> None:
        """Count the rows of partial states that are late for all of their windows, or for some."""
        late, partly = sum(counts[place] for place in _listed(found.late)), 0
        spans, closed = self.window_step.window.spans, self.floor.closed
        if found.partly and spans is not None:
            missed = (count for count, time in zip(counts, times, strict=True) if spans.first_end(time) <= closed)
            partly = sum(missed) - late
        self._late_now = self._late_now.plus(late, partly)

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return frozenset(self._fields)

    @property
    def _fields(self) -> Sequence[str]:
        """The columns that are read. Late rows are written with all of them, in their order."""
        schema = self.window_step.schema
        return sorted(self.plan.reads) if schema is None or self.window_step.late is None else schema.names

    def _of_former_code(self, plan: int | None, values: list[Any]) -> list[Any]:
        """Convert partial states that were in flight when the code was changed to the form of this code."""
        layout = self.table.layout
        schema = layout.of_partials(plan)
        return [[*value[:2], *layout.adapt(schema, value[2:])] for value in values]

    def _entries(self, rows: Records) -> list[Any]:
        """Rows as they are kept for an actor."""
        values = encode(self.step, self.window_step.rows, rows.values, rows)
        headers = [None] * len(values) if rows.headers is None else [list(one) or None for one in rows.headers]
        return list(map(list, zip(rows.timestamps, values, headers, strict=True)))

    def _late(self, rows: Records, late: list[int]) -> None:
        """Write rows whose windows are closed, unchanged, to the topic for late rows, if the user has named one."""
        topic = self.window_step.late
        if topic is None or not late:
            return
        write_late(self, rows.at(late), topic, self.window_step.late_serde)

    # ------------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        with blaming(self.step):
            self._caught_up().prepare()

    def complete(self) -> None:
        self.kept.complete()
        if self._late_now != LateCounts():
            self.env.count("late_rows", self._late_now.rows)
            self.env.count("late_for_some_windows", self._late_now.partly)
            self.late_counts, self._late_now = self.late_counts.plus(*self._late_now), LateCounts()

    def drop(self) -> None:
        self.kept.drop()
        self._late_now = LateCounts()

    def opened(self) -> tuple[OpenCounts, LateCounts]:
        """What is open, and how many rows were late."""
        return self.kept.counts(), self.late_counts

    def seal(self) -> None:
        self.kept.seal()

    # ------------------------------------------------------------------------------------------------------------ closing

    async def on_watermark(self, watermark: int) -> bool:
        """Close the windows that event time has passed. The maximal time announces a drain; it does not count as event time."""
        more = False
        if watermark == MAX_TIME:
            more = await self.on_close(DRAIN)
        elif not self.by_clock:
            self.floor = self.floor.raised(watermark, self.table)
            more = self._close(self.floor.closed, WATERMARK)
        if not more:
            self.watermark = watermark
        return more

    async def on_close(self, cause: str) -> bool:
        """Close everything that is open, unless the step keeps it open. The floor stays: the next run may open these windows again.

        First comes what time has closed, and a crash has left in the middle of it.
        """
        first, closed = self.kept.first_end(), self.floor.closed
        if first is not None and first <= closed:
            self._close(closed, CLOCK if self.by_clock else WATERMARK)
            return True
        return not self.window_step.keeps_open and self._close(None, cause)

    def due(self) -> tuple[int, str] | None:
        """When the clock closes the next window, or early results are due."""
        wanted: list[tuple[int, str]] = []
        if self.by_clock and (end := self.kept.first_end()) is not None:
            wanted.append((end + self.window_step.holds_ms, CLOCK))
        step, early = self.window_step, self.kept.early
        if early is not None and early.ends:
            if step.early_ms is not None:
                wanted.append((self.next_early, EARLY))
            elif early.rows >= (step.early_rows or 0):
                wanted.append((self.env.now_ms(), EARLY))
        return min(wanted, default=None)

    def owed_ms(self) -> int | None:
        """Each open window will emit results with the time of its end, even if no further record arrives. So the step is not idle when its
        streams are, and where the clock closes windows, event time waits for them."""
        end = self.kept.first_end()
        return None if end is None else result_time(end)

    async def work(self, key: str) -> bool:
        """Close the windows that the clock has passed, or emit early results. Returns whether there is more to do."""
        now = self.env.now_ms()
        if key == CLOCK:
            self.floor = self.floor.raised(now, self.table)
            return self._close(self.floor.closed, CLOCK)
        if not isinstance(self.kept, OpenWindows):
            return False
        found, times = self.kept.changed_since(STEP_RESULTS)
        if found.keys:
            self._give(found, EARLY, times)
        if not found.more:
            self.next_early = now + (self.window_step.early_ms or 0)
        return found.more

    def _close(self, closed: int | None, by: str) -> bool:
        """Emit results of windows that end no later than `closed` (None: of all), as many as a step may. Returns whether there are more."""
        if self._caught_up().awaits(closed):
            return True
        found = self.kept.close(closed, self.room)
        if isinstance(self.kept, OpenSliding):
            self._leave_out(self.kept.refused, by)
        if found.keys:
            (self._give if self.window_step.rows is None else self._give_rows)(found, by)
        return found.more

    def _give_rows(self, found: ClosedWindows, by: str) -> None:
        """All rows of each key and window, in the order of their times."""
        serde = self.window_step.rows
        for key, start, end, (kept,) in zip(found.keys, found.starts, found.ends, found.states, strict=True):
            kept = sorted(kept, key=itemgetter(0))
            times, data, headers = map(list, zip(*kept, strict=True))
            with blaming(self.step):
                values = serde.loads_many(data)
                if values.bad:
                    raise values.bad[0][1]
            own: list[Headers] | None = None
            if any(headers):
                own = [[(name, data) for name, data in one or ()] for one in headers]
            window = {START_FIELD: start, END_FIELD: end, CLOSED_FIELD: by}
            keys = [key] * len(kept)
            self.forward(Records(values.values, times, keys, own, key_serde=self.window_step.key_serde, window=window))

    def _give(self, found: ClosedWindows, by: str, latest: array[int] | None = None) -> None:
        times = array("q", map(result_time, found.ends)) if latest is None else latest
        if found.of_numbers and not self.plan.shows:
            self._give_columns(found, by, times)
            return
        try:
            results = self._results(found, by)
        except UserCodeError:
            self._give_each(found, by, times.tolist())
            return
        self.forward(Records(results, times.tolist(), found.keys, key_serde=self.window_step.key_serde))

    def _results(self, found: ClosedWindows, by: str) -> list[dict[str, Any]]:
        with blaming(self.step):
            results = self.plan.results(found.states)
        for result, start, end in zip(results, found.starts, found.ends, strict=True):
            result[START_FIELD], result[END_FIELD], result[CLOSED_FIELD] = start, end, by
        return results

    def _give_columns(self, found: ClosedWindows, by: str, times: array[int]) -> None:
        """Results of numbers, which are made as columns, or as rows, when a step asks for them."""
        names = *self.plan.names, START_FIELD, END_FIELD, CLOSED_FIELD
        size = len(found.keys)

        def results() -> VectorBatch:
            bounds = (Vector("int64", size, array("q", one)) for one in (found.starts, found.ends))
            return VectorBatch(names, (*found.results(), *bounds, Vector.of("text", [by] * size)), size)

        self.forward(
            Records.of_vectors(
                None,
                times,
                key_spans=packed(found.keys),
                key_serde=self.window_step.key_serde,
                results=results,
                make=lambda: self._results(found, by),
            )
        )

    @property
    def _policy(self) -> Any:
        """What becomes of a result that fails: its window is gone from the state."""
        return (self.step.on_error or self.env.app.on_error) if not self.env.app.tables else "fail"

    def _leave_out(self, refused: Iterable[RefusedRow], by: str) -> None:
        """Leave out the results of rows whose states could not be put together with others, if the policy says so. The letter of each is
        the state that the row makes alone."""
        for time, key, state, error in refused:
            end = sliding.end_of(time)
            fields = {START_FIELD: end - self.window_step.window.size_ms, END_FIELD: end, CLOSED_FIELD: by}
            value = {**dict(zip(self.plan.names, state, strict=True)), **fields}
            row = Records([value], [time], [key], key_serde=self.window_step.key_serde)
            leave_out(self, row, error, self._policy)

    def _give_each(self, found: ClosedWindows, by: str, times: list[int]) -> None:
        """The results one by one; one that fails is left out if the policy says so, since its window is gone from the state. Its letter is
        the state, as it was aggregated."""
        spans = zip(found.starts, found.ends, strict=True)
        fields = [{START_FIELD: start, END_FIELD: end, CLOSED_FIELD: by} for start, end in spans]
        windows = Records(fields, times, found.keys, key_serde=self.window_step.key_serde)
        policy = self._policy
        results: list[dict[str, Any]] = []
        kept: list[bool] = []
        for place, state in enumerate(found.states):
            window = windows.at([place])
            try:
                with blaming(self.step, lambda _, window=window: f" (key {window.keys}, window {window.values[0]})"):
                    (result,) = self.plan.results([state])
            except UserCodeError as error:
                state_of = {**dict(zip(self.plan.names, state, strict=True)), **window.values[0]}
                leave_out(self, window.with_values([state_of]), error, policy)
                kept.append(False)
            else:
                results.append({**result, **window.values[0]})
                kept.append(True)
        self.forward(windows.filtered(kept).with_values(results))
