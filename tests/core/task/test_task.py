"""The life of a task: every (state, event) pair, random lives, and what happens to chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import orders as o
from headgate.core.machine import IllegalEvent, Tick, diagram, replay
from headgate.core.names import StreamPartition
from headgate.core.orders import TaskState
from headgate.core.task.plan import TaskSettings
from headgate.core.task.protocol import (
    ApplyFailed,
    AtEnd,
    BeginAgain,
    Broken,
    ChunkDone,
    ChunkDropped,
    ChunkTaken,
    CommitBegins,
    CommitDone,
    CommitLost,
    CommitWanted,
    ControlAtHead,
    Discard,
    DropChunk,
    FetchStopped,
    Gate,
    Identified,
    Lag,
    LogEnds,
    Lost,
    NotAnswered,
    NotAtEnd,
    OffsetsResolved,
    PositionMoved,
    RequestCommit,
    Restored,
    RestoreProgress,
    RunAgain,
    RunStep,
    SendReport,
    SettingsChanged,
    StepDone,
    StoreBroken,
    StoreClosed,
    StoreOpened,
    StoreWiped,
    TaskEvent,
    TaskNote,
    WorkDue,
    WorkFailed,
)
from headgate.core.task.task import Task

from ..task_rig import (
    BY0,
    BY1,
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

SAMPLES: dict[type, object] = {
    o.Start: o.Start(ME, 1, run_view(), 0),
    o.RunChanged: o.RunChanged(run_view(paused_job=True)),
    o.Release: o.Release("moved"),
    o.Abandon: o.Abandon("fenced"),
    o.Seek: o.Seek("s1", ORDERS, 0, 7),
    o.Unpark: o.Unpark("u1", o.RELEASE),
    Tick: Tick(),
    StoreOpened: StoreOpened(),
    StoreBroken: StoreBroken("damaged"),
    LogEnds: LogEnds(0, 0, 1000),
    StoreWiped: StoreWiped(),
    RestoreProgress: RestoreProgress(3, blocked=True),
    Restored: Restored(0),
    OffsetsResolved: OffsetsResolved(0, {ORDERS0: 0}),
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
    Identified: Identified(ORDERS0, "one"),
    Lag: Lag(5),
    SettingsChanged: SettingsChanged(TaskSettings(error_retries=1)),
    FetchStopped: FetchStopped({ORDERS0: 0}),
    WorkDue: WorkDue("timer", "t"),
    StepDone: StepDone(999),
    CommitWanted: CommitWanted(),
    CommitBegins: CommitBegins(77),
    CommitDone: CommitDone(77),
    CommitLost: CommitLost("fenced"),
    ApplyFailed: ApplyFailed("disk full"),
    Broken: Broken("its actor was stopped"),
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
    assert rig.task.phase == state, rig.task.story()
    return rig


@pytest.mark.parametrize("state", TaskState)
@pytest.mark.parametrize("kind", get_args(TaskEvent))
def test_every_pair_of_state_and_event_is_handled_or_raises_and_changes_nothing(state, kind):
    rig = reach(state)
    state = rig.task.state
    legal = (state, kind) in Task._index
    before = (rig.task.phase, dict(rig.task.inputs.positions), rig.task.work.chunk, rig.task.ledger.made)
    if not legal:
        with pytest.raises(IllegalEvent):
            rig.handle(SAMPLES[kind])
        assert (rig.task.phase, dict(rig.task.inputs.positions), rig.task.work.chunk, rig.task.ledger.made) == before
        return
    try:
        rig.handle(SAMPLES[kind])
    except IllegalEvent:
        assert kind in (ChunkTaken, PositionMoved, OffsetsResolved)
        assert (rig.task.phase, dict(rig.task.inputs.positions), rig.task.work.chunk, rig.task.ledger.made) == before


def test_a_task_that_closes_its_store_ignores_what_comes_late():
    for kind, late in SAMPLES.items():
        rig = Rig(two_inputs()).start()
        rig.feed(o.Release("moved"))
        assert rig.task.state in ("closing", "released")
        rig = closing()
        if kind in (CommitLost, o.Abandon, ChunkTaken, o.Start, StoreClosed):
            continue
        assert rig.handle(late) == []
        assert rig.task.state == "closing"
        assert rig.handle(StoreClosed()) != []


def closing() -> Rig:
    """A task whose store was told to close."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.handle(o.Release("moved"))
    assert (rig.task.state, rig.task.phase) == ("closing", "releasing")
    return rig


