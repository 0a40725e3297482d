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
`sum`. Null values are left out, as in SQL; a sum, min or max of no value is null. A state is an int64 or a float64, for each key what
Python makes of its numbers: a sum of whole numbers is whole until a float is added; a whole number and a float are compared exactly.

What it decides: what the state of a key becomes. Promises:

- Keys are those of `keys.py`, as bytes: text is its UTF-8, an int64 and a bool have the same bytes as there. A float64 is no key.
- The number of a key stays what it is until `retain`, which forgets all other keys and numbers the rest anew. Whoever holds numbers has to
  renumber with it: a `StateColumns` by its own `retain`, with the same numbers. Both do so between two chunks.
- A whole number never wraps: `overflows` names the rows that would take a sum or count beyond 64 bits if the others were added in their
  order, and `add` and `merge` leave just these out, whole, and return them. A first value is taken as it is; floats are added in the order
  of the rows, so a replay gives the same bits.
- `merge` adds partial states (what `take` of a table with the same cells returned); `put` sets states, and marks their keys as changed only
  if it gets their times.
- The time of a changed key is the greatest of its rows since `settle`.
- Numbers of keys and rows are checked before anything is added; what does not fit together raises `ValueError`. A table belongs to one
  thread at a time; another one gets a `RuntimeError`.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

from ..memory.record_spans import RecordSpans
from ..memory.vectors import Buffer, Vector, kind_of, longs, number_of
from ..native import compiled_part
from ..values.keys import encode

Holding = Literal["rows", "values", "sum", "min", "max"]
_HELD: tuple[Holding, ...] = ("rows", "values", "sum", "min", "max")


