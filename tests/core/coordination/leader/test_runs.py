"""When a run begins, goes on, and closes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core import orders as o
from headgate.core.coordination import messages as c
from headgate.core.coordination.leader.protocol import Counts, Refuse, ResolveBounds
from headgate.core.coordination.leader.runs import Starter, starter
from headgate.core.coordination.state import JobState
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.machine import Tick
from headgate.core.names import StreamPartition

from ...house import House, Worker, plan

RUN = c.SetRun(
    "r1",
    "d1",
    "drained",
    "u",
    fingerprint={"setting:g": "a", "stage:s": "1"},
    past_runs=("r0",),
    past_deployments=("d1",),
)


def life(**parts: str) -> c.SetProcessor:
    return c.SetProcessor(
        "p1", "000001-a", "x", "here", "joined", "d2", fingerprint={k.replace("_", ":"): v for k, v in parts.items()}
    )


def drained(house: House) -> None:
    house.worker("p1")
    house.request("drain-it", "drain")
    assert house.state.run.state == "drained"


@pytest.mark.parametrize(
    ("deployment", "run_id", "begins"),
    [("d1", "", False), ("d2", "", True), ("d1", "new", True), ("d2", "first", False)],
)
def test_who_begins_the_next_run_by_himself(deployment: str, run_id: str, begins: bool):
    """A deployment that never ran, or a new run id; a restart of the old one undoes no drain."""
    house = House()
    house.worker("p1", run_id="first")
    house.request("u1", "drain")
    one = house.worker("p1", plan(deployment), run_id=run_id)
    house.run(10)
    assert (house.state.run.state == "running") == begins
    assert bool(one.tasks) == begins
    assert one.exit is None


def test_an_older_deployment_that_ran_before_begins_nothing():
    house = House()
    drained(house)
    two = house.worker("p1", plan("d2"))
    house.run(2)
    assert two.tasks
    house.request("u2", "drain")
    assert two.exit is not None
    old = house.worker("p1", plan("d1"))
    house.run(10)
    assert house.state.run.state == "drained"
    assert house.state.run.past_deployments == ("d1", "d2")
    assert old.tasks == {}


def test_the_job_uuid_is_made_once():
    house = House()
    drained(house)
    uuid = house.state.run.job_uuid
    house.worker("p1", plan("d2"))
    house.run(2)
    assert house.state.run.job_uuid == uuid


@pytest.mark.parametrize(("run_id", "resumes"), [("", False), ("first", True)])
def test_a_stopped_run_is_resumed_by_its_own_id(run_id: str, resumes: bool):
    house = House()
    house.worker("p1", run_id="first")
    house.request("u1", "stop")
    one = house.worker("p1", run_id=run_id)
    house.run(3)
    assert bool(one.tasks) == resumes
    assert house.state.run.run_id == "first"


@pytest.mark.parametrize("verb", ["stop", "drain"])
@pytest.mark.parametrize("minutes", [0, 10])
def test_a_worker_that_its_supervisor_restarts_undoes_nothing(verb: str, minutes: int):
    """It was killed while the run closed, and comes back with the run's id, however late: it is done. One that is started anew resumes."""
    house = House()
    began = house.now.wall
    house.run(1)
    first = house.worker("p1", run_id="first", since_ms=began, bounded=True)
    house.request("u1", verb)
    house.run(1 + 60 * minutes)
    assert first.exit.code == 0
    state = house.state.run.state
    late = house.worker("p1", run_id="first", since_ms=began, bounded=True)
    house.run(3)
    assert (late.exit.code, late.tasks, house.state.run.state) == (0, {}, state)
    assert "closed while this worker was restarted" in late.exit.why
    anew = house.worker("p1", run_id="first", since_ms=house.now.wall, bounded=True)
    house.run(3)
    assert bool(anew.tasks) == (verb == "stop")


def test_a_supervisor_with_other_code_begins_the_next_run():
    """It was there when the old code drained, and that run was none of its."""
    house = House()
    began = house.now.wall
    house.run(1)
    house.worker("p1")
    house.request("u1", "drain")
    house.run(1)
    new = house.worker("p2", plan(deployment="d2"), since_ms=began)
    house.run(3)
    assert new.tasks
    assert house.state.run.deployment == "d2"


def test_start_after_a_drain_begins_a_new_run_of_the_same_code():
    house = House()
    drained(house)
    one = house.worker("p1")
    before = house.state.run.run_id
    house.request("u2", "start")
    house.run(2)
    assert house.answer("u2")[0] == "done"
    assert house.state.run.run_id != before
    assert len(one.tasks) == 4


