"""Streams of columns for tests, made by pyarrow: what a writer in another program would send."""

from __future__ import annotations

import struct
from random import Random

import pyarrow as pa

HEADERS = pa.list_(pa.struct([("name", pa.utf8()), ("value", pa.binary())]))
METADATA = {"hg.v": "1", "hg.kind": "0"}


def stream(table, metadata=METADATA, **options):
    """A table as an Arrow IPC stream."""
    table = table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def frame(table, metadata=METADATA, **options):
    """The same as the bytes of a frame."""
    return b"\x05" + stream(table, metadata, **options)


def records(rows=3, **columns):
    """So many records: their keys, their times, and these columns."""
    keys, times = pa.array([b"k%d" % n for n in range(rows)], pa.binary()), pa.array(range(rows), pa.int64())
    return pa.table({"__key": keys, "__timestamp": times, **columns})


def every_type():
    """Three records with a column of each type that a frame may hold."""
    return records(
        __headers=pa.array([[("x", b"1"), ("y", None)], None, []], HEADERS),
        text=["ä", None, "bc"],
        data=pa.array([b"\xff", None, b""]),
        whole=[1, None, 3],
        byte=pa.array([1, 2, 3], pa.uint8()),
        real=[1.5, None, 2.0],
        truth=[True, None, False],
        some=[[1], [], None],
        part=[{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
        at=pa.array([1, None, 2], pa.timestamp("us", "UTC")),
        day=pa.array([1, 2, None], pa.date32()),
        took=pa.array([1, 2, 3], pa.duration("ms")),
        texts=pa.array([["a"], None, ["", "ü"]], pa.large_list(pa.large_utf8())),
        large=pa.array([b"a", None, b"c"], pa.large_binary()),
    )


def streams():
    """Streams that may stand in a frame: all types, a slice, several batches, none at all."""
    table = every_type()
    return [stream(one) for one in (table, table.slice(1, 2), pa.concat_tables([table, table]), table.slice(0, 0))]


EDGES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 24, 64, 0x7F, 0x80, 0xFE, 0xFF)
NUMBERS = (0, 1, -1, 4, 8, 16, 2**31 - 1, -(2**31))
LARGE = (*NUMBERS, 2**32, 2**63 - 1, -(2**63))


def mutated(data, chance: Random):
    """The bytes with something changed: bytes, bits, numbers, a piece that is missing, added or doubled."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at, what = chance.randrange(len(made) - 8), chance.randrange(20)
        if what < 10:
            made[at] = chance.choice(EDGES) if what < 5 else chance.randrange(256)
        elif what < 12:
            made[at] ^= 1 << chance.randrange(8)
        elif what < 15:
            struct.pack_into("<i", made, at - at % 4, chance.choice((*NUMBERS, chance.randrange(-300, 300))))
        elif what < 17:
            struct.pack_into("<q", made, at - at % 8, chance.choice((*LARGE, chance.randrange(-300, 300))))
        elif what == 17:
            del made[at : at + chance.randrange(1, 9)]
        elif what == 18:
            made[at:at] = chance.randbytes(chance.randrange(1, 9))
        else:
            start, size = chance.randrange(len(made)), chance.choice((4, 8, 16, 24))
            made[at : at + size] = made[start : start + size]
    return bytes(made)
