"""JSON records that are nearly right, by chance from a seed: for the tests, and for hours of them in `fuzz.py`."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from itertools import accumulate

from headgate.agents.records.columns.decoder import Decoder
from headgate.agents.records.layout import longs
from headgate.core.columns.schema import ColumnSpec

COLUMNS = [
    ColumnSpec("user", "text"),
    ColumnSpec("amount", "float64", True),
    ColumnSpec("ts", "int64"),
    ColumnSpec("ok", "bool", True),
    ColumnSpec("note", "text", True),
    ColumnSpec("u", "int64", True),
    ColumnSpec("name of more than 16 bytes", "float64", True),
]
RECORDS = [
    b'{"user":"u002201","amount":56.92,"ts":1700000000000,"country":"DE","pad":"xxxxxxxxxxxxxxxxxxxx"}',
    b'{"ts":1,"user":"Z\xc3\xbcrich \\u00e9\\ud83d\\ude00\\n","amount":-1.5e-7,"ok":true,"known":1,"x":{"a":[1,2,{"b":null}],"c":"d"}}',
    b' { "ok" : false , "note":null, "name of more than 16 bytes":12345678901234567890123e-5,"user":"a","ts":-9223372036854775808}\n',
    b'{"user":"a","user":"b","ts":"1","ts":9007199254740993,"amount":1e308,"u":0,"watched":[],"note":"\xf0\x9f\x98\x80 and a long text"}',
    b'{"us\\u0065r":"esc","ts":0,"x":[[[[]]]],"y":[1.0e300],"amount":4.9e-324}',
    b'{"user":"","ts":18446744073709551615,"amount":0.1000000000000000055511151231257827021181583404541015625}',
    b'{"user":"q","ts":12,"amount":2.2250738585072011e-308,"u":9223372036854775807,"ok":null}',
    b'{"user":"n","ts":-0,"amount":-0,"u":-9223372036854775809,"z":-0.0}',
    b"[1,2]",
    b'"text"',
]
_PIECES = [bytes([byte]) for byte in b'{}[]":,\\ \n\t0123456789.eE+-truefalsn\x00\x1f\x7f\x80\xc3\xa9\xed\xa0\xf0\x9f'] + [
    *(b'"amount":', b'"ts":', b"null", b"\\u", b"\\ud83d", b'"user":"x"', b',"u":', b"1e", b"9" * 18, b"0.", b"e-3", b"e308"),
    *(b"true", b"[[", b"]]", b"{}", b'"":', b"0" * 20, b"5e-324", b".5"),
]  # fmt: skip


def mutated(chance: random.Random, record: bytes) -> bytes:
    """The record with one to three faults, or none that matters."""
    made = bytearray(record)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at, way = chance.randrange(len(made) + 1), chance.randrange(6)
        if way == 0:
            made[at : at + 1] = chance.choice(_PIECES)
        elif way == 1:
            del made[at : at + chance.choice((1, 1, 1, 2, 8))]
        elif way == 2 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif way == 3:
            other = chance.randrange(len(made) + 1)
            made[at:at] = made[min(at, other) : max(at, other)][:40]
        else:
            made[at:at] = chance.choice(_PIECES)
    return bytes(made)


def some(chance: random.Random, count: int) -> list[bytes]:
    """So many mutated records."""
    return [mutated(chance, chance.choice(RECORDS)) for _ in range(count)]


def spans(records: Sequence[bytes | None], between: bytes = b"") -> tuple[bytes, array[int], array[int]]:
    """The buffer, offsets and lengths of these records."""
    parts = [between + (record or b"") for record in records]
    ends = list(accumulate(map(len, parts), initial=0))
    lengths = array("q", [-1 if record is None else len(record) for record in records])
    return b"".join(parts), array("q", [end + len(between) for end in ends[:-1]]), lengths


def outcome(decoder: Decoder, records: Sequence[bytes | None]) -> str:
    """All that a decoder finds, floats with their exact digits, as text that can be compared."""
    found = decoder.decode(*spans(records))
    vectors = [
        (one.kind, one.nulls, bytes(one.data), one.offsets and bytes(one.offsets), one.validity and bytes(one.validity))
        for one in found.columns.vectors
    ]
    rows = None if found.rows is None else longs(found.rows).tolist()
    return repr((found.columns.length, found.columns.rows(), vectors, found.bad, found.tombstones, rows, found.others))
