"""The open windows of one step and task: keys with their states, by the end of the window; and how they are stored.

Those that memory has room for are kept decoded (`kept_windows`, `window_states`). The table holds blocks of up to 64 keys
(`core.windows.blocks`, `block_store`); each commit writes the blocks that have changed. What the running letter has taken waits in `taken`,
and joins the windows when the letter is complete: numbers are added then; everything else was added to copies before. So a failed letter
leaves no trace.

Rows times windows are bounded, whoever pushes the rows: they are taken in blocks, and a block that has no room beside the others has them
*folded* first, into copies of the states of their keys (`folding`). Letters are cut so that this is not needed (`letter_bounds`); it is for
what a function has multiplied, and for large frames of other jobs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ....core.windows import spans as rules
from ....core.windows.spans import Spans, due
from ...job.types.aggregates import AggregatePlan
from ...records.columns.selecting import all_mappings
from ...records.columns.window_rows import WindowedRows
from ...records.layout import Buffer, longs
from ..base.addends import Addend
from ..base.block_store import BlockStore
from ..base.key_arrays import Addition, KeyArrays
from ..base.letter import LetterPart
from .closed_windows import ClosedWindows, SomeStates
from .early_results import EarlyResults
from .kept_windows import KeptWindows, LiveWindow
from .window_states import ArrayWindow, KeyBlock, ListWindow, States, keep_greatest

CLOSING = "closing"
"""The row that holds the progress of a closing that takes several steps: end of the window and last key."""


class TooLate(NamedTuple):
    """The positions of rows that no window took, and how many other rows are missing from some of their windows."""

    late: list[int]
    partly: int = 0


class OpenCounts(NamedTuple):
    """What is open: the number of windows, the number of keys in them, and the earliest end."""

    windows: int
    keys: int
    oldest_ms: int | None


class WindowPart:
    """What the running letter adds to one window, and how it can be added without a copy."""

    __slots__ = ("addition", "columns", "end", "of")

    def __init__(self, end: int, of: Addend) -> None:
        self.end = end
        self.of = of
        self.addition: Addition | None = None
        """For a window in arrays."""
        self.columns: list[Any] | None = None
        """For a window in lists: columns of numbers."""


class PushedRows(NamedTuple):
    """Rows that the running letter has brought: how they are assigned to windows, what they add, and which they are (None: all of it)."""

    assign: Callable[[Buffer | None], WindowedRows]
    of: Addend
    rows: Buffer | None
    size: int


class GivenOut(NamedTuple):
    """The results of one window that the running letter has emitted."""

    end: int
    out: int
    """The number of results emitted so far, in the order of the window's keys."""
    last: bytes
    whole: bool


class ClosingWindow(Protocol):
    """What closing needs to know of a window: how many of its results were emitted by earlier letters."""

    out: int


class ClosingWindows(Protocol):
    """All windows of a step, by their end."""

    def __getitem__(self, end: int, /) -> ClosingWindow: ...
    def __delitem__(self, end: int, /) -> None: ...


def write_given(given: Iterable[GivenOut], windows: ClosingWindows, table: Any, blocks: BlockStore[int]) -> None:
    """Write to the table what the letter has emitted: closed windows are deleted, and of another one how far it is closed."""
    for one in given:
        if not one.whole:
            table.update({CLOSING: {"end": one.end, "key": one.last}})
            continue
        blocks.remove(one.end)
        if windows[one.end].out:
            table.delete_many([CLOSING])


def forget_given(given: Iterable[GivenOut], windows: ClosingWindows, ends: list[int], changed: set[int]) -> None:
    """The letter is complete: closed windows are gone, and of another one it is known how far it is closed. `ends`: of all windows, sorted.
    `changed`: those that the next commit writes."""
    for one in given:
        if one.whole:
            del windows[one.end]
            ends.remove(one.end)
            changed.discard(one.end)
        else:
            windows[one.end].out = one.out


def is_more(given: Sequence[GivenOut], ends: Sequence[int]) -> bool:
    """Whether another step is needed to close the windows with these ends."""
    return bool(ends) and (given[-1].end != ends[-1] or not given[-1].whole)