class KeyTable:
    """Numbers for keys, from 0 on, in the order in which they come first; see the top of this file.

    >>> table = KeyTable()
    >>> longs(table.numbers(Vector.of("text", ["b", "a", None, "b"]))).tolist(), len(table)
    ([0, 1, -1, 0], 2)
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        built = compiled_part.compiled
        # the seed is secret, so that nobody can choose keys that collide
        self._made: Any = _PlainKeys() if built is None else built.Keys(secrets.randbits(64))

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
        built = compiled_part.compiled
        wanted = [_HELD.index(held) for held in self.cells]
        self._made: Any = _PlainCells(wanted) if built is None else built.Cells(wanted)

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

    def settle(self) -> None:
        """Whatever has changed is written: `dirty` begins anew."""
        self._made.settle()

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
    if compiled_part.compiled is None:
        found = list(values)
        if not all(one is None or type(one) is float or _is_long(one) for one in found):
            return None
        return _narrow(found)
    made: Any = compiled_part.compiled.numbers(values)
    return None if made is None else Vector(kind_of(made[0]), len(values), *made[1:])


def null_among(vector: Vector, rows: Buffer | None) -> int | None:
    """The first of these rows that is null, by its place among them."""
    if vector.validity is None and vector.kind != "number":
        return None
    if compiled_part.compiled is None:
        values = vector.values()
        found = values if rows is None else [values[row] for row in longs(rows)]
        return found.index(None) if None in found else None
    return compiled_part.compiled.null_among(_parts(vector), vector.length, rows)


def _is_long(one: Any) -> bool:
    return type(one) is int and -(2**63) <= one < 2**63


def _narrow(values: list[Any]) -> Vector:
    types: set[type] = set(map(type, values))
    is_float = float in types
    return Vector.of("number" if is_float and int in types else "float64" if is_float else "int64", values)


def _addition(
    keys: int, numbers: Buffer, columns: Sequence[Vector | None], rows: Buffer | None, times: Buffer | None
) -> tuple[Any, ...]:
    lengths = {one.length for one in columns if one is not None}
    if len(lengths) > 1:
        raise ValueError("columns have different lengths")
    size = lengths.pop() if lengths else len(longs(numbers if times is None else times))
    return keys, numbers, [None if one is None else _parts(one) for one in columns], size, rows, times


# ------------------------------------------------------------------------------------------------ without the compiled part


def _values(parts: Any, length: int) -> list[Any]:
    kind, data, offsets, validity = parts
    return Vector(kind_of(kind), length, data, offsets, validity, 0).values()


def _checked(numbers: Buffer, below: int) -> list[int]:
    found = longs(numbers).tolist()
    if any(not 0 <= one < below for one in found):
        raise ValueError("no such key or row")
    return found


class _PlainKeys:
    """As `Keys` of the compiled part, with a dict."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.known)

    def _numbered(self, keys: Sequence[bytes | None]) -> array[int]:
        known = self.known
        return array("q", [-1 if key is None else known.setdefault(key, len(known)) for key in keys])

    def numbers(self, vector: Any, length: int, rows: Buffer | None) -> array[int]:
        if kind_of(vector[0]) in ("float64", "number"):
            raise ValueError("a float64 is no key")
        values = _values(vector, length)
        found = values if rows is None else [values[row] for row in _checked(rows, length)]
        return self._numbered([None if one is None else encode(one) for one in found])

    def numbers_of(self, buffer: Buffer, offsets: Buffer, lengths: Buffer, rows: Buffer | None) -> array[int]:
        starts, sizes, data = longs(offsets).tolist(), longs(lengths).tolist(), bytes(buffer)
        if len(starts) != len(sizes):
            raise ValueError("offsets and lengths are not as many")
        for start, size in zip(starts, sizes, strict=True):
            if size != -1 and (start < 0 or size < 0 or start + size > len(data)):
                raise ValueError("a key lies outside of its column")
        found = [None if size == -1 else data[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        return self._numbered(found if rows is None else [found[row] for row in _checked(rows, len(found))])

    def numbers_listed(self, keys: list[Any]) -> array[int]:
        found = [one.encode() if isinstance(one, str) else one for one in keys]
        if not all(one is None or isinstance(one, bytes) for one in found):
            raise TypeError("a key is bytes or text")
        return self._numbered(found)

    def keys(self, numbers: Buffer, prefix: bytes) -> tuple[Any, ...]:
        listed = list(self.known)
        found = [prefix + listed[one] for one in _checked(numbers, len(listed))]
        sizes, before = array("q", map(len, found)), len(prefix)
        starts = array("q", [0, *accumulate(sizes)][: len(found)])
        own = array("q", [one + before for one in starts]), array("q", [one - before for one in sizes])
        return b"".join(found), *own, starts, sizes

    def retain(self, numbers: Buffer) -> None:
        listed = list(self.known)
        found = [listed[one] for one in _checked(numbers, len(listed))]
        if len(set(found)) != len(found):
            raise ValueError("a key comes twice")
        self.known = {key: number for number, key in enumerate(found)}

    def memory(self) -> int:
        return sum(100 + len(key) for key in self.known)


class _PlainCells:
    """As `Cells` of the compiled part, with a list for each cell; a state of None is null."""

    def __init__(self, cells: list[int]) -> None:
        self.cells: list[Holding] = [_HELD[held] for held in cells]
        self.states: list[list[Any]] = [[] for _ in cells]
        self.changed: dict[int, int] = {}
        self.times: list[int] = []

    def _columns(self, args: tuple[Any, ...], merging: bool) -> Any:
        """(key, row) of each addition, the values of each column, and the times."""
        keys, numbers, columns, length, rows, times = args
        if len(columns) != len(self.cells):
            raise ValueError("there are other columns than cells")
        found = _checked(numbers, keys)
        chosen = range(length) if rows is None else _checked(rows, length)
        if len(found) != len(chosen) or (times is not None and len(longs(times)) < length):
            raise ValueError("columns have different lengths")
        values: list[Any] = []
        for held, column in zip(self.cells, columns, strict=True):
            if column is None and (merging or held != "rows"):
                raise TypeError("a cell without a column")
            counts = held in ("rows", "values")
            allowed = ("int64",) if counts else ("int64", "float64", "number")
            if column is not None and (merging or held != "values") and kind_of(column[0]) not in allowed:
                raise ValueError("a cell gets a column of another type")
            values.append(None if column is None else _values(column, length))
        for held, states in zip(self.cells, self.states, strict=True):
            states.extend([0 if held in ("rows", "values") else None] * (keys - len(states)))
        self.times.extend([0] * (keys - len(self.times)))
        return list(zip(found, chosen, strict=True)), values, None if times is None else longs(times)

    def _added(self, held: Holding, merging: bool, state: Any, value: Any) -> Any:
        """A state with a value added."""
        if held == "rows" and not merging:
            return state + 1
        if value is None:
            return state
        if held == "values" and not merging:
            return state + 1
        if state is None:
            return value
        if held == "min":
            return value if value < state else state
        if held == "max":
            return value if value > state else state
        return state + value

    def _touch(self, number: int, time: int) -> None:
        self.changed[number] = self.times[number] = max(self.changed.get(number, time), time)

    def _go(self, args: Any, merging: bool, looking: bool) -> list[int]:
        pairs, values, times = self._columns(args, merging)
        states = [list(one) for one in self.states] if looking else self.states
        left_out: list[int] = []
        for number, row in pairs:
            made: list[Any] = []
            for held, mine, column in zip(self.cells, states, values, strict=True):
                one = self._added(held, merging, mine[number], None if column is None else column[row])
                if type(one) is int and not -(2**63) <= one < 2**63:
                    left_out.append(row)
                    break
                made.append(one)
            else:
                for mine, one in zip(states, made, strict=True):
                    mine[number] = one
                if not looking:
                    self._touch(number, 0 if times is None else times[row])
        return left_out

    def add(self, *args: Any) -> list[int]:
        return self._go(args, False, False)

    def overflows(self, *args: Any) -> list[int]:
        return self._go(args, False, True)

    def merge(self, *args: Any) -> list[int]:
        return self._go(args, True, False)

    def merge_overflows(self, *args: Any) -> list[int]:
        return self._go(args, True, True)

    def put(self, *args: Any) -> None:
        pairs, values, times = self._columns(args, True)
        for held, states, column in zip(self.cells, self.states, values, strict=True):
            for number, row in pairs:
                states[number] = 0 if column[row] is None and held in ("rows", "values") else column[row]
        if times is not None:
            for number, row in pairs:
                self._touch(number, times[row])

    def take(self, numbers: Buffer) -> tuple[list[Any], array[int]]:
        found = _checked(numbers, len(self.times))
        made = [_narrow([states[one] for one in found]) for states in self.states]
        parts = [(number_of(one.kind), one.data, one.offsets, one.validity, one.nulls) for one in made]
        return parts, array("q", [self.times[one] for one in found])

    def dirty(self) -> array[int]:
        return array("q", self.changed)

    def settle(self) -> None:
        self.changed = {}

    def retain(self, numbers: Buffer) -> None:
        found = _checked(numbers, len(self.times))
        self.states = [[states[one] for one in found] for states in self.states]
        self.times = [self.times[one] for one in found]
        self.changed = {new: self.changed[old] for new, old in enumerate(found) if old in self.changed}

    def memory(self) -> int:
        return len(self.times) * (16 + 40 * len(self.cells))
