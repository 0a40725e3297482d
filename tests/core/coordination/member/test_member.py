"""The member machine: beginning a life, leading it, losing it, and going."""

from __future__ import annotations

import pytest

from headgate.core import orders as o
from headgate.core.coordination import messages as c
from headgate.core.coordination.events import Beat, Fence, FenceFailed, FenceReturned, Heartbeat, JobNote
from headgate.core.coordination.member.member import LATE, Member, MemberState
from headgate.core.coordination.member.plan import MemberConfig
from headgate.core.coordination.member.protocol import (
    CloseProducer,
    Exit,
    InitProducer,
    Leave,
    MessagesUnknown,
    MessagesWritten,
    Probed,
    ProducerLost,
    ProducerReady,
    Readiness,
    SendOrder,
    WriteMessages,
)
from headgate.core.coordination.messages import AskEnd, End, Read, SetLeader
from headgate.core.graph.model import JobModel
from headgate.core.machine import IllegalEvent, Now, Tick, diagram, replay
from headgate.core.names import StreamPartition

from ...house import House, plan
from ...whole import everything

NOW = Now(0.0, 0)


def entry(offset: int, message: c.Message) -> c.Entry:
    return c.Entry(offset, c.key_of(message), message)


def life(incarnation: str, process: str, state: str = "joined", location: str = "here") -> c.SetProcessor:
    return c.SetProcessor("p1", incarnation, process, location, state)


def entered(*messages: c.Message, **given: object) -> tuple[Member, list]:
    """A member that has read these messages to the end."""
    member = Member(MemberConfig("p1", "me", "me", **({"location": "here"} | given)))
    assert member.handle(Tick(), NOW) == [AskEnd(1)]
    assert member.handle(End(len(messages), 1), NOW) == [] or not messages
    said = (
        member.handle(Read(tuple(entry(n, m) for n, m in enumerate(messages)), len(messages)), NOW) if messages else []
    )
    return member, said


# ------------------------------------------------------------------------------------------------------- beginning a life


def test_the_first_life_of_a_processor():
    member = Member(MemberConfig("p1", "me", "me"))
    assert member.deadline() == 0.0
    assert member.handle(Tick(), NOW) == [AskEnd(1)]
    assert member.handle(End(0, 1), NOW) == [InitProducer("000001-me")]
    assert member.handle(ProducerReady("000009-x"), NOW) == []
    said = member.handle(ProducerReady("000001-me"), NOW)
    assert isinstance(said[0], WriteMessages)
    assert said[0].messages[0].state == "joined"
    assert said[1] == Readiness(False, "waiting for a run to begin")


def test_what_a_member_shows_is_made_once_for_each_life():
    """It is looked at for every query that a worker answers."""
    member = Member(MemberConfig("p1", "me", "me"))
    before = member.view
    assert (before.processor, before.process, before.incarnation, before.job) == ("p1", "me", "", member.job)
    assert member.view is before
    for event in (Tick(), End(0, 1), ProducerReady("000001-me")):
        member.handle(event, NOW)
    assert member.view.incarnation == "000001-me"
    assert member.view is member.view is not before


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({}, "waiting"),
        ({"lock_free": True}, "fencing"),
        ({"lock_free": True, "location": "elsewhere"}, "waiting"),
        ({"lock_free": True, "forerunners": frozenset({"oldest", "old"})}, "fencing"),
        ({"lock_free": True, "forerunners": frozenset({"other"})}, "waiting"),
        ({"lock_free": True, "forerunners": frozenset[str]()}, "waiting"),
        ({"supervised": True, "forerunners": frozenset[str]()}, "fencing"),
        ({"supervised": True}, "fencing"),
    ],
)
def test_a_predecessor_is_dead_only_by_proof(given: dict, state: str):
    """Its lock is free and it was here, or the supervisor says so. A lock file that names others is on another disk: two machines claim one
    location, and the predecessor may live on the other one.
    """
    member, said = entered(life("000004-old", "old"), **given)
    assert member.state == state
    assert (said == [Fence("p1", "000004-old")]) == (state == "fencing")


