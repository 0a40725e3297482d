"""Frames of columns: what is written is what is read, by us and by pyarrow; how rows are cut; headers; what has no vector."""

from __future__ import annotations

from array import array
from random import Random

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.columns.encoder import Encoder
from headgate.agents.records.columns.packing import StatePacking
from headgate.agents.records.frames import arrow_columns, arrow_frames
from headgate.agents.records.frames.arrow_columns import ArrivedColumns, in_vectors
from headgate.agents.records.frames.arrow_frames import COLUMN_FRAME_RECORDS, FEWEST, FrameWriter
from headgate.agents.records.frames.arrow_rows import plain_rows
from headgate.agents.records.frames.framing import FRAME_BYTES
from headgate.agents.records.kafka.spans import headers_of, packed_headers
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import packed, pieces
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.agents.records.native import chosen
from headgate.agents.records.values.serdes import json
from headgate.core.progress.frames import ArrowFrame, BatchFrame, FrameError, decode
from tests.core.progress.columns import frame, mutated, records

from ..trees import framed

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
KINDS = ("int64", "float64", "bool", "text")
ROW = st.tuples(
    st.none() | st.binary(max_size=4),
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.booleans(),
    st.none() | st.text(max_size=4),
    st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=2),
)
NAMES = ("n", "x", "b", "t")


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs with both."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def writer_of(names=NAMES):
    return FrameWriter(names, Encoder(names).encode, schema="Row")


def arrived(found):
    """All frames of columns as one."""
    return ArrivedColumns([(one, 7 + at) for at, one in enumerate(found)], json())


def back(one):
    """The rows of columns that have arrived: key, time, columns, headers."""
    headers = one.header_spans
    return list(
        zip(
            pieces(one.key_spans),
            longs(one.times).tolist(),
            *(one.vector(name).values() for name in one.kinds),
            [[] for _ in range(len(one))] if headers is None else map(headers_of, pieces(headers)),
            strict=True,
        )
    )


@pytest.mark.usefixtures("way")
@given(st.lists(ROW, min_size=1, max_size=12), st.data())
def test_what_is_written_is_what_is_read(drawn, data):
    """Selected rows of a batch come back bit for bit, here and in pyarrow; as few rows they are a batch frame."""
    rows = drawn * (1 + FEWEST // len(drawn))
    keys, times, *values, headers = zip(*rows, strict=True)
    batch = VectorBatch(NAMES, tuple(map(Vector.of, KINDS, map(list, values))), len(rows))
    few = data.draw(st.none() | st.lists(st.integers(0, len(rows) - 1), min_size=1))
    chosen = None if few is None else array("q", few)
    found = list(writer_of().records(framed(packed(keys), array("q", times), batch, chosen, packed_headers(headers))))
    wanted = rows if few is None else [rows[row] for row in few]
    [one] = found
    assert one.first_ms == wanted[0][1]
    read = decode(one.value)
    if len(wanted) < FEWEST:
        assert (one.type, type(read), read.keys) == (b"batch", BatchFrame, [row[0] for row in wanted])
        return
    assert (one.type, type(read), read.records, read.schema) == (b"arrow", ArrowFrame, len(wanted), "Row")
    assert back(arrived([read, read])) == [*wanted, *wanted]
    table = pa.ipc.open_stream(read.body).read_all()
    table.validate(full=True)
    assert [tuple(row.values())[:6] for row in table.to_pylist()] == [row[:6] for row in wanted]
    plain = plain_rows(read)
    assert plain.values == [dict(zip(NAMES, row[2:6], strict=True)) for row in wanted]
    assert plain.keys == [row[0] for row in wanted]


@pytest.mark.usefixtures("way")
def test_a_big_endian_machine_writes_batches_and_reads_rows(monkeypatch):
    """Frames are little-endian, and vectors are as the machine is."""
    batch, keys = VectorBatch(("n",), (Vector.of("int64", range(70)),), 70), packed([b"k"] * 70)
    [there] = writer_of(("n",)).records(framed(keys, array("q", range(70)), batch))
    monkeypatch.setattr(arrow_frames, "LITTLE", False)
    monkeypatch.setattr(arrow_columns, "LITTLE", False)
    [here] = writer_of(("n",)).records(framed(keys, array("q", range(70)), batch))
    assert (there.type, here.type) == (b"arrow", b"batch")
    assert plain_rows(decode(there.value)).values == [{"n": n} for n in range(70)]


@pytest.mark.usefixtures("way")
def test_partial_states_keep_their_shape():
    """A state of several numbers is a struct, and a list within the list of a partial state; a few go as a row pipeline sends them."""
    shape = [("n", "int64"), [("count", "int64"), ("sum", "float64")]]
    writer = FrameWriter(["n", ("avg", ("count", "sum"))], StatePacking(shape).pack, plan=7)
    vectors = [Vector.of("int64", range(70)), Vector.of("int64", [2] * 70), Vector.of("float64", [0.5] * 69 + [None])]
    batch = VectorBatch(("n", "count", "sum"), tuple(vectors), 70)
    keys, times = packed([b"%d" % n for n in range(70)]), array("q", range(70))
    [one] = writer.records(framed(keys, times, batch))
    frame = decode(one.value)
    assert (frame.plan, plain_rows(frame).values[68:]) == (7, [[68, [2, 0.5]], [69, [2, None]]])
    made = arrived([frame])
    assert (made.plan, list(made.kinds)) == (7, ["n", "avg.count", "avg.sum"])
    assert made.vector("avg.sum").values() == [0.5] * 69 + [None]
    [few] = writer.records(framed(keys, times, batch, rows=array("q", [3])))
    assert decode(few.value) == BatchFrame([b"3"], [3], [msgpack.packb([3, [2, 0.5]])], None, 7)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("rows", "size"), [(COLUMN_FRAME_RECORDS + 1, 1), (1000, 2000), (130, FRAME_BYTES + 1)])
