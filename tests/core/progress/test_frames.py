"""Frames: golden bytes, limits, and any bytes at all."""

from __future__ import annotations

import tracemalloc

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import DataError
from headgate.core.progress import frames as module
from headgate.core.progress.frames import (
    MAX_BATCH_RECORDS,
    MAX_TIME,
    NO_TIME,
    ArrowFrame,
    BatchFrame,
    Drain,
    EndOfStream,
    FrameError,
    UserFrame,
    Watermark,
    decode,
    encode,
    header_value,
    is_control,
)

GOLDEN = [
    (UserFrame(b"x"), "0078", b"user"),
    (
        Watermark("sales/1", "r1", "Partition 0", 4, 2, -5, True),
        "0188a17601a36a6f62a773616c65732f31a372756ea27231a47461736bab506172746974696f6e2030a57461736b7304a565706f636802a27473fba469646c65c3",
        b"watermark",
    ),
    (
        Watermark("sales/1", "r1", "Partition 0", 4, 2, -5, True, True),
        "0189a17601a36a6f62a773616c65732f31a372756ea27231a47461736bab506172746974696f6e2030a57461736b7304a565706f636802a27473fba469646c65"
        "c3a461776179c3",
        b"watermark",
    ),
    (
        EndOfStream("sales/1", "r1", None, 4, 2),
        "0285a17601a36a6f62a773616c65732f31a372756ea27231a57461736b7304a565706f636802",
        b"end-of-stream",
    ),
    (
        EndOfStream("sales/1", "r1", None, 4, 2, left=True),
        "0286a17601a36a6f62a773616c65732f31a372756ea27231a57461736b7304a565706f636802a46c656674c3",
        b"end-of-stream",
    ),
    (
        Drain("sales/1", "r1", "Partition 0", 4, 2, "d"),
        "0387a17601a36a6f62a773616c65732f31a372756ea27231a47461736bab506172746974696f6e2030a57461736b7304a565706f636802a26964a164",
        b"drain",
    ),
    (BatchFrame([b"k", None], [5, -1], [b"v", None]), "04960192c4016bc09205ff92c40176c0c000", b"batch"),
    (
        BatchFrame([None, None], [5, 6], [b"v", b"w"], [[("a", b"1"), ("b", None)], []]),
        "04960192c0c092050692c40176c40177929292a161c4013192a162c09000",
        b"batch",
    ),
    (
        BatchFrame([b"k"], [5], [b"\x91\x01"], None, 0xDEADBEEF),
        "04960191c4016b910591c4029101c09201cedeadbeef",
        b"batch",
    ),
    (BatchFrame([], [], []), "049601909090c000", b"batch"),
]
COLUMNS = bytes.fromhex(
    "05ffffffff500100001000000000000a000e000600050008000a000000000104001000000000000a000c000000040008000a0000005c0000"
    "0004000000020000003000000004000000e0ffffff100000000400000001000000300000000700000068672e6b696e640008000c00040008"
    "0008000000100000000400000001000000310000000400000068672e76000000000300000094000000440000000400000088ffffff000001"
    "0210000000140000000400000000000000010000006e000000bcffffff0000000140000000100014000800000007000c0000001000100000"
    "0000000002100000002400000004000000000000000b0000005f5f74696d657374616d700008000c00080007000800000000000001400000"
    "00100014000800060007000c00000010001000000000000104100000001c0000000400000000000000050000005f5f6b6579000000040004"
    "000400000000000000fffffffff800000014000000000000000c0016000600050008000c000c000000000304001800000048000000000000"
    "0000000a0018000c00040008000a0000008c0000001000000002000000000000000000000007000000000000000000000001000000000000"
    "0008000000000000000c00000000000000180000000000000001000000000000002000000000000000000000000000000020000000000000"
    "0010000000000000003000000000000000010000000000000038000000000000001000000000000000000000000300000002000000000000"
    "0001000000000000000200000000000000000000000000000002000000000000000100000000000000010000000000000000000000010000"
    "0001000000000000006b000000000000000500000000000000ffffffffffffffff0100000000000000010000000000000000000000000000"
    "00ffffffff00000000"
)
"""Keys k and none, times 5 and -1, and a column n of 1 and null, as pyarrow 26 writes them."""