@pytest.mark.parametrize("given", [{"lock_free": True}, {"supervised": True}])
def test_one_that_came_later_is_not_dead_because_the_predecessor_was(given: dict):
    """A process with the same name had come while this one was cut off, and it was fenced although it lived."""
    member, _ = entered(life("000004-old", "old"), **given)
    assert member.state == "fencing"
    member.handle(FenceFailed("p1", "000004-old", "no broker"), NOW)
    member.handle(Read((entry(1, c.SetFence("p1", "000004-old")), entry(2, life("000005-new", "new"))), 3), NOW)
    member.handle(Tick(), Now(1.0, 0))
    assert member.state == "waiting"


def test_a_predecessor_that_left_needs_no_fence():
    member, said = entered(life("000004-old", "old", "left"))
    assert said == [InitProducer("000005-me")]
    assert member.state == "initialising"


def test_a_predecessor_that_still_speaks_goes_on_and_the_newcomer_does_not_start():
    member, _ = entered(life("000004-old", "old"))
    member.handle(Beat(Heartbeat("p2", "other", "", 0.0)), NOW)
    assert member.state == "waiting"
    said = member.handle(Beat(Heartbeat("p1", "old", "000004-old", 0.0)), NOW)
    assert isinstance(said[0], Exit)
    assert said[0].code == 1


@pytest.mark.parametrize("how", ["silent", "gone", "left", "fenced"])
def test_what_ends_the_wait_for_a_predecessor(how: str):
    member, _ = entered(life("000004-old", "old"))
    if how == "silent":
        for n in range(8):
            said = member.handle(Beat(Heartbeat("p1", "me", "", float(n))), NOW)
    elif how == "gone":
        member.handle(Beat(Heartbeat("p1", "old", "", 0.0, gone=True)), NOW)
        for n in range(4):
            said = member.handle(Beat(Heartbeat("p1", "me", "", float(n))), NOW)
    elif how == "left":
        said = member.handle(Read((entry(5, life("000004-old", "old", "left")),), 6), NOW)
    else:
        said = member.handle(Read((entry(5, c.SetFence("p1", "000004-old")),), 6), NOW)
    expected = Fence("p1", "000004-old") if how in ("silent", "gone") else InitProducer("000005-me")
    assert said == [expected]


def test_fences_that_fail_are_tried_again_after_a_pause():
    member, said = entered(life("000003-older", "older"), life("000004-old", "old"), supervised=True)
    assert said == [Fence("p1", "000003-older"), Fence("p1", "000004-old")]
    member.handle(FenceReturned("p1", "000003-older"), NOW)
    member.handle(FenceFailed("p1", "000004-old", "no broker"), NOW)
    assert member.state == "resting"
    assert member.deadline() == 1.0
    assert member.handle(FenceFailed("p1", "000004-old"), NOW) == []
    assert member.handle(Tick(), Now(0.5, 0)) == []
    assert len(member.handle(Tick(), Now(1.0, 0))) == 2
    member.handle(FenceReturned("p1", "000004-old"), NOW)
    assert member.handle(FenceReturned("p1", "000003-older"), NOW) == [InitProducer("000005-me")]
    assert member.handle(FenceReturned("p1", "000003-older"), NOW) == []


def test_an_id_is_initialised_once_whatever_came_of_it():
    """After a failure the next try has another incarnation."""
    member, said = entered()
    assert said == []
    member.handle(ProducerLost("000009-x", "not ours"), NOW)
    member.state = "fencing"
    assert member.handle(ProducerLost("000001-me", "too late to matter"), NOW) == []
    member.state = "initialising"
    member.handle(ProducerLost("000001-me", "no broker"), NOW)
    assert member.state == "resting"
    assert member.handle(Tick(), Now(1.0, 0)) == [InitProducer("000002-me")]


def test_other_code_or_another_run_id_is_refused_before_anything_is_written():
    run = c.SetRun("r1", "d1", "running", "u", fingerprint={"stage:a": "1"})
    member, said = entered(run, fingerprint={"stage:a": "2"})
    assert said[0].code == 1
    assert "stage:a: was '1', is '2'" in said[0].why
    assert member.state == "exited"


