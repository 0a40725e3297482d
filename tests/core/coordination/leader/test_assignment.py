"""Grouping, placement, debounce, grace and growth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.coordination.leader.assignment import tasks_of
from headgate.core.coordination.leader.plan import Plan
from headgate.core.coordination.leader.protocol import BoundsResolved, Counts, LeaderIdLost, ResolveBounds
from headgate.core.coordination.messages import SetRun
from headgate.core.coordination.placement import place
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.graph.grouping import by_partition, counts
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition

from ...house import House, graph, plan


def test_tasks_come_from_the_counts_of_the_broker_and_grow_from_those_that_were_there():
    code = Plan(graph=graph())
    assert tasks_of(code, {}, None) is None
    assert counts(tasks_of(code, {"orders": 4}, None)) == {"by-country": 4, "orders": 4}
    before = JobModel(tasks=tasks_of(code, {"orders": 2}, None))
    assert counts(tasks_of(code, {"orders": 4}, before)) == {"by-country": 2, "orders": 4}


def test_without_partition_counts_there_is_no_model():
    house = House()
    house.partitions = {}
    one = house.worker("p1")
    assert house.state.model is None
    one.feed(one.leader, Counts({"orders": 2}))
    house.settle()
    assert len(one.tasks) == 2


def test_a_run_whose_inputs_are_not_counted_yet_waits_and_says_so():
    """A new leader of a run that is there: it may know nothing of the topics for a moment."""
    house = House()
    house.partitions = {}
    code = plan()
    house.append(SetRun("r1", "d1", "running", "u", fingerprint=dict(code.fingerprint)))
    one = house.worker("p1", code)
    assert house.state.model is None
    assert any("waiting for the partition counts" in note.text for note in one.notes)
    one.feed(one.leader, Counts({"orders": 2}))
    house.settle()
    assert len(one.tasks) == 2


def test_workers_that_come_together_are_placed_together():
    """The debounce: one new model for both."""
    house = House()
    house.worker("p1")
    house.worker("p2")
    house.run(0.5)
    house.worker("p3")
    house.run(3)
    assert house.state.model.version == 2
    assert sorted(map(len, house.state.model.placement().values())) == [1, 1, 2]


def test_without_state_tasks_of_those_who_go_are_granted_at_once():
    house = House()
    one = house.worker("p1", plan(graph=graph(stateful=False)))
    two = house.worker("p2", plan(graph=graph(stateful=False)))
    house.run(3)
    house.leave(two)
    assert len(one.tasks) == 4


def test_growth_without_state_makes_new_tasks_at_once():
    house = House(partitions=2)
    one = house.worker("p1", plan(graph=graph(stateful=False, shuffle="x")))
    epoch = house.state.model.producers["x"].epoch
    one.feed(one.leader, Counts({"orders": 3}))
    house.settle()
    assert len(one.tasks) == 3
    assert house.state.model.producers["x"].epoch == epoch + 1


def test_what_has_grown_between_runs_joins_the_tasks_that_are_there():
    house = House(partitions=2)
    house.worker("p1")
    house.request("u1", "drain")
    house.partitions = {"orders": 4}
    again = house.worker("p1")
    house.request("u2", "start")
    house.run(2)
    assert house.state.model.tasks["Partition 1"][-1] == StreamPartition("orders", 3)
    assert len(again.tasks) == 2


def test_what_cannot_be_is_said_and_nothing_is_made_of_it():
    """An input that shrank."""
    house = House(partitions=4)
    one = house.worker("p1", plan(graph=graph(stateful=False)))
    one.feed(one.leader, Counts({"orders": 2}))
    house.settle()
    assert len(one.tasks) == 4
    assert any("cannot shrink" in note.text for note in one.notes)


def test_a_placement_that_breaks_its_contract_is_said_and_not_used():
    house = House()
    one = house.worker("p1", plan(placer=lambda tasks, locality, processors, previous: {"nobody": tasks}))
    assert house.state.model is None
    assert any("cannot be placed" in note.text for note in one.notes)


def test_a_placement_that_raises_keeps_the_old_assignment_and_the_leader_goes_on():
    """It raised out of the leader's round, and every leader after it died of it, too."""
    broken = False

    def moody(tasks, locality, processors, previous):
        if broken:
            raise SystemExit("no")
        return place(tasks, locality, processors, previous)

    house = House()
    code = plan(placer=moody, placer_name="mine.place")
    one = house.worker("p1", code)
    before = house.state.model
    broken = True
    house.worker("p2", code)
    house.run(3)
    assert house.state.model == before
    assert len(one.tasks) == 4
    notes = [note.text for note in one.notes]
    assert any("the placement 'mine.place' raised SystemExit: no" in text for text in notes)
    broken = False
    house.run(3)
    assert len(one.tasks) == 2


