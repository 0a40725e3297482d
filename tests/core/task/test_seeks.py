"""Seeks are applied once and answered when durable; lost positions follow the declared policy."""

from __future__ import annotations

import pytest

from headgate.core import orders as o
from headgate.core.names import StreamPartition as SP
from headgate.core.progress.frames import Watermark
from headgate.core.task.plan import FOREIGN, InputPlan, TaskPlan
from headgate.core.task.protocol import (
    BeginAgain,
    Broken,
    ChunkDone,
    ChunkDropped,
    ChunkTaken,
    CommitDone,
    CommitLost,
    DropChunk,
    Identified,
    LogEnds,
    Lost,
    OffsetsResolved,
    SeekConsumer,
    StoreOpened,
    TaskNote,
    WorkFailed,
)
from headgate.core.task.stored.checkpoint import MAX_APPLIED

from ..task_rig import BY, BY0, JOB, ME, ORDERS, ORDERS0, Rig, drain, run_view, source_plan, two_inputs


def test_a_seek_is_applied_once_and_answered_when_it_is_durable():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    seek = o.Seek("s1", ORDERS, 0, 3)
    out = rig.feed(seek)
    assert SeekConsumer({ORDERS0: 3}) in out
    assert rig.seeks() == []
    rig.feed(seek)
    assert rig.seeks() == []
    rig.commit()
    assert rig.seeks() == [o.SeekApplied(ME, "s1")]
    again = rig.again(auto_commit=True)
    assert again.task.position(ORDERS0) == 3
    again.chunk(ORDERS0, 9)
    again.feed(seek)
    assert again.task.position(ORDERS0) == 9
    assert again.seeks() == [o.SeekApplied(ME, "s1")]


def test_a_seek_by_time_asks_the_broker_and_waits_for_the_chunk():
    rig = Rig(source_plan(), offset=70).start()
    rig.feed(ChunkTaken(ORDERS0, 75))
    rig.feed(o.Seek("s1", ORDERS, 0, ("time", 5)))
    assert rig.task.position(ORDERS0) == 70
    assert rig.seeks() == []
    rig.feed(ChunkDone(ORDERS0, 75))
    assert rig.task.position(ORDERS0) == 70
    assert rig.seeks() == [o.SeekApplied(ME, "s1")]
    assert rig.task.may_take(ORDERS0)


def test_a_seek_that_comes_while_restoring_is_applied_when_it_opens():
    rig = Rig(source_plan(), auto_commit=False)
    rig.feed(o.Start(ME, 1, run_view(), 0))
    rig.feed(o.Seek("s1", ORDERS, 0, 3))
    rig.commit()
    assert rig.task.position(ORDERS0) == 3


@pytest.mark.parametrize(
    ("seek", "why"),
    [
        (o.Seek("s", "nothing", 0, 1), "does not read"),
        (o.Seek("s", BY, 0, 1), "intermediate"),
    ],
)
def test_impossible_seeks_are_refused_with_the_reason(seek, why):
    rig = Rig(two_inputs()).start()
    rig.feed(seek)
    assert why in rig.seeks()[0].refused


def test_a_stream_of_the_job_itself_can_be_adopted_where_it_stands():
    """Its control messages are counted, so nothing is read again; and nothing is."""
    rig = Rig(two_inputs()).start()
    rig.feed(Identified(BY0, "one"))
    here = rig.task.position(BY0)
    rig.feed(o.Seek("s", BY, 0, o.HERE))
    assert rig.seeks() == [o.SeekApplied(ME, "s")]
    assert rig.task.position(BY0) == here
    assert rig.task.inputs.adopted == {"one": ""}


def test_no_seek_in_a_drain_or_behind_an_end():
    rig = Rig(two_inputs(until=5)).start()
    rig.chunk(ORDERS0, 5)
    rig.feed(o.Seek("s1", ORDERS, 0, 1))
    assert "ended" in rig.seeks()[0].refused
    rig.feed(o.RunChanged(run_view(draining="d")))
    rig.feed(o.Seek("s2", ORDERS, 0, 1))
    assert "draining" in rig.seeks()[1].refused
    rig.hear(BY0, drain(ME))
    rig.feed(o.Seek("s3", ORDERS, 0, 1))
    assert "drained" in rig.seeks()[2].refused


