"""What a task says to its outputs, and for others: routes, epochs, repetitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core import orders as o
from headgate.core.names import StreamPartition as SP
from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.progress.markers import aggregator
from headgate.core.task.plan import FOREIGN, INTERMEDIATE, InputPlan, OutputPlan, TaskPlan, TaskSettings
from headgate.core.task.protocol import Gate, SendControl

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