class OpenWindows(LetterPart):
    """The open windows of a fixed length. `careful`: each letter writes its changes to the table, so that a failure there belongs to one of
    its records."""

    of_letter = ("taken", "copying", "given", "early", "blocks", "pairs", "folding")

    def __init__(
        self,
        spans: Spans,
        plan: AggregatePlan,
        table: Any,
        *,
        arrays: bool = False,
        early: bool = False,
        partial: bool = False,
        timed: bool = False,
    ) -> None:
        """Without a table, nothing is stored. `arrays`: windows begin with their states in arrays. `partial`: takes partial states instead
        of rows. `timed`: the greatest time of each key is wanted."""
        self.spans = spans
        self.plan = plan
        self.table = table
        self.arrays = arrays
        self.partial = partial
        self.timed = timed
        self.careful = False
        self.changed: set[int] = set()
        """Windows with blocks that the next commit writes."""
        self.taken: list[WindowPart] = []
        self.open = KeptWindows(self._empty, table, lambda: self.changed.union(self._ends()))
        self.opening: dict[int, ArrayWindow] = {}
        """Windows that the running letter opens."""
        self.fresh: dict[int, States] = {}
        """Copies of states, with what the letter has taken."""
        self.copied = 0
        """How many entries of `taken` are in the copies."""
        self.copying = False
        """What is taken goes into copies, because adding it may fail, or the states may not be numbers."""
        self.blocks: list[PushedRows] = []
        """What the letter has brought, if its rows are in several windows each."""
        self.pairs = 0
        """How many pairs of a row and a window stand in `taken`, at most."""
        self.folding = False
        """What was taken was too much at once: it is in `fresh` and `folded`."""
        self.folded: dict[int, KeyArrays] = {}
        """By window in arrays, copies of states, with what the letter has taken."""
        self.folded_times: dict[int, dict[bytes, int]] = {}
        """By window in lists, the greatest time of what is folded, by key."""
        self.folded_rows: Counter[int] = Counter()
        """By window, how many rows are folded."""
        self.given: list[GivenOut] = []
        self.placed: dict[int, dict[int, KeyBlock]] = {}
        """By window, the blocks that the letter writes; only if it is careful."""
        self.early = EarlyResults(self.open) if early else None
        self._load()

    def _empty(self) -> LiveWindow:
        return (ArrayWindow if self.arrays else ListWindow)(self.plan, partial=self.partial)

    def _load(self) -> None:
        """Find the open windows in the table. Their states are loaded when they are wanted."""
        if self.open.blocks is None:
            return
        counts = Counter[int]()
        self.open.blocks.load(lambda end, _, block: counts.update({end: len(block[2])}))
        for end in counts:
            self.open.stored(end, counts[end])
        closing = self.table.get(CLOSING)
        if closing is not None and (window := self.open.get(closing["end"])) is not None:
            window.out = bisect_right(window.results(0, window.count)[0], closing["key"])

    def counts(self) -> OpenCounts:
        """Count what is open now."""
        return OpenCounts(len(self.open), self.open.keys(), self.first_end())

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def take_blocks(
        self, assign: Callable[[Buffer | None], WindowedRows], of: Addend, rows: Buffer | None, count: int
    ) -> WindowedRows:
        """Add these rows (None: all `count`) to the windows that `assign` finds for them, in blocks. Returns which were late. Raises what
        user functions raise."""
        most = count if self.spans.held_by == 1 else rules.most_rows(self.spans.held_by)
        late, partly = array("q"), 0
        for start in range(0, count, max(most, 1)):
            stop = min(start + most, count)
            block = rows
            if stop - start < count:
                block = array("q", range(start, stop)) if rows is None else array("q", longs(rows)[start:stop])
            found = self._take_block(PushedRows(assign, of, block, stop - start))
            late.extend(longs(found.late) if found.late is not None else ())
            partly += found.partly
        return WindowedRows([], late or None, partly)

    def _take_block(self, block: PushedRows) -> WindowedRows:
        if self.spans.held_by > 1:
            self.blocks.append(block)
            more = block.size * self.spans.held_by
            if self.taken and self.pairs + more > rules.MOST_PAIRS:
                self._fold()
            self.pairs += more
        found = block.assign(block.rows)
        self.take(found, block.of, block.rows)
        return found

    def take(self, found: WindowedRows, of: Addend, given: Buffer | None = None) -> None:
        """Add to each window the rows that were found for it, of those that were given (None: all). Raises what user functions raise."""
        if not self.arrays and found.late is None and given is None:
            of.columns(self.plan)  # once for all windows
        for end, rows in found.open:
            part = WindowPart(end, of.picked(given if rows is None else rows))
            self.taken.append(part)
            self.copying = self.copying or not self._fits(part)
        if self.copying:
            self._copy()

    def _fits(self, part: WindowPart) -> bool:
        """Whether a part can be added without a copy; if so, it is ready."""
        window = self.open.get(part.end)
        if window is None and self.arrays:
            window = self.opening.get(part.end)
            if window is None:
                window = self.opening[part.end] = ArrayWindow(self.plan, partial=self.partial)
        if isinstance(window, ArrayWindow):
            part.addition = part.of.addition(window.arrays)
            return part.addition is not None
        part.columns = part.of.columns(self.plan)
        return part.columns is not None and not self.careful and (window is None or window.plain)

    def _ends(self) -> set[int]:
        """The windows for which the running letter has taken rows."""
        return {part.end for part in self.taken}.union(self.folded, self.fresh)

    def _copy(self) -> None:
        """Add taken rows that are not yet in the copies to them."""
        for part in self.taken[self.copied :]:
            self._copy_part(part)
        self.copied = len(self.taken)

    def _copy_part(self, part: WindowPart) -> None:
        keys = part.of.listed()
        states = self._copies(part.end, keys)
        if part.columns is not None:
            self.plan.add_columns(keys, part.columns, states, partial=self.partial)
        elif self.partial:
            self.plan.merge(keys, part.of.values(), states)
        else:
            values = part.of.values()
            self.plan.add(keys, values, states, items=all_mappings(values))

    # -------------------------------------------------------------------------------------------------------------- folding

    def _fold(self) -> None:
        """Add everything taken to copies of states, so that no pair of a row and a window stands any more."""
        self.folding = True
        for place, part in enumerate(self.taken):
            if place >= self.copied:
                if self._fold_in_arrays(part):
                    continue
                self._copy_part(part)
            if self.arrays or self.early is not None:
                keys = part.of.listed()
                keep_greatest(self.folded_times.setdefault(part.end, {}), keys, part.of.timestamps)
                self.folded_rows[part.end] += len(keys)
        self.taken, self.copied, self.pairs = [], 0, 0

    def _fold_in_arrays(self, part: WindowPart) -> bool:
        """Add a part to copies in arrays. False if it does not fit there: then what was folded so far of its window is in lists."""
        window = self.open.get(part.end)
        if not self.arrays or part.end in self.fresh or isinstance(window, ListWindow):
            return False
        arrays = self.folded.get(part.end)
        if arrays is None:
            arrays = self.folded[part.end] = KeyArrays(self.plan, partial=self.partial)
        addition = part.of.addition(arrays)
        if window is not None and addition is not None:
            _, new = arrays.unknown()
            known = [(key, one) for key, one in zip(new, window.states_of(new), strict=True) if one is not None]
            vectors = arrays.vectors([one for _, one in known]) if known else None
            if vectors is not None:
                arrays.put([key for key, _ in known], vectors, None)
        if addition is None or arrays.refused(addition):
            self._in_lists(part.end)
            return False
        arrays.add(addition)
        arrays.known = len(arrays.keys)
        self.folded_rows[part.end] += len(longs(addition.numbers))
        return True

    def _in_lists(self, end: int) -> None:
        arrays = self.folded.pop(end)
        arrays.forget_unknown()
        if arrays.known:
            keys, states, times = arrays.listed()
            self.fresh[end] = dict(zip(keys, states, strict=True))
            self.folded_times[end] = dict(zip(keys, times, strict=True))

    def _settle_folded(self) -> None:
        """The letter is complete: the copies in arrays are the states now."""
        for end, arrays in self.folded.items():
            window = self._opened(end)
            if isinstance(window, ArrayWindow):
                keys, times = window.replace(arrays)
                if self.table is not None:
                    self.changed.add(end)
            else:
                keys, states, times = arrays.listed()
                self._update(end, dict(zip(keys, states, strict=True)), dict(zip(keys, times, strict=True)))
            if self.early is not None:
                self.open.live[end].mark(keys, times)

    def _copies(self, end: int, keys: list[bytes]) -> States:
        found = self.fresh.setdefault(end, {})
        window = self.open.get(end)
        new = [key for key in dict.fromkeys(keys) if key not in found]
        known = [None] * len(new) if window is None else window.states_of(new)
        start, copy = self.plan.start, self.plan.copy
        found.update((key, start() if one is None else copy(one)) for key, one in zip(new, known, strict=True))
        return found

    # ------------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        """Get ready to complete: a commit may have changed the windows since the letter took its rows. Raises as `take` does."""
        if self.folding:
            self._fold()
        else:
            self.copying = self.copying or not self._still_fit()
            if self.copying:
                self._copy()
        blocks = self.open.blocks
        if blocks is None:
            return
        for end, fresh in self.fresh.items() if self.careful else ():
            window = self.open.get(end) or ListWindow(self.plan)
            assert isinstance(window, ListWindow)
            placed = self.placed[end] = window.blocks_with(fresh, list(fresh), end, blocks.encoded)
            blocks.write(end, {number: one.data for number, one in placed.items()})
        write_given(self.given, self.open, self.table, blocks)

    def _still_fit(self) -> bool:
        """Whether all that was taken can be added without a copy, and no sum becomes too large for arrays."""
        times = Counter(part.end for part in self.taken)
        several: dict[int, KeyArrays] = {}
        for part in self.taken:
            window = self.open.get(part.end) or self.opening.get(part.end)
            if not isinstance(window, ArrayWindow):
                if part.columns is None or (window is not None and not window.plain):
                    return False
                continue
            assert part.addition is not None
            arrays = window.arrays
            if times[part.end] > 1:  # together they may be too much: try it on a copy
                arrays = several.get(part.end) or several.setdefault(part.end, arrays.copied())
            if arrays.refused(part.addition):
                return False
            if part.end in several:
                arrays.add(part.addition)
        return True

    def complete(self) -> None:
        """The letter is complete."""
        if self.copying or self.folding:
            times = self.folded_times if self.folding else self._times()
            for end, fresh in self.fresh.items():
                self._update(end, fresh, times.get(end, {}))
            self._settle_folded()
        else:
            for part in self.taken:
                self._add(part)
        if self.early is not None:
            self._mark(self.early)
        forget_given(self.given, self.open, self.open.ends, self.changed)
        if self.open.blocks is not None:
            self.open.blocks.complete()
        ends = self._ends()
        self.drop()
        self.open.used(ends)

    def _mark(self, early: EarlyResults) -> None:
        """Mark what the letter has changed, as it is in the windows now."""
        early.complete()
        for part in self.taken:
            window = self.open.live[part.end]
            if isinstance(window, ArrayWindow) and part.addition is not None and not self.copying:
                early.changed(part.end, window.mark_rows(part.addition))
            else:
                keys = part.of.listed()
                window.mark(keys, part.of.timestamps)
                early.changed(part.end, len(keys))
        for end, times in self.folded_times.items():
            self.open.live[end].mark(list(times), list(times.values()))
        for end, rows in self.folded_rows.items():
            early.changed(end, rows)
        for one in self.given:
            early.closes(one.end)

    def _times(self) -> dict[int, dict[bytes, int]]:
        """By window and key, the greatest time of what was taken; if states in arrays change, or somebody wants to know it."""
        found: dict[int, dict[bytes, int]] = {}
        for part in self.taken if self.timed or self.arrays else ():
            keep_greatest(found.setdefault(part.end, {}), part.of.listed(), part.of.timestamps)
        return found

    def _update(self, end: int, fresh: States, times: dict[bytes, int]) -> None:
        window = self._opened(end)
        if isinstance(window, ArrayWindow) and not window.update(fresh, times):
            window = self.open.put(end, window.in_lists())
        if isinstance(window, ListWindow):
            window.update(fresh)
            self._touched(end, window, fresh)
            if self.timed:
                window.later(list(times), list(times.values()))
        elif self.table is not None:
            self.changed.add(end)

    def _add(self, part: WindowPart) -> None:
        window = self._opened(part.end)
        if isinstance(window, ListWindow):
            keys = part.of.listed()
            window.add(keys, part.columns or [])
            self._touched(part.end, window, keys)
            if self.timed:
                window.later(keys, part.of.timestamps)
            return
        assert part.addition is not None
        window.add(part.addition)
        if self.table is not None:
            self.changed.add(part.end)

    def _opened(self, end: int) -> LiveWindow:
        return self.open.opened(end, self.opening.get(end))

    def _touched(self, end: int, window: ListWindow, keys: Iterable[bytes]) -> None:
        if self.table is None:  # nothing is stored, so no one needs to know which block holds a key
            return
        if self.careful:  # the letter has written it
            window.written(self.placed[end])
        else:
            window.touch(keys)
            self.changed.add(end)

    def drop(self) -> None:
        """The letter failed."""
        for end in self._ends():
            window = self.open.live.get(end)
            if isinstance(window, ArrayWindow):
                window.arrays.forget_unknown()
        self.taken, self.fresh, self.copied, self.copying = [], {}, 0, False
        self.given, self.placed, self.opening = [], {}, {}
        self.blocks, self.pairs, self.folding = [], 0, False
        self.folded, self.folded_times, self.folded_rows = {}, {}, Counter()
        if self.open.blocks is not None:
            self.open.blocks.drop()
        if self.early is not None:
            self.early.drop()

    def resume(self, aside: Any) -> None:
        """Resume the letter. Its keys are numbered anew, and the copies are made again, because the windows may have changed meanwhile."""
        super().resume(aside)
        if self.folding:
            blocks = self.blocks
            self.taken, self.blocks, self.pairs, self.copying, self.folding = [], [], 0, False, False
            for block in blocks:
                self._take_block(block)
        else:
            self.copying = self.copying or not all(map(self._fits, self.taken))

    def seal(self) -> None:
        """Write the changed blocks to the table."""
        blocks = self.open.blocks
        if blocks is None:
            return
        for end in sorted(self.changed):
            window = self.open.live[end]
            found = window.to_write(end, blocks.encoded)
            if found is None:
                assert isinstance(window, ArrayWindow)
                window = window.in_lists()
                self.open.put(end, window)
                found = window.to_write(end, blocks.encoded)
            blocks.write(end, {number: one.data for number, one in found.items()})
            window.written(found)
        blocks.complete()
        written, self.changed = self.changed, set[int]()
        blocks.weigh(written)

    # ------------------------------------------------------------------------------------------------------------ closing

    def first_end(self) -> int | None:
        """When the first open window ends."""
        return self.open.ends[0] if self.open.ends else None

    def changed_since(self, room: int) -> tuple[ClosedWindows, array[int]]:
        """What has changed since the last early results, as results that close no window; and the greatest time of the rows of each."""
        found, times = ClosedWindows([], [], [], []), array("q")
        early = self.early
        if early is None:
            return found, times
        for end, keys, latest, states in early.give(room):
            self._results(found, end, keys, states)
            times.extend(latest)
        return found._replace(more=not early.all_given()), times

    def _results(self, found: ClosedWindows, end: int, keys: list[bytes], states: SomeStates) -> None:
        """Append results of a window."""
        found.starts.extend([end - self.spans.size] * len(keys))
        found.ends.extend([end] * len(keys))
        found.keys.extend(keys)
        found.parts.append(states)

    def awaits(self, closed: int | None) -> bool:
        """Whether rows of this letter belong to a window that is due. They count once the letter is complete: the next step closes it."""
        return any(closed is None or end <= closed for end in self._ends())

    def close(self, closed: int | None, room: int) -> ClosedWindows:
        """Take out at most `room` results of windows that end no later than `closed` (None: any), ordered by end, then by key."""
        ends = due(self.open.ends, closed)
        found = ClosedWindows([], [], [], [])
        for end in ends:
            window = self.open.get(end)
            assert window is not None, "a window that closes is open"
            keys, states = window.results(window.out, window.out + room)
            out = window.out + len(keys)
            self.given.append(GivenOut(end, out, keys[-1] if keys else b"", out == window.count))
            self._results(found, end, keys, states)
            room -= len(keys)
            if room <= 0:
                break
        return found._replace(more=is_more(self.given, ends))
