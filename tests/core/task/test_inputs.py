"""Positions, gates, idleness and time of what a task reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core import orders as o
from headgate.core.machine import IllegalEvent, Tick
from headgate.core.names import StreamPartition as SP
from headgate.core.progress.frames import NO_TIME, EndOfStream, Watermark
from headgate.core.progress.producers import StreamPhase
from headgate.core.task.inputs import NEVER
from headgate.core.task.lifts import NOT_YET_S
from headgate.core.task.plan import FOREIGN, InputPlan, OutputPlan, StepPlan, TaskPlan, TaskSettings
from headgate.core.task.protocol import (
    AtEnd,
    ChunkDone,
    ChunkTaken,
    Gate,
    Identified,
    Lag,
    LogEnds,
    Lost,
    NotAnswered,
    NotAtEnd,
    OffsetsResolved,
    PositionMoved,
    Restored,
    RunStep,
    SendControl,
    SettingsChanged,
    StepDone,
    StoreOpened,
    WorkFailed,
)

from ..task_rig import (
    BY,
    BY0,
    JOB,
    ME,
    ORDERS,
    ORDERS0,
    RATES0,
    Rig,
    bootstrap_plan,
    eos,
    hearing,
    reader_plan,
    run_view,
    source_plan,
    two_inputs,
    wm,
)


def test_nothing_flows_before_the_bootstrap_inputs_have_been_read():
    rig = Rig(bootstrap_plan()).start()
    assert rig.task.phase == "bootstrapping"
    assert rig.task.inputs.bootstrap == {RATES0: 10}
    assert not rig.task.may_take(ORDERS0)
    with pytest.raises(IllegalEvent):
        rig.handle(ChunkTaken(ORDERS0, 5))
    rig.chunk(RATES0, 9)
    assert rig.task.phase == "bootstrapping"
    rig.feed(PositionMoved(RATES0, 10))
    assert rig.task.phase == "running"
    assert rig.task.may_take(ORDERS0)


@pytest.mark.parametrize(("end", "goes_on"), [(4, True), (30, False), (None, False)])
def test_a_bootstrap_input_whose_log_ends_earlier_now_is_read_to_its_new_end(end, goes_on):
    """It was deleted and re-created meanwhile: nobody waits for an offset that it does not have. What is not known changes nothing."""
    rates, orders = bootstrap_plan().inputs
    rig = Rig(replace(bootstrap_plan(), inputs=(replace(rates, on_lost="oldest"), orders))).start()
    rig.feed(Identified(RATES0, "one"))
    rig.chunk(RATES0, 9)
    rig.feed(Lost(RATES0, 9, 0, end, "another"))
    assert rig.task.phase == "bootstrapping"
    rig.chunk(RATES0, 4)
    assert (rig.task.phase == "running") == goes_on


@pytest.mark.parametrize(
    ("until", "end", "reads"),
    [("newest", 4, 4), (("time", 7), 4, 4), ("newest", 30, 9), ("newest", None, 9), (None, 4, 9)],
)
def test_an_input_whose_log_ends_earlier_now_ends_there(until, end, reads):
    """The end of the run was resolved in the log of before: nobody waits for an offset that the new one does not have. An offset that was
    declared may still come."""
    rig = Rig(source_plan(start=0, until=until, until_of={0: 9}, on_lost="oldest")).start()
    rig.feed(Identified(ORDERS0, "one"))
    rig.chunk(ORDERS0, 6)
    rig.feed(Lost(ORDERS0, 6, 0, end, "another"))
    rig.chunk(ORDERS0, reads - 1)
    assert rig.told() == ["running"]
    rig.chunk(ORDERS0, reads)
    assert rig.told() == ["running", "ended"]
    assert rig.task.inputs.until == {ORDERS0: reads}


def test_an_end_that_was_asked_for_before_the_log_grew_ends_no_run():
    """Records of the same log are gone. What the answer says of its end is older than the end of the run."""
    rig = Rig(source_plan(start=0, until="newest", until_of={0: 9}, on_lost="oldest")).start()
    rig.feed(Identified(ORDERS0, "one"))
    rig.feed(Lost(ORDERS0, 0, 2, 4, "one"))
    assert rig.task.inputs.until == {ORDERS0: 9}
    rig.chunk(ORDERS0, 4)
    assert rig.told() == ["running"]


def test_an_empty_bootstrap_input_counts_as_read():
    rig = Rig(bootstrap_plan(), offset=0)
    rig.handle(o.Start(ME, 1, run_view(), 0))
    rig.handle(StoreOpened())
    rig.handle(LogEnds(0, 0, 1))
    rig.handle(Restored(0))
    rig.handle(OffsetsResolved(0, {RATES0: 3, ORDERS0: 0}, ends={RATES0: 3}))
    rig.commit()
    assert rig.task.phase == "running"


def test_drain_during_bootstrap_does_not_hang_and_processes_nothing_on_a_table_that_is_not_there():
    """The original waits for ever here: its marker has no offset, so its bootstrap never ends."""
    rig = Rig(bootstrap_plan()).start()
    rig.buffered = {RATES0: 8, ORDERS0: 20}
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.told() == ["running", "drained"]
    assert rig.log[-1][0].positions == {RATES0: 0, ORDERS0: 0}


def test_an_unbounded_table_does_not_keep_a_bounded_job_from_ending():
    plan = bootstrap_plan()
    rig = Rig(TaskPlan(JOB, ME, (plan.inputs[0], InputPlan(ORDERS, (0,), 1, until=5)), plan.outputs)).start()
    rig.chunk(RATES0, 10)
    rig.chunk(ORDERS0, 5)
    assert rig.told() == ["running", "ended"]


def test_a_task_with_nothing_but_tables_waits_for_these():
    rig = Rig(TaskPlan(JOB, ME, (InputPlan("rates", (0,), 1, bootstrap=True, until=4),))).start()
    assert rig.task.phase == "running"
    rig.chunk(RATES0, 4)
    assert rig.told() == ["running", "ended"]


def test_a_source_says_its_greatest_time_less_the_lag_at_most_four_times_an_interval():
    rig = Rig(hearing(source_plan(lag_ms=5))).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.chunk(ORDERS0, 6, 90)
    rig.chunk(ORDERS0, 7, 120)
    rig.wait(0.04)
    assert rig.letters() == [("watermark", ORDERS, 95)]
    rig.wait(0.2)
    assert rig.letters() == [("watermark", ORDERS, 95), ("watermark", ORDERS, 115)]
    assert rig.said() == [("wm", NO_TIME, (0, 1)), ("wm", 95, (0, 1)), ("wm", 115, (0, 1))]


def test_it_wakes_itself_when_there_is_time_to_tell():
    rig = Rig(hearing(source_plan())).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    assert rig.task.deadline() is None
    rig.chunk(ORDERS0, 6, 101)
    assert rig.task.deadline() == pytest.approx(101.05)


def idle_rig() -> Rig:
    plan = source_plan(settings=TaskSettings(watermark_interval_s=0.2, idle_timeout_s=10.0))
    rig = Rig(plan).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    return rig


def test_idleness_is_said_after_answered_fetches_over_the_whole_timeout():
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(6)
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(6)
    assert "idle" not in [kind for kind, _, _ in rig.said()]
    rig.feed(AtEnd(ORDERS0, 5))
    assert rig.said()[-1] == ("idle", 100, (0, 1))
    rig.wait(1)
    rig.chunk(ORDERS0, 6, 100)
    rig.wait(1)
    assert rig.said()[-1] == ("wm", 100, (0, 1))


def test_who_was_idle_when_it_was_stopped_is_not_when_it_is_started():
    """Whatever came meanwhile waits for it: it must have looked before it may say so again."""
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(11)
    rig.feed(AtEnd(ORDERS0, 5))
    assert rig.said()[-1] == ("idle", 100, (0, 1))
    again = rig.again()
    again.wait(1)
    assert again.said()[-1] == ("wm", 100, (0, 1))


def test_who_goes_back_is_not_idle_any_more():
    """A seek comes when idleness is known and about to be said, by the commit that now holds the seek: what is read again is no silence."""
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(11)
    rig.auto_commit = False
    rig.feed(AtEnd(ORDERS0, 5))
    rig.feed(o.Seek("q", ORDERS0.stream, ORDERS0.partition, 0))
    rig.commit()
    assert "idle" not in [kind for kind, _, _ in rig.said()]


def test_silence_is_not_idleness():
    """The broker is gone: no fetch is answered. However long that takes, the partition is not idle."""
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.feed(NotAnswered(ORDERS0))
    rig.wait(999)
    rig.feed(AtEnd(ORDERS0, 5))
    assert "idle" not in [kind for kind, _, _ in rig.said()]


def known_idle(**changes: object) -> Rig:
    """It has been idle for long enough, and the commit that would say so has not begun."""
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(11)
    rig.auto_commit = False
    rig.feed(AtEnd(ORDERS0, 5, **changes))
    return rig


def test_a_worker_that_was_stopped_before_it_could_say_idle_does_not_say_so_when_it_wakes():
    """Records came meanwhile, and nobody has asked for them: time that goes on without this task makes all of them late."""
    rig = known_idle()
    rig.now += 60
    rig.commit()
    rig.auto_commit = True
    rig.chunk(ORDERS0, 6, 90)
    rig.wait(1)
    assert "idle" not in [kind for kind, _, _ in rig.said()]


def test_a_worker_that_was_stopped_and_has_missed_nothing_is_idle_with_the_next_answer():
    rig = known_idle()
    rig.now += 60
    rig.commit()
    assert "idle" not in [kind for kind, _, _ in rig.said()]
    rig.auto_commit = True
    rig.wait(1)
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(1)
    assert rig.said()[-1] == ("idle", 100, (0, 1))


def test_an_answer_that_could_not_be_told_at_once_is_as_old_as_it_is():
    """The worker was stopped between the broker's answer and the look at it."""
    rig = known_idle(age_s=2.4)
    rig.now += 0.2
    rig.commit()
    assert "idle" not in [kind for kind, _, _ in rig.said()]


