"""Which rows of a chunk are left out, whatever is tried with the chunk."""

from __future__ import annotations

from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.records.kafka.columns import Columns
from headgate.agents.runtime.reading.skips import Skips
from headgate.core.names import StreamPartition
from headgate.core.task.protocol import SkipRecord

AT = StreamPartition("by", 0)


def chunk() -> Chunk:
    """Frames of three rows, one and two."""
    return Chunk(AT, 10, Columns([b"1"] * 6, [0] * 6, 7, None, [7, 7, 7, 8, 9, 9]))


def marked(*orders: SkipRecord) -> Chunk:
    skips, made = Skips(), chunk()
    for order in orders:
        skips.add(order)
    skips.mark(made)
    again = chunk()
    skips.mark(again)
    assert not again.skipped, "what is passed is forgotten"
    return made


def test_a_row_counts_from_the_first_of_its_frame() -> None:
    assert marked(SkipRecord(AT, 7, 1), SkipRecord(AT, 9, 1)).skipped == {1, 5}
    assert marked(SkipRecord(AT, 9)).skipped == {4, 5}
    assert marked(SkipRecord(AT, 8, 3), SkipRecord(StreamPartition("by", 1), 7, 0)).skipped == frozenset()


def test_a_part_of_the_chunk_leaves_out_the_same_rows() -> None:
    """A failed chunk is tried in parts."""
    made = marked(SkipRecord(AT, 7, 2), SkipRecord(AT, 9, 1))
    assert (made.pick(1, 3).skipped, made.pick(3, 6).skipped, made.pick(0, 2).skipped) == ({1}, {2}, frozenset())


def test_a_seek_forgets_them() -> None:
    skips, made = Skips(), chunk()
    skips.add(SkipRecord(AT, 7, 1))
    skips.forget(AT)
    skips.mark(made)
    assert not made.skipped
