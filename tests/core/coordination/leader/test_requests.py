"""Requests: each gets its effect, and exactly one final answer."""

from __future__ import annotations

import pytest

from headgate.core import orders as o
from headgate.core.coordination import messages as c
from headgate.core.coordination.leader.draft import Draft, Memory
from headgate.core.coordination.leader.plan import LeaderConfig
from headgate.core.coordination.leader.requests import requests
from headgate.core.coordination.state import FINAL, JobState
from headgate.core.machine import Now

from ...house import House, plan


def finals(house: House, uuid: str) -> list[c.SetAnswer]:
    """Every final answer that was ever written for it."""
    said = [e.message for e in house.log if isinstance(e.message, c.SetAnswer)]
    return [answer for answer in said if answer.uuid == uuid and answer.state in FINAL]


def a_house(workers: int = 1, **given: object) -> House:
    house = House(**given)
    for n in range(workers):
        house.worker(f"p{n + 1}")
    house.run(3)
    return house


def test_a_drain_of_another_run_is_refused():
    house = a_house()
    house.request("u1", "drain", run_id="other", not_after=house.now.wall + 10**9)
    assert house.answer("u1") == ("refused", f"other run: the live run is {house.state.run.run_id}")
    assert house.state.run.state == "running"


def test_a_drain_that_waits_for_its_run_waits_while_other_runs_come_and_go():
    """It was refused when another run began first: nobody was told, and the night's drain was gone."""
    house = a_house()
    house.request("u1", "drain")
    house.request("tonight", "drain", run_id="tonight")
    other = house.worker("p1", run_id="other")
    house.run(3)
    assert (house.state.run.run_id, house.state.run.state, house.answer("tonight")) == ("other", "running", ("", ""))
    house.request("u2", "drain")
    assert other.exit is not None
    house.worker("p1", run_id="tonight")
    house.run(3)
    assert (house.state.run.run_id, house.state.run.state) == ("tonight", "drained")
    assert house.answer("tonight")[0] == "done"


def test_a_drain_of_a_run_that_is_over_is_done_and_without_a_run_is_refused():
    house = a_house()
    run = house.state.run.run_id
    house.request("u1", "drain")
    house.worker("p1")
    house.request("u2", "drain")
    house.request("u3", "drain", run_id=run)
    house.request("u4", "drain", run_id="to-come")
    assert house.answer("u2") == house.answer("u3") == ("done", f"run {run} is drained")
    assert house.answer("u4") == ("", "")


def test_a_stopped_run_is_not_drained():
    house = a_house()
    run = house.state.run.run_id
    house.request("u1", "stop")
    house.worker("p1")
    house.request("u2", "drain", run_id=run)
    assert "stopped; start it" in house.answer("u2")[1]


def test_a_second_drain_gets_its_own_answer():
    house = a_house()
    house.drains = False
    house.request("u1", "drain")
    house.request("u2", "drain")
    assert [house.answer(u)[0] for u in ("u1", "u2")] == ["running", "running"]
    for task in list(house.workers[0].tasks):
        house.workers[0].report(task, o.TaskState.DRAINED)
    assert [house.answer(u)[0] for u in ("u1", "u2")] == ["done", "done"]


def test_a_task_that_gives_up_fails_the_answer_and_the_run_goes_on_when_it_can():
    """Failed: which, why. Stopped, and resumed draining with corrected code of the same graph."""
    house = a_house()
    house.drains = False
    one = house.workers[0]
    house.request("u1", "drain")
    one.report("Partition 2", o.TaskState.FAILED, "no such field")
    assert house.answer("u1") == ("failed", "Partition 2: no such field")
    assert house.state.run.state == "draining"
    house.request("u2", "stop")
    assert house.state.run.state == "stopped"
    assert house.answer("u2")[0] == "done"
    house.drains = True
    fixed = plan("d1-fixed", fingerprint=dict(plan().fingerprint))
    again = house.worker("p1", fixed)
    house.request("u3", "start")
    house.run(3)
    assert house.state.run.state == "drained"
    assert again.exit.code == 0
    assert len(finals(house, "u1")) == 1


def test_a_drain_that_is_stopped_is_failed():
    house = a_house()
    house.drains = False
    house.request("u1", "drain")
    house.request("u2", "stop")
    assert house.answer("u1")[0] == "failed"
    assert "resumes draining" in house.answer("u1")[1]
    house.request("u3", "drain")
    assert house.state.run.drain == "u1"


