"""A worker that is about to leave works on while others prepare its tasks. Who gets them, and when it stops waiting."""

from __future__ import annotations

import pytest

from headgate.core.coordination.events import Heartbeat
from headgate.core.coordination.member.protocol import Exit, Followed
from headgate.core.coordination.metadata import LOCALITY, RETIRING, stored

from ...house import House, Worker

LEFT = Exit(0, "SIGTERM")


def working(workers: int = 2, **timing: float) -> tuple[House, list[Worker]]:
    """Workers that share four tasks with state."""
    house = House(4, **timing)
    found = [house.worker(f"p{number}", follows=True) for number in range(1, workers + 1)]
    house.run(5)
    assert sorted(house.owners().values()) == sorted(4 // workers * [one.processor for one in found])
    house.near = False
    return house, found


def near(house: House, one: Worker) -> None:
    """It comes near the end of every log that it follows."""
    for task, grant in one.follows.items():
        one.feed(one.member, Followed(task, grant))
    house.settle()


def test_it_works_on_until_others_have_prepared_its_tasks_and_then_leaves():
    house, (one, two) = working(grace_s=1000.0)
    before = set(one.tasks)
    house.leave(one, 60.0)
    house.run(5)
    assert one.exit is None
    assert set(one.tasks) == before == set(two.follows) - set(two.tasks)
    assert not one.stood[-1].ready
    assert stored(house.state, LOCALITY)["p1"]["state"] == RETIRING
    near(house, two)
    assert len(two.tasks) == 4
    house.run(1)
    assert one.exit == LEFT
    model = house.state.model
    assert model is not None
    house.run(5)
    assert house.state.model.processors == ("p2",)
    assert len(two.tasks) == 4


def test_it_gets_no_tasks_and_follows_none():
    """Neither by an operator's move, nor as a standby, nor because a third one comes."""
    house, (one, two) = working(standby=1)
    before = set(one.tasks)
    house.leave(one, 1000.0)
    house.request("u1", "move", task=sorted(two.tasks)[0], to="p1")
    house.run(2)
    answer = house.state.answer("u1")
    assert answer is not None
    assert (answer.state, answer.why) == ("refused", "worker 'p1' is about to leave")
    assert "p1" not in house.state.model.standby.values()
    three = house.worker("p3", follows=True)
    house.run(5)
    assert set(one.tasks) == before
    assert "p1" not in house.state.model.target.values()
    near(house, two)
    near(house, three)
    house.run(1)
    assert one.exit == LEFT
    assert sorted(len(worker.tasks) for worker in (two, three)) == [2, 2]


def test_its_tasks_do_not_go_to_one_that_is_away():
    """That one is waited for. Then they are spread over who is there."""
    house = House(6, grace_s=20.0)
    one, two, three = (house.worker(f"p{number}", follows=True) for number in (1, 2, 3))
    house.run(5)
    house.near = False
    house.leave(one)
    house.leave(two, 1000.0)
    house.run(15)
    assert (len(two.tasks), len(three.tasks)) == (2, 2)
    house.run(10)
    near(house, three)
    house.run(1)
    assert two.exit == LEFT
    assert len(three.tasks) == 6


def test_one_that_comes_back_gets_tasks_again():
    house, (one, two) = working(grace_s=1000.0)
    house.leave(one, 60.0)
    near(house, two)
    house.run(5)
    again = house.worker("p1", follows=True)
    house.near = True
    house.run(5)
    assert (len(again.tasks), len(two.tasks)) == (2, 2)


def test_one_that_comes_back_at_once_gets_tasks_again_too():
    """No model without it was written in between."""
    house, (one, two) = working(grace_s=1000.0, debounce_s=5.0)
    house.leave(one, 60.0)
    near(house, two)
    house.run(1)
    assert one.exit == LEFT
    again = house.worker("p1", follows=True)
    house.near = True
    house.run(8)
    assert (len(again.tasks), len(two.tasks)) == (2, 2)


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 1, 3), (3, 2, 1)])
def test_workers_that_are_replaced_one_by_one_get_their_tasks_back(order: tuple[int, ...]):
    """Each task goes back to the disk that it left a moment ago, and no other task moves."""
    house = House(9, grace_s=1000.0)
    workers = {n: house.worker(f"p{n}", follows=True, location=f"rack-{n}") for n in order}
    house.run(5)
    before = dict(house.owners())
    for n in (1, 2, 3):
        house.leave(workers[n], 60.0)
        house.run(6)
        assert workers[n].exit == LEFT
        workers[n] = house.worker(f"p{n}", follows=True, location=f"rack-{n}")
        house.run(8)
        assert dict(house.owners()) == before


def test_one_that_dies_meanwhile_is_like_any_other_dead_one():
    house, (one, two) = working()
    house.leave(one, 1000.0)
    house.kill(one)
    house.run(10)
    assert len(two.tasks) == 4