def test_what_is_in_hand_when_the_commit_begins_is_no_silence():
    """The record came after the last answer; its chunk is at work, and is committed later than what this commit says of time."""
    rig = known_idle()
    rig.feed(ChunkTaken(ORDERS0, 6))
    rig.commit()
    assert "idle" not in [kind for kind, _, _ in rig.said()]


def said_idle() -> Rig:
    rig = known_idle()
    rig.auto_commit = True
    rig.wait(0.2)
    assert rig.said()[-1] == ("idle", 100, (0, 1))
    return rig


def test_who_has_said_that_it_is_idle_takes_it_back_when_no_one_answers_any_more():
    """Its input is paused with records in the buffer, or the broker is silent: nothing else happens that would wake the task."""
    rig = said_idle()
    for _ in range(4):  # answers go on, and it stays idle
        rig.now += 2
        rig.feed(AtEnd(ORDERS0, 5))
    rig.feed(o.RunChanged(run_view(paused_streams=frozenset({ORDERS}))))
    while (deadline := rig.task.deadline()) is not None and rig.now < 200:
        rig.now = deadline
        rig.feed(Tick())
    assert rig.said()[-1] == ("wm", 100, (0, 1))
    assert rig.said().count(("idle", 100, (0, 1))) == 1
    assert rig.task.deadline() is None


