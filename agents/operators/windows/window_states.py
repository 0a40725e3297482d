"""The states of one open window, by key: in arrays if they are numbers of 64 bits, otherwise in lists.

Both are stored alike: a block of the table holds up to 64 keys in the order of their arrival, and at most `BLOCK_BYTES`: one that is larger
when it is encoded is divided before it is written, so that the task log takes every block whose keys are small enough one by one. A window
in arrays becomes one in lists when a state no longer fits, for example when a sum exceeds 64 bits, or when a block of it is too large.

A window that emits early results has *marks*: the keys that have changed since the last ones, with the greatest time of their rows since.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ....core.windows.blocks import BLOCK_BYTES, BLOCK_KEYS, parts_of
from ...job.types.aggregates import AggregatePlan
from ...records.columns.groups import StateColumns
from ...records.layout import Buffer, longs
from ...records.memory.record_spans import pieces
from ..base.key_arrays import Addition, KeyArrays
from .closed_windows import CellStates

States = dict[bytes, list[Any]]
RowBytes = Callable[[list[Any]], list[bytes]]
"""Gives the bytes of stored rows."""
KEY_BYTES = 384
"""What the objects of a key and of small states take in memory."""
LARGE_BLOCK = BLOCK_KEYS * 128
"""The states of a block that takes more bytes are not small."""
DECODED = 2
"""Their objects take this many times the bytes of the block."""
KEY_ROOM = 32
"""More bytes than a key, or the whole of a block with one key, takes beside its name and its states."""


class KeyBlock(NamedTuple):
    """A block as it is to be written."""

    keys: list[bytes]
    data: bytes


class ListWindow:
    """States in lists, and the blocks of their keys, in order of arrival."""

    def __init__(self, plan: AggregatePlan, *, partial: bool = False) -> None:
        self.plan = plan
        self.partial = partial
        self.states: States = {}
        self.blocks: list[list[bytes]] = []
        """The keys of each stored block."""
        self.places: dict[bytes, int] = {}
        """The number of the stored block of each key."""
        self.times: dict[bytes, int] = {}
        """The greatest time of the rows of each key; only if somebody wants to know it."""
        self.latest: int | None = None
        """No known time is greater."""
        self.plain = True
        """Whether columns of numbers can be added to its states."""
        self.changed: dict[bytes, None] = {}
        """The keys with states that have changed since they were written, in order of arrival."""
        self.out = 0
        """The number of results already emitted, if closing takes several steps."""
        self.large: dict[int, int] = {}
        """The bytes of the blocks whose states are not small, as they were written or read last."""
        self.marks: dict[bytes, int] = {}
        self._queue: list[bytes] = []

    @property
    def count(self) -> int:
        """How many keys have states."""
        return len(self.states)

    @property
    def weight(self) -> int:
        """The bytes that it takes in memory."""
        return len(self.states) * KEY_BYTES + sum(self.large.values()) * DECODED

    # ------------------------------------------------------------------------------------------------------------ changing

    def load(self, keys: list[bytes], states: list[list[Any]], size: int = 0) -> None:
        """Take over the next stored block, which has so many bytes."""
        self.states.update(zip(keys, states, strict=True))
        self._stored(len(self.blocks), keys, size)
        self.plain = self.plain and self.plan.numeric and self.plan.all_plain(states)

    def add(self, keys: list[bytes], columns: list[Any]) -> None:
        """Add columns of numbers."""
        self.plan.add_columns(keys, columns, self.states, partial=self.partial)

    def update(self, fresh: States) -> None:
        """Take over new states."""
        self.plain = self.plain and self.plan.numeric and self.plan.all_plain(fresh.values())
        self.states.update(fresh)

    def touch(self, keys: Iterable[bytes]) -> None:
        """Record that these keys have new states, which are to be written."""
        self.changed.update(dict.fromkeys(keys))

    # ------------------------------------------------------------------------------------------------------------ writing

    def to_write(self, end: int, encoded: RowBytes) -> dict[int, KeyBlock]:
        """The blocks that have changed since they were written, by number. The window ends at `end`."""
        return self.blocks_with(self.states, list(self.changed), end, encoded)

    def blocks_with(self, fresh: States, changed: list[bytes], end: int, encoded: RowBytes) -> dict[int, KeyBlock]:
        """The blocks of changed keys as they are with these states, by number."""
        states, places = self.states, self.places
        found: dict[int, KeyBlock] = {}
        keys_of = {number: self.blocks[number] for number in {places[key] for key in changed if key in places}}
        new = [key for key in changed if key not in places]
        if new and self.blocks and len(self.blocks[-1]) < BLOCK_KEYS:
            last, room = len(self.blocks) - 1, BLOCK_KEYS - len(self.blocks[-1])
            keys_of[last], new = [*self.blocks[last], *new[:room]], new[room:]
        behind = len(self.blocks)
        for start in range(0, len(new), BLOCK_KEYS):
            keys_of[behind] = new[start : start + BLOCK_KEYS]
            behind += 1

        def row(number: int, keys: list[bytes]) -> list[Any]:
            return [end, number, keys, [fresh[key] if key in fresh else states[key] for key in keys]]

        rows = [row(*one) for one in keys_of.items()]
        for (_, number, keys, of_keys), data in zip(rows, encoded(rows), strict=True):
            found[number] = KeyBlock(keys, data)
            if len(data) > BLOCK_BYTES and len(keys) > 1:
                sizes = encoded([list(one) for one in zip(keys, of_keys, strict=True)])
                first, *others = parts_of(keys, [len(one) + KEY_ROOM for one in sizes])
                parts = {number: first, **dict(enumerate(others, behind))}
                behind += len(others)
                data_of = encoded([row(*one) for one in parts.items()])
                found.update(zip(parts, map(KeyBlock, parts.values(), data_of), strict=True))
        return found

    def written(self, blocks: dict[int, KeyBlock]) -> None:
        """All that has changed is in these blocks, and they are written."""
        for number in sorted(blocks):
            self._stored(number, blocks[number].keys, len(blocks[number].data))
        self.changed = {}

    def _stored(self, number: int, keys: list[bytes], size: int) -> None:
        """This block is stored."""
        self.blocks[number : number + 1] = [keys]
        self.places.update(dict.fromkeys(keys, number))
        if size > LARGE_BLOCK:
            self.large[number] = size
        else:
            self.large.pop(number, None)

    def later(self, keys: list[bytes], times: list[int]) -> None:
        """Note the times of rows. Those of one partition usually come in order."""
        latest = times[0] if self.latest is None else self.latest
        keep_greatest(self.times, keys, times, latest)
        self.latest = max(latest, max(times))

    # ------------------------------------------------------------------------------------------------------------- reading

    def states_of(self, keys: Iterable[bytes]) -> list[list[Any] | None]:
        """The states of these keys; None for a key without any."""
        return list(map(self.states.get, keys))

    def results(self, first: int, behind: int) -> tuple[list[bytes], list[list[Any]]]:
        """The keys in the order of their results, from the first of these numbers up to the other, and their states."""
        if len(self._queue) < self.count:
            self._queue = sorted(self.states)
        keys = self._queue[first:behind]
        return keys, [self.states[key] for key in keys]

    # --------------------------------------------------------------------------------------------------------------- marks

    @property
    def marked(self) -> int:
        """How many keys have marks."""
        return len(self.marks)

    def mark(self, keys: list[bytes], times: list[int]) -> None:
        """Rows with these times have changed the states of these keys."""
        keep_greatest(self.marks, keys, times)

    def unmark(self, keys: Iterable[bytes] | None) -> None:
        """Forget the marks of these keys, or of all."""
        unmark(self.marks, keys)

    def first_marked(self, room: int) -> tuple[list[bytes], array[int], list[list[Any]]]:
        """At most `room` keys with marks, in the order of results, with their times and states."""
        keys = sorted(self.marks)[:room]
        return keys, array("q", map(self.marks.__getitem__, keys)), [self.states[key] for key in keys]


class ArrayWindow:
    """States in arrays: keys by number, in order of arrival, and an array for each state."""

    def __init__(self, plan: AggregatePlan, *, partial: bool = False) -> None:
        self.arrays = KeyArrays(plan, partial=partial)
        self.out = 0
        """The number of results already emitted, if closing takes several steps."""
        self._marked = StateColumns(())
        """Marks, by the numbers of keys: no cells, but times, and which keys have changed."""
        self._queue: tuple[list[bytes], array[int]] | None = None

    @property
    def count(self) -> int:
        """How many keys have states."""
        return self.arrays.known

    @property
    def weight(self) -> int:
        """The bytes that it takes in memory."""
        return self.arrays.memory() + self._marked.memory()

    def in_lists(self) -> ListWindow:
        """The same window with its states in lists."""
        arrays = self.arrays
        made = ListWindow(arrays.plan, partial=arrays.partial)
        if arrays.known:
            numbers = array("q", range(arrays.known))
            keys, times = self._keys(numbers), longs(arrays.cells.take(numbers)[1]).tolist()
            states = arrays.states(numbers)
            for start in range(0, len(keys), BLOCK_KEYS):
                made.load(keys[start : start + BLOCK_KEYS], states[start : start + BLOCK_KEYS])
            made.later(keys, times)
            made.touch(keys[number] for number in longs(arrays.cells.dirty()) if number < arrays.known)
        made.out, made.marks = self.out, self.marks
        return made

    # ------------------------------------------------------------------------------------------------------------ changing

    def load(self, keys: list[bytes], states: list[list[Any]]) -> bool:
        """Take over a stored block. False if a state does not fit, or a block before it has been divided."""
        if self.count % BLOCK_KEYS:
            return False
        vectors = self.arrays.vectors(states)
        if vectors is not None:
            self.arrays.put(keys, vectors, None)
            self._grown()
        return vectors is not None

    def add(self, addition: Addition) -> None:
        """Add what fits."""
        self.arrays.add(addition)
        self._grown()

    def update(self, fresh: States, times: dict[bytes, int]) -> bool:
        """Take over new states with the times of their rows. False if a state does not fit."""
        vectors = self.arrays.vectors(list(fresh.values()))
        if vectors is not None:
            self.arrays.put(list(fresh), vectors, list(map(times.__getitem__, fresh)))
            self._grown()
        return vectors is not None

    def replace(self, copies: KeyArrays) -> tuple[list[bytes], list[int]]:
        """Take over new states of keys, which are in arrays already. Returns the keys, and the greatest time of the rows of each."""
        keys, vectors, times = copies.taken()
        self.arrays.put(keys, vectors, times)
        self._grown()
        return keys, times

    def _grown(self) -> None:
        """All keys have states now."""
        self.arrays.known = len(self.arrays.keys)

    # ------------------------------------------------------------------------------------------------------------- reading

    def _keys(self, numbers: Buffer) -> list[bytes]:
        found: Any = pieces(self.arrays.keys.keys(numbers)[0])
        return found

    def states_of(self, keys: Iterable[bytes]) -> list[list[Any] | None]:
        """The states of these keys; None for a key without any. The keys get numbers, which `forget_unknown` takes back."""
        numbers = longs(self.arrays.keys.numbers_listed(list(keys)))
        known = self.arrays.known
        there = iter(self.arrays.states(array("q", [number for number in numbers if number < known])))
        return [next(there) if number < known else None for number in numbers]

    def results(self, first: int, behind: int) -> tuple[list[bytes], CellStates]:
        """The keys in the order of their results, from the first of these numbers up to the other, and their states."""
        if self._queue is None or len(self._queue[0]) < self.count:
            keys = self._keys(array("q", range(self.arrays.known)))
            order = sorted(range(len(keys)), key=keys.__getitem__)
            self._queue = [keys[number] for number in order], array("q", order)
        keys, numbers = self._queue
        return keys[first:behind], self._states(numbers[first:behind])

    def _states(self, numbers: Buffer) -> CellStates:
        return CellStates(self.arrays, self.arrays.cells.take(numbers)[0])

    # --------------------------------------------------------------------------------------------------------------- marks

    @property
    def marked(self) -> int:
        """How many keys have marks."""
        return len(longs(self._marked.dirty()))

    @property
    def marks(self) -> dict[bytes, int]:
        """The keys with marks, and their times."""
        numbers = self._marked.dirty()
        return dict(zip(self._keys(numbers), longs(self._marked.take(numbers)[1]).tolist(), strict=True))

    def mark_rows(self, of: Addition) -> int:
        """Rows that are added have changed the states of their keys. Returns how many rows."""
        self._marked.add(len(self.arrays.keys), of.numbers, (), rows=of.rows, times=of.times)
        return len(longs(of.numbers))

    def mark(self, keys: list[bytes], times: list[int]) -> None:
        """Rows with these times have changed the states of these keys."""
        numbers = self.arrays.keys.numbers_listed(list(keys))
        self._marked.add(len(self.arrays.keys), numbers, (), times=array("q", times))

    def unmark(self, keys: Iterable[bytes] | None) -> None:
        """Forget the marks of these keys, or of all."""
        left = self.marks if keys is not None else {}
        unmark(left, keys)
        self._marked.settle()
        if left:
            self.mark(list(left), list(left.values()))

    def first_marked(self, room: int) -> tuple[list[bytes], array[int], CellStates]:
        """At most `room` keys with marks, in the order of results, with their times and states."""
        numbers = longs(self._marked.dirty())
        keys = self._keys(array("q", numbers))
        order = sorted(range(len(keys)), key=keys.__getitem__)[:room]
        found = array("q", map(numbers.__getitem__, order))
        return [keys[at] for at in order], array("q", longs(self._marked.take(found)[1])), self._states(found)

    # ------------------------------------------------------------------------------------------------------------- writing

    def to_write(self, end: int, encoded: RowBytes) -> dict[int, KeyBlock] | None:
        """The blocks that have changed since they were written, by number; None if one is too large. The window ends at `end`."""
        arrays = self.arrays
        changed = sorted({number // BLOCK_KEYS for number in longs(arrays.cells.dirty())})
        numbers = array("q")
        for block in changed:
            numbers.extend(range(block * BLOCK_KEYS, min((block + 1) * BLOCK_KEYS, arrays.known)))
        keys, states = self._keys(numbers), arrays.states(numbers)
        parts = [slice(start, start + BLOCK_KEYS) for start in range(0, len(keys), BLOCK_KEYS)]
        rows = [[end, block, keys[of], states[of]] for block, of in zip(changed, parts, strict=True)]
        found = encoded(rows)
        if max(map(len, found), default=0) > BLOCK_BYTES:
            return None
        return {row[1]: KeyBlock(row[2], data) for row, data in zip(rows, found, strict=True)}

    def written(self, blocks: dict[int, KeyBlock]) -> None:
        """All that has changed is in these blocks, and they are written."""
        self.arrays.cells.settle()


def unmark(marks: dict[bytes, int], keys: Iterable[bytes] | None) -> None:
    """Forget these marks (None: all)."""
    for key in list(marks) if keys is None else keys:
        marks.pop(key, None)


def keep_greatest(known: dict[bytes, int], keys: list[bytes], times: Sequence[int], latest: int | None = None) -> None:
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
