"""The states of an aggregate in arrays: what the aggregates of a plan hold there, and the additions of a running chunk.

What it decides: which aggregates have arrays (`count`, `sum`, `min`, `max`, `mean`), which others stand beside them as objects, and which
states fit: numbers of 64 bits, and whatever the state of another aggregate is. Promises:

- An addition changes nothing before `add`: it has its numbers and columns, and what would not fit is known before (`refused`).
- Keys and numbers are those of `groups.py`. A key whose state is kept elsewhere is `odd`; its state here means nothing.
- Packed, a state has the bytes that a list of it has in msgpack.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from ....core.columns.schema import ColumnSchema
from ...job.types.aggregates import NUMERIC, Aggregate, AggregatePlan
from ...records.columns.groups import KeyTable, numbers_in
from ...records.columns.packing import State, StatePacking
from ...records.frames.arrow_frames import FrameColumn
from ...records.layout import Buffer, longs
from ...records.memory.record_spans import RecordSpans, packed, pieces
from ...records.memory.vectors import Vector, VectorBatch
from ...records.native.plain.groups import Holding
from .state_cells import CellColumn, ObjectColumn, StateCells

_library: Any = msgpack
_HELD: dict[str, tuple[Holding, ...]] = {
    "count": ("rows",),
    "sum": ("sum",),
    "min": ("min",),
    "max": ("max",),
    "mean": ("rows", "sum"),
}
_HELD_WHERE: dict[str, tuple[Holding, ...]] = {
    **_HELD,
    "count": ("values",),
    "sum": ("total",),
    "mean": ("values", "total"),
}
"""With `where=`, rows that do not count are nulls in the column."""
MEAN = ("count", "sum")
COUNTS = ("rows", "values")
NULL_NUMBER = b"\xff" * 8
"""The number of a missing key, -1. No other number has these bytes."""


@dataclass(slots=True)
class Addition:
    """What a chunk adds, one column for each cell. `rows`: which rows of the columns, for each number; None for all."""

    numbers: Buffer
    columns: list[CellColumn | None]
    rows: Buffer | None
    times: Buffer
    source: Any
    """What it was made of."""


class KeyArrays:
    """The states of the keys of one aggregate. `partial`: what is added are partial states."""

    def __init__(self, plan: AggregatePlan, *, partial: bool = False, head: bytes = b"", before: bool = False) -> None:
        """`before`: the states as of the last seal are kept, too."""
        self.plan = plan
        self.partial = partial
        self.head = head
        held = [_held(part) for part in plan.parts]
        self._held: list[Holding | Aggregate] = [one for part in held for one in part]
        self.has_objects = any(isinstance(one, Aggregate) for one in self._held)
        """Whether some states are no numbers: then states are stored and sent key by key."""
        self._names = tuple(map(str, range(len(self._held))))
        self._packing = StatePacking(self._shape(held), head)
        self.fields: list[FrameColumn] = [
            (name, MEAN) if part.name == "mean" else name for name, part in zip(plan.names, plan.parts, strict=True)
        ]
        """The columns of a frame of partial states."""
        self.columns_of_partials = [
            one
            for name, part in zip(plan.names, plan.parts, strict=True)
            for one in ([f"{name}.{half}" for half in MEAN] if part.name == "mean" else [name])
        ]
        """The same as whoever reads the frame names them."""
        self.keys = KeyTable()
        self.cells = StateCells(self._held)
        self.former = StateCells(self._held) if before else None
        self.trying = False
        """Only numbers are added, to see whether they become too large."""
        self.odd: set[int] = set()
        """The numbers of keys whose states are kept elsewhere."""
        self.known = 0
        """The states of keys from this number on have not been looked for."""

    def _shape(self, held: Sequence[Sequence[Holding | Aggregate]]) -> list[State | list[State]]:
        """The states as they are packed, if all are numbers."""
        places = iter(self._names)
        shape: list[State | list[State]] = []
        for part in held if not self.has_objects else ():
            states: list[State] = [(next(places), "int64" if one in COUNTS else "number") for one in part]
            shape.append(states if len(part) > 1 else states[0])
        return shape

    def clear(self) -> None:
        """Forget every key."""
        self.keys, self.cells = KeyTable(), StateCells(self._held)
        self.former = None if self.former is None else StateCells(self._held)
        self.odd, self.known = set(), 0

    def cells_alike(self) -> StateCells:
        """Empty cells for states of the same kinds."""
        return StateCells(self._held)

    def memory(self) -> int:
        """How many bytes are reserved."""
        former = 0 if self.former is None else self.former.memory()
        return self.keys.memory() + self.cells.memory() + former

    # -------------------------------------------------------------------------------------------------------- additions

    def columns(self, of: Callable[[int], CellColumn | None]) -> list[CellColumn | None]:
        """A column for each cell; `of` gives that of each aggregate, in which rows that do not count are null."""
        found: list[CellColumn | None] = []
        for at, part in enumerate(self.plan.parts):
            column = of(at)
            found += [None if held == "rows" else column for held in _held(part)]
        return found

    def takes(self, vectors: Sequence[Vector]) -> bool:
        """Whether these are partial states: a vector for each cell, counts without nulls. Sums have no nulls, either."""
        if len(vectors) != len(self._held) or self.has_objects:
            return False
        for held, one in zip(self._held, vectors, strict=True):
            if one.kind != "int64" and (held in COUNTS or one.kind != "float64"):
                return False
            if one.nulls and held not in ("min", "max"):
                return False
        return True

    def meets_odd(self, addition: Addition) -> bool:
        """Whether it adds to a state that is kept elsewhere."""
        return bool(self.odd) and not self.odd.isdisjoint(longs(addition.numbers))

    def refused(self, one: Addition) -> list[int]:
        """The rows with which a whole number would have more than 64 bits."""
        return self.cells.overflows(len(self.keys), one.numbers, one.columns, rows=one.rows, merging=self.partial)

    def add(self, one: Addition) -> None:
        """Add what `refused` does not name."""
        cells: Any = self.cells.numbers if self.trying else self.cells
        columns = (
            [column for column in one.columns if not isinstance(column, ObjectColumn)] if self.trying else one.columns
        )
        add = cells.merge if self.partial else cells.add
        add(len(self.keys), one.numbers, columns, rows=one.rows, times=one.times)

    # ----------------------------------------------------------------------------------------------------------- states

    def vectors(self, states: Sequence[Sequence[Any]]) -> list[CellColumn] | None:
        """States, or partial ones, as a column for each cell; None if one of them does not fit."""
        if not self.plan.all_plain(states) and not all(map(self.plan.plain, states)):
            return None
        found: list[CellColumn] = []
        for part, column in zip(self.plan.parts, zip(*states, strict=True), strict=True):
            if part.name not in NUMERIC:
                found.append(ObjectColumn(list(column)))
                continue
            for values in zip(*column, strict=True) if part.name == "mean" else (column,):
                vector = numbers_in(values)
                if vector is None:
                    return None
                found.append(vector)
        counts = (one.kind == "int64" for held, one in zip(self._held, found, strict=True) if held in COUNTS)
        return found if all(counts) else None

    def states(self, numbers: Buffer) -> list[list[Any]]:
        """The states of these keys, one for each aggregate; those of a key without rows are the initial ones."""
        vectors, _ = self.cells.take(numbers)
        return self.lists(vectors)

    def lists(self, vectors: Sequence[CellColumn]) -> list[list[Any]]:
        """The same of states as vectors."""
        columns: list[Sequence[Any]] = []
        left = [
            [0 if one is None and held == "sum" else one for one in vector.values()]
            if vector.nulls
            else vector.values()
            for held, vector in zip(self._held, vectors, strict=True)
        ]
        for part in self.plan.parts:
            if part.name == "mean":
                columns.append(list(zip(left.pop(0), left.pop(0), strict=True)))
            else:
                columns.append(left.pop(0))
        return [list(one) for one in zip(*columns, strict=True)]

    def results(self, vectors: Sequence[CellColumn]) -> list[Vector]:
        """What users see of states, a column for each aggregate; all are numbers."""
        left: list[Any] = list(vectors)
        found: list[Vector] = []
        for part in self.plan.parts:
            one = left.pop(0)
            if part.name == "mean":
                sums = left.pop(0).values()
                means = [None if not n else total / n for n, total in zip(one.values(), sums, strict=True)]
                one = Vector.of("float64", means)
            elif part.name == "sum" and one.nulls:
                one = numbers_in([0 if value is None else value for value in one.values()]) or one
            found.append(one)
        return found

    def taken(self) -> tuple[list[bytes], list[CellColumn], list[int]]:
        """All keys, with their states and the times of those."""
        every = array("q", range(len(self.keys)))
        keys: Any = pieces(self.keys.keys(every)[0])
        vectors, times = self.cells.take(every)
        return keys, list(vectors), longs(times).tolist()

    def listed(self) -> tuple[list[bytes], list[list[Any]], list[int]]:
        """The same, each state as a list."""
        keys, vectors, times = self.taken()
        return keys, self.lists(vectors), times

    def put(self, keys: list[bytes], vectors: Sequence[CellColumn], times: Sequence[int] | None) -> None:
        """Set the states of these keys. With times they count as changed; without, the store has them."""
        numbers = self.known_numbers(keys)
        when = None if times is None else array("q", times)
        self.cells.put(len(self.keys), numbers, vectors, times=when)
        if times is None:
            self._keep_former(numbers)
        if self.odd:
            self.odd.difference_update(longs(numbers))

    def set_odd(self, keys: list[bytes]) -> None:
        """Only the states of these keys are kept elsewhere."""
        self.odd = set(longs(self.known_numbers(keys)))

    def known_numbers(self, keys: list[bytes]) -> Buffer:
        """The numbers of keys whose states are given, and need not be looked for."""
        before = len(self.keys)
        numbers = self.keys.numbers_listed(keys)
        if self.known == before:
            self.known = len(self.keys)
        return numbers

    def loaded(self, numbers: Buffer, vectors: Sequence[CellColumn], read: int) -> None:
        """Take over stored states of these keys. `read`: see `StateColumns.loaded`."""
        self.cells.put(len(self.keys), numbers, vectors)
        self.cells.numbers.loaded(numbers, read)
        self._keep_former(numbers)

    def _keep_former(self, numbers: Buffer) -> None:
        if self.former is not None:  # objects of it are copies: those of `cells` are changed in place
            self.former.put(len(self.keys), numbers, self.cells.take(numbers)[0])

    def replaced(self, numbers: Buffer, vectors: Sequence[CellColumn]) -> list[CellColumn]:
        """What the states of these keys were at the last seal. From now on it is these."""
        assert self.former is not None
        self.former.reserve(len(self.keys))
        found, _ = self.former.take(numbers)
        self.former.put(len(self.keys), numbers, vectors)
        return found

    def changed(self) -> Buffer:
        """The numbers of the keys whose states have changed since `settle`."""
        found = self.cells.dirty()
        return array("q", [one for one in longs(found) if one not in self.odd]) if self.odd else found

    def named(self, vectors: Sequence[CellColumn]) -> dict[str, Vector]:
        """States as columns; all are numbers."""
        numbers: Any = vectors
        return dict(zip(self._names, numbers, strict=True))

    def pack(self, vectors: Sequence[CellColumn]) -> RecordSpans:
        """States as they are stored."""
        if self.has_objects:
            pack, head = _library.Packer().pack, self.head
            return packed([head + pack(states) for states in self.lists(vectors)])
        numbers: Any = tuple(vectors)
        return self._packing.pack(VectorBatch(self._names, numbers, vectors[0].length))

    def pack_batch(self, batch: VectorBatch) -> RecordSpans:
        """The same of a batch."""
        return self._packing.pack(batch)

    def unpack(self, rows: RecordSpans) -> tuple[Sequence[CellColumn], list[int]]:
        """Stored states, and which of the rows are something else."""
        return self._unpacked(rows) if self.has_objects else self._packing.unpack(rows)

    def _unpacked(self, rows: RecordSpans) -> tuple[Sequence[CellColumn], list[int]]:
        read, head = _library.unpackb, self.head
        stored: Any = pieces(rows)
        found: list[Any] = [read(one[len(head) :]) if one.startswith(head) else None for one in stored]
        columns = self.vectors(found) if None not in found else None
        if columns is not None:
            return columns, []
        odd = [at for at, states in enumerate(found) if states is None or self.vectors([states]) is None]
        for at in odd:
            found[at] = self.plan.start()
        return self.vectors(found) or [], odd

    # --------------------------------------------------------------------------------------------------------- forgetting

    def unknown(self) -> tuple[Buffer, list[bytes]]:
        """The keys whose states have not been looked for."""
        numbers = array("q", range(self.known, len(self.keys)))
        found: Any = pieces(self.keys.keys(numbers)[0])
        return numbers, found

    def retain(self, additions: Sequence[Addition]) -> None:
        """Forget all states but those that have changed, and those that these additions are for."""
        kept = dict.fromkeys(longs(self.cells.dirty()).tolist())
        for one in additions:
            kept.update(dict.fromkeys(longs(one.numbers).tolist()))
        self._renumber(array("q", kept))
        self.number(additions)

    def number(self, additions: Sequence[Addition]) -> None:
        """Give these additions the present numbers of their keys."""
        for one in additions:
            one.numbers = one.source.numbers(self.keys)

    def forget_unknown(self) -> None:
        """Forget the keys whose states have not been looked for."""
        if self.known < len(self.keys):
            self._renumber(array("q", range(self.known)))

    def reserve(self) -> None:
        """Each key has a state."""
        self.cells.reserve(len(self.keys))
        if self.former is not None:
            self.former.reserve(len(self.keys))

    def copied(self) -> KeyArrays:
        """The same keys and numbers, to try additions on. The keys are shared."""
        self.reserve()
        made = KeyArrays(self.plan, partial=self.partial)
        made.keys, made.trying = self.keys, True
        made.cells.copy_numbers(len(self.keys), self.cells, array("q", range(len(self.keys))))
        return made

    def _renumber(self, kept: Buffer) -> None:
        self.reserve()
        self.keys.retain(kept)
        self.cells.retain(kept)
        if self.former is not None:
            self.former.retain(kept)
        self.known = len(self.keys)


def _held(part: Aggregate) -> tuple[Holding | Aggregate, ...]:
    if part.name not in NUMERIC:
        return (part,)
    return (_HELD if part.where is None else _HELD_WHERE)[part.name]


def has_arrays(plan: AggregatePlan, columns: ColumnSchema | None) -> bool:
    """Whether the states of a plan can be held in arrays. `columns`: what comes in; None for rows, whose objects stay in lists."""
    return all(part.name in NUMERIC or (columns is not None and part.celled) for part in plan.parts)