def test_the_table_draws_itself():
    drawn = diagram(Task)
    assert "open --> releasing: " in drawn
    assert "closing --> released: StoreClosed" in drawn


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
    rig = Rig(hearing(source_plan(lag_ms=5))).start()
    rig.chunk(ORDERS0, 4, 90)
    rig.chunk(ORDERS0, 5, 100)
    assert rig.letters() == [("watermark", ORDERS, 85)]
    again = rig.again()
    again.wait(1)
    assert again.letters() == [("watermark", ORDERS, 95)]


def test_records_that_others_read_count_for_the_time_with_the_result():
    """The position has passed them long before; what the step owes meanwhile holds the time behind it."""
    rig = Rig(hearing(source_plan(lag_ms=5)), auto_steps=False).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 50, None)
    assert rig.letters() == []
    rig.feed(WorkDue("work", "lot/run"))
    rig.feed(StepDone(rig.task.letters.number, seen=((ORDERS0, 100), (StreamPartition("other", 3), 900))))
    rig.wait(1)
    assert rig.letters()[-1] == ("watermark", ORDERS, 95)
    assert rig.again().task.inputs.progress.watermark(ORDERS) == 95


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
    assert rig.feed(WorkFailed("boom")) == [TaskNote("retry", "attempt 1 in 1 s: boom", "warning")]
    assert rig.feed(WorkFailed("boom")) == []
    assert not rig.task.may_take(ORDERS0)
    assert rig.wait(0.5) != [RunAgain(1)]
    assert rig.task.deadline() == pytest.approx(101.0)
    assert RunAgain(1) in rig.wait(0.6)
    assert rig.feed(WorkFailed("boom")) == [TaskNote("retry", "attempt 2 in 2 s: boom", "warning")]
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
    assert rig.task.work.attempt == 0
    assert rig.task.may_take(ORDERS0)


def test_a_task_that_the_edge_cannot_go_on_with_commits_what_is_complete_and_fails():
    """Its actor is stopped in the middle of a chunk: the chunk is void, what was complete before it counts, and it has failed."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(ChunkDone(ORDERS0, 5))
    rig.feed(ChunkTaken(ORDERS0, 7))
    assert DropChunk("stopped") in rig.feed(Broken("stopped"))
    assert rig.task.phase == "releasing"
    rig.begin_commit()
    assert rig.pending is not None
    assert rig.pending.checkpoint.positions == {ORDERS0: 5}
    rig.end_commit()
    assert rig.told() == ["running", "failed"]
    assert rig.feed(Broken("again")) == []


def test_a_task_that_is_broken_while_it_restores_or_leaves():
    rig = Rig(source_plan(), auto_commit=False).start()
    assert rig.feed(Broken("its log cannot be read"))[0] == Discard("its log cannot be read")
    assert rig.told() == ["failed"]
    leaving = reach("releasing")
    assert leaving.feed(Broken("stopped"))[0] == DropChunk("stopped")
    leaving.commit()
    assert leaving.told()[-1] == "released"


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
    assert RequestCommit(urgent=True) in rig.feed(ChunkDone(ORDERS0, 5, commit=True))
    assert rig.feed(CommitWanted()) == []
    rig.commit()
    assert rig.feed(CommitWanted()) == [RequestCommit(urgent=False)]
    rig.commit()
    rig.auto_commit = True
    rig.chunk(ORDERS0, 6, ends=frozenset({ORDERS}))
    assert rig.told() == ["running", "ended"]


def test_another_runs_news_are_not_this_tasks():
    rig = Rig(source_plan()).start()
    (note,) = rig.feed(o.RunChanged(run_view(run_id="r0", draining="d")))
    assert (note.what, rig.task.phase) == ("other-run", "running")


def test_a_newer_job_state_lets_in_the_frames_that_waited_for_it_and_no_others():
    """Partition 0 has a frame of epoch 2, partition 1 one of epoch 3; epoch 2 comes first."""
    rig = Rig(reader_plan((0, 1))).start(run_view("a"))
    rig.hear(BY0, wm("b", 5, epoch=2))
    rig.hear(BY1, wm("b", 5, epoch=3))
    assert [rig.task.position(at) for at in (BY0, BY1)] == [0, 0]
    rig.feed(o.RunChanged(run_view("a", "b", epoch=2)))
    assert [rig.task.position(at) for at in (BY0, BY1)] == [1, 0]
    rig.feed(o.RunChanged(run_view("a", "b", epoch=3)))
    assert [rig.task.position(at) for at in (BY0, BY1)] == [1, 1]
    assert rig.log[-1][0].positions == {BY0: 1, BY1: 1}


def test_control_inside_a_chunk_is_a_mistake():
    """The edge cuts chunks at control messages: one that stands inside a chunk in hand has been cut wrongly."""
    rig = Rig(reader_plan()).start()
    rig.feed(ChunkTaken(BY0, 5))
    with pytest.raises(IllegalEvent):
        rig.handle(ControlAtHead(BY0, 3, wm(ME, 5)))
    rig.feed(ChunkDone(BY0, 5))
    assert rig.feed(ControlAtHead(BY0, 3, wm(ME, 5))) == []
    assert rig.task.position(BY0) == 5


def test_the_end_of_a_log_moves_the_position_and_counts_towards_idleness():
    rig = Rig(source_plan(settings=TaskSettings(idle_timeout_s=10.0, watermark_interval_s=0.2))).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(AtEnd(ORDERS0, 7))
    assert rig.task.position(ORDERS0) == 7
    rig.now += 11
    rig.feed(AtEnd(ORDERS0, 7))
    assert rig.said()[-1][0] == "idle"
    rig.wait(1)
    rig.feed(NotAtEnd(ORDERS0))
    assert rig.said()[-1][0] == "wm"
    rig.feed(AtEnd(ORDERS0, 7))
    rig.now += 11
    rig.feed(AtEnd(ORDERS0, 7))
    (note,) = [one for one in rig.feed(NotAnswered(ORDERS0)) if isinstance(one, TaskNote)]
    assert (note.what, "orders" in note.detail) == ("degraded", True)


def test_too_much_between_the_stages_closes_what_comes_from_outside_once():
    rig = Rig(two_inputs()).start()
    assert rig.feed(Lag(100)) == []
    assert [type(one) for one in rig.feed(Lag(101))] == [Gate]
    assert rig.feed(Lag(102)) == []
    assert [one.closed for one in rig.feed(Lag(3))] == [{}]


def test_other_settings_count_at_once():
    """Each was acknowledged, and counted from the task's next start on."""
    rig = Rig(two_inputs()).start()
    was = rig.task.plan.settings
    rig.feed(Lag(50))
    rig.feed(SettingsChanged(replace(was, intermediate_max_lag=10)))
    assert rig.of(Gate)[-1].closed == {ORDERS0: "lag"}
    rig.feed(SettingsChanged(replace(was, intermediate_max_lag=None)))
    assert rig.of(Gate)[-1].closed == {}
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(WorkFailed("boom"))
    rig.feed(SettingsChanged(replace(was, error_retries=1, aggregate_above=1)))
    rig.wait(60)
    rig.feed(WorkFailed("boom"))
    assert rig.task.phase == "failed"
    assert rig.task.plan.settings.aggregate_above == was.aggregate_above


