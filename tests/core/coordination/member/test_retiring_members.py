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


# ------------------------------------------------------------------------------------------------------------ by command


def dismissed(workers: int = 2, **timing: float) -> tuple[House, list[Worker]]:
    """As `working`, and the first is told to go by command, with time to work on."""
    house, found = working(workers, work_on_s=1000.0, **timing)
    house.request("u1", "stop", worker="p1", for_good=True)
    return house, found


def test_one_that_is_dismissed_says_that_others_prepare_its_tasks():
    house, (one, _) = dismissed()
    assert (one.exit, one.stood[-1].why) == (None, "leaving: for good; others prepare its tasks")
    house.run(5)
    assert (one.exit, len(one.tasks)) == (None, 2)


def test_one_that_is_dismissed_and_alone_leaves_at_once():
    house, (one,) = dismissed(1)
    assert one.exit == Exit(0, "for good")
    house.worker("p2", follows=True)
    house.run(10)
    assert house.answer("u1")[0] == "done"


def test_one_that_is_dismissed_leaves_when_the_others_have_gone():
    house, (one, two) = dismissed()
    assert one.exit is None
    house.leave(two)
    assert (one.exit, two.exit) == (Exit(0, "for good"), LEFT)


def test_if_all_are_dismissed_no_one_waits():
    house, (one, two) = dismissed()
    house.request("u2", "stop", worker="p2", for_good=True)
    assert (one.exit, two.exit) == (Exit(0, "for good"), Exit(0, "for good"))


def test_a_signal_ends_the_wait_of_one_that_is_dismissed():
    house, (one, _) = dismissed()
    house.leave(one, 60.0)
    assert one.exit == LEFT
    house.run(1)
    assert house.answer("u1") == ("done", "")


@pytest.mark.parametrize("verb", ["drain", "stop"])
def test_one_that_is_dismissed_holds_up_no_run_that_ends(verb: str):
    house, (one, two) = dismissed()
    house.request("u2", verb)
    house.run(3)
    assert one.exit is not None
    house.run(30)
    assert two.exit is not None
    assert house.answer("u2")[0] == "done"


def test_one_that_is_dismissed_while_the_run_drains_leaves_at_once():
    house, (one, _) = working(work_on_s=1000.0)
    house.drains = False
    house.request("u1", "drain")
    house.request("u2", "stop", worker="p1", for_good=True)
    house.run(1)
    assert one.exit == Exit(0, "for good")


def test_the_next_incarnation_of_one_that_is_dismissed_leaves_at_once():
    """It has lost its tasks: they go on elsewhere."""
    house, (one, two) = dismissed(grace_s=1000.0)
    house.producer_lost(one)
    house.run(15)
    assert one.exit == Exit(0, "for good")
    assert len(two.tasks) == 4
    assert house.answer("u1") == ("done", "")