def test_who_has_said_that_it_is_idle_takes_it_back_as_soon_as_its_input_is_paused():
    """Records may come from now on, and other inputs go on: until it is read again, time must not pass them."""
    rig = said_idle()
    rig.feed(o.RunChanged(run_view(paused_streams=frozenset({ORDERS}))))
    rig.wait(0.2)
    assert rig.said()[-1] == ("wm", 100, (0, 1))
    rig.feed(AtEnd(ORDERS0, 5))  # an answer that was under way
    rig.wait(0.2)
    assert rig.said()[-1] == ("wm", 100, (0, 1))


def test_who_was_idle_before_a_pause_is_idle_again_when_an_answer_shows_that_nothing_has_come():
    rig = said_idle()
    rig.feed(o.RunChanged(run_view(paused_streams=frozenset({ORDERS}))))
    rig.feed(o.RunChanged(run_view()))
    rig.wait(0.2)
    assert rig.said()[-1] == ("wm", 100, (0, 1))
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(0.2)
    assert rig.said()[-1] == ("idle", 100, (0, 1))


def test_who_has_said_that_it_is_idle_takes_it_back_while_its_chunk_fails_and_is_tried_again():
    """The records of that chunk are older than what the others have: time that went on meanwhile would make them late."""
    rig = said_idle()
    rig.feed(ChunkTaken(ORDERS0, 6))
    for _ in range(3):
        rig.feed(WorkFailed("boom"))
        while rig.task.work.retry_s is not None:
            rig.now = rig.task.deadline()
            rig.feed(Tick())
    assert rig.said()[-1] == ("wm", 100, (0, 1))
    rig.feed(ChunkDone(ORDERS0, 6, 101))
    rig.wait(1)
    assert rig.said()[-1] == ("wm", 101, (0, 1))


