"""Draining, failing, waking: what a task comes down to after each event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core import orders as o
from headgate.core.machine import Tick
from headgate.core.progress.frames import MAX_TIME
from headgate.core.task.plan import FOREIGN, InputPlan, OutputPlan, TaskPlan, TaskSettings
from headgate.core.task.protocol import (
    ChunkDone,
    ChunkDropped,
    ChunkTaken,
    CloseStore,
    CommitLost,
    Discard,
    DropChunk,
    FetchStopped,
    Lost,
    RequestCommit,
    RestoreProgress,
    RunStep,
    SeekConsumer,
    SendReport,
    StepDone,
    TaskNote,
    WorkFailed,
)

from ..task_rig import (
    BY,
    BY0,
    JOB,
    ME,
    ORDERS,
    ORDERS0,
    Rig,
    bootstrap_plan,
    drain,
    hearing,
    reader_plan,
    run_view,
    source_plan,
    two_inputs,
    wm,
)


def test_a_drain_processes_what_is_buffered_and_reads_nothing_new():
    rig = Rig(source_plan()).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.buffered = {ORDERS0: 9}
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.task.phase == "draining"
    assert rig.task.may_take(ORDERS0)
    rig.chunk(ORDERS0, 9, 120)
    assert rig.letters()[-3:] == [("watermark", ORDERS, MAX_TIME), ("drain", ORDERS, None), ("drain", None, None)]
    assert {one.cause for one in rig.of(RunStep, last=False)[-3:]} == {"drain"}
    assert rig.said()[-2:] == [("wm", MAX_TIME, (0, 1)), ("drain", "d1", (0, 1))]
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {ORDERS0: 9}


@pytest.mark.parametrize("moment", range(5))
def test_a_drain_is_heard_between_two_steps_of_a_chunk_and_changes_nothing_of_it(moment: int):
    """Samza's hole 22: the thread that heard of the drain changed the queues beside the loop that took from them, so that a partition could
    be taken twice. Here it is one more event: whenever it comes, each record is taken once, in order, and the drain stands behind them.
    """
    rig = Rig(source_plan()).start()
    rig.buffered = {ORDERS0: 9}
    events = [ChunkTaken(ORDERS0, 5), ChunkDone(ORDERS0, 5, 100), ChunkTaken(ORDERS0, 9), ChunkDone(ORDERS0, 9, 120)]
    if moment == len(events):
        rig.buffered = {}
    for event in [*events[:moment], o.RunChanged(run_view(draining="d1")), *events[moment:]]:
        if isinstance(event, ChunkTaken):
            assert rig.task.may_take(ORDERS0)
        rig.feed(event)
        if isinstance(event, ChunkTaken):
            assert not rig.task.may_take(ORDERS0)
    assert rig.letters()[-3:] == [("watermark", ORDERS, MAX_TIME), ("drain", ORDERS, None), ("drain", None, None)]
    assert len([one for one in rig.letters() if one[0] == "drain"]) == 2
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {ORDERS0: 9}


def test_drained_is_not_reported_when_the_last_commit_fails_and_the_next_life_drains():
    """Samza's hole 6: the last commit ran beside the shutdown, and nobody looked whether it had failed: what it held was lost."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(o.RunChanged(run_view(draining="d1")))
    rig.begin_commit()
    rig.feed(CommitLost("outcome unknown"))
    assert rig.told() == ["running"]
    assert rig.task.phase == "abandoned"
    again = rig.again(run_view(draining="d1"), auto_commit=True)
    assert again.told() == ["running", "drained"]
    assert again.log[-1][0].positions == {ORDERS0: 0}


