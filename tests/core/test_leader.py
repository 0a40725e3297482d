"""The leader machine: elections, terms, and whole stories of a job from its first worker to its last."""

from __future__ import annotations

from headgate.core import orders as o

from .house import House, plan


def test_the_first_worker_leads_at_once_and_runs_everything():
    """Nobody was there before: it leads without waiting, names itself, makes the model and grants itself all tasks."""
    house = House()
    one = house.worker("p1")
    assert house.leads() == ["p1"]
    assert house.owners() == {f"Partition {n}": "p1" for n in range(4)}
    assert one.ready is not None
    assert one.ready.ready
    assert house.state.run is not None
    assert house.state.run.state == "running"
    assert house.state.changelogs == {f"Partition {n}": n for n in range(4)}


def test_a_second_worker_takes_its_share_and_nothing_else_moves():
    """Tasks that do not move do not pause."""
    house = House()
    one = house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    assert sorted(len(w.tasks) for w in (one, two)) == [2, 2]
    assert all(task.grant == 1 for task in one.tasks.values())
    assert all(task.grant == 2 for task in two.tasks.values())


def test_drain_closes_the_run_answers_and_everybody_exits_0():
    """Drained, released, closed, answered; and a restart begins nothing."""
    house = House()
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    house.wish("u1", "drain")
    assert house.state.run.state == "drained"
    assert house.answer("u1") == ("done", "")
    assert [w.exit.code for w in (one, two)] == [0, 0]
    again = house.worker("p1")
    house.run(10)
    assert house.state.run.state == "drained"
    assert again.exit is None
    assert not again.ready.ready
    assert "drained" in again.ready.why


def test_a_worker_that_dies_is_fenced_and_its_tasks_go_on_elsewhere():
    """Silence of session.timeout, then the fence, then the grants."""
    house = House()
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    house.kill(two)
    house.run(5)
    assert len(house.owners()) == 2
    house.run(5)
    assert house.owners() == {f"Partition {n}": "p1" for n in range(4)}
    assert ("p2", two.init[0]) in house.fenced
    assert one.tasks["Partition 1"].told[0].run.run_id == house.state.run.run_id


def test_the_leader_dies_and_another_leads():
    """The next leader waited the same silence; it finds the same state, and fences the dead one."""
    house = House()
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    house.kill(one)
    house.run(20)
    assert house.leads() == ["p2"]
    assert house.state.leader.term == 2
    assert house.owners() == {f"Partition {n}": "p2" for n in range(4)}


def test_a_broker_outage_kills_nobody():
    """Nothing of the leader's own came back, so nobody was silent."""
    house = House()
    house.worker("p1"), house.worker("p2")
    house.run(3)
    before = house.owners()
    house.broker_up = False
    house.run(60)
    house.broker_up = True
    house.run(10)
    assert house.owners() == before
    assert house.fenced == set()


def test_sigterm_hands_over_after_the_grace():
    """Tasks with state wait for the processor to come back; then they go where placement says."""
    house = House()
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    mine = set(two.tasks)
    house.leave(two)
    assert two.exit.code == 0
    house.run(5)
    assert set(house.owners()) == {f"Partition {n}" for n in range(4)} - mine
    house.run(8)
    assert len(house.owners()) == 4
    assert set(one.tasks) == set(house.owners())


def test_a_worker_that_comes_back_in_time_gets_its_own_tasks_again():
    house = House()
    house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    mine = set(two.tasks)
    house.leave(two)
    house.run(5)
    again = house.worker("p2")
    house.run(1)
    assert set(again.tasks) == mine


def test_stop_and_start_resume_the_same_run():
    house = House()
    house.worker("p1")
    run = house.state.run.run_id
    house.wish("u1", "stop")
    assert house.state.run.state == "stopped"
    assert house.answer("u1") == ("done", "")
    again = house.worker("p1")
    house.run(3)
    assert again.tasks == {}
    house.wish("u2", "start")
    house.run(2)
    assert house.answer("u2")[0] == "done"
    assert house.state.run.run_id == run
    assert len(again.tasks) == 4


def test_all_inputs_ended_ends_the_run():
    house = House()
    one = house.worker("p1")
    for task in list(one.tasks):
        one.report(task, o.ENDED)
    assert house.state.run.state == "ended"
    assert one.exit.code == 0


def test_a_new_deployment_begins_the_next_run_even_when_an_old_worker_leads():
    """The leader of the old code resigns for the one that has the new."""
    house = House()
    house.worker("p1")
    house.wish("u1", "drain")
    house.worker("p1")
    house.run(2)
    assert house.leads() == ["p1"]
    new = house.worker("p2", plan("d2"))
    house.run(3)
    assert house.state.run.state == "running"
    assert house.state.run.deployment == "d2"
    assert house.leads() == ["p2"]
    assert len(new.tasks) == 4