def test_rows_are_cut_by_number_and_by_size(rows, size):
    """Each frame fits into a Kafka record; only a row that is larger stands in a larger frame of its own."""
    batch = VectorBatch(("t",), (Vector.of("text", ["x" * size] * rows),), rows)
    found = list(writer_of(("t",)).records(framed(None, array("q", range(rows)), batch)))
    assert len(found) > 1
    times: list[int] = []
    for one in found:
        read = decode(one.value)
        own = read.timestamps if isinstance(read, BatchFrame) else longs(arrived([read]).times).tolist()
        assert one.first_ms == own[0]
        assert len(own) == 1 if size > FRAME_BYTES else len(one.value) <= FRAME_BYTES
        times += own
    assert times == list(range(rows))


@pytest.mark.usefixtures("way")
def test_columns_of_other_programs():
    """Several batches are one column; what no vector holds is left to readers of rows."""
    table = records(4, v=[1, None, 3, 4], t=["a", "b", None, "ä"])
    several = decode(frame(pa.concat_tables([table, table.slice(1, 2)])))
    assert arrived([several]).vector("t").values() == ["a", "b", None, "ä", "b", None]
    assert arrived([decode(frame(table.slice(0, 0)))]).vector("v").values() == []
    for other in (pa.array([1, 2, 3], pa.int32()), pa.array([b"a", b"b", b"c"]), pa.array([{"a": 1}] * 3)):
        assert not in_vectors(decode(frame(records(v=other))))
    states = {"hg.v": "1", "hg.kind": "1 7"}
    assert not in_vectors(decode(frame(records(v=pa.array([{"a": 1}, None, {"a": 2}])), states)))
    assert plain_rows(decode(frame(records(v=pa.array([1, 2, 3], pa.int32()))))).values[2] == {"v": 3}


MUTATIONS = 3000


def everything(read):
    """All that is in the columns of a frame, as plain values."""
    made = arrived([read])
    keys, headers = pieces(made.key_spans), made.header_spans
    pairs = [[] for _ in keys] if headers is None else list(map(headers_of, pieces(headers)))
    return keys, longs(made.times).tolist(), {name: made.vector(name).values() for name in made.kinds}, pairs


def test_any_bytes_are_a_frame_that_reads_as_pyarrow_reads_it_or_an_error():
    """Mutated frames of ours and of others: whatever passes the checks holds in both ways what pyarrow finds."""
    chance = Random(7)
    table = records(4, v=[1, None, 3, 4], t=["a", "b", None, "ä"], x=[0.5, None, 1, 2], b=[True, None, False, True])
    tables = [frame(table), frame(pa.concat_tables([table, table.slice(1, 2)]))]
    batch = VectorBatch(("n", "t"), (Vector.of("int64", range(64)), Vector.of("text", ["ü", None] * 32)), 64)
    pairs = packed_headers([[("h", b"1")], []] * 32)
    keys = packed([b"k", None] * 32)
    tables += [
        one.value for one in writer_of(("n", "t")).records(framed(keys, array("q", range(64)), batch, headers=pairs))
    ]
    passed = 0
    for _ in range(MUTATIONS):
        data = b"\x05" + mutated(chance.choice(tables)[1:], chance)
        try:
            read = decode(data)
        except FrameError:
            continue
        if not in_vectors(read):
            continue
        passed += 1
        found = everything(read)
        whole = pa.ipc.open_stream(read.body).read_all().to_pydict()
        assert repr(found[:2]) == repr((whole.pop("__key"), whole.pop("__timestamp")))
        headers = whole.pop("__headers", [None] * read.records)
        assert found[3] == [[(one["name"], one["value"]) for one in row or ()] for row in headers]
        assert repr(found[2]) == repr(whole)
        built, chosen.part = chosen.part, chosen.PLAIN
        try:
            assert repr(everything(read)) == repr(found)
        finally:
            chosen.part = built
    assert passed > MUTATIONS / 20