def test_a_drain_overtakes_a_seek_that_has_not_been_applied():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(o.Seek("s1", ORDERS, 0, 1))
    rig.feed(o.RunChanged(run_view(draining="d")))
    rig.feed(ChunkDone(ORDERS0, 5))
    assert "draining" in rig.seeks()[0].refused
    rig = Rig(source_plan()).start()
    rig.handle(o.Seek("s1", ORDERS, 0, "oldest"))
    rig.handle(o.RunChanged(run_view(draining="d")))
    rig.handle(OffsetsResolved(1, {ORDERS0: 1}))
    assert "draining" in rig.seeks()[0].refused
    assert rig.handle(OffsetsResolved(1, {ORDERS0: 1})) == []


def test_lost_records_stop_the_task_and_say_how_many_they_are():
    rig = Rig(source_plan()).start()
    rig.feed(Lost(ORDERS0, 0, 30))
    assert rig.told() == ["running", "failed"]
    assert "30 records of orders:0 are lost" in rig.task.why
    assert "seek" in rig.task.why


def test_a_log_that_ends_before_the_position_is_another_log():
    """Nobody waits there for records that never come: the same choice as for lost records."""
    rig = Rig(source_plan()).start()
    rig.feed(o.Seek("s1", ORDERS, 0, 20))
    rig.feed(Lost(ORDERS0, 20, 0, 3))
    assert rig.told() == ["running", "failed"]
    assert "orders:0 was recreated or truncated: the position was 20, the log ends at 3" in rig.task.why
    assert "seek" in rig.task.why
    rig = Rig(source_plan(on_lost="oldest")).start()
    rig.feed(o.Seek("s1", ORDERS, 0, 20))
    rig.feed(Lost(ORDERS0, 20, 1, 3))
    assert rig.task.position(ORDERS0) == 1


def identified(**plan):
    """A task at 20 of the topic `one`."""
    rig = Rig(source_plan(**plan)).start()
    rig.feed(o.Seek("s0", ORDERS, 0, 20))
    rig.feed(Identified(ORDERS0, "one"))
    return rig


def test_the_topic_of_a_position_stands_in_the_checkpoint():
    """It is told once; what is not known changes nothing, and costs no commit."""
    rig = identified()
    assert rig.again().task.inputs.topics == {ORDERS0: "one"}
    assert rig.feed(Identified(ORDERS0, "two")) == []
    assert rig.feed(Identified(SP("elsewhere", 0), "two")) == []
    assert rig.feed(Identified(ORDERS0, "")) == []
    assert rig.task.inputs.topics == {ORDERS0: "one"}


def test_a_topic_that_was_made_again_is_another_log_whatever_its_offsets_are():
    rig = identified()
    assert rig.feed(Lost(ORDERS0, 20, 0, 90, "one")) == []
    assert rig.feed(Lost(ORDERS0, 20, 0, 90, "")) == []
    rig.feed(Lost(ORDERS0, 20, 0, 90, "two"))
    assert rig.told() == ["running", "failed"]
    assert (
        "orders was deleted and re-created: the position 20 of orders:0 belongs to the topic of id one" in rig.task.why
    )
    assert "`headgate topics adopt JOB orders`" in rig.task.why
    assert rig.again().task.inputs.topics == {ORDERS0: "one"}
    oldest = identified(on_lost="oldest")
    oldest.feed(Lost(ORDERS0, 20, 3, 90, "two"))
    assert oldest.task.position(ORDERS0) == 3
    assert oldest.again().task.inputs.topics == {ORDERS0: "two"}
    newest = identified(on_lost="newest")
    newest.offset = 90
    newest.feed(Lost(ORDERS0, 20, 0, 90, "two"))
    assert newest.task.position(ORDERS0) == 90
    assert newest.task.inputs.topics == {ORDERS0: "two"}


def test_a_position_whose_topic_is_not_known_belongs_to_any():
    """An older broker gives no ids, an older checkpoint has none."""
    rig = Rig(source_plan()).start()
    assert rig.feed(Lost(ORDERS0, 0, 0, 90, "two")) == []
    assert rig.told() == ["running"]


