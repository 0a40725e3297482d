"""What is asked of parked records: accepted once, carried out once by each task, and taken out of the run when all have said so."""

from __future__ import annotations

from headgate.core import orders as o

from ...house import House

T0, T1 = "Partition 0", "Partition 1"


def house_of(*, silent: bool = False) -> House:
    house = House()
    house.worker("p1")
    house.seeks = not silent
    return house


def told(house: House) -> list[tuple[str, o.Unpark]]:
    return [
        (task.task, order)
        for one in house.workers
        for task in one.tasks.values()
        for order in task.told
        if isinstance(order, o.Unpark)
    ]


def test_each_task_is_told_what_concerns_it_and_then_it_is_done() -> None:
    house = house_of()
    house.request("u1", "skip-parked", tasks={T0: [[7, 9], [11, 11]], T1: [[None, 3]]})
    assert house.answer("u1") == ("done", "")
    assert told(house) == [
        (T0, o.Unpark(f"u1:{T0}:0", "skip", 7, 9)),
        (T0, o.Unpark(f"u1:{T0}:1", "skip", 11, 11)),
        (T1, o.Unpark(f"u1:{T1}:0", "skip", None, 3)),
    ]
    assert house.state.run.unparks == ()


def test_it_waits_for_all_and_fails_if_one_has_refused() -> None:
    house = house_of(silent=True)
    house.request("u1", "release-parked", tasks={T0: [[None, None]], T1: [[None, None]]})
    one = house.workers[0]
    one.feed(one.member, o.SeekApplied(T0, f"u1:{T0}:0"))
    house.settle()
    assert house.answer("u1")[0] == "accepted"
    one.feed(one.member, o.SeekApplied(T1, f"u1:{T1}:0", "no such record is parked"))
    house.settle()
    assert house.answer("u1") == ("failed", f"{T1}: no such record is parked")
    assert house.state.run.unparks == ()


def test_one_that_nobody_could_carry_out_expires() -> None:
    house = house_of(silent=True)
    house.request("u1", "release-parked", tasks={T0: [[None, None]]}, not_after=house.now.wall + 1000)
    house.run(2.0)
    assert house.answer("u1") == ("failed", "expired; done by tasks: none")


def test_it_is_withdrawn_unless_it_is_done() -> None:
    house = house_of(silent=True)
    house.request("u1", "release-parked", tasks={T0: [[None, None]], T1: [[None, None]]})
    one = house.workers[0]
    one.feed(one.member, o.SeekApplied(T0, f"u1:{T0}:0"))
    house.request("u2", "withdraw", request="u1")
    assert house.answer("u1") == ("failed", f"withdrawn by me; done by tasks: {T0}")
    assert (house.answer("u2")[0], house.state.run.unparks) == ("done", ())


def test_what_cannot_be_meant_is_refused() -> None:
    house = house_of()
    house.request("u1", "release-parked", tasks={"Partition 77": [[None, None]]})
    assert house.answer("u1") == ("refused", "there is no task 'Partition 77'")
    house.request("u2", "release-parked", tasks={T0: [[None, None]]}, run_id="other")
    assert house.answer("u2")[0] == "refused"


def test_the_next_run_carries_out_what_this_one_has_not() -> None:
    house = house_of(silent=True)
    house.request("u1", "release-parked", tasks={T0: [[None, None]]})
    house.request("u2", "drain")
    house.request("u3", "start")
    assert [one.request for one in house.state.run.unparks] == ["u1"]


def test_a_stopping_run_is_not_asked() -> None:
    house = house_of(silent=True)
    house.drains = False
    house.request("u1", "release-parked", tasks={T0: [[None, None]]})
    assert house.answer("u1")[0] == "accepted"
    house.request("u1", "release-parked", tasks={T0: [[None, None]]})
    assert len(house.state.run.unparks) == 1
