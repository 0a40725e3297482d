"""Which incarnation counts, who is dead, and what is fenced."""

from __future__ import annotations

import pytest

from headgate.core.coordination import messages as c
from headgate.core.coordination.events import Fence, FenceFailed, Heartbeat

from ...house import House, plan


def two(**timing: object) -> tuple:
    """Two workers, two tasks each; p1 leads."""
    house = House(**timing)
    one, other = house.worker("p1"), house.worker("p2")
    house.run(3)
    return house, one, other


def test_tasks_of_the_dead_are_granted_only_after_the_fence_has_returned():
    house, one, other = two()
    one.hold.add(Fence)
    house.kill(other)
    house.run(20)
    assert len(one.tasks) == 2
    assert house.state.fence("p2") is None
    one.hold.clear()
    house.carry_out(one, one.leader, one.held[0])
    house.run(1)
    assert len(one.tasks) == 4
    assert house.state.fence("p2") == other.init[0]


def test_a_fence_that_fails_is_tried_again():
    house, one, other = two()
    house.fences_work = False
    house.kill(other)
    house.run(12)
    assert len(one.tasks) == 2
    house.fences_work = True
    house.run(3)
    assert len(one.tasks) == 4


def test_a_fence_without_an_answer_is_asked_for_again():
    house, one, other = two(fence_deadline_s=5.0)
    one.hold.add(Fence)
    house.kill(other)
    house.run(20)
    assert len(one.held) > 2
    one.feed(one.leader, FenceFailed("p9", "000001-a"))
    assert len(one.tasks) == 2


def test_a_fence_timeout_that_is_shortened_counts_for_the_fence_that_is_under_way():
    """It was waited for as long as the old one said."""
    house, one, other = two(fence_deadline_s=3600.0)
    one.hold.add(Fence)
    house.kill(other)
    house.run(12)
    assert len(one.held) == 1
    house.request("u1", "set-config", setting="fence.timeout", value="2s")
    house.run(4)
    assert len(one.held) > 1


def test_a_stalled_main_loop_is_dead():
    """It beats, from a thread of its own, but its main loop has not turned for stall.timeout."""
    house, one, other = two()
    house.beat(Heartbeat("p2", other.process, other.member.incarnation, 9.0, turn_age_s=400.0))
    house.run(1)
    assert ("p2", other.init[0]) in house.fenced
    dead = [(note.fields["why"], note.level) for note in one.notes if note.text == "worker is dead"]
    assert dead == [("stalled", "error")], "a worker that is declared dead is an error in the log"


@pytest.mark.parametrize("leads", [False, True])
def test_a_word_that_someone_is_dead_is_not_believed_while_it_speaks(leads: bool):
    """Such a record, forged under the id of a living worker, had it fenced for ever, since its process keeps its id; and one under the
    leader's id had it replaced."""
    house, one, other = two()
    told = one if leads else other
    before = list(one.init), list(other.init), one.leader.term
    for _ in range(5):
        house.beat(Heartbeat(told.member.config.processor, told.process, "", 0.0, gone=True))
        house.run(2)
    assert not house.fenced
    assert (list(one.init), list(other.init), one.leader.term) == before
    assert one.leader.state == "leading"


def test_a_supervisor_reports_a_dead_child_soon():
    """Nobody waits for a session of silence; its tasks with state wait for the child that comes back."""
    house, _, other = two()
    mine = set(other.tasks)
    house.kill(other)
    house.beat(Heartbeat("p2", other.process, "", 0.0, gone=True))
    house.run(4)
    assert ("p2", other.init[0]) in house.fenced
    assert len(house.owners()) == 2
    again = house.worker("p2")
    house.run(1)
    assert set(again.tasks) == mine


def test_a_zombie_that_wakes_up_begins_another_life():
    """It was fenced meanwhile; its tasks are abandoned, and it is granted some anew as another incarnation."""
    house, one, other = two()
    other.frozen = True
    house.run(12)
    assert len(one.tasks) == 4
    other.frozen = False
    house.run(5)
    assert other.member.incarnation != other.init[0]
    assert [len(w.tasks) for w in (one, other)] == [2, 2]


def test_a_second_process_with_the_same_id_supersedes_the_first():
    """The newer incarnation counts; the older is fenced, and its process stops."""
    house, _, other = two()
    rival = house.worker("p2")
    house.run(3)
    assert other.exit is not None
    assert other.exit.code == 1
    assert house.state.member("p2").incarnation == rival.member.incarnation
    assert len(rival.tasks) == 2


def test_a_worker_that_left_without_releasing_is_fenced():
    house, one, other = two()
    house.append(c.SetProcessor("p2", other.init[0], other.process, "at-p2", "left"))
    other.dead = True
    house.run(1)
    assert ("p2", other.init[0]) in house.fenced
    house.run(12)
    assert len(one.tasks) == 4


def test_set_fence_waits_for_every_recorded_life_below_it():
    """A fence of incarnation n says that all before n are fenced, so they must be."""
    house, one, other = two()
    other.dead = True
    house.append(c.SetProcessor("p2", "000099-x", "other", "at-p2", "joined"))
    house.initialised.add(("p2", "000099-x"))
    one.hold.add(Fence)
    house.run(12)
    fences = {f.incarnation: f for f in one.held}
    assert set(fences) == {other.init[0], "000099-x"}
    one.hold.clear()
    house.carry_out(one, one.leader, fences["000099-x"])
    house.settle()
    assert house.state.fence("p2") is None
    house.carry_out(one, one.leader, fences[other.init[0]])
    house.settle()
    assert house.state.fence("p2") == "000099-x"


def test_other_code_is_not_named_while_a_run_lives():
    house, _, _ = two()
    stranger = house.worker("p3", plan("d2"))
    assert stranger.exit.code == 1
    assert "stage:all" in stranger.exit.why
    assert house.state.member("p3") is None


def test_a_member_that_moved_to_another_place_is_named_with_it():
    house, _, other = two()
    life = house.state.recorded("p2")[other.init[0]]
    other.frozen = True
    house.append(
        c.SetProcessor(
            "p2", life.incarnation, life.process, "elsewhere", "joined", life.deployment, fingerprint=life.fingerprint
        )
    )
    house.run(1)
    assert house.state.member("p2").location == "elsewhere"


def test_a_dismissed_process_stays_dismissed_through_its_next_life():
    house, _, other = two()
    other.stuck = set(other.tasks)
    house.request("u1", "stop", worker="p2")
    house.append(
        c.SetProcessor(
            "p2", "000050-x", other.process, "at-p2", "joined", "d1", fingerprint=dict(other.code.fingerprint)
        )
    )
    house.initialised.add(("p2", "000050-x"))
    house.settle()
    assert house.state.member("p2").dismissed == "stopped"
    assert house.state.member("p2").incarnation == "000050-x"


def test_a_worker_that_left_with_empty_hands_need_not_be_fenced():
    """It released everything before it went: nothing of it can write any more that matters."""
    house, one, other = two()
    house.leave(other)
    house.run(12)
    assert ("p2", other.init[0]) not in house.fenced
    assert len(one.tasks) == 4


def test_a_member_that_no_one_recorded_is_no_one():
    """Somebody wrote `set-member` by hand, past the leader: its worker waited for ever to be named, and its tasks with it."""
    house = House()
    one = house.worker("p1")
    house.run(3)
    house.append(c.SetMember("p1", "000099-zz", "elsewhere"))
    house.run(3)
    member = house.state.member("p1")
    assert (member.incarnation, member.location) == (one.member.incarnation, "at-p1")
    assert (one.ready.ready, len(one.tasks)) == (True, 4)
