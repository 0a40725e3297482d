"""Arrow streams that headgate writes: byte by byte the same for ever, read by pyarrow, and by the walk that checks frames."""

from __future__ import annotations

import struct

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.progress.arrow import ArrowPart
from headgate.core.progress.arrow_writer import (
    HEADERS_FIELD,
    KEY_FIELD,
    TIMESTAMP_FIELD,
    StreamWriter,
    WrittenField,
    WrittenPart,
)
from headgate.core.progress.frames import decode

GOLDEN = (
    "ffffffff90010000100000000c00180004000600080010000c00000004000100200000000000000000000000000000000000000000000a0010000400"
    "08000c000a0000000000000008000000ec000000030000001c00000058000000a4000000100014000400080009000c00000010001000000010000000"
    "010400001c0000001c000000050000005f5f6b657900000000000000040004000400000000000000100014000400080009000c000000100010000000"
    "1000000000020000240000002c0000000b0000005f5f74696d657374616d700000000000080009000400080008000000400000000100000000000000"
    "100014000400080009000c00000010001000000010000000010200001c00000024000000010000006e00000000000000080009000400080008000000"
    "4000000001000000000000000200000014000000380000000000000008000c00040008000800000008000000100000000400000068672e7600000000"
    "010000003100000008000c00040008000800000008000000100000000700000068672e6b696e64000100000030000000ffffffff0001000010000000"
    "0c00180004000600080010000c00000004000300200000000000000020000000000000000000000000000a0018000800100014000a00000000000000"
    "01000000000000000c000000400000000000000003000000010000000000000000000000000000000100000000000000000000000000000001000000"
    "000000000000000000000000000000000700000000000000000000000000000000000000000000000000000008000000000000000800000000000000"
    "010000000000000010000000000000000000000000000000100000000000000008000000000000001800000000000000000000000000000018000000"
    "00000000080000000000000000000000010000006b0000000000000005000000000000000700000000000000ffffffff00000000"
)


def q(*numbers):
    return struct.pack(f"<{len(numbers)}q", *numbers)


def i(*numbers):
    return struct.pack(f"<{len(numbers)}i", *numbers)


FIELDS = [
    KEY_FIELD,
    TIMESTAMP_FIELD,
    WrittenField("n", "int64"),
    WrittenField(
        "avg", "struct", nullable=False, children=(WrittenField("count", "int64"), WrittenField("sum", "float64"))
    ),
    WrittenField("b", "bool"),
    WrittenField("t", "utf8"),
    HEADERS_FIELD,
]
PARTS = [
    WrittenPart(2, 1, (b"\x02", i(0, 0, 1), b"k")),
    WrittenPart(2, 0, (b"", q(-5, 6))),
    WrittenPart(2, 1, (b"\x01", q(7, 0))),
    WrittenPart(2, 0, (b"",)),
    WrittenPart(2, 0, (b"", q(9, 10))),
    WrittenPart(2, 0, (b"", struct.pack("<2d", 1.5, -2.5))),
    WrittenPart(2, 0, (b"", b"\x01")),
    WrittenPart(2, 0, (b"", i(0, 2, 3), "öa".encode())),
    WrittenPart(2, 0, (b"", i(0, 1, 1))),
    WrittenPart(1, 0, (b"",)),
    WrittenPart(1, 0, (b"", i(0, 1), b"h")),
    WrittenPart(1, 0, (b"", i(0, 1), b"\xff")),
]
ROWS = [
    {
        "__key": None,
        "__timestamp": -5,
        "n": 7,
        "avg": {"count": 9, "sum": 1.5},
        "b": True,
        "t": "ö",
        "__headers": [{"name": "h", "value": b"\xff"}],
    },
    {
        "__key": b"k",
        "__timestamp": 6,
        "n": None,
        "avg": {"count": 10, "sum": -2.5},
        "b": False,
        "t": "a",
        "__headers": [],
    },
]


def test_every_type_is_what_pyarrow_reads():
    writer = StreamWriter(FIELDS, {"hg.v": "1", "hg.kind": "1 77", "hg.schema": "n: int64"})
    stream = b"".join(writer.stream(2, PARTS))
    table = pa.ipc.open_stream(stream).read_all()
    table.validate(full=True)
    assert table.to_pylist() == ROWS
    assert [one.nullable for one in table.schema] == [True, False, True, False, True, True, True]
    frame = decode(b"\x05" + stream)
    assert (frame.records, frame.plan, frame.schema) == (2, 77, "n: int64")
    assert [one.kind for one in frame.fields] == ["binary", "int64", "int64", "struct", "bool", "utf8", "list"]
    [parts] = frame.batches
    found = [(one.length, one.nulls, tuple(frame.body[slice(*at)] for at in one.buffers)) for one in parts]
    assert found == PARTS
    assert all(isinstance(one, ArrowPart) and all(at % 8 == 0 for at, _ in one.buffers) for one in parts)


def test_golden_bytes():
    """A frame of one row, as other programs and older versions of headgate have it."""
    writer = StreamWriter([KEY_FIELD, TIMESTAMP_FIELD, WrittenField("n", "int64")], {"hg.v": "1", "hg.kind": "0"})
    parts = [
        WrittenPart(1, 0, (b"", i(0, 1), b"k")),
        WrittenPart(1, 0, (b"", q(5))),
        WrittenPart(1, 0, (b"", q(7))),
    ]
    stream = b"".join(writer.stream(1, parts))
    assert stream.hex() == GOLDEN
    assert stream == b"".join(writer.stream(1, parts))


NAMES = st.text(max_size=8).filter(lambda name: not name.startswith("__"))


@given(st.lists(NAMES, min_size=1, max_size=9, unique=True), st.text(max_size=20), st.integers(0, 9))
def test_any_names_and_any_number_of_rows(names, schema, rows):
    """Every length of a text moves what stands behind it."""
    fields = [KEY_FIELD, TIMESTAMP_FIELD, *(WrittenField(name, "int64") for name in names)]
    parts = [WrittenPart(rows, 0, (b"", i(*[0] * (rows + 1)), b""))]
    parts += [WrittenPart(rows, 0, (b"", q(*range(rows)))) for _ in fields[1:]]
    stream = b"".join(StreamWriter(fields, {"hg.v": "1", "hg.kind": "0", "hg.schema": schema}).stream(rows, parts))
    table = pa.ipc.open_stream(stream).read_all()
    table.validate(full=True)
    assert table.column_names == ["__key", "__timestamp", *names]
    assert all(table.column(name).to_pylist() == list(range(rows)) for name in names)
    frame = decode(b"\x05" + stream)
    assert (frame.records, frame.schema) == (rows, schema)