@pytest.mark.parametrize("closed", ["drain", "stop"])
@pytest.mark.parametrize(
    ("verb", "answer"),
    [("stop", {"drain": "refused", "stop": "done"}), ("drain", {"drain": "done", "stop": "refused"})],
)
def test_what_was_asked_of_the_last_run_before_a_start_is_not_carried_out_on_the_next(
    closed: str, verb: str, answer: dict[str, str]
):
    """No worker was there to answer it. The start that came behind it began a run, and the older request ended that run."""
    house = House()
    house.worker("p1", run_id="first")
    house.request("u1", closed)
    assert house.state.run.state == {"drain": "drained", "stop": "stopped"}[closed]
    house.request("u2", verb)
    house.request("u3", "start")
    one = house.worker("p1")
    house.run(3)
    assert house.answer("u2")[0] == answer[closed]
    assert house.answer("u3")[0] == "done"
    assert house.state.run.state == "running"
    assert one.tasks


def test_what_was_set_and_paused_before_a_start_is_in_the_next_run_or_was_refused():
    house = House()
    drained(house)
    house.request("u2", "set-config", setting="transaction.timeout", value="30s")
    house.request("u3", "pause")
    house.request("u4", "start")
    house.worker("p1")
    house.run(3)
    assert [house.answer(uuid)[0] for uuid in ("u2", "u3", "u4")] == ["done", "refused", "done"]
    assert house.state.run.overrides == {"transaction.timeout": "30s"}
    assert not house.state.run.paused_job


def test_what_is_asked_behind_a_start_is_asked_of_the_run_that_it_begins():
    house = House()
    drained(house)
    house.request("u2", "start")
    house.request("u3", "stop")
    house.worker("p1")
    house.run(3)
    assert (house.answer("u2")[0], house.answer("u3")[0]) == ("done", "done")
    assert house.state.run.state == "stopped"


@pytest.mark.parametrize(("over", "reopens"), [("drain", True), ("stop", False)])
def test_a_seek_backwards_opens_windows_again_only_in_the_next_run(over: str, reopens: bool):
    """A run that is resumed keeps what it has closed; so does every run after the one that the seek has begun."""
    house = House()
    house.worker("p1", run_id="first")
    house.request("u1", over)
    house.request("s1", "seek", stream="orders", to="oldest", reopens=True)
    house.worker("p1", run_id="second" if over == "drain" else "first")
    house.run(3)
    assert house.state.run.reopens is reopens
    assert house.state.run_view().reopens is reopens
    assert house.answer("s1") == ("done", "")
    house.request("u2", "drain")
    house.worker("p1", run_id="third")
    house.run(3)
    assert house.state.run.run_id == "third"
    assert not house.state.run.reopens


def test_start_with_an_id_names_the_run():
    house = House()
    drained(house)
    house.worker("p1")
    house.request("u2", "start", run_id="mine")
    house.run(2)
    assert house.state.run.run_id == "mine"
    assert house.state.run.past_runs[-1] != "mine"


def test_a_drain_written_before_its_run_begins_is_found_by_it():
    """The tasks start draining: no new input is ever read."""
    house = House()
    house.request("u1", "drain", run_id="batch-7", upto={"orders": [5]})
    one = house.worker("p1", run_id="batch-7")
    house.run(1)
    assert house.answer("u1") == ("done", "")
    assert house.state.run.state == "drained"
    assert house.state.run.drain_upto == {"orders": (5,)}
    assert not house.state.run.goes_on
    assert one.exit.code == 0


def test_a_corrupt_drain_drains_no_run_and_the_next_one_does():
    """Samza's hole 21: a corrupt notification ended the polling for good. Here what can be read is refused, what cannot is counted, and
    nothing else changes.
    """
    house = House()
    house.log.append(c.Entry(0, ("set-request", ("u0",)), None, problem="corrupt value"))
    house.request("u1", "drain", run_id="batch-7", mode="fast")
    house.request("u2", "drain", run_id="batch-7", upto=["nonsense"])
    house.worker("p1", run_id="batch-7")
    house.run(1)
    assert [house.answer(one)[0] for one in ("u1", "u2")] == ["refused", "refused"]
    assert "unknown drain mode 'fast'" in house.answer("u1")[1]
    assert house.state.run.state == "running"
    house.log.append(c.Entry(len(house.log), ("set-request", ("u2b",)), None, problem="corrupt value"))
    house.request("u3", "drain", mode="default")
    house.run(1)
    assert house.answer("u3") == ("done", "")
    assert house.state.problem_count == 2


