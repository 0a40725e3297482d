"""The open windows of one step and task with their states in arrays: by the end of the window, keys by number and an array for each state.

Windows of columns whose aggregates are of numbers are kept so; `OpenWindows` keeps all others. Both are stored alike: a block of the table
holds 64 keys in the order of their arrival. What the running letter adds waits in `taken`. It changes nothing before the letter is
complete, and a sum beyond 64 bits is refused before. The keys that a failed letter brought are forgotten.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...core.columns.typing import NUMBERS
from ...core.windows.blocks import BLOCK_KEYS
from ...core.windows.results import END_FIELD
from ...core.windows.slots import Slots
from ...core.windows.spans import Spans, due
from ..job import steps as s
from ..job.aggregates import AggregatePlan, count
from ..job.aggregates import max as greatest
from ..records.column_chunk import ColumnChunk
from ..records.decoder import RecordSpans
from ..records.spans import pieces
from ..records.vectors import Buffer, Vector, longs
from .addends import ChunkKeys, too_large
from .key_arrays import Addition, KeyArrays, has_arrays
from .open_windows import ClosedWindows, GivenOut, OpenCounts, forget_given, is_more, stored_blocks, write_given


class WindowAddition(NamedTuple):
    """What the running letter adds to one window."""

    end: int
    make: Callable[[KeyArrays], Addition]
    addition: Addition


class ArrayWindow:
    """One window."""

    def __init__(self, plan: AggregatePlan, partial: bool) -> None:
        self.arrays = KeyArrays(plan, partial=partial)
        self.slots: list[int] = []
        """The slots of the blocks that the table has, by the number of the block."""
        self.out = 0
        """The number of results already emitted, if closing takes several steps."""
        self._queue: tuple[list[bytes], array[int]] | None = None

    def keys(self, numbers: Buffer) -> list[bytes]:
        """The keys with these numbers."""
        found: Any = pieces(self.arrays.keys.keys(numbers)[0])
        return found

    def add(self, addition: Addition) -> None:
        """Add what fits."""
        self.arrays.add(addition)
        self.grown()

    def grown(self) -> None:
        """All keys have states now."""
        if self.arrays.known < len(self.arrays.keys):
            self.arrays.known = len(self.arrays.keys)
            self._queue = None

    def queue(self) -> tuple[list[bytes], array[int]]:
        """The keys in the order of their results, and their numbers."""
        if self._queue is None:
            keys = self.keys(array("q", range(self.arrays.known)))
            order = sorted(range(len(keys)), key=keys.__getitem__)
            self._queue = [keys[number] for number in order], array("q", order)
        return self._queue

    def blocks(self) -> dict[int, list[Any]]:
        """The blocks that have changed since the last call, in their stored form."""
        arrays = self.arrays
        changed = sorted({number // BLOCK_KEYS for number in longs(arrays.cells.dirty())})
        numbers = array("q")
        for block in changed:
            numbers.extend(range(block * BLOCK_KEYS, min((block + 1) * BLOCK_KEYS, arrays.known)))
        keys, states = self.keys(numbers), arrays.states(numbers)
        arrays.cells.settle()
        return {
            block: [keys[start : start + BLOCK_KEYS], states[start : start + BLOCK_KEYS]]
            for block, start in zip(changed, range(0, len(keys), BLOCK_KEYS), strict=True)
        }


ROWS_FIELD = "window-rows"
"""The name of the number of rows in a partial state of a window: no identifier, so no aggregate has it."""


def has_window_arrays(step: s.WindowStep) -> bool:
    """Whether the windows of a step are kept in arrays: their columns are numbers, and nothing needs early results."""
    schema, plan = step.schema, step.plan
    if schema is None or step.updates or step.window.spans is None or not has_arrays(plan):
        return False
    return all(schema[str(part.of)].type in NUMBERS for part in plan.parts if part.of is not None)


def plan_of_partials(step: s.WindowStep) -> AggregatePlan:
    """A partial state of a window consists of the end of the window, the number of its rows, and the states."""
    parts = dict(zip(step.plan.names, step.plan.parts, strict=True))
    return AggregatePlan({END_FIELD: greatest(END_FIELD), ROWS_FIELD: count(), **parts})


def addition_of(chunk: ColumnChunk, keys: ChunkKeys, end: int | None = None) -> Callable[[KeyArrays], Addition]:
    """What a chunk adds. `end`: for partial states, the end of their window."""

    def made(arrays: KeyArrays) -> Addition:
        parts = arrays.plan.parts

        def column(at: int) -> Vector:
            if end is not None and parts[at].of == END_FIELD:
                return Vector("int64", chunk.base_length, array("q", [end]) * chunk.base_length)
            return chunk.vector(str(parts[at].of))

        return Addition(keys.numbers(arrays.keys), arrays.columns(column), chunk.picked, chunk.times, None)

    return made


def merging(
    keys: RecordSpans, states: Sequence[Vector], rows: Buffer | None, times: Buffer
) -> Callable[[KeyArrays], Addition]:
    """What these rows of partial states in columns add."""
    return lambda arrays: Addition(arrays.keys.numbers_of(keys, rows), list(states), rows, times, None)


def partials_of(
    step: s.Step, keys: list[bytes], states: list[list[Any]], times: Buffer
) -> Callable[[KeyArrays], Addition]:
    """What partial states in lists add."""

    def made(arrays: KeyArrays) -> Addition:
        vectors = arrays.vectors(states)
        if vectors is None:
            raise too_large(step, None)
        return Addition(arrays.keys.numbers_listed(keys), list(vectors), None, times, None)

    return made


class OpenArrays:
    """The open windows of a fixed length. Without a table, nothing is stored. `partial`: takes partial states instead of rows."""

    early = None
    careful = False

    def __init__(self, spans: Spans, plan: AggregatePlan, table: Any, *, partial: bool = False) -> None:
        self.spans = spans
        self.plan = plan
        self.table = table
        self.partial = partial
        self.open: dict[int, ArrayWindow] = {}
        self.ends: list[int] = []
        """Of the open windows, sorted."""
        self.changed: set[int] = set()
        """Windows with blocks that the next commit writes."""
        self.taken: list[WindowAddition] = []
        self.fresh: dict[int, ArrayWindow] = {}
        """Windows that the running letter opens."""
        self.given: list[GivenOut] = []
        self.slots = Slots()
        self.fits = table is None or self._load()
        """Whether everything that is stored has a place in arrays."""

    def _load(self) -> bool:
        blocks, closing = stored_blocks(self.table)
        self.slots = Slots(slot for _, slot, *_ in blocks)
        for end, slot, keys, states in blocks:
            window = self._opened(end, ArrayWindow(self.plan, self.partial))
            vectors = window.arrays.vectors(states)
            if vectors is None:
                return False
            window.arrays.put(keys, vectors, None)
            window.grown()
            window.slots.append(slot)
        if closing is not None and closing["end"] in self.open:
            window = self.open[closing["end"]]
            window.out = bisect_right(window.queue()[0], closing["key"])
        return True

    def _opened(self, end: int, window: ArrayWindow) -> ArrayWindow:
        known = self.open.get(end)
        if known is None:
            known = self.open[end] = window
            insort(self.ends, end)
        return known

    def counts(self) -> OpenCounts:
        """Count what is open now."""
        return OpenCounts(len(self.open), sum(one.arrays.known for one in self.open.values()), self.first_end())

    # ------------------------------------------------------------------------------------------------------- with the letter

    def take(self, end: int, addition: Callable[[KeyArrays], Addition]) -> None:
        """Add to the window with this end what `addition` makes for its arrays."""
        window = self.open.get(end) or self.fresh.get(end)
        if window is None:
            window = self.fresh[end] = ArrayWindow(self.plan, self.partial)
        self.taken.append(WindowAddition(end, addition, addition(window.arrays)))

    def refused(self) -> bool:
        """Whether what the letter adds would take a whole number beyond 64 bits."""
        times = Counter(one.end for one in self.taken)
        several: dict[int, KeyArrays] = {}
        for one in self.taken:
            arrays = (self.open.get(one.end) or self.fresh[one.end]).arrays
            if times[one.end] > 1:  # together they may be too much: try it on a copy
                arrays = several.get(one.end) or several.setdefault(one.end, arrays.copied())
            if arrays.refused(one.addition):
                return True
            if one.end in several:
                arrays.add(one.addition)
        return False

    def prepare(self) -> None:
        """Get ready to complete: what the letter has given out is written."""
        write_given(self.given, self.open, self.table, self.slots)

    def complete(self) -> None:
        """The letter is complete."""
        for end, _, addition in self.taken:
            self._opened(end, self.fresh.get(end) or self.open[end]).add(addition)
            if self.table is not None:
                self.changed.add(end)
        forget_given(self.given, self.open, self.ends, self.changed)
        self.slots.complete()
        self.taken, self.fresh, self.given = [], {}, []

    def drop(self) -> None:
        """The letter failed."""
        for one in self.taken:
            if one.end in self.open:
                self.open[one.end].arrays.forget_unknown()
        self.taken, self.fresh, self.given = [], {}, []
        self.slots.drop()

    def suspend(self) -> Any:
        """Set aside what the letter has done."""
        aside = self.taken, self.given
        self.drop()
        return aside

    def resume(self, aside: Any) -> None:
        """Resume the letter. Its keys are numbered anew."""
        taken, self.given = aside
        for one in taken:
            self.take(one.end, one.make)

    def seal(self) -> None:
        """Write the changed blocks to the table."""
        for end in sorted(self.changed):
            window = self.open[end]
            self.table.update(self.slots.place(end, window.slots, window.blocks()))
        self.slots.complete()
        self.changed.clear()

    # ------------------------------------------------------------------------------------------------------------ closing

    def first_end(self) -> int | None:
        """When the first open window ends."""
        return self.ends[0] if self.ends else None

    def awaits(self, closed: int | None) -> bool:
        """Whether rows of this letter belong to a window that is due. They count once the letter is complete: the next step closes it."""
        return any(closed is None or one.end <= closed for one in self.taken)

    def close(self, closed: int | None, room: int) -> ClosedWindows:
        """Take out at most `room` results of windows that end no later than `closed` (None: any), ordered by end, then by key."""
        ends = due(self.ends, closed)
        found = ClosedWindows([], [], [], [], False)
        for end in ends:
            window = self.open[end]
            keys, numbers = window.queue()
            first, out = window.out, min(window.out + room, len(keys))
            some = keys[first:out]
            self.given.append(GivenOut(end, out, some[-1] if some else b"", out == len(keys)))
            found.starts.extend([end - self.spans.size] * len(some))
            found.ends.extend([end] * len(some))
            found.keys.extend(some)
            found.states.extend(window.arrays.states(numbers[first:out]))
            room -= len(some)
            if room <= 0:
                break
        return found._replace(more=is_more(self.given, ends))
