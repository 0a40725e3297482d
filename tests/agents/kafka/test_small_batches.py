"""Many small batches are read at once, with what each of them would give by itself."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.record.util import calc_crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.agents.kafka import private
from headgate.agents.kafka.record_batch import Builder
from headgate.agents.records.frames.chunks import FetchBuffer
from headgate.agents.records.kafka.columns import CHECKED_FROM, DamagedBatch
from headgate.agents.records.kafka.fetched import RecordBatch, Taken
from headgate.agents.records.kafka.spans import read_run
from headgate.agents.records.native import chosen
from headgate.core.names import StreamPartition

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
AT = StreamPartition("in", 0)

BYTES = st.none() | st.binary(max_size=20)
RECORDS = st.lists(
    st.tuples(BYTES, BYTES, st.integers(0, 2**45), st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=2)),
    min_size=1,
    max_size=4,
)
KINDS = ("small", "small", "small", "append", "gap", "large", "gzip", "transaction", "old", "crc", "torn", "behind")


def made(kind: str, records: list[Any], base: int) -> tuple[bytes, int]:
    """The bytes of a batch, and the offset behind it."""
    keys, values, stamps, headers = (list(column) for column in zip(*records, strict=True))
    if kind == "large":
        values[0] = b"v" * 5000
    builder = Builder(1 << 20, "gzip" if kind == "gzip" else None, transactional=kind == "transaction")
    assert builder.add(keys, values, stamps, headers, 0) == len(values)
    if kind == "transaction":
        builder.batch._set_producer_state(7, 1, 12)
    data = bytearray(builder.batch._build())
    struct.pack_into(">q", data, 0, base)
    delta = struct.unpack_from(">i", data, 23)[0] + 3 * (kind == "gap")  # compacted: its last records are gone
    struct.pack_into(">i", data, 23, delta)
    if kind == "append":
        struct.pack_into(">h", data, 21, 8)
    if kind == "old":
        data[16] = 3  # a format that nobody knows
    if kind == "torn":
        data[61] ^= 64  # the length of its first record
    if kind == "behind":
        data += b"\0"
        struct.pack_into(">i", data, 8, len(data) - 12)
    crc = calc_crc32c(bytes(data[CHECKED_FROM:]))
    struct.pack_into(">I", data, 17, crc ^ (kind == "crc"))
    return bytes(data), base + delta + 1


def answer_of(batches: list[tuple[str, list[Any]]]) -> bytes:
    """A fetch answer with these batches."""
    raw, at = b"", 5
    for kind, records in batches:
        data, at = made(kind, records, at)
        raw += data
    return raw


def filtered(raw: bytes, aborted: list[Any]) -> Taken:
    """What the taker makes of it."""
    fetcher = SimpleNamespace(_fetcher=SimpleNamespace(_isolation_level=private.fetcher_module.READ_COMMITTED))
    wanted = SimpleNamespace(
        _records=private._KeptRecords(memoryview(raw)),
        next_fetch_offset=5,
        _aborted_transactions=aborted,
        _check_crcs=True,
    )
    return private._RawTaker(fetcher)._filter(TopicPartition(*AT), wanted)  # type: ignore[arg-type]


def read(taken: Taken, *, spanned: bool) -> tuple[Any, ...]:
    """All that can be read of it: the records, and where it stops and why."""
    buffer = FetchBuffer(AT, 5, spanned=spanned)
    buffer.put(taken.batches, 5, taken.next_position)
    found: list[Any] = []
    while (chunk := buffer.take(1000)) is not None:
        found += zip(chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers, strict=True)
    damaged = None if buffer.damaged is None else (buffer.damaged[0].what, buffer.damaged[1])
    return found, buffer.position, taken.next_position, damaged, taken.error and taken.error.what


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), RECORDS), min_size=1, max_size=8),
    st.integers(0, 80),
    st.booleans(),
    st.booleans(),
)
@example(
    [("small", [(None, b"a", 1, [])]), ("torn", [(None, b"b", 1, [])]), ("small", [(None, b"c", 1, [])])],
    0,
    False,
    True,
)
def test_a_run_of_small_batches_is_what_its_batches_are(
    batches: list[tuple[str, list[Any]]], cut: int, aborted: bool, spanned: bool
) -> None:
    """Among batches of other kinds, damaged ones and aborted ones, and where the answer ends in the middle of a batch."""
    raw = answer_of(batches)
    raw = raw[: len(raw) - cut]
    aborts = [(7, 5)] if aborted else []
    wanted, found = None, read(filtered(raw, aborts), spanned=spanned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private, "read_run", lambda *_: None)
        wanted = read(filtered(raw, aborts), spanned=spanned)
    assert found == wanted


@needs_compiler
def test_a_thousand_small_batches_are_one() -> None:
    raw = answer_of([("small", [(None, b"%d" % n, n, [])]) for n in range(1000)])
    (one,) = filtered(raw, []).batches
    assert isinstance(one, RecordBatch)
    assert (one.base, one.next, one.count, one.size) == (5, 1005, 1000, len(raw))
    assert one.spans().columns().values == [b"%d" % n for n in range(1000)]


@needs_compiler
def test_only_what_can_be_read_is_a_run() -> None:
    """Any byte changed, from anywhere: no memory beside the bytes is read, and what is returned is the run before the change."""
    raw = answer_of([("small", [(b"k", b"value", 3, [("h", b"x")])])] * 4)
    size = len(raw) // 4
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 0xFF
        found = read_run(bytes(changed), 0)
        before = place // size
        if place % size < 8 or 12 <= place % size < 16:  # offset and leader epoch, which no checksum covers
            assert found is not None
            assert found[0] == len(raw)
        elif before < 2:
            assert found is None
        else:
            assert found is not None
            assert found[0] == before * size
    for start in (-1, len(raw) + 1):
        with pytest.raises(ValueError):
            read_run(raw, start)
    assert read_run(raw, len(raw)) is None


def test_without_the_compiled_part_there_are_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    raw = answer_of([("small", [(None, b"a", 1, [])])] * 3)
    assert read_run(raw, 0) is None
    assert [batch.columns().values for batch in filtered(raw, []).batches] == [[b"a"]] * 3
    with pytest.raises(DamagedBatch):
        filtered(answer_of([("torn", [(None, b"a", 1, [])])]), []).batches[0].columns()
