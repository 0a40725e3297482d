"""Numbers for keys, states by number, and lists of numbers as columns: as `groups.c`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

from ...layout import Buffer, Kind, Parts, column_made, kind_of, longs, number_of, numbers_of_column
from .vectors import values

Holding = Literal["rows", "values", "sum", "min", "max", "total"]
HELD: tuple[Holding, ...] = ("rows", "values", "sum", "min", "max", "total")
"""What a cell holds, in the order of the numbers that the compiled part uses."""
FROM_ZERO = ("rows", "values", "total")
"""Cells that begin with zero; the others begin with null."""


def numbers(listed: Sequence[Any]) -> tuple[Any, ...] | None:
    """Numbers in a list as a column: its type, and its parts. None if one is no int of 64 bits and no float."""
    found = list(listed)
    if not all(one is None or type(one) is float or _is_long(one) for one in found):
        return None
    return _narrow(found)


def null_among(column: Parts, length: int, rows: Buffer | None) -> int | None:
    """The first null of rows."""
    listed = _listed(column, length)
    found = listed if rows is None else [listed[row] for row in longs(rows)]
    return found.index(None) if None in found else None


def _listed(column: Parts, length: int) -> list[Any]:
    is_number = kind_of(column[0]) == "number"
    return numbers_of_column(column[1], column[2], length) if is_number else values(column, length)


def _is_long(one: Any) -> bool:
    return type(one) is int and -(2**63) <= one < 2**63


def _narrow(listed: list[Any]) -> tuple[Any, ...]:
    types: set[type] = set(map(type, listed))
    is_float = float in types
    kind: Kind = "number" if is_float and int in types else "float64" if is_float else "int64"
    return number_of(kind), *column_made(kind, listed)


def _key(one: Any) -> bytes:
    """The bytes of a key that is text, a whole number or a boolean: see `values/keys.py`."""
    if isinstance(one, str):
        return one.encode()
    if isinstance(one, bool):
        return b"\xff\x27" if one else b"\xff\x26"
    size = (one.bit_length() + 7) >> 3
    number = one if one >= 0 else one + (1 << 8 * size) - 1
    return bytes([0xFF, 0x14 + (size if one >= 0 else -size)]) + number.to_bytes(size, "big")


def _checked(numbers: Buffer, below: int) -> list[int]:
    found = longs(numbers).tolist()
    if any(not 0 <= one < below for one in found):
        raise ValueError("no such key or row")
    return found


class Keys:
    """Numbers for keys, with a dict: Python seeds its hashes itself, so no one can choose keys that collide."""

    def __init__(self, seed: int = 0) -> None:
        self.known: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.known)

    def _numbered(self, keys: Sequence[bytes | None]) -> array[int]:
        known = self.known
        return array("q", [-1 if key is None else known.setdefault(key, len(known)) for key in keys])

    def numbers(self, vector: Any, length: int, rows: Buffer | None) -> array[int]:
        if kind_of(vector[0]) in ("float64", "number"):
            raise ValueError("a float64 is no key")
        listed = values(vector, length)
        found = listed if rows is None else [listed[row] for row in _checked(rows, length)]
        return self._numbered([None if one is None else _key(one) for one in found])

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

    def found(self, keys: list[Any]) -> array[int]:
        known = self.known
        return array("q", [known.get(one.encode() if isinstance(one, str) else one, -1) for one in keys])

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


class Cells:
    """States, with a list for each cell; a state of None is null."""

    def __init__(self, cells: list[int]) -> None:
        self.cells: list[Holding] = [HELD[held] for held in cells]
        self.states: list[list[Any]] = [[] for _ in cells]
        self.changed: dict[int, int] = {}
        self.times: list[int] = []
        self.writes: dict[int, int] = {}
        """By key, the write with which it was settled last."""

    def _columns(self, args: tuple[Any, ...], merging: bool) -> Any:
        """(key, row) of each addition, the values of each column, and the times."""
        keys, numbers, columns, length, rows, times = args
        if len(columns) != len(self.cells):
            raise ValueError("there are other columns than cells")
        found = _checked(numbers, keys)
        chosen = range(length) if rows is None else _checked(rows, length)
        if len(found) != len(chosen) or (times is not None and len(longs(times)) < length):
            raise ValueError("columns have different lengths")
        columned: list[Any] = []
        for held, column in zip(self.cells, columns, strict=True):
            if column is None and (merging or held != "rows"):
                raise TypeError("a cell without a column")
            counts = held in ("rows", "values")
            allowed = ("int64",) if counts else ("int64", "float64", "number")
            if column is not None and (merging or held != "values") and kind_of(column[0]) not in allowed:
                raise ValueError("a cell gets a column of another type")
            columned.append(None if column is None else _listed(column, length))
        for held, states in zip(self.cells, self.states, strict=True):
            states.extend([0 if held in FROM_ZERO else None] * (keys - len(states)))
        self.times.extend([0] * (keys - len(self.times)))
        return list(zip(found, chosen, strict=True)), columned, None if times is None else longs(times)

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
        pairs, given, times = self._columns(args, merging)
        states = [list(one) for one in self.states] if looking else self.states
        left_out: list[int] = []
        for number, row in pairs:
            made: list[Any] = []
            for held, own, column in zip(self.cells, states, given, strict=True):
                one = self._added(held, merging, own[number], None if column is None else column[row])
                if type(one) is int and not -(2**63) <= one < 2**63:
                    left_out.append(row)
                    break
                made.append(one)
            else:
                for own, one in zip(states, made, strict=True):
                    own[number] = one
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
        pairs, given, times = self._columns(args, True)
        for held, states, column in zip(self.cells, self.states, given, strict=True):
            for number, row in pairs:
                states[number] = 0 if column[row] is None and held in FROM_ZERO else column[row]
        if times is not None:
            for number, row in pairs:
                self._touch(number, times[row])

    def take(self, numbers: Buffer) -> tuple[list[Any], array[int]]:
        found = _checked(numbers, len(self.times))
        return [_narrow([states[one] for one in found]) for states in self.states], array(
            "q", [self.times[one] for one in found]
        )

    def dirty(self) -> array[int]:
        return array("q", self.changed)

    def settle(self, write: int) -> None:
        self.writes |= dict.fromkeys(self.changed, write)
        self.changed = {}

    def loaded(self, numbers: Buffer, write: int) -> None:
        self.writes |= dict.fromkeys(_checked(numbers, len(self.times)), write)

    def durable(self, numbers: Buffer, newest: int, waiting: int) -> tuple[array[int], array[int]]:
        found = [
            (place, one)
            for place, one in enumerate(longs(numbers).tolist())
            if 0 <= one < len(self.times)
            and one not in self.changed
            and self.writes.get(one, -1) >= 0
            and newest - self.writes[one] >= waiting
        ]
        return array("q", [place for place, _ in found]), array("q", [one for _, one in found])

    def retain(self, numbers: Buffer) -> None:
        found = _checked(numbers, len(self.times))
        self.states = [[states[one] for one in found] for states in self.states]
        self.times = [self.times[one] for one in found]
        self.writes = {new: self.writes[old] for new, old in enumerate(found) if old in self.writes}
        self.changed = {new: self.changed[old] for new, old in enumerate(found) if old in self.changed}

    def memory(self) -> int:
        return len(self.times) * (16 + 40 * len(self.cells))
