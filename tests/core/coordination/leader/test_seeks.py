"""Seeks: accepted once, applied once by every owner, and taken out of the run when all have said so."""

from __future__ import annotations

from dataclasses import replace

from headgate.core import orders as o
from headgate.core.coordination.leader.draft import Draft, Memory
from headgate.core.coordination.leader.plan import LeaderConfig
from headgate.core.coordination.leader.seeks import withdraw
from headgate.core.coordination.messages import SetJobModel, SetRequest, SetRun
from headgate.core.coordination.state import JobState
from headgate.core.graph.graph import Input
from headgate.core.graph.model import JobModel
from headgate.core.machine import Now
from headgate.core.names import StreamPartition

from ...house import House, graph, plan


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
    house.request("u1", "seek", stream="orders", to="oldest")
    assert house.answer("u1") == ("done", "")
    assert house.state.run.seeks == ()
    assert sorted(task for task, _ in seeks_told(house)) == [f"Partition {n}" for n in range(4)]


def test_one_partition_to_a_time():
    house = House()
    house.worker("p1")
    house.request("u1", "seek", stream="orders", partition=2, to=["time", 5])
    assert seeks_told(house) == [("Partition 2", o.Seek("u1:2", "orders", 2, ("time", 5)))]
    assert house.answer("u1")[0] == "done"


def test_a_restart_in_the_middle_tells_it_again_to_the_next_holder():
    """The task knows from its checkpoint whether it has applied it; the member only tells."""
    house = House()
    one = house.worker("p1")
    house.seeks = False
    house.request("u1", "seek", stream="orders", partition=0, to=7)
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
    house.request("u1", "seek", stream="orders", partition=0, to=10**9)
    one.feed(one.member, o.SeekApplied("Partition 0", "u1:0", "beyond the end"))
    house.settle()
    assert house.answer("u1") == ("failed", "Partition 0: beyond the end")
    assert house.state.run.seeks == ()


def test_it_expires_and_says_where_it_was_applied():
    house = House()
    one = house.worker("p1")
    house.seeks = False
    house.request("u1", "seek", stream="orders", to="newest", not_after=house.now.wall + 2000)
    one.feed(one.member, o.SeekApplied("Partition 3", "u1:3"))
    house.settle()
    house.run(5)
    assert house.answer("u1") == ("failed", "expired; applied in partitions: 3")


def test_a_newer_seek_of_the_same_partition_supersedes():
    house = House()
    house.worker("p1")
    house.seeks = False
    house.request("u1", "seek", stream="orders", partition=1, to=1)
    house.request("u2", "seek", stream="orders", to=2)
    assert house.answer("u1")[0] == "failed"
    assert [one.to for one in house.state.run.seeks] == [2, 2, 2, 2]


def test_a_stopped_run_takes_it_and_applies_it_when_it_goes_on():
    house = House()
    house.worker("p1")
    house.request("u0", "stop")
    house.worker("p1")
    house.request("u1", "seek", stream="orders", to="oldest")
    assert house.answer("u1")[0] == "accepted"
    house.request("u2", "start")
    house.run(2)
    assert house.answer("u1")[0] == "done"


def test_what_is_refused():
    house = House(partitions=2)
    house.worker("p1", plan())
    house.drains = False
    for uuid, arguments, why in [
        ("a", {"stream": "nothing", "to": 1}, "not an input of the job; it has orders"),
        ("b", {"stream": "by-country", "to": 1}, "--skip OFFSET[.ROW]"),
        ("c", {"stream": "orders", "to": 1, "partition": 9}, "there is no partition 9"),
        ("d", {"stream": "orders", "to": 1, "run_id": "other"}, "other run"),
    ]:
        house.request(uuid, "seek", **arguments)
        assert house.answer(uuid)[0] == "refused"
        assert why in house.answer(uuid)[1]
    house.request("e", "drain")
    house.request("f", "seek", stream="orders", to=1)
    assert "is draining" in house.answer("f")[1]


def test_no_task_is_asked_to_move_in_a_topic_that_it_does_not_read():
    """The model names a topic of copies with every task, for versions that read it there."""
    found = graph()
    copied = replace(found, inputs=(*found.inputs, Input("rates", broadcast=True, copied=True)))
    house = House(partitions=2)
    house.partitions["rates"] = 3
    house.worker("p1", plan(graph=copied))
    house.request("a", "seek", stream="rates", to="oldest")
    assert house.answer("a")[0] == "refused"
    assert "each worker follows it for its own copy of a table" in house.answer("a")[1]
    assert seeks_told(house) == []


def test_every_stream_of_the_job_can_be_adopted_where_it_stands():
    """Its own streams have other ids after a mirror's failover, too."""
    house = House()
    house.worker("p1", plan())
    house.request("u1", "seek", stream="by-country", to=o.HERE)
    assert house.answer("u1") == ("done", "")
    assert {order.to for _, order in seeks_told(house)} == {o.HERE}
    house.request("u2", "seek", stream="nothing", to=o.HERE)
    assert house.answer("u2")[0] == "refused"


