"""Columns as JSON records: both encoders write what orjson writes, and extend original bytes in the same way."""

from __future__ import annotations

import math
import random
import struct
from array import array

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.columns.decoder import HAS_WATCHED, Decoder
from headgate.agents.records.columns.encoder import Encoder
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import RecordSpans
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.agents.records.native import chosen
from headgate.core.columns.schema import ColumnSpec

from ..memory_kept import keeps_nothing
from ..mutations import COLUMNS, some, spans

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs with both encoders."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def records_of(found):
    """The bytes of each record."""
    buffer = bytes(found.buffer)
    return [buffer[at : at + size] for at, size in zip(longs(found.offsets), longs(found.lengths), strict=True)]


def batch_of(kind, values, name="v"):
    return VectorBatch((name,), (Vector.of(kind, values),), len(values))


def floats():
    """Doubles of every kind: any bits, few decimals, powers, what lies at the borders of the formats."""
    chance = random.Random(5)
    yield from (struct.unpack("<d", chance.randbytes(8))[0] for _ in range(20_000))
    yield from (chance.uniform(-1e3, 1e3) for _ in range(10_000))
    yield from (chance.choice((1, -1)) * chance.randrange(10**9) / 10 ** chance.randrange(9) for _ in range(20_000))
    yield from (float(chance.randrange(1 << chance.randrange(1, 64))) for _ in range(10_000))
    yield from (m * 10.0**n for n in range(-323, 308) for m in (1, 1.5, 9.999999999999999, 1.2345678901234567))
    yield from (2.0**n for n in range(-1074, 1024))
    yield from (
        0.0,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        math.nan,
        math.inf,
        -math.inf,
        57.31 * 1.2,
        999999999.9999,
        1e9,
    )


@pytest.mark.usefixtures("way")
def test_numbers_are_written_as_orjson_writes_them():
    """The shortest digits that read back, and the same borders between plain and scientific."""
    values = list(floats())
    assert records_of(Encoder(["v"]).encode(batch_of("float64", values))) == [
        orjson.dumps({"v": one}) for one in values
    ]
    whole = [0, 1, -1, 9, 10, 99, 100, 2**31, -(2**63), 2**63 - 1, *(7 * 10**n for n in range(18)), None]
    assert records_of(Encoder(["v"]).encode(batch_of("int64", whole))) == [orjson.dumps({"v": one}) for one in whole]


@pytest.mark.usefixtures("way")
def test_text_is_escaped_as_orjson_does():
    """Every character below 0x100, at each place of a block of 16 bytes."""
    texts = [
        "".join(map(chr, range(256))),
        "\u2028\ud7ff\ue000\U0001f600",
        "",
        *(("x" * n + '"\\\x00é') * 2 for n in range(40)),
        None,
    ]
    assert records_of(Encoder(["v"]).encode(batch_of("text", texts))) == [orjson.dumps({"v": one}) for one in texts]
    name = 'a "name"\n'
    assert records_of(Encoder([name]).encode(batch_of("bool", [True, None, False], name))) == [
        orjson.dumps({name: one}) for one in (True, None, False)
    ]


COLUMN = {"int64": st.integers(-(2**63), 2**63 - 1), "float64": st.floats(), "bool": st.booleans(), "text": st.text()}
KINDS = st.lists(st.sampled_from(sorted(COLUMN)), max_size=5)


@pytest.mark.usefixtures("way")
@given(KINDS, st.integers(0, 12), st.data())
def test_any_columns_in_any_order(kinds, length, data):
    """Rows may be left out, come twice, and in any order; fields are in the order of the encoder."""
    values = [data.draw(st.lists(st.none() | COLUMN[kind], min_size=length, max_size=length)) for kind in kinds]
    names = tuple(f"n{at}" for at in range(len(kinds)))
    batch = VectorBatch(names, tuple(map(Vector.of, kinds, values)), length)
    order = data.draw(st.permutations(names))
    rows = data.draw(st.none() | st.lists(st.integers(0, length - 1), max_size=9)) if length else None
    found = Encoder(order).encode(batch, None if rows is None else array("q", rows))
    wanted = [
        {name: values[names.index(name)][row] for name in order} for row in (range(length) if rows is None else rows)
    ]
    assert records_of(found) == list(map(orjson.dumps, wanted))