@pytest.mark.parametrize(("frame", "data", "header"), GOLDEN, ids=[g[2].decode() for g in GOLDEN])
def test_golden_bytes(frame, data, header):
    """These bytes stand in people's topics: they decode for ever."""
    assert encode(frame).hex() == data
    assert decode(bytes.fromhex(data)) == frame
    assert header_value(frame) == header


def test_golden_bytes_of_columns():
    """They are only read here; whoever writes them may lay them out in another way."""
    assert decode(COLUMNS) == ArrowFrame(COLUMNS[1:], 2, None, "")
    table = pa.ipc.open_stream(COLUMNS[1:]).read_all()
    assert table.to_pydict() == {"__key": [b"k", None], "__timestamp": [5, -1], "n": [1, None]}


def test_a_decoded_frame_is_a_frame_like_any_other():
    for frame, data, _ in GOLDEN[1:5]:
        made = decode(bytes.fromhex(data))
        assert type(made) is type(frame)
        assert hash(made) == hash(frame)
        assert repr(made) == repr(frame)
        with pytest.raises(AttributeError):
            made.job = "other"


def test_control_is_told_by_the_first_byte():
    assert [is_control(bytes((kind,))) for kind in range(6)] == [False, True, True, True, False, False]
    assert not is_control(b"")


FIELDS = {"v": 1, "job": "j", "run": "r", "task": "t", "tasks": 2, "epoch": 1, "ts": 5, "id": "d"}


def control(kind=1, **changes):
    fields = {key: value for key, value in (FIELDS | changes).items() if value is not ...}
    return bytes((kind,)) + msgpack.packb(fields)


