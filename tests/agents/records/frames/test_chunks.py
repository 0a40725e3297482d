"""Buffers and chunks: where a chunk ends, and which position it leaves behind."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.frames.chunks import Chunk, FetchBuffer
from headgate.agents.records.kafka.columns import Columns, DamagedBatch, read_batch
from headgate.agents.records.kafka.fetched import RecordBatch
from headgate.agents.records.kafka.spans import SpannedColumns, read_spans
from headgate.agents.records.native import chosen
from headgate.agents.records.values.serdes import json
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import BatchFrame, Drain, UserFrame, Watermark, encode

from ..kafka.test_columns import RECORDS, built, holed

AT = StreamPartition("orders", 0)


@dataclass
class Rec:
    offset: int
    value: bytes | None = b"v"
    key: bytes | None = None
    timestamp: int = 0
    headers: list = field(default_factory=list)


both = pytest.mark.parametrize("spanned", [False, True])
"""Records are read as lists, or in spans."""
needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")


def batch(records, following=None, size=100):
    """A fetched batch of these records."""
    return RecordBatch.of(records, following=following, size=size)


def buffer_of(values, **options):
    """A buffer that holds these values from offset 0 in one batch."""
    made = FetchBuffer(AT, 0, **options)
    made.put([batch([Rec(i, v) for i, v in enumerate(values)])], 0, len(values))
    return made


def test_a_chunk_from_plain_columns():
    """For drivers without Kafka."""
    chunk = Chunk.of(AT, [b"a", b"b"], keys=[None, b"k"], base=5)
    assert (len(chunk), chunk.offsets, chunk.timestamps, chunk.headers) == (2, [5, 6], [0, 0], [[], []])
    assert chunk.next_position == 7
    assert chunk.is_data
    assert chunk.has_keys
    assert not chunk.has_headers
    assert "2 records" in repr(chunk)


@both
def test_positions_step_over_what_nobody_may_read(spanned):
    """An aborted batch at the front, a hole from compaction inside, a control batch at the end."""
    buffer = FetchBuffer(AT, 0, spanned=spanned)
    assert buffer.empty
    buffer.put([], 0, 4)
    assert buffer.position == 4
    buffer.put([batch([Rec(5), Rec(8)], following=10)], 4, 11)
    assert buffer.count == 2
    assert buffer.buffered_to == 11
    first = buffer.take(1)
    assert (first.offsets, first.next_position) == ([5], 8)
    last = buffer.take(10)
    assert (last.offsets, last.next_position) == ([8], 11)
    assert buffer.take(1) is None
    assert buffer.buffered_to == 11
    buffer.put([batch([], following=12)], 11, 12)
    assert buffer.empty
    assert buffer.position == 12


@both
def test_the_size_counts_the_batch_that_is_being_handed_out(spanned):
    """Its records are still held."""
    buffer = FetchBuffer(AT, 0, spanned=spanned)
    buffer.put([batch([Rec(0), Rec(1)]), batch([Rec(2)])], 0, 3)
    assert buffer.size == 200
    buffer.take(1)
    assert buffer.size == 200
    buffer.take(1)
    assert not buffer.empty
    assert buffer.size == 100
    buffer.take(1)
    assert buffer.empty
    assert buffer.size == 0


@both
def test_a_fetched_answer_is_not_kept_when_all_of_it_has_been_handed_out(spanned):
    """A partition that rests would keep up to a whole chunk in memory."""
    first = 7_654_321
    buffer = FetchBuffer(AT, first, spanned=spanned)
    buffer.put([batch([Rec(first + i) for i in range(3)])], first, first + 3)

    def kept():
        gc.collect()
        answers = [one for one in gc.get_objects() if type(one) in (Columns, SpannedColumns) and len(one)]
        return [one.offset(0) for one in answers if one.offset(0) >= first]

    buffer.take(2)
    assert kept() == [first]
    assert buffer.take(2).offsets == [first + 2]
    assert (buffer.empty, buffer.size, buffer.position, kept()) == (True, 0, first + 3, [])


@both
def test_a_chunk_ends_at_a_time_and_at_the_bound(spanned):
    """Over several batches; the next record is still the head."""
    buffer = FetchBuffer(AT, 0, spanned=spanned, until=6)
    buffer.put([batch([Rec(0, timestamp=1), Rec(1, timestamp=2)]), batch([Rec(3, timestamp=5), Rec(4)])], 0, 5)
    buffer.put([batch([Rec(5), Rec(6, b"beyond"), Rec(7)])], 5, 8)
    assert buffer.take(9, 0) is None
    assert (buffer.take(9, 2).offsets, buffer.position) == ([0, 1], 3)
    assert buffer.head() == (3, 5, b"v")
    assert buffer.take(9, 4) is None
    assert buffer.take(9).offsets == [3, 4, 5]
    assert (buffer.ended, buffer.position, buffer.take(9)) == (True, 6, None)


@both
def test_records_below_the_start_are_left_out(spanned):
    """A batch begins before the position, as it does behind a restart."""
    buffer = FetchBuffer(AT, 6, spanned=spanned)
    buffer.put([batch([Rec(4), Rec(5), Rec(6, b"w", key=b"k"), Rec(8)])], 6, 9)
    chunk = buffer.take(9)
    assert (chunk.offsets, chunk.values, chunk.keys) == ([6, 8], [b"w", b"v"], [b"k", None])


@both
def test_a_damaged_batch_stays_where_it_is(spanned):
    """What is before it is handed out, and nothing behind it."""

    def torn(most):
        raise DamagedBatch("torn")

    buffer = FetchBuffer(AT, 0, spanned=spanned)
    damaged = RecordBatch(torn, 2, 4, 2, 0, 0, 10, spans=torn)
    buffer.put([batch([Rec(0), Rec(1)]), damaged, batch([Rec(4)])], 0, 5)
    assert buffer.take(9).offsets == [0, 1]
    assert (buffer.damaged[0].what, buffer.damaged[1], buffer.position) == ("torn", 4, 2)
    assert buffer.take(9) is None
    with pytest.raises(DamagedBatch):
        damaged.spans()


def fetched(runs, codecs):
    """Batches as a broker sends them, in one answer; each with the codec of its turn."""
    raw, places, at = b"", [], 0
    with pytest.MonkeyPatch.context() as patch:
        for turn, records in enumerate(runs):
            data = holed(built(records, codecs[turn % len(codecs)], True, patch)[0], base=at)
            places.append((len(raw), len(raw) + len(data), at))
            raw, at = raw + data, at + 3 * len(records)
    made = []
    for start, end, base in places:
        listed = read_batch(raw, start, end)
        last = listed.offset(len(listed) - 1) + 1
        read, spans = partial(read_batch, raw, start, end), partial(read_spans, raw, start, end)
        made.append(RecordBatch(read, base, last, last - base, 0, 0, end - start, spans=spans))
    return made, at


CODECS = st.lists(st.sampled_from([None, "gzip", "lz4", "zstd"]), min_size=1, max_size=3)


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(
    st.lists(RECORDS, min_size=1, max_size=4),
    CODECS,
    st.integers(1, 30),
    st.sampled_from([None, 0, 60, 1 << 20]),
    st.booleans(),
)
def test_chunks_in_spans_hold_the_same_records(runs, codecs, most, room, plain):
    """As chunks of lists: whatever the batches, their codecs, their gaps, and the size of chunks. Also without the compiled part."""
    batches, end = fetched(runs, codecs)
    lists = FetchBuffer(AT, 0)
    lists.put(batches, 0, end)
    whole, at = lists.take(1000), 0
    batches, _ = fetched(runs, codecs)
    spans = FetchBuffer(AT, 0, spanned=True)
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            patch.setattr(chosen, "part", chosen.PLAIN)
        spans.put(batches, 0, end)
        while (chunk := spans.take(most, None, room)) is not None:
            assert 0 < len(chunk) <= most
            same, begun, at = whole.pick(at, at + len(chunk)), at, at + len(chunk)
            assert chunk.next_position == (whole.offsets[at] if at < len(whole) else whole.next_position)
            for one, other in ((chunk, same), (chunk.pick(0, 1), whole.pick(begun, begun + 1))):
                assert (one.values, one.keys, one.timestamps) == (other.values, other.keys, other.timestamps)
                assert (one.offsets, one.headers) == (other.offsets, other.headers)
            assert (chunk.columns.value(0), chunk.columns.offset(0)) == (same.values[0], same.offsets[0])
    assert at == len(whole)
    assert spans.position == lists.position


def test_a_chunk_in_spans_is_bounded_in_bytes():
    """It ends where a batch does not fit any more; a batch that is larger is cut; a record that is larger comes alone."""
    sizes = [[10, 10], [10, 20, 10], [70, 5], [5]]
    buffer, at = FetchBuffer(AT, 0, spanned=True), 0
    for one in sizes:
        buffer.put([batch([Rec(at + i, b"x" * size) for i, size in enumerate(one)])], at, at + len(one))
        at += len(one)
    taken = []
    while (chunk := buffer.take(100, None, 35)) is not None:
        taken.append([len(value) for value in chunk.values])
    assert taken == [[10, 10], [10, 20], [10], [70], [5, 5]]


def test_frames_that_are_chunks_of_their_own():
    """Control messages and what cannot be read; what stands before them goes first."""
    mark = Watermark("sales/1", "r", None, 1, 0, 5)
    drain = Drain("sales/1", "r", "Partition 0", 1, 0, "d")
    frames = [UserFrame(b"a"), mark, drain]
    buffer = buffer_of([*map(encode, frames), None, encode(UserFrame(b"z"))], framed=json())
    assert buffer.control() is None
    assert buffer.take(9).values == [b"a"]
    assert buffer.control() == (1, mark)
    assert buffer.take(9).control == mark
    control = buffer.take(9)
    assert (control.control, len(control), control.is_data, control.next_position) == (drain, 0, False, 3)
    assert "Drain" in repr(control)
    assert buffer.take(9).bad.reason == "empty"
    assert buffer.take(9).values == [b"z"]


def test_a_damaged_control_frame_is_no_control_message():
    """It is taken as what it is, and judged there."""
    buffer = buffer_of([b"\x01rubbish"], framed=json())
    assert buffer.control() is None
    assert buffer.take(1).bad is not None


def test_a_chunk_holds_values_of_one_kind():
    """Rows, or partial states of one plan: what stands behind them in the partition is the next chunk."""
    states = [BatchFrame([b"k"], [1], [b"%d" % plan], None, plan) for plan in (7, 7, 8)]
    frames = [UserFrame(b"a"), BatchFrame([b"k"], [1], [b"b"]), *states, UserFrame(b"c"), states[0]]
    buffer = buffer_of([*map(encode, frames)], framed=json())
    taken = [buffer.take(9) for _ in range(5)]
    assert [(chunk.plan, chunk.values) for chunk in taken] == [
        (None, [b"a", b"b"]),
        (7, [b"7", b"7"]),
        (8, [b"8"]),
        (None, [b"c"]),
        (7, [b"7"]),
    ]
    assert taken[1].pick(1, 2).plan == 7
    assert [chunk.next_position for chunk in taken] == [2, 4, 5, 6, 7]


def test_headers_of_frames_of_all_types_make_one_column():
    """Kafka's for a record of its own, but for the header that repeats the type; the frame's for a batch."""
    hg_type = ("hg-type", b"user")
    bare = BatchFrame([None], [1], [b"b"])
    frames = [
        Rec(0, encode(UserFrame(b"a")), headers=[hg_type]),
        Rec(1, encode(bare), headers=[("hg-type", b"batch")]),
        Rec(2, encode(BatchFrame([None] * 2, [1] * 2, [b"c", b"d"], [[("x", None)], []]))),
        Rec(3, encode(UserFrame(b"e")), headers=[("y", b"1"), hg_type]),
        Rec(4, encode(bare)),
    ]
    buffer = FetchBuffer(AT, 0, framed=json())
    buffer.put([batch(frames)], 0, 5)
    without = buffer.take(2)
    assert (without.values, without.has_headers) == ([b"a", b"b"], False)
    assert buffer.take(9).headers == [[("x", None)], [], [("y", b"1")], []]


def columns(rows, first=0, **more):
    """A frame of columns with so many rows."""
    keys = pa.array([b"k%d" % n for n in range(first, first + rows)], pa.binary())
    table = pa.table({"__key": keys, "__timestamp": pa.array(range(first, first + rows), pa.int64()), **more})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.with_metadata({"hg.v": "1", "hg.kind": "0"})) as writer:
        writer.write_table(table)
    return b"\x05" + sink.getvalue().to_pybytes()


def test_records_batches_and_columns_make_one_chunk():
    """In their order; the rows of one frame share its offset. A row of columns is the record of its fields."""
    headers = pa.array([[("x", b"1")], None], pa.list_(pa.struct([("name", pa.utf8()), ("value", pa.binary())])))
    frames = [
        encode(UserFrame(b"0")),
        columns(2, 3, n=[1, None], text=["a", "ä"], __headers=headers),
        encode(BatchFrame([b"b"], [9], [b"2"])),
        columns(1, n=[3]),
    ]
    chunk = buffer_of(frames, framed=json()).take(9)
    assert chunk.values == [b"0", b'{"n":1,"text":"a"}', '{"n":null,"text":"ä"}'.encode(), b"2", b'{"n":3}']
    assert chunk.keys == [None, b"k3", b"k4", b"b", b"k0"]
    assert (chunk.timestamps, chunk.offsets) == ([0, 3, 4, 9, 0], [0, 1, 1, 2, 3])
    assert chunk.headers == [[], [("x", b"1")], [], [], []]
    assert chunk.next_position == 4


def test_a_frame_with_more_rows_than_a_chunk_may_have_is_a_chunk_of_its_own():
    """Another writer may make it; it is taken whole, and nothing else with it."""
    many = BatchFrame([None] * 5, [0] * 5, [b"b"] * 5)
    buffer = buffer_of(
        [encode(UserFrame(b"a")), columns(7, n=range(7)), encode(many), encode(UserFrame(b"c"))], framed=json()
    )
    assert [(len(chunk), chunk.next_position) for chunk in (buffer.take(3) for _ in range(4))] == [
        (1, 1),
        (7, 2),
        (5, 3),
        (1, 4),
    ]


def test_a_choice_counts_frames_and_the_rows_of_a_chunk_are_bounded():
    """A chooser sees how many frames there are, and not how many rows they have."""
    two = encode(BatchFrame([None] * 2, [0] * 2, [b"b"] * 2))

    def taken(most, rows):
        buffer, found = buffer_of([two] * 6, framed=json()), []
        while (chunk := buffer.take(most, most_rows=rows)) is not None:
            found.append(len(chunk))
        return found

    assert taken(6, 1000) == [12]
    assert taken(4, 1000) == [8, 4]
    assert taken(6, 5) == [4, 4, 4]
    assert taken(6, 1) == [2] * 6


def test_columns_that_have_no_rows_in_this_stream():
    """The serde of the stream cannot write them, or Python has no such value: the frame is refused, with the reason."""
    far = pa.array([2**62], pa.timestamp("s"))
    buffer = buffer_of([columns(1, n=pa.array([1], pa.duration("s"))), columns(1, at=far), b"\x05"], framed=json())
    reasons = [buffer.take(9).bad.reason for _ in range(3)]
    assert "row 0 of its columns cannot be encoded as json" in reasons[0]
    assert "its columns cannot be read as rows" in reasons[1]
    assert reasons[2] == "Arrow stream is cut off"


VALUES = st.lists(
    st.one_of(
        st.just(UserFrame(b"u")),
        st.builds(lambda n: BatchFrame([None] * n, [0] * n, [b"b"] * n), st.integers(0, 5)),
        st.just(Watermark("j/1", "r", None, 1, 0, 1)),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=80)
@given(VALUES, st.integers(1, 6), st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_nothing_is_lost_doubled_or_reordered(frames, most, cuts):
    """However frames fall into batches, and whatever the size of chunks: all rows come out once, in order, and positions rise."""
    buffer = FetchBuffer(AT, 0, framed=json())
    records = [Rec(i, encode(frame)) for i, frame in enumerate(frames)]
    at = 0
    for cut in cuts:
        part = records[at : at + cut]
        if part:
            buffer.put([batch(part)], at, part[-1].offset + 1)
        at += cut
    wanted = []
    for frame in frames[:at]:
        wanted += [b"u"] if isinstance(frame, UserFrame) else frame.values if isinstance(frame, BatchFrame) else [frame]
    got, position = [], 0
    while (chunk := buffer.take(most)) is not None:
        got += chunk.values if chunk.is_data else [chunk.control]
        assert chunk.next_position > position
        position = chunk.next_position
        if chunk.is_data:
            assert len(chunk) <= max(most, 5)
            assert len(chunk.keys) == len(chunk.timestamps) == len(chunk.offsets) == len(chunk.headers) == len(chunk)
    assert got == wanted