# ----------------------------------------------------------------------------------------------------------- leading a life


def test_what_was_recorded_is_read_back_and_written_again_if_it_is_not_there():
    """The outcome was unknown: the end is asked for, read to, and only then judged."""
    member, _ = entered()
    member.handle(ProducerReady("000001-me"), NOW)
    assert member.handle(MessagesUnknown("timeout"), NOW) == [AskEnd(2)]
    assert member.handle(End(4, 2), NOW) == []
    again = member.handle(Read((), 4), NOW)
    assert isinstance(again[0], WriteMessages)
    assert member.handle(MessagesWritten(4), NOW) == []
    assert member.handle(Read((entry(4, again[0].messages[0]),), 5), NOW) == []
    assert member.handle(MessagesUnknown("late"), NOW) == []


def test_a_new_life_after_a_fatal_error():
    """Everything is abandoned, the old id fenced, and a new one begins; the leader moves the grants to it."""
    house = House()
    one = house.worker("p1")
    first = one.member.incarnation
    house.producer_lost(one)
    house.run(2)
    assert one.member.incarnation != first
    assert ("p1", first) in house.fenced
    assert len(one.tasks) == 4
    assert one.init == ["000001-p1x0", "000002-p1x0"]
    house.feed_late = one.member.handle(ProducerLost(first, "late"), house.now)
    assert house.feed_late == []


def test_a_broken_target_holds_back_only_its_own_tasks():
    """It is asked, and while it cannot be written nobody else notices; then the task goes on, in the same incarnation."""
    house = House()
    one = house.worker("p1")
    house.targets_work = False
    house.producer_lost(one, "no such topic", (("Partition 1", "no topic 'x'"),), StreamPartition("x", 0))
    house.run(20)
    assert set(one.tasks) == {"Partition 0", "Partition 2", "Partition 3"}
    assert house.state.task_state("Partition 1").why == "no topic 'x'"
    assert one.init == ["000001-p1x0", "000002-p1x0"]
    house.targets_work = True
    house.run(20)
    assert len(one.tasks) == 4
    assert one.init == ["000001-p1x0", "000002-p1x0"]


RUN = c.SetRun("r1", "d1", "running", "u")
MODEL = JobModel(
    run_id="r1", deployment="d1", tasks={"t": (StreamPartition("s", 0),)}, wanted={"t": "p1"}, processors=("p1",)
)
GRANTED = [RUN, c.SetJobModel(MODEL), c.SetChangelog("t", 0), c.SetGrant("t", 3, "p1", "000001-me")]
"""And it stands at 5."""


def granted() -> tuple[Member, list]:
    """A member that has just read its first grant."""
    member, _ = entered(deployment="d1")
    member.handle(ProducerReady("000001-me"), NOW)
    member.handle(MessagesWritten(0), NOW)
    stream = [c.SetProcessor("p1", "000001-me", "me", "here", "joined", "d1"), *GRANTED]
    return member, member.handle(Read(tuple(entry(n, m) for n, m in enumerate(stream)), 5), NOW)


def starts(said: list) -> list[int]:
    return [one.order.grant for one in said if isinstance(one, SendOrder) and isinstance(one.order, o.Start)]


def test_a_task_is_started_when_all_is_read_that_stood_behind_its_grant():
    member, said = granted()
    assert AskEnd(2) in said
    assert starts(said) == []
    assert starts(member.handle(Tick(), NOW)) == []
    assert starts(member.handle(End(6, 2), NOW)) == []
    assert starts(member.handle(Read((), 6), Now(0.1, 0))) == [3]


def test_a_zombie_does_not_start_what_was_taken_from_it():
    """It wakes, and reads its grant in one piece of the stream, and in the next who has the task now."""
    member, said = granted()
    assert starts(said) == []
    said = member.handle(End(7, 2), NOW)
    taken = [entry(5, c.SetFence("p1", "000001-me")), entry(6, c.SetGrant("t", 4, "p2", "000001-other"))]
    said += member.handle(Read(tuple(taken), 7), NOW)
    assert starts(said) == []
    assert member.state == "reading"