def batch(keys=(), timestamps=(), values=(), headers=None, kind=0):
    return b"\x04" + msgpack.packb([1, keys, timestamps, values, headers, kind])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"\x06", "unknown type 6"),
        (b"\x01", "control body is not msgpack"),
        (b"\x01\xc1", "control body is not msgpack"),
        (b"\x01\x81\xa1", "control body is not msgpack"),
        (b"\x01\x81\xa1\xff\x01", "control body is not msgpack"),
        (b"\x01\x81\x91\x01\x01", "control body is not msgpack"),
        (b"\x01\x80\x80", "control body is not msgpack"),
        (b"\x01\x90", "control body is not a map"),
        (b"\x01\x80", "no format version"),
        (control(v=2), "format version 2 is newer than 1"),
        (control(v=True), "no format version"),
        (control(v=1.0), "no format version"),
        (control(v=0), "no format version"),
        (control(job=...), "job is not text"),
        (control(job=b"j"), "job is not text"),
        (control(job=""), "job is empty or longer than 249 bytes"),
        (control(run="r" * 250), "run is empty or longer than 249 bytes"),
        (control(task="\u00e9" * 125), "task is empty or longer than 249 bytes"),
        (control(task=1), "task is not text"),
        (control(tasks=0), "tasks is not a number of producers"),
        (control(tasks=True), "tasks is not a number of producers"),
        (control(tasks=2**31), "tasks is not a number of producers"),
        (control(epoch=-1), "epoch is not a number from 0"),
        (control(epoch=2**63), "epoch is not a number from 0"),
        (control(epoch="1"), "epoch is not a number from 0"),
        (control(ts=2**63), "ts is not a signed 64 bit number"),
        (control(ts=1.5), "ts is not a signed 64 bit number"),
        (control(ts=...), "ts is not a signed 64 bit number"),
        (control(idle=1), "idle is neither true nor false"),
        (control(idle=True, away=1), "away is neither true nor false"),
        (control(away=True), "away, but not idle"),
        (control(2, left=1), "left is neither true nor false"),
        (control(3, id=...), "id is not text"),
        (control(3, id=""), "id is empty or longer than 249 bytes"),
        (control(more="x" * 4096), "control body too long"),
        (control(more=[[[[1]]]]), "control body is nested deeper than 4"),
        (b"\x01" + b"\x91" * 4096, "control body is nested deeper than 4"),
        (b"\x01\x85\xdd\xff\xff\xff\xff\x91\x91\x91\x91", "control body is nested deeper than 4"),
        (b"\x04", "batch is not msgpack, or too long"),
        (b"\x04\x90", "batch is not an array"),
        (b"\x04\x01", "batch is not an array"),
        (b"\x04\x91\x05", "format version 5 is newer than 1"),
        (b"\x04\x91\xcd\x01\x00", "format version 256 is newer than 1"),
        (b"\x04\x91\x00", "no format version"),
        (b"\x04\x93\x01\x90\x90", "batch has 3 parts, not 6"),
        (batch(values=1), "batch does not have three columns"),
        (batch(keys=[None]), "columns differ in length"),
        (batch([1], [1], [None]), "a key or value is not bytes"),
        (batch([None], [1], ["v"]), "a key or value is not bytes"),
        (batch([None], [True], [None]), "a timestamp is not a number"),
        (batch([None], [2**64 - 1], [None]), "a timestamp is not a signed 64 bit number"),
        (batch(headers=1), "headers are not an array for each record"),
        (batch([None], [1], [None], [None]), "headers are not an array for each record"),
        (batch([None], [1], [None], []), "columns differ in length"),
        (batch([None], [1], [None], [[1]]), "a header is not a pair"),
        (batch([None], [1], [None], [[["a"]]]), "a header is not a pair"),
        (batch([None], [1], [None], [[[b"a", b"b"]]]), "a header is not a string with bytes or nil"),
        (batch([None], [1], [None], [[["a", "b"]]]), "a header is not a string with bytes or nil"),
        (batch(kind=None), "kind is not a number"),
        (batch(kind=False), "kind is not a number"),
        (batch(kind=[]), "kind is not a number"),
        (batch(kind=["x", 5]), "kind is not a number"),
        (batch(kind=2), "unknown kind 2"),
        (batch(kind=[0]), "unknown kind 0"),
        (batch(kind=[2, "more"]), "unknown kind 2"),
        (batch(kind=1), "partial states without the digest of their plan"),
        (batch(kind=[1, True]), "partial states without the digest of their plan"),
        (batch(kind=[1, 2**32]), "partial states without the digest of their plan"),
        (batch(kind=[1, 5, 6]), "partial states without the digest of their plan"),
        (b"\x04\x94\x01\x90\x90\x90\x00", "batch has trailing bytes"),
        (b"\x04\x94\x01\xdd\xff\xff\xff\xff", "batch is not msgpack, or too long"),
        (
            b"\x04" + msgpack.packb([1, [None] * 65537, [1] * 65537, [None] * 65537]),
            "batch is not msgpack, or too long",
        ),
    ],
)
def test_what_is_not_a_frame_says_why(data, reason):
    with pytest.raises(FrameError) as caught:
        decode(data)
    assert caught.value.reason == reason
    assert isinstance(caught.value, DataError)


def test_the_limits_themselves_are_allowed():
    for frame in (
        Watermark("j" * 249, "r", "t" * 249, 2**31 - 1, 2**63 - 1, MAX_TIME),
        Watermark("j", "r", "\u00e9" * 124, 1, 0, NO_TIME),
        Drain("j", "r", None, 1, 0, "d" * 249),
        BatchFrame([], [], []),
        BatchFrame([None] * MAX_BATCH_RECORDS, [0] * MAX_BATCH_RECORDS, [b""] * MAX_BATCH_RECORDS),
    ):
        assert decode(encode(frame)) == frame
    assert decode(control(more=[[[1]]])) == decode(control())


def test_unknown_keys_are_ignored_even_where_many_bytes_look_like_containers():
    assert decode(control(more=b"\x91" * 100, other={"a": [1, 2, {"b": None}]})) == decode(control())
    assert decode(b"\x04" + msgpack.packb([1, [None], [1], [None], None, 0, {}, [1]])) == BatchFrame(
        [None], [1], [None]
    )


