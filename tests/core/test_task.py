"""The life of a task: every (state, event) pair, random lives, and what happens to chunks."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import orders as o
from headgate.core.frames import MAX_TIME, NO_TIME
from headgate.core.machine import IllegalEvent, Tick, diagram, replay
from headgate.core.task import Task
from headgate.core.task_events import (
    ApplyFailed,
    AtEnd,
    ChunkDone,
    ChunkDropped,
    ChunkTaken,
    CloseStore,
    CommitBegins,
    CommitDone,
    CommitLost,
    CommitWanted,
    ControlAtHead,
    Discard,
    DropChunk,
    FetchStopped,
    Lag,
    LogEnds,
    Lost,
    NotAnswered,
    NotAtEnd,
    Note,
    PositionMoved,
    RequestCommit,
    Resolved,
    Restored,
    RestoreProgress,
    RunAgain,
    RunStep,
    SeekConsumer,
    StepDone,
    StoreBroken,
    StoreClosed,
    StoreOpened,
    StoreWiped,
    TaskEvent,
    WorkDue,
    WorkFailed,
)
from headgate.core.task_plan import FOREIGN, InputPlan, OutputPlan, TaskPlan, TaskSettings
from headgate.core.task_states import STATES

from .task_rig import (
    BY,
    BY0,
    BY1,
    JOB,
    ME,
    ORDERS,
    ORDERS0,
    Rig,
    bootstrap_plan,
    drain,
    producers,
    reader_plan,
    run_view,
    source_plan,
    two_inputs,
    wm,
)

SAMPLES: dict[type, object] = {
    o.Start: o.Start(ME, 1, run_view(), 0),
    o.RunChanged: o.RunChanged(run_view(paused_job=True)),
    o.Release: o.Release("moved"),
    o.Abandon: o.Abandon("fenced"),
    o.Seek: o.Seek("s1", ORDERS, 0, 7),
    Tick: Tick(),
    StoreOpened: StoreOpened(),
    StoreBroken: StoreBroken("damaged"),
    LogEnds: LogEnds(0, 0, 1000),
    StoreWiped: StoreWiped(),
    RestoreProgress: RestoreProgress(3, blocked=True),
    Restored: Restored(0),
    Resolved: Resolved(0, {ORDERS0: 0}),
    StoreClosed: StoreClosed(),
    ChunkTaken: ChunkTaken(ORDERS0, 50),
    ChunkDone: ChunkDone(ORDERS0, 50),
    ChunkDropped: ChunkDropped(ORDERS0),
    WorkFailed: WorkFailed("boom"),
    PositionMoved: PositionMoved(ORDERS0, 60),
    ControlAtHead: ControlAtHead(BY0, 0, wm(ME, 5)),
    AtEnd: AtEnd(ORDERS0, 0),
    NotAtEnd: NotAtEnd(ORDERS0),
    NotAnswered: NotAnswered(ORDERS0),
    Lost: Lost(ORDERS0, 0, 0),
    Lag: Lag(5),
    FetchStopped: FetchStopped({ORDERS0: 0}),
    WorkDue: WorkDue("timer", "t"),
    StepDone: StepDone(999),
    CommitWanted: CommitWanted(),
    CommitBegins: CommitBegins(77),
    CommitDone: CommitDone(77, 1),
    CommitLost: CommitLost("fenced"),
    ApplyFailed: ApplyFailed("disk full"),
}


def reach(state: str) -> Rig:
    """A task in this state, by a short way."""
    if state == "bootstrapping":
        rig = Rig(bootstrap_plan()).start()
    else:
        rig = Rig(two_inputs(), auto_commit=state not in ("restoring", "draining", "releasing"))
    match state:
        case "restoring":
            rig.start()
        case "running" | "released" | "failed" | "abandoned" | "drained" | "paused":
            rig.start(run_view(paused_job=state == "paused"))
    match state:
        case "draining" | "releasing":
            rig.start()
            rig.commit()
            rig.commit()
            rig.feed(o.RunChanged(run_view(draining="d")) if state == "draining" else ChunkTaken(ORDERS0, 5))
            if state == "releasing":
                rig.feed(o.Release("moved"))
        case "ending" | "ended":
            rig = Rig(source_plan(until=5), auto_steps=state == "ended").start()
            rig.chunk(ORDERS0, 5)
            if state == "ending":
                rig.feed(StepDone(rig.of(RunStep, last=False)[-1].letter))
        case "drained":
            rig.feed(o.RunChanged(run_view(draining="d")))
            rig.hear(BY0, drain(ME))
        case "released":
            rig.feed(o.Release("moved"))
        case "failed":
            rig.feed(CommitLost("no such topic", blamed=True))
        case "abandoned":
            rig.feed(o.Abandon("fenced"))
    assert rig.task.state == state, rig.task.story()
    return rig


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", get_args(TaskEvent))
def test_every_pair_of_state_and_event_is_handled_or_raises_and_changes_nothing(state, kind):
    rig = reach(state)
    legal = any(rule.state == state and rule.event is kind for rule in Task.TABLE)
    before = (rig.task.state, dict(rig.task.inputs.positions), rig.task.chunk, rig.task.ledger.made)
    if not legal:
        with pytest.raises(IllegalEvent):
            rig.handle(SAMPLES[kind])
        assert (rig.task.state, dict(rig.task.inputs.positions), rig.task.chunk, rig.task.ledger.made) == before
        return
    try:
        rig.handle(SAMPLES[kind])
    except IllegalEvent:
        assert kind in (ChunkTaken, PositionMoved)
        assert (rig.task.state, dict(rig.task.inputs.positions), rig.task.chunk, rig.task.ledger.made) == before


def test_the_table_draws_itself():
    drawn = diagram(Task)
    assert "running --> paused" in drawn
    assert "releasing --> released: StoreClosed" in drawn


def test_a_chunk_under_work_has_no_part_in_a_commit():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(ChunkDone(ORDERS0, 5, 1))
    rig.feed(ChunkTaken(ORDERS0, 9))
    rig.begin_commit()
    rig.feed(ChunkDone(ORDERS0, 9, 2))
    rig.end_commit()
    assert rig.log[-1][0].positions == {ORDERS0: 5}
    assert rig.again(auto_commit=True).task.position(ORDERS0) == 5


def test_the_time_of_committed_records_is_durable_with_them():
    """A task is killed after the commit of a chunk and before its watermark was told: its successor still knows the time."""
    rig = Rig(source_plan(lag_ms=5)).start()
    rig.chunk(ORDERS0, 5, 100)
    again = rig.again()
    again.wait(1)
    assert again.letters() == [("watermark", ORDERS, 95)]


def test_a_chunk_that_was_not_given_or_ends_elsewhere_is_a_mistake():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    for wrong in (ChunkTaken(ORDERS0, 9), ChunkDone(BY0, 5), ChunkDone(ORDERS0, 3), PositionMoved(ORDERS0, 8)):
        with pytest.raises(IllegalEvent):
            rig.handle(wrong)
    rig.feed(ChunkDone(ORDERS0, 5))
    with pytest.raises(IllegalEvent):
        rig.handle(ChunkTaken(ORDERS0, 5))
    assert rig.handle(ChunkDone(ORDERS0, 9)) == []


def test_user_code_is_tried_again_with_backoff_and_then_the_task_fails_alone():
    rig = Rig(
        source_plan(settings=TaskSettings(error_retries=2, error_backoff_s=1.0, watermark_interval_s=0.2))
    ).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(ChunkTaken(ORDERS0, 9))
    assert rig.feed(WorkFailed("boom")) == [Note("retry", "attempt 1 in 1 s: boom")]
    assert rig.feed(WorkFailed("boom")) == []
    assert not rig.task.may_take(ORDERS0)
    assert rig.wait(0.5) != [RunAgain(1)]
    assert rig.task.deadline() == pytest.approx(101.0)
    assert RunAgain(1) in rig.wait(0.6)
    assert rig.feed(WorkFailed("boom")) == [Note("retry", "attempt 2 in 2 s: boom")]
    assert RunAgain(2) in rig.wait(2.1)
    rig.feed(WorkFailed("boom at orders:0 7"))
    assert rig.told() == ["running", "failed"]
    assert rig.task.why == "boom at orders:0 7"
    assert rig.log[-1][0].positions == {ORDERS0: 5}
    rig.feed(o.Release("stop"))
    assert rig.told() == ["running", "failed", "released"]


def test_a_retry_that_works_is_forgotten():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 9))
    rig.feed(WorkFailed("boom"))
    rig.wait(1.1)
    rig.feed(ChunkDone(ORDERS0, 9))
    assert rig.task.attempt == 0
    assert rig.task.may_take(ORDERS0)


def test_a_final_failure_commits_what_was_complete_before_it_is_reported():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(ChunkDone(ORDERS0, 5))
    rig.feed(ChunkTaken(ORDERS0, 9))
    rig.feed(WorkFailed("poison", final=True))
    assert rig.told() == ["running"]
    rig.commit()
    assert rig.told() == ["running", "failed"]
    assert rig.log[-1][0].positions == {ORDERS0: 5}


def test_a_position_alone_waits_for_company():
    rig = Rig(source_plan()).start()
    assert rig.feed(PositionMoved(ORDERS0, 4)) == []
    assert rig.feed(PositionMoved(ORDERS0, 3)) == []
    rig.feed(o.Release("stop"))
    assert rig.log[-1][0].positions == {ORDERS0: 4}


def test_user_code_may_ask_for_a_commit_and_for_the_end():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    assert RequestCommit("asked for", urgent=True) in rig.feed(ChunkDone(ORDERS0, 5, commit=True))
    assert rig.feed(CommitWanted()) == []
    rig.commit()
    assert rig.feed(CommitWanted()) == []
    rig.auto_commit = True
    rig.chunk(ORDERS0, 6, stop=True)
    assert rig.told() == ["running", "ended"]


def test_a_drain_processes_what_is_buffered_and_reads_nothing_new():
    rig = Rig(source_plan()).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.buffered = {ORDERS0: 9}
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.task.state == "draining"
    assert rig.task.may_take(ORDERS0)
    rig.chunk(ORDERS0, 9, 120)
    assert rig.letters()[-3:] == [("watermark", ORDERS, MAX_TIME), ("drain", ORDERS, None), ("drain", None, None)]
    assert {one.cause for one in rig.of(RunStep, last=False)[-3:]} == {"drain"}
    assert rig.said()[-2:] == [("wm", MAX_TIME, (0, 1)), ("drain", "d1", (0, 1))]
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {ORDERS0: 9}


def test_drained_is_reported_only_when_it_is_durable_and_never_twice():
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
    assert again.task.state == "draining"


def test_a_drained_task_that_is_granted_again_only_says_so_again():
    rig = Rig(source_plan()).start()
    rig.feed(o.RunChanged(run_view(draining="d1")))
    again = rig.again(run_view(draining="d1"))
    assert again.told() == ["drained"]
    assert again.letters() == []
    assert again.said() == []


def test_drain_with_an_input_that_has_ended():
    """The original waits for a drain from what has ended, for ever."""
    plan = TaskPlan(JOB, ME, (InputPlan(ORDERS, (0,), 1, until=5), InputPlan("clicks", (0,), 1)))
    rig = Rig(plan).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.told() == ["running", "drained"]
    assert ("end", ORDERS, None) in rig.letters()
    assert ("drain", "clicks", None) in rig.letters()


def test_drain_overrides_pause():
    rig = Rig(source_plan()).start(run_view(paused_job=True))
    assert rig.task.state == "paused"
    rig.buffered = {ORDERS0: 3}
    rig.feed(o.RunChanged(run_view(paused_job=True, draining="d1")))
    rig.chunk(ORDERS0, 3, 1)
    assert rig.told() == ["running", "drained"]


def test_the_drain_of_another_run_is_ignored():
    rig = Rig(reader_plan()).start(run_view("a"))
    rig.hear(BY0, drain("a", run="r0"))
    assert rig.task.state == "running"
    assert rig.task.position(BY0) == 1
    out = rig.feed(o.RunChanged(run_view(run_id="r0", draining="d")))
    assert [type(one) for one in out] == [Note]
    assert rig.task.state == "running"


def test_a_drain_that_comes_in_frames_before_the_job_state_brings_it():
    rig = Rig(reader_plan()).start(run_view("a"))
    rig.hear(BY0, drain("a", "d9"))
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].drain_id == "d9"


def test_a_chunk_in_hand_is_part_of_the_drain():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.told() == ["running"]
    rig.feed(ChunkDone(ORDERS0, 5, 100))
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {ORDERS0: 5}
    assert rig.feed(FetchStopped({ORDERS0: 99})) == []


def test_neither_drain_nor_its_time_crosses_into_another_job():
    plan = TaskPlan(
        JOB, ME, (InputPlan(ORDERS, (0,), 1),), (OutputPlan("shared", 1, frozenset({ORDERS}), crosses=True),)
    )
    rig = Rig(plan).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.told() == ["running", "drained"]
    assert rig.said() == [("wm", NO_TIME, (0,)), ("wm", 100, (0,))]


def test_another_jobs_stream_is_read_no_further_when_this_job_drains():
    plan = TaskPlan(JOB, ME, (InputPlan("shared", (0,), 1, FOREIGN, jobs=("other/1",)),))
    rig = Rig(plan).start()
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.told() == ["running", "drained"]


def test_release_finishes_commits_closes_and_then_reports():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    assert rig.feed(o.Release("moved")) == [DropChunk("moved")]
    assert rig.feed(o.Release("moved")) == []
    rig.feed(ChunkDone(ORDERS0, 5))
    assert rig.of(CloseStore, last=False) == []
    rig.begin_commit()
    assert rig.told() == ["running"]
    rig.end_commit()
    assert rig.told() == ["running", "released"]
    assert rig.log[-1][0].positions == {ORDERS0: 5}


@pytest.mark.parametrize("answer", [ChunkDropped(ORDERS0), WorkFailed("cancelled")])
def test_release_drops_a_chunk_that_does_not_finish(answer):
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(o.Release("moved"))
    rig.feed(answer)
    assert rig.told() == ["running", "released"]
    assert rig.log[-1][0].positions == {ORDERS0: 0}
    assert rig.feed(ChunkDropped(ORDERS0)) == []


def test_release_of_what_waits_for_a_retry_waits_for_nobody():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(WorkFailed("boom"))
    rig.feed(o.Release("moved"))
    assert rig.told() == ["running", "released"]


@pytest.mark.parametrize("more", [True, False])
def test_release_between_two_steps_leaves_the_letter_to_the_next_owner(more):
    rig = Rig(source_plan(until=5), auto_steps=False).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(o.Release("moved"))
    rig.feed(StepDone(rig.task.letters.number, more=more))
    assert rig.told() == ["running", "released"]
    again = rig.again(auto_steps=True)
    assert again.letters() == ([("end", ORDERS, None)] if more else []) + [("end", None, None)]
    assert again.said()[-1] == ("end", 1, (0, 1))


def test_release_while_the_commit_of_a_step_is_awaited():
    rig = Rig(source_plan(until=5), auto_steps=False, auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(StepDone(rig.task.letters.number, more=True))
    rig.feed(o.Release("moved"))
    rig.commit()
    assert rig.told() == ["running", "released"]


def test_release_just_before_drained_is_durable_reports_both():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(o.RunChanged(run_view(draining="d1")))
    rig.begin_commit()
    rig.feed(o.Release("run closes"))
    rig.end_commit()
    assert rig.told() == ["running", "drained", "released"]


def test_released_before_it_began():
    rig = Rig(source_plan())
    rig.feed(o.Release("moved"))
    assert rig.told() == ["released"]


def test_whoever_is_fenced_drops_everything_and_says_nothing():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    assert rig.feed(o.Abandon("fenced")) == [Discard("fenced")]
    assert rig.feed(ChunkDone(ORDERS0, 5)) == []
    assert rig.feed(CommitBegins(99)) == []
    assert rig.feed(ChunkTaken(ORDERS0, 9)) == []
    assert rig.told() == ["running"]


def test_a_lost_commit_voids_what_was_not_durable():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(ChunkDone(ORDERS0, 5))
    rig.begin_commit()
    assert rig.feed(CommitLost("outcome unknown")) == [Discard("outcome unknown")]
    assert rig.task.state == "abandoned"
    assert rig.again(auto_commit=True).task.position(ORDERS0) == 0


def test_a_full_disk_fails_the_task_after_its_last_commit():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(ChunkDone(ORDERS0, 5))
    rig.begin_commit()
    rig.feed(ChunkTaken(ORDERS0, 7))
    rig.feed(ChunkDone(ORDERS0, 7))
    rig.feed(ApplyFailed("disk full"))
    assert rig.told() == ["running"]
    rig.begin_commit()
    assert rig.pending is not None
    assert rig.pending.checkpoint.positions == {ORDERS0: 7}
    rig.feed(ApplyFailed("disk full"))
    assert rig.told() == ["running", "failed"]
    assert rig.feed(ApplyFailed("disk full")) == []


def test_a_full_disk_while_restoring():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.begin_commit()
    rig.feed(ApplyFailed("disk full"))
    assert rig.told() == ["failed"]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_in_any_order_of_events_and_with_any_deaths_it_reports_what_is_durable_once(data):
    """A random edge, random control, random deaths: drained only after its commit, once a life; heard never goes back."""
    rig = Rig(two_inputs(lag_ms=1), auto_commit=False, auto_steps=False).start()
    ts, drained, lives = 0, False, 0
    for _ in range(data.draw(st.integers(5, 60))):
        task = rig.task
        choices = ["tick", "begin", "end", "step", "chunk", "by", "frame", "at_end", "run", "die", "due"]
        pick = data.draw(st.sampled_from(choices))
        rig.did = []
        if pick == "tick":
            rig.wait(0.3)
        elif pick == "begin" and rig.pending is None:
            rig.begin_commit()
        elif pick == "end":
            rig.end_commit()
        elif pick == "step" and task.letters.current is not None and task._step_at is None:
            rig.feed(StepDone(task.letters.current.letter, more=data.draw(st.booleans())))
        elif pick in ("chunk", "by"):
            at = ORDERS0 if pick == "chunk" else BY0
            if task.may_take(at):
                ts += 5
                rig.chunk(at, task.position(at) + 2, ts)
        elif pick == "frame" and task.may_take(BY0):
            frame = data.draw(st.sampled_from([wm(ME, ts), wm(ME, ts, idle=True), drain(ME, "d"), drain(ME, run="r0")]))
            rig.hear(BY0, frame)
        elif pick == "at_end" and task.state != "restoring":
            rig.feed(AtEnd(ORDERS0, task.inputs.positions.get(ORDERS0, 0)))
        elif pick == "run":
            drained = drained or data.draw(st.booleans())
            rig.feed(o.RunChanged(run_view(draining="d" if drained else None, paused_job=data.draw(st.booleans()))))
        elif pick == "due":
            rig.feed(WorkDue("timer", "t"))
        elif pick == "die" and lives < 3:
            lives += 1
            rig = rig.again(run_view(draining="d" if drained else None))
        told = rig.told()
        assert told.count("drained") <= 1
        if "drained" in told:
            assert rig.log[-1][0].phase == "drained"
            assert not rig.task.may_take(ORDERS0)
        heard = [rows.get((":heard", ORDERS)) for _, rows in rig.log if rows.get((":heard", ORDERS))]
        assert heard == sorted(heard, key=lambda row: (row[1], row[2]))
        assert all(
            a[0].positions[at] <= b[0].positions[at]
            for a, b in zip(rig.log, rig.log[1:], strict=False)
            for at in a[0].positions
        )
    recorded = rig.task.steps()
    if len(recorded) < 200:
        replay(lambda: Task(rig.task.plan), recorded)


def test_producers_helper_is_a_set():
    assert producers("a") == o.ProducerSet(BY, 1, frozenset({"a"}))
    assert BY1.partition == 1
