"""What executors make of a fetch answer: rows in columns, and the records that are bad, with the rules of a task."""

from __future__ import annotations

from array import array
from typing import Any

import orjson
import pyarrow
import pytest

from headgate.agents.job.types.timestamps import field
from headgate.agents.kafka.record_batch import Builder
from headgate.agents.operators.source.range_rows import FrameDecoder, RangeDecoder
from headgate.agents.records.frames.arrow_frames import FrameWriter
from headgate.agents.records.memory.record_spans import packed
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.core.batching.ranges import RangeBroken
from headgate.core.columns.schema import ColumnSpec, PathPart
from headgate.core.progress.frames import ARROW, BatchFrame, Watermark, encode

from ...records.trees import framed

COLUMNS = (("user", "text", False), ("n", "int64", True), ("ts", "int64", True))


def answer(*values: bytes | None) -> bytes:
    """The bytes of an answer with these records, from offset 0 on; record i has the time 100 + i, the key `k<i>`, and a header."""
    builder = Builder(1 << 20, "zstd", transactional=False)
    count = len(values)
    keys: list[bytes | None] = [f"k{i}".encode() for i in range(count)]
    headers = [[("h", str(i).encode())] for i in range(count)]
    assert builder.add(keys, list(values), [100 + i for i in range(count)], headers, 0) == count
    return bytes(builder.batch._build())


def test_rows_are_columns_and_the_greatest_time_is_theirs() -> None:
    raw = answer(b'{"user":"a","n":1,"ts":5}', b'{"user":"b","ts":9,"more":[]}', None)
    found = RangeDecoder(COLUMNS, "ts")("t", 0, raw, 0, 3, ())
    assert found.batch is not None
    assert found.batch.rows() == [{"user": "a", "n": 1, "ts": 5}, {"user": "b", "n": None, "ts": 9}]
    assert (found.rows, found.tombstones, found.greatest_ms, found.position, found.bad) == (2, 1, 9, 3, ())
    assert RangeDecoder(COLUMNS, None)("t", 0, raw, 0, 3, ()).greatest_ms == 101
    assert RangeDecoder(COLUMNS, field("ts", unit="s"))("t", 0, raw, 0, 3, ()).greatest_ms == 9000
    part = RangeDecoder(COLUMNS, "ts")("t", 0, raw, 1, 2, ())
    assert (part.rows, part.position) == (1, 2)
    assert RangeDecoder(COLUMNS, "ts")("t", 0, answer(None), 0, 1, ()).batch is None
    assert RangeDecoder(COLUMNS, "ts")("t", 0, b"", 4, 5, ()).position == 4


def test_bad_records_are_left_out_and_named() -> None:
    raw = answer(b'{"user":"a","ts":5}', b"{", b'{"user":"b","ts":null}', b'{"n":1,"ts":1}', b'{"user":"c","ts":7}')
    found = RangeDecoder(COLUMNS, "ts")("t", 3, raw, 0, 5, ())
    assert found.batch is not None
    assert [row["user"] for row in found.batch.rows()] == ["a", "c"]
    assert (found.rows, found.greatest_ms, found.position) == (2, 7, 5)
    assert [one.offset for one in found.bad] == [1, 2, 3]
    for one, why in zip(found.bad, ("not json", "no event time", "'user' is missing"), strict=True):
        assert why in one.why
        offset = one.offset
        assert (one.topic, one.partition, one.timestamp) == ("t", 3, 100 + offset)
        assert (one.key, one.headers) == (f"k{offset}".encode(), (("h", str(offset).encode()),))
    assert found.bad[0].value == b"{"


def test_bytes_that_cannot_be_read_name_the_partition() -> None:
    raw = bytearray(answer(b'{"user":"a","ts":5}'))
    raw[30] ^= 1
    with pytest.raises(RangeBroken, match=r"t\[3\]: the batch at offset 0 cannot be read"):
        RangeDecoder(COLUMNS, "ts")("t", 3, bytes(raw), 0, 1, ())
    with pytest.raises(RangeBroken, match="no records at the offsets"):
        RangeDecoder(COLUMNS, "ts")("t", 3, _later(answer(b'{"user":"a","ts":5}')), 0, 9, ())


def _later(raw: bytes) -> bytes:
    """The batch, with the base offset 5; the checksum does not cover it."""
    return (5).to_bytes(8, "big") + raw[8:]


# ------------------------------------------------------------------------------------------------ frames of an intermediate stream

KINDS = ("text", "int64", "int64")


