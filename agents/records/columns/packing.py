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

from ..layout import Kind, number_of
from ..memory.record_spans import RecordSpans
from ..memory.vectors import Vector, VectorBatch
from ..native import chosen

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
        vectors = [(number_of(one.kind), one.data, one.offsets, one.validity) for one in batch.vectors]
        places = [
            (batch.names.index(name), prefix) for (name, _), prefix in zip(self.states, self._prefixes, strict=True)
        ]
        return RecordSpans(
            *chosen.part.encode(vectors, batch.length, places, [], False, None, None, None, None, None, 0, True)
        )

    def unpack(self, records: RecordSpans) -> tuple[list[Vector], list[int]]:
        """The states of each record, and the indexes of those that hold something else."""
        wanted = [(number_of(kind), prefix) for (_, kind), prefix in zip(self.states, self._prefixes, strict=True)]
        found, odd = chosen.part.unpack(wanted, *records)
        vectors = [Vector(kind, len(odd), *parts) for (_, kind), parts in zip(self.states, found, strict=True)]
        return vectors, [at for at, is_odd in enumerate(odd) if is_odd] if any(odd) else []