def test_an_answer_that_was_long_on_its_way_is_asked_for_again():
    """It may have slept between the question and the answer, and somebody may have taken the task meanwhile."""
    member, _ = granted()
    late = Now(member.config.session_s, 0)
    said = member.handle(End(5, 2), late)
    assert starts(said) == []
    assert AskEnd(3) in said
    assert starts(member.handle(End(5, 2), late)) == []
    assert starts(member.handle(End(5, 3), late)) == [3]


def test_answers_that_are_always_late_are_said_and_not_only_asked_for_again():
    """Its tasks do not start while that is so; it says why, in the log once, and as what it waits for."""
    member, _ = granted()
    member.handle(Read((entry(5, c.SetMember("p1", "000001-me", "here")),), 6), NOW)
    told: list[object] = []
    for turn in range(2, 5):
        said = member.handle(End(6, turn), Now((turn - 1) * member.config.session_s, 0))
        assert AskEnd(turn + 1) in said
        told += [one for one in said if isinstance(one, JobNote | Readiness)]
    said = member.handle(End(6, 5), Now(3 * member.config.session_s, 0))
    assert starts(said) == [3]
    assert told == [
        JobNote(LATE, {"took_s": 6, "session_s": 6}, "warning"),
        Readiness(False, f"waiting for its tasks: t (not started yet); {LATE}"),
    ]
    assert Readiness(False, "waiting for its tasks: t (restoring)") in said


def test_a_life_that_is_lost_while_leaving_is_not_begun_again():
    """It says `left`; the leader fences what it held."""
    house = House()
    one, two = house.worker("p1"), house.worker("p2")
    house.run(3)
    two.stuck = set(two.tasks)
    house.leave(two)
    assert two.exit is None
    house.producer_lost(two)
    assert two.exit.code == 0
    house.run(15)
    assert len(one.tasks) == 4
    assert len(two.init) == 1


def test_a_fence_while_leaving_ends_it():
    house = House(release_s=5.0)
    house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    two.stuck = set(two.tasks)
    house.leave(two)
    house.run(8)
    assert two.exit.code == 0
    assert len(two.init) == 1


@pytest.mark.parametrize(("no_wait", "code"), [(False, None), (True, 4)])
def test_a_worker_that_finds_its_run_closed_waits_unless_told_not_to(no_wait: bool, code: int | None):
    house = House()
    house.worker("p1")
    house.request("u1", "drain")
    one = house.worker("p1", no_wait=no_wait)
    house.run(3)
    assert (None if one.exit is None else one.exit.code) == code


def test_no_wait_does_not_stop_who_begins_a_run_himself():
    house = House()
    house.worker("p1")
    house.request("u1", "drain")
    one = house.worker("p1", plan("d2"), no_wait=True)
    house.run(3)
    assert len(one.tasks) == 4


def test_a_waiting_worker_whose_code_is_not_that_of_the_new_run_goes():
    house = House()
    house.worker("p1")
    house.request("u1", "drain")
    old = house.worker("p1")
    house.run(1)
    house.worker("p2", plan("d2"))
    house.run(3)
    assert old.exit.code == 1
    assert "differs" in old.exit.why


def test_ready_means_that_tasks_run_and_that_no_one_drains():
    """From the first moment of a drain it is not."""
    house = House()
    one = house.worker("p1")
    assert one.ready == Readiness(True, "")
    house.drains = False
    house.request("u1", "drain")
    assert not one.ready.ready
    two = house.worker("p2")
    one.report("Partition 0", o.TaskState.FAILED, "bad")
    assert not two.ready.ready
    house.leave(two)
    assert "leaving" in two.ready.why


def test_a_worker_whose_incarnation_has_ended_is_not_ready_from_that_moment():
    """Nothing runs any more, and while no broker answers, the next incarnation may be far away: the state that is left must not stand."""
    member, _ = granted()
    member.handle(Read((entry(5, c.SetMember("p1", "000001-me", "here")),), 6), NOW)
    said = member.handle(ProducerLost("000001-me", "the brokers are gone"), NOW)
    assert Readiness(False, "incarnation 000001-me has ended: the brokers are gone") in said