def frame_of(rows: list[dict[str, Any]]) -> bytes:
    """The rows as a task writes them: as a frame of columns, or of rows if they are few."""
    vectors = [Vector.of(kind, [row[name] for row in rows]) for (name, *_), kind in zip(COLUMNS, KINDS, strict=True)]
    batch = VectorBatch(tuple(name for name, *_ in COLUMNS), tuple(vectors), len(rows))
    writer = FrameWriter(list(batch.names), lambda batch: packed([orjson.dumps(row) for row in batch.rows()]))
    (record,) = writer.records(framed(None, array("q", range(len(rows))), batch))
    return record.value


def some_rows(count: int, user: str) -> list[dict[str, Any]]:
    return [{"user": user, "n": n, "ts": 1} for n in range(count)]


def test_frames_of_columns_and_of_rows_are_read_and_control_messages_are_none() -> None:
    few, many = some_rows(3, "a"), some_rows(100, "b")
    watermark = encode(Watermark("job", "run", None, 1, 1, 5))
    one = b"\x00" + orjson.dumps({"user": "c", "n": 7, "ts": 1})
    raw = answer(frame_of(few), watermark, frame_of(many), one)
    assert frame_of(many)[0] == ARROW
    found = FrameDecoder(COLUMNS)("t", 0, raw, 0, 4, ())
    assert [(offset, batch.rows()) for offset, batch in found.frames] == [
        (0, few),
        (2, many),
        (3, [{"user": "c", "n": 7, "ts": 1}]),
    ]
    assert (found.rows, found.position, found.bad, found.batch) == (104, 4, (), None)
    part = FrameDecoder(COLUMNS)("t", 0, raw, 1, 3, ())
    assert (part.rows, part.position, [offset for offset, _ in part.frames]) == (100, 3, [2])
    assert FrameDecoder(COLUMNS)("t", 0, b"", 4, 5, ()).position == 4


def test_what_is_no_frame_of_these_rows_is_bad() -> None:
    torn, partial = b"\x05torn", encode(BatchFrame([None], [1], [b"x"], plan=7))
    wrong = encode(BatchFrame([None] * 3, [1, 2, 3], [b'{"user":"a","n":"1","ts":1}', None, b'{"user":"b","ts":1}']))
    found = FrameDecoder(COLUMNS)("t", 3, answer(torn, partial, wrong), 0, 3, ())
    assert [(offset, [row["user"] for row in batch.rows()]) for offset, batch in found.frames] == [(2, ["b"])]
    assert [one.offset for one in found.bad] == [0, 1, 2]
    for one, why in zip(found.bad, ("not a frame", "partial states", "n"), strict=True):
        assert why in one.why


def test_columns_of_another_schema_are_read_as_rows() -> None:
    """As the task reads them: a column that is missing is null, if it may be."""
    raw = answer(frame_of(some_rows(100, "b")))
    wanted = (("user", "text", False), ("more", "float64", True))
    found = FrameDecoder(wanted)("t", 0, raw, 0, 1, ())
    assert [batch.rows() for _, batch in found.frames] == [[{"user": "b", "more": None}] * 100]
    missing = FrameDecoder((("more", "float64", False),))("t", 0, raw, 0, 1, ())
    assert (missing.rows, len(missing.bad)) == (0, 100)


def test_nested_objects_are_structs() -> None:
    """Of records and of frames, as Spark gets them of a worker."""
    inner = ColumnSpec("a.n", "int64", True, (PathPart("a", True), PathPart("n", False)))
    there = ColumnSpec("a", "bool", True, (PathPart("a", True),), is_object=True)
    columns = [there.plain(), inner.plain(), ("ts", "int64", False)]
    raw = answer(b'{"a":{"n":7},"ts":1}', b'{"ts":2}', b'{"a":{},"ts":3}')
    found = RangeDecoder(columns, "ts")("t", 0, raw, 0, 3, ())
    assert pyarrow.record_batch(found.batch).to_pylist() == [{"a": {"n": 7}, "ts": 1}, {"a": None, "ts": 2}]
    assert ["'a.n' is missing" in one.why for one in found.bad] == [True]
    body = b'{"a":true,"a.n":7,"ts":1}'
    frames = FrameDecoder(columns)("t", 0, answer(encode(BatchFrame((None,), (1,), (body,), None))), 0, 1, ()).frames
    assert [pyarrow.record_batch(one).to_pylist() for _, one in frames] == [[{"a": {"n": 7}, "ts": 1}]]
