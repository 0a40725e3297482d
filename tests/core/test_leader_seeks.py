"""Seeks: accepted once, applied once by every owner, and taken out of the run when all have said so."""

from __future__ import annotations

from headgate.core import orders as o

from .house import House, plan


def seeks_told(house: House) -> list[tuple[str, o.Seek]]:
    return [
        (task.task, order)
        for one in house.workers
        for task in one.tasks.values()
        for order in task.told
        if isinstance(order, o.Seek)
    ]


def test_every_owner_applies_it_and_then_it_is_done():
    house = House()
    house.worker("p1")
    house.wish("u1", "seek", stream="orders", to="oldest")
    assert house.answer("u1") == ("done", "")
    assert house.state.run.seeks == ()
    assert sorted(task for task, _ in seeks_told(house)) == [f"Partition {n}" for n in range(4)]


def test_one_partition_to_a_time():
    house = House()
    house.worker("p1")
    house.wish("u1", "seek", stream="orders", partition=2, to=["time", 5])
    assert seeks_told(house) == [("Partition 2", o.Seek("u1:2", "orders", 2, ("time", 5)))]
    assert house.answer("u1")[0] == "done"


def test_a_restart_in_the_middle_tells_it_again_to_the_next_holder():
    """The task knows from its checkpoint whether it has applied it; the member only tells."""
    house = House()
    one = house.worker("p1")
    house.seeks = False
    house.wish("u1", "seek", stream="orders", partition=0, to=7)
    assert house.answer("u1")[0] == "accepted"
    house.producer_lost(one)
    assert len(seeks_told(house)) == 1
    one.feed(one.member, o.SeekApplied("Partition 0", "u1:0"))
    house.settle()
    assert house.answer("u1")[0] == "done"


def test_a_task_may_refuse_it():
    house = House()
    one = house.worker("p1")
    house.seeks = False
    house.wish("u1", "seek", stream="orders", partition=0, to=10**9)
    one.feed(one.member, o.SeekApplied("Partition 0", "u1:0", "beyond the end"))
    house.settle()
    assert house.answer("u1") == ("failed", "Partition 0: beyond the end")
    assert house.state.run.seeks == ()


def test_it_expires_and_says_where_it_was_applied():
    house = House()
    one = house.worker("p1")
    house.seeks = False
    house.wish("u1", "seek", stream="orders", to="newest", not_after=house.now.wall + 2000)
    one.feed(one.member, o.SeekApplied("Partition 3", "u1:3"))
    house.settle()
    house.run(5)
    assert house.answer("u1") == ("failed", "expired; applied in partitions: 3")


def test_a_newer_seek_of_the_same_partition_supersedes():
    house = House()
    house.worker("p1")
    house.seeks = False
    house.wish("u1", "seek", stream="orders", partition=1, to=1)
    house.wish("u2", "seek", stream="orders", to=2)
    assert house.answer("u1")[0] == "failed"
    assert [one.to for one in house.state.run.seeks] == [2, 2, 2, 2]


def test_a_stopped_run_takes_it_and_applies_it_when_it_goes_on():
    house = House()
    house.worker("p1")
    house.wish("u0", "stop")
    house.worker("p1")
    house.wish("u1", "seek", stream="orders", to="oldest")
    assert house.answer("u1")[0] == "accepted"
    house.wish("u2", "start")
    house.run(2)
    assert house.answer("u1")[0] == "done"


def test_what_is_refused():
    house = House(partitions=2)
    house.worker("p1", plan())
    house.drains = False
    for uuid, arguments, why in [
        ("a", {"stream": "nothing", "to": 1}, "no input of the job; it has orders"),
        ("b", {"stream": "by-country", "to": 1}, "no input of the job"),
        ("c", {"stream": "orders", "to": 1, "partition": 9}, "there is no partition 9"),
        ("d", {"stream": "orders", "to": 1, "run_id": "other"}, "other run"),
    ]:
        house.wish(uuid, "seek", **arguments)
        assert house.answer(uuid)[0] == "refused"
        assert why in house.answer(uuid)[1]
    house.wish("e", "drain")
    house.wish("f", "seek", stream="orders", to=1)
    assert "is draining" in house.answer("f")[1]


def test_without_a_run_there_is_nothing_to_seek():
    house = House()
    house.wish("u1", "seek", stream="orders", to=1)
    one = house.worker("p1", plan(resolve=True), process="slow")
    assert one.tasks
    assert house.answer("u1")[0] == "refused"
