"""What a task says to its outputs, and for others: routes, epochs, repetitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core import orders as o
from headgate.core.names import StreamPartition as SP
from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.progress.markers import aggregator
from headgate.core.task.announcer import meeting
from headgate.core.task.plan import FOREIGN, INTERMEDIATE, InputPlan, OutputPlan, StepPlan, TaskPlan, TaskSettings
from headgate.core.task.protocol import AtEnd, CommitWanted, Gate, SendControl

from ..task_rig import (
    BY,
    BY0,
    JOB,
    ME,
    ORDERS,
    ORDERS0,
    Rig,
    drain,
    eos,
    reader_plan,
    run_view,
    source_plan,
    two_inputs,
    wm,
)


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
    assert rig.said()[before:] == [("wm", 100, (0, 1)), ("end", 2, (0, 1))]
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


def test_a_drain_is_said_with_its_time_and_said_again_in_a_new_epoch():
    rig = Rig(two_inputs()).start()
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.said()[-2:] == [("wm", MAX_TIME, (0, 1)), ("drain", "d", (0, 1))]
    before = len(rig.said())
    rig.feed(o.RunChanged(run_view(ME, "b", epoch=2, draining="d")))
    assert rig.said()[before:] == [("wm", MAX_TIME, (0, 1)), ("drain", "d", (0, 1))]


@pytest.mark.parametrize("crosses", [True, False])
def test_the_maximal_time_alone_does_not_cross_either(crosses):
    plan = TaskPlan(JOB, ME, reader_plan().inputs, (OutputPlan("out", 1, frozenset({BY}), crosses=crosses),))
    rig = Rig(plan).start(run_view("a"))
    rig.wait(1)
    rig.hear(BY0, wm("a", MAX_TIME))
    rig.wait(1)
    assert rig.said()[1:] == ([] if crosses else [("wm", MAX_TIME, (0,))])


def test_an_output_follows_only_what_flows_into_it():
    plan = TaskPlan(
        JOB,
        ME,
        (InputPlan(ORDERS, (0,), 1, until=5), InputPlan("clicks", (0,), 1)),
        (OutputPlan("x", 1, frozenset({ORDERS})), OutputPlan("y", 1, frozenset({ORDERS, "clicks"}))),
    )
    rig = Rig(plan).start()
    rig.chunk(ORDERS0, 5, 100)
    assert [one.stream for one in rig.of(SendControl, last=False) if type(one.frame).__name__ == "EndOfStream"] == ["x"]


def test_a_drain_goes_to_another_job_without_the_maximal_time():
    """The next run continues at the time that was said last, so no window of the other job may close."""
    plan = TaskPlan(
        JOB, ME, (InputPlan(ORDERS, (0,), 1),), (OutputPlan("shared", 1, frozenset({ORDERS}), crosses=True),)
    )
    rig = Rig(plan).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(o.RunChanged(run_view(draining="d1")))
    assert rig.told() == ["running", "drained"]
    assert rig.said() == [("wm", NO_TIME, (0,)), ("wm", 100, (0,)), ("drain", "d1", (0,))]


def shares(restate_s=60.0, **more):
    """A task whose output is a stream for other jobs."""
    outputs = (OutputPlan("shared", 2, frozenset({ORDERS}), crosses=True),)
    return TaskPlan(JOB, ME, (InputPlan(ORDERS, (0,), 1, **more),), outputs, TaskSettings(restate_s=restate_s))


def test_other_jobs_are_told_again_so_that_retention_deletes_no_only_word():
    rig = Rig(shares(60.0)).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1)
    before = len(rig.said())
    rig.wait(57)
    assert rig.said()[before:] == []
    rig.wait(3)
    assert rig.said()[before:] == [("wm", 100, (0, 1))]
    rig.wait(58)
    assert len(rig.said()) == before + 1


def test_a_task_that_has_ended_is_told_again_too():
    rig = Rig(shares(60.0, until=5)).start()
    rig.chunk(ORDERS0, 5, 100)
    assert rig.told()[-1] == "ended"
    rig.wait(61)
    assert [kind for kind, *_ in rig.said()[-4:]] == ["wm", "end", "wm", "end"]


def test_a_new_life_says_its_state_again_to_other_jobs():
    rig = Rig(shares()).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1)
    again = rig.again()
    again.wait(1)
    assert again.said() == [("wm", 100, (0, 1))]


def test_control_goes_to_every_partition_of_another_jobs_stream():
    """Nobody in the other job tells the other partitions on behalf of all, however many messages that saves."""
    plan = TaskPlan(
        JOB,
        ME,
        (InputPlan(ORDERS, (0,), 1),),
        (OutputPlan("shared", 3, frozenset({ORDERS}), crosses=True),),
        TaskSettings(watermark_interval_s=0.2, aggregate_above=0),
    )
    rig = Rig(plan).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    assert {partitions for _, _, partitions in rig.said()} == {(0, 1, 2)}


UP0 = SP("up", 0)


def follows(*more, **output):
    """A task that reads a stream of other jobs."""
    outputs = (OutputPlan("out", 1, frozenset({"up"}), **output),)
    return TaskPlan(JOB, ME, (InputPlan("up", (0,), 1, FOREIGN, jobs=("other/1",)), *more), outputs)


@pytest.mark.parametrize(
    ("plan", "idle"),
    [
        (follows(), (False, False)),
        (follows(InputPlan("clicks", (0,), 1)), (True, False)),
        (follows(crosses=True), (True, True)),
        (follows(InputPlan("clicks", (0,), 1), crosses=True), (True, False)),
    ],
    ids=["alone", "beside another input", "for a third job", "beside another input for a third job"],
)
def test_the_tasks_of_a_job_wait_for_each_other_while_the_only_job_that_they_read_is_away(plan, idle):
    """A task that is not there when the other job begins again must not have been left out: its rows would be late. Beside another
    input, nobody waits for a job that is away. A third job is told why, and leaves out all of these tasks or none."""
    rig = Rig(plan).start()
    rig.wait(1)
    rig.hear(UP0, replace(wm("a", 100), job="other/1"))
    rig.wait(1)
    rig.hear(UP0, replace(drain("a"), job="other/1"))
    rig.wait(1)
    sent = [one.frame for one in rig.of(SendControl, last=False) if one.stream == "out"]
    assert (sent[-1].ts, (sent[-1].idle, sent[-1].away)) == (100, idle)
    rig.hear(UP0, replace(wm("a", 100), job="other/1", run="r2"))
    rig.wait(1)
    sent = [one.frame for one in rig.of(SendControl, last=False) if one.stream == "out"]
    assert not sent[-1].away


def test_a_new_life_of_a_task_that_is_away_says_so_again():
    rig = Rig(follows(crosses=True)).start()
    rig.wait(1)
    rig.hear(UP0, replace(wm("a", 100), job="other/1"))
    rig.hear(UP0, replace(drain("a"), job="other/1"))
    rig.wait(1)
    again = rig.again()
    again.wait(1)
    [frame] = [one.frame for one in again.of(SendControl, last=False)]
    assert (frame.ts, frame.idle, frame.away) == (100, True, True)


def test_a_task_whose_only_job_is_idle_says_so():
    rig = Rig(follows()).start()
    rig.wait(1)
    rig.hear(UP0, replace(wm("a", 100, idle=True), job="other/1"))
    rig.wait(1)
    assert rig.of(SendControl, last=False)[-1].frame.idle


@pytest.mark.parametrize("crosses", [True, False])
def test_the_time_of_one_input_does_not_run_ahead_of_another_that_drains(crosses):
    """While a drain goes through a job, the input that has drained has more to come in the next run: no later time is said."""
    plan = TaskPlan(
        JOB,
        ME,
        (InputPlan(BY, (0,), 2, INTERMEDIATE), InputPlan(ORDERS, (0,), 1)),
        (OutputPlan("shared", 1, frozenset({BY, ORDERS}), crosses=crosses),),
        TaskSettings(watermark_interval_s=0.2),
    )
    rig = Rig(plan).start(run_view("a"))
    rig.wait(1)
    rig.hear(BY0, wm("a", 10))
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1)
    assert rig.said()[-1] == ("wm", 10, (0,))
    before = rig.said()
    rig.hear(BY0, wm("a", MAX_TIME))
    rig.wait(1)
    assert rig.said() == before


# ------------------------------------------------------------------------------------------------------- confirming idleness


def alone(**changes):
    """A task with a source that feeds a stream of which it reads nothing."""
    return source_plan(settings=TaskSettings(watermark_interval_s=0.2, idle_timeout_s=0.5, **changes))


def falls_silent(rig: Rig, seconds: int) -> None:
    """The broker answers two times a second, and has nothing."""
    for _ in range(seconds * 2):
        rig.feed(AtEnd(ORDERS0, rig.task.position(ORDERS0)))
        rig.wait(0.5)


def idle(rig: Rig) -> int:
    """How often it has said that it is idle."""
    return sum(kind == "idle" for kind, *_ in rig.said())


def begun(plan: TaskPlan, run: o.RunView) -> Rig:
    rig = Rig(plan).start(run)
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1)
    return rig


def test_an_idle_task_confirms_it_each_second_while_others_write_the_stream_too():
    """It cannot read whether they go on."""
    rig = begun(alone(), run_view(ME, "b"))
    falls_silent(rig, 2)
    assert 1 <= idle(rig) <= 3
    before = idle(rig)
    falls_silent(rig, 10)
    assert 5 <= idle(rig) - before <= 10
    assert {one for one in rig.said() if one[0] == "idle"} == {("idle", 100, (0, 1))}
    assert rig.task.deadline() > rig.now


def test_who_writes_a_stream_alone_confirms_nothing_until_another_one_joins():
    rig = begun(alone(), run_view())
    falls_silent(rig, 10)
    assert idle(rig) == 1
    assert rig.task.announcer.confirms_s is None
    rig.feed(o.RunChanged(run_view(ME, "b", epoch=2)))
    before = idle(rig)
    falls_silent(rig, 5)
    assert idle(rig) - before >= 2


def test_an_output_that_is_idle_later_is_confirmed_though_no_one_watched_the_first_one():
    """A task that reads only sources hears nothing that would make it look again."""
    inputs = (InputPlan(ORDERS, (0,), 1), InputPlan("clicks", (0,), 1))
    outputs = (OutputPlan("solo", 1, frozenset({"clicks"})), OutputPlan(BY, 2, frozenset({ORDERS})))
    rig = begun(TaskPlan(JOB, ME, inputs, outputs, alone().settings), run_view(ME, "b"))
    for _ in range(10):
        rig.feed(AtEnd(SP("clicks", 0), 0))
        rig.chunk(ORDERS0, rig.task.position(ORDERS0) + 1, 100)
        rig.wait(0.5)
    assert {one.stream for one in rig.of(SendControl, last=False) if one.frame.idle} == {"solo"}
    for _ in range(10):
        rig.feed(AtEnd(SP("clicks", 0), 0))
        falls_silent(rig, 1)
    assert [one.stream for one in rig.of(SendControl, last=False) if one.frame.idle].count(BY) >= 4


def test_a_confirmation_stands_on_a_fetch_that_was_asked_for_after_the_last_one_was_durable():
    rig = begun(alone(), run_view(ME, "b"))
    falls_silent(rig, 4)
    rig.auto_commit = False
    while not rig.wants_commit:
        falls_silent(rig, 1)
    rig.begin_commit()
    before = idle(rig)
    falls_silent(rig, 2)  # it is under way for that long
    assert idle(rig) == before
    assert rig.task.announcer.confirmations.committed_s(BY) is None
    rig.end_commit()
    durable = rig.now
    assert rig.task.announcer.confirmations.committed_s(BY) == durable
    rig.auto_commit = True
    rig.feed(AtEnd(ORDERS0, 5, age_s=1.0))
    rig.wait(1.0)
    rig.feed(AtEnd(ORDERS0, 5, age_s=0.9))  # asked for before that
    rig.wait(0.1)
    assert idle(rig) == before
    rig.feed(AtEnd(ORDERS0, 5))
    falls_silent(rig, 2)
    assert idle(rig) > before


def test_a_confirmation_is_sent_by_a_commit_that_has_nothing_else():
    """An earlier commit came too soon for it, and took what had asked for it. Lost there, it was waited for for ever."""
    rig = begun(alone(), run_view(ME, "b"))
    falls_silent(rig, 4)
    rig.auto_commit = False
    while not rig.wants_commit:
        falls_silent(rig, 1)
    rig.task.pace.announced(rig.clock())
    before = idle(rig)
    rig.commit()
    assert idle(rig) == before
    assert rig.task.ledger.clean
    rig.now += 1
    rig.commit()
    assert idle(rig) == before + 1
    assert rig.task.announcer.confirmations.committed_s(BY) == rig.now


def test_without_answers_nothing_is_confirmed_and_the_deadline_moves_on():
    """A deadline that stays in the past would make the task turn without a pause."""
    rig = begun(alone(), run_view(ME, "b"))
    rig.now += 0.5
    falls_silent(rig, 2)
    before = idle(rig)
    for _ in range(30):
        due = rig.task.deadline()
        if due is None:
            break
        rig.now = max(rig.now, due)
        rig.wait(0)
        assert rig.task.deadline() is None or rig.task.deadline() > rig.now
    assert idle(rig) - before <= 1
    assert rig.said()[-1] == ("wm", 100, (0, 1))


def reads_what_it_writes() -> Rig:
    plan = replace(two_inputs(), settings=TaskSettings(watermark_interval_s=0.2, idle_timeout_s=0.5))
    rig = begun(plan, run_view(ME, "b"))
    rig.hear(BY0, wm(ME, 100))
    return rig


def test_who_reads_the_stream_itself_confirms_while_the_others_are_further_and_rests_then():
    rig = reads_what_it_writes()
    rig.hear(BY0, wm("b", 90))
    falls_silent(rig, 3)
    rig.hear(BY0, wm(ME, 100, idle=True))
    falls_silent(rig, 5)
    assert idle(rig) == 1
    assert rig.task.announcer.confirms_s is None
    rig.hear(BY0, wm("b", 200))
    for _ in range(2):  # the first one that it reads notes where the other one is, the second one lifts it
        before = idle(rig)
        falls_silent(rig, 2)
        assert idle(rig) > before
        rig.hear(BY0, wm(ME, 100, idle=True))
    falls_silent(rig, 2)
    before = idle(rig)
    falls_silent(rig, 5)
    assert idle(rig) == before  # it was lifted to 200
    assert rig.task.inputs.progress.watermark(BY) == 200


def test_what_was_said_to_be_idle_and_is_lifted_is_said_to_be_idle_once_more():
    """The message that brought the newer time took the word back, since it was not certain. Nothing else ever said it again."""
    settings = TaskSettings(watermark_interval_s=0.2, idle_timeout_s=0.5)
    rig = Rig(source_plan(partitions=(0, 1), width=2, settings=settings)).start(run_view(ME, "b"))
    old, newer = SP(ORDERS, 0), SP(ORDERS, 1)
    rig.chunk(newer, 5, 200)
    for at in (old, old, newer, newer, old, newer, newer, old):
        rig.feed(AtEnd(at, rig.task.position(at)))
        rig.wait(0.3)
    assert rig.task.inputs.progress.idle(ORDERS)
    assert ("wm", 200, (0, 1)) in rig.said()
    assert rig.said()[-1] == ("idle", 200, (0, 1))


def test_after_a_restart_two_that_stand_at_the_same_time_do_not_wait_for_each_other():
    """Nobody is known to be idle then. Each took the other for the one that holds, and the time of the stream stood still for good."""
    rig = reads_what_it_writes()
    rig.hear(BY0, wm("b", 100, idle=True))
    falls_silent(rig, 3)
    rig.hear(BY0, wm(ME, 100, idle=True))
    falls_silent(rig, 3)
    assert rig.task.announcer.confirms_s is None
    rig = rig.again(run_view(ME, "b"))
    falls_silent(rig, 5)
    assert idle(rig) == 1
    rig.hear(BY0, wm(ME, 100, idle=True))
    falls_silent(rig, 5)
    assert idle(rig) == 1


def test_above_the_limit_whoever_hears_that_all_are_idle_rests_until_someone_goes_on():
    """The others hear only what the owner of the aggregating partition says. An idle job of 64 tasks wrote a frame of each every second."""
    settings = TaskSettings(watermark_interval_s=0.2, idle_timeout_s=0.5, aggregate_above=1)
    inputs = (two_inputs().inputs[0], InputPlan(BY, (1 - AGG,), 2, INTERMEDIATE))
    rig = begun(replace(two_inputs(), inputs=inputs, settings=settings), run_view(ME, "b"))
    at = SP(BY, 1 - AGG)
    falls_silent(rig, 3)
    for said, rests in ((wm(None, 90), False), (wm(None, 90, idle=True), True), (wm(None, 95), False)):
        rig.hear(at, said)
        falls_silent(rig, 2)
        before = idle(rig)
        falls_silent(rig, 5)
        assert (idle(rig) == before) is rests


def test_above_the_limit_only_the_owner_of_the_aggregating_partition_sees_whether_others_go_on():
    settings = TaskSettings(watermark_interval_s=0.2, idle_timeout_s=0.5, aggregate_above=1)
    for own, sees in ((AGG, True), (1 - AGG, False)):
        inputs = (two_inputs().inputs[0], InputPlan(BY, (own,), 2, INTERMEDIATE))
        rig = begun(replace(two_inputs(), inputs=inputs, settings=settings), run_view(ME, "b"))
        at = SP(BY, own)
        rig.hear(at, wm(ME, 100))
        rig.hear(at, wm("b", 90))
        falls_silent(rig, 3)
        rig.hear(at, wm(ME, 100, idle=True))
        before = idle(rig)
        falls_silent(rig, 5)
        assert (idle(rig) == before) is sees


def test_a_task_that_is_away_confirms_nothing():
    """It is not lifted by it, and would write to the other job each second for as long as its own one is gone."""
    rig = Rig(follows(crosses=True)).start()
    rig.wait(1)
    rig.hear(UP0, replace(wm("a", 100), job="other/1"))
    rig.hear(UP0, replace(drain("a"), job="other/1"))
    rig.wait(1)
    assert idle(rig) == 1
    for _ in range(20):
        rig.feed(AtEnd(UP0, rig.task.position(UP0)))
        rig.wait(1)
    assert idle(rig) == 1
    assert rig.task.announcer.confirms_s is None


def test_a_job_that_is_away_keeps_no_one_from_confirming_that_another_input_is_idle():
    """It has drained, and says nothing until its next run: the task was not lifted any more, and held all others back."""
    inputs = (InputPlan(ORDERS, (0,), 1), InputPlan("up", (0,), 1, FOREIGN, jobs=("other/1",)))
    settings = TaskSettings(watermark_interval_s=0.2, idle_timeout_s=0.5)
    plan = TaskPlan(JOB, ME, inputs, (OutputPlan(BY, 2, frozenset({ORDERS, "up"})),), settings)
    rig = Rig(plan).start(run_view(ME, "b"))
    rig.wait(1)
    rig.hear(UP0, replace(wm("a", 100), job="other/1"))
    rig.hear(UP0, replace(drain("a"), job="other/1"))
    rig.chunk(ORDERS0, 5, 100)
    falls_silent(rig, 3)
    before = idle(rig)
    falls_silent(rig, 6)
    assert idle(rig) - before >= 3


def test_what_is_told_again_to_other_jobs_does_not_say_idle_without_a_fresh_answer():
    """The producer of the stream behind it is dead, and was idle: with two such words its reader lifts this task past what comes yet."""
    inputs = (InputPlan(BY, (0,), 2, INTERMEDIATE),)
    outputs = (OutputPlan("shared", 1, frozenset({BY}), crosses=True),)
    rig = Rig(TaskPlan(JOB, ME, inputs, outputs, TaskSettings(watermark_interval_s=0.2, restate_s=10.0)))
    rig.start(run_view("a"))
    rig.wait(1)
    rig.hear(BY0, wm("a", 100, idle=True))
    rig.wait(1)
    assert rig.said()[-1] == ("idle", 100, (0,))
    for _ in range(30):
        rig.wait(1)
    kinds = [kind for kind, *_ in rig.said()]
    assert "idle idle" not in " ".join(kinds)
    assert kinds.count("wm") >= 2


def met(**more) -> TaskPlan:
    """A task that speaks for the producers of a stream whose time meets that of its source at a step."""
    settings = TaskSettings(watermark_interval_s=0.2, idle_timeout_s=0.5, aggregate_above=1)
    inputs = (InputPlan(ORDERS, (0,), 1), InputPlan(BY, (AGG,), 2, INTERMEDIATE))
    steps = (StepPlan("join", frozenset({ORDERS, BY})),)
    return TaskPlan(JOB, ME, inputs, (), settings, steps, **more)


def relays_idle() -> tuple[Rig, SP]:
    rig, at = Rig(met()).start(run_view("a", "b")), SP(BY, AGG)
    rig.wait(1)
    for one in ("a", "b"):
        rig.hear(at, wm(one, 10))
    rig.wait(1)
    for one in ("a", "b"):
        rig.hear(at, wm(one, 10, idle=True))
    rig.wait(1)
    assert rig.said()[-1] == ("idle", 10, (1 - AGG,))
    return rig, at


def confirm_all(rig: Rig, at: SP) -> None:
    for _ in range(2):
        rig.feed(AtEnd(at, rig.task.position(at)))
        rig.wait(0.5)
    for _ in range(2):
        for one in ("a", "b"):
            rig.hear(at, wm(one, 10, idle=True))
        rig.wait(1)


def test_who_speaks_for_all_confirms_for_all_when_all_have_confirmed_since():
    rig, at = relays_idle()
    rig.wait(5)
    assert idle(rig) == 1
    confirm_all(rig, at)
    rig.wait(1)
    assert idle(rig) == 2
    rig.wait(5)
    assert idle(rig) == 2
    confirm_all(rig, at)
    confirm_all(rig, at)
    rig.wait(1)
    assert idle(rig) >= 3


def test_who_speaks_for_all_says_newer_time_without_idleness_first():
    """That all are idle at a newer time is nothing that they have confirmed since the last one."""
    rig, at = relays_idle()
    for one in ("a", "b"):
        rig.hear(at, wm(one, 20, idle=True))
    rig.wait(1)
    kinds = [one for one in rig.said() if one[1] == 20]
    assert kinds[0] == ("wm", 20, (1 - AGG,))


def test_it_is_not_said_that_all_are_idle_while_the_next_confirmation_of_one_lifts_it():
    """Whoever hears it confirms no more: the time would stand where the idle one stood, and not where the other one had come."""
    rig, at = Rig(aggregated((AGG,))).start(run_view("a", "b")), SP(BY, AGG)
    rig.wait(1)
    for said in (wm("a", 10), wm("b", 200), wm("a", 10, idle=True), wm("b", 200, idle=True)):
        rig.hear(at, said)
    rig.wait(1)
    assert rig.said()[-1] == ("wm", 10, (1 - AGG,))
    rig.hear(at, wm("a", 10, idle=True))
    rig.wait(1)
    assert rig.said()[-1] == ("idle", 200, (1 - AGG,))


def test_who_does_not_speak_for_all_any_more_confirms_nothing_for_them():
    """With one producer each writes to every partition itself; what was to be confirmed before is forgotten."""
    rig, at = relays_idle()
    rig.task.announcer._confirming.add("relay of " + BY)
    rig.task.inputs.plan = rig.task.announcer.plan = replace(
        rig.task.plan, settings=replace(rig.task.plan.settings, aggregate_above=1024)
    )
    rig.feed(CommitWanted())
    assert rig.task.announcer._confirming == set()
    confirm_all(rig, at)
    rig.wait(5)
    assert idle(rig) == 1
    assert rig.task.announcer._confirming == set()


def test_the_streams_that_meet_others():
    """Directly, through further streams, or in another job, of which nothing is known."""
    chain = (OutputPlan("b", 1, frozenset({"a"})), OutputPlan("c", 1, frozenset({"b"})))
    plan = TaskPlan(JOB, ME, (), chain)
    assert meeting(plan) == frozenset()
    assert meeting(replace(plan, steps=(StepPlan("join", frozenset({"c", "x"})),))) == {"a", "b", "c", "x"}
    assert meeting(replace(plan, outputs=(*chain, OutputPlan("d", 1, frozenset({"b", "x"}))))) == {"a", "b", "x"}
    assert meeting(replace(plan, outputs=(*chain, OutputPlan("d", 1, frozenset({"c"}), crosses=True)))) == {
        "a",
        "b",
        "c",
    }
    assert meeting(replace(plan, steps=(StepPlan("window", frozenset({"c"})),))) == frozenset()
