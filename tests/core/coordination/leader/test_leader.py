"""The leader machine: elections, terms, and whole stories of a job from its first worker to its last."""

from __future__ import annotations

import pytest

from headgate.core import orders as o
from headgate.core.coordination import messages as c
from headgate.core.coordination.events import Beat, FenceFailed, FenceReturned, Heartbeat, JobNote
from headgate.core.coordination.leader.leader import Leader, LeaderState
from headgate.core.coordination.leader.plan import LeaderConfig
from headgate.core.coordination.leader.protocol import (
    BoundsResolved,
    Counts,
    InitLeaderId,
    LeaderIdLost,
    LeaderIdReady,
    Resign,
    Resigned,
    TransactionWritten,
    WriteTransaction,
)
from headgate.core.coordination.member.protocol import Exit
from headgate.core.coordination.messages import AskEnd, End, Read
from headgate.core.machine import IllegalEvent, Now, Tick, diagram, replay

from ...house import House, plan
from ...whole import everything


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


def test_drain_closes_the_run_answers_and_everyone_exits_0():
    """Drained, released, closed, answered; and a restart begins nothing."""
    house = House()
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    house.request("u1", "drain")
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
    one, _two = house.worker("p1"), house.worker("p2")
    house.run(3)
    house.kill(one)
    house.run(20)
    assert house.leads() == ["p2"]
    assert house.state.leader.term == 2
    assert house.owners() == {f"Partition {n}": "p2" for n in range(4)}


def test_terms_that_change_fast_find_a_dead_worker_all_the_same():
    """Each term began to count silence anew, so nobody was found dead while none lasted for a whole session."""
    house = House()
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    house.kill(two)
    for _ in range(4):
        house.run(2)
        one.feed(one.leader, LeaderIdLost(False, "no answer"))
    house.run(2)
    assert house.state.leader.term > 2
    assert ("p2", two.init[0]) in house.fenced


def test_a_broker_outage_kills_no_one():
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
    house.request("u1", "stop")
    assert house.state.run.state == "stopped"
    assert house.answer("u1") == ("done", "")
    again = house.worker("p1")
    house.run(3)
    assert again.tasks == {}
    house.request("u2", "start")
    house.run(2)
    assert house.answer("u2")[0] == "done"
    assert house.state.run.run_id == run
    assert len(again.tasks) == 4


def test_all_inputs_ended_ends_the_run():
    house = House()
    one = house.worker("p1")
    for task in list(one.tasks):
        one.report(task, o.TaskState.ENDED)
    assert house.state.run.state == "ended"
    assert one.exit.code == 0


def test_a_new_deployment_begins_the_next_run_even_when_an_old_worker_leads():
    """The leader of the old code resigns for the one that has the new."""
    house = House()
    house.worker("p1")
    house.request("u1", "drain")
    house.worker("p1")
    house.run(2)
    assert house.leads() == ["p1"]
    new = house.worker("p2", plan("d2"))
    house.run(3)
    assert house.state.run.state == "running"
    assert house.state.run.deployment == "d2"
    assert house.leads() == ["p2"]
    assert len(new.tasks) == 4


# -------------------------------------------------------------------------------------------------- elections, in words

NOW = Now(0.0, 0)


def said(*messages: c.Message, at: int = 0) -> Read:
    """These messages, read from this offset."""
    entries = tuple(c.Entry(at + n, c.key_of(m), m) for n, m in enumerate(messages))
    return Read(entries, at + len(entries))


def life(
    processor: str = "p1", process: str = "me", state: str = "joined", incarnation: str = "000001-a"
) -> c.SetProcessor:
    return c.SetProcessor(processor, incarnation, process, "here", state)


def candidate(*messages: c.Message) -> tuple[Leader, list[object]]:
    """A machine that has read these messages to the end."""
    leader = Leader(LeaderConfig("p1", "me", "uuid", plan("", fingerprint={})))
    assert leader.deadline() == 0.0
    assert leader.handle(Tick(), NOW) == [AskEnd()]
    assert leader.handle(Counts({"orders": 1}), NOW) == []
    assert leader.handle(End(len(messages)), NOW) == []
    return leader, leader.handle(said(*messages), NOW)


def test_the_steps_of_an_election_come_in_their_order():
    """Id, end, read to it, claim, read back; only then a decision."""
    leader, first = candidate(life())
    assert first == [InitLeaderId(1)]
    assert leader.handle(LeaderIdReady(), NOW) == [AskEnd()]
    assert leader.handle(End(3), NOW) == []
    rival = said(c.SetLeader(4, "p2", "other"), at=1)
    assert leader.handle(rival, NOW) == []
    assert leader.handle(Read((), 3), NOW) == [WriteTransaction((c.SetLeader(5, "p1", "me"),))]
    assert leader.handle(TransactionWritten(3), NOW) == []
    begun = leader.handle(said(c.SetLeader(5, "p1", "me"), at=3), NOW)
    assert begun[0] == JobNote("leads", {"term": 5})
    assert leader.state == "writing"


