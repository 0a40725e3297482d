"""The life of a task: every (state, event) pair, and the stories in which something goes wrong between two steps."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import orders as o
from headgate.core.control import aggregator
from headgate.core.frames import MAX_TIME, NO_TIME
from headgate.core.machine import IllegalEvent, Tick, diagram, replay
from headgate.core.names import StreamPartition as SP
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
    Gate,
    Lag,
    LogEnds,
    Lost,
    NotAnswered,
    NotAtEnd,
    Note,
    PositionMoved,
    RequestCommit,
    Resolve,
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
    WipeStore,
    WorkDue,
    WorkFailed,
)
from headgate.core.task_plan import FOREIGN, INTERMEDIATE, InputPlan, OutputPlan, TaskPlan, TaskSettings
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
    drain,
    eos,
    producers,
    reader_plan,
    rows_of,
    run_view,
    source_plan,
    wm,
)

# ------------------------------------------------------------------------------------------------------------- every pair

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


def two_inputs(**changes: object) -> TaskPlan:
    """A source and an intermediate stream."""
    return TaskPlan(
        JOB,
        ME,
        (
            InputPlan(**{"stream": ORDERS, "partitions": (0,), "width": 1, **changes}),  # type: ignore[arg-type]
            InputPlan(BY, (0,), 2, INTERMEDIATE),
        ),
        (OutputPlan(BY, 2, frozenset({ORDERS})),),
        TaskSettings(watermark_interval_s=0.2, intermediate_max_lag=100),
    )


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


# --------------------------------------------------------------------------------------------------- restoring, beginning


def test_a_first_start_resolves_and_makes_durable_before_anything_is_read():
    rig = Rig(source_plan(start="newest", until="newest"), offset=40, auto_commit=False).start()
    assert rig.of(Resolve)[0].positions == {ORDERS0: "newest"}
    assert rig.of(Resolve)[0].until == {ORDERS0: "newest"}
    assert rig.of(SeekConsumer) == []
    assert rig.of(RequestCommit) == [RequestCommit("where to start and to end", urgent=True)]
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
    assert again.of(Resolve, last=False) == []
    assert again.task.inputs.until == {ORDERS0: 140}
    assert again.of(SeekConsumer, last=False) == [SeekConsumer({ORDERS0: 60})]


def test_the_next_run_keeps_positions_and_resolves_its_own_bounds():
    rig = Rig(source_plan(until="newest"), offset=40).start()
    rig.chunk(ORDERS0, 140)
    assert rig.task.state == "ended"
    again = rig.again(run_view(run_id="r2"), offset=100)
    assert again.of(Resolve, last=False)[0].until == {ORDERS0: "newest"}
    assert again.task.state == "running"
    assert again.task.position(ORDERS0) == 140
    assert [frame for frame, _, _ in again.said()] == ["wm"]
    assert (":heard", ORDERS) not in rows_of(again)


def test_offsets_that_were_declared_are_not_asked():
    rig = Rig(source_plan(start=7, until=30)).start()
    assert rig.of(Resolve, last=False) == []
    assert rig.task.position(ORDERS0) == 7
    assert rig.log[0][0].until == {ORDERS0: 30}


def test_a_store_that_cannot_be_trusted_is_wiped_first():
    rig = Rig(source_plan())
    rig.handle(o.Start(ME, 1, run_view(), 3))
    rig.handle(LogEnds(0, 50, 1000))
    out = rig.handle(StoreOpened(20, "other", 0))
    assert [type(one) for one in out] == [WipeStore]
    assert "other" in out[0].why
    assert [str(one) for one in rig.handle(StoreWiped())] == ["Restore(log_partition=3, start=0, end=50)"]
    assert rig.handle(StoreOpened()) == []


def test_a_store_at_the_end_is_used_and_only_the_difference_is_replayed():
    rig = Rig(source_plan())
    rig.handle(o.Start(ME, 1, run_view(), 3))
    rig.handle(StoreOpened(20, "u1", 99_900))
    assert [str(one) for one in rig.handle(LogEnds(0, 50, 1000))] == ["Restore(log_partition=3, start=20, end=50)"]


def test_a_damaged_store_is_wiped():
    rig = Rig(source_plan())
    rig.handle(o.Start(ME, 1, run_view(), 3))
    assert rig.handle(StoreBroken("CURRENT is missing")) == [WipeStore("CURRENT is missing")]


def test_somebody_elses_open_transaction_is_waited_for_and_then_named():
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
    assert [type(one) for one in out][0] is Discard
    assert rig.told() == ["failed"]
    assert rig.task.why.startswith("open transaction")


def test_the_log_of_another_life_of_the_job_is_refused():
    rig = Rig(source_plan()).start()
    again = rig.again(run_view(job_uuid="u2"))
    assert again.told() == ["failed"]
    assert "u1" in again.task.why


def test_the_run_may_change_while_restoring():
    rig = Rig(source_plan(), auto_commit=False)
    rig.feed(o.Start(ME, 1, run_view(), 0))
    rig.feed(o.RunChanged(run_view(paused_job=True)))
    rig.commit()
    assert rig.task.state == "paused"


def test_released_while_restoring_writes_nothing():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.begin_commit()
    rig.feed(o.Release("stop"))
    assert rig.told() == ["released"]
    rig.end_commit()
    assert rig.told() == ["released"]


# ------------------------------------------------------------------------------------------------------------- bootstrap


def bootstrap_plan() -> TaskPlan:
    return TaskPlan(
        JOB, ME, (InputPlan("rates", (0,), 1, bootstrap=True), InputPlan(ORDERS, (0,), 1)), (OutputPlan(BY, 2, frozenset({ORDERS})),)
    )


RATES0 = SP("rates", 0)


def test_nothing_flows_before_the_bootstrap_inputs_have_been_read():
    rig = Rig(bootstrap_plan()).start()
    assert rig.task.state == "bootstrapping"
    assert rig.task.inputs.bootstrap == {RATES0: 10}
    assert not rig.task.may_take(ORDERS0)
    with pytest.raises(IllegalEvent):
        rig.handle(ChunkTaken(ORDERS0, 5))
    rig.chunk(RATES0, 9)
    assert rig.task.state == "bootstrapping"
    rig.feed(PositionMoved(RATES0, 10))
    assert rig.task.state == "running"
    assert rig.task.may_take(ORDERS0)


def test_an_empty_bootstrap_input_counts_as_read():
    rig = Rig(bootstrap_plan(), offset=0)
    rig.handle(o.Start(ME, 1, run_view(), 0))
    rig.handle(StoreOpened())
    rig.handle(LogEnds(0, 0, 1))
    rig.handle(Restored(0))
    rig.handle(Resolved(0, {RATES0: 3, ORDERS0: 0}, ends={RATES0: 3}))
    rig.commit()
    assert rig.task.state == "running"


def test_drain_during_bootstrap_does_not_hang_and_processes_nothing_on_a_table_that_is_not_there():
    """The original waits for ever here: its marker has no offset, so its bootstrap never ends."""
    rig = Rig(bootstrap_plan()).start()
    rig.buffered = {RATES0: 8, ORDERS0: 20}
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {RATES0: 0, ORDERS0: 0}


def test_an_unbounded_table_does_not_keep_a_bounded_job_from_ending():
    plan = bootstrap_plan()
    rig = Rig(TaskPlan(JOB, ME, (plan.inputs[0], InputPlan(ORDERS, (0,), 1, until=5)), plan.outputs)).start()
    rig.chunk(RATES0, 10)
    rig.chunk(ORDERS0, 5)
    assert rig.told() == ["running", "ended"]


def test_a_task_with_nothing_but_tables_waits_for_these():
    rig = Rig(TaskPlan(JOB, ME, (InputPlan("rates", (0,), 1, bootstrap=True, until=4),))).start()
    assert rig.task.state == "running"
    rig.chunk(RATES0, 4)
    assert rig.told() == ["running", "ended"]


# ------------------------------------------------------------------------------------------------- chunks and their failure


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
    rig = Rig(source_plan(settings=TaskSettings(error_retries=2, error_backoff_s=1.0, watermark_interval_s=0.2))).start()
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


# -------------------------------------------------------------------------------------------------------------- watermarks


def test_a_source_says_its_greatest_time_less_the_lag_at_most_once_an_interval():
    rig = Rig(source_plan(lag_ms=5)).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.chunk(ORDERS0, 6, 90)
    rig.chunk(ORDERS0, 7, 120)
    rig.wait(0.05)
    assert rig.letters() == [("watermark", ORDERS, 95)]
    rig.wait(0.2)
    assert rig.letters() == [("watermark", ORDERS, 95), ("watermark", ORDERS, 115)]
    assert rig.said() == [("wm", NO_TIME, (0, 1)), ("wm", 95, (0, 1)), ("wm", 115, (0, 1))]


def test_it_wakes_itself_when_there_is_time_to_tell():
    rig = Rig(source_plan()).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    assert rig.task.deadline() is None
    rig.chunk(ORDERS0, 6, 101)
    assert rig.task.deadline() == pytest.approx(101.2)


def idle_rig() -> Rig:
    plan = source_plan(settings=TaskSettings(watermark_interval_s=0.2, idle_timeout_s=10.0))
    rig = Rig(plan).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    return rig


def test_idleness_is_said_after_answered_fetches_over_the_whole_timeout():
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(6)
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(6)
    assert "idle" not in [word for word, _, _ in rig.said()]
    rig.feed(AtEnd(ORDERS0, 5))
    assert rig.said()[-1] == ("idle", 100, (0, 1))
    rig.wait(1)
    rig.chunk(ORDERS0, 6, 100)
    rig.wait(1)
    assert rig.said()[-1] == ("wm", 100, (0, 1))


def test_silence_is_not_idleness():
    """The broker is gone: no fetch is answered. However long that takes, the partition is not idle."""
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.feed(NotAnswered(ORDERS0))
    rig.wait(999)
    rig.feed(AtEnd(ORDERS0, 5))
    assert "idle" not in [word for word, _, _ in rig.said()]


def test_what_is_behind_an_open_transaction_is_not_idle():
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(11)
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(1)
    assert rig.said()[-1][0] == "idle"
    rig.feed(NotAtEnd(ORDERS0, blocked=True))
    rig.wait(1)
    assert rig.said()[-1][0] == "wm"
    assert rig.feed(NotAtEnd(ORDERS0)) == []
    assert rig.feed(AtEnd(ORDERS0, 4)) == []
    rig.feed(AtEnd(ORDERS0, 9))
    assert rig.task.position(ORDERS0) == 9
    rig.feed(ChunkTaken(ORDERS0, 12))
    assert rig.feed(AtEnd(ORDERS0, 12)) == []


def test_streams_of_other_kinds_have_no_idleness_of_their_own():
    rig = Rig(reader_plan()).start()
    assert rig.feed(AtEnd(BY0, 0)) == []
    assert rig.feed(NotAtEnd(BY0)) == []
    assert rig.chunk(BY0, 3, 100) != []


def test_a_downstream_task_tells_the_least_of_its_producers():
    rig = Rig(reader_plan()).start(run_view("a", "b"))
    rig.wait(1)
    rig.hear(BY0, wm("a", 10))
    rig.wait(1)
    assert rig.letters() == []
    rig.hear(BY0, wm("b", 7))
    rig.wait(1)
    assert rig.letters() == [("watermark", BY, 7)]


# ------------------------------------------------------------------------------------------------------- end of stream


def test_a_bounded_source_ends_and_says_so_once():
    rig = Rig(source_plan(until=5)).start()
    rig.chunk(ORDERS0, 5, 100)
    assert rig.letters() == [("end", ORDERS, None), ("end", None, None)]
    assert rig.said()[-1] == ("end", 1, (0, 1))
    assert rig.told() == ["running", "ended"]
    assert not rig.task.may_take(ORDERS0)
    assert rig.again().told() == ["ended"]


def test_an_end_that_is_where_it_starts_ends_at_once():
    rig = Rig(source_plan(start=5, until=5)).start()
    assert rig.told() == ["ended", "running"] or rig.told() == ["running", "ended"]
    assert rig.task.state == "ended"


def test_ended_is_reported_only_when_it_is_durable():
    rig = Rig(source_plan(until=5), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    rig.begin_commit()
    assert rig.told() == ["running"]
    assert rig.task.state == "ending"
    rig.end_commit()
    assert rig.told() == ["running", "ended"]


def test_a_task_that_owns_nothing_of_what_flows_into_an_output_ends_it_at_once():
    plan = TaskPlan(JOB, ME, (InputPlan(ORDERS, (0,), 1),), (OutputPlan(BY, 2, frozenset({"elsewhere"})),))
    rig = Rig(plan).start()
    assert rig.said() == [("end", 1, (0, 1))]


def test_a_restart_in_the_middle_of_an_aggregation_completes():
    """The original keeps what it has heard in memory, and its offsets on disk: after a restart it waits for ever."""
    rig = Rig(reader_plan()).start(run_view("a", "b"))
    rig.hear(BY0, eos("a"))
    again = rig.again()
    assert again.task.position(BY0) == 1
    again.hear(BY0, eos("b"))
    assert again.told() == ["running", "ended"]


def test_control_cuts_a_step_and_the_step_is_told_again_after_a_crash():
    """A flush of three steps dies after the second: the letter comes again, and the ended task is reported once."""
    rig = Rig(source_plan(until=5), auto_steps=False).start()
    rig.chunk(ORDERS0, 5, 100)
    letter = rig.of(RunStep)[-1].letter
    rig.feed(StepDone(letter, more=True))
    assert rig.of(RunStep)[-1].kind == "end"
    rig.feed(StepDone(letter, more=True))
    assert rig.said()[-1][0] == "wm"
    again = rig.again(auto_steps=True)
    assert again.letters() == [("end", ORDERS, None), ("end", None, None)]
    assert again.said()[-1] == ("end", 1, (0, 1))
    assert sorted(again.told()) == ["ended", "running"]


def test_the_next_step_waits_for_the_commit_of_the_last_one():
    rig = Rig(source_plan(until=5), auto_steps=False, auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    letter = rig.of(RunStep)[-1].letter
    rig.begin_commit()
    rig.feed(StepDone(letter, more=True))
    rig.did = []
    rig.end_commit()
    assert rig.of(RunStep) == []
    rig.begin_commit()
    assert not rig.task.may_take(ORDERS0)
    rig.end_commit()
    assert [one.letter for one in rig.of(RunStep)] == [letter]


def test_a_failing_step_is_run_again():
    rig = Rig(source_plan(until=5), auto_steps=False).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(WorkFailed("boom"))
    assert RunAgain(1) in rig.wait(1.1)
    rig.feed(StepDone(rig.task.letters.number))
    rig.feed(StepDone(rig.task.letters.number))
    assert rig.told()[-1] == "ended"


def test_work_that_is_due_runs_between_chunks_and_never_beside_one():
    rig = Rig(source_plan(), auto_steps=False).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(WorkDue("timer", "t1"))
    assert rig.of(RunStep) == []
    rig.feed(ChunkDone(ORDERS0, 5))
    assert [(one.kind, one.key) for one in rig.of(RunStep)] == [("timer", "t1")]
    assert not rig.task.may_take(ORDERS0)
    assert rig.feed(StepDone(99)) == []
    rig.feed(StepDone(1))
    assert rig.task.may_take(ORDERS0)


# ------------------------------------------------------------------------------------------------------------------ drain


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
    plan = TaskPlan(JOB, ME, (InputPlan(ORDERS, (0,), 1),), (OutputPlan("shared", 1, frozenset({ORDERS}), crosses=True),))
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


# ------------------------------------------------------------------------------------------------------ epochs and routes


def test_a_frame_of_a_newer_epoch_waits_for_the_job_state():
    rig = Rig(reader_plan()).start(run_view("a"))
    rig.hear(BY0, eos("b", epoch=2))
    assert rig.task.position(BY0) == 0
    assert rig.of(Gate, last=False)[-1].closed == {BY0: "epoch"}
    assert not rig.task.may_take(BY0)
    rig.feed(o.RunChanged(run_view("a", "b", epoch=2)))
    assert rig.task.position(BY0) == 1
    assert rig.task.may_take(BY0)
    rig.hear(BY0, eos("a", epoch=1))
    assert rig.told() == ["running", "ended"]


def test_control_is_said_again_when_the_epoch_changes_by_ended_tasks_too():
    rig = Rig(source_plan(until=5)).start()
    rig.chunk(ORDERS0, 5, 100)
    before = len(rig.said())
    rig.feed(o.RunChanged(run_view(ME, "b", epoch=2)))
    assert rig.said()[before:] == [("end", 2, (0, 1))]
    assert rig.told() == ["running", "ended"]


def test_what_was_said_in_this_epoch_is_not_said_again_by_the_next_owner():
    rig = Rig(source_plan()).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    assert rig.again().said() == []


AGG = aggregator(BY, 2)


def aggregated(partitions: tuple[int, ...]) -> TaskPlan:
    return reader_plan(partitions, settings=TaskSettings(watermark_interval_s=0.2, aggregate_above=1))


def test_above_the_limit_a_producer_speaks_to_one_partition_after_it_introduced_itself_to_all():
    rig = Rig(source_plan(until=5, settings=TaskSettings(aggregate_above=1, watermark_interval_s=0.2))).start()
    assert rig.said() == [("wm", NO_TIME, (1 - AGG,)), ("wm", NO_TIME, (AGG,))]
    rig.chunk(ORDERS0, 5, 100)
    assert rig.said()[-1] == ("end", 1, (AGG,))


def test_the_owner_of_the_aggregating_partition_tells_the_others_for_all():
    rig = Rig(aggregated((AGG,))).start(run_view("a", "b"))
    rig.wait(1)
    rig.hear(SP(BY, AGG), wm("a", 10))
    rig.hear(SP(BY, AGG), wm("b", 8))
    rig.wait(1)
    assert rig.said() == [("wm", 8, (1 - AGG,))]
    rig.hear(SP(BY, AGG), eos("a"))
    rig.hear(SP(BY, AGG), eos("b"))
    assert rig.said()[-1] == ("end", 1, (1 - AGG,))
    assert rig.told() == ["running", "ended"]


def test_the_aggregating_owner_does_not_wait_for_its_sibling_partitions():
    """The original deadlocks: a task that owns the aggregating partition and another waits for what only it can say."""
    rig = Rig(aggregated((0, 1))).start(run_view("a"))
    rig.hear(SP(BY, AGG), drain("a"))
    assert rig.said() == [("wm", MAX_TIME, (1 - AGG,)), ("drain", "d1", (1 - AGG,))]
    assert rig.told() == ["running"]
    rig.hear(SP(BY, 1 - AGG), drain(None))
    assert rig.told() == ["running", "drained"]


def test_a_relay_is_said_again_in_a_new_epoch_when_the_new_set_is_complete():
    rig = Rig(aggregated((AGG,))).start(run_view("a"))
    rig.wait(1)
    rig.hear(SP(BY, AGG), wm("a", 10))
    rig.wait(1)
    rig.feed(o.RunChanged(run_view("a", "b", epoch=2)))
    rig.wait(1)
    assert rig.said() == [("wm", 10, (1 - AGG,))]
    rig.hear(SP(BY, AGG), wm("b", 20, epoch=2, tasks=2))
    rig.wait(1)
    assert rig.said() == [("wm", 10, (1 - AGG,)), ("wm", 10, (1 - AGG,))]


# ------------------------------------------------------------------------------------------------------------ pause, lag


def test_pause_stops_intake_from_outside_only():
    rig = Rig(two_inputs()).start()
    rig.feed(o.RunChanged(run_view(paused_job=True)))
    assert rig.task.state == "paused"
    assert not rig.task.may_take(ORDERS0)
    assert rig.task.may_take(BY0)
    rig.feed(o.RunChanged(run_view(paused_streams=frozenset({BY}))))
    assert rig.task.state == "running"
    assert rig.task.may_take(ORDERS0)
    assert not rig.task.may_take(BY0)


def test_sources_wait_while_too_much_stands_between_the_stages():
    rig = Rig(two_inputs()).start()
    assert rig.feed(Lag(100)) == []
    rig.feed(Lag(101))
    assert rig.of(Gate)[-1].closed == {ORDERS0: "lag"}
    assert rig.task.may_take(BY0)
    rig.feed(Lag(50))
    assert rig.of(Gate)[-1].closed == {}


# ---------------------------------------------------------------------------------------------------- seeks, lost positions


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


def test_no_seek_in_a_drain_or_behind_an_end():
    rig = Rig(two_inputs(until=5)).start()
    rig.chunk(ORDERS0, 5)
    rig.feed(o.Seek("s1", ORDERS, 0, 1))
    assert "ended" in rig.seeks()[0].refused
    rig.feed(o.RunChanged(run_view(draining="d")))
    rig.feed(o.Seek("s2", ORDERS, 0, 1))
    assert "drains" in rig.seeks()[1].refused
    rig.hear(BY0, drain(ME))
    rig.feed(o.Seek("s3", ORDERS, 0, 1))
    assert "drained" in rig.seeks()[2].refused


def test_a_drain_overtakes_a_seek_that_has_not_been_applied():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(o.Seek("s1", ORDERS, 0, 1))
    rig.feed(o.RunChanged(run_view(draining="d")))
    rig.feed(ChunkDone(ORDERS0, 5))
    assert "drains" in rig.seeks()[0].refused
    rig = Rig(source_plan()).start()
    rig.handle(o.Seek("s1", ORDERS, 0, "oldest"))
    rig.handle(o.RunChanged(run_view(draining="d")))
    rig.handle(Resolved(1, {ORDERS0: 1}))
    assert "drains" in rig.seeks()[0].refused
    assert rig.handle(Resolved(1, {ORDERS0: 1})) == []


def test_lost_records_stop_the_task_and_say_how_many_they_are():
    rig = Rig(source_plan()).start()
    rig.feed(Lost(ORDERS0, 0, 30))
    assert rig.told() == ["running", "failed"]
    assert "30 records of orders:0 are gone" in rig.task.why
    assert "seek" in rig.task.why


def test_lost_records_while_a_chunk_is_under_work_drop_it_first():
    plan = TaskPlan(JOB, ME, (InputPlan(ORDERS, (0, 1), 2),))
    rig = Rig(plan).start()
    rig.feed(ChunkTaken(SP(ORDERS, 1), 5))
    assert [type(one) for one in rig.feed(Lost(ORDERS0, 0, 30))] == [Note, DropChunk]
    rig.feed(ChunkDropped(SP(ORDERS, 1)))
    assert rig.told() == ["running", "failed"]


def test_lost_records_may_be_passed_over():
    rig = Rig(source_plan(on_lost="oldest")).start()
    rig.feed(Lost(ORDERS0, 0, 30))
    assert rig.task.position(ORDERS0) == 30
    assert rig.feed(Lost(ORDERS0, 0, 30)) == []
    rig = Rig(source_plan(on_lost="newest"), offset=0).start()
    rig.offset = 90
    rig.feed(Lost(ORDERS0, 0, 30))
    assert rig.task.position(ORDERS0) == 90
    assert rig.task.may_take(ORDERS0)


# ------------------------------------------------------------------------------------------- leaving, and being thrown out


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


# ------------------------------------------------------------------------------------------------------------- properties


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
        assert all(a[0].positions[at] <= b[0].positions[at] for a, b in zip(rig.log, rig.log[1:], strict=False) for at in a[0].positions)
    recorded = rig.task.steps()
    if len(recorded) < 200:
        replay(lambda: Task(rig.task.plan), recorded)


def test_producers_helper_is_a_set():
    assert producers("a") == o.ProducerSet(BY, 1, frozenset({"a"}))
    assert BY1.partition == 1