def test_starts_and_ends_are_resolved_once_before_the_run_begins():
    house = House()
    one = house.worker("p1", plan(resolve=True))
    assert house.state.run.starts == {"orders": (0, 0, 0, 0)}
    assert len(one.tasks) == 4
    slow = House()
    two = Held(slow)
    assert slow.state.run is None
    slow.run(3)
    assert len(two.held) == 1
    two.hold.clear()
    slow.carry_out(two, two.leader, two.held[0])
    slow.settle()
    assert slow.state.run.run_id == two.held[0].run_id


def test_a_run_whose_tasks_cannot_be_made_does_not_begin_and_corrected_code_begins_it():
    """Inputs of 4 and 3 partitions in a join: rows would be lost in silence; a run that had begun could not be followed by other code."""
    joined = Stage("j", "join", ("orders", "t"), stateful=True)
    both = (Input("orders"), Input("rates"))
    wrong = Graph(both, (Stage("t", "table", ("rates",), stateful=True), joined))
    house = House()
    house.partitions = {"orders": 4, "rates": 3}
    one = house.worker("p1", plan("d1", graph=wrong, fingerprint={"stage:j": "1"}))
    assert house.state.run is None
    house.request("u1", "start")
    house.run(3)
    assert [type(refused) for refused in one.refused] == [Refuse]
    assert "'rates' has 3 partitions and 'orders' has 4" in one.refused[0].what
    assert "broadcast=True" in one.refused[0].remedy
    assert house.answer("u1")[0] == "refused"
    assert "'rates' has 3 partitions" in house.answer("u1")[1]
    assert house.state.run is None
    right = Graph((both[0], replace(both[1], broadcast=True)), wrong.stages)
    two = house.worker("p1", plan("d2", graph=right, fingerprint={"stage:j": "2"}))
    house.run(3)
    assert house.state.run.state == "running"
    assert len(two.tasks) == 4


def Held(house: House):
    """A worker whose broker is slow to say where the inputs begin."""
    one = Worker(house, "p1", "slow", plan(resolve=True))
    one.hold.add(ResolveBounds)
    house.workers.append(one)
    one.feed(one.member, Tick())
    one.feed(one.leader, Tick())
    one.feed(one.leader, Counts(house.partitions))
    house.settle()
    return one


def test_a_drain_of_some_that_ended_is_a_drain():
    """Inputs that have ended count as drained."""
    house = House()
    house.drains = False
    one = house.worker("p1")
    house.request("u1", "drain")
    for n, state in enumerate([o.TaskState.ENDED, o.TaskState.DRAINED, o.TaskState.DRAINED, o.TaskState.ENDED]):
        one.report(f"Partition {n}", state)
    assert house.state.run.state == "drained"
    assert house.answer("u1") == ("done", "")


def test_a_holder_that_dies_while_the_run_closes_does_not_hold_it_up():
    house = House()
    house.drains = False
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    two.stuck = set(two.tasks)
    house.request("u1", "drain")
    for worker in (one, two):
        for task in list(worker.tasks):
            worker.report(task, o.TaskState.DRAINED)
    assert house.state.run.closing
    house.kill(two)
    house.run(10)
    assert house.state.run.state == "drained"
    assert house.answer("u1") == ("done", "")


def test_a_drained_task_that_lost_its_worker_is_drained():
    """Its checkpoint says so; nobody has to run it again when that was the last."""
    house = House()
    house.drains = False
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    house.request("u1", "drain")
    for task in list(two.tasks):
        two.report(task, o.TaskState.DRAINED)
    house.kill(two)
    house.run(10)
    house.finished = dict.fromkeys([f"Partition {n}" for n in range(4)], o.TaskState.DRAINED)
    for task in [t for t, one_ in one.tasks.items() if one_.state == o.TaskState.RUNNING]:
        one.report(task, o.TaskState.DRAINED)
    house.run(3)
    assert house.state.run.state == "drained"


# --------------------------------------------------------------------------------------------- who should begin, in words