def test_a_claim_behind_ours_ends_it():
    leader, _ = candidate(life())
    leader.handle(LeaderIdReady(), NOW)
    leader.handle(End(1), NOW)
    leader.handle(TransactionWritten(1), NOW)
    leader.handle(said(c.SetLeader(1, "p1", "me"), c.SetLeader(2, "p2", "other"), at=1), NOW)
    assert leader.state == "following"


@pytest.mark.parametrize(
    "messages",
    [
        (c.SetLeader(3, "", ""),),
        (c.SetLeader(3, "p1", "before"),),
        (c.SetLeader(3, "p2", "gone"),),
        (c.SetLeader(3, "p2", "other"), life("p2", "other", "left")),
        (c.SetLeader(3, "p2", "other"), life("p2", "other"), c.SetFence("p2", "000001-a")),
    ],
)
def test_no_one_waits_for_one_who_resigned_left_was_fenced_or_is_his_own_predecessor(messages: tuple):
    assert candidate(life(), *messages)[1] == [InitLeaderId(4)]


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (life("p1", "another"),),
        (life(state="left"),),
        (life(), c.SetRun("r", "d", "running", "u", fingerprint={"stage:a": "1"})),
        (life(), c.SetLeader(3, "p2", "other"), life("p2", "other")),
        (life(), c.SetProcessor("p2", "000001-a", "o", "x", "joined", "d2", fingerprint={"stage:x": "y"})),
    ],
)
def test_who_does_not_stand(messages: tuple):
    """Not recorded, superseded, gone, other code, a leader that may live, or somebody else's code should begin."""
    leader, done = candidate(*messages)
    assert done == []
    assert leader.state == "following"


def test_no_one_leads_on_the_stream_of_another_job():
    """`my-sales` would have written its name over that of `my_sales`, whose workers would all have left."""
    for whose, done in (("my_sales/1", []), ("my-sales/1", [InitLeaderId(4)])):
        leader = Leader(LeaderConfig("p1", "me", "uuid", plan("", fingerprint={}), job="my-sales/1"))
        for event in (Tick(), Counts({"orders": 1}), End(2)):
            leader.handle(event, NOW)
        assert leader.handle(said(life(), c.SetLeader(3, "", "", whose)), NOW) == done


def test_a_silent_or_stalled_leader_is_replaced():
    leader, _ = candidate(life(), c.SetLeader(3, "p2", "other"), life("p2", "other"))
    for n in range(7):
        assert leader.handle(Beat(Heartbeat("p1", "me", "", float(n))), NOW) == []
    assert leader.handle(Beat(Heartbeat("p1", "me", "", 7.0)), NOW) == [InitLeaderId(4)]
    stalled, _ = candidate(life(), c.SetLeader(3, "p2", "other"), life("p2", "other"))
    stalled.handle(Beat(Heartbeat("p2", "other", "", 0.0, turn_age_s=400.0)), NOW)
    assert stalled.handle(Beat(Heartbeat("p1", "me", "", 1.0)), NOW) == [InitLeaderId(4)]


def test_an_override_of_the_stall_timeout_counts_for_who_stalls():
    """It was acknowledged, and the one that the process had started with went on counting."""
    override = c.SetConfig("stall.timeout", "10s")
    stalled, _ = candidate(life(), override, c.SetLeader(3, "p2", "other"), life("p2", "other"))
    stalled.handle(Beat(Heartbeat("p2", "other", "", 0.0, turn_age_s=40.0)), NOW)
    assert stalled.handle(Beat(Heartbeat("p1", "me", "", 1.0)), NOW) == [InitLeaderId(4)]


def test_one_that_was_fenced_waits_for_the_claim_of_the_other():
    """And tries again by itself when that never comes."""
    leader, _ = candidate(life())
    leader.handle(LeaderIdLost(True), NOW)
    assert leader.deadline() == 6.0
    assert leader.handle(Tick(), Now(1.0, 0)) == []
    assert leader.handle(LeaderIdLost(True), NOW) == []
    assert leader.handle(TransactionWritten(1), NOW) == []
    assert leader.handle(LeaderIdReady(), NOW) == []
    assert leader.handle(Tick(), Now(6.0, 0)) == [InitLeaderId(1)]
    leader.handle(LeaderIdLost(True), NOW)
    assert leader.handle(said(c.SetLeader(9, "p2", "other"), life("p2", "other"), at=1), NOW) == []
    assert leader.deadline() is None


