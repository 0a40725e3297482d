"""The states of the aggregates of a step by the numbers of their keys: one container of cells, whatever a state is.

Numbers stand in arrays (`StateColumns`). Any other state (of a first, a last, the row of the greatest value) is an object in a list: what
rows keep for the same key, so that rows and columns store the same bytes.

What it decides: how many bytes objects count for. Promises:

- Adding to objects cannot fail: what might fail is no cell (`Aggregate.celled`), or has been refused before.
- `take` gives copies of objects that are changed in place; `put` takes over what it is given.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

from ...job.types.aggregates import Aggregate
from ...records.columns.groups import StateColumns
from ...records.layout import Buffer, longs
from ...records.memory.vectors import Vector
from ...records.native.plain.groups import Holding

OBJECT: Literal["object"] = "object"
OBJECT_BYTES = 200
"""What an object takes for each key, until more is known."""
ITEM_BYTES = 100
"""What an item of it takes, texts that were collected apart."""


@dataclass(slots=True)
class ObjectColumn:
    """What is added to objects, or objects themselves: one for each number of a key, or for those at these `places`."""

    listed: list[Any]
    places: list[int] | None = None
    kind: Literal["object"] = OBJECT
    nulls: int = 0

    @property
    def length(self) -> int:
        """How many there are."""
        return len(self.listed)

    def values(self) -> list[Any]:
        """The objects."""
        return self.listed

    def at(self, numbers: list[int]) -> ObjectColumn:
        """What is added to these of the numbers, by their places, which ascend.

        >>> ObjectColumn(["a", "b"]).at([1]), ObjectColumn(["a", "b"], [0, 3]).at([1, 3])
        (ObjectColumn(listed=['b'], places=None, kind='object', nulls=0), ObjectColumn(listed=['b'], places=[1], kind='object', nulls=0))
        """
        listed, own = self.listed, self.places
        if own is None:
            return ObjectColumn([listed[place] for place in numbers])
        found = ((place, bisect_left(own, number)) for place, number in enumerate(numbers))
        kept = [(place, at) for place, at in found if own[at : at + 1] == [numbers[place]]]
        return ObjectColumn([listed[at] for _, at in kept], [place for place, _ in kept])


CellColumn = Vector | ObjectColumn


class _Objects:
    """The states of one aggregate, an object for each key."""

    __slots__ = ("grown", "of", "states")

    def __init__(self, of: Aggregate) -> None:
        self.of = of
        self.states: list[Any] = []
        self.grown = 0

    def reserve(self, keys: int) -> None:
        start = self.of.start
        self.states.extend(start() for _ in repeat(None, keys - len(self.states)))

    def add(self, numbers: Sequence[int], column: ObjectColumn, merging: bool) -> None:
        values = column.listed
        if column.places is not None:
            numbers = [numbers[place] for place in column.places]
        touched = set(numbers) if self.of.grows else ()
        self.grown -= self._size(touched)
        if merging:
            self._merge(numbers, values)
        else:
            self.of.fold(self.states, numbers, values)
        self.grown += self._size(touched)
        if self.of.name == "collect":
            self.grown += sum(map(len, filter(_is_text, values)))

    def _merge(self, numbers: Sequence[int], values: Sequence[Any]) -> None:
        # where the order of rows counts, these are two sessions of a key, and the earlier one comes first
        merge, states = self.of.merge or self.of.join, self.states
        assert merge is not None
        for number, value in zip(numbers, values, strict=True):
            states[number] = merge(states[number], value)

    def put(self, numbers: Sequence[int], column: ObjectColumn) -> None:
        touched = numbers if self.of.grows else ()
        self.grown -= self._size(touched)
        for number, value in zip(numbers, column.listed, strict=True):
            self.states[number] = value
        self.grown += self._size(touched)

    def begin_anew(self, numbers: Sequence[int]) -> None:
        self.put(numbers, ObjectColumn([self.of.start() for _ in numbers]))

    def take(self, numbers: Sequence[int]) -> ObjectColumn:
        states, copy = self.states, self.of.copy
        found = [states[number] for number in numbers]
        return ObjectColumn(found if copy is None else list(map(copy, found)))

    def retain(self, numbers: Sequence[int]) -> None:
        self.states = [self.states[number] for number in numbers]
        self.grown = self._size(range(len(self.states))) if self.of.grows else 0

    def memory(self) -> int:
        return len(self.states) * OBJECT_BYTES + self.grown

    def _size(self, numbers: Iterable[int]) -> int:
        """What these objects have grown by, roughly."""
        return sum(_size_of(self.states[number]) for number in numbers)


def _is_text(value: Any) -> bool:
    return type(value) is str


def _size_of(state: Any) -> int:
    if not isinstance(state, list | tuple):
        return len(state)
    lists = len(state) == 2 and isinstance(state[0], list)  # of buckets and counts, or two pairs that were stored
    return (sum(map(len, state)) if lists else len(state)) * ITEM_BYTES


class StateCells:
    """The states, a cell after the other. Columns of numbers are vectors, the others `ObjectColumn`."""

    def __init__(self, held: Sequence[Holding | Aggregate]) -> None:
        self._held = held
        self._vectors = [at for at, one in enumerate(held) if isinstance(one, str)]
        self.numbers = StateColumns([one for one in held if isinstance(one, str)])
        self._objects = {at: _Objects(one) for at, one in enumerate(held) if isinstance(one, Aggregate)}

    def add(
        self, keys: int, numbers: Buffer, columns: Sequence[CellColumn | None], *, rows: Buffer | None, times: Buffer
    ) -> None:
        """Add rows that `overflows` does not name; see `StateColumns.add`."""
        self.numbers.add(keys, numbers, self._of_numbers(columns), rows=rows, times=times)
        self._add_objects(keys, numbers, columns, merging=False)

    def merge(
        self, keys: int, numbers: Buffer, columns: Sequence[CellColumn | None], *, rows: Buffer | None, times: Buffer
    ) -> None:
        """Add partial states that `overflows` does not name."""
        vectors: list[Any] = self._of_numbers(columns)
        self.numbers.merge(keys, numbers, vectors, rows=rows, times=times)
        self._add_objects(keys, numbers, columns, merging=True)

    def _add_objects(self, keys: int, numbers: Buffer, columns: Sequence[CellColumn | None], *, merging: bool) -> None:
        listed = longs(numbers).tolist() if self._objects else []
        for at, objects in self._objects.items():
            column: Any = columns[at]
            objects.reserve(keys)
            objects.add(listed, column, merging)

    def overflows(
        self, keys: int, numbers: Buffer, columns: Sequence[CellColumn | None], *, rows: Buffer | None, merging: bool
    ) -> list[int]:
        """The rows, or partial states, with which a whole number would have more than 64 bits."""
        vectors: list[Any] = self._of_numbers(columns)
        if not vectors:
            return []
        if merging:
            return self.numbers.merge_overflows(keys, numbers, vectors, rows=rows)
        return self.numbers.overflows(keys, numbers, vectors, rows=rows)

    def put(self, keys: int, numbers: Buffer, states: Sequence[CellColumn], *, times: Buffer | None = None) -> None:
        """Set the states of these keys. With `times` they count as changed."""
        vectors: list[Any] = self._of_numbers(states)
        self.numbers.put(keys, numbers, vectors, times=times)
        for at, objects in self._objects.items():
            column: Any = states[at]
            objects.reserve(keys)
            objects.put(longs(numbers), column)

    def reserve(self, keys: int) -> None:
        """So many keys have states."""
        self.put(
            keys, b"", [Vector.of("int64", []) if isinstance(one, str) else ObjectColumn([]) for one in self._held]
        )

    def take(self, numbers: Buffer) -> tuple[list[CellColumn], Buffer]:
        """The states of these keys, a column for each cell, and their times."""
        vectors, times = self.numbers.take(numbers)
        if not self._objects:
            return list(vectors), times
        left, listed = iter(vectors), longs(numbers).tolist()
        return [
            self._objects[at].take(listed) if at in self._objects else next(left) for at in range(len(self._held))
        ], times

    def release(self, numbers: Buffer) -> None:
        """No key has these numbers for now: objects that have grown need no memory."""
        for objects in self._objects.values():
            if objects.of.grows:
                objects.begin_anew(longs(numbers))

    def copy_numbers(self, keys: int, others: StateCells, numbers: Buffer) -> None:
        """Take over the numbers of these keys; objects begin anew."""
        self.numbers.put(keys, numbers, others.numbers.take(numbers)[0])

    def dirty(self) -> Buffer:
        """The numbers of the keys that have changed since `settle`."""
        return self.numbers.dirty()

    def settle(self, write: int = 0) -> None:
        """Whatever has changed goes with this write."""
        self.numbers.settle(write)

    def retain(self, numbers: Buffer) -> None:
        """Forget the states of all keys but these."""
        self.numbers.retain(numbers)
        for objects in self._objects.values():
            objects.retain(longs(numbers))

    def memory(self) -> int:
        """How many bytes are reserved."""
        return self.numbers.memory() + sum(one.memory() for one in self._objects.values())

    def _of_numbers(self, columns: Sequence[CellColumn | None]) -> list[Vector | None]:
        found: list[Any] = [columns[at] for at in self._vectors]
        return found