def begins(run: c.SetRun, *more: c.Message) -> Starter | None:
    """The answer for a closed run and what was written after it."""
    state = JobState()
    for n, message in enumerate((run, *more)):
        state.apply(c.Entry(n, c.key_of(message), message))
    return starter(state, lambda life: "silent" if life.process == "silent" else "", 100)


def worker(
    processor: str, run_id: str = "", deployment: str = "d1", process: str = "x", state: str = "joined"
) -> c.SetProcessor:
    return c.SetProcessor(
        processor, "000001-a", process, "here", state, deployment, run_id, fingerprint=RUN.fingerprint
    )


STOPPED = replace(RUN, state="stopped")


@pytest.mark.parametrize(
    ("run", "more", "expected"),
    [
        (RUN, (), None),
        (replace(RUN, state="running"), (worker("p1", deployment="d2"),), None),
        (RUN, (worker("p1", deployment="d2", process="silent"),), None),
        (RUN, (worker("p1", deployment="d2", state="left"),), None),
        (RUN, (worker("p1", deployment="d2"), worker("p2", deployment="d3")), ("p2", "", False)),
        (RUN, (worker("p1"), c.SetRequest("u", "start")), ("p1", "", False)),
        (RUN, (worker("p1"), c.SetRequest("u", "start", "r9")), ("p1", "r9", False)),
        (RUN, (worker("p1", "r1"), c.SetRequest("u", "start")), None),
        (RUN, (worker("p1", "r7"), c.SetRequest("u", "start", "r9")), ("p1", "r7", False)),
        (RUN, (worker("p1"), c.SetRequest("u", "start", "r0")), None),
        (RUN, (worker("p1"), c.SetRequest("u", "start", not_after=50)), None),
        (RUN, (worker("p1"), c.SetRequest("u", "start", arguments={"x": 1})), None),
        (RUN, (worker("p1"), c.SetRequest("u", "stop")), None),
        (STOPPED, (worker("p1"), c.SetRequest("u", "start")), ("p1", "r1", True)),
        (STOPPED, (worker("p1"), c.SetRequest("u", "start", "r1")), ("p1", "r1", True)),
        (STOPPED, (worker("p1"), c.SetRequest("u", "start", "r9")), None),
        (STOPPED, (worker("p1", "r9"), c.SetRequest("u", "start")), None),
        (STOPPED, (c.SetRequest("u", "start"),), None),
        (STOPPED, (worker("p1", "r1"),), ("p1", "r1", True)),
        (STOPPED, (worker("p1"),), None),
    ],
)
def test_who_should_begin(run: c.SetRun, more: tuple, expected: tuple | None):
    """Deployments that never ran, new ids, requests; never a restart, a dead process, or one that has left."""
    found = begins(run, *more)
    assert (None if found is None else (found.worker.processor, found.run_id, found.resume)) == expected


def test_a_leader_of_other_code_resigns_for_the_one_that_has_it():
    house = House()
    drained(house)
    house.worker("p1")
    house.run(1)
    new = house.worker("p2", plan("d2"))
    house.run(2)
    assert house.leads() == ["p2"]
    assert len(new.tasks) == 4


def test_when_every_task_has_ended_the_run_has():
    house = House()
    one = house.worker("p1")
    for n in range(4):
        one.report(f"Partition {n}", o.TaskState.ENDED)
    assert house.state.run.state == "ended"
    assert one.exit.code == 0


# --------------------------------------------------------------------------------------------- bounded runs, and their ends


def batch(**changes: object) -> tuple[House, Worker]:
    """A bounded run of four tasks on one worker."""
    house = House(stall_s=60.0, session_s=6.0)
    house.untils = {"orders": (9, 9, 9, 9)}
    one = house.worker("p1", plan(resolve=True, ends=("orders",)), bounded=True, **changes)
    house.run(3)
    assert len(one.tasks) == 4
    return house, one


def test_a_bounded_run_with_a_failed_task_stops_as_soon_as_nothing_else_can_move():
    """Cron would wait for ever. The others come to their ends first; then the run stops, and its worker ends with 1 and the reason."""
    house, one = batch()
    one.report("Partition 1", o.TaskState.FAILED, "record 7 is no JSON")
    house.run(10)
    assert house.state.run.state == "running"
    one.report("Partition 0", o.TaskState.ENDED)
    one.report("Partition 2", o.TaskState.RUNNING, still=True)
    house.run(10)
    assert one.exit is None  # one still works
    one.report("Partition 3", o.TaskState.RUNNING, still=True)
    house.run(3)
    run = house.state.run
    assert (run.state, run.failed) == ("stopped", "Partition 1: record 7 is no JSON")
    assert (one.exit.code, one.exit.why) == (1, f"run {run.run_id} can go no further: {run.failed}")


