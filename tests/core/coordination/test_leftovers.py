"""Which tasks have left a store behind on a worker's disk, and when it may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.coordination import messages as c
from headgate.core.coordination.leftovers import LOOK_S, left_behind, look_s, over
from headgate.core.coordination.state import NEVER_RAN, JobState
from headgate.core.graph.model import JobModel, Preparation
from headgate.core.names import StreamPartition
from headgate.core.orders import TaskState

from ..house import House

THERE = "000001-b"


def job(
    *more: c.Message,
    wanted: str = "w2",
    holder: str = "w2",
    said: str | None = TaskState.RUNNING,
    preparing: str = "",
    standby: str = "",
) -> JobState:
    """One task `t` that a worker holds, as a coordinator stream says it."""
    model = JobModel(
        term=1, version=1, run_id="r", deployment="d", tasks={"t": (StreamPartition("orders", 0),)},
        wanted={"t": wanted}, processors=("w1", "w2"), producers={}, shared={},
        preparing={"t": Preparation(preparing, 2)} if preparing else {}, standby={"t": standby} if standby else {},
    )  # fmt: skip
    told = [c.SetTaskState("t", 2, said)] if said is not None else []
    messages = [c.SetJobModel(model), c.SetChangelog("t", 5), c.SetGrant("t", 2, holder, THERE), *told, *more]
    entries = [c.Entry(n, c.key_of(one), one, 1_000 + n) for n, one in enumerate(messages)]
    return JobState().fold(entries)


def test_a_task_that_runs_elsewhere_has_left_its_store_here() -> None:
    """With its partition of the task log, by which the store is told from that of another task."""
    assert left_behind(job(), "w1") == {"t": 5}
    assert left_behind(job(standby="w3"), "w1") == {"t": 5}


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(JobState(), id="no model yet"),
        pytest.param(job(holder="w1", wanted="w1"), id="it runs here"),
        pytest.param(job(wanted="w1"), id="it is to run here"),
        pytest.param(job(wanted="w3"), id="it is to move on"),
        pytest.param(job(preparing="w1"), id="it is prepared here"),
        pytest.param(job(preparing="w3"), id="it is about to move on"),
        pytest.param(job(standby="w1"), id="this is its standby"),
        pytest.param(job(said=None), id="it has not restored there yet"),
        pytest.param(job(said=TaskState.FAILED), id="it has failed there"),
        pytest.param(job(said=TaskState.RELEASING), id="it is being released"),
        pytest.param(job(said=TaskState.DRAINED), id="its run is over"),
        pytest.param(job(c.SetTaskState("t", 2, TaskState.RELEASED, NEVER_RAN)), id="it was released"),
        pytest.param(job(c.SetFence("w2", THERE)), id="its holder is fenced"),
    ],
)
def test_all_others_have_not(state: JobState) -> None:
    """What may be wanted here soon, or is nowhere else for certain."""
    assert left_behind(state, "w1") == {}


def test_a_task_without_a_task_log_has_no_store() -> None:
    """A damaged stream: whose store it is could not be told."""
    model = job().model
    assert model is not None
    bare = [c.SetJobModel(model), c.SetGrant("t", 2, "w2", THERE), c.SetTaskState("t", 2, TaskState.RUNNING)]
    state = JobState().fold([c.Entry(n, c.key_of(one), one, 1_000) for n, one in enumerate(bare)])
    assert left_behind(state, "w1") == {}


def test_in_a_house_of_workers_each_has_left_what_the_other_runs() -> None:
    """Also after a move, and never while a task is nowhere."""
    house = House()
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    assert set(left_behind(house.state, "p1")) == set(two.tasks)
    assert set(left_behind(house.state, "p2")) == set(one.tasks)
    house.request("u1", "move", task=sorted(two.tasks)[0], to="p1")
    house.run(3)
    assert set(left_behind(house.state, "p1")) == set(two.tasks)
    house.leave(two)
    house.run(1)
    assert left_behind(house.state, "p1") == {}


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_store_is_kept_for_the_delay_and_a_delay_of_nothing_keeps_it(unused_s: float, delay_s: float) -> None:
    """A clock that went back makes it younger, so that it is kept for longer."""
    assert over(unused_s, delay_s) == (delay_s > 0 and unused_s >= delay_s)
    assert not over(-1.0, delay_s)
    looks = look_s(delay_s)
    assert (looks is None) == (delay_s == 0)
    assert looks is None or 1 <= looks <= LOOK_S