@pytest.mark.parametrize(
    "frame",
    [
        Watermark("", "r", "t", 1, 1, 0),
        Watermark("j", "r", "t", 1, 1, 2**64),
        Watermark("j", "r", "t", 1, 1, 5, False, True),
        EndOfStream("j", "\ud800", "t", 1, 1),
        Drain("j", "r", "t", 0, 1, "d"),
        BatchFrame([None], [], []),
        BatchFrame(["k"], [1], [None]),
        BatchFrame([None] * 65537, [1] * 65537, [None] * 65537),
        BatchFrame([None], [1], [None], []),
        BatchFrame([None], [1], [None], [[("a", "b")]]),
        BatchFrame([None], [1], [None], [[("\ud800", b"b")]]),
        BatchFrame([None], [1], [None], None, -1),
    ],
)
def test_what_would_not_be_read_is_not_written(frame):
    with pytest.raises(FrameError):
        encode(frame)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
WHO = {
    "job": NAMES,
    "run": NAMES,
    "task": NAMES | st.none(),
    "tasks": st.integers(1, 2**31 - 1),
    "epoch": st.integers(0, 2**63 - 1),
}
TIMES = st.integers(NO_TIME, MAX_TIME)
BYTES = st.binary(max_size=9) | st.none()
HEADERS = st.lists(st.tuples(NAMES, BYTES), max_size=3)
RECORDS = st.lists(st.tuples(BYTES, TIMES, BYTES, HEADERS), max_size=9)


def in_columns(rows, with_headers, plan):
    keys, times, values, headers = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [])
    return BatchFrame(keys, times, values, headers if with_headers else None, plan)


ANY_FRAME = st.one_of(
    st.builds(Watermark, **WHO, ts=TIMES, idle=st.booleans()),
    st.builds(Watermark, **WHO, ts=TIMES, idle=st.just(True), away=st.just(True)),
    st.builds(EndOfStream, **WHO, left=st.booleans()),
    st.builds(Drain, **WHO, id=NAMES),
    st.builds(UserFrame, st.binary(max_size=50)),
    st.builds(in_columns, RECORDS, st.booleans(), st.integers(0, 2**32 - 1) | st.none()),
)


@settings(deadline=None, max_examples=100)
@given(ANY_FRAME)
def test_encode_and_decode_are_inverse(frame):
    assert decode(encode(frame)) == frame
    assert encode(decode(encode(frame))) == encode(frame)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def spoilt(frame, at, byte):
    data = encode(frame)
    return bytes((*data[:at], byte, *data[at + 1 :]))


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(
        st.binary(max_size=80),
        st.builds(lambda kind, body: bytes((kind,)) + body, st.integers(1, 4), st.binary(max_size=80)),
        st.builds(
            lambda kind, more: control(kind, **more),
            st.integers(1, 3),
            st.dictionaries(st.sampled_from(sorted(FIELDS)), PLAIN),
        ),
        st.builds(lambda parts: b"\x04" + msgpack.packb([1, *parts]), st.lists(PLAIN, max_size=6)),
        st.builds(lambda headers, kind: batch([b"k"], [1], [b"v"], headers, kind), st.lists(PLAIN), PLAIN),
        st.builds(spoilt, ANY_FRAME, st.integers(0, 90), st.integers(0, 255)),
    )
)
def test_any_bytes_are_a_frame_or_a_frame_error(data):
    try:
        frame = decode(data)
    except FrameError:
        return
    if not isinstance(frame, ArrowFrame):
        assert decode(encode(frame)) == frame


def test_nothing_is_built_that_the_input_does_not_deserve():
    """Five bytes that announce four thousand million elements, a thousand times over, cost kilobytes."""
    bombs = [
        b"\x01\x85" + b"\xdd\xff\xff\xff\xff" * 800,
        b"\x04\x94\x01" + b"\xdd\x00\x00\xff\xff" * 1000,
        b"\x02\xdf\xff\xff\xff\xff",
    ]
    tracemalloc.start()
    for bomb in bombs:
        with pytest.raises(FrameError):
            decode(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400_000


def test_every_type_has_a_decoder_and_a_name():
    assert len(module.TYPE_NAMES) == len(module._DECODERS) == 6