def test_a_task_that_stirs_again_is_waited_for():
    """What somebody said of himself is a moment old: a record was on its way to him."""
    house, one = batch()
    one.report("Partition 1", o.TaskState.FAILED, "no")
    for task in ("Partition 0", "Partition 2", "Partition 3"):
        one.report(task, o.TaskState.RUNNING, still=True)
    house.run(1)
    one.report("Partition 2", o.TaskState.RUNNING)
    house.run(20)
    assert house.state.run.state == "running"


def test_nothing_is_said_of_standing_still_while_no_task_has_failed():
    """A batch that goes well writes no more messages into the stream."""
    house, one = batch()
    before = len(house.log)
    one.report("Partition 2", o.TaskState.RUNNING, still=True)
    assert len(house.log) == before
    one.report("Partition 1", o.TaskState.FAILED, "no")
    assert house.state.task_state("Partition 2").still


def test_a_run_without_ends_goes_on_beside_a_failed_task():
    """A stream is for ever: the failed task waits for its operator."""
    house = House()
    one = house.worker("p1")
    house.run(3)
    for n in range(4):
        one.report(f"Partition {n}", o.TaskState.FAILED, "no")
    house.run(100)
    assert house.state.run.state == "running"
    assert not house.state.task_state("Partition 1").still


def test_a_broken_target_is_given_the_time_of_a_stall():
    """A topic that is away for a minute fails no batch; one that stays away does not hold cron up for ever."""
    house, one = batch()
    house.targets_work = False
    house.producer_lost(one, "no such topic", (("Partition 1", "no such topic"),), StreamPartition("out", 0))
    house.run(3)
    for task in ("Partition 0", "Partition 2", "Partition 3"):
        one.report(task, o.TaskState.ENDED)
    house.run(30)
    assert house.state.run.state == "running"
    house.run(60)
    assert (house.state.run.state, one.exit.code) == ("stopped", 1)


@pytest.mark.parametrize(("run_id", "resumes"), [("", True), ("other", False)])
def test_a_run_that_stopped_by_itself_is_gone_on_with_by_whoever_comes(run_id: str, resumes: bool):
    """The next start of cron, with corrected data or code, ends the same batch; nobody had stopped it."""
    house, one = batch()
    failed = house.state.run.run_id
    for n in range(4):
        one.report(f"Partition {n}", o.TaskState.FAILED, "no")
    house.run(3)
    assert one.exit.code == 1
    two = house.worker("p1", plan(resolve=True, ends=("orders",)), bounded=True, run_id=run_id)
    house.run(3)
    run = house.state.run
    assert (run.run_id, run.state, run.failed == "") == (failed, "running" if resumes else "stopped", resumes)
    assert (two.exit is None) == resumes


def ended() -> House:
    house, one = batch()
    for n in range(4):
        one.report(f"Partition {n}", o.TaskState.ENDED)
    assert (house.state.run.state, one.exit.code) == ("ended", 0)
    return house


def test_a_bounded_worker_begins_another_run_when_the_last_one_has_ended():
    """Yesterday's batch has ended; today's begins by itself, with what came since."""
    house = ended()
    before = house.state.run.run_id
    house.run(7)
    one = house.worker("p1", plan(resolve=True, ends=("orders",)), bounded=True)
    house.run(3)
    assert house.state.run.state == "running"
    assert house.state.run.run_id != before
    assert len(one.tasks) == 4


def test_who_comes_just_behind_the_end_takes_it_for_his_own():
    """The slower one of two that were started together does not begin a second batch, and does not wait for ever."""
    house = ended()
    house.run(2)
    one = house.worker("p2", plan(resolve=True, ends=("orders",)), bounded=True)
    house.run(20)
    assert house.state.run.state == "ended"
    assert one.exit.code == 0
    assert "just ended" in one.exit.why


@pytest.mark.parametrize("bounded", [True, False])
def test_changed_code_begins_another_run_however_soon_it_comes(bounded: bool):
    """Corrected a second after the batch had ended, and run again: it was not meant for that run, and "done" would be a lie."""
    house = ended()
    before = house.state.run.run_id
    one = house.worker("p1", plan("d2", resolve=True, ends=("orders",)), bounded=bounded)
    house.run(3)
    assert (house.state.run.state, house.state.run.run_id == before) == ("running", False)
    assert (one.exit, len(one.tasks)) == (None, 4)