def test_a_seek_goes_to_the_topic_that_is_there():
    rig = identified()
    rig.feed(Lost(ORDERS0, 20, 0, 90, "two"))
    again = rig.again()
    again.feed(o.Seek("s1", ORDERS, 0, 5))
    assert again.task.inputs.topics == {}
    again.feed(Identified(ORDERS0, "two"))
    assert again.task.inputs.topics == {ORDERS0: "two"}
    assert again.task.inputs.adopted == {}


def test_an_operator_may_say_that_the_topic_is_the_same_one():
    """After a mirror's failover every id differs, and the records and offsets are those of before."""
    rig = identified()
    rig.feed(o.Seek("s1", ORDERS, 0, o.HERE, 20))
    assert rig.task.position(ORDERS0) == 20
    assert rig.seeks()[-1] == o.SeekApplied(ME, "s1")
    rig.feed(Identified(ORDERS0, "two"))
    assert rig.task.inputs.topics == {ORDERS0: "two"}
    assert rig.again().task.inputs.adopted == {"one": "two"}
    rig.feed(o.Seek("s2", ORDERS, 0, o.HERE))
    rig.feed(Identified(ORDERS0, "one"))
    assert rig.task.inputs.adopted == {"two": "one"}
    rig.handle(o.Seek("s3", ORDERS, 0, o.HERE))
    rig.handle(OffsetsResolved(4, {ORDERS0: 0}, ends={ORDERS0: 7}))
    assert "there is no offset 20 in orders:0" in rig.seeks()[-1].refused


def test_lost_records_while_a_chunk_is_under_work_drop_it_first():
    plan = TaskPlan(JOB, ME, (InputPlan(ORDERS, (0, 1), 2),))
    rig = Rig(plan).start()
    rig.feed(ChunkTaken(SP(ORDERS, 1), 5))
    assert [type(one) for one in rig.feed(Lost(ORDERS0, 0, 30))] == [TaskNote, DropChunk]
    rig.feed(ChunkDropped(SP(ORDERS, 1)))
    assert rig.told() == ["running", "failed"]


def test_lost_records_may_be_passed_over():
    rig = Rig(source_plan(on_lost="oldest")).start()
    rig.feed(Lost(ORDERS0, 0, 30))
    assert rig.task.position(ORDERS0) == 30
    assert rig.feed(Lost(ORDERS0, 0, 30)) == []
    assert rig.feed(Lost(SP("nobody", 0), 0, 30)) == []
    rig = Rig(source_plan(on_lost="newest"), offset=0).start()
    rig.offset = 90
    rig.feed(Lost(ORDERS0, 0, 30))
    assert rig.task.position(ORDERS0) == 90
    assert rig.task.may_take(ORDERS0)


def test_an_offset_that_is_not_there_is_refused_with_what_is():
    """The task would have failed, saying that the topic was made anew, or would have waited for records of the next year."""
    rig = Rig(source_plan()).start()
    position = rig.task.position(ORDERS0)
    rig.handle(o.Seek("s1", ORDERS, 0, 21))
    rig.handle(OffsetsResolved(1, {ORDERS0: 5}, ends={ORDERS0: 20}))
    assert rig.seeks()[0].refused == "there is no offset 21 in orders:0: it begins at 5 and ends before 20"
    rig.handle(o.Seek("s2", ORDERS, 0, 4))
    rig.handle(OffsetsResolved(2, {ORDERS0: 5}, ends={ORDERS0: 20}))
    assert "no offset 4" in rig.seeks()[1].refused
    assert rig.task.position(ORDERS0) == position
    assert rig.task.may_take(ORDERS0)


def test_a_seek_that_was_planned_from_elsewhere_is_refused():
    """It waited for days; somebody else has read on, and what its plan said is not true any more."""
    rig = Rig(source_plan()).start()
    here = rig.task.position(ORDERS0)
    rig.feed(o.Seek("s1", ORDERS, 0, 1, here + 1))
    assert "orders:0 has moved" in rig.seeks()[0].refused
    rig.feed(o.Seek("s2", ORDERS, 0, 1, here))
    assert rig.seeks()[1] == o.SeekApplied(ME, "s2")
    assert rig.task.position(ORDERS0) == 1