def test_a_shorter_interval_does_not_wait_for_the_end_of_the_longer_one():
    """Watermarks were said an hour later, though an operator had said: each second."""
    rig = Rig(source_plan(settings=TaskSettings(watermark_interval_s=3600.0))).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.chunk(ORDERS0, 6, 200)
    before = rig.task.deadline()
    rig.feed(SettingsChanged(TaskSettings(watermark_interval_s=0.2)))
    assert rig.task.deadline() is None or rig.task.deadline() < before


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


def test_an_open_transaction_in_the_log_is_waited_for_until_the_deadline():
    rig = Rig(source_plan(settings=TaskSettings(restore_deadline_s=10.0)))
    rig.handle(o.Start(ME, 1, run_view(), 0))
    assert rig.handle(Tick()) == []
    rig.handle(RestoreProgress(5, blocked=True))
    rig.now += 9
    assert rig.handle(Tick()) == []
    rig.now += 1
    assert [type(one) for one in rig.handle(Tick())] == [Discard, SendReport]
    assert rig.task.phase == "failed"


@settings(deadline=None, max_examples=60)
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
        elif pick == "step" and task.work.step is not None and task.work.step_made is None:
            rig.feed(StepDone(task.work.step.letter, more=data.draw(st.booleans())))
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


def test_a_failed_task_begins_again_for_a_seek_and_a_failing_one_for_the_seek_it_was_told():
    """Somebody goes on behind the record that nobody can process: the task that failed at it is not asked to be started by hand."""
    sought = o.Seek("s1", ORDERS, 0, 3)
    failed = Rig(source_plan()).start()
    failed.feed(Lost(ORDERS0, 0, 30))
    assert failed.feed(sought) == [BeginAgain((sought,))]
    failing = Rig(source_plan(), offset=10).start()
    failing.feed(ChunkTaken(ORDERS0, 15))
    failing.feed(sought)
    failing.feed(WorkFailed("poison", final=True))
    assert (failing.did[-1], failing.task.phase) == (BeginAgain((sought,)), "abandoned")