def test_without_a_run_there_is_nothing_to_seek():
    house = House()
    house.request("u1", "seek", stream="orders", to=1)
    one = house.worker("p1", plan(resolve=True), process="slow")
    assert one.tasks
    assert house.answer("u1")[0] == "refused"


def test_a_draining_run_takes_a_seek_of_what_has_failed_and_of_nothing_else():
    """A drain that failed at a bad record was a dead end: it could not go on behind it, and nothing else was allowed."""
    house = House()
    one = house.worker("p1")
    house.drains = False
    house.request("u1", "drain")
    assert house.state.run.drain_by == "me"
    one.report("Partition 2", o.TaskState.FAILED, "no such field")
    house.request("u2", "seek", stream="orders", to=5)
    assert house.answer("u2")[0] == "refused"
    assert "Partition 0, Partition 1, Partition 3 has not" in house.answer("u2")[1]
    house.request("u3", "seek", stream="orders", partition=2, to=5)
    assert house.answer("u3")[0] == "done"
    assert seeks_told(house) == [("Partition 2", o.Seek("u3:2", "orders", 2, 5))]


def test_it_is_bound_to_the_positions_that_its_plan_showed():
    """It waited until a worker came; the tasks compare where they stand, also with nowhere yet. What is not named is not bound."""
    house = House()
    house.request("u1", "seek", stream="orders", to=5, positions={"0": 7, "1": None, "2": 9})
    house.append(SetRun("r0", "d0", "drained", "u", "q", fingerprint={"setting:grouper": "partition"}))
    house.append(SetJobModel(JobModel(1, 1, "r0", "d0", *owned())))
    house.worker("p1")
    assert house.answer("u1")[0] == "done"
    assert [seek.expected for _, seek in sorted(seeks_told(house))] == [7, o.NO_POSITION, 9, None]


def owned() -> tuple[dict[str, tuple[StreamPartition, ...]], dict[str, str], tuple[str, ...]]:
    tasks = {f"Partition {n}": (StreamPartition("by-country", n), StreamPartition("orders", n)) for n in range(4)}
    return tasks, dict.fromkeys(tasks, "p0"), ("p0",)


def test_what_waits_can_be_taken_back():
    """A drain of a run to come, and a seek that no task has applied: whoever asked has changed his mind."""
    house = House()
    one = house.worker("p1")
    house.seeks = False
    house.request("u1", "seek", stream="orders", to="newest")
    one.feed(one.member, o.SeekApplied("Partition 3", "u1:3"))
    house.settle()
    house.request("u2", "withdraw", request="u1")
    assert house.answer("u2") == ("done", "seek of me")
    assert house.answer("u1") == ("failed", "withdrawn by me; applied in partitions: 3")
    assert house.state.run.seeks == ()
    house.request("u3", "drain", run_id="tonight")
    house.request("u4", "withdraw", request="u3")
    assert house.answer("u3")[0] == "refused"
    for uuid, request in (("u5", "u3"), ("u6", "nothing"), ("u7", "u7")):
        house.request(uuid, "withdraw", request=request)
        assert "no pending request" in house.answer(uuid)[1]
    house.drains = False
    house.request("u8", "drain")
    house.request("u9", "withdraw", request="u8")
    assert house.answer("u9") == ("refused", "drain is in progress; it cannot be withdrawn")


def test_what_is_taken_back_before_a_run_begins_does_not_touch_it():
    """Both were written while nobody was there; the drain is the older one, and the run that begins must not find it."""
    house = House()
    house.request("u1", "drain", run_id="r7")
    house.request("u2", "withdraw", request="u1")
    house.worker("p1", run_id="r7")
    assert house.state.run.state == "running"
    assert (house.answer("u1")[0], house.answer("u2")[0]) == ("refused", "done")


def test_a_run_that_is_about_to_close_takes_none():
    house = House()
    house.worker("p1").stuck = {"Partition 0"}
    house.request("u1", "stop")
    house.request("u2", "seek", stream="orders", to=1)
    assert "is stopping" in house.answer("u2")[1]
    empty = Draft(JobState(), LeaderConfig("p1", "x", "u"), Memory(), Now(1.0, 2), lambda life: "")
    assert withdraw(empty, SetRequest("u2", "seek")) == "none"


def test_one_record_is_left_out_where_tasks_read_it_beside_other_seeks():
    """Also between stages, where there is nothing to seek to; never of all partitions at once."""
    house = House()
    house.worker("p1")
    house.seeks = False
    house.request("u1", "seek", stream="by-country", partition=0, to=7)
    assert "is a stream between stages" in house.answer("u1")[1]
    house.request("u2", "seek", stream="by-country", partition=0, to=["skip", 7, 3])
    house.request("u3", "seek", stream="by-country", partition=0, to=["skip", 7])
    assert [one.to for one in house.state.run.seeks] == [("skip", 7, 3), ("skip", 7)]
    assert [order.to for _, order in seeks_told(house)] == [("skip", 7, 3), ("skip", 7)]
    house.request("u4", "seek", stream="by-country", to=["skip", 7])
    assert "partition" in house.answer("u4")[1]
    house.request("u5", "seek", stream="by-country", partition=0, to=["skip", 7, -1])
    assert "the record to skip" in house.answer("u5")[1]