def test_a_grouper_that_raises_while_an_input_grows_keeps_the_tasks_and_the_leader_goes_on():
    def moody(partitions, broadcast):
        return by_partition(partitions, broadcast) if partitions["orders"] == 2 else 1 / 0

    house = House(partitions=2)
    code = plan(graph=graph(stateful=False, shuffle=None), grouper=moody, grouper_name="mine.group")
    one = house.worker("p1", code)
    one.feed(one.leader, Counts({"orders": 3}))
    house.run(3)
    assert len(one.tasks) == 2
    assert any("the grouper 'mine.group' raised ZeroDivisionError" in note.text for note in one.notes)
    one.feed(one.leader, Counts({"orders": 2}))
    house.run(1)
    assert one.leader.state == "leading"


def test_a_drain_places_only_what_has_lost_its_owner_and_at_once():
    """Neither grace nor balance holds it up."""
    house = House()
    house.drains = False
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    house.request("u1", "drain")
    house.leave(two)
    assert len(one.tasks) == 4
    house.worker("p3")
    house.run(5)
    assert len(one.tasks) == 4


def test_no_one_waits_for_a_worker_that_goes_for_good():
    house = House()
    one = house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    house.request("u1", "stop", worker="p2", for_good=True)
    assert house.answer("u1") == ("done", "")
    assert two.exit.code == 0
    house.run(1)
    assert len(one.tasks) == 4


def test_all_workers_gone_keeps_the_model():
    house = House()
    one = house.worker("p1")
    version = house.state.model.version
    house.leave(one)
    house.run(20)
    again = house.worker("p1", process="later")
    house.run(1)
    assert house.state.model.version == version
    assert len(again.tasks) == 4


def test_locality_reaches_the_placement():
    """Where a task last ran, and where workers are, by the same names: those that the workers registered (Samza's hole 15: a task had the
    id of the provider, its worker the name of the machine, and they never matched).
    """
    asked = []

    def spy(tasks, locality, processors, previous):
        asked.append((dict(locality), dict(processors)))
        return place(tasks, locality, processors, previous)

    house = House(partitions=2)
    house.worker("p1", plan(placer=spy), location="rack-1")
    house.worker("p2", plan(placer=spy), location="rack-2")
    house.run(3)
    assert asked[-1][0] == {"Partition 0": "rack-1", "Partition 1": "rack-1"}
    assert asked[-1][1] == {"p1": "rack-1", "p2": "rack-2"}


@pytest.mark.parametrize("how", ["SIGTERM", "kill -9"])
def test_a_restart_with_other_workers_keeps_every_task_at_its_location(how):
    """All four leave, or die. Others come, in another order: each task goes where its store is, and none goes elsewhere before."""
    house = House(partitions=8, grace_s=30.0)
    old = [house.worker(f"p{n}", location=f"rack-{n % 2}") for n in range(4)]
    house.run(5)
    was = {task: house.state.location(task) for task in house.owners()}
    assert sorted(was.values()) == ["rack-0"] * 4 + ["rack-1"] * 4
    for one in old:
        house.leave(one) if how == "SIGTERM" else house.kill(one)
    for n in (3, 0, 1, 2):
        house.worker(f"q{n}", location=f"rack-{n // 2}")
        house.run(1)
    house.run(60)
    assert set(house.owners().values()) == {"q0", "q1", "q2", "q3"}
    assert {task: house.state.location(task) for task in house.owners()} == was
    assert {task: house.state.grant(task).last_location for task in was} == was


def auto(at):
    """Three workers at these locations; the second leaves. How long its tasks are without a worker, in seconds."""
    house = House(partitions=6, grace_auto=True)
    workers = [house.worker(f"p{n}", location=place) for n, place in enumerate(at)]
    house.run(5)
    assert sorted(len(one.tasks) for one in workers) == [2, 2, 2]
    house.leave(workers[1])
    seconds = 0.0
    while len(house.owners()) < 6:
        house.run(0.5)
        seconds += 0.5
    assert sorted(set(house.owners().values())) == ["p0", "p2"]
    return seconds