def test_a_seek_that_was_planned_before_there_was_a_position_is_refused_where_there_is_one():
    """Its plan said `nowhere yet`. Meanwhile somebody has read a million records, and it would have thrown that away."""
    rig = Rig(source_plan(), offset=7).start()
    rig.feed(o.Seek("s1", ORDERS, 0, 1, o.NO_POSITION))
    assert rig.seeks() == [o.SeekApplied(ME, "s1")]
    rig.feed(o.Seek("s2", ORDERS, 0, 3, o.NO_POSITION))
    assert rig.seeks()[1].refused == "orders:0 has moved: it had no position, and is now at 1"
    again = Rig(source_plan(), log=rig.log).start()
    again.feed(o.Seek("s3", ORDERS, 0, 3, o.NO_POSITION))
    assert again.seeks()[0].refused == "orders:0 has moved: it had no position, and is now at 1"
    early = Rig(source_plan(), offset=7, auto_commit=False)
    for event in (o.Start(ME, 1, run_view(), 0), o.Seek("s4", ORDERS, 0, 3, o.NO_POSITION)):
        early.feed(event)
    while early.wants_commit:
        early.commit()
    assert early.seeks() == [o.SeekApplied(ME, "s4")]


@pytest.mark.parametrize(("to", "position", "refused"), [(3, 3, ""), ("oldest", 10, ""), (10**6, None, "no offset")])
def test_a_failed_task_that_begins_again_in_a_drain_drains_from_where_a_seek_puts_it(to, position, refused):
    """Otherwise a drain that has failed at a bad record would be a dead end: nothing could go on behind it."""
    rig = Rig(source_plan())
    rig.offset = 10
    rig.feed(o.Start(ME, 1, run_view(draining="d"), 0))
    plain = rig.task.position(ORDERS0)
    rig = Rig(source_plan(), auto_commit=False)
    rig.offset = 10
    for event in (o.Start(ME, 1, run_view(draining="d"), 0), o.Seek("s1", ORDERS, 0, to)):
        rig.feed(event)
    while rig.wants_commit:
        rig.commit()
    assert rig.task.position(ORDERS0) == (plain if position is None else position)
    assert refused in rig.seeks()[0].refused
    assert rig.told()[-1] == "drained"


def test_a_seek_that_is_refused_at_once_does_not_keep_its_partition_from_draining():
    """Nothing else may come to wake the task: the drain would never have ended (found by the simulator)."""
    rig = Rig(source_plan(), auto_commit=False)
    rig.feed(o.Start(ME, 1, run_view(draining="d"), 0))
    rig.feed(o.Seek("s1", ORDERS, 0, 3, 99))
    while rig.wants_commit:
        rig.commit()
    assert "has moved" in rig.seeks()[0].refused
    assert rig.told()[-1] == "drained"


def test_a_seek_in_a_drain_is_durable_before_its_partition_drains():
    """What user code does at a drain may fail, too: the seek would have been lost with it, and told to nobody again."""
    rig = Rig(source_plan(), auto_commit=False)
    rig.feed(o.Start(ME, 1, run_view(draining="d"), 0))
    rig.feed(o.Seek("s1", ORDERS, 0, 3))
    rig.commit()
    assert rig.task.position(ORDERS0) == 3
    assert "drained" not in rig.told()
    assert ORDERS0 not in rig.task.inputs.finished
    while rig.wants_commit:
        rig.commit()
    assert rig.seeks() == [o.SeekApplied(ME, "s1")]
    assert rig.told()[-1] == "drained"


# ------------------------------------------------------------------------------------------------- every seek has its end


def sought(*requests: str) -> tuple[o.Seek, ...]:
    return tuple(o.Seek(request, ORDERS, 0, 3) for request in requests)


def test_a_seek_that_waits_for_a_chunk_which_fails_for_good_begins_the_task_again():
    """Whoever sought past the poison record was told nothing, ever, and the task stood in front of it."""
    rig = Rig(source_plan(), offset=10).start()
    rig.feed(ChunkTaken(ORDERS0, 15))
    rig.feed(sought("s1")[0])
    rig.feed(WorkFailed("poison", final=True))
    assert rig.did[-1] == BeginAgain(sought("s1"))
    assert (rig.told(), rig.task.phase) == (["running"], "abandoned")