def test_a_drain_while_stopping_is_refused():
    house = a_house()
    house.workers[0].stuck = {"Partition 0"}
    house.request("u1", "stop")
    house.request("u2", "drain")
    assert house.answer("u2")[1].endswith("is stopping")
    house.request("u3", "start")
    assert house.answer("u3") == ("", "")
    house.request("u4", "stop")
    assert house.answer("u4")[0] == "running"
    house.request("u5", "stop", run_id="other")
    assert "other run" in house.answer("u5")[1]


def test_a_drain_while_ending_is_done_with_the_end():
    house = a_house()
    one = house.workers[0]
    one.stuck = {"Partition 0"}
    for task in list(one.tasks):
        one.report(task, o.TaskState.ENDED)
    assert house.state.run.state == "ending"
    house.request("u1", "drain")
    house.request("u2", "pause")
    assert "is ending" in house.answer("u2")[1]
    one.tasks["Partition 0"].state = ""
    one.feed(one.member, o.TaskReported("Partition 0", 1, o.TaskState.RELEASED))
    house.settle()
    assert house.answer("u1") == ("done", "")
    assert house.state.run.state == "ended"


def test_stop_of_what_is_stopped_is_done_and_of_what_is_drained_refused():
    house = a_house()
    house.request("u1", "stop")
    house.worker("p1")
    house.request("u2", "stop")
    assert house.answer("u2") == ("done", "")
    other = a_house()
    other.request("u1", "drain")
    other.worker("p1")
    other.request("u2", "stop")
    assert other.answer("u2") == ("refused", "no live run")


def test_one_worker_is_stopped_and_may_come_back():
    house = a_house(2)
    mine = set(house.workers[1].tasks)
    house.request("u1", "stop", worker="p2")
    assert house.answer("u1") == ("done", "")
    assert house.workers[1].exit.code == 0
    again = house.worker("p2")
    house.run(1)
    assert set(again.tasks) == mine
    house.request("u2", "stop", worker="p9")
    assert "no worker 'p9'" in house.answer("u2")[1]


@pytest.mark.parametrize("verb", ["stop", "drain"])
def test_a_worker_that_only_waits_for_a_run_is_stopped_by_its_name(verb: str):
    """`headgate reset` asks for it: no run is there that `stop` could stop, and `stop --worker` knew only the workers of a live run."""
    house = a_house()
    house.request("u1", verb)
    leads, waits = house.worker("p1"), house.worker("p2")
    house.run(1)
    assert (leads.exit, waits.exit) == (None, None)
    house.request("u2", "stop", worker="p2")
    assert house.answer("u2") == ("done", "")
    assert waits.exit.code == 0
    again = house.worker("p2")
    house.request("u3", "start")
    house.run(1)
    assert {*leads.tasks, *again.tasks} == set(house.state.model.tasks)


def test_stop_of_a_worker_that_dies_meanwhile_is_done_with_its_fence():
    house = a_house(2)
    house.workers[1].frozen = True
    house.request("u1", "stop", worker="p2")
    assert house.answer("u1")[0] == "running"
    house.run(10)
    assert house.answer("u1") == ("done", "")


def test_for_good_may_be_said_afterwards():
    """The worker is gone already; its tasks do not wait for it any longer."""
    house = a_house(2)
    house.leave(house.workers[1])
    house.request("u1", "stop", worker="p2", for_good=True)
    assert house.answer("u1") == ("done", "")
    house.run(0.5)
    assert len(house.workers[0].tasks) == 4


@pytest.mark.parametrize("leader_dies", [False, True])
def test_start_is_done_when_the_run_lives(leader_dies: bool):
    house = a_house()
    house.request("u1", "start")
    assert house.answer("u1") == ("done", "")
    house.request("u2", "start", run_id="other")
    assert "is live" in house.answer("u2")[1]
    house.request("u3", "stop")
    house.worker("p1")
    house.request("u4", "start", run_id="other")
    assert "is stopped" in house.answer("u4")[1]


def test_start_of_a_closed_run_needs_a_new_id():
    house = a_house()
    run = house.state.run.run_id
    house.request("u1", "drain")
    house.worker("p1")
    house.request("u2", "start", run_id=run)
    assert "is closed" in house.answer("u2")[1]


