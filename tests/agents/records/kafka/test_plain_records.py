"""Headers with names of any bytes: every way to read a batch gives the same text for them, and the other records are read as ever."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.util import calc_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.kafka import private
from headgate.agents.kafka.record_batch import Builder
from headgate.agents.records.frames.framing import frame_cuts
from headgate.agents.records.kafka import columns
from headgate.agents.records.kafka.codecs import ENCODERS
from headgate.agents.records.kafka.columns import CHECKED_FROM, HEAD, Columns, DamagedBatch, read_batch
from headgate.agents.records.kafka.spans import read_run, read_spans
from headgate.agents.records.native import chosen
from headgate.core.progress.frames import BatchFrame, decode, encode

from .test_spans import needs_compiler, plainly

NAME = b"caf\xe9"
WAYS = [pytest.param(True, marks=needs_compiler), False]


def batch_of(names: list[bytes], codec: int = 0) -> bytes:
    """A batch with a record for each of these names, in a header of that name."""
    text = ["x" * len(name) for name in names]
    builder = Builder(1 << 20, None, transactional=False)
    builder.add(None, [b"v%d" % n for n in range(len(names))], 5, [[(one, b"1"), ("y", None)] for one in text], 0)
    made = bytes(builder.batch._build())
    head, body, at = made[: HEAD.size], made[HEAD.size :], 0
    for name, one in zip(names, text, strict=True):
        at = body.index(one.encode() + b"\x02" + b"1" + b"\x02" + b"y", at)
        body = body[:at] + name + body[at + len(name) :]
        at += len(name)
    whole = bytearray(head + (ENCODERS[codec](body) if codec else body))
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    whole[22] |= codec
    struct.pack_into(">I", whole, 17, calc_crc32c(bytes(whole[CHECKED_FROM:])))
    return bytes(whole)


def every_way(raw: bytes) -> list[Columns]:
    """The records of a batch, whoever reads them."""
    found = [plainly(read_spans, raw, 0, len(raw)).columns(), plainly(read_batch, raw, 0, len(raw))]
    found.append(columns.columns_of(private._KeptRecords(raw).next_batch()))
    if chosen.COMPILED is not None:
        found += [read_batch(raw, 0, len(raw)), read_spans(raw, 0, len(raw)).columns()]
    return found


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=6), min_size=1, max_size=5), st.sampled_from([0, 1, 2, 3, 4]))
def test_names_of_any_bytes_are_read_alike(names: list[bytes], codec: int) -> None:
    """Compiled or plain, as lists or as spans, in workers or by aiokafka's own consumers, which are corrected."""
    for found in every_way(batch_of(names, codec)):
        assert found.values == [b"v%d" % n for n in range(len(names))]
        assert found.headers == [[(name.decode(errors="backslashreplace"), b"1"), ("y", None)] for name in names]


def test_the_records_around_it_are_read_as_ever() -> None:
    """It was the end of the partition: the batch was damaged at every attempt, and nothing behind it was ever read."""
    for found in every_way(batch_of([b"fine", NAME, "ü".encode()])):
        assert [row[0][0] for row in found.headers or []] == ["fine", "caf\\xe9", "ü"]


@needs_compiler
def test_small_batches_with_such_a_name_are_a_run() -> None:
    raw = batch_of([b"a"]) + batch_of([NAME]) + batch_of([b"b"])
    found = read_run(raw, 0)
    assert found is not None
    assert [row[0][0] for row in found[2].columns().headers or []] == ["a", "caf\\xe9", "b"]


@pytest.mark.parametrize("compiled", WAYS)
def test_what_is_passed_on_can_be_written(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As rows, also in frames, under the name that users see."""
    if not compiled:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    raw = batch_of([NAME])
    found = read_spans(raw, 0, len(raw)).columns()
    builder = Builder(1 << 16, None, transactional=False)
    assert builder.add(None, found.values, found.timestamps, found.headers, 0) == 1
    again = bytes(builder.batch._build())
    assert read_spans(again, 0, len(again)).columns() == found
    keys: list[Any] = [None]
    assert list(frame_cuts(keys, found.values, found.headers)) == [(0, 1)]
    frame = BatchFrame(keys, found.timestamps, found.values, found.headers)
    assert decode(encode(frame)) == frame


@needs_compiler
def test_bytes_that_are_passed_on_stay_as_they_are() -> None:
    """Records that no row is made of, as columns write them: their headers are copied."""
    raw = batch_of([NAME])
    builder = Builder(1 << 16, None, transactional=False)
    assert builder.add_spans(read_spans(raw, 0, len(raw)), None, 0) == 1
    assert bytes(builder.batch._build())[HEAD.size :] == raw[HEAD.size :]


@settings(deadline=None, max_examples=100)
@given(st.integers(57, 200), st.integers(0, 255), st.integers(0, 40))
def test_damage_is_refused_by_all_or_by_none(place: int, byte: int, cut: int) -> None:
    """Any byte behind the head changed, or the end cut off, beside such a name."""
    good = bytearray(batch_of([NAME, b"fine"]))
    good[min(place, len(good) - 1)] = byte
    raw = bytes(good[: max(HEAD.size, len(good) - cut)])
    found: list[Any] = []
    ways = [lambda: plainly(read_batch, raw, 0, len(raw))]
    if chosen.COMPILED is not None:
        ways += [lambda: read_batch(raw, 0, len(raw)), lambda: read_spans(raw, 0, len(raw)).columns()]
    for way in ways:
        try:
            found.append(way())
        except DamagedBatch:
            found.append(None)
    assert found == [found[0]] * len(found)


@pytest.mark.parametrize("attributes", [0x80, 0xFF])
def test_attributes_of_a_record_are_one_byte(attributes: int) -> None:
    """aiokafka's own reader takes them for a number of variable length, which shifts all that follows: a null key, another partition."""
    raw = bytearray(batch_of([b"a"]))
    raw[HEAD.size + 1] = attributes  # behind the length of the first record
    struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[CHECKED_FROM:])))
    for found in every_way(bytes(raw)):
        assert found.values == [b"v0"]
        assert found.headers == [[("a", b"1"), ("y", None)]]
