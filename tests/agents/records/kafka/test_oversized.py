"""Batches that are much larger once they are decompressed: every reader refuses them before it holds them, and names their sizes."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest
from aiokafka.record.util import calc_crc32c

from headgate.agents.kafka import private
from headgate.agents.kafka.record_batch import CODECS, Builder
from headgate.agents.operators.source.range_rows import FrameDecoder, RangeDecoder
from headgate.agents.records.frames.chunks import FetchBuffer
from headgate.agents.records.kafka import codecs, columns
from headgate.agents.records.kafka.columns import CHECKED_FROM, OversizedBatch, read_batch
from headgate.agents.records.kafka.fetched import RecordBatch
from headgate.agents.records.kafka.spans import read_spans
from headgate.agents.records.kafka.visible import FetchedRange
from headgate.agents.records.native import chosen
from headgate.agents.records.values.serdes import json
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import UserFrame, encode

from .test_spans import needs_compiler, plainly

AT = StreamPartition("orders", 3)
NAMES = ["gzip", "snappy", "lz4", "zstd"]
LIMIT = 100_000


def batch_of(codec: str | None, values: list[bytes | None], base: int = 0) -> bytes:
    builder = Builder(1 << 30, codec, transactional=False)
    builder.add(None, values, list(range(len(values))), None, 0)
    made = bytearray(builder.batch._build())
    struct.pack_into(">q", made, 0, base)
    return bytes(made)


def large(codec: str, base: int = 0) -> bytes:
    """Three records, 300 kB in all."""
    return batch_of(codec, [b"x" * LIMIT] * 3, base)


def fetched(raw: bytes, base: int, count: int) -> RecordBatch:
    return RecordBatch(
        lambda most: read_batch(raw, 0, len(raw), most),
        base,
        base + count,
        count,
        0,
        2,
        len(raw),
        spans=lambda most: read_spans(raw, 0, len(raw), most),
    )


@pytest.mark.parametrize("codec", NAMES)
def test_each_way_to_read_has_the_bound(codec: str) -> None:
    """33 kB of zstd were a gigabyte, and the process held it four times."""
    raw = large(codec, 7)
    ways = [
        lambda most: plainly(read_spans, raw, 0, len(raw), most),
        lambda most: plainly(read_batch, raw, 0, len(raw), most),
    ]
    if chosen.COMPILED is not None:
        ways += [lambda most: read_batch(raw, 0, len(raw), most), lambda most: read_spans(raw, 0, len(raw), most)]
    for way in ways:
        assert len(way(4 * LIMIT)) == 3
        with pytest.raises(OversizedBatch, match=rf"offset 7 .* {len(raw)} bytes, .* more than {LIMIT} \(fetch.max-b"):
            way(LIMIT)


@pytest.mark.parametrize("codec", NAMES)
def test_what_just_fits_is_read(codec: str) -> None:
    decode = codecs.DECODERS[CODECS[codec]]
    for size in (1, 1 << 16, LIMIT):
        packed = codecs.ENCODERS[CODECS[codec]](b"x" * size)
        assert decode(packed, size) == b"x" * size
        with pytest.raises(codecs.BeyondBound):
            decode(packed, size - 1)
        for torn in (packed[:-1], packed[: len(packed) // 2]):
            with pytest.raises(Exception, match=r".") as error:
                decode(torn, LIMIT)
            assert not isinstance(error.value, codecs.BeyondBound)


def test_aiokafkas_own_consumers_have_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "DECODERS", {4: lambda payload, most: codecs.zstd_decode(payload, LIMIT)})
    with pytest.raises(OversizedBatch):
        list(private._KeptRecords(large("zstd")).next_batch())


BOMB = r"""
import resource, sys
from headgate.agents.kafka.record_batch import CODECS
from headgate.agents.records.kafka import codecs

name = sys.argv[1]
packed = codecs.ENCODERS[CODECS[name]](bytes(300 << 20))
resource.setrlimit(resource.RLIMIT_AS, ((600 << 20) + 0, (600 << 20) + 0))
try:
    codecs.DECODERS[CODECS[name]](packed, 64 << 20)
except codecs.BeyondBound as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("codec", NAMES)
def test_little_more_than_the_bound_is_ever_held(codec: str) -> None:
    """The process may have far less memory than the batch would take."""
    told = subprocess.run([sys.executable, "-c", BOMB, codec], capture_output=True, text=True, timeout=300, check=False)
    assert told.stdout == f"refused: more than {64 << 20} bytes\n", told.stderr[-500:]


