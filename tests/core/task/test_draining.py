"""How far a draining task still reads: the streams of jobs that were drained before, and nothing else from outside."""

from __future__ import annotations

from headgate.core import orders as o
from headgate.core.names import StreamPartition as SP
from headgate.core.task.plan import FOREIGN, InputPlan, TaskPlan
from headgate.core.task.protocol import (
    StopFetching,
)

from ..task_rig import (
    JOB,
    ME,
    ORDERS,
    ORDERS0,
    Rig,
    run_view,
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
    assert [one.partitions for one in rig.of(StopFetching, last=False)] == [(ORDERS0,)]
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
