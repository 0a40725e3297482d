"""Topics that match a pattern and come while the run lives: what joins it, and what is only named."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from headgate.core import orders as o
from headgate.core.coordination.leader import joining
from headgate.core.coordination.leader.protocol import Counts
from headgate.core.coordination.run_choice import too_old
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.names import StreamPartition

from ...house import House, graph, plan


def wider(topics: tuple[str, ...], *, stateful: bool = True, meet: bool = False, **options: Any) -> Graph:
    """The graph of `house`, with these inputs merged into the first one."""
    inputs = ("orders", *topics)
    made = graph(stateful=stateful)
    first = replace(made.stages[0], reads=inputs)
    met = (Stage("met", "agg", inputs, stateful=True),) if meet else ()
    return Graph((*made.inputs, *(Input(topic, **options) for topic in topics)), (first, *made.stages[1:], *met))


def code(**options: Any) -> Any:
    stateful = options.get("stateful", True)
    return plan(graph=graph(stateful=stateful), wider=partial(wider, **options))


def see(house: House, topics: dict[str, int]) -> None:
    """All workers see these topics."""
    for one in house.workers:
        if one.turns:
            one.feed(one.leader, Counts(house.partitions, topics))
    house.settle()


def starts(one: Any, task: str) -> int:
    return one.tasks[task].grant


def test_a_topic_joins_and_only_the_tasks_that_read_it_are_granted_again_where_they_are():
    house = House()
    one, two = house.worker("p1", code()), house.worker("p2", code())
    house.run(3)
    before = house.state.model
    grants = {task: house.state.grant(task).grant for task in before.tasks}
    see(house, {"orders-it": 2})
    run, model = house.state.run, house.state.model
    assert run.joined == ("orders-it",)
    assert not run.unjoined
    assert run.fingerprint == one.code.fingerprint
    assert model.wanted == before.wanted
    assert model.streams == {**before.streams, "orders-it": 2}
    assert model.tasks["Partition 1"] == (*before.tasks["Partition 1"], StreamPartition("orders-it", 1))
    again = {task for task in grants if house.state.grant(task).grant > grants[task]}
    assert again == {"Partition 0", "Partition 1"}
    assert {task: owner.processor for owner in (one, two) for task in owner.tasks} == dict(before.wanted)
    house.run(5)
    assert house.state.model == model


def test_a_leader_that_comes_later_decides_nothing_else():
    """The first one dies when it has decided; what it wrote is all that there is."""
    house = House()
    one = house.worker("p1", code())
    two = house.worker("p2", code())
    house.run(3)
    see(house, {"orders-it": 2})
    joined = house.state.model
    house.kill(one)
    house.run(20)
    assert two.leader.state == "leading"
    see(house, {"orders-it": 2, "orders-uk": 1})
    assert house.state.run.joined == ("orders-it", "orders-uk")
    assert house.state.model.streams == {**joined.streams, "orders-uk": 1}
    assert len(two.tasks) == 4


def test_a_worker_that_comes_later_and_a_resumed_run_have_the_same_inputs():
    """Also if the topic is gone by then."""
    house = House()
    house.worker("p1", code())
    see(house, {"orders-it": 2})
    joined = house.state.model
    house.request("u1", "stop")
    assert house.state.run.state == "stopped"
    two = house.worker("p2", code())
    house.request("u2", "start")
    house.run(20)
    assert house.state.run.state == "running"
    assert house.state.model.streams == joined.streams
    assert len(two.tasks) == 4


def test_the_next_run_begins_with_what_its_code_reads():
    house = House()
    house.worker("p1", code())
    see(house, {"orders-it": 2})
    house.request("u1", "drain")
    house.worker("p1", replace(code(), graph=wider(("orders-it",))))
    house.partitions = {"orders": 4, "orders-it": 2}
    for one in house.workers:
        if one.turns:
            one.feed(one.leader, Counts(house.partitions))
    house.request("u2", "start")
    house.run(3)
    assert house.state.run.joined == ()
    assert house.state.model.streams["orders-it"] == 2


def test_a_job_without_state_gets_tasks_for_a_wider_topic():
    house = House(partitions=2)
    one = house.worker("p1", code(stateful=False))
    epoch = house.state.model.producers["by-country"].epoch
    see(house, {"orders-it": 3})
    house.run(3)
    assert house.state.run.joined == ("orders-it",)
    assert sorted(one.tasks) == ["Partition 0", "Partition 1", "Partition 2"]
    assert house.state.model.tasks["Partition 0"][1:] == (StreamPartition("orders", 0), StreamPartition("orders-it", 0))
    assert house.state.model.producers["by-country"].epoch == epoch + 1


@pytest.mark.parametrize(
    ("width", "options", "why"),
    [
        (5, {}, "has 5 partitions, and the job has state in 4 tasks"),
        (3, {"meet": True}, "partitioned alike"),
        (2, {"until": "newest"}, "the run ends where its inputs ended"),
        (2, {"bootstrap": True}, "read before anything else"),
        (2, {"broadcast": True}, "read before anything else"),
    ],
)
def test_what_cannot_join_is_named_in_the_run_and_changes_nothing(width: int, options: dict[str, Any], why: str):
    house = House()
    one = house.worker("p1", code(**options))
    before = house.state.model
    see(house, {"orders-it": width})
    run = house.state.run
    assert run.joined == ()
    assert why in run.unjoined["orders-it"]
    assert house.state.model == before
    assert any("does not join the run" in note.text for note in one.notes)
    see(house, {})
    assert not house.state.run.unjoined


def test_nothing_joins_a_run_that_drains_or_of_which_a_task_has_ended():
    house = House()
    house.drains = False
    one = house.worker("p1", code())
    one.report("Partition 1", o.TaskState.ENDED)
    see(house, {"orders-it": 2})
    assert "a task of the run has ended" in house.state.run.unjoined["orders-it"]
    house.request("u1", "drain")
    see(house, {"orders-it": 2, "orders-uk": 2})
    assert house.state.run.joined == ()


def test_a_holder_that_does_not_release_for_it_is_fenced():
    house = House()
    one = house.worker("p1", code())
    one.stuck.add("Partition 1")
    see(house, {"orders-it": 2})
    assert isinstance(one.tasks["Partition 1"].told[-1], o.Release)
    house.run(40)
    one.stuck.clear()
    house.run(10)
    assert house.fenced
    assert len(one.tasks) == 4


def test_a_drain_in_the_middle_is_done_by_all_tasks_with_what_has_joined():
    house = House()
    one = house.worker("p1", code())
    one.stuck.add("Partition 1")
    see(house, {"orders-it": 2})
    house.request("u1", "drain")
    assert house.state.run.state == "draining"
    one.stuck.clear()
    task = one.tasks.pop("Partition 1")
    one.feed(one.member, o.TaskReported("Partition 1", task.grant, o.TaskState.RELEASED))
    house.settle()
    assert house.state.run.state == "drained"
    assert StreamPartition("orders-it", 1) in house.state.model.tasks["Partition 1"]


# ------------------------------------------------------------------------------------------------------------- older versions


def test_no_topic_joins_while_an_older_version_is_there():
    """It would fail the tasks that read the topic. The run says whom it waits for; with the last upgrade the topic joins by itself."""
    house = House()
    house.worker("p1", code())
    old = house.worker("p2", code(), widens=False, version="0.1.0")
    house.run(3)
    before = house.state.model
    see(house, {"orders-it": 2})
    why = "worker 'p2' has version 0.1.0, which cannot take it up: it joins when all workers are upgraded"
    assert (house.state.run.joined, house.state.run.unjoined) == ((), {"orders-it": why})
    assert house.state.model == before
    house.kill(old)
    house.worker("p2", code())
    house.run(20)
    assert (house.state.run.joined, dict(house.state.run.unjoined)) == (("orders-it",), {})
    assert {task: owner.processor for owner in house.workers for task in owner.tasks} == dict(house.state.model.wanted)


def test_a_leader_that_does_not_look_at_versions_is_found(monkeypatch: pytest.MonkeyPatch):
    """Planted: the topic joins, and the older worker is to run tasks that it would fail."""
    monkeypatch.setattr(joining, "older", lambda draft: ())
    with pytest.raises(AssertionError):
        test_no_topic_joins_while_an_older_version_is_there()


def test_an_older_version_that_comes_later_gets_no_tasks():
    """The topics that have joined are a part of the run. It waits, and says so; when it is upgraded, it gets its share."""
    house = House()
    one = house.worker("p1", code())
    see(house, {"orders-it": 2})
    old = house.worker("p2", code(), widens=False, version="0.1.0")
    house.run(20)
    assert set(house.state.model.wanted.values()) == {"p1"}
    assert not old.tasks
    assert any("worker 'p2' of version 0.1.0 gets no tasks" in note.text for note in one.notes)
    house.kill(old)
    house.worker("p2", code())
    house.run(20)
    assert set(house.state.model.wanted.values()) == {"p1", "p2"}


def test_tasks_of_a_worker_that_comes_back_in_an_older_version_go_to_others():
    """A downgrade while topics have joined: whoever can read them takes its tasks over."""
    house = House()
    house.worker("p1", code())
    two = house.worker("p2", code())
    house.run(3)
    see(house, {"orders-it": 2})
    house.kill(two)
    old = house.worker("p2", code(), widens=False)
    house.run(40)
    assert (set(house.state.model.wanted.values()), old.tasks) == ({"p1"}, {})


def test_who_is_too_old_is_known():
    """The status names it while it is there."""
    house = House()
    house.worker("p1", code())
    see(house, {"orders-it": 2})
    assert too_old(house.state) == []
    old = house.worker("p2", code(), widens=False)
    house.run(3)
    assert [one.processor for one in too_old(house.state)] == ["p2"]
    house.kill(old)
    house.run(30)
    assert [one.processor for one in too_old(house.state) if one.state != "joined"] == []
