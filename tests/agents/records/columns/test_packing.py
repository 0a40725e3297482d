"""States as packed records: both ways write what msgpack writes, and read back what fits."""

from __future__ import annotations

import random
import struct
from array import array

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.columns.packing import StatePacking
from headgate.agents.records.memory.record_spans import RecordSpans, packed, pieces
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.agents.records.native import chosen

from ..memory_kept import keeps_nothing

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
SHAPE = [("n", "int64"), [("count", "int64"), ("sum", "float64")], ("least", "float64")]
NAMES = ("n", "count", "sum", "least")
KINDS = ("int64", "int64", "float64", "float64")
HEAD = b"\x05\x93"
WHOLE = [0, -1, -32, -33, -129, -(2**15) - 1, -(2**31) - 1, 2**16, 2**32]
WHOLE += [n for size in (7, 8, 15, 16, 31, 32, 63) for n in ((1 << size) - 1, -(1 << size))]


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs with both."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def batch_of(rows):
    vectors = [Vector.of(kind, [row[at] for row in rows]) for at, kind in enumerate(KINDS)]
    return VectorBatch(NAMES, tuple(vectors), len(rows))


def shown(vectors):
    """The rows of vectors, with every bit of a float."""
    return [
        [struct.pack("<d", one) if isinstance(one, float) else one for one in vector.values()] for vector in vectors
    ]


LONGS, DOUBLES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from(WHOLE), st.none() | st.floats()


@pytest.mark.usefixtures("way")
@given(st.lists(st.tuples(LONGS, LONGS, DOUBLES, DOUBLES), max_size=20))
def test_states_are_packed_as_msgpack_packs_them(rows):
    """And are what they were when they are read."""
    packing, batch = StatePacking(SHAPE, HEAD), batch_of(rows)
    records = packing.pack(batch)
    assert pieces(records) == [HEAD + msgpack.packb([n, [count, total], least]) for n, count, total, least in rows]
    vectors, odd = packing.unpack(records)
    assert (shown(vectors), odd) == (shown(batch.vectors), [])


@pytest.mark.usefixtures("way")
def test_text_and_flags_are_packed_too():
    """Of every length that has a form of its own."""
    texts = ["", "a" * 31, "a" * 32, "ü" * 127, "a" * 255, "a" * 256, "a" * 65535, "a" * 65536, None]
    flags = [True, False, None] * 3
    batch = VectorBatch(("t", "b"), (Vector.of("text", texts), Vector.of("bool", flags)), len(texts))
    found = pieces(StatePacking([("t", "text"), ("b", "bool")]).pack(batch))
    assert found == [msgpack.packb([text, flag]) for text, flag in zip(texts, flags, strict=True)]


@pytest.mark.usefixtures("way")
def test_what_is_something_else_is_named():
    """States of former code, of another shape or damaged; a whole number is a float where one is expected."""
    bodies = [
        [1, [2, 3], 4],
        [2**64 - 1, [2, 3.0], 4.0],
        [1, [2, 2**64 - 1], 4.0],
        [1.0, [2, 3.0], 4.0],
        [True, [2, 3.0], 4.0],
        [1, [2, "3"], 4.0],
        [1, 2, 3.0, 4.0],
        [1, [2, 3.0], 4.0, 5],
        [None, [None, None], None],
        [1, [2, 3.0, 4], 4.0],
    ]
    records = [HEAD + msgpack.packb(body) for body in bodies]
    records += [records[0][:-1], records[0] + b"\0", b"", b"\x04" + records[0][1:], HEAD]
    vectors, odd = StatePacking(SHAPE, HEAD).unpack(packed(records))
    assert odd == [1, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14]
    rows = list(zip(*(one.values() for one in vectors), strict=True))
    assert [rows[at] for at in (0, 2, 8)] == [(1, 2, 3.0, 4.0), (1, 2, float(2**64 - 1), 4.0), (None,) * 4]
    assert all(rows[at] == (None,) * 4 for at in odd)


@pytest.mark.usefixtures("way")
def test_records_outside_of_their_buffer():
    """They are refused."""
    for start, size in ((0, 4), (-1, 1), (0, -2), (4, 0)):
        with pytest.raises(ValueError):
            StatePacking(SHAPE).unpack(RecordSpans(b"abc", array("q", [start]), array("q", [size])))


@needs_compiler
def test_both_read_mutated_records_alike(monkeypatch):
    """Any change of what was packed: the same states, the same verdict."""
    chance, packing = random.Random(9), StatePacking(SHAPE, HEAD)
    rows = [(chance.choice(WHOLE), chance.choice(WHOLE), chance.uniform(-1, 1), None) for _ in range(50)]
    good = pieces(packing.pack(batch_of(rows)))
    for _ in range(40):
        records = []
        for one in chance.choices(good, k=300):
            made = bytearray(one)
            for _ in range(chance.choice((1, 1, 2))):
                made[chance.randrange(len(HEAD) + 1, len(made))] = chance.choice(
                    (*range(0x90, 0xA0), *range(0xC0, 0xE0), chance.randrange(256))
                )
            records.append(bytes(made[: chance.choice((len(made), len(made), chance.randrange(len(made) + 1)))]))
        vectors, odd = packing.unpack(packed(records))
        with monkeypatch.context() as patch:
            patch.setattr(chosen, "part", chosen.PLAIN)
            others, also = packing.unpack(packed(records))
        for at in sorted(set(odd) ^ set(also)):
            # a header that is longer than it need be, which nobody writes
            assert at in odd
            assert b"\xdc" in records[at] or b"\xdd" in records[at]
        same = [at for at in range(300) if at not in set(odd) ^ set(also)]
        assert [[one[at] for at in same] for one in shown(vectors)] == [
            [one[at] for at in same] for one in shown(others)
        ]


@needs_compiler
def test_packing_keeps_no_memory():
    """Thousands of calls, also refused ones."""
    packing, batch = StatePacking(SHAPE, HEAD), batch_of([(1, 2, 3.0, None)] * 50)
    damaged = packed([b"x", b"yy"])

    def work():
        for _ in range(2000):
            packing.unpack(packing.pack(batch))
            packing.unpack(damaged)
            with pytest.raises(ValueError):
                packing.unpack(RecordSpans(b"", damaged.offsets, damaged.lengths))

    keeps_nothing(work)
