"""A worker that is about to leave works on while others prepare its tasks. Who gets them, and when it stops waiting."""

from __future__ import annotations

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