def test_steps_do_not_hear_a_time_past_an_input_of_which_nothing_is_known_any_more():
    """A worker wakes, and the first that it has is a chunk of its other input: what came for the idle one meanwhile is not late. An idle
    input is lifted to where the other one was when its last answer was asked for."""
    plan = TaskPlan(
        JOB,
        ME,
        (InputPlan(ORDERS, (0,), 1), InputPlan("rates", (0,), 1)),
        (),
        TaskSettings(watermark_interval_s=0.2, idle_timeout_s=10.0),
        (StepPlan("join", frozenset({ORDERS, "rates"})),),
    )
    rig = Rig(plan).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.chunk(RATES0, 5, 50)
    rig.wait(1)
    rig.feed(AtEnd(RATES0, 5))
    rig.wait(11)
    for then in (50, 100):
        rig.feed(AtEnd(RATES0, 5))
        rig.wait(1)
        assert rig.task.step_times == {"join": then}
    rig.now += 60
    rig.chunk(ORDERS0, 6, 500)
    rig.wait(1)
    assert rig.task.step_times == {"join": 100}
    for then in (100, 500):
        rig.feed(AtEnd(RATES0, 5))
        rig.wait(1)
        assert rig.task.step_times == {"join": then}


ORDERS1 = SP(ORDERS, 1)


def two_partitions(**changes: object) -> Rig:
    """A task that reads two partitions of a source: 50 in the first one, which then is idle, and 100 in the second one."""
    settings = TaskSettings(watermark_interval_s=0.2, idle_timeout_s=10.0)
    rig = Rig(hearing(source_plan(settings=settings, partitions=(0, 1), width=2, **changes))).start()
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 50)
    rig.chunk(ORDERS1, 5, 100)
    rig.wait(1)
    assert rig.times() == {"step": 50}
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(11)
    return rig


def answered(rig: Rig, at: SP = ORDERS0) -> int:
    """The broker has nothing more. Returns the time of the step then."""
    rig.feed(AtEnd(at, rig.task.position(at)))
    rig.wait(1)
    return rig.times()["step"]


def test_an_idle_partition_is_lifted_to_the_others_of_its_stream_as_far_as_they_were_when_it_was_asked_for():
    rig = two_partitions()
    assert answered(rig) == 50
    rig.chunk(ORDERS1, 6, 200)
    assert [answered(rig), answered(rig)] == [100, 200]
    rig.feed(AtEnd(ORDERS0, 5))
    assert rig.task.inputs.unobserved == set()  # the other one has not gone on, so nobody looks again
    assert rig.task.pace.deadline is None
    rig.chunk(ORDERS0, 6, 60)
    rig.chunk(ORDERS1, 7, 300)
    rig.wait(1)
    assert rig.times() == {"step": 200}


def test_a_partition_that_is_alone_or_whose_neighbours_are_idle_is_lifted_by_no_one():
    rig = two_partitions()
    rig.feed(AtEnd(ORDERS1, 5))
    rig.wait(11)
    rig.feed(AtEnd(ORDERS1, 5))
    for _ in range(5):
        rig.feed(AtEnd(ORDERS1, 5))
        assert answered(rig) == 50
    assert rig.task.inputs.progress.idle(ORDERS)
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(11)
    rig.feed(AtEnd(ORDERS0, 5))
    assert not rig.feed(AtEnd(ORDERS0, 5))
    assert rig.task.inputs.unobserved == set()


