"""The states of one open window, by key: in arrays if they are numbers of 64 bits, otherwise in lists.

Both are stored alike: a block of the table holds up to 64 keys in the order of their arrival. A block of states in lists that has become
larger than `BLOCK_BYTES` is divided, so that no block grows without bound when states do. A window in arrays becomes one in lists when a
state no longer fits, for example when a sum exceeds 64 bits, or when a key is so long that 64 of them would fill more than a block.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ....core.windows.blocks import BLOCK_BYTES, BLOCK_KEYS, parts_of
from ...job.types.aggregates import AggregatePlan
from ...records.layout import Buffer, longs
from ...records.memory.longs import extremes
from ...records.memory.record_spans import pieces
from ..base.key_arrays import Addition, KeyArrays

States = dict[bytes, list[Any]]
LONG_KEY = BLOCK_BYTES // BLOCK_KEYS
"""Where no key is longer than this, 64 keys fit into a block."""
KEY_BYTES = 384
"""What the objects of a key and of small states take in memory."""
LARGE_BLOCK = BLOCK_KEYS * 128
"""The states of a block that takes more bytes are not small."""
DECODED = 2
"""Their objects take this many times the bytes of the block."""


class ListWindow:
    """States in lists, and the blocks of their keys, in order of arrival."""

    def __init__(self, plan: AggregatePlan, *, partial: bool = False) -> None:
        self.plan = plan
        self.partial = partial
        self.states: States = {}
        self.blocks: list[list[bytes]] = []
        """The keys of each block."""
        self.places: dict[bytes, int] = {}
        """The number of the block of each key."""
        self.open = False
        """Whether the last block takes new keys."""
        self.times: dict[bytes, int] = {}
        """The greatest time of the rows of each key; only if somebody wants to know it."""
        self.latest: int | None = None
        """No known time is greater."""
        self.plain = True
        """Whether columns of numbers can be added to its states."""
        self.dirty: set[int] = set()
        """The blocks that have changed since they were written."""
        self.slots: list[int] = []
        """The slots of the blocks that the table has, by the number of the block."""
        self.out = 0
        """The number of results already emitted, if closing takes several steps."""
        self.large: dict[int, int] = {}
        """The bytes of the blocks whose states are not small, as they were written or read last."""
        self._queue: list[bytes] | None = None

    @property
    def count(self) -> int:
        """How many keys have states."""
        return len(self.places)

    @property
    def weight(self) -> int:
        """The bytes that it takes in memory."""
        return len(self.places) * KEY_BYTES + sum(self.large.values()) * DECODED

    # ------------------------------------------------------------------------------------------------------------ changing

    def load(self, keys: list[bytes], states: list[list[Any]]) -> None:
        """Take over a stored block."""
        self.states.update(zip(keys, states, strict=True))
        self._append(keys)
        self.plain = self.plain and self.plan.numeric and self.plan.all_plain(states)

    def add(self, keys: list[bytes], columns: list[Any]) -> None:
        """Add columns of numbers."""
        self.plan.add_columns(keys, columns, self.states, partial=self.partial)

    def update(self, fresh: States) -> None:
        """Take over new states."""
        self.plain = self.plain and self.plan.numeric and self.plan.all_plain(fresh.values())
        self.states.update(fresh)

    def touch(self, keys: Iterable[bytes]) -> None:
        """Record that these keys have new states."""
        distinct = dict.fromkeys(keys)
        places = self.places
        new = [key for key in distinct if key not in places]
        for number, keys in self._blocks_of(new):
            if number == len(self.blocks):
                self._append(keys)
            else:
                self.blocks[number] += keys
                places.update(dict.fromkeys(keys, number))
        if new:
            self._queue = None
        self.dirty.update({places[key] for key in distinct})

    def _append(self, keys: list[bytes]) -> None:
        """Another block."""
        self.places.update(dict.fromkeys(keys, len(self.blocks)))
        self.blocks.append(list(keys))
        self.open = True
        self._queue = None

    def _blocks_of(self, new: list[bytes]) -> list[tuple[int, list[bytes]]]:
        """To which blocks new keys go."""
        number = len(self.blocks)
        room = BLOCK_KEYS - len(self.blocks[-1]) if self.open else 0
        found = [(number - 1, new[:room])] if room > 0 and new else []
        for start in range(max(room, 0), len(new), BLOCK_KEYS):
            found.append((number, new[start : start + BLOCK_KEYS]))
            number += 1
        return found

    def sized(self, number: int, size: int) -> None:
        """A block was written or read, and takes so many bytes."""
        if size > LARGE_BLOCK:
            self.large[number] = size
        else:
            self.large.pop(number, None)

    def divide(self, number: int, size: int) -> None:
        """Divide a block of so many bytes, so that its parts are small enough."""
        first, *others = parts_of(self.blocks[number], size)
        self.blocks[number] = first
        for keys in others:
            self.dirty.add(len(self.blocks))
            self._append(keys)
        if others:
            self.dirty.add(number)
            self.open = False

    def divide_new(self, size_of: Callable[[Any], int]) -> None:
        """Divide the blocks that would be too large before they are written: new ones of states that may be large, and those that have got
        long keys. `size_of`: the bytes of a value."""
        large = set[int]() if self.plain else set(range(len(self.slots), len(self.blocks)))
        large.update(number for number in self.dirty if max(map(len, self.blocks[number])) > LONG_KEY)
        for number in sorted(large):
            size = size_of(self.stored(number))
            if size > BLOCK_BYTES:
                self.divide(number, size)

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
        if self._queue is None:
            self._queue = sorted(self.places)
        keys = self._queue[first:behind]
        return keys, [self.states[key] for key in keys]

    def changed_blocks(self) -> dict[int, list[Any]]:
        """The blocks that have changed since the last call, in their stored form."""
        found = {number: self.stored(number) for number in self.dirty}
        self.dirty.clear()
        return found

    def stored(self, number: int) -> list[Any]:
        """A block in its stored form."""
        keys = self.blocks[number]
        return [list(keys), [self.states[key] for key in keys]]

    def blocks_with(self, fresh: States) -> dict[int, list[Any]]:
        """The blocks that these states change, in their stored form."""
        new = dict(self._blocks_of([key for key in fresh if key not in self.places]))
        found: dict[int, list[Any]] = {}
        for number in {*new, *(self.places[key] for key in fresh if key in self.places)}:
            keys = [*(self.blocks[number] if number < len(self.blocks) else ()), *new.get(number, ())]
            found[number] = [keys, [fresh[key] if key in fresh else self.states[key] for key in keys]]
        return found


class ArrayWindow:
    """States in arrays: keys by number, in order of arrival, and an array for each state."""

    def __init__(self, plan: AggregatePlan, *, partial: bool = False) -> None:
        self.arrays = KeyArrays(plan, partial=partial)
        self.slots: list[int] = []
        """The slots of the blocks that the table has, by the number of the block."""
        self.out = 0
        """The number of results already emitted, if closing takes several steps."""
        self._queue: tuple[list[bytes], array[int]] | None = None

    @property
    def count(self) -> int:
        """How many keys have states."""
        return self.arrays.known

    @property
    def weight(self) -> int:
        """The bytes that it takes in memory."""
        return self.arrays.memory()

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
        made.dirty.update(number // BLOCK_KEYS for number in longs(arrays.cells.dirty()) if number < arrays.known)
        made.slots, made.out = self.slots, self.out
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

    def replace(self, copies: KeyArrays) -> None:
        """Take over new states of keys, which are in arrays already."""
        keys, vectors, times = copies.taken()
        self.arrays.put(keys, vectors, times)
        self._grown()

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

    def results(self, first: int, behind: int) -> tuple[list[bytes], list[list[Any]]]:
        """The keys in the order of their results, from the first of these numbers up to the other, and their states."""
        if self._queue is None or len(self._queue[0]) < self.count:
            keys = self._keys(array("q", range(self.arrays.known)))
            order = sorted(range(len(keys)), key=keys.__getitem__)
            self._queue = [keys[number] for number in order], array("q", order)
        keys, numbers = self._queue
        return keys[first:behind], self.arrays.states(numbers[first:behind])

    @property
    def has_long_keys(self) -> bool:
        """Whether a changed key is so long that its block may be too large."""
        changed = self.arrays.cells.dirty()
        return len(changed) > 0 and extremes(self.arrays.keys.keys(changed)[0].lengths)[1] > LONG_KEY

    def changed_blocks(self) -> dict[int, list[Any]]:
        """The blocks that have changed since the last call, in their stored form."""
        arrays = self.arrays
        changed = sorted({number // BLOCK_KEYS for number in longs(arrays.cells.dirty())})
        numbers = array("q")
        for block in changed:
            numbers.extend(range(block * BLOCK_KEYS, min((block + 1) * BLOCK_KEYS, arrays.known)))
        keys, states = self._keys(numbers), arrays.states(numbers)
        arrays.cells.settle()
        return {
            block: [keys[start : start + BLOCK_KEYS], states[start : start + BLOCK_KEYS]]
            for block, start in zip(changed, range(0, len(keys), BLOCK_KEYS), strict=True)
        }


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