def test_drained_is_reported_only_when_it_is_durable_and_never_twice():
    """Samza's hole 6: the last commit ran beside the shutdown, which could cut it off."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(o.RunChanged(run_view(draining="d1")))
    rig.begin_commit()
    assert rig.told() == ["running"]
    rig.end_commit()
    assert rig.told() == ["running", "drained"]
    rig.feed(o.RunChanged(run_view(draining="d1")))
    rig.commit()
    assert rig.told() == ["running", "drained"]


def test_a_restart_during_a_drain_drains_at_once_and_reads_no_new_input():
    rig = Rig(two_inputs()).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.buffered = {ORDERS0: 50}
    rig.feed(o.RunChanged(run_view(draining="d1")))
    again = rig.again(run_view(draining="d1"))
    assert again.of(SeekConsumer, last=False) == [SeekConsumer({BY0: 0})]
    assert not again.task.may_take(ORDERS0)
    again.hear(BY0, drain(ME, "d1"))
    assert again.told() == ["running", "drained"]
    assert again.log[-1][0].positions == {ORDERS0: 5, BY0: 1}


def test_a_restart_that_has_not_heard_of_the_drain_yet_still_remembers_it():
    rig = Rig(two_inputs()).start()
    rig.feed(o.RunChanged(run_view(draining="d1")))
    again = rig.again(run_view())
    assert again.task.phase == "draining"


def test_a_drained_task_that_is_granted_again_only_says_so_again():
    rig = Rig(source_plan()).start()
    rig.feed(o.RunChanged(run_view(draining="d1")))
    again = rig.again(run_view(draining="d1"))
    assert again.told() == ["drained"]
    assert again.letters() == []
    assert again.said() == []


def test_drain_with_an_input_that_has_ended():
    """Samza's hole 8: its task waited for a drain from what had ended, for ever."""
    plan = TaskPlan(JOB, ME, (InputPlan(ORDERS, (0,), 1, until=5), InputPlan("clicks", (0,), 1)))
    rig = Rig(plan).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.told() == ["running", "drained"]
    assert ("end", ORDERS, None) in rig.letters()
    assert ("drain", "clicks", None) in rig.letters()


def test_a_paused_task_drains():
    rig = Rig(source_plan()).start(run_view(paused_job=True))
    assert rig.task.phase == "paused"
    rig.feed(o.RunChanged(run_view(paused_job=True, draining="d1")))
    assert rig.told() == ["running", "drained"]


def test_the_drain_of_another_run_is_ignored():
    rig = Rig(reader_plan()).start(run_view("a"))
    rig.hear(BY0, drain("a", run="r0"))
    assert rig.task.phase == "running"
    assert rig.task.position(BY0) == 1
    out = rig.feed(o.RunChanged(run_view(run_id="r0", draining="d")))
    assert [type(one) for one in out] == [TaskNote]
    assert rig.task.phase == "running"


def test_a_drain_that_comes_in_frames_before_the_job_state_brings_it():
    rig = Rig(reader_plan()).start(run_view("a"))
    rig.hear(BY0, drain("a", "d9"))
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].drain_id == "d9"


@pytest.mark.parametrize("steps", [1, 2])
def test_a_drain_that_came_in_frames_is_passed_on_under_its_name(steps: int):
    """Also if a commit that tells the last time comes in the middle of its letter, so that only the drain is left to be said."""
    out = (OutputPlan("out", 1, frozenset({BY})),)
    rig = Rig(replace(reader_plan(), outputs=out), auto_steps=False).start(run_view("a"))
    rig.hear(BY0, wm("a", MAX_TIME))
    rig.feed(StepDone(rig.of(RunStep)[-1].letter))
    rig.hear(BY0, drain("a", "d9"))
    letter = rig.of(RunStep)[-1].letter
    for _ in range(steps - 1):
        rig.feed(StepDone(letter, more=True))
    rig.feed(StepDone(letter))
    rig.feed(StepDone(rig.of(RunStep)[-1].letter))
    assert rig.told() == ["running", "drained"]
    assert ("drain", "d9", (0,)) in rig.said()
    assert ("drain", "", (0,)) not in rig.said()


def test_a_chunk_in_hand_is_part_of_the_drain():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.told() == ["running"]
    rig.feed(ChunkDone(ORDERS0, 5, 100))
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {ORDERS0: 5}
    assert rig.feed(FetchStopped({ORDERS0: 99})) == []


def test_another_jobs_stream_is_read_no_further_when_this_job_drains():
    plan = TaskPlan(JOB, ME, (InputPlan("shared", (0,), 1, FOREIGN, jobs=("other/1",)),))
    rig = Rig(plan).start()
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.told() == ["running", "drained"]


