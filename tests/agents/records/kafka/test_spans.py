"""Record batches as spans: the same records as lists, with the same bytes when they are written again; damage is refused."""

from __future__ import annotations

import contextlib
import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.kafka.record_batch import Builder
from headgate.agents.records.kafka.columns import Columns, DamagedBatch, read_batch
from headgate.agents.records.kafka.spans import SpannedRecords, read_spans, spanned
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import RecordSpans, packed, pieces
from headgate.agents.records.native import chosen

from ..memory_kept import keeps_nothing
from .test_columns import RECORDS, built, holed

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")


def plainly(call, *args):
    """The same without the compiled part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen, "part", chosen.PLAIN)
        return call(*args)


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(RECORDS, st.sampled_from([None, "gzip", "snappy", "lz4", "zstd"]), st.booleans())
def test_spans_are_the_records(records, codec, append):
    """Both ways, compressed or not, with the broker's offset and times."""
    with pytest.MonkeyPatch.context() as patch:
        data = holed(built(records, codec, True, patch)[0], base=100, append=append)
    whole = b"other" + data + b"behind"
    wanted, end = read_batch(data, 0, len(data)), 5 + len(data)
    for found in (read_spans(whole, 5, end), plainly(read_spans, whole, 5, end), spanned(wanted)):
        assert found.columns() == wanted
        assert len(found) == len(records)


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(RECORDS, st.data())
def test_damage_is_refused_as_it_is_for_lists(records, data):
    """Any byte behind the head changed, or the end cut off: spans are refused when lists are."""
    with pytest.MonkeyPatch.context() as patch:
        good = bytearray(built(records, None, True, patch)[0])
    good[data.draw(st.integers(57, len(good) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(61, len(good)))
    lists = spans = None
    with contextlib.suppress(DamagedBatch):
        lists = read_batch(bytes(good), 0, end)
    with contextlib.suppress(DamagedBatch):
        spans = read_spans(bytes(good), 0, end)
    assert (spans is None) == (lists is None)
    assert spans is None or lists is None or spans.columns() == lists


def test_a_count_that_cannot_be_true_allocates_nothing():
    """Two thousand million records in a few bytes."""
    with pytest.MonkeyPatch.context() as patch:
        data = bytearray(built([(None, b"a", 5, [])], None, False, patch)[0])
    struct.pack_into(">i", data, 57, 2**31 - 1)
    with pytest.raises(DamagedBatch):
        read_spans(bytes(data), 0, len(data))


def batch_of(records, rows, limits, compiled):
    """The bytes of the batches that these rows make."""
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(chosen, "part", chosen.PLAIN)
        made, start, count = [], 0, len(records) if rows is None else len(rows)
        for limit in limits:
            builder = Builder(limit, None, transactional=True)
            start = builder.add_spans(records, rows, start)
            builder.batch._set_producer_state(7, 1, 12)
            made.append((bytes(builder.batch._build()) if builder.count else b"", start, builder.count))
            if start == count:
                break
        return made


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(RECORDS, st.sampled_from([200, 700, 1 << 20]), st.data())
def test_spans_are_written_like_lists(records, limit, data):
    """All rows or chosen ones, over as many batches as they need."""
    keys, values, stamps, headers = (list(column) for column in zip(*records, strict=True))
    run = spanned(Columns(values, stamps, 0, keys, None, headers))
    rows = data.draw(st.none() | st.lists(st.integers(0, len(records) - 1), min_size=1, max_size=20))
    chosen = range(len(records)) if rows is None else rows
    limits = [limit] * 50
    wanted, start = [], 0
    for _ in limits:
        builder = Builder(limit, None, transactional=True)
        start = builder.add(*([column[i] for i in chosen] for column in (keys, values, stamps, headers)), start)
        builder.batch._set_producer_state(7, 1, 12)
        wanted.append((bytes(builder.batch._build()), start, builder.count))
        if start == len(chosen):
            break
    index = None if rows is None else array("q", rows)
    assert batch_of(run, index, limits, True) == wanted
    assert batch_of(run, index, limits, False) == wanted


def test_what_follows_is_added_to_the_same_batch():
    """Lists and spans may take turns; one time may stand for all."""
    with pytest.MonkeyPatch.context() as patch:
        for compiled in ([chosen.COMPILED] if chosen.COMPILED else []) + [chosen.PLAIN]:
            patch.setattr(chosen, "part", compiled)
            builder = Builder(1 << 16, None, transactional=False)
            assert builder.add(None, [b"a"], 5, None, 0) == 1
            run = SpannedRecords(packed([b"b", None]), array("q", [4, 9]), 0, packed([b"k", b""]))
            assert builder.add_spans(run, None, 0) == 2
            assert builder.add([b"z"], [b"d"], 6, None, 0) == 1
            data = bytes(builder.batch._build())
            found = plainly(read_spans, data, 0, len(data)).columns()
            assert found == Columns([b"a", b"b", None, b"d"], [5, 4, 9, 6], 0, [None, b"k", b"", b"z"])


@needs_compiler
@pytest.mark.parametrize(
    "change",
    [
        {"values": RecordSpans(b"abc", array("q", [0, 2]), array("q", [1, 2]))},
        {"values": RecordSpans(b"abc", array("q", [0, -1]), array("q", [1, 1]))},
        {"values": RecordSpans(b"abc", array("q", [0, 0]), array("q", [1, -2]))},
        {"values": RecordSpans(b"abc", array("q", [0, 0]), array("q", [1]))},
        {"keys": RecordSpans(b"abc", array("q", [0]), array("q", [1]))},
        {"headers": RecordSpans(b"abc", array("q", [0, 4]), array("q", [1, 1]))},
        {"timestamps": array("q", [1])},
    ],
)
def test_spans_that_lie_are_refused(change):
    """Before a byte outside of their buffers is read."""
    run = SpannedRecords(packed([b"a", b"b"]), array("q", [1, 2]), 0)
    for name, value in change.items():
        setattr(run, name, value)
    with pytest.raises(ValueError):
        Builder(1 << 16, None, transactional=False).add_spans(run, None, 0)
    with pytest.raises((ValueError, IndexError)):
        Builder(1 << 16, None, transactional=False).add_spans(run, array("q", [2]), 0)
    with pytest.raises(ValueError):
        pieces(RecordSpans(b"", array("q", [0]), array("q", [1])))


@needs_compiler
def test_spans_keep_no_memory():
    """Thousands of calls, also refused ones."""
    with pytest.MonkeyPatch.context() as patch:
        data = built([(b"k", b"v" * 20, 5 + n, [("h", b"x")] * (n % 3)) for n in range(50)], None, True, patch)[0]

    def work():
        for _ in range(1000):
            found = read_spans(data, 0, len(data))
            Builder(1 << 16, None, transactional=False).add_spans(found, None, 0)
            with pytest.raises(DamagedBatch):
                read_spans(data, 0, len(data) - 1)
            found.timestamps = longs(found.timestamps)[:3]
            with pytest.raises(ValueError):
                Builder(1 << 16, None, transactional=False).add_spans(found, None, 0)

    keeps_nothing(work)