def test_what_is_not_ready_is_named_with_its_reason():
    """`waiting for its tasks` alone says neither which nor for what."""
    house = House()
    one = house.worker("p1")
    one.report("Partition 0", o.TaskState.FAILED, "record at in[0] offset 3: bad")
    assert one.ready == Readiness(False, "waiting for its tasks: Partition 0 (failed: record at in[0] offset 3: bad)")
    one.report("Partition 0", o.TaskState.FAILED, "")
    assert one.ready == Readiness(False, "waiting for its tasks: Partition 0 (failed)")


def test_a_worker_names_some_of_many_tasks():
    """It may run hundreds."""
    house = House(partitions=6)
    one = house.worker("p1")
    assert one.ready.ready
    for task in list(one.tasks):
        one.report(task, o.TaskState.FAILED, "bad")
    assert one.ready.why.endswith("Partition 2 (failed: bad) and 3 more")


def test_a_restarted_worker_is_not_ready_before_its_tasks_are_its_own_again():
    """What its predecessor was granted is not what it runs; a load balancer must not be told otherwise, not even for a moment."""
    house = House()
    house.kill(house.worker("p1"))
    again = house.worker("p1")
    house.run(30)
    assert again.ready == Readiness(True, "")
    assert [standing.ready for standing in again.stood].count(True) == 1


def test_a_member_that_is_not_named_waits_for_the_leader():
    member, _ = entered(c.SetRun("r1", "d1", "running", "u"))
    said = member.handle(ProducerReady("000001-me"), NOW)
    assert said[-1] == Readiness(False, "waiting for the leader")


@pytest.mark.parametrize("state", ["reading", "waiting", "initialising"])
def test_sigterm_before_anything_was_granted_exits_at_once(state: str):
    member = Member(MemberConfig("p1", "me", "me"))
    if state != "reading":
        member, _ = entered(*([life("000004-old", "old")] if state == "waiting" else []))
    else:
        member.handle(Tick(), NOW)
    said = member.handle(Leave("SIGTERM"), NOW)
    assert said[-1] == Exit(0, "SIGTERM")
    assert (said[0] == CloseProducer("000001-me")) == (state == "initialising")
    assert member.handle(Leave("again"), NOW) == []
    assert member.deadline() is None


def test_a_zombie_between_two_lives_does_not_fence_who_came_after_it():
    """It rests after its producer broke; meanwhile another process has become this processor: it goes."""
    member, _ = entered()
    member.handle(ProducerReady("000001-me"), NOW)
    member.handle(Read((entry(0, life("000001-me", "me")),), 1), NOW)
    assert member.handle(ProducerLost("000001-me", "broken"), NOW)[-1] == AskEnd(2)
    member.handle(End(1, 2), NOW)
    assert member.state == "fencing"
    member.handle(FenceFailed("p1", "000001-me"), NOW)
    member.handle(Read((entry(1, life("000002-new", "new")),), 2), NOW)
    said = member.handle(Tick(), Now(5.0, 0))
    assert said == [Exit(1, "another process has become 'p1': 000002-new")]


def test_a_zombie_that_wakes_reads_who_came_after_it_before_it_begins_again():
    """The first that it hears may be that it was fenced; who did it stands in the stream, unread."""
    member, _ = entered()
    member.handle(ProducerReady("000001-me"), NOW)
    member.handle(Read((entry(0, life("000001-me", "me")),), 1), NOW)
    assert member.handle(ProducerLost("000001-me", "fenced"), NOW)[-1] == AskEnd(2)
    assert member.state == "reading"
    assert member.handle(End(3, 2), NOW) == []
    said = member.handle(Read((entry(2, life("000002-new", "new")),), 3), NOW)
    assert said == [Exit(1, "another process has become 'p1': 000002-new")]


