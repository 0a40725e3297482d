"""Writes Arrow IPC streams: a schema, one record batch, the end marker. The metadata of a batch is laid out once.

What it decides: where the numbers and the buffers of a batch stand. Promises:

- What `StreamWriter.stream` writes passes the checks of `arrow`, if the buffers are what the fields say,
  and is what every Arrow library reads.
- Equal arguments give equal bytes. Every buffer begins at a multiple of 8 bytes; a buffer without nulls to name is empty.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from .arrow import HEADERS, KEY, TIMESTAMP

WrittenType = Literal["int64", "float64", "bool", "utf8", "binary", "struct", "list"]

_TYPES: dict[WrittenType, tuple[int, list[tuple[str, int]]]] = {
    "int64": (2, [("<i", 64), ("<B", 1)]),
    "float64": (3, [("<h", 2)]),
    "binary": (4, []),
    "utf8": (5, []),
    "bool": (6, []),
    "list": (12, []),
    "struct": (13, []),
}
"""The number of each type in the Arrow format, and the fields of its own table."""
_SCHEMA, _RECORD_BATCH, _V5 = 1, 3, 4
_CONTINUED = b"\xff\xff\xff\xff"
_END = _CONTINUED + bytes(4)


class WrittenField(NamedTuple):
    """One column, or one within a struct or list."""

    name: str
    type: WrittenType
    nullable: bool = True
    children: tuple[WrittenField, ...] = ()


KEY_FIELD, TIMESTAMP_FIELD = WrittenField(KEY, "binary"), WrittenField(TIMESTAMP, "int64", nullable=False)
_PAIR = WrittenField(
    "item",
    "struct",
    nullable=False,
    children=(WrittenField("name", "utf8", nullable=False), WrittenField("value", "binary")),
)
HEADERS_FIELD = WrittenField(HEADERS, "list", children=(_PAIR,))


class WrittenPart(NamedTuple):
    """What a batch holds of one field: its rows, its nulls, and its buffers in the order of the format (the validity comes first)."""

    length: int
    nulls: int
    buffers: Sequence[Any]


class StreamWriter:
    """Writes streams of one schema."""

    def __init__(self, fields: Sequence[WrittenField], metadata: Mapping[str, str]) -> None:
        schema = [_Scalar("<h", 0), list(map(_field, fields)), [[key, value] for key, value in metadata.items()]]
        self._schema = _message(_SCHEMA, schema, _Flat())
        nodes, buffers = map(sum, zip(*map(_counts, fields), strict=True))
        places = _Flat()
        self._batch = _message(
            _RECORD_BATCH, [_Scalar("<q", 0, "rows"), _Pairs(nodes, "nodes"), _Pairs(buffers, "buffers")], places
        )
        self._places = [8 + places.marks[name] for name in ("rows", "nodes", "buffers", "body")]
        self._nodes, self._buffers = struct.Struct(f"<{2 * nodes}q"), struct.Struct(f"<{2 * buffers}q")

    def stream(self, rows: int, parts: Sequence[WrittenPart]) -> list[Any]:
        """The pieces of a stream of one batch, to be joined; `parts` are those of the fields, children behind their parents."""
        nodes: list[int] = []
        buffers: list[int] = []
        body: list[Any] = []
        at = 0
        for part in parts:
            nodes += part.length, part.nulls
            for buffer in part.buffers:
                size = memoryview(buffer).nbytes
                buffers += at, size
                body.append(buffer)
                if size % 8:
                    body.append(bytes(-size % 8))
                at += size + -size % 8
        head = bytearray(self._batch)
        in_rows, in_nodes, in_buffers, in_body = self._places
        struct.pack_into("<q", head, in_rows, rows)
        self._nodes.pack_into(head, in_nodes, *nodes)
        self._buffers.pack_into(head, in_buffers, *buffers)
        struct.pack_into("<q", head, in_body, at)
        return [self._schema, head, *body, _END]


def _counts(field: WrittenField) -> tuple[int, int]:
    """How many nodes and buffers a batch has for a field."""
    own = 3 if field.type in ("utf8", "binary") else 1 if field.type == "struct" else 2
    below = list(map(_counts, field.children))
    return 1 + sum(nodes for nodes, _ in below), own + sum(buffers for _, buffers in below)


def _field(field: WrittenField) -> list[Any]:
    number, own = _TYPES[field.type]
    nullable = _Scalar("<B", int(field.nullable))
    return [
        field.name,
        nullable,
        _Scalar("<B", number),
        _Table([_Scalar(*one) for one in own]),
        None,
        list(map(_field, field.children)),
    ]


def _message(kind: int, header: list[Any], flat: _Flat) -> bytes:
    """A message without its body: the mark, the size, the metadata."""
    flat.root([_Scalar("<h", _V5), _Scalar("<B", kind), _Table(header), _Scalar("<q", 0, "body")])
    size = len(flat.data) + -len(flat.data) % 8
    return _CONTINUED + struct.pack("<i", size) + bytes(flat.data) + bytes(size - len(flat.data))


# ----------------------------------------------------------------------------------------------------------- FlatBuffers


class _Table(list[Any]):
    """The fields of a table within a table."""


class _Scalar(NamedTuple):
    """A number in this form of `struct`; `mark` names its place."""

    form: str
    value: int
    mark: str = ""


class _Pairs(NamedTuple):
    """A vector of so many pairs of 64-bit numbers, zeros for now; `mark` names its place."""

    pairs: int
    mark: str


class _Flat:
    """Builds a FlatBuffer from front to back: every object stands behind the one that refers to it.

    A table is a list of its fields: a scalar, a text, another table as `_Table`, a list of tables, pairs, or None for an absent field.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.marks: dict[str, int] = {}

    def root(self, fields: list[Any]) -> None:
        self.data += bytes(4)
        self._refer(0, self._table(fields))

    def _align(self, size: int, ahead: int = 0) -> None:
        self.data += bytes(-(len(self.data) + ahead) % size)

    def _refer(self, place: int, target: int) -> None:
        struct.pack_into("<I", self.data, place, target - place)

    def _table(self, fields: list[Any]) -> int:
        """Write a table, then what it refers to. Returns where it stands."""
        inline, size = [0] * len(fields), 4
        for index, field in enumerate(fields):
            if field is None:
                continue
            width = struct.calcsize(field.form) if isinstance(field, _Scalar) else 4
            size += -size % width
            inline[index] = size
            size += width
        head = struct.pack(f"<HH{len(fields)}H", 4 + 2 * len(fields), size, *inline)
        self._align(8, len(head))
        vtable = len(self.data)
        self.data += head
        at = len(self.data)
        self.data += struct.pack("<i", at - vtable) + bytes(size - 4)
        for index, field in enumerate(fields):
            if field is not None:
                self._value(field, at + inline[index])
        return at

    def _value(self, field: Any, place: int) -> None:
        if isinstance(field, str):
            text = field.encode()
            self._align(4)
            self._refer(place, len(self.data))
            self.data += struct.pack("<I", len(text)) + text + b"\0"
        elif isinstance(field, _Table):
            self._refer(place, self._table(field))
        elif isinstance(field, _Pairs):
            self._align(8, 4)
            self._refer(place, len(self.data))
            self.data += struct.pack("<I", field.pairs)
            self.marks[field.mark] = len(self.data)
            self.data += bytes(16 * field.pairs)
        elif isinstance(field, list):
            tables = cast("list[list[Any]]", field)
            self._align(4)
            self._refer(place, len(self.data))
            self.data += struct.pack("<I", len(tables))
            first = len(self.data)
            self.data += bytes(4 * len(tables))
            for index, one in enumerate(tables):
                self._refer(first + 4 * index, self._table(one))
        else:
            assert isinstance(field, _Scalar)
            struct.pack_into(field.form, self.data, place, field.value)
            self.marks[field.mark] = place