def test_a_partition_that_has_ended_with_a_time_that_counts_lifts_the_others_no_further():
    """Its next run goes on there."""
    settings = TaskSettings(watermark_interval_s=0.2, idle_timeout_s=10.0)
    plan = hearing(source_plan(settings=settings, partitions=(0, 1, 2), width=3, until_of={1: 5}))
    rig = Rig(replace(plan, bounded=True)).start()
    rig.chunk(ORDERS0, 5, 50)
    rig.chunk(ORDERS1, 5, 100)
    rig.chunk(SP(ORDERS, 2), 5, 300)
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(11)
    assert [answered(rig) for _ in range(4)] == [50, 100, 100, 100]
    assert rig.task.inputs.silent_since(ORDERS) == NOT_YET_S  # the third one


def test_while_a_partition_drains_no_one_is_lifted():
    rig = two_partitions()
    answered(rig)
    rig.buffered = {ORDERS1: 5, ORDERS0: 9}
    rig.auto_commit = False
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.task.inputs.progress.partition(ORDERS, 1).status == StreamPhase.DRAINED
    assert rig.task.inputs._others(ORDERS0) is None


def test_since_when_a_source_is_silent_is_when_its_last_answer_was_asked_for():
    rig = idle_rig()
    inputs = rig.task.inputs
    rig.feed(AtEnd(ORDERS0, 5))
    assert inputs.silent_since(ORDERS) == NOT_YET_S
    first = rig.now
    rig.now += 3
    rig.feed(AtEnd(ORDERS0, 5, age_s=1.0))
    assert inputs.silent_since(ORDERS) == first
    rig.now += 1
    rig.feed(AtEnd(ORDERS0, 5))
    assert inputs.silent_since(ORDERS) == first + 2
    assert inputs.silent_since("elsewhere") == NEVER
    bounded = Rig(source_plan(until=5)).start()
    bounded.chunk(ORDERS0, 5, 100)
    assert bounded.task.inputs.silent_since(ORDERS) == NEVER


def test_the_silence_of_a_table_is_not_waited_for():
    """Its records have no part in time: one that changes all the time would keep a task from confirming for ever."""
    rig = Rig(bootstrap_plan()).start()
    assert rig.task.inputs.silent_since("rates") == NEVER
    assert rig.task.inputs.silent_since(ORDERS) == NOT_YET_S


def stopped_idle() -> Rig:
    rig = two_partitions()
    answered(rig)
    rig.chunk(ORDERS1, 6, 110)
    assert rig.log[-1][1][ORDERS, 0, "own"][3] is True
    return rig


def test_who_was_idle_at_its_position_is_idle_at_the_first_answer_that_finds_nothing_behind_it():
    """The whole timeout again, at every restart, kept the windows of a rolling restart open. What lifts it must be asked for anew."""
    again = stopped_idle().again()
    assert again.task.inputs.was_idle == {ORDERS0: 5}
    again.wait(1)
    again.chunk(ORDERS1, 7, 200)
    again.feed(AtEnd(ORDERS0, 5))
    again.wait(0.1)
    assert again.task.inputs.progress.partition(ORDERS, 0).idle
    assert not again.task.inputs.progress.partition(ORDERS, 1).idle
    assert again.times() == {}
    again.wait(0.9)
    assert answered(again) == 200


@pytest.mark.parametrize("what", ["a record", "another position"])
def test_who_was_idle_and_has_more_to_read_is_not_idle_at_the_first_answer(what: str):
    again = stopped_idle().again()
    again.wait(1)
    if what == "a record":
        again.chunk(ORDERS0, 6, 60)
        again.feed(AtEnd(ORDERS0, 6))
    else:
        again.feed(AtEnd(ORDERS0, 7))
    again.wait(1)
    assert again.task.inputs.was_idle == {}
    assert not again.task.inputs.progress.partition(ORDERS, 0).idle


