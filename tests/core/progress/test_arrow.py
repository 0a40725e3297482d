"""Columns: what may stand in a frame, what is refused and why, and that no bytes get past the walk that pyarrow cannot read."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.progress.arrow import arrow_shape
from headgate.core.progress.frames import ArrowFrame, FrameError, decode

from .columns import HEADERS, every_type, frame, mutated, records, stream, streams

MUTATIONS = 4000
"""So many are tried in each run, always the same; half a million others were tried when the walk was written."""


def test_every_type_that_a_frame_may_hold():
    """With nulls, sliced, in several batches, without a row."""
    assert [decode(b"\x05" + one).records for one in streams()] == [3, 2, 6, 0]
    assert decode(frame(every_type())) == ArrowFrame(stream(every_type()), 3, None, "")


def test_what_the_metadata_says():
    states = decode(
        frame(every_type(), {"hg.v": "1", "hg.kind": "1 4294967295", "hg.schema": "Order/3", "pandas": "{}"})
    )
    assert (states.plan, states.schema) == (2**32 - 1, "Order/3")


def halved(data):
    return data[: len(data) // 2]


PAIR = pa.struct([("name", pa.utf8()), ("value", pa.binary())])
VALUE = records(v=["a", "b", "c"])
REFUSED = {
    "nothing": (b"\x05", "is cut off"),
    "no stream": (b"\x05" + bytes(16), "is no Arrow stream"),
    "no schema": (b"\x05\xff\xff\xff\xff\0\0\0\0", "has no schema"),
    "a half": (halved(frame(VALUE)), "is cut off"),
    "no end": (frame(VALUE)[:-8], "is cut off"),
    "more behind the end": (frame(VALUE) + b"x", "has trailing bytes"),
    "twice": (frame(VALUE)[:-8] + stream(VALUE), "does not begin with one schema"),
    "compression": (frame(VALUE, compression="zstd"), "is compressed"),
    "older metadata": (frame(VALUE, metadata_version=pa.ipc.MetadataVersion.V4), "is not of metadata version 5"),
    "a dictionary": (frame(records(v=pa.array(["a", "a", "b"]).dictionary_encode())), "has a dictionary"),
    "an extension": (
        frame(records(v=pa.array([b"0123456789abcdef"] * 3, pa.uuid()))),
        "has an extension type",
    ),
    "null": (frame(records(v=pa.nulls(3))), "has a column of type null"),
    "decimal": (frame(records(v=pa.array([1, 2, 3], pa.decimal128(9)))), "has a column of type decimal"),
    "a view": (frame(records(v=pa.array(["a", "b", "c"], pa.string_view()))), "has a column of type text view"),
    "milliseconds of days": (frame(records(v=pa.array([1, 2, 3], pa.date64()))), "has dates that are not days"),
    "an empty struct": (
        frame(records(v=pa.array([{}] * 3, pa.struct([])))),
        "has a field with a wrong number of children",
    ),
    "no keys": (frame(VALUE.drop_columns(["__key"])), "has no column __key of type binary"),
    "keys of text": (
        frame(VALUE.set_column(0, "__key", pa.array(["a", "b", "c"]))),
        "has no column __key of type binary",
    ),
    "no times": (frame(VALUE.drop_columns(["__timestamp"])), "has no column __timestamp of type int64"),
    "unsigned times": (
        frame(VALUE.set_column(1, "__timestamp", pa.array([1, 2, 3], pa.uint64()))),
        "has no column __timestamp of type int64",
    ),
    "a time that is null": (
        frame(VALUE.set_column(1, "__timestamp", pa.array([1, None, 3], pa.int64()))),
        "has nulls where none may be",
    ),
    "no values": (frame(VALUE.drop_columns(["v"])), "has no column of values"),
    "headers of text": (
        frame(records(v=[1, 2, 3], __headers=["a", "b", "c"])),
        "has a column __headers that is not a list of structs of name (utf8) and value (binary)",
    ),
    "a header that is null": (
        frame(records(v=[1, 2, 3], __headers=pa.array([[None], [], []], HEADERS))),
        "has nulls where none may be",
    ),
    "a header without a name": (
        frame(records(v=[1, 2, 3], __headers=pa.array([[(None, b"")], [], []], HEADERS))),
        "has nulls where none may be",
    ),
    "headers in no list": (
        frame(records(v=[1, 2, 3], __headers=pa.array([("a", b"")] * 3, PAIR))),
        "has a column __headers that is not a list of structs of name (utf8) and value (binary)",
    ),
    "an unknown column": (frame(records(__v=[1, 2, 3])), "has an unknown column whose name begins with __"),
    "one name twice": (frame(VALUE.append_column("v", pa.array([1, 2, 3]))), "has two fields of one name"),
    "too many": (frame(records(65537, v=pa.array(bytes(65537)))), "has too many records"),
}


@pytest.mark.parametrize(("data", "why"), REFUSED.values(), ids=REFUSED)
def test_what_may_not_stand_in_a_frame(data, why):
    with pytest.raises(FrameError) as caught:
        decode(data)
    assert caught.value.reason == f"Arrow stream {why}"


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"hg.kind": "0"}, "no format version"),
        ({"hg.v": "one", "hg.kind": "0"}, "no format version"),
        ({"hg.v": "2"}, "format version 2 is newer than 1"),
        ({"hg.v": "1"}, "kind is not a number"),
        ({"hg.v": "1", "hg.kind": "rows"}, "kind is not a number"),
        ({"hg.v": "1", "hg.kind": "0 1"}, "unknown kind 0"),
        ({"hg.v": "1", "hg.kind": "2"}, "unknown kind 2"),
        ({"hg.v": "1", "hg.kind": "1"}, "partial states without the digest of their plan"),
        ({"hg.v": "1", "hg.kind": "1 x"}, "partial states without the digest of their plan"),
    ],
)
def test_metadata_that_says_something_else(metadata, reason):
    with pytest.raises(FrameError) as caught:
        decode(frame(VALUE, metadata))
    assert caught.value.reason == reason


def test_a_newer_version_names_itself_before_its_shape_is_judged():
    """What a later version allows, this one need not know."""
    later = records(v=pa.array(["a", "a", "b"]).dictionary_encode())
    with pytest.raises(FrameError, match="format version 2 is newer"):
        decode(frame(later, {"hg.v": "2"}))


def test_nesting_is_bounded():
    deep, deeper = pa.array([1, 2, 3]), pa.array([1, 2, 3])
    for _ in range(8):
        deep, deeper = deeper, pa.StructArray.from_arrays([deeper], names=["x"])
    assert decode(frame(records(v=deep))).records == 3
    with pytest.raises(FrameError, match="is nested deeper than 8"):
        decode(frame(records(v=pa.StructArray.from_arrays([deeper], names=["x"]))))


def reads(data):
    """Whether it passes; then pyarrow reads it without complaint, and sees the same."""
    found = arrow_shape(data, 100, "1")
    if isinstance(found, str):
        return False
    if found.metadata.get("hg.v") != "1":
        return False
    table = pa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    assert table.num_rows == found.records
    assert {key.decode(): value.decode() for key, value in table.schema.metadata.items()} == found.metadata
    return True


def test_whatever_passes_pyarrow_reads():
    """Streams with a few bytes changed: nearly all are refused, and of those that are not pyarrow says that they are valid."""
    chance = Random(1)
    bases = [*streams(), stream(VALUE), stream(VALUE.slice(0, 1))]
    passed = sum(reads(mutated(chance.choice(bases), chance)) for _ in range(MUTATIONS))
    assert MUTATIONS / 50 < passed < MUTATIONS / 4


@settings(deadline=None, max_examples=100)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=200).map(lambda body: b"\xff\xff\xff\xff" + struct.pack("<i", len(body) // 8 * 8) + body),
        st.builds(lambda seed: mutated(stream(VALUE), Random(seed)), st.integers(0, 2**32)),
    )
)
def test_any_bytes_are_a_frame_or_a_frame_error(data):
    with contextlib.suppress(FrameError):
        assert decode(b"\x05" + data).body == data


def test_a_column_that_claims_to_be_endless_costs_nothing():
    """The values of lists may be more than the lists name; they must be there all the same."""
    data = bytearray(stream(records(v=pa.array([[1], [None], []]))))
    node = data.index(struct.pack("<qqqq", 3, 0, 2, 1)) + 16
    struct.pack_into("<q", data, node, 2**40)
    tracemalloc.start()
    assert arrow_shape(bytes(data), 100, "1") == "has a buffer that is too short"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_one_part_that_is_named_often_is_paid_for_each_time():
    """A vector whose elements all lead to one long text would be a thousand texts: it is refused before the second."""
    name = "n" * 100_000
    data = bytearray(stream(records(**{name: [1, 2, 3]}, **{f"c{n}": [1, 2, 3] for n in range(50)})))
    at = data.index(struct.pack("<I", 53), 0, len(data) - 4)
    (offset,) = struct.unpack_from("<I", data, at + 4)
    for n in range(53):
        struct.pack_into("<I", data, at + 4 + 4 * n, offset - 4 * n)
    tracemalloc.start()
    assert isinstance(arrow_shape(bytes(data), 10, "1"), str)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * len(data)
