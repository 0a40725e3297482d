"""What may be deleted, and what a zombie writes again afterwards."""

from __future__ import annotations

from dataclasses import replace

from headgate.core.coordination import messages as c
from headgate.core.coordination.leader.cleanup import MOST, cleanup
from headgate.core.coordination.leader.draft import Draft, Memory
from headgate.core.coordination.leader.plan import LeaderConfig, Timing
from headgate.core.coordination.messages import FORGOTTEN
from headgate.core.coordination.state import JobState
from headgate.core.graph.model import JobModel
from headgate.core.machine import Now

from ...house import House


def test_superseded_task_states_go_and_come_and_go():
    """A zombie's late message about an old grant is ignored, and deleted again."""
    house = House()
    one = house.worker("p1")
    house.worker("p2")
    house.run(3)
    moved = next(task for task in house.owners() if house.owners()[task] == "p2")
    assert list(house.state.task_states(moved)) == [2]
    house.append(c.SetTaskState(moved, 1, "running"))
    house.settle()
    assert list(house.state.task_states(moved)) == [2]
    assert len(one.tasks) == 2


def test_records_of_fenced_incarnations_go_when_no_one_asks_where_they_were():
    house = House()
    house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    house.kill(two)
    house.run(12)
    assert house.state.recorded("p2") == {}
    house.append(c.SetProcessor("p2", two.init[0], two.process, "x", "joined"))
    house.settle()
    assert house.state.recorded("p2") == {}
    assert house.state.fenced("p2", two.init[0])


def test_requests_go_with_their_answer_and_answers_go_with_time():
    house = House(answer_kept_ms=3000)
    house.worker("p1")
    house.request("u1", "pause")
    assert house.state.request("u1") is None
    assert house.answer("u1")[0] == "done"
    house.request("u1", "pause")
    assert house.state.request("u1") is None
    house.run(6)
    assert house.state.answer("u1") is None


def test_a_round_deletes_no_more_than_a_transaction_should_hold():
    house = House()
    for n in range(MOST + 50):
        house.append(c.SetTaskState("Partition 0", n, "released"))
    house.append(c.SetGrant("Partition 0", MOST + 60, "old", "000001-a"))
    house.worker("p1")
    house.run(1)
    assert list(house.state.task_states("Partition 0")) == []


def test_a_member_stays_while_the_model_still_places_something_on_it():
    """Its life is fenced and its record is gone, but the model in force was made for it: only the next model lets it go."""
    config = LeaderConfig("p1", "x", "u", timing=Timing(gone_kept_ms=0))
    draft = Draft(JobState(), config, Memory(), Now(1.0, 2), lambda life: "")
    draft.put(c.SetMember("p2", "000001-a", "here"))
    draft.put(c.SetFence("p2", "000001-a"))
    draft.put(c.SetJobModel(JobModel(version=1, processors=("p1", "p2"))))
    cleanup(draft)
    assert "p2" in [member.processor for member in draft.state.messages["set-member"].values()]
    draft.put(c.SetJobModel(JobModel(version=2, processors=("p1",))))
    cleanup(draft)
    assert not draft.state.messages["set-member"]