def test_start_with_code_that_may_not_follow_is_refused_with_the_difference():
    house = a_house()
    house.request("u1", "stop")
    two = house.worker("p1", plan("d2", fingerprint={"stage:all": "d2", "setting:grouper": "partition"}))
    house.request("u2", "start")
    assert house.answer("u2") == ("refused", "stage:all: was 'd1', is 'd2'")
    assert "headgate drain" in house.state.answer("u2").remedy
    assert two.ready.why.endswith("is stopped, and this code cannot go on with it: stage:all: was 'd1', is 'd2'")


def test_pause_and_resume_of_the_job_and_of_a_stream():
    house = a_house()
    for uuid, verb, arguments, expected in [
        ("a", "pause", {}, (True, frozenset())),
        ("b", "pause", {"stream": "orders"}, (True, {"orders"})),
        ("c", "resume", {"stream": "orders"}, (True, frozenset())),
        ("d", "resume", {}, (False, frozenset())),
        ("e", "resume", {}, (False, frozenset())),
    ]:
        house.request(uuid, verb, **arguments)
        assert house.answer(uuid) == ("done", "")
        assert (house.state.run.paused_job, house.state.run.paused_streams) == expected
    house.request("f", "pause", stream="nothing")
    assert "no stream 'nothing'" in house.answer("f")[1]
    house.request("g", "pause", run_id="other")
    assert "other run" in house.answer("g")[1]
    views = [t.run.paused_job for t in house.workers[0].tasks["Partition 0"].told if isinstance(t, o.RunChanged)]
    assert views == [True, True, True, False]


def test_a_pause_outlives_every_worker_and_a_stop_but_not_a_drain():
    house = a_house()
    house.request("u1", "pause")
    house.request("u2", "stop")
    again = house.worker("p1")
    house.request("u3", "start")
    house.run(1)
    assert again.tasks["Partition 0"].told[0].run.paused_job
    house.request("u4", "drain")
    assert not house.state.run.paused_job
    house.worker("p1")
    house.request("u5", "pause")
    assert house.answer("u5") == ("refused", "no live run")


def test_a_move_is_done_when_the_task_runs_there():
    house = a_house(2)
    task = next(iter(house.workers[0].tasks))
    house.request("u1", "move", task=task, to="p2")
    assert house.answer("u1") == ("done", "")
    assert house.owners()[task] == "p2"
    assert sorted(len(w.tasks) for w in house.workers) == [2, 2]
    house.request("u2", "move", task=task, to="p2")
    assert house.answer("u2") == ("done", "")


def test_a_move_back_waits_until_the_holder_has_let_go():
    """It was done at once, though the holder had been told to let go, and soon nobody held the task. Of two that wait, the last counts."""
    for more, last in [((), "p1"), ((("again", "p2"),), "p2")]:
        house = a_house(2)
        first = house.workers[0]
        task = next(iter(first.tasks))
        first.stuck = {task}
        for uuid, to in [("away", "p2"), ("back", "p1"), *more]:
            house.request(uuid, "move", task=task, to=to)
        assert house.answer("away")[0] == "running"
        assert {house.answer(uuid) for uuid, _ in [("back", "p1"), *more]} == {("", "")}
        one = first.tasks.pop(task)
        first.feed(first.member, o.TaskReported(task, one.grant, o.TaskState.RELEASED))
        house.settle()
        assert house.owners()[task] == last
        assert house.answer("back") == (("done", "") if last == "p1" else ("failed", "superseded by a newer placement"))
        assert house.answer("again")[0] == ("done" if more else "")


def test_a_move_that_cannot_be_is_refused():
    house = a_house(2)
    for uuid, arguments, why in [
        ("a", {"task": "nothing", "to": "p2"}, "no such task"),
        ("b", {"task": "Partition 0", "to": "p9"}, "no worker 'p9'"),
        ("c", {"task": "Partition 0", "to": "p2", "run_id": "other"}, "other run"),
    ]:
        house.request(uuid, "move", **arguments)
        assert house.answer(uuid)[0] == "refused"
        assert why in house.answer(uuid)[1]
    house.drains = False
    house.request("d", "drain")
    house.request("e", "move", task="Partition 0", to="p2")
    assert "is draining" in house.answer("e")[1]


def test_a_move_fails_when_its_target_dies_on_the_way():
    house = a_house(2)
    task = next(iter(house.workers[0].tasks))
    house.workers[0].stuck = {task}
    house.request("u1", "move", task=task, to="p2")
    assert house.answer("u1")[0] == "running"
    house.kill(house.workers[1])
    house.run(15)
    assert house.answer("u1") == ("failed", "superseded by a newer placement")
    house.request("u2", "stop")
    assert house.workers[0].exit is None


