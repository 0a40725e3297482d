"""What a reader of committed records sees of a fetch answer, as bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.util import calc_crc32c

from headgate.agents.kafka.record_batch import Builder
from headgate.agents.records.kafka.columns import CHECKED_FROM, DamagedBatch
from headgate.agents.records.kafka.visible import CONTROL, TRANSACTIONAL, FetchedRange, NotWhole
from headgate.agents.records.native import chosen

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def batch(
    base: int,
    values: list[bytes | None],
    *,
    keys: list[bytes | None] | None = None,
    codec: str | None = None,
    producer: int | None = None,
    flags: int = 0,
    more: int = 0,
) -> bytes:
    """A batch. `producer`: it belongs to a transaction. `more`: so many further offsets, whose records were compacted away."""
    builder = Builder(1 << 20, codec, transactional=False)
    assert builder.add(keys, values, [1000 + base + n for n in range(len(values))], None, 0) == len(values)
    data = bytearray(builder.batch._build())
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, 23, len(values) - 1 + more)
    attributes = struct.unpack_from(">h", data, 21)[0] | flags | (0 if producer is None else TRANSACTIONAL)
    struct.pack_into(">h", data, 21, attributes)
    struct.pack_into(">q", data, 43, -1 if producer is None else producer)
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[CHECKED_FROM:])))
    return bytes(data)


def marker(base: int, producer: int, key: bytes) -> bytes:
    """A control batch."""
    return batch(base, [b"\0\0\0\0\0\0"], keys=[key], producer=producer, flags=CONTROL)


def read(raw: bytes, position: int, behind: int, aborted: Any = ()) -> tuple[list[Any], int]:
    """The values and offsets that are seen, and where reading continues."""
    answer = FetchedRange(raw, position, aborted)
    records = answer.records(behind)
    seen = [] if records is None else list(zip(records.columns().values, records.columns().every_offset(), strict=True))
    return seen, answer.position


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_a_range_whatever_their_compression(codec: str | None) -> None:
    raw = batch(5, [b"a", b"b", b"c"], codec=codec) + batch(8, [b"d", None], codec=codec)
    assert read(raw, 5, 10) == ([(b"a", 5), (b"b", 6), (b"c", 7), (b"d", 8), (None, 9)], 10)
    assert read(raw, 6, 9) == ([(b"b", 6), (b"c", 7), (b"d", 8)], 9)
    assert read(raw, 7, 8) == ([(b"c", 7)], 8)


def test_aborted_records_and_control_batches_are_not_seen() -> None:
    raw = b"".join(
        [
            batch(0, [b"a1"], producer=1),
            batch(1, [b"c1"], producer=2),
            batch(2, [b"plain"]),
            batch(3, [b"a2"], producer=1),
            marker(4, 1, ABORT),
            marker(5, 2, COMMIT),
            batch(6, [b"c2"], producer=1),  # the next transaction of the same producer
            marker(7, 1, COMMIT),
        ]
    )
    assert read(raw, 0, 8, [(1, 0)]) == ([(b"c1", 1), (b"plain", 2), (b"c2", 6)], 8)
    assert read(raw, 3, 5, [(1, 0)]) == ([], 5)


def test_two_transactions_of_a_producer_may_both_be_aborted() -> None:
    raw = batch(0, [b"x"], producer=1) + marker(1, 1, ABORT) + batch(2, [b"y"], producer=1) + marker(3, 1, ABORT)
    assert read(raw, 0, 4, [(1, 2), (1, 0)]) == ([], 4)
    assert read(raw, 0, 4, [(1, 2)])[0] == [(b"x", 0)]


def test_a_batch_that_is_cut_off_waits_for_the_next_fetch() -> None:
    raw = batch(0, [b"a"]) + batch(1, [b"b"])
    for cut in (1, 20, len(batch(1, [b"b"])) - 1):
        assert read(raw[:-cut], 0, 2) == ([(b"a", 0)], 1)
    assert read(b"", 0, 2) == ([], 0)


def test_a_log_with_gaps_is_refused() -> None:
    with pytest.raises(NotWhole, match="no records at the offsets 3 to 4"):
        read(batch(5, [b"a"]), 3, 9)
    with pytest.raises(NotWhole, match="no records at the offsets 1 to 1"):
        read(batch(0, [b"a"]) + batch(2, [b"b"]), 0, 9)
    with pytest.raises(NotWhole, match="compacted"):
        read(batch(0, [b"a", b"b"], more=2), 0, 9)


@pytest.mark.parametrize(
    ("at", "value", "match"),
    [
        (16, 1, "older than Kafka 0.11"),
        (18, 0x55, "checksum"),
        (8, 0x80, "claims"),
        (8, 0x40, "not all of it"),
        (70, 0xFF, "cannot be read"),
    ],
)
def test_damage_is_refused(at: int, value: int, match: str) -> None:
    raw = bytearray(batch(0, [b"a" * 20, b"b"]))
    raw[at] ^= value if value != 1 else 3
    with pytest.raises(DamagedBatch, match=match):
        read(bytes(raw), 0, 2)