def lost(member: Member, now: float, *, failed: tuple[tuple[str, str], ...] = ()) -> float | None:
    """Its life is lost; when, if not at once, it begins the next one."""
    member.handle(ProducerLost(member.incarnation, "broken", failed), Now(now, 0))
    ask = member._ticket
    said = member.handle(End(member._position, ask), Now(now, 0))
    assert (said == [InitProducer(member.incarnation)]) == (member.state == "initialising")
    return None if member.state == "initialising" else member.deadline()


def test_lives_that_end_without_a_culprit_begin_with_growing_pauses():
    """Whatever ends every life: no more than a handful of them in a minute, for each takes memory here and at the broker."""
    member, _ = entered()
    now, pauses = 0.0, []
    for _ in range(8):
        member.handle(ProducerReady(member.incarnation), Now(now, 0))
        due = lost(member, now)
        if due is None:
            pauses.append(0.0)
            continue
        pauses.append(due - now)
        assert not member.handle(Tick(), Now(due - 0.01, 0))
        assert member.state == "resting"
        now = due
        assert [type(one) for one in member.handle(Tick(), Now(now, 0))] == [InitProducer]
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_life_that_ended_because_of_a_task_is_followed_at_once():
    """That task is held back, so it will not end the next one; nobody else waits for it."""
    member, _ = entered()
    for n in range(5):
        member.handle(ProducerReady(member.incarnation), Now(float(n), 0))
        assert lost(member, float(n), failed=((f"Partition {n}", "no key"),)) is None


