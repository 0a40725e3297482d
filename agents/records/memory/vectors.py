"""Vectors: columns in the memory layout of Apache Arrow, which other libraries take over without copying.

A `Vector` is one column, and lies in memory as `layout` says. A `VectorBatch` is several of equal length, with their names. A `number`,
which is no type of a declared column, is not exported.

What it decides: nothing. Promises:

- Both export the Arrow PyCapsule interface (`__arrow_c_schema__`, `__arrow_c_array__`): `pyarrow.record_batch(batch)` and
  `polars.DataFrame(batch)` copy nothing, and headgate needs neither. Each exported structure keeps what it points to alive until the
  library that took it has released it, in whatever order and on whatever thread it releases or moves them, also while an exception is being
  raised; what no one took is released with its capsule. Without the compiled part, pyarrow makes the capsules.
- Buffers are never changed after they have been handed out. Integers in them are in the machine's byte order.
- All columns of indexes, lengths, offsets of records and times are buffers of 64-bit integers, format `q` (`array("q")`, `memoryview`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..layout import KINDS, Buffer, Kind, bit, both, column_made, number_of, numbers_of_column
from ..native import chosen


@dataclass(slots=True)
class Vector:
    """One column. `nulls` is the number of null rows; their place in `data` is filled with zeros, or is empty text."""

    kind: Kind
    length: int
    data: Buffer
    offsets: Buffer | None = None
    validity: Buffer | None = None
    nulls: int = 0

    @classmethod
    def of(cls, kind: Kind, values: Sequence[Any]) -> Vector:
        """A vector of these values; None is null. The values have been checked: an int of 64 bits, a float, a bool, or text.

        >>> Vector.of("text", ["a", None, "ö"]).values()
        ['a', None, 'ö']
        """
        return cls(kind, len(values), *column_made(kind, values))

    def __len__(self) -> int:
        return self.length

    def values(self) -> list[Any]:
        """The column as plain values, with None for null: for tests, and for steps that work in rows."""
        if self.kind == "number":
            return numbers_of_column(self.data, self.offsets, self.length)
        parts = KINDS.index(self.kind), self.data, self.offsets, self.validity
        return chosen.part.values(parts, self.length)

    def only(self, rows: Buffer) -> Vector:
        """The same column, null except where these bits are set.

        >>> Vector.of("int64", [7, None, 9]).only(b"\\x03").values()
        [7, None, None]
        """
        size = (self.length + 7) // 8
        valid = bytes(memoryview(rows).cast("B")[:size]) if self.validity is None else both(self.validity, rows, size)
        set_bits = (int.from_bytes(valid, "little") & ((1 << self.length) - 1)).bit_count()
        return Vector(self.kind, self.length, self.data, self.offsets, valid, self.length - set_bits)

    def at(self, row: int) -> Any:
        """The value of one row, None for null."""
        if self.validity is not None and not bit(self.validity, row):
            return None
        if self.kind == "bool":
            return bit(self.data, row)
        if self.kind == "text":
            ends = memoryview(self.offsets or b"").cast("B").cast("i")
            return bytes(memoryview(self.data).cast("B")[ends[row] : ends[row + 1]]).decode()
        return memoryview(self.data).cast("B").cast("q" if self.kind == "int64" else "d")[row]

    def __arrow_c_schema__(self) -> Any:
        return self.__arrow_c_array__()[0]

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return _vector_capsules(self)


class Octets(Vector):
    """A column of bytes that came as they are. What it stores, base64, is made when it is asked for, once."""

    __slots__ = ("_stored", "plain")

    def __init__(self, plain: Vector) -> None:
        """`plain`: the bytes, in the layout of text."""
        self.plain = plain
        self._stored: Vector | None = None
        self.kind, self.length, self.validity, self.nulls = plain.kind, plain.length, plain.validity, plain.nulls

    def _text(self) -> Vector:
        if self._stored is None:
            plain = self.plain
            parts = KINDS.index(plain.kind), plain.data, plain.offsets, plain.validity
            made = chosen.part.to_base64(plain.data, *chosen.part.text_spans(parts, plain.length))
            self._stored = Vector(plain.kind, plain.length, *made)
        return self._stored

    @property
    def data(self) -> Buffer:
        return self._text().data

    @property
    def offsets(self) -> Buffer | None:
        return self._text().offsets


@dataclass(slots=True)
class VectorBatch:
    """Vectors of equal length under their names: a table, exported to Arrow as a struct without nulls.

    >>> VectorBatch(("n",), (Vector.of("int64", [1, None]),), 2).rows()
    [{'n': 1}, {'n': None}]
    """

    names: tuple[str, ...]
    vectors: tuple[Vector, ...]
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, name: str) -> Vector:
        return self.vectors[self.names.index(name)]

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return dicts_of(self.names, self.length, [vector.values() for vector in self.vectors])

    def __arrow_c_schema__(self) -> Any:
        return self.__arrow_c_array__()[0]

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return _batch_capsules(self)


def dicts_of(names: tuple[str, ...], length: int, columns: list[list[Any]]) -> list[dict[str, Any]]:
    """Columns as a dict for each row.

    >>> dicts_of(("a", "b"), 2, [[1, 2], [3, 4]])
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 4}]
    """
    return chosen.part.dicts(names, columns, length)


# ---------------------------------------------------------------------------------------------------------------- capsules


def _vector_capsules(vector: Vector) -> tuple[Any, Any]:
    """The type of a vector and the vector itself, each in a capsule."""
    return chosen.part.arrow_give(True, [_given("", vector)], vector.length)


def _batch_capsules(batch: VectorBatch) -> tuple[Any, Any]:
    """The types of a batch and the batch itself, each in a capsule."""
    columns = [_given(name, one) for name, one in zip(batch.names, batch.vectors, strict=True)]
    return chosen.part.arrow_give(False, columns, batch.length)


def _given(name: str, vector: Vector) -> tuple[str, tuple[Any, ...], int]:
    return name, (number_of(vector.kind), vector.data, vector.offsets, vector.validity), vector.nulls
