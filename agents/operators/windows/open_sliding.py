"""The sliding windows of one step and task: rows that wait for their results, and rows that later windows may still hold.

A row is kept as the states that it makes alone, so what is in a window is put together from states, as two sessions are
(`core.windows.sliding` says how, and what a window holds). Results come in the order of time: a heap has the rows that wait, and each key
the rows whose results are out (`KeyRows`). All of them are in memory and count against `state.memory`, but cannot be given up.

The table holds rows in blocks, in the order of their arrival, by slices of time: `[end of the slice, number, keys with times, states]`
(`block_store`, `row_blocks`). A slice goes as a whole when no window can hold a row of it any more. How far results are out, the row
`closing` says; what rows make together is not stored, and follows from them.

What the running letter takes and gives out counts when it is complete, so a failed letter leaves no trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from ....core.progress.frames import NO_TIME
from ....core.windows.sliding import KeyRows, NextRows, closed_times, end_of, passed, slice_end, slice_ms
from ...job.steps.keyed import WindowStep
from ...job.types.aggregates import JoinStates
from ...records.columns.selecting import all_mappings
from ...records.kafka.columns import pick
from ..base.block_store import BlockStore
from ..base.letter import LetterPart
from ..base.stateless import UserCodeError, blaming
from .closed_windows import ClosedWindows
from .open_windows import CLOSING, OpenCounts, TooLate
from .row_blocks import RowBlock, RowBlocks
from .window_states import DECODED

ROW_BYTES = 400
"""What the objects of a row with small states take in memory."""
ROW_ROOM = 16
"""What a stored row takes beside its key and its states."""
STEP_SLICES = 100
"""The most slices that one step deletes."""

RowStates = list[Any]
WaitingRow = tuple[int, bytes, int, RowStates]
"""A row by its time, its key and its number among all rows of the task: this is the order of results."""


class RefusedRow(NamedTuple):
    """A row that has no result, because its states could not be put together with others."""

    time: int
    key: bytes
    states: RowStates
    error: UserCodeError


class Arrived(NamedTuple):
    """Rows: columns, in the order of arrival."""

    keys: list[bytes]
    times: list[int]
    states: list[RowStates]
    sizes: list[int]


class SliceOfRows:
    """The rows of one slice of time, as they are stored."""

    def __init__(self) -> None:
        self.blocks = RowBlocks()
        self.rows = 0
        self.size = 0
        """The bytes of their states, if these may be large."""

    @property
    def weight(self) -> int:
        """The bytes that its rows take in memory."""
        return self.rows * ROW_BYTES + self.size * DECODED


class OpenSliding(LetterPart):
    """The rows of sliding windows. `careful`: each letter writes its changes to the table."""

    of_letter = ("taken", "given", "fresh", "gone", "over")

    def __init__(self, step: WindowStep, table: Any, *, floored: bool) -> None:
        """`floored`: it is known up to which time windows are closed."""
        self.step = step
        self.size = step.window.size_ms
        self.plan = step.plan
        self.table = table
        self.careful = False
        self.early = None
        """A window has one result: the final one."""
        self._join: JoinStates = self._joined if self.plan.has_copies else self.plan.joined
        self.slice_ms = slice_ms(self.size)
        self.slices: dict[int, SliceOfRows] = {}
        """By the end of the slice."""
        self.waiting: list[WaitingRow] = []
        """A heap."""
        self.out: dict[bytes, KeyRows[RowStates]] = {}
        """The rows whose results are out; the key whose last row is the oldest comes first."""
        self.number = 0
        """How many rows there were."""
        self.weight = 0
        self.changed: set[int] = set()
        """Slices with blocks that the next commit writes."""
        self.anew: set[int] = set()
        """Slices whose stored blocks count no more."""
        self.outdated = False
        """What the table says of how far results are out counts no more."""
        self.by_time = True
        """It was time that closed windows last, not an end."""
        self.taken: list[Arrived] = []
        self.given: list[WaitingRow] = []
        """Rows whose results the letter has emitted."""
        self.fresh: dict[bytes, NextRows[RowStates]] = {}
        """What that adds to the rows of each key."""
        self.gone: list[int] = []
        """The slices that the letter drops."""
        self.over = NO_TIME
        """No window holds a row of this time, or of one before."""
        self.refused: list[RefusedRow] = []
        """What the last step has left out."""
        self.blocks: BlockStore[int] = BlockStore(table, None)
        self._load(floored)
        self.blocks.hold(self.weight)

    def _load(self, floored: bool) -> None:
        """Load what the table holds."""
        stored: list[tuple[int, int, list[Any], list[RowStates]]] = []
        self.blocks.load(lambda end, number, block: stored.append((end, number, block[2], block[3])))
        for end, number, keys, entries in sorted(stored, key=itemgetter(0, 1)):
            names, times = [key for key, _ in keys], [time for _, time in keys]
            rows = Arrived(names, times, entries, self._sizes(names, entries))
            one = self._slice(end)
            one.blocks.loaded(number, RowBlock([*zip(names, times, strict=True)], entries, sum(rows.sizes)))
            self._keep(one, rows)
        closing = self.table.get(CLOSING)
        if closing is not None:
            while self.waiting and (end_of(self.waiting[0][0]), self.waiting[0][1]) <= (closing["end"], closing["key"]):
                self.given.append(heappop(self.waiting))
            if closing["by_time"] and not floored:
                self._begin_again()
            else:
                self._give_again()
            self.given, self.fresh = [], {}

    def _give_again(self) -> None:
        """The results of these rows are out."""
        for (time, key), rows in groupby(self.given, itemgetter(0, 1)):
            with contextlib.suppress(UserCodeError):  # they were left out
                self._put(time, key, [*rows])
        self._keep_out()

    def _begin_again(self) -> None:
        """Records are read again, as if no window had been closed: only the rows count whose results are not out."""
        waiting = sorted(self.waiting, key=itemgetter(2))
        self.changed, self.anew, self.outdated = {*self.slices}, {*self.slices}, True
        self.slices = {end: SliceOfRows() for end in self.slices}
        self.waiting, self.weight = [], 0
        if waiting:
            times, keys, _, states = map(list, zip(*waiting, strict=True))
            self._take_over([Arrived(keys, times, states, self._sizes(keys, states))])

    def counts(self) -> OpenCounts:
        """Count the results that are still to come, the rows that are kept, and when the first of the windows ends."""
        return OpenCounts(len(self.waiting), sum(one.rows for one in self.slices.values()), self.first_end())

    def _sizes(self, keys: Sequence[bytes], states: list[RowStates]) -> list[int]:
        """What rows take in the table. Raises for a state that it could not store."""
        return [len(key) + len(data) + ROW_ROOM for key, data in zip(keys, self.blocks.encoded(states), strict=True)]

    def _slice(self, end: int) -> SliceOfRows:
        return self.slices.setdefault(end, SliceOfRows())

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def take(self, keys: list[bytes], times: list[int], values: list[Any], closed: int) -> TooLate:
        """Take rows. A row is late if its own window is closed: it is in no later one either."""
        upto = closed_times(closed)
        late = [place for place, time in enumerate(times) if time <= upto]
        if late:
            kept = sorted(set(range(len(keys))).difference(late))
            keys, times, values = pick(keys, kept), pick(times, kept), pick(values, kept)
        if keys:
            made = {place: self.plan.start() for place in range(len(keys))}
            self.plan.add(made, values, made, items=all_mappings(values))
            states = list(made.values())
            self.taken.append(Arrived(keys, times, states, self._sizes(keys, states)))
        return TooLate(late)

    def _blocks(self, parts: Iterable[Arrived]) -> dict[int, tuple[Arrived, dict[int, RowBlock]]]:
        """By slice, which of these rows it gets, and the blocks that they change."""
        found: dict[int, Arrived] = {}
        for part in parts:
            for key, time, states, size in zip(*part, strict=True):
                end = slice_end(time, self.slice_ms)
                one = found.get(end)
                if one is None:
                    one = found[end] = Arrived([], [], [], [])
                one.keys.append(key)
                one.times.append(time)
                one.states.append(states)
                one.sizes.append(size)
        return {end: (rows, self._with(end, rows)) for end, rows in found.items()}

    def _with(self, end: int, rows: Arrived) -> dict[int, RowBlock]:
        before = self.slices[end].blocks if end in self.slices else RowBlocks()
        return before.plus([*zip(rows.keys, rows.times, strict=True)], rows.states, rows.sizes)

    def _keep(self, one: SliceOfRows, rows: Arrived) -> None:
        """Rows of a slice wait from now on."""
        self.weight -= one.weight
        one.rows += len(rows.keys)
        one.size += 0 if self.plan.numeric else sum(rows.sizes)
        self.weight += one.weight
        for key, time, states in zip(rows.keys, rows.times, rows.states, strict=True):
            heappush(self.waiting, (time, key, self.number, states))
            self.number += 1

    def _take_over(self, parts: Iterable[Arrived]) -> None:
        """Keep rows, which the next commit writes, if their letter has not written them."""
        for end, (rows, blocks) in self._blocks(parts).items():
            one = self._slice(end)
            self._keep(one, rows)
            one.blocks.take(blocks)
            if not self.careful or end in self.anew:
                one.blocks.unwritten.update(blocks)
                self.changed.add(end)

    # ------------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        """Get ready to complete: write what cannot wait for the commit."""
        if self.careful:
            for end, (_, blocks) in self._blocks(self.taken).items():
                if end not in self.anew:  # the next commit writes all of it
                    self._write(end, blocks)
        for end in self.gone:
            self.blocks.remove(end)
        if self.gone and len(self.gone) == len(self.slices):
            self.table.delete_many([CLOSING])
        elif self.given:
            time, key, *_ = self.given[-1]
            self.table.update({CLOSING: {"end": end_of(time), "key": key, "by_time": self.by_time}})

    def _write(self, end: int, blocks: dict[int, RowBlock]) -> None:
        rows = [[end, number, block.keys, block.entries] for number, block in blocks.items()]
        data = dict(zip(blocks, self.blocks.encoded(rows), strict=True))
        self.blocks.write(end, data, whole=end in self.anew)

    def complete(self) -> None:
        """The letter is complete."""
        self._take_over(self.taken)
        self._keep_out()
        for end in self.gone:
            self.weight -= self.slices.pop(end).weight
            self.changed.discard(end)
        self.outdated = self.outdated and not self.given
        self.given = []  # before `drop`, which gives them back
        self.blocks.complete()
        self.drop()
        self.blocks.hold(self.weight)

    def _keep_out(self) -> None:
        """Keep the rows whose results are out, and forget those that no window holds any more."""
        out = self.out
        for key, one in self.fresh.items():
            out.pop(key, None)
            rows = one.apply()
            if rows.any:
                out[key] = rows
        while out:
            key = next(iter(out))
            if out[key].last > self.over:
                break
            del out[key]

    def drop(self) -> None:
        """The letter failed."""
        self.taken, self.fresh, self.gone, self.over = [], {}, [], NO_TIME
        self.blocks.drop()
        for row in self.given:
            heappush(self.waiting, row)
        self.given = []

    def resume(self, aside: Any) -> None:
        """Resume the letter: the rows whose results it has emitted wait no more."""
        super().resume(aside)
        if self.given:
            numbers = {number for _, _, number, _ in self.given}
            self.waiting = [row for row in self.waiting if row[2] not in numbers]
            heapify(self.waiting)

    def seal(self) -> None:
        """Write the changed blocks to the table."""
        for end in sorted(self.changed):
            blocks = self.slices[end].blocks
            self._write(end, blocks.unwritten)
            blocks.unwritten.clear()
        if self.outdated:
            self.table.delete_many([CLOSING])
            self.outdated = False
        if self.anew:
            self.slices = {end: one for end, one in self.slices.items() if one.rows}
        self.blocks.complete()
        self.changed.clear()
        self.anew.clear()

    # ------------------------------------------------------------------------------------------------------------ closing

    def first_end(self) -> int | None:
        """When the first of the windows ends that wait for their results."""
        return end_of(self.waiting[0][0]) if self.waiting else None

    def awaits(self, closed: int | None) -> bool:
        """Whether windows of rows of this letter are due. They wait once the letter is complete: the next step closes them."""
        return any(closed is None or end_of(time) <= closed for part in self.taken for time in part.times)

    def close(self, closed: int | None, room: int) -> ClosedWindows:
        """Take out the results of windows that end no later than `closed` (None: any), ordered by end, then by key. It stops after the
        window with which there are `room` results or more. With the last of them, what no later window holds is gone."""
        states: list[RowStates] = []
        found = ClosedWindows([], [], [], [states])
        self.by_time, self.refused = closed is not None, []
        waiting = self.waiting
        upto = None if closed is None else closed_times(closed)
        while waiting and (upto is None or waiting[0][0] <= upto):
            if len(found.keys) >= room:
                return found._replace(more=True)
            rows = self._next_window()
            time, key, *_ = rows[0]
            try:
                states += self._put(time, key, rows)
            except UserCodeError as error:
                self.refused += [RefusedRow(time, key, one, error) for *_, one in rows]
                continue
            end = end_of(time)
            found.starts.extend([end - self.size] * len(rows))
            found.ends.extend([end] * len(rows))
            found.keys.extend([key] * len(rows))
        return found._replace(more=self._forget(closed))

    def _next_window(self) -> list[WaitingRow]:
        """Take out the rows of the time and key that come first."""
        waiting = self.waiting
        rows = [heappop(waiting)]
        time, key, *_ = rows[0]
        while waiting and waiting[0][0] == time and waiting[0][1] == key:
            rows.append(heappop(waiting))
        self.given += rows
        return rows

    def _put(self, time: int, key: bytes, rows: Sequence[WaitingRow]) -> list[RowStates]:
        """Put rows of one window to those of their key. Returns what the window of each holds: it is the same, but for what is of the row
        itself."""
        fresh, plan = self.fresh, self.plan
        one = fresh.pop(key, None)
        if one is None:
            one = NextRows(self.out.get(key) or KeyRows[RowStates](), self.size, self._join)
        fresh[key] = one  # the key whose window came last comes last
        try:
            made = one.add(time, [row[3] for row in rows])
            found = [plan.copy(made) for _ in rows]
        except Exception:
            with blaming(self.step, lambda _: f" (key {key!r}, window that ends at {end_of(time)})"):
                raise
        for place in plan.of_last:
            for window, row in zip(found, rows, strict=True):
                window[place] = row[3][place]
        return found

    def _joined(self, earlier: Sequence[Any], later: Sequence[Any]) -> RowStates:
        """As the plan joins them, but it changes neither."""
        plan = self.plan
        return plan.joined(plan.copy(earlier), plan.copy(later))

    def _forget(self, closed: int | None) -> bool:
        """Drop the slices of which no window can hold a row any more, as many as a step may. Returns whether there are more."""
        self.over = max([*self.slices, NO_TIME]) if closed is None else passed(closed, self.size)
        ends = sorted(end for end in self.slices if closed is None or end <= self.over + 1)
        self.gone = ends[:STEP_SLICES]
        return len(ends) > STEP_SLICES
