"""Grants: one owner at a time, released before granted, fenced when not released."""

from __future__ import annotations

import pytest

from headgate.core import orders as o
from headgate.core.coordination import messages as c
from headgate.core.coordination.member.protocol import WriteMessages
from headgate.core.coordination.state import NEVER_RAN

from ...house import House


def test_grants_rise_by_one_and_never_overlap():
    """At every message of the stream at most one holder; `check_owners` watches the tasks themselves."""
    house = House()
    workers = [house.worker(f"p{n}") for n in range(1, 4)]
    house.run(4)
    house.leave(workers[1])
    house.run(15)
    house.worker("p4")
    house.run(5)
    state = None
    for n in range(len(house.log)):
        before, entry = state, house.log[n]
        state = (before.copy() if before is not None else House().state).fold([entry])
        if isinstance(entry.message, c.SetGrant):
            grant = entry.message
            assert before.held(grant.task) is None
            assert grant.grant == before.next_grant(grant.task)
    assert len(house.owners()) == 4


def test_a_task_that_does_not_release_gets_its_worker_fenced():
    house = House(release_s=5.0)
    one = house.worker("p1")
    one.stuck = {f"Partition {n}" for n in range(4)}
    two = house.worker("p2")
    house.run(3)
    assert two.tasks == {}
    first = one.member.incarnation
    house.run(8)
    assert ("p1", first) in house.fenced
    assert one.member.incarnation != first
    assert len(two.tasks) == 2
    assert len(one.tasks) == 2


def test_a_superseded_move_grants_once():
    """Wanted at p2, and back at p1 before p1 has released: whoever is wanted at the release gets the next grant."""
    house = House()
    one = house.worker("p1")
    one.stuck = {"Partition 0"}
    two = house.worker("p2")
    house.run(3)
    house.request("u1", "move", task="Partition 0", to="p2")
    house.request("u2", "move", task="Partition 0", to="p1")
    task = one.tasks.pop("Partition 0", None)
    if task is not None and any(isinstance(order, o.Release) for order in task.told):
        one.feed(one.member, o.TaskReported("Partition 0", task.grant, o.TaskState.RELEASED))
        house.settle()
        house.run(2)
    elif task is not None:
        one.tasks["Partition 0"] = task
    assert house.owners()["Partition 0"] == "p1"
    assert "Partition 0" not in two.tasks
    assert house.answer("u2")[0] == "done"


def test_a_worker_that_does_not_release_is_fenced_also_when_its_task_is_wanted_there_again():
    """Nobody runs a task that hangs in its release. It was wanted elsewhere and then, as that worker left, back where it hung: for ever."""
    house = House(release_s=5.0, grace_s=0.0)
    one = house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    one.stuck = {task := min(one.tasks)}
    house.request("u1", "move", task=task, to="p2")
    house.run(1)
    house.leave(two)
    house.run(1)
    assert two.exit is not None
    assert house.state.model.wanted[task] == "p1"
    first = one.member.incarnation
    house.run(8)
    assert ("p1", first) in house.fenced
    assert len(one.tasks) == 4


def test_a_grant_that_was_never_used_is_released_all_the_same():
    """It was granted while the worker was already going."""
    house = House()
    one = house.worker("p1")
    two = house.worker("p2")
    two.hold.add(WriteMessages)
    house.leave(two)
    house.run(3)
    two.hold.clear()
    for held in two.held:
        house.carry_out(two, two.member, held)
    house.settle()
    house.run(15)
    assert two.exit is not None
    assert len(one.tasks) == 4


def test_never_used_says_so():
    house = House()
    one = house.worker("p1")
    house.request("u1", "stop")
    assert one.exit is not None
    two = house.worker("p1")
    house.run(2)
    grant = c.SetGrant("Partition 0", 2, "p1", two.member.incarnation)
    house.append(grant)
    house.settle()
    assert house.state.task_state("Partition 0") == c.SetTaskState("Partition 0", 2, o.TaskState.RELEASED, NEVER_RAN)


def test_a_task_that_the_model_does_not_know_any_more_is_let_go():
    house = House(release_s=3.0)
    one = house.worker("p1")
    house.append(c.SetGrant("Old", 1, "p9", "000001-a"))
    house.append(c.SetProcessor("p9", "000001-a", "gone", "x", "joined"))
    house.initialised.add(("p9", "000001-a"))
    house.run(12)
    assert ("p9", "000001-a") in house.fenced
    assert len(one.tasks) == 4


def test_task_log_partitions_are_given_once_for_ever():
    house = House()
    house.worker("p1")
    assert house.state.changelogs == {f"Partition {n}": n for n in range(4)}
    writes = [e for e in house.log if isinstance(e.message, c.SetChangelog)]
    house.worker("p2")
    house.run(5)
    assert [e for e in house.log if isinstance(e.message, c.SetChangelog)] == writes


def test_without_a_model_nothing_is_granted_nor_given():
    house = House()
    house.partitions = {}
    one = house.worker("p1")
    assert house.state.changelogs == {}
    assert one.tasks == {}


def test_a_grant_says_whether_the_holder_before_has_died():
    """Its successor is careful with what lies behind the last commit. After a release there is nothing to be careful about."""
    house = House()
    one = house.worker("p1")
    house.run(2)
    assert {grant.died for grant in house.state.grants()} == {False}
    house.kill(one)
    house.worker("p2")
    house.run(30)
    assert {(grant.processor, grant.died) for grant in house.state.grants()} == {("p2", True)}
    house.worker("p3")
    house.run(10)
    assert {(grant.processor, grant.died) for grant in house.state.grants()} == {("p2", True), ("p3", False)}


@pytest.mark.parametrize("unproven", [True, False])
def test_a_task_that_is_moved_soon_after_a_death_is_still_one_whose_holder_has_died(unproven: bool):
    """The move ended the care: the record that had killed the first worker killed the third one before anyone had heard of it."""
    house = House()
    one = house.worker("p1")
    house.run(2)
    house.kill(one)
    two = house.worker("p2")
    two.unproven = unproven
    house.run(30)
    three = house.worker("p3")
    house.run(10)
    moved = {grant.task: grant.died for grant in house.state.grants() if grant.processor == "p3"}
    assert len(moved) == len(three.tasks) == 2
    assert set(moved.values()) == {unproven}


def test_a_grant_after_a_death_that_was_never_used_passes_the_death_on():
    house = House()
    one = house.worker("p1")
    house.request("u1", "stop")
    assert one.exit is not None
    two = house.worker("p1")
    house.run(2)
    house.append(c.SetGrant("Partition 0", 2, "p1", two.member.incarnation, died=True))
    house.settle()
    assert house.state.task_state("Partition 0") == c.SetTaskState(
        "Partition 0", 2, o.TaskState.RELEASED, NEVER_RAN, unproven=True
    )
