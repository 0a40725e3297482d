"""A worker that is told to leave, and works on while others prepare its tasks: how long it does."""

from __future__ import annotations

import pytest

from headgate.core.coordination.member.protocol import Exit

from ...house import House, Worker

LEFT = Exit(0, "SIGTERM")


def working(workers: int = 2, **timing: float) -> tuple[House, list[Worker]]:
    """Workers that share four tasks with state. No log is read up from now on."""
    house = House(4, **timing)
    found = [house.worker(f"p{number}", follows=True) for number in range(1, workers + 1)]
    house.run(5)
    house.near = False
    return house, found


def test_it_is_not_ready_and_says_why():
    house, (one, _) = working()
    house.leave(one, 60.0)
    assert one.stood[-1].why == "leaving: SIGTERM; others prepare its tasks"
    assert not one.stood[-1].ready


def test_one_without_tasks_leaves_at_once():
    house, (one, _) = working()
    three = house.worker("p3", follows=True)
    assert not three.tasks
    house.leave(three, 60.0)
    assert three.exit == LEFT
    assert len(one.tasks) == 2


def test_when_its_time_is_over_it_leaves_and_its_tasks_go_to_who_prepares_them():
    house, (one, two) = working(grace_s=1000.0)
    house.leave(one, 20.0)
    house.run(19)
    assert (one.exit, len(one.tasks)) == (None, 2)
    house.run(3)
    assert one.exit == LEFT
    assert len(two.tasks) == 4


def test_without_another_worker_it_leaves_at_once():
    house, (one,) = working(1)
    house.leave(one, 60.0)
    assert one.exit == LEFT


def test_if_all_are_about_to_leave_no_one_waits():
    house, (one, two) = working()
    house.leave(one, 60.0)
    assert one.exit is None
    house.leave(two, 60.0)
    assert (one.exit, two.exit) == (LEFT, LEFT)


def test_a_second_signal_ends_the_wait():
    house, (one, _) = working()
    house.leave(one, 60.0)
    house.leave(one, 60.0)
    assert one.exit == LEFT


@pytest.mark.parametrize("verb", ["drain", "stop"])
def test_a_run_that_ends_is_not_held_up(verb: str):
    house, (one, two) = working()
    house.leave(one, 1000.0)
    house.request("u1", verb)
    house.run(3)
    assert one.exit is not None
    house.run(30)
    assert two.exit is not None


def test_what_it_has_lost_goes_on_elsewhere():
    house, (one, two) = working()
    house.leave(one, 1000.0)
    house.producer_lost(one)
    house.run(15)
    assert one.exit == LEFT
    assert len(two.tasks) == 4
