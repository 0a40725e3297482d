"""Inputs that get partitions while the run lives: what tasks become of them, and what is only named."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headgate.core import orders as o
from headgate.core.coordination.leader import growing
from headgate.core.coordination.leader.protocol import BoundsResolved, CountInputs, Counts, ResolveBounds
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.names import StreamPartition

from ...house import House, graph, plan


def see(house: House, **widths: int) -> None:
    """All workers see these widths."""
    house.partitions = {**house.partitions, **widths}
    for one in house.workers:
        if one.turns:
            one.feed(one.leader, Counts(house.partitions))
    house.settle()


def two_inputs(*, joined: bool = True, **options: Any) -> Graph:
    """`orders` and `users`, each with state of its own, or joined by key."""
    inputs = (Input("orders"), Input("users", **options))
    if joined:
        return Graph(inputs, (Stage("met", "agg", ("orders", "users"), stateful=True),))
    return Graph(
        inputs, tuple(Stage(f"count-{n}", "agg", (one.stream,), stateful=True) for n, one in enumerate(inputs))
    )


def house_of(code: Any, **widths: int) -> tuple[House, Any]:
    house = House()
    house.partitions = widths
    return house, house.worker("p1", code)


def test_with_state_each_task_reads_one_more_where_it_is():
    house = House(partitions=2)
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    before = house.state.model
    grants = {task: house.state.grant(task).grant for task in before.tasks}
    see(house, orders=4)
    model = house.state.model
    assert model.tasks["Partition 0"] == (*before.tasks["Partition 0"], StreamPartition("orders", 2))
    assert model.tasks["Partition 1"] == (*before.tasks["Partition 1"], StreamPartition("orders", 3))
    assert (model.wanted, model.streams["by-country"]) == (before.wanted, before.streams["by-country"])
    assert {task: house.state.grant(task).grant for task in grants} == {task: n + 1 for task, n in grants.items()}
    assert {task: owner.processor for owner in (one, two) for task in owner.tasks} == dict(before.wanted)
    assert not house.state.run.ungrown
    house.run(5)
    assert house.state.model == model


def test_only_the_tasks_that_get_more_are_granted_again():
    """`users` stays: its tasks that get nothing of `orders` work on."""
    house, one = house_of(plan(graph=two_inputs(joined=False)), orders=1, users=3)
    grants = {task: one.tasks[task].grant for task in one.tasks}
    see(house, orders=2)
    assert house.state.model.tasks["Partition 0"][:2] == (StreamPartition("orders", 0), StreamPartition("orders", 1))
    assert {task for task in grants if one.tasks[task].grant > grants[task]} == {"Partition 0"}


def test_without_state_tasks_that_are_there_get_more_too():
    """`users` has made a task for the partition that `orders` gets."""
    code = Graph((Input("orders"), Input("users")), (Stage("out", "to", ("orders", "users")),))
    house, one = house_of(plan(graph=code), orders=1, users=2)
    grants = {task: one.tasks[task].grant for task in one.tasks}
    see(house, orders=3)
    house.run(3)
    assert house.state.model.tasks["Partition 1"] == (StreamPartition("orders", 1), StreamPartition("users", 1))
    assert sorted(one.tasks) == ["Partition 0", "Partition 1", "Partition 2"]
    assert {task for task in grants if one.tasks[task].grant > grants[task]} == {"Partition 1"}


def test_a_leader_that_comes_later_finds_the_decision():
    """It may have counted before the input grew: what the model gives to tasks, no leader takes away."""
    house = House(partitions=2)
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    for some in (one, two):
        some.feed(some.leader, Counts({"orders": 4 if some is one else 2}))
    house.settle()
    grown = house.state.model
    assert grown.streams["orders"] == 4
    house.kill(one)
    house.run(20)
    assert two.leader.state == "leading"
    assert house.state.model.tasks == grown.tasks
    see(house, orders=8)
    assert house.state.model.tasks["Partition 1"][-1] == StreamPartition("orders", 7)
    assert len(two.tasks) == 2


def test_a_leader_that_dies_before_it_decides_leaves_it_to_the_next():
    house = House(partitions=2)
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    one.frozen = True
    house.partitions = {"orders": 4}
    two.feed(two.leader, Counts(house.partitions))
    house.kill(one)
    house.run(20)
    assert house.state.model.streams["orders"] == 4
    assert len(two.tasks) == 2


def test_two_inputs_that_grow_at_the_same_time_are_taken_up_together():
    """`orders` alone would not fit, as it could not be joined with `users`: it waits until that has grown, too."""
    house, one = house_of(plan(graph=two_inputs()), orders=2, users=2)
    see(house, users=4)
    see(house, orders=6)
    assert "partitioned alike" in house.state.run.ungrown["orders"]
    assert house.state.model.streams == {"orders": 2, "users": 4}
    version = house.state.model.version
    see(house, users=12)
    assert house.state.model.streams == {"orders": 6, "users": 12}
    assert (house.state.model.version, dict(house.state.run.ungrown)) == (version + 1, {})
    assert len(one.tasks) == 2


def test_of_two_that_do_not_fit_together_one_is_taken_up():
    house, _ = house_of(plan(graph=two_inputs()), orders=2, users=2)
    see(house, orders=4, users=6)
    assert house.state.model.streams == {"orders": 4, "users": 2}
    assert list(house.state.run.ungrown) == ["users"]


def test_of_two_that_grow_the_one_that_fits_is_taken_up():
    house, one = house_of(plan(graph=two_inputs(joined=False)), orders=2, users=2)
    see(house, orders=3, users=4)
    assert house.state.model.streams == {"orders": 2, "users": 4}
    assert list(house.state.run.ungrown) == ["orders"]
    assert any("'orders' has grown to 3 partitions" in note.text for note in one.notes)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (plan(), "a job with state can follow only a multiple, .* grow it to 4 partitions"),
        (plan(graph=two_inputs()), "a job with state can follow only a multiple"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_remedy_and_the_job_works_on(code: Any, why: str):
    house, one = house_of(code, orders=2, users=2)
    before = house.state.model
    see(house, orders=3)
    assert house.state.model == before
    assert len(one.tasks) == 2
    assert re.search(why, house.state.run.ungrown["orders"])
    see(house, orders=4)
    assert (house.state.model.streams["orders"], dict(house.state.run.ungrown)) == (4, {})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"until": "newest"}, "the run ends where its inputs ended"),
        ({"bootstrap": True}, "read before anything else"),
        ({"broadcast": True}, "read before anything else"),
        ({"producers": ("up",)}, "read before anything else"),
    ],
)
def test_an_input_that_is_no_stream_without_an_end_waits_for_the_next_run(options: dict[str, Any], why: str):
    house, one = house_of(plan(graph=two_inputs(joined=False, **options)), orders=2, users=2)
    see(house, users=4)
    assert why in house.state.run.ungrown["users"]
    assert "from the next run" in house.state.run.ungrown["users"]
    assert house.state.model.streams["users"] == 2
    assert len(one.tasks) == 2


def test_nothing_grows_in_a_run_that_drains_or_of_which_a_task_has_ended():
    house = House(partitions=2)
    house.drains = False
    one = house.worker("p1")
    one.report("Partition 1", o.TaskState.ENDED)
    see(house, orders=4)
    assert "a task of the run has ended" in house.state.run.ungrown["orders"]
    house.request("u1", "drain")
    see(house, orders=8)
    assert house.state.model.streams["orders"] == 2
    assert any("'orders' has grown to 8 partitions; the run drains" in note.text for note in one.notes)


def test_nothing_grows_while_an_older_version_is_there():
    """It would not let go of the tasks that get more. With the last upgrade the partitions are read."""
    house = House(partitions=2)
    house.worker("p1")
    old = house.worker("p2", widens=False, version="0.1.0")
    house.run(3)
    see(house, orders=4)
    why = "worker 'p2' has version 0.1.0, which cannot take them up: they are read when all workers are upgraded"
    assert dict(house.state.run.ungrown) == {"orders": why}
    house.kill(old)
    house.worker("p2")
    house.run(20)
    assert (house.state.model.streams["orders"], dict(house.state.run.ungrown)) == (4, {})


def test_a_leader_that_does_not_look_at_versions_is_found(monkeypatch: pytest.MonkeyPatch):
    """Planted."""
    monkeypatch.setattr(growing, "cannot", lambda *_: "")
    with pytest.raises((AssertionError, KeyError)):
        test_nothing_grows_while_an_older_version_is_there()


def test_a_drain_in_the_middle_is_done_with_what_the_tasks_have_got():
    house = House(partitions=2)
    one = house.worker("p1")
    one.stuck.add("Partition 1")
    see(house, orders=4)
    house.request("u1", "drain")
    one.stuck.clear()
    task = one.tasks.pop("Partition 1")
    one.feed(one.member, o.TaskReported("Partition 1", task.grant, o.TaskState.RELEASED))
    house.settle()
    assert house.state.run.state == "drained"
    assert StreamPartition("orders", 3) in house.state.model.tasks["Partition 1"]


def test_a_seek_of_a_stream_that_grows_meanwhile_is_of_the_partitions_that_it_named():
    house = House(partitions=2)
    house.seeks = False
    one = house.worker("p1")
    house.request("u1", "seek", stream="orders", to="oldest", partition=1)
    see(house, orders=4)
    asked = [order for order in one.tasks["Partition 1"].told if isinstance(order, o.Seek)]
    assert [(order.stream, order.partition) for order in asked] == [("orders", 1)]
    one.feed(one.member, o.SeekApplied("Partition 1", asked[0].request))
    house.settle()
    assert house.state.answer("u1").state == "done"


def resolve(house: House, one: Any, *ends: int) -> None:
    [asked] = one.held
    one.held.clear()
    one.feed(one.leader, BoundsResolved(asked.run_id, {"orders": ends}, {}))
    house.settle()


def test_what_starts_at_its_end_is_read_from_its_beginning_where_it_has_grown():
    """In the live run, in the run that is resumed, and in the next one, which takes up what this one did not."""
    house = House()
    house.partitions = {}
    code = plan(resolve=True, graph=Graph((Input("orders", start="newest"),), graph().stages))
    one = house.worker("p1", code)
    one.hold.add(ResolveBounds)
    see(house, orders=2)
    resolve(house, one, 5, 6)
    see(house, orders=4)
    assert (house.state.model.streams["orders"], house.state.run.starts) == (4, {"orders": (5, 6)})
    see(house, orders=5)
    assert house.state.model.streams["orders"] == 4
    house.request("u1", "drain")
    assert house.state.run.state == "drained"
    house.partitions = {"orders": 8}
    two = house.worker("p1", code)
    two.hold.add(ResolveBounds)
    house.request("u2", "start")
    house.run(1)
    resolve(house, two, 10, 11, 12, 13, 14, 15, 16, 17)
    assert house.state.run.starts == {"orders": (10, 11, 12, 13)}
    assert house.state.model.streams["orders"] == 8


# ---------------------------------------------------------------------------------------------------------------- the request


def test_who_asks_is_told_what_was_found_and_what_follows():
    house = House(partitions=2)
    one = house.worker("p1")
    house.partitions = {"orders": 4}
    house.request("u1", "grow")
    assert house.answer("u1") == ("done", "orders: 2 → 4 partitions; each of 2 tasks reads one more")
    progress = house.state.answer("u1").progress
    assert progress["inputs"] == [
        {"input": "orders", "was": 2, "now": 4, "read": True, "then": "each of 2 tasks reads one more"}
    ]
    assert len(one.tasks) == 2
    house.request("u2", "grow")
    assert house.answer("u2") == ("done", "no input has new partitions")


def test_new_tasks_are_told():
    house = House(partitions=2)
    one = house.worker("p1", plan(graph=graph(stateful=False, shuffle=None)))
    house.partitions = {"orders": 5}
    house.request("u1", "grow")
    assert house.answer("u1") == ("done", "orders: 2 → 5 partitions; 3 new tasks")
    assert len(one.tasks) == 5


def test_what_is_not_read_is_told_with_the_reason():
    house = House(partitions=2)
    house.worker("p1")
    house.partitions = {"orders": 3}
    house.request("u1", "grow")
    state, why = house.answer("u1")
    assert (state, house.state.model.streams["orders"]) == ("done", 2)
    assert why.startswith("orders: 2 → 3 partitions; 'orders' grew from 2 to 3 partitions; a job with state")
    assert "grow it to 4 partitions" in why


def test_it_is_done_when_the_tasks_run_with_what_they_have_got():
    house = House(partitions=2)
    one = house.worker("p1")
    one.stuck.add("Partition 1")
    house.partitions = {"orders": 4}
    house.request("u1", "grow")
    assert house.answer("u1")[0] == "running"
    one.stuck.clear()
    task = one.tasks.pop("Partition 1")
    one.feed(one.member, o.TaskReported("Partition 1", task.grant, o.TaskState.RELEASED))
    house.settle()
    assert house.answer("u1")[0] == "done"


def test_a_task_that_fails_with_what_it_has_got_is_named():
    house = House(partitions=2)
    one = house.worker("p1")
    one.stuck.add("Partition 0")
    house.partitions = {"orders": 4}
    house.request("u1", "grow")
    one.report("Partition 1", o.TaskState.FAILED, "no", still=True)
    assert house.answer("u1") == ("failed", "Partition 1: no")


def test_the_answer_rests_on_a_count_that_began_later_and_the_next_leader_counts_anew():
    house = House(partitions=2)
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    one.hold.add(CountInputs)
    house.request("u1", "grow")
    one.feed(one.leader, Counts({"orders": 2}))
    house.settle()
    assert house.answer("u1")[0] == "running"
    house.partitions = {"orders": 4}
    house.kill(one)
    house.run(20)
    assert two.leader.state == "leading"
    assert house.answer("u1") == ("done", "orders: 2 → 4 partitions; each of 2 tasks reads one more")


def test_nothing_is_counted_without_a_live_run_and_one_that_closes_meanwhile_says_so():
    house = House(partitions=2)
    one = house.worker("p1")
    one.hold.add(CountInputs)
    house.request("u0", "grow", run_id="other")
    assert house.state.answer("u0").reason == "other run"
    house.request("u1", "grow")
    house.request("u2", "stop")
    house.run(3)
    house.worker("p2")
    assert house.answer("u1")[0] == "failed"
    house.request("u3", "grow")
    assert house.state.answer("u3").reason == "no live run"


def test_a_task_that_gets_more_while_another_worker_prepares_it_still_moves():
    """The preparation was of the grant before; what the next owner has read of its log stays good."""
    house = House(partitions=2)
    house.worker("p1", follows=True)
    house.near = False
    house.worker("p2", follows=True)
    house.run(3)
    assert house.state.model.preparing
    see(house, orders=4)
    assert house.state.model.streams["orders"] == 4
    house.near = True
    house.run(400)
    assert not house.state.model.preparing
    assert {task: owner.processor for owner in house.workers for task in owner.tasks} == dict(house.state.model.wanted)
    assert sorted(house.state.model.wanted.values()) == ["p1", "p2"]


def test_a_stopped_run_goes_on_with_what_its_input_got_meanwhile():
    house = House(partitions=2)
    house.worker("p1")
    house.request("u1", "stop")
    assert house.state.run.state == "stopped"
    house.partitions = {"orders": 4}
    two = house.worker("p2")
    house.request("u2", "start")
    house.run(20)
    assert (house.state.run.state, house.state.model.streams["orders"]) == ("running", 4)
    assert StreamPartition("orders", 3) in house.state.model.tasks["Partition 1"]
    assert len(two.tasks) == 2


def test_without_state_a_task_that_is_there_gets_nothing_more_once_one_has_ended():
    """New tasks alone would be fine: they change none of those that are there."""
    code = Graph((Input("orders"), Input("users")), (Stage("out", "to", ("orders", "users")),))
    house, one = house_of(plan(graph=code), orders=1, users=2)
    one.report("Partition 1", o.TaskState.ENDED)
    see(house, orders=2)
    assert "a task of the run has ended" in house.state.run.ungrown["orders"]
    see(house, users=3)
    house.run(3)
    assert house.state.model.streams == {"orders": 1, "users": 3}
    assert sorted(one.tasks) == ["Partition 0", "Partition 1", "Partition 2"]


def test_tasks_that_get_different_numbers_are_counted_together():
    """A grouper of the user's own."""

    def halves(partitions, broadcast):
        every = [StreamPartition(stream, n) for stream, width in partitions.items() for n in range(width)]
        return {name: [at for at in every if at.partition % 2 == rest] for rest, name in enumerate(("Even", "Odd"))}

    house, _ = house_of(plan(graph=graph(stateful=False, shuffle=None), grouper=halves), orders=2)
    house.partitions = {"orders": 5}
    house.request("u1", "grow")
    assert house.answer("u1") == ("done", "orders: 2 → 5 partitions; 2 tasks read 3 more")


def test_it_waits_for_the_tasks_of_a_run_that_begins():
    house = House()
    house.partitions = {}
    one = house.worker("p1")
    house.request("u1", "grow")
    assert house.answer("u1") == ("refused", "no live run")
    one.hold.add(CountInputs)
    see(house, orders=2)
    house.request("u2", "grow")
    assert house.answer("u2")[0] == "running"
    [asked] = one.held
    one.feed(one.leader, Counts({"orders": 2}, asked=asked.number))
    house.settle()
    assert house.answer("u2") == ("done", "no input has new partitions")