def test_a_producer_that_cannot_be_made_is_tried_with_growing_pauses_too():
    member, _ = entered()
    now, pauses = 0.0, []
    for _ in range(4):
        member.handle(ProducerLost(member.incarnation, "no broker"), Now(now, 0))
        pauses.append(member.deadline() - now)
        now = member.deadline()
        member.handle(Tick(), Now(now, 0))
    assert pauses == [1.0, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("late", [False, True])
def test_a_record_of_unknown_outcome_does_not_outlive_the_life_that_wrote_it(late: bool):
    """Both the record and the life over ask for the end; the answer to the later question serves both, whenever it comes."""
    member, _ = entered()
    member.handle(ProducerReady("000001-me"), NOW)
    assert member.handle(MessagesUnknown("no answer"), NOW) == [AskEnd(2)]
    assert member.handle(ProducerLost("000001-me", "broken"), NOW)[-1] == AskEnd(3)
    if late:
        assert member.handle(End(0, 2), NOW) == []
    member.handle(End(1, 3), NOW)
    if not late:
        assert member.handle(End(0, 2), NOW) == []
    said = member.handle(Read((entry(0, life("000001-me", "me")),), 1), NOW)
    assert said == [Fence("p1", "000001-me")]
    member.handle(FenceReturned("p1", "000001-me"), NOW)
    assert WriteMessages in map(type, member.handle(ProducerReady("000002-me"), NOW))


def test_who_came_while_its_last_life_was_fenced_counts_too():
    member, _ = entered()
    member.handle(ProducerReady("000001-me"), NOW)
    member.handle(Read((entry(0, life("000001-me", "me")),), 1), NOW)
    member.handle(ProducerLost("000001-me", "broken"), NOW)
    assert member.handle(End(1, 2), NOW) == [Fence("p1", "000001-me")]
    member.handle(Read((entry(1, life("000002-new", "new")),), 2), NOW)
    said = member.handle(FenceReturned("p1", "000001-me"), NOW)
    assert said == [Exit(1, "another process has become 'p1': 000002-new")]


def test_one_that_was_fenced_while_it_lived_begins_again():
    """A stall took it for dead: everything is abandoned, and another incarnation asks for its tasks."""
    house = House()
    house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    first = two.member.incarnation
    two.frozen = True
    house.run(9)
    two.frozen = False
    house.run(3)
    assert two.member.incarnation != first
    assert two.exit is None


def test_one_whose_place_was_taken_stops():
    house = House()
    house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    house.worker("p2")
    house.run(3)
    assert two.exit.code == 1
    assert "another process has become 'p2'" in two.exit.why


def test_who_is_tried_under_its_name_again_and_again_leaves_nothing():
    """A second process of the same name in a crash loop, each under a name of its own, for months."""
    member, _ = granted()
    for n in range(100):
        member.handle(Beat(Heartbeat("p1", f"twin-{n}", "", 0.0, gone=n % 2 == 0)), NOW)
    member.handle(Beat(Heartbeat("p1", "me", "", 1.0)), NOW)
    kept = member.liveness
    assert (set(kept._last) | set(kept._turn) | set(kept._gone)) <= {"me"}


def test_overrides_reach_it_with_their_offset():
    house = House()
    one = house.worker("p1")
    house.request("u1", "set-config", setting="commit.interval", value="1s")
    assert one.config.overrides == {"commit.interval": "1s"}
    assert one.config.offset <= len(house.log)


def test_one_that_is_dismissed_leaves():
    house = House()
    house.worker("p1")
    two = house.worker("p2")
    house.run(3)
    house.request("u1", "stop", worker="p2")
    assert two.exit == Exit(0, "stopped")


# -------------------------------------------------------------------------------------------------------------- the table


EVENTS = [
    Read((), 0), End(0), Beat(Heartbeat("p9", "other", "", 0.0)), FenceReturned("p1", "000001-x"), FenceFailed("p1", "000001-x"),
    ProducerReady("000001-x"), ProducerLost("000001-x", ""), MessagesWritten(0), MessagesUnknown(),
    Probed(StreamPartition("x", 0)), o.TaskReported("t", 1, "running"),
    o.SeekApplied("t", "q"), Leave("x"), Tick(),
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("state", MemberState)
def test_every_state_takes_what_its_table_says_and_nothing_else(state: str, event: object):
    """Illegal pairs raise and change nothing; legal ones lead to a state that the table names."""
    member = Member(MemberConfig("p1", "me", "me"))
    if state not in ("new", "reading"):
        member.handle(Tick(), NOW)
        member.incarnation = "000001-me"
    member.state = state
    to, _ = Member._index.get((state, type(event)), (None, ""))
    if to is None:
        before = everything(member)
        with pytest.raises(IllegalEvent):
            member.handle(event, NOW)
        assert everything(member) == before
    else:
        stale = member.stale(event)
        member.handle(event, NOW)
        assert member.state in ({state} if stale else to or {state})


def test_its_diagram_and_its_story():
    """A worker dies, another takes over its tasks, the job drains: every member's story is read, and plays again to the same end."""
    house = House()
    workers = [house.worker(name) for name in ("p1", "p2", "p3")]
    house.run(3)
    house.kill(workers[0])
    house.run(14)
    house.request("u1", "drain")
    house.run(4)
    text = diagram(Member)
    assert "initialising --> joined: ProducerReady" in text
    assert "waiting --> fencing" in text
    for one in workers:
        assert "initialising → joined" in one.member.story()
        copy = replay(lambda one=one: Member(one.member.config), one.member.steps())
        assert everything(copy) == everything(one.member)


def test_a_job_whose_topics_are_those_of_another_job_does_not_begin_and_changes_nothing():
    """`my_sales` and `my-sales`: the second would have joined the run of the first, under its name."""
    house = House()
    house.worker("p1", job="my_sales/1")
    assert house.state.leader.job == "my_sales/1"
    before = len(house.log)
    two = house.worker("p2", job="my-sales/1")
    assert (two.exit.code, two.exit.why) == (
        1,
        "the topics of the job 'my-sales/1' are those of the job 'my_sales/1'",
    )
    assert len(house.log) == before
    again = house.worker("p3", job="my_sales/1")
    assert again.exit is None


def test_of_two_jobs_that_begin_one_stream_at_once_the_last_claim_stays():
    """The other one is told, whatever it has begun."""
    house = House()
    one = house.worker("p1", job="my_sales/1")
    assert len(one.tasks) == 4
    house.append(SetLeader(9, "p2", "other", "my-sales/1"))
    house.settle()
    assert one.exit.why == "the topics of the job 'my_sales/1' are those of the job 'my-sales/1'"
    assert not one.tasks