@pytest.mark.usefixtures("way")
def test_original_bytes_are_extended():
    """As their producer wrote them, in his order, with what nobody declared; a row with the added field already is written in full."""
    records = [b'{"v":1.50,"x":[1, 2]}', b" { } ", b'{"v" : 2 }\n', b"{", b'{"total":"?","v":3}', b"{\t}"]
    decoder = Decoder([ColumnSpec("v", "float64", True)], watched=["total"])
    found = decoder.decode(*spans(records, between=b"~"))
    batch = VectorBatch(("v", "total"), (found.columns["v"], Vector.of("int64", [10, 20, 30, 40, 50])), 5)
    encoder = Encoder(["v", "total"], added=["total"])
    assert records_of(encoder.encode(batch, None, found.spans, found.others, mask=HAS_WATCHED)) == [
        b'{"v":1.50,"x":[1, 2],"total":10}',
        b' {"total":20}',
        b'{"v" : 2,"total":30}',
        b'{"v":3.0,"total":40}',
        b'{"total":50}',
    ]
    assert records_of(encoder.encode(batch, array("q", [2, 0]), found.spans, found.others)) == [
        b'{"v" : 2,"total":30}',
        b'{"v":1.5,"total":10}',
    ]
    assert records_of(Encoder(["v"]).encode(batch, None, found.spans)) == [
        records[0],
        records[1],
        records[2],
        records[4],
        records[5],
    ]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("rows", "original"),
    [
        *(([3], None), ([-1], None), ([0], ([1], [3])), ([0], ([-1], [2]))),
        *(([0], ([0], [-1])), ([0], ([0], [0])), ([0], ([0], [1])), ([0], ([2], [1]))),
    ],
)
def test_what_does_not_fit_is_refused(rows, original):
    """Rows outside of the batch, originals outside of the buffer, and originals that are no objects."""
    source = None if original is None else RecordSpans(b"{}}", *(array("q", one) for one in original))
    with pytest.raises(ValueError):
        Encoder(["v"], added=["v"]).encode(batch_of("int64", [1]), array("q", rows), source)


@needs_compiler
@pytest.mark.parametrize(
    "vector",
    [
        Vector("int64", 2, bytes(15)),
        Vector("float64", 2, b""),
        Vector("bool", 9, b"\x00"),
        Vector("int64", 2, bytes(16), None, b""),
        Vector("text", 1, b"abc", array("i", [0])),
        Vector("text", 1, b"abc", None),
        Vector("text", 1, b"abc", array("i", [0, 4])),
        Vector("text", 1, b"abc", array("i", [-1, 2])),
        Vector("text", 1, b"abc", array("i", [2, 1])),
    ],
)
def test_a_vector_that_lies_about_itself_is_refused(vector):
    """Before anything behind its buffers is read."""
    with pytest.raises(ValueError):
        Encoder(["v"]).encode(VectorBatch(("v",), (vector,), vector.length))


@needs_compiler
def test_both_extend_mutated_records_alike(monkeypatch):
    """What was decoded is written: in full, extended, and as it was."""
    chance = random.Random(3)
    names, decoder = [column.name for column in COLUMNS], Decoder(COLUMNS, watched=["u2"])
    for _ in range(20):
        found = decoder.decode(*spans(some(chance, 1000)))
        for encoder in (Encoder(names), Encoder(names, added=["u", "note"])):
            for originals in ((), (found.spans,), (found.spans, found.others)):
                one = encoder.encode(found.columns, None, *originals)
                with monkeypatch.context() as patch:
                    patch.setattr(chosen, "part", chosen.PLAIN)
                    other = encoder.encode(found.columns, None, *originals)
                assert records_of(one) == records_of(other)


@needs_compiler
def test_encoding_keeps_no_memory():
    """Thousands of calls, also refused ones, and ones that need more room than was guessed."""
    texts = batch_of("text", ['"' * 50] * 20 + [""] * 20)
    encoder = Encoder(["v"], added=["v"])
    original = spans([b"{}"] * 40)

    def work():
        for _ in range(2000):
            encoder.encode(texts)
            encoder.encode(texts, None, RecordSpans(*original))
            with pytest.raises(ValueError):
                encoder.encode(texts, array("q", [40]))
            with pytest.raises(ValueError):
                encoder.encode(texts, None, RecordSpans(b"", *original[1:]))

    keeps_nothing(work)
