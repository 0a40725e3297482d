"""Packs states as the bytes that tables store, a commit at a time, and reads them back: msgpack arrays behind a constant head.

A StatePacking knows the shape of the states:

    packing = StatePacking([("n", "int64"), [("count", "int64"), ("sum", "float64")]], head)     # a count, and a mean of two cells
    records = packing.pack(batch)             # of a VectorBatch with the columns n, count, sum: one array for each row
    vectors, odd = packing.unpack(records)    # the same columns, and the rows that are something else

What it decides: nothing. Promises:

- A record is the head and what `msgpack.packb` makes of the list of the states, with a list inside for each list of the shape: what a row
  pipeline stores for the same states, byte for byte.
- `unpack` takes whole numbers for a float64, as states of former code may be; a `number` stays what it is. A record that holds something
  else (another number of states, another type, a whole number beyond 64 bits with a sign) is named in `odd`, and is null in every vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from ..memory.record_spans import RecordSpans, packed, pieces
from ..memory.vectors import Kind, Vector, VectorBatch, number_of
from ..native import compiled_part

State = tuple[str, Kind]


class StatePacking:
    """Packs and unpacks states of one shape; see the top of this file.

    >>> packing = StatePacking([("n", "int64")], b"\\\0")
    >>> packing.pack(VectorBatch(("n",), (Vector.of("int64", [7, None]),), 2)).buffer
    b'\\\x00\\\x91\\\x07\\\x00\\\x91\\\xc0'
    """

    def __init__(self, shape: Sequence[State | list[State]], head: bytes = b"") -> None:
        self.shape = [one if isinstance(one, list) else [one] for one in shape]
        self._nested = [isinstance(one, list) for one in shape]
        self.head = head
        packer: Any = msgpack.Packer()
        self.states: list[State] = []
        self._prefixes: list[bytes] = []
        before = head + packer.pack_array_header(len(shape))
        for states, nested in zip(self.shape, self._nested, strict=True):
            before += packer.pack_array_header(len(states)) if nested else b""
            for state in states:
                self.states.append(state)
                self._prefixes.append(before)
                before = b""

    def pack(self, batch: VectorBatch) -> RecordSpans:
        """The record of each row."""
        if compiled_part.compiled is None:
            columns = [batch[name].values() for name, _ in self.states]
            return packed([self.head + self._packed(list(row)) for row in zip(*columns, strict=True)])
        vectors = [(number_of(one.kind), one.data, one.offsets, one.validity) for one in batch.vectors]
        places = [
            (batch.names.index(name), prefix) for (name, _), prefix in zip(self.states, self._prefixes, strict=True)
        ]
        return RecordSpans(
            *compiled_part.compiled.encode(
                vectors, batch.length, places, [], False, None, None, None, None, None, 0, True
            )
        )

    def _packed(self, row: list[Any]) -> bytes:
        made: list[Any] = []
        for states, nested in zip(self.shape, self._nested, strict=True):
            part, row = row[: len(states)], row[len(states) :]
            made.append(part if nested else part[0])
        library: Any = msgpack
        return library.packb(made)

    def unpack(self, records: RecordSpans) -> tuple[list[Vector], list[int]]:
        """The states of each record, and the indexes of those that hold something else."""
        if compiled_part.compiled is None:
            return self._unpack_slowly(records)
        wanted = [(number_of(kind), prefix) for (_, kind), prefix in zip(self.states, self._prefixes, strict=True)]
        found, odd = compiled_part.compiled.unpack(wanted, *records)
        vectors = [Vector(kind, len(odd), *parts) for (_, kind), parts in zip(self.states, found, strict=True)]
        return vectors, [at for at, is_odd in enumerate(odd) if is_odd] if any(odd) else []

    def _unpack_slowly(self, records: RecordSpans) -> tuple[list[Vector], list[int]]:
        odd: list[int] = []
        rows: list[list[Any]] = []
        for at, data in enumerate(pieces(records)):
            row = self._row(data or b"")
            if row is None:
                odd.append(at)
            rows.append([None] * len(self.states) if row is None else row)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.states)
        return [Vector.of(kind, list(one)) for (_, kind), one in zip(self.states, columns, strict=True)], odd

    def _row(self, data: bytes) -> list[Any] | None:
        """The states of one record; None if it is something else."""
        library: Any = msgpack
        if not data.startswith(self._prefixes[0]):
            return None
        try:
            value: Any = library.unpackb(data[len(self.head) :], strict_map_key=False)
        except (ValueError, TypeError, RecursionError, library.UnpackException):
            return None
        found: list[Any] = []
        for part, states, nested in zip(value, self.shape, self._nested, strict=True):
            if nested and (type(part) is not list or len(part) != len(states)):
                return None
            found += part if nested else [part]
        pairs: list[tuple[Any, Kind]] = [(one, kind) for one, (_, kind) in zip(found, self.states, strict=True)]
        if not all(one is None or _fits(one, kind) for one, kind in pairs):
            return None
        return [float(one) if kind == "float64" and one is not None else one for one, kind in pairs]


def _fits(one: Any, kind: Kind) -> bool:
    is_long = type(one) is int and one < 2**63
    return {"float64": type(one) in (int, float), "number": is_long or type(one) is float}.get(kind, is_long)