def test_two_thousand_generated_names_leave_nothing_behind():
    """Each pod of a deployment has a new name: the stream, and with it the start of every worker, would have grown for ever.

    One worker leads; the others record themselves, are granted tasks, and say that they leave, or fall silent.
    """
    pods, generations = 50, 40
    house = House(session_s=2.0, grace_s=1.0, debounce_s=0.5, gone_kept_ms=4000)
    one = house.worker("p1")
    state, folded, most = JobState(), 0, 0
    for generation in range(generations):
        for n in range(pods):
            life = c.SetProcessor(
                f"pod-{generation}-{n}", f"{generation + 1:06d}-a", f"{generation}/{n}", "x", "joined"
            )
            life = replace(life, fingerprint=one.member.config.fingerprint)
            house.initialised.add((life.processor, life.incarnation))
            house.append(life)
            if n % 3:
                house.append(replace(life, state="left"))
        house.run(4, step=1.0)
        state.fold(house.log[folded:])
        folded = len(house.log)
        most = max(most, len(state.at))
        assert most < 8 * pods, f"{most} keys after {generation + 1} generations"
    house.run(12, step=1.0)
    state.fold(house.log[folded:])
    assert pods < most
    assert sorted(key[0] for key in state.at if key[0] not in ("set-grant", "set-changelog", "set-task-state")) == [
        "set-fence", "set-job-model", "set-leader", "set-member", "set-processor", "set-run",
    ]  # fmt: skip
    assert state.fence(FORGOTTEN) == f"{generations:06d}-a"
    assert house.owners() == {f"Partition {n}": "p1" for n in range(4)}
    memory = one.leader.memory
    assert (memory.condemned, memory.fenced, memory.fencing) == ({}, set(), {})


def test_a_zombie_of_whom_nothing_is_remembered_begins_a_new_life():
    """Its fence is gone, but so is its record: it knows by that, and holds no task of before."""
    house = House(grace_s=1.0, gone_kept_ms=5000)
    house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    before, two.frozen = two.member.incarnation, True
    house.run(20)
    assert house.state.recorded("p2") == {}
    assert house.state.fence("p2") is None
    two.frozen = False
    house.run(5)
    assert ("p2", before) in house.fenced
    assert two.member.incarnation > before
    assert sorted(len(one.tasks) for one in house.workers) == [2, 2]


def test_a_zombie_of_whom_nothing_is_remembered_comes_before_its_successor():
    """A pod of the same name began while it slept: it counts on from all that was forgotten, so the zombie is the older one, and goes."""
    house = House(grace_s=1.0, gone_kept_ms=5000)
    house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    house.producer_lost(two)
    house.run(3)
    before, two.frozen = two.member.incarnation, True
    house.run(20)
    assert house.state.fence("p2") is None
    three = house.worker("p2")
    house.run(5)
    assert three.member.incarnation > before > "000001"
    two.frozen = False
    house.run(5)
    assert two.exit is not None
    assert "another process has become 'p2'" in two.exit.why
    assert three.exit is None
    assert sorted(house.owners().values()) == ["p1", "p1", "p2", "p2"]


def test_what_no_one_can_read_of_a_request_goes_and_much_that_is_gone_goes_in_parts():
    """A transaction stays small; the next round takes the rest."""
    config = LeaderConfig("p1", "x", "u", timing=Timing(gone_kept_ms=0))
    draft = Draft(JobState(), config, Memory(), Now(1.0, 2), lambda life: "")
    draft.put(c.SetFence("p0", "000001-a"))
    for n in range(MOST):
        draft.put(c.SetMember(f"q{n}", "000001-a", "here"))
    draft.state.damaged["set-request", ("u1",)] = 5
    cleanup(draft)
    assert len(draft.state.messages["set-member"]) == 2
    assert draft.state.damaged == {}
    cleanup(draft)
    assert not draft.state.messages["set-member"]
    assert list(draft.state.messages["set-fence"]) == [(FORGOTTEN,)]


def test_what_a_dead_holder_said_of_its_letters_stands_until_its_successor_says_it_again_or_it_was_withdrawn():
    """The successor reads it some time after it was granted the task: deleted with the grant, it would never be heard."""
    mark = ("in", 0, 5, 6, -1, 1, "", "")
    house = House()
    house.append(c.SetLetters("Partition 0", 1, (mark,)))
    house.append(c.SetLetters("Partition 0", 2))
    house.append(c.SetGrant("Partition 0", 3, "p1", "000001-a", died=True))
    house.worker("p1")
    house.run(1)
    assert sorted(house.state.letters("Partition 0")) == [1]
    grant = house.state.grant("Partition 0")
    assert grant is not None
    house.append(c.SetLetters("Partition 0", grant.grant, (mark,)))
    house.run(1)
    assert sorted(house.state.letters("Partition 0")) == [grant.grant]