def test_with_auto_no_one_waits_for_a_worker_whose_tasks_find_their_state_at_another():
    """All tasks come to a worker that reads their disks. If one of them cannot, for balance, they all wait, as they do elsewhere."""
    assert auto(["rack-1", "rack-1", "rack-1"]) <= 0.5
    assert auto(["rack-1", "rack-1", "rack-2"]) == 10.0
    assert auto(["rack-1", "rack-2", "rack-1"]) == 10.0
    assert auto(["", "", ""]) == 10.0


def test_with_auto_the_last_worker_is_waited_for_and_gets_its_tasks_back():
    """There is nobody else. What comes in its place takes over at once, if it reads the same disk."""
    house = House(grace_auto=True)
    one = house.worker("p1", location="rack-1")
    house.run(3)
    version = house.state.model.version
    house.leave(one)
    again = house.worker("p1", process="later", location="rack-1")
    house.run(3)
    assert (house.state.model.version, len(again.tasks)) == (version, 4)
    house.leave(again)
    other = house.worker("p2", location="rack-1")
    house.run(1)
    assert len(other.tasks) == 4


def test_with_auto_a_placement_that_fails_makes_them_wait():
    """It is asked again when the grace is over, and says what is wrong."""

    def moody(tasks, locality, processors, previous):
        if len(processors) == 1:
            raise ValueError("not for one")
        return place(tasks, locality, processors, previous)

    house = House(grace_auto=True)
    one = house.worker("p1", plan(placer=moody), location="rack-1")
    two = house.worker("p2", plan(placer=moody), location="rack-1")
    house.run(3)
    house.leave(two)
    house.run(5)
    assert len(one.tasks) == 2
    assert any("not for one" in note.text for note in one.notes)


def test_no_one_waits_for_one_who_was_found_dead_by_silence():
    """Silence was wait enough."""
    house = House(grace_s=1000.0)
    one = house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    house.kill(two)
    house.run(9)
    assert len(one.tasks) == 4


def test_a_move_writes_the_next_version_of_the_same_tasks():
    house = House()
    house.worker("p1")
    house.worker("p2")
    house.run(3)
    before = house.state.model
    house.request("u1", "move", task=before.tasks_of("p1")[0], to="p2")
    assert house.state.model.version == before.version + 1
    assert house.state.model.tasks == before.tasks
    assert house.state.model.wanted != before.wanted


def test_the_model_of_a_new_version_names_the_streams_of_those_before():
    house = House()
    house.worker("p1")
    house.run(3)
    house.request("u1", "drain")
    house.worker("p1", plan("d2", graph=graph(shuffle="by-city")), run_id="r2")
    house.run(3)
    assert (house.state.model.deployment, house.state.model.former) == ("d2", ("by-country",))


def test_a_model_without_anyone_to_run_it_waits():
    """The only worker was dismissed while it alone could run anything."""
    house = House()
    one = house.worker("p1")
    one.stuck = set(one.tasks)
    version = house.state.model.version
    house.request("u1", "stop", worker="p1", for_good=True)
    house.run(3)
    assert house.state.model.version == version


def test_growth_that_would_change_a_task_that_is_there_waits_if_one_has_ended():
    """A grouper of the user's own puts new partitions into old tasks; such a task may have said its end already."""

    def one_task(partitions, broadcast):
        return {"One": [StreamPartition(stream, n) for stream, width in partitions.items() for n in range(width)]}

    house = House(partitions=2)
    one = house.worker("p1", plan(graph=graph(stateful=False, shuffle=None), grouper=one_task))
    before = house.state.model.tasks
    house.finished["One"] = "ended"
    one.report("One", "ended")
    one.feed(one.leader, Counts({"orders": 4}))
    house.settle()
    assert dict(house.state.model.tasks) == dict(before)


def test_an_input_whose_ends_were_resolved_for_the_run_does_not_grow_in_it():
    """Its readers may have heard the end of all its producers: a new one would write to nobody."""
    house = House(partitions=2)
    one = house.worker("p1", plan(graph=graph(stateful=False, shuffle=None)))
    house.append(replace(house.state.run, untils={"orders": (5, 5)}))
    house.settle()
    one.feed(one.leader, Counts({"orders": 4}))
    house.settle()
    assert len(house.state.model.tasks) == 2
    assert [note.text for note in one.notes if "grown" in note.text] == [
        "'orders' has grown to 4 partitions; its end was resolved when the run began, so they are read from the next run"
    ]