def test_a_shared_stream_that_is_sought_counts_the_confirmations_behind_that_anew():
    """How often its producers had confirmed before was the count that it waited for, and it had begun at nothing."""
    far = SP("f", 0)
    rig = Rig(TaskPlan(JOB, ME, (InputPlan("f", (0,), 1, FOREIGN, jobs=("x/1",)),))).start()
    idle = Watermark("x/1", "u", "a", 1, 1, 100, True)

    def silent() -> float:
        for _ in range(2):
            rig.feed(AtEnd(far, rig.task.position(far)))
            rig.now += 1
        for _ in range(2):
            rig.hear(far, idle)
            rig.now += 1
        return rig.task.inputs.silent_since("f")

    for _ in range(5):
        rig.hear(far, idle)
    first = silent()
    assert first > NOT_YET_S
    rig.feed(AtEnd(far, rig.task.position(far)))
    rig.feed(NotAtEnd(far))
    rig.feed(o.Seek("s", "f", 0, 0))
    rig.hear(far, idle)
    rig.hear(far, idle)
    assert rig.task.inputs.silent_since("f") == first
    assert silent() > first


def test_what_is_behind_an_open_transaction_is_not_idle():
    rig = idle_rig()
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(11)
    rig.feed(AtEnd(ORDERS0, 5))
    rig.wait(1)
    assert rig.said()[-1][0] == "idle"
    rig.feed(NotAtEnd(ORDERS0))
    rig.wait(1)
    assert rig.said()[-1][0] == "wm"
    assert rig.feed(NotAtEnd(ORDERS0)) == []
    assert rig.feed(AtEnd(ORDERS0, 4)) == []
    rig.feed(AtEnd(ORDERS0, 9))
    assert rig.task.position(ORDERS0) == 9
    rig.feed(ChunkTaken(ORDERS0, 12))
    assert rig.feed(AtEnd(ORDERS0, 12)) == []


def test_streams_of_other_kinds_have_no_idleness_of_their_own():
    rig = Rig(reader_plan()).start()
    assert rig.feed(AtEnd(BY0, 0)) == []
    assert rig.feed(NotAtEnd(BY0)) == []
    assert rig.chunk(BY0, 3, 100) != []


def test_a_downstream_task_tells_the_least_of_its_producers():
    rig = Rig(hearing(reader_plan())).start(run_view("a", "b"))
    rig.wait(1)
    rig.hear(BY0, wm("a", 10))
    rig.wait(1)
    assert rig.letters() == []
    rig.hear(BY0, wm("b", 7))
    rig.wait(1)
    assert rig.letters() == [("watermark", BY, 7)]


def test_pause_stops_intake_from_outside_only():
    rig = Rig(two_inputs()).start()
    rig.feed(o.RunChanged(run_view(paused_job=True)))
    assert rig.task.phase == "paused"
    assert not rig.task.may_take(ORDERS0)
    assert rig.task.may_take(BY0)
    rig.feed(o.RunChanged(run_view(paused_streams=frozenset({BY}))))
    assert rig.task.phase == "running"
    assert rig.task.may_take(ORDERS0)
    assert not rig.task.may_take(BY0)


def test_sources_wait_while_too_much_stands_between_the_stages():
    rig = Rig(two_inputs()).start()
    assert rig.feed(Lag(100)) == []
    rig.feed(Lag(101))
    assert rig.of(Gate)[-1].closed == {ORDERS0: "lag"}
    assert rig.task.may_take(BY0)
    rig.feed(Lag(50))
    assert rig.of(Gate)[-1].closed == {}


def test_another_idle_timeout_is_judged_by_at_once():
    """A source that had been at its end for long enough by the new one was idle only after the old one."""
    rig = Rig(source_plan(settings=TaskSettings(idle_timeout_s=3600.0))).start()
    rig.feed(AtEnd(ORDERS0, 0))
    rig.now += 30
    rig.feed(AtEnd(ORDERS0, 0))
    assert not rig.task.inputs.progress.idle("orders")
    rig.feed(SettingsChanged(TaskSettings(idle_timeout_s=10.0)))
    rig.wait(1)
    assert rig.task.inputs.progress.idle("orders")


def test_frames_wait_for_their_epoch_and_are_taken_later():
    rig = Rig(reader_plan()).start(run_view("a"))
    rig.hear(BY0, eos("a", epoch=2))
    assert rig.task.inputs.closed == {BY0: "epoch"}
    rig.feed(o.RunChanged(run_view("a", epoch=2)))
    assert rig.told() == ["running", "ended"]