@pytest.mark.parametrize("spanned", [pytest.param(True, marks=needs_compiler), False])
@pytest.mark.parametrize("framed", [True, False])
def test_it_is_a_chunk_of_its_own_between_the_others(spanned: bool, framed: bool) -> None:
    """So that its input's policy decides about it, and everything around it is read as ever."""

    def small(base: int) -> RecordBatch:
        value = encode(UserFrame(b"1")) if framed else b"1"
        return fetched(batch_of("zstd", [value, value], base), base, 2)

    raw = large("zstd", 2)
    buffer = FetchBuffer(AT, 0, spanned=spanned, framed=json() if framed else None, most_bytes=LIMIT)
    buffer.put([small(0), fetched(raw, 2, 3), small(5)], 0, 7)
    chunks = [buffer.take(100, most_bytes=1 << 20) for _ in range(3)]
    assert [(chunk.is_data, chunk.offsets, chunk.next_position) for chunk in chunks if chunk is not None] == [
        (True, [0, 1], 2),
        (False, [2], 5),
        (True, [5, 6], 7),
    ]
    middle = chunks[1]
    assert middle is not None
    assert (middle.values, middle.timestamps) == ([raw], [2])
    assert str(middle.bad) == (
        f"the records at orders[3] offsets 2 to 4 are one batch of {len(raw)} bytes, which are more than {LIMIT} "
        "(fetch.max-batch-bytes) once they are decompressed. Remedy: raise fetch.max-batch-bytes, if the worker has the memory, or leave "
        "the batch out: on_bad_data='skip' or 'dead_letter' on the input"
    )


def test_a_position_within_it_is_not_passed_in_silence() -> None:
    """Records below the position are not wanted again; those behind it are what is left out."""
    buffer = FetchBuffer(AT, 3, most_bytes=LIMIT)
    buffer.put([fetched(large("lz4", 2), 2, 3)], 3, 5)
    chunk = buffer.take(100)
    assert chunk is not None
    assert (chunk.offsets, chunk.next_position) == ([3], 5)
    assert "the records at orders[3] offsets 3 to 4" in str(chunk.bad)


def test_a_bound_within_it_ends_there() -> None:
    """An input that ends at an offset stands there, whatever the batch around it holds."""
    buffer = FetchBuffer(AT, 0, until=4, most_bytes=LIMIT)
    buffer.put([fetched(large("lz4", 2), 2, 3)], 2, 5)
    chunk = buffer.take(100)
    assert chunk is not None
    assert (chunk.offsets, chunk.next_position, buffer.position, buffer.ended) == ([2], 4, 4, True)


def test_executors_name_it_among_the_bad_records() -> None:
    raw = batch_of("zstd", [b'{"v":1}']) + large("zstd", 1) + batch_of("zstd", [b'{"v":2}'], 4)
    answer = FetchedRange(raw, 0, most=LIMIT)
    records = answer.records(5)
    assert records is not None
    assert (records.columns().every_offset(), answer.position) == ([0, 4], 5)
    found = RangeDecoder((("v", "int64", False),), None, LIMIT)("orders", 3, raw, 0, 5, ())
    assert (found.position, found.rows) == (5, 2)
    [bad] = found.bad
    assert (bad.topic, bad.partition, bad.offset, bad.timestamp, bad.value) == ("orders", 3, 1, 2, large("zstd", 1))
    assert "the records at orders[3] offsets 1 to 3 are one batch" in bad.why
    [framed] = FrameDecoder((("v", "int64", False),), LIMIT)("orders", 3, large("zstd"), 0, 3, ()).bad
    assert framed.offset == 0


def with_attributes(raw: bytes, byte: int) -> bytes:
    """The first record's attributes are this byte."""
    made = bytearray(raw)
    made[62 if made[61] < 0x80 else 63] = byte
    struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[CHECKED_FROM:])))
    return bytes(made)


@pytest.mark.parametrize("byte", [0x01, 0x7F, 0x80, 0xFF])
def test_attributes_of_a_record_are_one_byte(byte: int) -> None:
    """aiokafka's parser takes them for a varint: a key was lost, or the partition stood still. Brokers and Java's client take any byte."""
    builder = Builder(1 << 16, None, transactional=False)
    builder.add([b"key", b"k"], [b"value", b"v"], [5, 6], None, 0)
    good = bytes(builder.batch._build())
    raw = with_attributes(good, byte)
    wanted = plainly(read_spans, good, 0, len(good)).columns()
    assert wanted.keys == [b"key", b"k"]
    found = [
        plainly(read_spans, raw, 0, len(raw)).columns(),
        columns.columns_of(private._KeptRecords(raw).next_batch()),
        plainly(lambda: columns.columns_of(private._KeptRecords(raw).next_batch())),
    ]
    if chosen.COMPILED is not None:
        found += [read_batch(raw, 0, len(raw)), read_spans(raw, 0, len(raw)).columns()]
    assert found == [wanted] * len(found)
