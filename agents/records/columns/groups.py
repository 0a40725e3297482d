"""Aggregates by key, in columns: keys as dense numbers, and one array for each state.

    keys = KeyTable()
    sums = StateColumns(["rows", "sum"])                               # hg.count(), hg.sum("amount")
    numbers = keys.numbers(batch["user"])                              # the number of each row's key, from 0 on; -1 for null
    refused = sums.overflows(len(keys), numbers, [None, batch["amount"]])
    sums.add(len(keys), numbers, [None, batch["amount"]], times=times)
    changed = sums.dirty()                                             # the numbers of the keys to write, since `settle`
    keys.keys(changed), sums.take(changed)                             # their bytes, and their states as vectors with their times
    sums.settle()

A KeyTable gives numbers to keys, and StateColumns hold the states of these numbers.

A cell holds `rows` (how many), `values` (how many that are not null), `sum`, `min` or `max` of numbers; a mean is two of them, `rows` and
`sum`. Null values are left out, as in SQL; a sum, min or max of no value is null. A `total` is a sum that begins with zero. A state is an
int64 or a float64, for each key what Python makes of its numbers: a sum of whole numbers is whole until a float is added; a whole number
and a float are compared exactly.

What it decides: what the state of a key becomes. Promises:

- Keys are those of `keys.py`, as bytes: text is its UTF-8, an int64 and a bool have the same bytes as there. A float64 is no key.
- The number of a key stays what it is until `retain`, which forgets all other keys and numbers the rest anew. Whoever holds numbers has to
  renumber with it: a `StateColumns` by its own `retain`, with the same numbers. Both do so between two chunks.
- A whole number never wraps: `overflows` names the rows that would take a sum or count beyond 64 bits if the others were added in their
  order, and `add` and `merge` leave just these out, whole, and return them. A first value is taken as it is; floats are added in the order
  of the rows, so a replay gives the same bits.
- `merge` adds partial states (what `take` of a table with the same cells returned); `put` sets states, and marks their keys as changed only
  if it gets their times.
- A key is `durable` only if it has a stored state and the write that it was settled with does not wait any more.
- The time of a changed key is the greatest of its rows since `settle`.
- Numbers of keys and rows are checked before anything is added; what does not fit together raises `ValueError`. A table belongs to one
  thread at a time; another one gets a `RuntimeError`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from ..layout import Buffer, kind_of, longs, number_of
from ..memory.record_spans import RecordSpans
from ..memory.vectors import Vector
from ..native import chosen
from ..native.plain.groups import HELD, Holding


class KeyTable:
    """Numbers for keys, from 0 on, in the order in which they come first; see the top of this file.

    >>> table = KeyTable()
    >>> longs(table.numbers(Vector.of("text", ["b", "a", None, "b"]))).tolist(), len(table)
    ([0, 1, -1, 0], 2)
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        # the seed is secret, so that no one can choose keys that collide
        self._made: Any = chosen.part.Keys(secrets.randbits(64))

    def __len__(self) -> int:
        return len(self._made)

    def numbers(self, vector: Vector, rows: Buffer | None = None) -> Buffer:
        """The number of the key of each row, or of each of `rows`; new keys are added."""
        return self._made.numbers(_parts(vector), vector.length, rows)

    def numbers_of(self, spans: RecordSpans, rows: Buffer | None = None) -> Buffer:
        """The same for keys that are encoded already; a length of -1 is null."""
        return self._made.numbers_of(*spans, rows)

    def numbers_listed(self, keys: list[Any]) -> Buffer:
        """The same for keys in a list: bytes that are encoded already, text, or None."""
        return self._made.numbers_listed(keys)

    def found(self, keys: list[bytes]) -> Buffer:
        """The same of those that are known; -1 for all others, which are not added.

        >>> table = KeyTable()
        >>> longs(table.numbers_listed([b"a"])).tolist(), longs(table.found([b"b", b"a"])).tolist(), len(table)
        ([0], [-1, 0], 1)
        """
        return self._made.found(keys)

    def keys(self, numbers: Buffer, prefix: bytes = b"") -> tuple[RecordSpans, RecordSpans]:
        """The bytes of the keys with these numbers, and the same with a prefix before each of them; both in one buffer."""
        buffer, *spans = self._made.keys(numbers, prefix)
        return RecordSpans(buffer, *spans[:2]), RecordSpans(buffer, *spans[2:])

    def retain(self, numbers: Buffer) -> None:
        """Forget all keys but these, which get the numbers 0, 1, … in this order."""
        self._made.retain(numbers)

    def memory(self) -> int:
        """How many bytes are reserved."""
        return self._made.memory()


