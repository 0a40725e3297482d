"""The rows of a join of two streams that may still find partners, in one task; and how they are stored.

Their keys and times, by side and slice, are in `core.windows.joins`; here are their values and headers. The table holds them in blocks, in
the order of their arrival (`block_store`): `[side, end of the slice, number, keys, times, values, headers, matched]`. Only the last block
of a slice is written again when rows come. That rows of another block were in a pair is written beside it, as
`[side, end, number, matched]`; in the store, the number of this one is `~number`.

Values in memory count against `state.memory`. Where it does not suffice, whole slices are *packed*, the oldest first: their rows are in
the table only, and are read from there, some blocks at a time, when they are wanted. Rows that no commit has written yet cannot be packed.

What the running letter takes, pairs and drops counts when the letter is complete, so a failed letter leaves no trace. Nothing that is
written with the commit can be refused there: `take` refuses rows that the task log would not accept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import add, itemgetter
from typing import Any, NamedTuple

from ....core.errors import DataError
from ....core.windows.blocks import row_cuts
from ....core.windows.joins import SIDES, Distance, KeptSide, Pairs, Unpaired, expiring
from ....core.windows.matching import Matching
from ...records.columns.matching import matching
from ...records.kafka.columns import pick
from ...records.values.record import Headers
from ..base.block_store import BlockStore
from ..base.letter import LetterPart

ROW_PARTS, FLAG_PARTS = 8, 4
"""The parts of a stored block, and of the flags beside one."""
STEP_BLOCKS = 1_000
"""The maximum number of blocks that one step deletes."""
BLOCK_ROOM = 1_024
"""The maximum number of bytes that the other parts of a block take."""
ROW_BYTES = 24
"""What a stored row takes beside its key, its value and its headers."""

RowPlace = tuple[int, int, int]
"""Where a row is: side, end of the slice, place in it."""


class Arrival(NamedTuple):
    """Rows of the running letter: columns, in the order of arrival. Values are encoded."""

    side: int
    keys: list[bytes]
    times: list[int]
    values: list[bytes]
    headers: list[Any] | None
    matched: bytearray


class Partners(NamedTuple):
    """Partners of arriving rows, in the order of the pairs: the indexes of the arriving rows, and the partners in columns."""

    arrived: list[int]
    times: list[int]
    values: list[bytes]
    headers: list[Any]

    def part(self, of: slice) -> Partners:
        """Some of the pairs."""
        return Partners(self.arrived[of], self.times[of], self.values[of], self.headers[of])


class JoinedRow(NamedTuple):
    """A row that is kept: its key, its value, its headers."""

    key: bytes
    value: bytes
    headers: Any


class SideCounts(NamedTuple):
    """What is kept of one side: rows, their bytes, the rows of which memory holds the values, and the time of the oldest."""

    rows: int
    size: int
    in_memory: int
    oldest_ms: int | None


class SliceRows:
    """The values of one slice, by place, and where they are stored."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self.count = 0
        """The number of rows."""
        self.packed = 0
        """So many rows at the beginning are in the table only."""
        self.values: list[bytes] = []
        """Of the rows that are not packed."""
        self.headers: dict[int, Any] = {}
        """By place, if a row has any and is not packed."""
        self.total = 0
        """The bytes of all rows."""
        self.held = 0
        """The bytes of the rows that are not packed."""
        self.starts: list[int] = []
        """The place of the first row of each block."""
        self.size = 0
        """The bytes of the rows in the last block."""
        self.changed: set[int] = set()
        """Blocks that the next commit writes."""
        self.marked: set[int] = set()
        """Blocks whose flags the next commit writes, unless it writes the blocks."""

    def add(self, keys: Sequence[bytes], values: Sequence[bytes], headers: Sequence[Any] | None) -> None:
        """Add rows, in the order of their arrival."""
        first = self.count
        sizes = sizes_of(keys, values)
        if headers is not None:
            for index, one in enumerate(headers):
                if one:
                    self.headers[first + index] = one
                    sizes[index] += _size_of(one)
        if self.packed == first:  # a packed block cannot be written again: another one begins
            self.starts.append(first)
            self.size = 0
        held = first - self.starts[-1]
        begin = 0
        for number, stop in enumerate(row_cuts(sizes, held, self.size)):
            if number:
                self.starts.append(first + begin)
                self.size = 0
            if stop > begin:
                self.changed.add(len(self.starts) - 1)
                self.size += sum(sizes[begin:stop])
            begin = stop
        self.values += values
        self._grow(len(keys), sum(sizes))

    def load(self, values: list[bytes], headers: list[Any], size: int) -> None:
        """Take over the next block of the table."""
        self.starts.append(self.count)
        self.headers.update({self.count + index: found for index, found in headers})
        self.values += values
        self.size = size
        self._grow(len(values), size)

    def _grow(self, rows: int, size: int) -> None:
        self.count += rows
        self.total += size
        self.held += size

    def pack(self) -> None:
        """Forget what the table has."""
        self.values, self.headers = [], {}
        self.packed, self.held = self.count, 0

    @property
    def weight(self) -> int:
        """The bytes that the rows take in memory."""
        return self.loose + self._matching.packed_bytes * self.count

    @property
    def loose(self) -> int:
        """The bytes that packing gives back."""
        return self.held + self._matching.row_bytes * len(self.values)

    def block_of(self, place: int) -> int:
        """The number of the block of a row."""
        return bisect_right(self.starts, place) - 1

    def mark(self, places: Iterable[int]) -> None:
        """The flags of the rows at these places have changed."""
        self.marked.update(map(self.block_of, places))


