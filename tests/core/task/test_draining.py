"""How far a draining task still reads: the streams of jobs that were drained before, and nothing else from outside."""

from __future__ import annotations

from headgate.core import orders as o
from headgate.core.names import StreamPartition as SP
from headgate.core.task.plan import FOREIGN, InputPlan, TaskPlan
from headgate.core.task.protocol import (
    ChunkDone,
    ChunkTaken,
    StopFetching,
)

from ..task_rig import (
    BY,
    BY0,
    JOB,
    ME,
    ORDERS,
    ORDERS0,
    Rig,
    drain,
    run_view,
    source_plan,
    two_inputs,
)


def cascade_plan(*more: InputPlan) -> TaskPlan:
    return TaskPlan(JOB, ME, (InputPlan("shared", (0,), 1, FOREIGN, jobs=("other/1",)), *more))


SHARED0 = SP("shared", 0)


def test_a_cascade_still_reads_what_the_drained_job_wrote():
    """The job before this one is drained and closed; what it wrote up to there is read, then this one is drained, too."""
    rig = Rig(cascade_plan()).start()
    rig.chunk(SHARED0, 3)
    rig.feed(o.RunChanged(run_view(draining="d1", drain_upto={"shared": (7,)})))
    assert rig.of(StopFetching) == []
    assert rig.task.may_take(SHARED0)
    rig.chunk(SHARED0, 7)
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {SHARED0: 7}


def test_a_cascade_stops_the_other_inputs_at_once():
    rig = Rig(cascade_plan(InputPlan(ORDERS, (0,), 1))).start()
    rig.feed(o.RunChanged(run_view(draining="d1", drain_upto={"shared": (7,)})))
    assert rig.of(StopFetching, last=False) == [StopFetching((ORDERS0,))]
    assert (rig.task.may_take(ORDERS0), rig.task.may_take(SHARED0)) == (False, True)
    rig.chunk(SHARED0, 7)
    assert rig.told() == ["running", "drained"]


def test_a_worker_that_restarts_in_a_cascade_reads_on_to_the_ends():
    """A kill -9 in the middle of the cascade: the next holder reads what is left, and not more."""
    rig = Rig(cascade_plan()).start()
    rig.chunk(SHARED0, 3)
    run = run_view(draining="d1", drain_upto={"shared": (7, 9)})
    rig.feed(o.RunChanged(run))
    again = Rig(cascade_plan(), log=rig.log).start(run)
    assert again.task.position(SHARED0) == 3
    assert again.told() == ["running"]
    again.chunk(SHARED0, 7)
    assert again.told() == ["running", "drained"]


def test_a_cascade_whose_ends_are_behind_is_a_drain():
    rig = Rig(cascade_plan(), offset=9).start()
    rig.feed(o.RunChanged(run_view(draining="d1", drain_upto={"shared": (7,)})))
    assert rig.told() == ["running", "drained"]


def test_a_paused_job_drains_where_it_stands():
    """Fetches go on while a job is paused: what they brought is the next run's, however much it is."""
    rig = Rig(source_plan()).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(o.RunChanged(run_view(paused_job=True)))
    rig.buffered = {ORDERS0: 50}
    rig.feed(o.RunChanged(run_view(draining="d1", paused_job=True)))
    assert rig.of(StopFetching, last=False) == [StopFetching(drop=(ORDERS0,))]
    assert not rig.task.may_take(ORDERS0)
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {ORDERS0: 5}


def test_a_chunk_under_way_is_finished_in_the_drain_of_a_paused_job():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(o.RunChanged(run_view(paused_job=True)))
    rig.buffered = {ORDERS0: 50}
    rig.feed(o.RunChanged(run_view(draining="d1", paused_job=True)))
    assert rig.told() == ["running"]
    rig.feed(ChunkDone(ORDERS0, 5, 100))
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {ORDERS0: 5}


def test_one_paused_input_drains_where_it_stands_and_the_other_with_its_buffer():
    rates = InputPlan("rates", (0,), 1)
    rig = Rig(TaskPlan(JOB, ME, (InputPlan(ORDERS, (0,), 1), rates))).start()
    rig.chunk(ORDERS0, 5, 100)
    run = run_view(draining="d1", paused_streams=frozenset({ORDERS}))
    rig.buffered = {ORDERS0: 50, SP("rates", 0): 7}
    rig.feed(o.RunChanged(run))  # the pause and the drain are heard in one
    assert rig.of(StopFetching, last=False) == [StopFetching((SP("rates", 0),), (ORDERS0,))]
    assert (rig.task.may_take(ORDERS0), rig.task.may_take(SP("rates", 0))) == (False, True)
    rig.chunk(SP("rates", 0), 7)
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {ORDERS0: 5, SP("rates", 0): 7}


def test_what_is_paused_between_the_stages_flows_in_a_drain():
    """Behind a drain these streams hold nothing unread, so that the next version may change their format."""
    rig = Rig(two_inputs()).start()
    rig.feed(o.RunChanged(run_view(paused_streams=frozenset({BY}))))
    assert not rig.task.may_take(BY0)
    rig.feed(o.RunChanged(run_view(draining="d1", paused_streams=frozenset({BY}))))
    assert rig.task.may_take(BY0)
    rig.hear(BY0, drain(ME, "d1"))
    assert rig.told() == ["running", "drained"]


def test_another_holder_of_a_paused_task_drains_where_the_first_one_stood():
    """The worker restarts between the pause and the drain, or another one takes its tasks: the position is in the checkpoint."""
    rig = Rig(source_plan()).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(o.RunChanged(run_view(paused_job=True)))
    between = rig.again(run_view(paused_job=True))
    between.buffered = {ORDERS0: 50}
    between.feed(o.RunChanged(run_view(draining="d1", paused_job=True)))
    assert (between.told(), between.log[-1][0].positions) == (["running", "drained"], {ORDERS0: 5})


def test_a_cascade_reads_what_is_shared_up_to_its_ends_even_if_that_is_paused():
    rig = Rig(cascade_plan()).start()
    rig.chunk(SHARED0, 3)
    rig.feed(o.RunChanged(run_view(draining="d1", drain_upto={"shared": (7,)}, paused_job=True)))
    assert rig.task.may_take(SHARED0)
    rig.chunk(SHARED0, 7)
    assert rig.told() == ["running", "drained"]
