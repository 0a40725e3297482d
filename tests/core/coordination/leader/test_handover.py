"""Planned moves: the next owner prepares first. Who ends a preparation, whoever dies, leaves or changes its mind."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.coordination.leader.plan import Plan
from headgate.core.coordination.member.protocol import Followed, SendOrder
from headgate.core.coordination.messages import SetJobModel, SetProcessor
from headgate.core.coordination.metadata import ASSIGNMENTS, stored
from headgate.core.coordination.wire import encode, read
from headgate.core.graph.model import PUT_OFF, JobModel, Preparation
from headgate.core.orders import TaskReported, TaskState

from ...house import House, Worker, graph, plan


def joined(*, near: bool = False, partitions: int = 4, **timing: Any) -> tuple[House, Worker, Worker]:
    """One worker runs four tasks; another one has joined, to which two of them will move."""
    house = House(partitions, **timing)
    house.near = near
    one = house.worker("p1", follows=True)
    two = house.worker("p2", follows=True)
    house.run(3)
    return house, one, two


def near(house: House, one: Worker) -> None:
    """It comes near the end of every log that it follows."""
    for task, grant in one.follows.items():
        one.feed(one.member, Followed(task, grant))
    house.settle()


def preparing(house: House) -> dict[str, str]:
    model = house.state.model
    assert model is not None
    return {task: ahead.processor for task, ahead in model.preparing.items()}


def test_a_task_with_state_stays_with_its_owner_until_the_next_one_is_near_the_end_of_its_log():
    house, one, two = joined()
    assert len(one.tasks) == 4
    assert preparing(house) == dict.fromkeys(two.follows, "p2")
    assert len(two.follows) == 2
    assert not any("Release" in type(order).__name__ for task in one.tasks.values() for order in task.told)
    first, second = sorted(two.follows)
    assert (one.written_out, two.written_out) == ((first, second), ())
    two.feed(two.member, Followed(first, two.follows[first]))
    house.settle()
    assert set(two.tasks) == {first}
    assert preparing(house) == {second: "p2"}
    near(house, two)
    assert set(two.tasks) == {first, second}
    assert preparing(house) == {}


def test_the_placement_is_made_for_where_the_tasks_will_be():
    """A third worker comes while two tasks are prepared for the second: nothing that is prepared there goes elsewhere."""
    house, _, two = joined()
    before = set(two.follows)
    house.worker("p3", follows=True)
    house.run(3)
    model = house.state.model
    assert sorted(map(len, model.placement().values())) == [1, 1, 2]
    assert len(before & set(two.follows)) >= 1
    assert len(house.owners()) == 4
    near(house, two)
    near(house, house.workers[2])
    assert sorted(len(one.tasks) for one in house.workers) == [1, 1, 2]


def test_after_placement_prepare_a_task_moves_as_it_is():
    house, _, two = joined(prepare_s=20.0)
    house.run(15)
    assert two.tasks == {}
    house.run(10)
    assert len(two.tasks) == 2


@pytest.mark.parametrize(
    ("first", "second", "code", "timing"),
    [
        ({"follows": True}, {"follows": False}, {}, {}),
        ({"follows": True, "location": "rack"}, {"follows": True, "location": "rack"}, {}, {}),
        ({"follows": True}, {"follows": True}, {"graph": graph(stateful=False)}, {}),
        ({"follows": True}, {"follows": True}, {}, {"prepare_s": 0.0}),
    ],
    ids=["an older version", "the same disk", "no state", "not wanted"],
)
def test_what_preparing_would_not_help_moves_at_once(first: dict, second: dict, code: dict, timing: dict):
    house = House(**timing)
    house.near = False
    house.worker("p1", plan(**code), **first)
    two = house.worker("p2", plan(**code), **second)
    house.run(3)
    assert (len(two.tasks), two.follows) == (2, {})


def test_an_older_owner_hands_over_all_the_same():
    """Only the next owner follows a log."""
    house = House()
    house.worker("p1")
    two = house.worker("p2", follows=True)
    house.run(3)
    assert len(two.tasks) == 2


# --------------------------------------------------------------------------------------------------------- whoever goes away


def test_a_preparation_ends_with_its_preparer():
    house, one, two = joined()
    house.kill(two)
    house.run(20)
    assert (preparing(house), len(one.tasks)) == ({}, 4)
    assert house.state.model.processors == ("p1",)


def test_a_preparer_that_is_awaited_goes_on_where_it_was():
    """It leaves and comes back within the grace; meanwhile the owner works on."""
    house, one, two = joined()
    tasks = set(two.follows)
    house.leave(two)
    house.run(4)
    assert (set(preparing(house)), len(one.tasks)) == (tasks, 4)
    again = house.worker("p2", follows=True)
    house.run(3)
    assert set(again.follows) == tasks
    near(house, again)
    assert set(again.tasks) == tasks


def test_a_preparer_that_does_not_come_back_gets_nothing():
    house, one, two = joined()
    house.leave(two)
    house.run(20)
    assert (preparing(house), len(one.tasks)) == ({}, 4)


def test_the_preparer_of_a_dead_owner_gets_the_task_at_once_however_far_it_is():
    house, one, two = joined()
    tasks = set(two.follows)
    house.kill(one)
    house.run(12)
    assert tasks <= set(two.tasks)
    assert preparing(house) == {}


def test_an_owner_that_leaves_does_not_wait_for_its_preparer():
    house, one, two = joined()
    tasks = set(two.follows)
    house.leave(one)
    assert one.exit is not None
    house.run(2)
    assert tasks <= set(two.tasks)
    house.run(12)
    assert len(two.tasks) == 4


def test_a_task_that_fails_with_its_owner_is_not_waited_for():
    _, one, two = joined()
    (first, *_) = sorted(two.follows)
    one.report(first, "failed", "its code")
    assert first in two.tasks


def test_the_next_leader_goes_on_with_what_is_prepared():
    house, one, two = joined()
    three = house.worker("p3", follows=True)
    house.run(3)
    assert house.leads() == ["p1"]
    before = preparing(house)
    house.producer_lost(one)  # its incarnation: what it held is granted anew
    house.run(3)
    assert len(house.owners()) == 4
    one.frozen = True  # and then the leader itself
    house.run(20)
    assert house.leads() in (["p2"], ["p3"])
    assert before.keys() <= house.owners().keys()
    for each in (two, three):
        near(house, each)
    house.run(5)
    assert preparing(house) == {}
    assert len(house.owners()) == 4


@pytest.mark.parametrize("verb", ["drain", "stop"])
def test_a_run_that_ends_prepares_nothing(verb: str):
    house, one, two = joined()
    assert two.follows
    house.drains = False
    one.stuck = set(one.tasks)
    house.request("u1", verb)
    assert (shown(house), two.follows) == ({}, {})
    near(house, two)
    assert two.tasks == {}


def test_a_drain_ends_what_is_prepared_for_good():
    """Also if it is stopped, and goes on."""
    house, one, _ = joined()
    house.drains = False
    house.request("u1", "drain")
    assert preparing(house) == {}
    house.request("u2", "stop")
    resumed(house, "p1", "p2")
    assert (house.state.run.state, preparing(house)) == ("draining", {})
    assert set(house.owners().values()) == {one.processor}


# ------------------------------------------------------------------------------------------------------- a run that is stopped


def shown(house: House) -> dict[str, str]:
    """What people see of it."""
    found = stored(house.state, ASSIGNMENTS)
    return {task: one["preparing"] for task, one in found.items() if one["preparing"] is not None}


def resumed(house: House, *processors: str, code: Plan | None = None, **given: Any) -> list[Worker]:
    """The run is stopped; these workers are there, and then it goes on."""
    found = [house.worker(name, code, follows=True, **given) for name in processors]
    house.run(1)
    house.request(f"start {len(house.workers)}", "start")
    return found


def stopped(**timing: Any) -> tuple[House, set[str]]:
    """The run of `joined` has stopped while two of four tasks were prepared for the second worker."""
    house, one, two = joined(**timing)
    tasks = set(two.follows)
    house.request("u1", "stop")
    assert (one.exit is not None, two.exit is not None, house.state.run.state) == (True, True, "stopped")
    assert (len(tasks), set(preparing(house)), shown(house)) == (2, tasks, {})
    return house, tasks


def test_a_resumed_run_goes_on_preparing_what_its_stop_has_put_off():
    """Otherwise the second worker would stand idle until another one comes or goes: the workers are those of before."""
    house, tasks = stopped()
    one, two = resumed(house, "p1", "p2")
    assert len(one.tasks) == 4
    assert (set(two.follows), set(shown(house))) == (tasks, tasks)
    assert {task: ahead.grant for task, ahead in house.state.model.preparing.items()} == dict.fromkeys(tasks, 2)
    near(house, two)
    assert set(two.tasks) == tasks
    assert preparing(house) == {}


def test_a_run_may_stop_often_and_its_moves_are_not_lost():
    house, tasks = stopped()
    for number in range(2):
        _, two = resumed(house, "p1", "p2")
        assert set(two.follows) == tasks
        house.request(f"again {number}", "stop")
        assert (set(preparing(house)), shown(house)) == (tasks, {})
    _, two = resumed(house, "p1", "p2")
    near(house, two)
    assert set(two.tasks) == tasks


def test_what_is_put_off_waits_until_its_task_works_again():
    """The first worker restores; no one follows the log of a task that does not work, and nothing takes it away."""
    house, tasks = stopped(prepare_s=5.0)
    one = house.worker("p1", follows=True)
    one.hold.add(SendOrder)
    (two,) = resumed(house, "p2")
    house.run(8)
    assert (two.tasks, two.follows, shown(house)) == ({}, {}, {})
    one.hold.clear()
    for order in one.held:
        one.obey(order)
    house.settle()
    assert (len(one.tasks), set(two.follows)) == (4, tasks)


def test_what_is_put_off_moves_at_once_if_its_task_fails_where_it_was():
    house, tasks = stopped()
    one = house.worker("p1", follows=True)
    one.hold.add(SendOrder)
    (two,) = resumed(house, "p2")
    task = min(tasks)
    (grant,) = (order.order.grant for order in one.held if order.task == task)
    one.feed(one.member, TaskReported(task, grant, TaskState.FAILED, "its disk"))
    house.settle()
    assert task not in preparing(house)
    assert house.state.model.wanted[task] == "p2"
    assert two.follows == {}


@pytest.mark.parametrize("why", ["the same disk", "not wanted"])
def test_what_is_put_off_moves_as_it_is_where_preparing_does_not_help_any_more(why: str):
    house, tasks = stopped()
    given = {"location": "rack"} if why == "the same disk" else {}
    one, two = (house.worker(name, follows=True, **given) for name in ("p1", "p2"))
    house.run(1)
    if why == "not wanted":
        house.request("u2", "set-config", setting="placement.prepare", value="0s")
    house.request("u3", "start")
    assert (preparing(house), set(two.tasks), len(one.tasks)) == ({}, tasks, 2)


def test_a_preparer_that_does_not_come_back_after_a_stop_gets_nothing():
    house, _ = stopped()
    (one,) = resumed(house, "p1")
    house.run(15)
    assert (preparing(house), len(one.tasks)) == ({}, 4)
    assert house.state.model.processors == ("p1",)


def test_a_preparer_that_is_awaited_after_a_stop_goes_on_when_it_comes():
    house, tasks = stopped()
    (one,) = resumed(house, "p1")
    house.run(3)
    assert (len(one.tasks), set(preparing(house)), shown(house)) == (4, tasks, {})
    two = house.worker("p2", follows=True)
    assert set(two.follows) == tasks


def test_an_owner_that_does_not_come_back_after_a_stop_leaves_its_tasks_to_their_preparer():
    house, tasks = stopped()
    (two,) = resumed(house, "p2")
    assert two.tasks == {}
    house.run(15)
    assert (preparing(house), len(two.tasks)) == ({}, 4)
    assert tasks <= set(two.tasks)


def test_one_more_worker_after_a_stop_leaves_what_was_put_off_where_it_can():
    house, tasks = stopped()
    one, two, three = resumed(house, "p1", "p2", "p3")
    house.run(3)
    assert sorted(map(len, house.state.model.placement().values())) == [1, 1, 2]
    near(house, two)
    near(house, three)
    assert sorted(len(each.tasks) for each in (one, two, three)) == [1, 1, 2]
    assert set(two.tasks) <= tasks


def test_a_placement_leaves_put_off_what_goes_where_it_was_to_go():
    """A third worker comes while the first one restores: its tasks are placed again, and those of the second wait on."""
    house, tasks = stopped()
    one = house.worker("p1", follows=True)
    one.hold.add(SendOrder)
    resumed(house, "p2", "p3")
    house.run(3)
    model = house.state.model
    assert model.processors == ("p1", "p2", "p3")
    assert sorted(map(len, model.placement().values())) == [1, 1, 2]
    left = {task for task, ahead in model.preparing.items() if ahead == Preparation("p2", PUT_OFF)}
    assert left
    assert left <= tasks
    assert {model.wanted[task] for task in left} == {"p1"}
    assert shown(house) == {}


def test_another_deployment_is_placed_anew():
    house, _ = stopped()
    resumed(house, "p1", "p2", code=plan("d2", fingerprint=dict(plan().fingerprint)))
    house.run(2)
    assert house.state.model.deployment == "d2"
    assert preparing(house) == {}
    assert sorted(len(one.tasks) for one in house.workers if one.turns) == [2, 2]


def test_a_preparation_of_a_worker_that_is_awaited_stands_while_another_one_comes():
    """It is away for a moment, and what it was to get is its own still: no more tasks move than must."""
    house, _, two = joined(partitions=7)
    tasks = set(two.follows)
    house.leave(two)
    house.worker("p3", follows=True)
    house.run(3)
    target = house.state.model.target
    assert sum(target[task] == "p2" for task in tasks) == 2
    assert sorted(map(len, house.state.model.placement().values())) == [2, 2, 3]


# ------------------------------------------------------------------------------------------------------------------- requests


def moving() -> tuple[House, Worker, Worker, str]:
    """Two workers with two tasks each; an operator moves one of the first."""
    house, one, two = joined(near=True)
    house.near = False
    task = min(one.tasks)
    house.request("u1", "move", task=task, to="p2")
    return house, one, two, task


def test_a_move_goes_on_with_its_run():
    """It was taken up, and a stop keeps what the run was doing."""
    house, _, _, task = moving()
    house.request("u2", "stop")
    assert (house.state.run.state, house.answer("u1")) == ("stopped", ("running", ""))
    house.worker("p3", follows=True)
    house.run(1)
    house.request("u3", "move", task=task, to="p1")
    assert (house.answer("u3"), house.answer("u1")) == (("refused", "no live run"), ("running", ""))
    house.leave(house.workers[-1])
    _, two = resumed(house, "p1", "p2")
    assert (task in two.follows, house.answer("u1")) == (True, ("running", ""))
    near(house, two)
    assert (task in two.tasks, house.answer("u1")[0]) == (True, "done")


def test_a_move_does_not_go_on_in_a_drain():
    house, _, _, task = moving()
    house.drains = False
    house.request("u2", "drain")
    assert house.answer("u1") == ("failed", "superseded by a newer placement")
    assert task not in preparing(house)


def test_a_move_is_done_when_the_task_runs_where_it_was_prepared():
    house, one, two, task = moving()
    assert house.answer("u1") == ("running", "")
    (back,) = one.follows  # for balance
    assert two.follows.keys() >= {task}
    near(house, two)
    assert task in two.tasks
    assert house.answer("u1")[0] == "done"
    near(house, one)
    assert back in one.tasks
    assert preparing(house) == {}


def test_a_move_back_ends_the_preparation_and_nothing_moves():
    house, one, _, task = moving()
    house.request("u2", "move", task=task, to="p1")
    assert house.answer("u1") == ("failed", "superseded by a newer placement")
    assert house.answer("u2")[0] == "done"
    assert task not in preparing(house)
    assert task in one.tasks


def test_a_task_that_is_moved_elsewhere_meanwhile_is_prepared_there():
    house, one, two = joined(near=True)
    three = house.worker("p3", follows=True)
    house.run(3)
    house.near = False
    task = min(one.tasks)
    house.request("u1", "move", task=task, to="p2")
    house.request("u2", "move", task=task, to="p3")
    assert preparing(house)[task] == "p3"
    assert task not in two.follows or task in two.tasks
    near(house, three)
    assert task in three.tasks
    assert house.answer("u2")[0] == "done"


def test_what_was_prepared_ahead_of_an_earlier_grant_does_not_count():
    """A → B → A → B: B has to come near the end of the log again."""
    house, one, two, task = moving()
    near(house, two)
    near(house, one)
    house.request("u2", "move", task=task, to="p1")
    near(house, one)
    near(house, two)
    assert task in one.tasks
    house.request("u3", "move", task=task, to="p2")
    assert (task in one.tasks, preparing(house)[task]) == (True, "p2")
    two.feed(two.member, Followed(task, 1))  # of the first time
    house.settle()
    assert task in one.tasks
    near(house, two)
    assert task in two.tasks


# -------------------------------------------------------------------------------------------------------------------- as bytes


def test_a_model_keeps_its_preparations_as_bytes_and_other_versions_read_the_rest():
    house, _, _ = joined()
    model = house.state.model
    assert model.preparing
    key, value = encode(SetJobModel(model))
    found = read(0, key, value).message
    assert isinstance(found, SetJobModel)
    assert found.model == model
    assert found.model.target == {**model.wanted, **preparing(house)}


def test_a_preparation_on_a_processor_that_the_model_does_not_name_is_refused():
    house, _, _ = joined()
    model = house.state.model
    task = next(iter(model.tasks))
    strange = JobModel(**{
        name: getattr(model, name) for name in ("term", "version", "run_id", "deployment", "tasks", "wanted", "processors")
    }, preparing={task: Preparation("nobody", 1)})  # fmt: skip
    key, value = encode(SetJobModel(strange))
    assert "prepares only tasks of its own" in read(0, key, value).problem


def test_what_a_worker_says_of_preparing_is_left_out_while_it_says_nothing():
    plain = SetProcessor("p1", "000001-a", "x", "h", "joined")
    assert b"prepared" not in encode(plain)[1]
    assert b"follows" not in encode(plain)[1]
    said = SetProcessor("p1", "000001-a", "x", "h", "joined", follows=True, prepared={"Partition 3": 4})
    key, value = encode(said)
    assert read(0, key, value).message == said


# ------------------------------------------------------------------------------------------------------------------- standbys


def followed(workers: int = 3, **timing: Any) -> House:
    """Workers at as many locations, four tasks, and a standby for each."""
    house = House(standby=1, **timing)
    for number in range(workers):
        house.worker(f"p{number + 1}", follows=True)
    house.run(3)
    return house


def standby_of(house: House) -> dict[str, str]:
    return dict(house.state.model.standby)


def test_each_task_has_a_standby_that_is_not_its_owner():
    house = followed()
    assert standby_of(house).keys() == house.owners().keys()
    assert all(standby_of(house)[task] != owner for task, owner in house.owners().items())
    for one in house.workers:
        assert set(one.follows) >= {task for task, p in standby_of(house).items() if p == one.processor}


def test_the_tasks_of_a_dead_owner_go_to_their_standbys():
    house = followed()
    one = house.workers[0]
    lost, before = set(one.tasks), standby_of(house)
    assert lost
    house.kill(one)
    house.run(12)
    assert {task: house.owners()[task] for task in lost} == {task: before[task] for task in lost}
    house.run(12)
    assert all(standby_of(house)[task] != owner for task, owner in house.owners().items())


@pytest.mark.parametrize(("auto", "at_once"), [(True, True), (False, False)])
def test_with_auto_tasks_with_standbys_do_not_wait_for_who_has_left(auto: bool, at_once: bool):
    house = followed(grace_auto=auto)
    one = house.workers[0]
    lost, before = set(one.tasks), standby_of(house)
    house.leave(one)
    house.run(2)
    assert (lost <= house.owners().keys()) is at_once
    house.run(12)
    assert {task: house.owners()[task] for task in lost} == {task: before[task] for task in lost}


def test_no_task_leaves_its_owner_for_one_that_comes_to_its_standby():
    """The simulator has found it: two tasks of a dead worker had the same standby, and two that ran there went elsewhere, for balance."""
    house = House(partitions=6, standby=1)
    for name, location in (("p2", "a"), ("p3", "b"), ("p4", "a")):
        house.worker(name, follows=True, location=location)
    house.run(3)
    two, three, _ = house.workers
    mine = set(three.tasks)
    assert {task for task, p in standby_of(house).items() if p == "p3"} >= set(two.tasks)
    house.kill(two)
    house.worker("p1", follows=True, location="b")
    house.run(14)
    assert mine <= set(three.tasks)
    assert sorted(len(one.tasks) for one in house.workers if one.turns) == [2, 2, 2]


def test_a_standby_that_comes_back_is_the_standby_still():
    house = followed(workers=2)
    before = standby_of(house)
    house.leave(house.workers[1])
    house.run(2)
    assert standby_of(house) == before
    again = house.worker("p2", follows=True)
    house.run(2)
    assert standby_of(house) == before
    assert set(again.follows) >= {task for task, p in before.items() if p == "p2"}


def test_nobody_stands_by_where_no_one_could_or_no_one_wants_it():
    assert standby_of(followed(workers=1)) == {}
    house = House(standby=1)
    for number in range(2):
        house.worker(f"p{number}", follows=True, location="rack")
    house.run(3)
    assert standby_of(house) == {}
    house = House(standby=1)
    house.worker("p1", plan(graph=graph(stateful=False)), follows=True)
    house.worker("p2", plan(graph=graph(stateful=False)), follows=True)
    house.run(3)
    assert standby_of(house) == {}
    house = followed()
    assert standby_of(house)
    house.request("u1", "set-config", setting="standby", value=0)
    assert standby_of(house) == {}
    assert not any(set(one.follows) - set(one.tasks) for one in house.workers)


def test_a_drain_ends_what_is_followed():
    house = followed()
    house.drains = False
    house.request("u1", "drain")
    assert standby_of(house) == {}
    assert all(one.follows == {} for one in house.workers)


def test_a_stop_leaves_the_standbys_and_no_one_follows_meanwhile():
    """The disk of a standby is where the tasks go of a worker that does not come back."""
    house = followed()
    before, lost = standby_of(house), set(house.workers[0].tasks)
    house.request("u1", "stop")
    assert (house.state.run.state, standby_of(house)) == ("stopped", before)
    assert all(house.state.standby(task) is None for task in before)
    two, three = resumed(house, "p2", "p3")
    assert all(house.state.standby(task) == p for task, p in before.items())
    house.run(14)
    assert {task: house.owners()[task] for task in lost} == {task: before[task] for task in lost}
    assert {len(two.tasks), len(three.tasks)} == {2}


def test_a_task_that_moves_to_its_standby_is_prepared_already_and_gets_another_standby():
    house = followed(workers=2)
    house.near = False
    two = house.workers[1]
    task = min(task for task, p in standby_of(house).items() if p == "p2")
    house.request("u1", "move", task=task, to="p2")
    assert (two.follows[task], preparing(house)[task]) == (1, "p2")
    near(house, two)
    assert task in two.tasks
    house.run(1)
    assert standby_of(house)[task] == "p1"


def test_who_is_to_stand_by_for_a_task_that_it_has_not_released_goes_on_with_its_own_store():
    """It follows the log once the store that it has is closed, and not into another one beside it."""
    house = followed(workers=2)
    one, two = house.workers
    task = min(one.tasks)
    one.stuck.add(task)
    house.request("u1", "move", task=task, to="p2")
    assert house.state.model.wanted[task] == "p2"
    assert (standby_of(house)[task], task in one.follows) == ("p1", False)
    one.stuck.clear()
    gone = one.tasks.pop(task)
    one.feed(one.member, TaskReported(task, gone.grant, TaskState.RELEASED))
    house.settle()
    assert task in one.follows
    assert task in two.tasks
