"""Vectors: columns in the memory layout of Apache Arrow, which other libraries take over without copying.

A `Vector` is one column: `int64` and `float64` hold eight bytes a row, `bool` one bit a row, `text` its UTF-8 with `offsets` of 32 bits.
`validity` has one bit a row, and is None if no row is null. A `VectorBatch` is several of equal length, with their names.

`number` is no type of a declared column: it holds an int64 or a float64 a row, as states of rows do, and `offsets` has one tag a row that
says which, or that the row is null. It is not exported.

What it decides: nothing. Promises:

- Both export the Arrow PyCapsule interface (`__arrow_c_schema__`, `__arrow_c_array__`): `pyarrow.record_batch(batch)` and
  `polars.DataFrame(batch)` copy nothing, and headgate needs neither. Each exported structure keeps what it points to alive until the
  library that took it has released it, in whatever order and on whatever thread it releases or moves them, also while an exception is being
  raised; what nobody took is released with its capsule. Without the compiled part, pyarrow makes the capsules.
- Buffers are never changed after they have been handed out. Integers in them are in the machine's byte order.
- All columns of indexes, lengths, offsets of records and times are buffers of 64-bit integers, format `q` (`array("q")`, `memoryview`).
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ....core.columns.schema import ColumnKind
from ..native import compiled_part

Kind = ColumnKind | Literal["number"]
KINDS: tuple[ColumnKind, ...] = ("int64", "float64", "bool", "text")
"""The types of a column, in the order of the numbers that the compiled part uses."""
NUMBER = 6
"""The number of the type `number` in the compiled part."""
NOTHING, WHOLE, FRACTION = 0, 1, 2
"""The tags of a `number`: null, an int64, a float64."""

Buffer = Any
"""Anything with the buffer protocol: bytes, bytearray, memoryview, array."""


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
        nulls = values.count(None)
        validity = _bits([value is not None for value in values]) if nulls else None
        if kind == "text":
            parts = [b"" if value is None else value.encode() for value in values]
            offsets, end = array("i", [0]), 0
            for part in parts:
                end += len(part)
                offsets.append(end)
            return cls(kind, len(values), b"".join(parts), offsets, validity, nulls)
        if kind == "bool":
            return cls(kind, len(values), _bits(values), None, validity, nulls)
        if kind == "number":
            filled = [0 if value is None else value for value in values]
            parts = [array("q" if type(value) is int else "d", [value]).tobytes() for value in filled]
            tags = bytes(NOTHING if one is None else WHOLE if type(one) is int else FRACTION for one in values)
            return cls(kind, len(values), b"".join(parts), tags, None, nulls)
        code = "q" if kind == "int64" else "d"
        data = array(code, [0 if value is None else value for value in values] if nulls else values)
        return cls(kind, len(values), data, None, validity, nulls)

    def __len__(self) -> int:
        return self.length

    def values(self) -> list[Any]:
        """The column as plain values, with None for null: for tests, and for steps that work in rows."""
        found: list[Any]
        if compiled_part.compiled is not None and self.kind != "number":
            parts = KINDS.index(self.kind), self.data, self.offsets, self.validity
            return compiled_part.compiled.values(parts, self.length)
        if self.kind == "text":
            assert self.offsets is not None
            data, ends = bytes(self.data), memoryview(self.offsets).cast("B").cast("i").tolist()
            found = [data[ends[i] : ends[i + 1]].decode() for i in range(self.length)]
        elif self.kind == "bool":
            found = _from_bits(self.data, self.length)
        elif self.kind == "number":
            whole, fractions = (memoryview(self.data).cast("B").cast(code) for code in ("q", "d"))
            tags = memoryview(self.offsets or b"").cast("B")
            return [(None, whole[at], fractions[at])[tags[at]] for at in range(self.length)]
        else:
            code = "q" if self.kind == "int64" else "d"
            found = memoryview(self.data).cast("B").cast(code).tolist()[: self.length]
        if self.validity is None:
            return found
        valid = _from_bits(self.validity, self.length)
        return [value if is_valid else None for value, is_valid in zip(found, valid, strict=True)]

    def at(self, row: int) -> Any:
        """The value of one row, None for null."""
        if self.validity is not None and not _bit(self.validity, row):
            return None
        if self.kind == "bool":
            return _bit(self.data, row)
        if self.kind == "text":
            ends = memoryview(self.offsets or b"").cast("B").cast("i")
            return bytes(memoryview(self.data).cast("B")[ends[row] : ends[row + 1]]).decode()
        return memoryview(self.data).cast("B").cast("q" if self.kind == "int64" else "d")[row]

    def __arrow_c_schema__(self) -> Any:
        return self.__arrow_c_array__()[0]

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return _vector_capsules(self)


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


def number_of(kind: Kind) -> int:
    """The number of a type in the compiled part."""
    return NUMBER if kind == "number" else KINDS.index(kind)


def kind_of(number: int) -> Kind:
    """The type with this number."""
    return "number" if number == NUMBER else KINDS[number]


def dicts_of(names: tuple[str, ...], length: int, columns: list[list[Any]]) -> list[dict[str, Any]]:
    """Columns as a dict for each row.

    >>> dicts_of(("a", "b"), 2, [[1, 2], [3, 4]])
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 4}]
    """
    if compiled_part.compiled is not None:
        return compiled_part.compiled.dicts(names, columns, length)
    records = zip(*columns, strict=True) if columns else [()] * length
    return [dict(zip(names, record, strict=True)) for record in records]


def longs(buffer: Buffer) -> memoryview:
    """A buffer of 64-bit integers, to be read item by item.

    >>> longs(b"\\x07" + bytes(7)).tolist()
    [7]
    """
    view = memoryview(buffer)
    return view if view.format == "q" else view.cast("B").cast("q")


def _bits(flags: Sequence[Any]) -> bytearray:
    bits = bytearray((len(flags) + 7) // 8)
    for index, flag in enumerate(flags):
        if flag:
            bits[index >> 3] |= 1 << (index & 7)
    return bits


def _from_bits(bits: Buffer, length: int) -> list[bool]:
    view = memoryview(bits).cast("B")
    return [bool(view[index >> 3] >> (index & 7) & 1) for index in range(length)]


def _bit(bits: Buffer, index: int) -> bool:
    return bool(memoryview(bits).cast("B")[index >> 3] >> (index & 7) & 1)


# ---------------------------------------------------------------------------------------------------------------- capsules

_ARROW = {"int64": "int64", "float64": "float64", "bool": "bool_", "text": "string"}


def _vector_capsules(vector: Vector) -> tuple[Any, Any]:
    """The type of a vector and the vector itself, each in a capsule."""
    if compiled_part.compiled is None:
        return _arrow_array(vector).__arrow_c_array__()
    return compiled_part.compiled.arrow_give(True, [_given("", vector)], vector.length)


def _batch_capsules(batch: VectorBatch) -> tuple[Any, Any]:
    """The types of a batch and the batch itself, each in a capsule."""
    if compiled_part.compiled is None:
        pa: Any = importlib.import_module("pyarrow")
        made = pa.RecordBatch.from_arrays([*map(_arrow_array, batch.vectors)], names=list(batch.names))
        return made.__arrow_c_array__()
    columns = [_given(name, one) for name, one in zip(batch.names, batch.vectors, strict=True)]
    return compiled_part.compiled.arrow_give(False, columns, batch.length)


def _given(name: str, vector: Vector) -> tuple[str, tuple[Any, ...], int]:
    return name, (number_of(vector.kind), vector.data, vector.offsets, vector.validity), vector.nulls


def _arrow_type(vector: Vector) -> Any:
    return getattr(importlib.import_module("pyarrow"), _ARROW[vector.kind])()


def _arrow_array(vector: Vector) -> Any:
    pa: Any = importlib.import_module("pyarrow")
    own = [vector.data] if vector.offsets is None else [vector.offsets, vector.data]
    buffers = [None if one is None else pa.py_buffer(one) for one in (vector.validity, *own)]
    return pa.Array.from_buffers(_arrow_type(vector), vector.length, buffers, vector.nulls)
