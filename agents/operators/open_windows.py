"""The open windows of one step and task: keys with their states, by the end of the window; and how they are stored.

All of them are kept here, decoded. The table holds blocks of 64 keys (`core.windows.blocks`), each in a slot (`core.windows.slots`); each
commit writes the blocks that have changed. Rows that the running letter has taken wait in `taken`, and join the windows when the letter is
complete: numbers are added then; everything else was added to copies before. So a failed letter leaves no trace.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from ...core.windows.blocks import BLOCK_KEYS
from ...core.windows.slots import Slots
from ...core.windows.spans import Assigned, Spans, assign_ends, due
from ..job.aggregates import AggregatePlan
from ..records.columns import pick
from ..records.selecting import all_mappings

CLOSING = "closing"
"""The row that holds the progress of a closing that takes several steps: end of the window and last key."""

States = dict[bytes, list[Any]]


class TooLate(NamedTuple):
    """The positions of rows that no window took, and how many other rows are missing from some of their windows."""

    late: list[int]
    partly: int = 0


class ClosedWindows(NamedTuple):
    """What one step closes: parallel columns in the order of the results. `more`: another step is needed."""

    starts: list[int]
    ends: list[int]
    keys: list[Any]
    states: list[list[Any]]
    more: bool


class OpenCounts(NamedTuple):
    """What is open: the number of windows, the number of keys in them, and the earliest end."""

    windows: int
    keys: int
    oldest_ms: int | None


class WindowRows(NamedTuple):
    """Rows of the running letter for one window. `columns`: their numbers, if adding them cannot fail."""

    end: int
    keys: list[bytes]
    times: list[int]
    values: list[Any]
    columns: list[Any] | None


class GivenOut(NamedTuple):
    """The results of one window that the running letter has emitted."""

    end: int
    out: int
    """The number of results emitted so far, in the order of the window's keys."""
    last: bytes
    whole: bool


class StoredWindow(Protocol):
    """What closing needs to know of a window: where it is stored, and how many of its results were emitted by earlier letters."""

    slots: list[int]
    out: int


W = TypeVar("W", bound=StoredWindow)


def write_given(given: Iterable[GivenOut], windows: Mapping[int, StoredWindow], table: Any, slots: Slots) -> None:
    """Write to the table what the letter has emitted: closed windows are deleted, and of another one how far it is closed."""
    for one in given:
        if not one.whole:
            table.update({CLOSING: {"end": one.end, "key": one.last}})
            continue
        window = windows[one.end]
        table.delete_many(window.slots)
        slots.give(window.slots)
        if window.out:
            table.delete_many([CLOSING])


def forget_given(
    given: Iterable[GivenOut], windows: MutableMapping[int, W], ends: list[int], changed: set[int]
) -> None:
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


def stored_blocks(table: Any) -> tuple[list[tuple[int, int, list[bytes], list[Any]]], Any]:
    """The stored blocks in the order of their windows and numbers: end, slot, keys and states; and the progress of a closing, or None."""
    rows: dict[Any, Any] = dict(table.range())
    closing = rows.pop(CLOSING, None)
    blocks = sorted((*value[:2], slot) for slot, value in rows.items() if isinstance(slot, int))
    return [(end, slot, *rows[slot][2:]) for end, _, slot in blocks], closing