def test_a_bounded_source_closes_behind_its_end():
    rig = Rig(TaskPlan(JOB, ME, (InputPlan(ORDERS, (0, 1), 2, until_of={0: 5}),))).start()
    rig.chunk(ORDERS0, 5, 100)
    assert rig.task.inputs.closed == {ORDERS0: "ended"}
    rig.feed(PositionMoved(ORDERS0, 7))
    assert rig.task.position(ORDERS0) == 7
    rig.feed(ChunkTaken(SP(ORDERS, 1), 5))
    rig.feed(ChunkDone(SP(ORDERS, 1), 5, ends=frozenset({ORDERS})))
    assert rig.told() == ["running", "ended"]


def test_what_is_buffered_is_read_to_its_end_in_a_drain_and_no_further():
    rig = Rig(source_plan()).start()
    rig.buffered = {ORDERS0: 9}
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.task.may_take(ORDERS0)
    rig.chunk(ORDERS0, 9)
    assert rig.task.inputs.closed == {ORDERS0: "draining"}


def test_a_partition_that_waits_for_the_broker_is_closed_and_a_seek_forgets_its_end():
    rig = Rig(source_plan()).start()
    rig.feed(AtEnd(ORDERS0, 0))
    rig.handle(o.Seek("s", ORDERS, 0, "newest"))
    assert rig.task.inputs.closed == {ORDERS0: "seek"}
    rig.handle(OffsetsResolved(1, {ORDERS0: 4}))
    assert rig.task.inputs.clocks[ORDERS0].end_since_s is None
    foreign = Rig(TaskPlan(JOB, ME, (InputPlan("f", (0,), 1, FOREIGN, jobs=("x/1",)),))).start()
    foreign.feed(o.Seek("s", "f", 0, 4))
    assert foreign.task.position(SP("f", 0)) == 4


@pytest.mark.parametrize("bounded", [True, False])
def test_the_last_time_of_a_stream_stands_before_its_end_in_letters_and_frames(bounded):
    """The end was told before a watermark that was due, so short bounded runs never closed a window that stays open at the end."""
    plan = replace(hearing(source_plan(until=5)), bounded=bounded)
    rig = Rig(replace(plan, outputs=(OutputPlan(BY, 2, frozenset({"step"})),))).start()
    rig.chunk(ORDERS0, 5, 100)
    assert rig.letters() == [("watermark", ORDERS, 100), ("end", ORDERS, None), ("end", None, None)]
    assert rig.said()[-2:] == [("wm", 100, (0, 1)), ("end", 1, (0, 1))]
    frames = [one.frame for one in rig.of(SendControl, last=False)]
    assert frames[-1].left is not bounded


def test_a_partition_that_has_ended_keeps_its_time_where_every_input_ends_and_leaves_otherwise():
    """Time ran on to the fastest partition, and what the next run brought of the others was late."""
    second = SP(ORDERS, 1)
    for bounded, then in ((True, 100), (False, 300)):
        plan = replace(source_plan(partitions=(0, 1), width=2, until_of={0: 5, 1: 9}), bounded=bounded)
        rig = Rig(hearing(plan)).start()
        rig.chunk(ORDERS0, 5, 100)
        rig.chunk(second, 7, 300)
        rig.wait(1)
        assert rig.times() == {"step": then}
        assert rig.again().task.inputs.progress.watermark(ORDERS) == then
        rig.chunk(second, 9, 400)
        assert rig.times() == {"step": then}
        assert rig.told()[-1] == "ended"


def test_a_partition_that_brings_nothing_in_this_run_does_not_hold_the_time():
    rig = Rig(replace(hearing(source_plan(partitions=(0, 1), width=2, until_of={0: 5, 1: 0})), bounded=True)).start()
    rig.chunk(ORDERS0, 4, 100)
    rig.wait(1)
    assert rig.times() == {"step": 100}
    rig.chunk(ORDERS0, 5, 110)
    assert (rig.times(), rig.told()[-1]) == ({"step": 110}, "ended")