@pytest.mark.parametrize(("bounded", "begins"), [(True, True), (False, False)])
def test_code_of_before_is_changed_code_too(bounded: bool, begins: bool):
    """Taken back to what ran the day before: a batch runs; a stream waits, for it may be a leftover."""
    house = ended()
    house.worker("p1", plan("d2", resolve=True, ends=("orders",)), bounded=True)
    house.run(3)
    for n in range(4):
        house.workers[-1].report(f"Partition {n}", o.TaskState.ENDED)
    second = house.state.run.run_id
    one = house.worker("p1", plan("d1", resolve=True, ends=("orders",)), bounded=bounded)
    house.run(3)
    assert (house.state.run.run_id != second, house.state.run.state) == (begins, "running" if begins else "ended")
    assert one.exit is None


def test_what_may_never_differ_ends_the_worker_and_says_so():
    """No run would ever begin with it: cron would wait for ever."""
    house = ended()
    code = plan(resolve=True, ends=("orders",), fingerprint={"stage:all": "d1", "setting:grouper": "all"})
    one = house.worker("p1", code, bounded=True)
    house.run(3)
    assert one.exit.code == 1
    assert "setting:grouper: was 'partition', is 'all'" in one.exit.why


def test_who_names_a_run_that_has_ended_is_done():
    """A retry of a batch that had come to its end is a success."""
    house, one = batch(run_id="monday")
    for n in range(4):
        one.report(f"Partition {n}", o.TaskState.ENDED)
    house.run(100)
    again = house.worker("p1", plan(resolve=True, ends=("orders",)), bounded=True, run_id="monday")
    house.run(3)
    assert (again.exit.code, again.exit.why) == (0, "run monday has ended")


@pytest.mark.parametrize(("verb", "state"), [("stop", "stopped"), ("drain", "drained")])
def test_what_an_operator_has_closed_is_begun_by_no_restart(verb: str, state: str):
    """`--bounded` undoes neither a stop nor a drain: it waits, and says for what."""
    house, _ = batch()
    house.request("w", verb)
    house.run(10)
    one = house.worker("p1", plan(resolve=True, ends=("orders",)), bounded=True)
    house.run(10)
    assert house.state.run.state == state
    assert (one.exit, one.ready.why) == (None, f"run {house.state.run.run_id} is {state}")


# ------------------------------------------------------------------------------------------ what changes between runs only


def test_a_run_keeps_the_settings_that_it_began_with():
    """Of two tasks of one run the one that moved had another buffer and another chooser than its sibling, and nobody knew which."""
    house = House()
    one = house.worker("p1")
    house.run(3)
    house.request("a", "set-config", setting="buffer.bytes", value="1MiB")
    house.request("b", "set-config", setting="commit.interval", value="2s")
    two = house.worker("p2")
    house.run(3)
    assert two.tasks
    assert one.config.overrides == two.config.overrides == {"commit.interval": "2s"}
    house.kill(one)
    house.run(60)
    three = house.worker("p3")
    house.run(3)
    assert house.leads() == ["p2"]
    assert (three.config.overrides, house.state.run.overrides) == ({"commit.interval": "2s"}, {})
    house.request("c", "stop")
    four = house.worker("p1")
    house.request("d", "start")
    house.run(3)
    assert four.tasks
    assert four.config.overrides == {"buffer.bytes": "1MiB", "commit.interval": "2s"}
    house.request("e", "unset-config", setting="buffer.bytes")
    assert four.config.overrides == house.state.run.overrides | {"commit.interval": "2s"}


def test_who_waited_for_a_run_writes_as_that_run_says():
    """After a drain the supervisor's worker waits, with its producer; then the codec is changed, and the next run begins with it."""
    house = House()
    house.worker("p1")
    house.run(3)
    house.request("a", "drain")
    one = house.worker("p1")
    house.run(3)
    assert len(one.init) == 1
    house.request("b", "set-config", setting="compression", value="zstd")
    assert len(one.init) == 1
    house.request("c", "start")
    house.run(3)
    assert (len(one.init), len(one.tasks), one.config.overrides) == (2, 4, {"compression": "zstd"})
    house.request("d", "set-config", setting="compression", value="none")
    house.run(3)
    assert (len(one.init), one.config.overrides) == (2, {"compression": "zstd"})