class OpenWindow:
    """One window: states by key, and the keys in order of arrival, which determines their blocks."""

    def __init__(self) -> None:
        self.states: States = {}
        self.keys: list[bytes] = []
        self.places: dict[bytes, int] = {}
        self.plain = True
        """Whether columns of numbers can be added to its states."""
        self.dirty: set[int] = set()
        """The blocks that have changed since they were written."""
        self.slots: list[int] = []
        """The slots of the blocks that the table has, by the number of the block."""
        self.out = 0
        """The number of results already emitted, if closing takes several steps."""
        self._queue: list[bytes] | None = None

    def touch(self, keys: Iterable[bytes]) -> None:
        """Record that these keys have new states."""
        distinct = dict.fromkeys(keys)
        places = self.places
        new = [key for key in distinct if key not in places]
        if new:
            places.update(zip(new, range(len(self.keys), len(self.keys) + len(new)), strict=True))
            self.keys += new
            self._queue = None
        self.dirty.update({places[key] // BLOCK_KEYS for key in distinct})

    def queue(self) -> list[bytes]:
        """The keys in the order of their results."""
        if self._queue is None:
            self._queue = sorted(self.keys)
        return self._queue

    def block(self, number: int) -> list[Any]:
        """A block in its stored form."""
        keys = self.keys[number * BLOCK_KEYS : (number + 1) * BLOCK_KEYS]
        return [keys, [self.states[key] for key in keys]]

    def blocks_with(self, fresh: States) -> dict[int, list[Any]]:
        """The blocks that these states change, in their stored form."""
        new = [key for key in fresh if key not in self.places]
        count = len(self.keys)
        numbers = {self.places[key] // BLOCK_KEYS for key in fresh if key in self.places}
        numbers.update(place // BLOCK_KEYS for place in range(count, count + len(new)))
        found: dict[int, list[Any]] = {}
        for number in numbers:
            start, stop = number * BLOCK_KEYS, (number + 1) * BLOCK_KEYS
            keys = self.keys[start:stop] + new[max(start - count, 0) : max(stop - count, 0)]
            found[number] = [keys, [fresh[key] if key in fresh else self.states[key] for key in keys]]
        return found


class Changed:
    """What has changed since the last early results: the greatest time of the rows, by end of the window and key."""

    def __init__(self) -> None:
        self.times: dict[int, dict[bytes, int]] = {}
        self.rows = 0
        """The number of rows since then."""
        self.given: list[tuple[int, list[bytes]]] = []
        """The windows and keys for which the running letter has emitted early results."""

    def add(self, end: int, keys: list[bytes], times: list[int]) -> None:
        """Record rows of a complete letter."""
        keep_greatest(self.times.setdefault(end, {}), keys, times)
        self.rows += len(keys)

    def give(self, room: int) -> list[tuple[int, list[bytes]]]:
        """Take at most `room` keys, with their windows, in the order of results."""
        for end in sorted(self.times):
            keys = sorted(self.times[end])[:room]
            self.given.append((end, keys))
            room -= len(keys)
            if room <= 0:
                break
        return self.given

    def complete(self) -> None:
        """The letter is complete: what it has emitted no longer counts as changed."""
        for end, keys in self.given:
            known = self.times.get(end, {})
            for key in keys:
                known.pop(key, None)
            if not known:
                self.times.pop(end, None)
        self.given = []


def keep_greatest(known: dict[bytes, int], keys: list[bytes], times: list[int], latest: int | None = None) -> None:
    """Raise the time of each key to the greatest of its rows. `latest`: no known time is greater.

    >>> keep_greatest(known := {b"a": 5}, [b"a", b"b", b"b"], [4, 9, 7]); known
    {b'a': 5, b'b': 9}
    """
    ascending = times == sorted(times)
    if ascending and latest is not None and times[0] >= latest:
        known.update(zip(keys, times, strict=True))
        return
    rows = zip(times, keys, strict=True)
    greatest = {key: time for time, key in (rows if ascending else sorted(rows))}
    known.update((key, time) for key, time in greatest.items() if time > known.get(key, time - 1))


class Tally:
    """The number of rows of each key in each window, and the greatest of their times: a partial state carries both."""

    def __init__(self) -> None:
        self.rows: dict[int, Counter[bytes]] = {}
        self.times: dict[int, dict[bytes, int]] = {}
        self._latest: dict[int, int] = {}

    def add(self, part: WindowRows) -> None:
        """Count rows of a complete letter. Those of one partition usually come in the order of their times."""
        self.rows.setdefault(part.end, Counter()).update(part.keys)
        latest = self._latest.get(part.end, part.times[0])
        keep_greatest(self.times.setdefault(part.end, {}), part.keys, part.times, latest)
        self._latest[part.end] = max(latest, max(part.times))


class OpenWindows:
    """The open windows of a fixed length. `careful`: each letter writes its changes to the table, so that a failure there belongs to one of
    its records."""

    def __init__(
        self,
        spans: Spans,
        plan: AggregatePlan,
        table: Any,
        *,
        early: bool = False,
        partial: bool = False,
        tally: Tally | None = None,
    ) -> None:
        """`partial`: takes partial states instead of rows. Without a table, nothing is stored."""
        self.spans = spans
        self.plan = plan
        self.table = table
        self.careful = False
        self.open: dict[int, OpenWindow] = {}
        self.ends: list[int] = []
        """Of the open windows, sorted: a letter that closes nothing looks at the first one only."""
        self.changed: set[int] = set()
        """Windows with blocks that the next commit writes."""
        self.taken: list[WindowRows] = []
        self.fresh: dict[int, States] = {}
        """Copies of states, with the rows that the letter has taken."""
        self.copied = 0
        """How many entries of `taken` are in the copies."""
        self.copying = False
        """Taken rows go into copies, because adding them may fail, or the states may not be numbers."""
        self.given: list[GivenOut] = []
        self.slots = Slots()
        self.placed: dict[int, list[int]] = {}
        """By window, the slots of the blocks that the letter writes; only if it is careful."""
        self.early = Changed() if early else None
        self.partial = partial
        self.tally = tally
        if table is not None:
            self._load()

    def _load(self) -> None:
        """Load the open windows from the table."""
        blocks, closing = stored_blocks(self.table)
        self.slots = Slots(slot for _, slot, *_ in blocks)
        for end, slot, keys, states in blocks:
            window = self._opened(end)
            window.states.update(zip(keys, states, strict=True))
            window.touch(keys)
            window.slots.append(slot)
        for window in self.open.values():
            window.dirty.clear()
            window.plain = self.plan.numeric and self.plan.all_plain(window.states.values())
        if closing is not None and closing["end"] in self.open:
            window = self.open[closing["end"]]
            window.out = bisect_right(window.queue(), closing["key"])

    def counts(self) -> OpenCounts:
        """Count what is open now."""
        keys = sum(len(window.keys) for window in self.open.values())
        return OpenCounts(len(self.open), keys, self.first_end())

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def take(self, keys: list[bytes], times: list[int], values: list[Any], closed: int) -> TooLate:
        """Add rows to the open windows: those that end after `closed`. Raises what user functions raise."""
        if self.partial:
            found = assign_ends([value[0] for value in values], closed)
            values = [value[2:] for value in values]
        else:
            found = self.spans.assign_open(times, closed)
        if found.open:
            self._take(found, keys, times, values)
        return TooLate(found.late, found.partly)

    def _take(self, found: Assigned, keys: list[bytes], times: list[int], values: list[Any]) -> None:
        columns = None if found.late or self.copying else self.plan.columns(values, partial=self.partial)
        for end, places in found.open.items():
            if places is None:
                part = WindowRows(end, keys, times, values, columns)
            else:
                picked = None if columns is None else [c if c is None else pick(c, places) for c in columns]
                part = WindowRows(end, pick(keys, places), pick(times, places), pick(values, places), picked)
            self.taken.append(part)
        self.copying = self.copying or columns is None or self.careful or not self._all_plain(found.open)
        if self.copying:
            self._copy()

    def _all_plain(self, ends: Collection[int]) -> bool:
        return all(end not in self.open or self.open[end].plain for end in ends)

    def _copy(self) -> None:
        """Add taken rows that are not yet in the copies to them."""
        for part in self.taken[self.copied :]:
            states = self._copies(part.end, part.keys)
            if part.columns is not None:
                self.plan.add_columns(part.keys, part.columns, states, partial=self.partial)
            elif self.partial:
                self.plan.merge(part.keys, part.values, states)
            else:
                self.plan.add(part.keys, part.values, states, items=all_mappings(part.values))
        self.copied = len(self.taken)

    def _copies(self, end: int, keys: list[bytes]) -> States:
        found = self.fresh.setdefault(end, {})
        window = self.open.get(end)
        states: Mapping[bytes, list[Any]] = {} if window is None else window.states
        start, copy = self.plan.start, self.plan.copy
        for key in dict.fromkeys(keys):
            if key not in found:
                known = states.get(key)
                found[key] = start() if known is None else copy(known)
        return found

    # ------------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        """Get ready to complete: a commit may have changed the windows since the letter took its rows. Raises as `take` does."""
        if not self.copying and self.taken:
            self.copying = not self._all_plain({part.end for part in self.taken})
        if self.copying:
            self._copy()
        if self.careful:
            for end, fresh in self.fresh.items():
                window = self.open.get(end, OpenWindow())
                held = self.placed[end] = list(window.slots)
                self.table.update(self.slots.place(end, held, window.blocks_with(fresh)))
        write_given(self.given, self.open, self.table, self.slots)

    def complete(self) -> None:
        """The letter is complete."""
        if self.copying:
            for end, fresh in self.fresh.items():
                window = self._opened(end)
                window.plain = window.plain and self.plan.numeric and self.plan.all_plain(fresh.values())
                window.states.update(fresh)
                self._touched(end, window, fresh)
        else:
            for part in self.taken:
                window = self._opened(part.end)
                self.plan.add_columns(part.keys, part.columns or [], window.states, partial=self.partial)
                self._touched(part.end, window, part.keys)
        if self.tally is not None:
            for part in self.taken:
                self.tally.add(part)
        if self.early is not None:
            for part in self.taken:
                self.early.add(part.end, part.keys, part.times)
            self.early.complete()
        forget_given(self.given, self.open, self.ends, self.changed)
        if self.early is not None:
            for one in self.given:
                self.early.times.pop(one.end, None)
        self.slots.complete()
        self.drop()

    def _opened(self, end: int) -> OpenWindow:
        window = self.open.get(end)
        if window is None:
            window = self.open[end] = OpenWindow()
            insort(self.ends, end)
        return window

    def _touched(self, end: int, window: OpenWindow, keys: Iterable[bytes]) -> None:
        if self.table is None:  # nothing is stored, so nobody needs to know which block holds a key
            return
        window.touch(keys)
        if self.careful:  # the letter has written it
            window.dirty.clear()
            window.slots = self.placed[end]
        else:
            self.changed.add(end)

    def drop(self) -> None:
        """The letter failed."""
        self.taken, self.fresh, self.copied, self.copying = [], {}, 0, False
        self.given, self.placed = [], {}
        self.slots.drop()
        if self.early is not None:
            self.early.given = []

    def suspend(self) -> Any:
        """Set aside what the letter has done. The copies are made again, because the windows may change meanwhile."""
        aside = self.taken, self.copying, self.given, [] if self.early is None else self.early.given
        self.drop()
        return aside

    def resume(self, aside: Any) -> None:
        """Resume the letter."""
        self.taken, self.copying, self.given, early = aside
        if self.early is not None:
            self.early.given = early

    def seal(self) -> None:
        """Write the changed blocks to the table."""
        for end in sorted(self.changed):
            window = self.open[end]
            blocks = {number: window.block(number) for number in window.dirty}
            self.table.update(self.slots.place(end, window.slots, blocks))
            window.dirty.clear()
        self.slots.complete()
        self.changed.clear()

    # ------------------------------------------------------------------------------------------------------------ closing

    def first_end(self) -> int | None:
        """When the first open window ends."""
        return self.ends[0] if self.ends else None

    def changed_since(self, room: int) -> tuple[ClosedWindows, list[int]]:
        """What has changed since the last early results, as results that close no window; and the greatest time of the rows of each."""
        found, times = ClosedWindows([], [], [], [], False), list[int]()
        early = self.early
        if early is None:
            return found, times
        for end, keys in early.give(room):
            self._results(found, end, keys)
            times.extend(map(early.times[end].__getitem__, keys))
        if len(times) == sum(map(len, early.times.values())):
            early.rows = 0
            return found, times
        return found._replace(more=True), times

    def _results(self, found: ClosedWindows, end: int, keys: list[bytes]) -> None:
        """Append the results of these keys of a window."""
        found.starts.extend([end - self.spans.size] * len(keys))
        found.ends.extend([end] * len(keys))
        found.keys.extend(keys)
        found.states.extend(map(self.open[end].states.__getitem__, keys))

    def awaits(self, closed: int | None) -> bool:
        """Whether rows of this letter belong to a window that is due. They count once the letter is complete: the next step closes it."""
        return any(closed is None or part.end <= closed for part in self.taken)

    def close(self, closed: int | None, room: int) -> ClosedWindows:
        """Take out at most `room` results of windows that end no later than `closed` (None: any), ordered by end, then by key."""
        ends = due(self.ends, closed)
        found = ClosedWindows([], [], [], [], False)
        for end in ends:
            window = self.open[end]
            keys = window.queue()[window.out : window.out + room]
            out = window.out + len(keys)
            self.given.append(GivenOut(end, out, keys[-1] if keys else b"", out == len(window.keys)))
            self._results(found, end, keys)
            room -= len(keys)
            if room <= 0:
                break
        return found._replace(more=is_more(self.given, ends))