def test_a_move_without_a_run():
    house = a_house()
    house.request("u1", "drain")
    house.worker("p1")
    house.request("u2", "move", task="Partition 0", to="p1")
    assert house.answer("u2") == ("refused", "no live run")


def test_configuration_is_checked_written_and_reaches_the_workers():
    house = a_house()
    house.request("a", "set-config", setting="commit.interval", value="1s")
    house.request("b", "set-config", setting="commit.interval", value="2s")
    assert house.answer("b") == ("done", "applies immediately")
    assert [change.value for change in house.state.configs["commit.interval"].changes] == ["1s", "2s"]
    assert house.workers[0].config.overrides == {"commit.interval": "2s"}
    house.request("c", "set-config", setting="buffer.bytes", value="1MiB")
    assert house.answer("c") == ("done", "applies at next run")
    house.request("d", "unset-config", setting="commit.interval")
    assert house.answer("d")[0] == "done"
    assert house.workers[0].config.overrides == {}  # the run keeps what it began with
    house.request("e", "unset-config", setting="commit.interval")
    assert house.answer("e") == ("done", "it was not set")
    for uuid, setting, why in [
        ("f", "grouper", "immutable"),
        ("g", "comit.interval", "did you mean"),
        ("h", "state.dir", "each worker"),
        ("j", "streams.ordesr.priority", "did you mean 'orders'?"),
    ]:
        house.request(uuid, "set-config", setting=setting, value=1 if uuid == "j" else "all")
        assert house.answer(uuid)[0] == "refused"
        assert why in house.answer(uuid)[1]
    for uuid, setting, value, why in [
        ("k", "stall.timeout", "0s", "at least 1s"),
        ("l", "share.restate", "0s", "at least 100ms"),
        ("m", "commit.interval", "40s", "must be at least 2 times 'commit.interval' (40s)"),
    ]:
        house.request(uuid, "set-config", setting=setting, value=value)
        assert house.answer(uuid)[0] == "refused"
        assert why in house.answer(uuid)[1]
    house.request("i", "unset-config", setting="comit.interval")
    assert house.answer("i")[0] == "refused"


def a_house_with_3m():
    """The live run has a transaction.timeout of 3m."""
    house = a_house()
    house.request("0", "set-config", setting="transaction.timeout", value="3m")
    assert house.answer("0") == ("done", "applies at next run")
    house.request("1", "stop")
    house.worker("p1")
    house.request("2", "start")
    house.run(3)
    assert house.state.run.overrides == {"transaction.timeout": "3m"}
    return house


def test_unsetting_a_setting_that_another_one_needs_is_refused():
    """With transaction.timeout=3m and commit.interval=1m, taking the first back left a pair that nobody may set: 1m and 1m."""
    house = a_house_with_3m()
    house.request("b", "set-config", setting="commit.interval", value="1m")
    assert house.answer("b") == ("done", "applies immediately")
    house.request("c", "unset-config", setting="transaction.timeout")
    state, why = house.answer("c")
    assert (state, why.startswith("in the next run, 'transaction.timeout' (1m) must be at least 2 times")) == (
        "refused",
        True,
    )
    assert house.state.answer("c").remedy == "change the other one first"
    assert set(house.state.configs) == {"transaction.timeout", "commit.interval"}
    house.request("d", "unset-config", setting="commit.interval")
    house.request("e", "unset-config", setting="transaction.timeout")
    assert (house.answer("d")[0], house.answer("e")[0]) == ("done", "done")


def test_a_dynamic_setting_is_judged_beside_what_the_live_run_has():
    """transaction.timeout=3m waits for the next run. The live one aborts after 1m, so a commit.interval of 1m would never commit."""
    house = a_house()
    house.request("0", "set-config", setting="transaction.timeout", value="3m")
    house.request("b", "set-config", setting="commit.interval", value="1m")
    state, why = house.answer("b")
    assert (state, why.startswith("in the live run, 'transaction.timeout' (1m) must be at least 2 times")) == (
        "refused",
        True,
    )
    assert "and start it first" in house.state.answer("b").remedy
    house = a_house_with_3m()
    house.request("e", "set-config", setting="commit.interval", value="1m")
    assert house.answer("e") == ("done", "applies immediately")
    house.request("f", "set-config", setting="transaction.timeout", value="90s")
    assert house.answer("f")[1].startswith("in the next run, 'transaction.timeout' (90s)")