def test_a_seek_that_the_broker_has_not_answered_begins_the_task_again():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 15))
    rig.handle(sought("s1")[0])
    assert rig.feed(WorkFailed("poison", final=True))[-1] == BeginAgain(sought("s1"))


def test_a_seek_that_comes_while_a_failed_task_is_put_down_begins_it_again():
    """It was told to a task that no longer listened, and to nobody after that."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 15))
    rig.feed(ChunkDone(ORDERS0, 15))
    rig.feed(Lost(ORDERS0, 15, 30))
    assert rig.task.phase == "releasing"
    rig.feed(sought("s1")[0])
    while rig.wants_commit:
        rig.commit()
    assert rig.did[-1] == BeginAgain(sought("s1"))


def test_a_seek_of_a_failed_task_begins_it_again():
    rig = Rig(source_plan()).start()
    rig.feed(Lost(ORDERS0, 0, 30))
    assert rig.told() == ["running", "failed"]
    assert rig.feed(sought("s1")[0]) == [BeginAgain(sought("s1"))]
    assert rig.feed(sought("s2")[0]) == []


def test_a_seek_begins_a_task_once():
    """A task that fails again at once would otherwise begin again for ever, without a pause."""
    rig = Rig(TaskPlan(JOB, ME, (InputPlan(ORDERS, (0, 1), 2),)), auto_commit=False)
    rig.feed(o.Start(ME, 1, run_view(), 0))
    rig.feed(sought("s1")[0])
    rig.begin_commit()
    rig.handle(CommitDone(rig.txn))
    other = o.Seek("s2", ORDERS, 1, 3)
    rig.handle(other)
    rig.feed(Broken("its agent was stopped"))
    assert rig.seeks() == [o.SeekApplied(ME, "s1", "the task failed before it was applied: its agent was stopped")]
    assert rig.did[-1] == BeginAgain((other,))


@pytest.mark.parametrize("gone", [CommitLost("out: no such topic", blamed=True), Broken("disk full", passing=True)])
def test_what_is_dropped_leaves_its_seeks_to_who_begins_it_again(gone):
    """Nothing of it is left here; the member tells them again with the next start."""
    rig = Rig(source_plan()).start()
    rig.feed(gone)
    assert rig.task.phase == "failed"
    assert rig.feed(sought("s1")[0]) == []


@pytest.mark.parametrize("while_chunk", [True, False])
def test_the_later_of_two_seeks_wins_and_the_earlier_is_answered(while_chunk):
    """The earlier was forgotten; and when the broker answered them in another order, the earlier one won."""
    rig = Rig(source_plan(), offset=10).start()
    rig.feed(ChunkTaken(ORDERS0, 15))
    feed = rig.feed if while_chunk else rig.handle
    first, second = o.Seek("s1", ORDERS, 0, 3), o.Seek("s2", ORDERS, 0, 4)
    feed(first)
    feed(second)
    assert rig.seeks() == [o.SeekApplied(ME, "s1", "replaced by a later seek of orders:0")]
    if not while_chunk:
        rig.feed(OffsetsResolved(2, {ORDERS0: 0}, ends={ORDERS0: 99}))
        rig.feed(OffsetsResolved(1, {ORDERS0: 0}, ends={ORDERS0: 99}))
    rig.feed(ChunkDone(ORDERS0, 15))
    assert rig.task.position(ORDERS0) == 4
    assert rig.seeks()[1:] == [o.SeekApplied(ME, "s2")]
    assert rig.task.may_take(ORDERS0)


def test_two_seeks_that_a_task_begins_with():
    rig = Rig(source_plan(), auto_commit=False)
    rig.feed(o.Start(ME, 1, run_view(draining="d"), 0))
    rig.feed(o.Seek("s1", ORDERS, 0, 3))
    rig.feed(o.Seek("s2", ORDERS, 0, 4))
    while rig.wants_commit:
        rig.commit()
    assert rig.task.position(ORDERS0) == 4
    assert [bool(one.refused) for one in rig.seeks()] == [True, False]
    assert rig.told()[-1] == "drained"


def test_a_seek_that_is_impossible_replaces_nothing():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 15))
    rig.feed(o.Seek("s1", ORDERS, 0, 3))
    rig.feed(o.Seek("s2", ORDERS, 0, 4, 77))
    rig.feed(ChunkDone(ORDERS0, 15))
    assert rig.task.position(ORDERS0) == 3
    assert [one.request for one in rig.seeks() if not one.refused] == ["s1"]


def test_a_seek_takes_the_place_of_a_lost_position():
    """What the broker says of the lost one comes later, and would have undone the seek."""
    rig = Rig(source_plan(on_lost="newest")).start()
    rig.handle(Lost(ORDERS0, 0, 30))
    rig.handle(o.Seek("s1", ORDERS, 0, 40))
    rig.feed(OffsetsResolved(2, {ORDERS0: 30}, ends={ORDERS0: 90}))
    rig.feed(OffsetsResolved(1, {ORDERS0: 90}))
    assert rig.task.position(ORDERS0) == 40
    assert rig.task.may_take(ORDERS0)


def test_a_lost_position_does_not_take_the_place_of_a_seek():
    rig = Rig(source_plan(on_lost="oldest")).start()
    rig.feed(ChunkTaken(ORDERS0, 15))
    rig.feed(o.Seek("s1", ORDERS, 0, 3))
    assert rig.feed(Lost(ORDERS0, 0, 30)) == []
    rig.feed(ChunkDone(ORDERS0, 15))
    assert rig.seeks() == [o.SeekApplied(ME, "s1")]


def test_a_drained_task_answers_what_it_was_asked_before():
    """The broker's answer came when the task had drained, and nobody was told: the operator's command waited until it expired."""
    rig = Rig(source_plan()).start()
    rig.handle(sought("s1")[0])
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.told()[-1] == "drained"
    assert "the task has drained" in rig.seeks()[0].refused
    assert rig.feed(OffsetsResolved(1, {ORDERS0: 0}, ends={ORDERS0: 90})) == []


def test_a_task_that_had_drained_before_it_was_restarted_answers():
    """A seek that it had applied was refused, and one that came while it restored was never answered."""
    rig = Rig(source_plan()).start()
    rig.feed(sought("s1")[0])
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.told()[-1] == "drained"
    again = Rig(rig.task.plan, log=rig.log)
    again.handle(o.Start(ME, 2, run_view(draining="d"), 0))
    for seek in sought("s1", "s2"):
        again.handle(seek)
    again.feed(StoreOpened())
    again.feed(LogEnds(0, len(rig.log), 1000))
    assert again.seeks()[0] == o.SeekApplied(ME, "s1")
    assert "the task has drained" in again.seeks()[1].refused
    assert again.feed(sought("s1")[0])[0].report == o.SeekApplied(ME, "s1")


def test_what_it_remembers_of_seeks_is_bounded():
    rig = Rig(source_plan()).start()
    for n in range(2 * MAX_APPLIED):
        rig.feed(o.Seek(f"s{n}", ORDERS, 0, 3))
    assert len(rig.task.seeks.applied) == MAX_APPLIED
    assert rig.log[-1][0].applied[-1] == f"s{2 * MAX_APPLIED - 1}"


def test_a_stream_of_another_job_that_is_read_again_hears_its_runs_again():
    """The newest run would otherwise count as one that is over, once older ones were read."""
    rig = Rig(TaskPlan(JOB, ME, (InputPlan("shared", (0,), 1, FOREIGN, jobs=("other/1",)),))).start()
    shared = SP("shared", 0)
    rig.hear(shared, Watermark("other/1", "u2", "a", 1, 1, 9, False))
    rig.feed(o.Seek("s1", "shared", 0, 0))
    for run, ts in (("u1", 5), ("u2", 12)):
        rig.hear(shared, Watermark("other/1", run, "a", 1, 1, ts, False))
    assert rig.task.inputs.progress.watermark("shared") == 12
    rig.hear(shared, Watermark("stranger/1", "x", "a", 1, 1, 50, False))
    assert [one.what for one in rig.of(TaskNote, last=False) if one.level == "debug"] == ["ignored-unknown-job"]