class StateColumns:
    """The states of keys by their numbers, an array for each cell; see the top of this file."""

    __slots__ = ("_made", "cells")

    def __init__(self, cells: Sequence[Holding]) -> None:
        self.cells = tuple(cells)
        self._made: Any = chosen.part.Cells([HELD.index(held) for held in self.cells])

    def add(
        self,
        keys: int,
        numbers: Buffer,
        columns: Sequence[Vector | None],
        *,
        rows: Buffer | None = None,
        times: Buffer | None = None,
    ) -> list[int]:
        """Add rows to the states of their keys. Returns the rows that were left out: see `overflows`.

        `keys`: how many keys there are. `columns`: one for each cell, None for `rows`. With `rows`, `numbers` has the key of each of these
        rows, otherwise of every row. `times` has the time of every row.
        """
        return self._made.add(*_addition(keys, numbers, columns, rows, times))

    def overflows(
        self, keys: int, numbers: Buffer, columns: Sequence[Vector | None], *, rows: Buffer | None = None
    ) -> list[int]:
        """The rows that `add` would leave out. Costs one pass over the whole numbers, and nothing is changed."""
        if all(one is None for one in columns):  # counts alone, of which no column says how many rows there are
            return []
        return self._made.overflows(*_addition(keys, numbers, columns, rows, None))

    def merge(
        self,
        keys: int,
        numbers: Buffer,
        states: Sequence[Vector],
        *,
        rows: Buffer | None = None,
        times: Buffer | None = None,
    ) -> list[int]:
        """Add partial states, one vector for each cell. Returns those that were left out."""
        return self._made.merge(*_addition(keys, numbers, states, rows, times))

    def merge_overflows(
        self, keys: int, numbers: Buffer, states: Sequence[Vector], *, rows: Buffer | None = None
    ) -> list[int]:
        """The partial states that `merge` would leave out."""
        return self._made.merge_overflows(*_addition(keys, numbers, states, rows, None))

    def put(self, keys: int, numbers: Buffer, states: Sequence[Vector], *, times: Buffer | None = None) -> None:
        """Set the states of these keys. With `times` they count as changed."""
        self._made.put(*_addition(keys, numbers, states, None, times))

    def take(self, numbers: Buffer) -> tuple[list[Vector], Buffer]:
        """The states of these keys, a vector for each cell, and their times. A vector is a `number` only if some are whole and some not."""
        found, times = self._made.take(numbers)
        size = len(longs(times))
        return [Vector(kind_of(kind), size, *parts) for kind, *parts in found], times

    def dirty(self) -> Buffer:
        """The numbers of the keys that have changed since `settle`, in the order in which they did first; after `retain`, by number."""
        return self._made.dirty()

    def settle(self, write: int = 0) -> None:
        """Whatever has changed goes with the write of this number: `dirty` begins anew."""
        self._made.settle(write)

    def loaded(self, numbers: Buffer, write: int) -> None:
        """The states of these keys are stored, and no newer than this write."""
        self._made.loaded(numbers, write)

    def durable(self, numbers: Buffer, newest: int, waiting: int) -> tuple[Buffer, Buffer]:
        """Which of these keys have a stored state, and have not changed since the write `newest` - `waiting`: their places among the
        numbers, and their numbers. A number below zero is left out."""
        return self._made.durable(numbers, newest, waiting)

    def retain(self, numbers: Buffer) -> None:
        """Forget the states of all keys but these: see `KeyTable.retain`."""
        self._made.retain(numbers)

    def memory(self) -> int:
        """How many bytes are reserved."""
        return self._made.memory()


def _parts(vector: Vector) -> tuple[int, Buffer, Buffer | None, Buffer | None]:
    return number_of(vector.kind), vector.data, vector.offsets, vector.validity


def numbers_in(values: Sequence[Any]) -> Vector | None:
    """A vector of these numbers, of which some may be None; None if one is no int of 64 bits and no float.

    >>> [numbers_in(one).kind for one in ([1, None], [1.5], [1, 1.5])]
    ['int64', 'float64', 'number']
    """
    made: Any = chosen.part.numbers(values)
    return None if made is None else Vector(kind_of(made[0]), len(values), *made[1:])


def null_among(vector: Vector, rows: Buffer | None) -> int | None:
    """The first of these rows that is null, by its place among them."""
    if vector.validity is None and vector.kind != "number":
        return None
    return chosen.part.null_among(_parts(vector), vector.length, rows)


def _addition(
    keys: int, numbers: Buffer, columns: Sequence[Vector | None], rows: Buffer | None, times: Buffer | None
) -> tuple[Any, ...]:
    lengths = {one.length for one in columns if one is not None}
    if len(lengths) > 1:
        raise ValueError("columns have different lengths")
    size = lengths.pop() if lengths else len(longs(numbers if times is None else times))
    return keys, numbers, [None if one is None else _parts(one) for one in columns], size, rows, times