def test_tasks_without_state_move_at_once():
    house, (one, two) = working(prepare_s=0.0)
    house.leave(one, 60.0)
    house.run(1)
    assert one.exit == LEFT
    assert len(two.tasks) == 4


# ------------------------------------------------------------------------------------------------------------ by command

DISMISSED = Exit(0, "for good")


def test_one_that_is_stopped_by_command_works_on_like_one_that_got_a_signal():
    """The request says for how long, and is done when the worker has gone."""
    house, (one, two) = working(grace_s=1000.0, work_on_s=60.0)
    before = set(one.tasks)
    house.request("u1", "stop", worker="p1", for_good=True)
    house.run(5)
    assert house.answer("u1") == ("running", "it works on for 60 s at most, while others prepare its tasks")
    assert (one.exit, set(one.tasks)) == (None, before)
    assert before == set(two.follows) - set(two.tasks)
    assert stored(house.state, LOCALITY)["p1"]["state"] == RETIRING
    assert stored(house.state, LOCALITY)["p1"]["counts"]
    near(house, two)
    house.run(1)
    assert one.exit == DISMISSED
    assert len(two.tasks) == 4
    assert house.answer("u1") == ("done", "")
    house.run(5)
    assert house.state.model.processors == ("p2",)


def test_without_the_setting_it_leaves_at_once():
    house, (one, _) = working(grace_s=1000.0)
    house.request("u1", "stop", worker="p1", for_good=True)
    assert one.exit == DISMISSED
    assert house.answer("u1") == ("done", "")


def test_it_works_on_no_longer_than_it_may():
    house, (one, two) = working(grace_s=1000.0, work_on_s=20.0)
    house.request("u1", "stop", worker="p1")
    house.run(19)
    assert (one.exit, len(one.tasks)) == (None, 2)
    house.run(3)
    assert one.exit == Exit(0, "stopped")
    assert len(two.tasks) == 4
    assert house.answer("u1") == ("done", "")


def test_an_operator_who_shortens_the_time_is_obeyed():
    house, (one, two) = working(work_on_s=1000.0)
    house.request("u1", "stop", worker="p1", for_good=True)
    house.run(5)
    assert one.exit is None
    house.request("u2", "set-config", setting="stop.prepare", value="0s")
    house.run(2)
    assert one.exit == DISMISSED
    assert len(two.tasks) == 4


def test_one_that_does_not_obey_is_dismissed_by_the_leader():
    """It hangs, and its heartbeats go on. The leader takes it out when the time is over, and fences what it does not release."""
    house, (two, one) = working(work_on_s=20.0, release_s=10.0)
    one.frozen = True
    house.request("u1", "stop", worker="p2", for_good=True)
    for _ in range(35):
        house.beat(alive(house, one))
        house.run(1)
    assert ("p2", one.init[0]) in house.fenced
    assert len(two.tasks) == 4
    assert house.answer("u1") == ("done", "")


def alive(house: House, one: Worker) -> Heartbeat:
    """A heartbeat of it."""
    return Heartbeat(one.processor, one.process, one.member.incarnation, house.now.mono)


def test_the_next_leader_goes_on_with_it():
    house = House(6, work_on_s=1000.0, grace_s=2.0)
    one, two, three = (house.worker(f"p{number}", follows=True) for number in (1, 2, 3))
    house.run(5)
    house.near = False
    house.request("u1", "stop", worker="p3", for_good=True)
    house.run(3)
    assert house.leads() == ["p1"]
    house.kill(one)
    house.run(30)
    assert (house.leads(), three.exit) == (["p2"], None)
    assert set(three.tasks) <= set(two.follows)
    near(house, two)
    house.run(2)
    assert three.exit == DISMISSED
    assert len(two.tasks) == 6
    assert house.answer("u1") == ("done", "")


def test_a_second_request_neither_prolongs_nor_ends_the_wait():
    house, (one, _) = working(work_on_s=20.0)
    house.request("u1", "stop", worker="p1")
    house.run(10)
    house.request("u2", "stop", worker="p1", for_good=True)
    house.run(9)
    assert one.exit is None
    house.run(3)
    assert one.exit is not None
    assert [house.answer(uuid)[0] for uuid in ("u1", "u2")] == ["done", "done"]


def test_a_new_process_of_that_name_is_not_dismissed():
    """What was said of the one that has gone is not true of it."""
    house, (one, two) = working(work_on_s=60.0, grace_s=1000.0)
    house.request("u1", "stop", worker="p1", for_good=True)
    near(house, two)
    house.run(2)
    assert one.exit == DISMISSED
    again = house.worker("p1", follows=True)
    house.near = True
    house.run(5)
    assert (len(again.tasks), len(two.tasks)) == (2, 2)
    assert again.exit is None