def test_a_pair_that_was_wrong_before_hinders_no_other_setting():
    """An earlier version took it. Who wants more log lines to find out why must get them."""
    house = a_house()
    house.append(c.SetConfig("commit.interval", "40s"))
    house.settle()
    house.request("a", "set-config", setting="log.level", value="debug")
    house.request("b", "unset-config", setting="log.level")
    house.request("c", "set-config", setting="commit.interval", value="1s")
    assert [house.answer(uuid)[0] for uuid in "abc"] == ["done", "done", "done"]


def test_what_no_one_heard_in_time_is_refused_and_what_no_one_understands_too():
    house = House()
    house.request("u1", "drain", not_after=house.now.wall - 1)
    house.request("u2", "dance")
    house.worker("p1")
    assert house.answer("u1") == ("refused", "expired")
    assert house.answer("u2")[0] == "refused"
    assert house.state.run.state == "running"


def test_one_final_answer_each_even_across_leaders():
    """The leader dies after it accepted; the next one finishes, and says so once."""
    house = a_house(3)
    house.drains = False
    house.request("u1", "drain")
    assert house.answer("u1")[0] == "running"
    first = next(w for w in house.workers if w.processor == house.leads()[0])
    house.kill(first)
    house.run(25)
    house.drains = True
    for one in house.workers:
        for task in list(one.tasks):
            if one.turns and task in one.tasks and one.tasks[task].state == o.TaskState.RUNNING:
                one.report(task, o.TaskState.DRAINED)
    house.run(5)
    assert house.state.run.state == "drained"
    assert len(finals(house, "u1")) == 1
    assert house.answer("u1") == ("done", "")


@pytest.mark.parametrize(
    ("state", "asked"), [("drained", "next"), ("drained", ""), ("stopped", ""), ("stopped", "r1"), (None, "next")]
)
def test_a_start_waits_while_no_one_is_there_to_begin_it(state: str | None, asked: str) -> None:
    """A leader that is about to leave reads it: no answer, until somebody joins with whom the run can begin."""
    draft = Draft(JobState(), LeaderConfig("p1", "x", "u"), Memory(), Now(1.0, 2), lambda life: "")
    if state is not None:
        draft.put(c.SetRun("r1", "d", state, "u"))
    draft.put(c.SetRequest("u1", "start", asked))
    requests(draft)
    assert draft.state.answer("u1") is None


def test_what_waits_is_withdrawn_and_what_is_under_way_is_not():
    """Whoever asked for tonight's drain, or for a seek that no task has applied, may change his mind."""
    house = a_house()
    house.request("z", "drain")
    house.worker("p1")
    house.request("a", "drain", run_id="tonight")
    house.request("b", "withdraw", request="a")
    assert (house.answer("a"), house.answer("b")) == (("refused", "withdrawn by me"), ("done", "drain of me"))
    house.request("c", "withdraw", request="a")
    assert house.answer("c") == ("refused", "there is no pending request a")
    house = a_house()
    house.seeks = False
    house.request("d", "seek", stream="orders", to=5)
    house.request("e", "withdraw", request="d")
    assert house.answer("d") == ("failed", "withdrawn by me; applied in partitions: none")
    house.drains = False
    house.request("f", "drain")
    house.request("g", "withdraw", request="f")
    assert house.answer("g") == ("refused", "drain is in progress; it cannot be withdrawn")


def test_the_number_of_workers_is_set_where_one_supervisor_follows_and_refused_elsewhere():
    """`headgate scale` of workers that nobody supervises would be done, and change nothing."""
    house = House()
    house.worker("w-0", since_ms=1)
    house.run(3)
    tasks = len(house.state.model.tasks)
    house.request("a", "set-config", setting="workers", value=tasks)
    assert house.answer("a") == ("done", "applies immediately")
    house.request("b", "set-config", setting="workers", value=tasks + 2)
    assert house.answer("b")[1].endswith(f"{tasks} tasks keep {tasks} workers busy; 2 would be idle")
    house.request("c", "set-config", setting="workers", value=1001)
    assert "at most 1000" in house.answer("c")[1]
    house.worker("solo")
    house.run(3)
    house.request("d", "set-config", setting="workers", value=3)
    assert house.answer("d") == ("refused", "solo was not started by `headgate run --workers`, so no one would follow")
    house.request("e", "unset-config", setting="workers")
    assert house.answer("e")[0] == "done"
