"""Offsets of a partition whose records nobody fetches, in the place of a buffer of records."""

from __future__ import annotations

from headgate.agents.records.frames.range_buffer import RangeBuffer, UnreadRecords
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import NO_TIME

AT = StreamPartition("in", 0)


def taken(buffer: RangeBuffer, most: int) -> tuple[int, int, int] | None:
    """First offset, number and next position of the next chunk."""
    chunk = buffer.take(most)
    if chunk is None:
        return None
    assert isinstance(chunk.columns, UnreadRecords)
    assert chunk.is_data
    return chunk.columns.base, len(chunk), chunk.next_position


def test_chunks_are_ranges_of_offsets() -> None:
    buffer = RangeBuffer(AT, 5)
    assert (buffer.count, buffer.head(), taken(buffer, 9), buffer.ended) == (0, None, None, False)
    buffer.put([], 5, 12)
    head = buffer.head()
    assert head is not None
    assert (head.offset, head.timestamp, head.value) == (5, NO_TIME, None)
    assert taken(buffer, 3) == (5, 3, 8)
    assert (buffer.position, buffer.count, buffer.buffered_to) == (8, 4, 12)
    buffer.put([], 12, 20)
    assert taken(buffer, 100) == (8, 12, 20)
    assert (buffer.head(), buffer.size, buffer.damaged, buffer.control()) == (None, 0, None, None)


def test_nothing_at_or_behind_the_bound_is_handed_out() -> None:
    buffer = RangeBuffer(AT, 0, until=4)
    buffer.put([], 0, 10)
    assert buffer.count == 4
    assert taken(buffer, 10) == (0, 4, 4)
    assert buffer.ended
    assert taken(buffer, 10) is None
    assert RangeBuffer(AT, 4, until=4).ended


def test_a_drain_ends_where_nothing_was_handed_out_yet() -> None:
    buffer = RangeBuffer(AT, 0)
    buffer.put([], 0, 1_000_000)
    taken(buffer, 10)
    assert buffer.drains_to == 10
    buffer.clear(3)
    assert (buffer.position, buffer.buffered_to, buffer.count) == (3, 3, 0)


def test_a_part_of_a_chunk_is_a_part_of_its_offsets() -> None:
    buffer = RangeBuffer(AT, 7)
    buffer.put([], 7, 17)
    chunk = buffer.take(10)
    assert chunk is not None
    part = chunk.pick(2, 5)
    assert (len(part), part.offsets, part.next_position) == (3, [9, 10, 11], 17)
    assert len(chunk.columns.cut(3, 3)) == 0
