"""Starting and restarting: nothing is read before everything is known and durable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core import orders as o
from headgate.core.machine import IllegalEvent, Tick
from headgate.core.names import StreamPartition as SP
from headgate.core.task.plan import TaskSettings
from headgate.core.task.protocol import (
    Discard,
    LogEnds,
    OffsetsResolved,
    RequestCommit,
    ResolveOffsets,
    Restored,
    RestoreProgress,
    SeekConsumer,
    StoreBroken,
    StoreOpened,
    StoreWiped,
    WipeStore,
)

from ..task_rig import BY, ME, ORDERS, ORDERS0, Rig, bootstrap_plan, rows_of, run_view, source_plan, two_inputs


def test_a_first_start_resolves_and_makes_durable_before_anything_is_read():
    rig = Rig(source_plan(start="newest", until="newest"), offset=40, auto_commit=False).start()
    assert rig.of(ResolveOffsets)[0].positions == {ORDERS0: "newest"}
    assert rig.of(ResolveOffsets)[0].until == {ORDERS0: "newest"}
    assert rig.of(SeekConsumer) == []
    assert rig.of(RequestCommit) == [RequestCommit(urgent=True)]
    rig.begin_commit()
    assert rig.of(SeekConsumer, last=False) == []
    rig.end_commit()
    assert rig.of(SeekConsumer, last=False) == [SeekConsumer({ORDERS0: 40})]
    assert rig.log[-1][0].until == {ORDERS0: 140}
    assert rig.told() == ["running"]


def test_a_restart_in_the_same_run_asks_nothing_again():
    rig = Rig(source_plan(until="newest"), offset=40).start()
    rig.chunk(ORDERS0, 60)
    again = rig.again(offset=9999)
    assert again.of(ResolveOffsets, last=False) == []
    assert again.task.inputs.until == {ORDERS0: 140}
    assert again.of(SeekConsumer, last=False) == [SeekConsumer({ORDERS0: 60})]


def test_the_next_run_keeps_positions_and_resolves_its_own_bounds():
    rig = Rig(source_plan(until="newest"), offset=40).start()
    rig.chunk(ORDERS0, 140)
    assert rig.task.phase == "ended"
    again = rig.again(run_view(run_id="r2"), offset=100)
    assert again.of(ResolveOffsets, last=False)[0].until == {ORDERS0: "newest"}
    assert again.task.phase == "running"
    assert again.task.position(ORDERS0) == 140
    assert [frame for frame, _, _ in again.said()] == ["wm"]
    assert (":heard", ORDERS) not in rows_of(again)


def test_positions_in_streams_that_another_version_reads_are_kept_for_it():
    """The version that comes back goes on there: from the beginning it would count again what its tables have counted."""
    rig = Rig(two_inputs()).start()
    rig.chunk(ORDERS0, 60)
    rig.chunk(SP(BY, 0), 7)
    plan, between = rig.task.plan, replace(rig.task.plan, inputs=rig.task.plan.inputs[:1])
    rig.task.plan = between
    without = rig.again(run_view(run_id="r2"))
    without.chunk(ORDERS0, 80)
    assert set(without.task.inputs.positions) == {ORDERS0}
    without.task.plan = plan
    again = without.again(run_view(run_id="r3"))
    assert again.task.inputs.positions == {ORDERS0: 80, SP(BY, 0): 7}
    assert again.task.inputs.elsewhere == {}


def test_offsets_that_were_declared_are_not_asked():
    rig = Rig(source_plan(start=7, until=30)).start()
    assert rig.of(ResolveOffsets, last=False) == []
    assert rig.task.position(ORDERS0) == 7
    assert rig.log[0][0].until == {ORDERS0: 30}


def test_a_store_that_cannot_be_trusted_is_wiped_first():
    rig = Rig(source_plan())
    rig.handle(o.Start(ME, 1, run_view(), 3))
    rig.handle(LogEnds(0, 50, 1000))
    out = rig.handle(StoreOpened(20, "other", 0))
    assert [type(one) for one in out] == [WipeStore]
    assert "other" in out[0].why
    assert [str(one) for one in rig.handle(StoreWiped())] == ["Restore(start=0, end=50)"]
    assert rig.handle(StoreOpened()) == []


def test_a_store_at_the_end_is_used_and_only_the_difference_is_replayed():
    rig = Rig(source_plan())
    rig.handle(o.Start(ME, 1, run_view(), 3))
    rig.handle(StoreOpened(20, "u1", 99_900))
    assert [str(one) for one in rig.handle(LogEnds(0, 50, 1000))] == ["Restore(start=20, end=50)"]


def test_a_damaged_store_is_wiped():
    rig = Rig(source_plan())
    rig.handle(o.Start(ME, 1, run_view(), 3))
    assert rig.handle(StoreBroken("CURRENT is missing")) == [WipeStore("CURRENT is missing")]


def test_someone_elses_open_transaction_is_waited_for_and_then_named():
    rig = Rig(source_plan(settings=TaskSettings(restore_deadline_s=10.0)))
    rig.handle(o.Start(ME, 1, run_view(), 0))
    rig.handle(RestoreProgress(5, blocked=True))
    rig.now += 5
    rig.handle(RestoreProgress(5, blocked=True))
    assert rig.task.deadline() == pytest.approx(110.0)
    assert rig.handle(Tick()) == []
    rig.handle(RestoreProgress(6))
    assert rig.task.deadline() is None
    assert rig.handle(Tick()) == []
    rig.handle(RestoreProgress(6, blocked=True))
    rig.now += 10
    out = rig.handle(Tick())
    assert isinstance(out[0], Discard)
    assert rig.told() == ["failed"]
    assert rig.task.why.startswith("open transaction")


def test_the_log_of_another_life_of_the_job_is_refused():
    rig = Rig(source_plan()).start()
    again = rig.again(run_view(job_uuid="u2"))
    assert again.told() == ["failed"]
    assert "u1" in again.task.why


def test_an_answer_that_no_one_asked_for_is_a_mistake_of_the_edge_and_changes_nothing():
    """Offsets come once, when they were asked for: before that, and again, they would move where the task begins."""
    rig = Rig(source_plan(), auto_commit=False)
    for event in (o.Start(ME, 1, run_view(), 0), StoreOpened(), LogEnds(0, 0, 1000)):
        rig.handle(event)
    with pytest.raises(IllegalEvent):
        rig.handle(OffsetsResolved(0, {ORDERS0: 7}))
    rig.handle(Restored(0))
    rig.handle(OffsetsResolved(0, {ORDERS0: 3}))
    with pytest.raises(IllegalEvent):
        rig.handle(OffsetsResolved(0, {ORDERS0: 7}))
    assert rig.task.phase == "restoring"
    assert rig.task.position(ORDERS0) == 3


def test_the_run_may_change_while_restoring():
    rig = Rig(source_plan(), auto_commit=False)
    rig.feed(o.Start(ME, 1, run_view(), 0))
    rig.feed(o.RunChanged(run_view(paused_job=True)))
    rig.commit()
    assert rig.task.phase == "paused"


def test_released_while_restoring_writes_nothing():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.feed(o.Release("stop"))
    assert rig.told() == ["released"]
    rig.begin_commit()
    assert rig.pending is None


def test_released_while_its_first_commit_is_under_way_it_waits_for_that():
    """The next owner would otherwise begin beside a transaction that is not over, and read an older end of the log."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.begin_commit()
    rig.feed(o.Release("stop"))
    assert rig.told() == []
    rig.end_commit()
    assert rig.told() == ["released"]


def test_a_drained_task_asks_nothing_and_a_draining_one_does_not_bootstrap():
    rig = Rig(two_inputs()).start()
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.again(run_view()).task.phase == "draining"
    rig = Rig(source_plan()).start()
    rig.feed(o.RunChanged(run_view(draining="d")))
    again = rig.again()
    assert (again.told(), again.of(ResolveOffsets, last=False)) == (["drained"], [])
    assert Rig(bootstrap_plan()).start(run_view(draining="d")).told() == ["running", "drained"]


def test_the_first_checkpoint_of_a_new_run_remembers_which_seeks_were_applied():
    """It dies right after that checkpoint: the seek, which still stands in the run, is answered and not applied again."""
    rig = Rig(source_plan()).start()
    rig.commit()
    seek = o.Seek("s1", ORDERS, 0, 3)
    rig.feed(seek)
    rig.commit()
    next_run = rig.again(run_view(run_id="r2"), auto_commit=True)
    died = next_run.again()
    died.chunk(ORDERS0, 9)
    died.feed(seek)
    assert died.task.position(ORDERS0) == 9
    assert died.seeks() == [o.SeekApplied(ME, "s1")]
