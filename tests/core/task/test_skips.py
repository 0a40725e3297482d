"""One record is left out: applied when the task has passed it, once, also between stages of the job, and also if the frame holds more."""

from __future__ import annotations

import pytest

from headgate.core import orders as o
from headgate.core.task.protocol import (
    BeginAgain,
    ChunkDone,
    ChunkTaken,
    Lost,
    OffsetsResolved,
    SeekConsumer,
    SkipRecord,
    WorkFailed,
)

from ..task_rig import BY, BY0, ME, ORDERS, ORDERS0, Rig, run_view, source_plan, two_inputs


def skip(offset: int, *row: int, request: str = "s1", stream: str = ORDERS, partition: int = 0) -> o.Seek:
    return o.Seek(request, stream, partition, ("skip", offset, *row))  # pyright: ignore[reportArgumentType]


def test_it_is_applied_in_the_checkpoint_that_has_passed_the_record():
    rig = Rig(source_plan(), offset=10, auto_commit=False).start()
    rig.commit()
    rig.commit()
    assert SkipRecord(ORDERS0, 12, 3) in rig.feed(skip(12, 3))
    rig.feed(ChunkTaken(ORDERS0, 12))
    rig.feed(ChunkDone(ORDERS0, 12))
    rig.commit()
    assert rig.seeks() == []
    rig.feed(ChunkTaken(ORDERS0, 15))
    rig.feed(ChunkDone(ORDERS0, 15))
    assert rig.seeks() == []
    rig.commit()
    assert rig.seeks() == [o.SeekApplied(ME, "s1")]
    assert rig.task.position(ORDERS0) == 15
    again = rig.again(auto_commit=True)
    again.feed(skip(12, 3))
    assert again.seeks() == [o.SeekApplied(ME, "s1")]


def test_a_stream_between_stages_has_it_too():
    """No position is between two rows of a frame."""
    rig = Rig(two_inputs()).start()
    assert SkipRecord(BY0, 12) in rig.feed(skip(12, stream=BY))
    assert rig.seeks() == []


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (skip(9), "offset 9 has been processed: the next one is 10"),
        (skip(12, stream="other"), "does not read"),
    ],
)
def test_it_is_refused_where_there_is_nothing_to_leave_out(order: o.Seek, why: str):
    rig = Rig(source_plan(), offset=10).start()
    rig.feed(order)
    [said] = rig.seeks()
    assert why in said.refused


@pytest.mark.parametrize("upto", [12, 15])
def test_the_chunk_under_way_may_have_held_the_record(upto: int):
    """It was processed then; if not, the intake is told."""
    rig = Rig(source_plan(), offset=10).start()
    rig.feed(ChunkTaken(ORDERS0, upto))
    assert rig.feed(skip(12, 3)) == []
    out = rig.feed(ChunkDone(ORDERS0, upto))
    if upto == 12:
        assert SkipRecord(ORDERS0, 12, 3) in out
        assert rig.seeks() == []
    else:
        assert "has been processed" in rig.seeks()[0].refused


def started_with(*orders: o.Seek) -> Rig:
    rig = Rig(source_plan(), offset=10, auto_commit=False)
    rig.feed(o.Start(ME, 1, run_view(), 0))
    for order in orders:
        rig.feed(order)
    rig.commit()
    return rig


def test_two_rows_of_one_frame_are_passed_one_after_the_other():
    """The task fails on the second row with the first one left out: that skip is not over."""
    first, second = skip(10, 3), skip(10, 7, request="s2")
    rig = started_with(first)
    assert rig.of(SkipRecord) == [SkipRecord(ORDERS0, 10, 3)]
    rig.feed(ChunkTaken(ORDERS0, 11))
    rig.feed(WorkFailed("row 7", final=True))
    rig.commit()
    assert (rig.task.phase, rig.seeks()) == ("failed", [])
    assert rig.feed(second) == [BeginAgain((first, second))]
    rig = started_with(first, second)
    assert rig.of(SkipRecord, last=False) == [SkipRecord(ORDERS0, 10, 3), SkipRecord(ORDERS0, 10, 7)]
    rig.chunk(ORDERS0, 11)
    rig.commit()
    assert rig.seeks() == [o.SeekApplied(ME, "s1"), o.SeekApplied(ME, "s2")]


def test_one_that_comes_while_its_chunk_fails_begins_the_task_again():
    rig = Rig(source_plan(), offset=10).start()
    rig.feed(ChunkTaken(ORDERS0, 11))
    rig.feed(skip(10, 3))
    rig.feed(WorkFailed("row 3", final=True))
    assert rig.did[-1] == BeginAgain((skip(10, 3),))


def test_a_seek_to_a_position_replaces_it_and_another_partition_is_another_matter():
    rig = Rig(two_inputs()).start()
    rig.feed(skip(5))
    rig.feed(skip(6, request="other", stream=BY))
    rig.feed(o.Seek("s2", ORDERS, 0, 3))
    assert "replaced by a later seek" in rig.seeks()[0].refused
    assert [one.request for one in rig.seeks()] == ["s1", "s2"]


def test_told_twice_it_is_applied_once():
    rig = Rig(source_plan(), offset=10).start()
    rig.feed(skip(12))
    rig.feed(ChunkTaken(ORDERS0, 15))
    assert rig.feed(skip(12)) == []
    rig.feed(ChunkDone(ORDERS0, 15))
    assert rig.seeks() == [o.SeekApplied(ME, "s1")]


@pytest.mark.parametrize("to", [3, 13])
def test_one_that_comes_after_a_seek_holds_behind_it(to: int):
    """The intake forgets what it is to leave out when the position is moved."""
    rig = Rig(source_plan(), offset=10).start()
    rig.handle(o.Seek("s1", ORDERS, 0, to))
    rig.handle(skip(12, request="s2"))
    out = rig.feed(OffsetsResolved(1, {ORDERS0: 0}, ends={ORDERS0: 90}))
    assert out[0] == SeekConsumer({ORDERS0: to})
    assert (SkipRecord(ORDERS0, 12) in out) == (to == 3)
    assert {one.request: bool(one.refused) for one in rig.seeks()}.get("s2", False) == (to == 13)


def test_where_the_position_is_lost_it_is_refused():
    """The topic may have been made again: the record at this offset is another one then."""
    rig = Rig(source_plan(on_lost="oldest"), offset=10).start()
    rig.feed(skip(12))
    rig.feed(Lost(ORDERS0, 10, 11))
    [said] = rig.seeks()
    assert "lost" in said.refused