def test_deadlines_of_a_task_that_waits_for_a_retry_and_for_time():
    rig = Rig(hearing(source_plan(settings=TaskSettings(watermark_interval_s=0.2, error_backoff_s=5.0))))
    assert rig.task.deadline() is None
    rig.start().wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.chunk(ORDERS0, 6, 101)
    rig.feed(ChunkTaken(ORDERS0, 9))
    rig.feed(WorkFailed("boom"))
    assert rig.task.deadline() == pytest.approx(101.05)
    rig.wait(0.3)
    assert rig.task.deadline() == pytest.approx(106.0)
    rig.feed(WorkFailed("boom", final=True))


def test_seeks_that_came_early_and_pauses_are_found_when_it_opens():
    rig = Rig(source_plan(), auto_commit=False)
    rig.feed(o.Start(ME, 1, run_view(paused_job=True), 0))
    rig.feed(o.Seek("s1", ORDERS, 0, 3))
    rig.commit()
    assert (rig.task.phase, rig.task.position(ORDERS0)) == ("paused", 3)


def test_drain_overtakes_bootstrap():
    rig = Rig(bootstrap_plan()).start()
    assert rig.task.phase == "bootstrapping"
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.told() == ["running", "drained"]


def test_a_bounded_task_passes_through_ending():
    rig = Rig(source_plan(until=5), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5)
    assert rig.task.phase == "ending"
    rig.feed(o.Release("stop"))
    rig.commit()
    assert rig.told() == ["running", "ended", "released"]


def fragile() -> TaskPlan:
    """What fails is not tried again."""
    return source_plan(settings=TaskSettings(error_retries=0, restore_deadline_s=10.0, watermark_interval_s=0.2))


def test_what_fails_commits_what_was_complete_and_closes_before_it_says_so():
    rig = Rig(fragile(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(ChunkDone(ORDERS0, 5))
    rig.feed(ChunkTaken(ORDERS0, 9))
    assert rig.feed(WorkFailed("boom"))[0] == TaskNote("failed", "boom", "error")
    assert (rig.task.phase, rig.told()) == ("releasing", ["running"])
    rig.commit()
    assert (rig.told(), rig.log[-1][0].positions) == (["running", "failed"], {ORDERS0: 5})


def test_a_log_that_begins_behind_the_position_fails_the_task_while_its_chunk_is_dropped():
    """Whatever the failing fact would lead to otherwise is not done any more: the task only leaves."""
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    out = rig.feed(Lost(ORDERS0, 0, 40))
    assert [type(one) for one in out] == [TaskNote, DropChunk]
    assert rig.feed(ChunkDropped(ORDERS0)) != []
    assert rig.told() == ["running", "failed"]


def test_what_waits_for_a_retry_or_for_the_commit_of_a_step_is_dropped_without_asking():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(WorkFailed("boom"))
    assert [type(one) for one in rig.feed(o.Release("moved"))] == [CloseStore, SendReport]
    rig = Rig(source_plan(until=5), auto_steps=False, auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(StepDone(rig.task.letters.number, more=True))
    assert DropChunk not in map(type, rig.feed(o.Release("moved")))
    rig.commit()
    assert rig.told() == ["running", "released"]


def test_leaving_waits_for_the_actor_then_for_the_commit_then_for_the_store():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    assert rig.feed(o.Release("moved")) == [DropChunk("moved")]
    assert rig.feed(ChunkDone(ORDERS0, 5)) == [RequestCommit(urgent=True)]
    rig.begin_commit()
    assert rig.handle(ChunkDropped(ORDERS0)) == []
    assert rig.told() == ["running"]
    rig.end_commit()
    assert rig.told() == ["running", "released"]


def test_while_restoring_there_is_nothing_to_commit_and_failing_is_at_once():
    rig = Rig(fragile())
    rig.handle(o.Start(ME, 1, run_view(), 0))
    rig.handle(RestoreProgress(5, blocked=True))
    assert rig.task.deadline() == pytest.approx(110.0)
    rig.now += 10
    assert [type(one) for one in rig.handle(Tick())] == [Discard, SendReport]
    assert rig.told() == ["failed"]