class WaitingRows(LetterPart):
    """The rows of both sides."""

    of_letter = ("taken", "done", "gone")

    def __init__(self, distance: Distance, preserved: frozenset[int], table: Any) -> None:
        self.distance = distance
        self.preserved = preserved
        self.table = table
        self.matching = matching()
        self.sides = tuple(KeptSide(distance.slice_ms, self.matching) for _ in SIDES)
        self.rows: dict[tuple[int, int], SliceRows] = {}
        """By side and slice."""
        self.changed: set[tuple[int, int]] = set()
        """Slices of which the next commit writes something."""
        self.taken: list[Arrival] = []
        self.done: dict[tuple[int, int], list[int]] = {}
        """By side and slice, the places of rows that the running letter has paired or emitted."""
        self.gone: list[tuple[int, int]] = []
        """The slices that the running letter drops."""
        self.reading = False
        """Rows are being read: what is in memory must stay."""
        self.blocks: BlockStore[tuple[int, int]] = BlockStore(table, self, _place)
        self._load()

    def _load(self) -> None:
        """Load what the table holds, some blocks at a time: packed, where memory does not suffice for all."""
        self.blocks.load()
        rows, flags = ([one for one in self.blocks.stored() if (one[1] < 0) is flagged] for flagged in (False, True))
        for at, (_, _, _, keys, times, values, headers, matched), _ in self.blocks.read(rows):
            self._slice(at).load(
                values, headers, sum(sizes_of(keys, values)) + sum(_size_of(found) for _, found in headers)
            )
            self.sides[at[0]].add(at[1], keys, times, matched)
            self.blocks.weigh((at,))
        for at, (_, _, number, found), _ in self.blocks.read(flags):
            matched = self.sides[at[0]].slices[at[1]].matched
            for place, flag in enumerate(found, self.rows[at].starts[number]):
                matched[place] |= flag

    def _slice(self, at: tuple[int, int]) -> SliceRows:
        return self.rows.setdefault(at, SliceRows(self.matching))

    def counts(self) -> tuple[SideCounts, SideCounts]:
        """What is kept, by side."""
        size, live = [0, 0], [0, 0]
        for (side, _), one in self.rows.items():
            size[side] += one.total
            live[side] += len(one.values)
        left, right = (
            SideCounts(kept.rows, size[side], live[side], kept.oldest()) for side, kept in enumerate(self.sides)
        )
        return left, right

    # ---------------------------------------------------------------------------------------------------------------- memory

    def weight_of(self, at: tuple[int, int]) -> int:
        """The bytes that a slice takes in memory."""
        return self.rows[at].weight if at in self.rows else 0

    def spare(self) -> list[tuple[int, int]]:
        """The slices that are written and not packed, the oldest first."""
        able = [at for at, one in self.rows.items() if one.values and not one.changed and not self.reading]
        return sorted(able, key=itemgetter(1))

    def pack(self, at: tuple[int, int]) -> None:
        """Keep the values of a slice in the table only."""
        self.rows[at].pack()
        self.sides[at[0]].slices[at[1]].pack()

    def _in_memory(self, side: int, end: int, place: int) -> JoinedRow | None:
        """A row, unless it is packed."""
        one = self.rows[side, end]
        at = place - one.packed
        if at < 0:
            return None
        return JoinedRow(self.sides[side].slices[end].keys[at], one.values[at], one.headers.get(place))

    def kept(self, places: Sequence[RowPlace]) -> list[JoinedRow]:
        """The rows at these places."""
        self.reading = True
        try:
            found = {at: row for at in places if (row := self._in_memory(*at)) is not None}
            if len(found) < len(set(places)):
                self._read([at for at in places if at not in found], found)
        finally:
            self.reading = False
        return [found[at] for at in places]

    def _read(self, places: Iterable[RowPlace], found: dict[RowPlace, JoinedRow]) -> None:
        """Read packed rows from the table."""
        wanted: dict[tuple[tuple[int, int], int], dict[RowPlace, int]] = {}
        for at in places:
            one = self.rows[at[:2]]
            number = one.block_of(at[2])
            wanted.setdefault((at[:2], number), {})[at] = at[2] - one.starts[number]
        for block, (_, _, _, keys, _, values, headers, _) in self.blocks.look(sorted(wanted)):
            named = dict(headers)
            for at, index in wanted[block].items():
                found[at] = JoinedRow(keys[index], values[index], named.get(index))

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def take(self, rows: Arrival) -> Partners:
        """Take rows of one side, and find their partners among the rows of the other."""
        most = self.table.most_bytes
        if most is not None and max(map(len, rows.values)) > most - BLOCK_ROOM:
            self._refuse_large(rows, most - BLOCK_ROOM)
        other, distance = 1 - rows.side, self.distance
        back, ahead = distance.back(rows.side), distance.ahead(rows.side)
        found = self.sides[other].pairs(rows.keys, rows.times, back, ahead)
        partners = self._kept(other, rows.keys, found)
        for index in partners.arrived:
            rows.matched[index] = 1
        if self.taken:
            partners = self._with_taken(rows, partners, back, ahead)
        self.taken.append(rows)
        return partners

    def _kept(self, side: int, keys: list[bytes], found: Pairs) -> Partners:
        """The kept rows of pairs. `keys`: of the arriving rows."""
        ends = set(found.slices)
        if any(self.rows[side, end].packed for end in ends):
            return self._from_table(side, keys, found)
        slices, rows = self.sides[side].slices, {end: self.rows[side, end] for end in ends}
        names, values = {end: slices[end].keys for end in ends}, {end: one.values for end, one in rows.items()}
        at_all = [*zip(found.slices, found.places, strict=True)]
        if [names[end][place] for end, place in at_all] != pick(keys, found.arrived):  # other keys with the same hash
            return self._from_table(side, keys, found)
        if side in self.preserved:
            for end, place in at_all:
                self.done.setdefault((side, end), []).append(place)
        headers: list[Any] = [None] * len(at_all)
        if any(one.headers for one in rows.values()):
            headers = [rows[end].headers.get(place) for end, place in at_all]
        return Partners(found.arrived, found.times, [values[end][place] for end, place in at_all], headers)

    def _from_table(self, side: int, keys: list[bytes], found: Pairs) -> Partners:
        """The same where rows are packed, or have other keys than those of the pair, with the same hash."""
        at_all = [(side, *one) for one in zip(found.slices, found.places, strict=True)]
        partners = Partners([], [], [], [])
        for index, (_, end, place), time, row in zip(
            found.arrived, at_all, found.times, self.kept(at_all), strict=True
        ):
            if row.key != keys[index]:
                continue
            partners.arrived.append(index)
            partners.times.append(time)
            partners.values.append(row.value)
            partners.headers.append(row.headers)
            if side in self.preserved:
                self.done.setdefault((side, end), []).append(place)
        return partners

    def _with_taken(self, rows: Arrival, partners: Partners, back: int, ahead: int) -> Partners:
        """The partners, with those among the rows that the running letter took before: steps in front of the join may emit rows of both
        sides in one letter."""
        found = [(*one[:2], 0, *one[2:]) for one in zip(*partners, strict=True)]
        for number, part in enumerate(self.taken, 1):
            if part.side == rows.side:
                continue
            pairs = KeptSide.of(part.keys, part.times).pairs(rows.keys, rows.times, back, ahead)
            for index, place in zip(pairs.arrived, pairs.places, strict=True):
                rows.matched[index] = part.matched[place] = 1
                headers = None if part.headers is None else part.headers[place]
                found.append((index, part.times[place], number, part.values[place], headers))
        found.sort(key=lambda one: one[:3])
        columns: Any = ([one[column] for one in found] for column in (0, 1, 3, 4))
        return Partners(*columns)

    def _refuse_large(self, rows: Arrival, most: int) -> None:
        size = max(map(len, rows.values))
        raise DataError(
            f"a row takes {size} bytes, but the task log accepts only {most}",
            remedy="join smaller rows, or raise max.message.bytes of the task log and start again",
        )

    # ---------------------------------------------------------------------------------------------------------------- expiry

    def expire(self, bound: int | None, room: int) -> tuple[list[Unpaired], bool]:
        """The next rows to be emitted alone, at most `room`, and whether there is more to do. Without a bound, everything goes. Slices of
        which nothing is left to be emitted are dropped."""
        if self.taken:  # they are kept once the letter is complete: the next step looks at them
            return [], True
        found, more = expiring(self.sides, self.preserved, self.distance, bound, room)
        for row in found:
            self.done.setdefault((row.side, row.end), []).append(row.place)
        if more:
            return found, True
        blocks = 0
        for side in SIDES:
            for end in self.sides[side].passed(None if bound is None else bound - self.distance.ahead(side)):
                if blocks >= STEP_BLOCKS:
                    return found, True
                self.gone.append((side, end))
                blocks += len(self.rows[side, end].starts)
        return found, False

    def rows_of(self, found: Iterable[Unpaired]) -> list[JoinedRow]:
        """The rows that are emitted alone."""
        return self.kept([(one.side, one.end, one.place) for one in found])

    def first_alone(self) -> int | None:
        """No row that will be emitted alone has a time below the returned one; None if there is no such row."""
        return min((at for side in self.preserved if (at := self.sides[side].first_alone()) is not None), default=None)

    # ------------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        """Delete what the letter drops."""
        for at in self.gone:
            self.blocks.remove(at)

    def complete(self) -> None:
        """The letter is complete."""
        touched = list(self.gone)
        for part in self.taken:
            side = self.sides[part.side]
            for end, places in side.spans.assign(part.times).items():
                columns = (part.keys, part.times, part.values)
                keys, times, values = columns if places is None else (pick(column, places) for column in columns)
                headers = part.headers if part.headers is None or places is None else pick(part.headers, places)
                matched = part.matched if places is None else bytes(pick([*part.matched], places))
                side.add(end, keys, times, matched)
                self._slice((part.side, end)).add(keys, values, headers)
                touched.append((part.side, end))
        self.changed.update(touched)
        for at, places in self.done.items():
            side, end = at
            matched = self.sides[side].slices[end].matched
            fresh = [place for place in places if not matched[place]]
            if fresh:
                for place in fresh:
                    matched[place] = 1
                self.rows[at].mark(fresh)
                self.changed.add(at)
        for side, end in self.gone:
            del self.rows[side, end]
            self.sides[side].forget(end)
            self.changed.discard((side, end))
        self.blocks.complete()
        self.drop()
        self.blocks.weigh(touched)

    def drop(self) -> None:
        """The letter failed."""
        if self.taken or self.done or self.gone:
            self.taken, self.done, self.gone = [], {}, []
        self.blocks.drop()

    def seal(self) -> None:
        """Write what has changed to the table."""
        for at in sorted(self.changed):
            one = self.rows[at]
            kept = self.sides[at[0]].slices[at[1]]
            rows: dict[int, list[Any]] = {}
            stops = [stop for _, stop in pairwise([*one.starts, one.count])]
            for number in one.changed:
                of = slice(one.starts[number], stops[number])
                headers = (
                    [[i - of.start, one.headers[i]] for i in range(of.start, of.stop) if i in one.headers]
                    if one.headers
                    else []
                )
                live = slice(of.start - one.packed, of.stop - one.packed)
                columns = kept.keys[live], kept.times[of].tolist(), one.values[live], headers, bytes(kept.matched[of])
                rows[number] = [*at, number, *columns]
            for number in one.marked - one.changed:
                rows[~number] = [*at, number, bytes(kept.matched[one.starts[number] : stops[number]])]
            self.blocks.write(at, dict(zip(rows, self.blocks.encoded(list(rows.values())), strict=True)))
            one.changed.clear()
            one.marked.clear()
        self.blocks.complete()
        self.changed.clear()


def _place(block: list[Any]) -> tuple[tuple[int, int], int]:
    side, end, number = block[:3]
    return (side, end), ~number if len(block) == FLAG_PARTS else number


def both_headers(rows: Arrival, partners: Partners) -> list[Headers] | None:
    """The headers of pairs: those of the left row, then those of the right one; None if no row has any."""
    count = len(partners.arrived)
    own = [None] * count if rows.headers is None else pick(rows.headers, partners.arrived)
    first, second = (partners.headers, own) if rows.side else (own, partners.headers)
    if not any(first) and not any(second):
        return None
    return [pairs_of(one, other) for one, other in zip(first, second, strict=True)]


def pairs_of(*headers: Any) -> Headers:
    """Headers as rows have them."""
    return [(name, data) for some in headers for name, data in some or ()]


def sizes_of(keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
    """What rows take, without their headers."""
    return list(map(add, map(len, keys), map(ROW_BYTES.__add__, map(len, values))))


def _size_of(headers: Iterable[Any]) -> int:
    return sum(len(name) + len(data or b"") + 8 for name, data in headers)