def test_a_producer_that_broke_is_tried_again_after_a_moment():
    leader, _ = candidate(life())
    leader.handle(LeaderIdLost(False, "no broker"), NOW)
    assert leader.deadline() == 1.0
    assert leader.handle(Tick(), Now(1.0, 0)) == [InitLeaderId(1)]


STEPS = [LeaderIdReady(), End(1), TransactionWritten(1)]


@pytest.mark.parametrize("steps", range(4))
def test_resigning_at_every_step(steps: int):
    """It gives back what it may have, and ends."""
    leader, _ = candidate(life())
    for step in STEPS[:steps]:
        leader.handle(step, NOW)
    first = leader.handle(Resign(), NOW)
    if leader.state == "resigned":
        assert first == [Resigned()]
    else:
        assert leader.state == "resigning"
        assert leader.handle(Resign(), NOW) == []
        last = leader.handle(TransactionWritten(9) if steps % 2 else LeaderIdLost(False), NOW)
        assert last == [Resigned()]
    assert leader.handle(LeaderIdLost(True), NOW) == []
    assert leader.handle(Tick(), NOW) == []


def test_a_leader_that_leads_gives_it_back():
    house = House()
    one = house.worker("p1")
    house.leave(one)
    assert one.leader.state in ("resigning", "resigned")
    house.worker("p2")
    assert house.leads() == ["p2"]


def test_a_leader_whose_processor_is_someone_else_now_steps_down():
    house = House()
    one = house.worker("p1")
    one.hold.add(Exit)
    house.append(
        c.SetProcessor("p1", "000900-z", "rival", "here", "joined", "d1", fingerprint=dict(one.code.fingerprint))
    )
    house.settle()
    assert house.state.leader.processor == ""
    assert one.leader.state == "following"


EVENTS = [
    Read((), 0), Beat(Heartbeat("p9", "other", "", 0.0)), Counts({}), FenceReturned("p9", "000001-x"), FenceFailed("p9", "000001-x"),
    BoundsResolved("r"), Tick(), End(5), LeaderIdReady(), TransactionWritten(5), LeaderIdLost(True), Resign(),
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("state", LeaderState)
def test_every_state_takes_what_its_table_says_and_nothing_else(state: str, event: object):
    """Illegal pairs raise and change nothing; legal ones lead to a state that the table names."""
    leader = Leader(LeaderConfig("p1", "me", "uuid"))
    if state != "new":
        leader.handle(Tick(), NOW)
    leader.state, leader._written = state, 100  # what it wrote is not read back yet
    to, _ = Leader._index.get((state, type(event)), (None, ""))
    if to is None:
        before = everything(leader)
        with pytest.raises(IllegalEvent):
            leader.handle(event, NOW)
        assert everything(leader) == before
    else:
        leader.handle(event, NOW)
        assert leader.state in (to or {state})


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_a_candidate_whose_pause_is_over_takes_any_event(event: object):
    """A rival that fenced it never claims. Whatever is heard first when the pause is over, it stands again: an answer of the broker that
    came before the clock's own tick ended the worker."""
    leader, _ = candidate(life())
    leader.handle(LeaderIdLost(fenced=True), NOW)
    assert leader.state == "following"
    bar = leader.deadline()
    assert bar is not None
    leader.handle(event, Now(bar, 1000))
    leader.handle(Tick(), Now(bar, 1000))
    assert leader.state == ("resigned" if isinstance(event, Resign) else "standing")


def test_its_diagram_and_its_story():
    """A worker dies, another takes over its tasks, the job drains: every leader's story is read, and plays again to the same end."""
    house = House()
    workers = [house.worker(name) for name in ("p1", "p2", "p3")]
    house.run(3)
    house.kill(workers[0])
    house.run(14)
    house.request("u1", "drain")
    house.run(4)
    assert house.answer("u1")[0] == "done"
    assert "standing --> measuring: LeaderIdReady" in diagram(Leader)
    for one in workers:
        assert "new → " in one.leader.story()
        again = replay(lambda one=one: Leader(one.leader.config), one.leader.steps())
        assert everything(again) == everything(one.leader)


def test_a_fence_that_failed_or_a_child_that_is_gone_is_looked_at_soon():
    """By the leader itself: asked again after a moment; believed without waiting for a session of silence."""
    house = House()
    house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    house.fences_work = False
    house.kill(two)
    house.beat(Heartbeat("p2", two.process, "", 0.0, gone=True))
    house.run(4)
    assert house.state.fence("p2") is None
    house.fences_work = True
    house.run(2)
    assert house.state.fence("p2") == two.init[0]