def bounded(until):
    """Without state, and with one input that ends."""
    return Graph((Input("orders", until=until),), (Stage("count", "to", ("orders",)),))


def test_an_input_that_grows_after_its_ends_were_resolved_has_no_task_without_an_end():
    """It grew before there was a model: the run reads the partitions that have an end, and no other."""
    house = House()
    house.partitions = {}
    one = house.worker("p1", plan(resolve=True, graph=bounded("newest")))
    one.hold.add(ResolveBounds)
    one.feed(one.leader, Counts({"orders": 2}))
    house.settle()
    [asked] = one.held
    one.feed(one.leader, Counts({"orders": 4}))
    one.feed(one.leader, BoundsResolved(asked.run_id, {}, {"orders": (5, 5)}))
    house.settle()
    assert house.state.model.streams == {"orders": 2}
    assert any("grown to 4" in note.text for note in one.notes)


def test_a_stopped_run_that_is_bounded_by_offsets_goes_on_although_its_input_has_grown():
    """Its ends stay those of its beginning. Only the next run needs an end for each partition that there is then."""
    house = House(partitions=2)
    house.untils = {"orders": (5, 5)}
    code = plan(resolve=True, graph=bounded(((0, 5), (1, 5))))
    house.worker("p1", code)
    run = house.state.run.run_id
    house.request("u1", "stop")
    house.run(3)
    assert house.state.run.state == "stopped"
    house.partitions = {"orders": 4}
    two = house.worker("p2", code, run_id=run)
    house.run(3)
    assert (house.state.run.run_id, house.state.run.state) == (run, "running")
    assert (house.state.model.streams, two.refused) == ({"orders": 2}, [])


def test_a_run_does_not_begin_if_a_partition_has_no_end():
    """The process is told why, and how to go on."""
    house = House(partitions=2)
    one = house.worker("p1", plan(resolve=True, graph=bounded(((0, 5),))))
    house.run(3)
    [refused] = one.refused
    assert refused.what == "input('orders'): until= gives no end for partition 1; the topic has 2 partitions"
    assert house.state.run is None


def test_leaders_that_come_and_go_do_not_make_the_grace_begin_anew():
    """A leader whose broker hiccups every few seconds: the tasks of a host that was taken away were placed never."""
    house = House(grace_s=10.0)
    workers = [house.worker(f"p{n}") for n in range(3)]
    house.run(3)
    gone = workers[2]
    held = set(gone.tasks)
    assert held
    house.leave(gone)
    for _ in range(4):
        house.run(3)
        leads = next(one for one in workers[:2] if one.processor in house.leads())
        leads.feed(leads.leader, LeaderIdLost(fenced=False, why="the broker hiccups"))
        house.settle()
    assert held <= set(house.owners())


def test_who_went_a_moment_ago_is_waited_for_by_the_next_leader_too():
    """A restart of a worker takes seconds, and the leader changes meanwhile: its tasks stay where their state lies."""
    house = House(grace_s=10.0)
    workers = [house.worker(f"p{n}") for n in range(3)]
    house.run(3)
    held = set(workers[2].tasks)
    house.leave(workers[2])
    house.run(2)
    leads = next(one for one in workers[:2] if one.processor in house.leads())
    leads.feed(leads.leader, LeaderIdLost(fenced=False, why="the broker hiccups"))
    house.run(6)
    assert not held & set(house.owners())
    back = house.worker("p2")
    house.run(2)
    assert set(back.tasks) == held


def test_another_placement_places_again_when_a_stopped_run_goes_on():
    """The workers are those of before, so nothing else would: the setting would wait until one comes or goes."""

    def on_the_first(tasks, locality, processors, previous):
        return {min(processors): tasks}

    house = House()
    for name in ("p1", "p2"):
        house.worker(name)
    house.run(3)
    assert sorted(len(one.tasks) for one in house.workers) == [2, 2]
    house.request("u1", "stop")
    other = plan(placer=on_the_first, placer_name="mine:on_the_first")
    one, two = house.worker("p1", other), house.worker("p2", other)
    house.run(1)
    house.request("u2", "start")
    house.run(3)
    assert (len(one.tasks), len(two.tasks)) == (4, 0)
    version = house.state.model.version
    house.request("u3", "move", task=min(one.tasks), to="p2")
    house.run(5)
    assert (len(one.tasks), len(two.tasks)) == (3, 1)  # what an operator has moved stays there
    assert house.state.model.version == version + 1