def test_what_user_code_has_stopped_to_read_leaves_the_time_to_the_others():
    """It ends in the middle, of its own will; the others do not wait for the end of the run."""
    left, right = SP("left", 0), SP("right", 0)
    inputs = (InputPlan("left", (0,), 1, until=50), InputPlan("right", (0,), 1, until=50))
    rig = Rig(hearing(TaskPlan(JOB, ME, inputs, bounded=True))).start()
    rig.chunk(left, 5, 100, ends=frozenset({"left"}))
    rig.chunk(right, 5, 300)
    rig.wait(1)
    assert rig.times() == {"step": 300}
    again = rig.again()
    again.chunk(right, 6, 400)
    again.wait(1)
    assert again.times() == {"step": 400}


def test_a_job_that_has_ended_leaves_the_time_to_the_sources_of_a_bounded_run():
    inputs = (InputPlan("f", (0,), 1, FOREIGN, jobs=("x/1",)), InputPlan(ORDERS, (0,), 1, until=50))
    rig = Rig(hearing(TaskPlan(JOB, ME, inputs, bounded=True))).start()
    rig.hear(SP("f", 0), Watermark("x/1", "u", "a", 1, 1, 100))
    rig.chunk(ORDERS0, 5, 300)
    rig.wait(1)
    assert rig.times() == {"step": 100}
    rig.hear(SP("f", 0), EndOfStream("x/1", "u", "a", 1, 1))
    assert rig.times() == {"step": 300}


def test_what_executors_have_read_of_an_input_that_had_ended_is_told_before_its_end_is_passed_on():
    """The offsets of a batch by reference end before anybody has seen its times."""
    plan = replace(hearing(source_plan(until=5)), bounded=True)
    rig = Rig(replace(plan, outputs=(OutputPlan(BY, 2, frozenset({"step"})),)), auto_steps=False).start()
    rig.chunk(ORDERS0, 5)
    (step,) = rig.of(RunStep)
    assert step.kind == "end"
    rig.feed(StepDone(step.letter, seen=((ORDERS0, 100),)))
    (step,) = rig.of(RunStep)
    assert (step.kind, step.times) == ("watermark", (("step", 100),))
    rig.feed(StepDone(step.letter))
    assert rig.said()[-2:] == [("wm", 100, (0, 1)), ("end", 1, (0, 1))]


def test_a_producer_set_that_the_job_state_does_not_know_yet_is_waited_for():
    rig = Rig(reader_plan()).start(run_view(producers={}))
    rig.hear(BY0, eos("a"))
    assert rig.task.inputs.closed == {BY0: "epoch"}


def test_an_input_that_user_code_has_ended_stays_ended_for_the_run_and_the_others_go_on():
    """Also over a restart, although the job declares no end for it. The next run reads on behind it."""
    first, second = SP("left", 0), SP("right", 0)
    rig = Rig(TaskPlan(JOB, ME, (InputPlan("left", (0,), 1), InputPlan("right", (0,), 1)))).start()
    rig.chunk(first, 5, 100, ends=frozenset({first.stream}))
    assert rig.task.inputs.closed == {first: "ended"}
    rig.chunk(second, 3, 90)
    again = rig.again()
    assert (again.task.inputs.closed, again.task.phase) == ({first: "ended"}, "running")
    assert again.told()[-1] == "running"
    again.chunk(second, 4, 95, ends=frozenset({first.stream, second.stream}))
    assert again.told()[-1] == "ended"
    anew = again.again(run_view(run_id="r2"))
    assert (anew.task.inputs.closed, anew.task.position(first)) == ({}, 5)


def test_the_time_of_a_partition_so_far_outlives_a_restart():
    """What a record without a value has: the greatest time of the records before it, also of those that an earlier life has read."""
    plan = TaskPlan(JOB, ME, (InputPlan(ORDERS, (0,), 1, lag_ms=10),))
    rig = Rig(plan).start()
    assert rig.task.inputs.time_of(ORDERS0) is None
    rig.chunk(ORDERS0, 1, 100)
    assert rig.task.inputs.time_of(ORDERS0) == 100
    rig.commit()
    again = rig.again()
    assert again.task.inputs.time_of(ORDERS0) == 100
    assert Rig(reader_plan()).start().task.inputs.time_of(BY0) is None
