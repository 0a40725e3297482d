"""What may be deleted, and what a zombie writes again afterwards."""

from __future__ import annotations

from headgate.core import coordinator as c
from headgate.core.jobstate import JobState
from headgate.core.leader_cleanup import MOST, cleanup
from headgate.core.leader_draft import Draft, Memory
from headgate.core.leader_plan import LeaderConfig
from headgate.core.machine import Now
from headgate.core.model import JobModel

from .house import House


def test_superseded_task_states_go_and_come_and_go():
    """A zombie's late word about an old grant is ignored, and deleted again."""
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


def test_records_of_fenced_incarnations_go_when_nobody_asks_where_they_were():
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
    assert house.state.member("p2") is None


def test_requests_go_with_their_answer_and_answers_go_with_time():
    house = House(answer_kept_ms=3000)
    house.worker("p1")
    house.wish("u1", "pause")
    assert house.state.request("u1") is None
    assert house.answer("u1")[0] == "done"
    house.wish("u1", "pause")
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
    draft = Draft(JobState(), LeaderConfig("p1", "x", "u"), Memory(), Now(1.0, 2), lambda life: "")
    draft.put(c.SetMember("p2", "000001-a", "here"))
    draft.put(c.SetFence("p2", "000001-a"))
    draft.put(c.SetJobModel(JobModel(version=1, processors=("p1", "p2"))))
    cleanup(draft)
    assert "p2" in [member.processor for member in draft.state.messages["set-member"].values()]
    draft.put(c.SetJobModel(JobModel(version=2, processors=("p1",))))
    cleanup(draft)
    assert not draft.state.messages["set-member"]
