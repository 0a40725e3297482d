"""What operators hear: each thing once, in order, in bounded steps, also after a crash in between."""

from __future__ import annotations

from headgate.core import orders as o
from headgate.core.progress.frames import MAX_TIME
from headgate.core.task.plan import InputPlan, OutputPlan, TaskPlan
from headgate.core.task.protocol import ChunkDone, ChunkTaken, RunAgain, RunStep, StepDone, WorkDue, WorkFailed

from ..task_rig import (
    BY,
    BY0,
    JOB,
    ME,
    ORDERS,
    ORDERS0,
    Rig,
    drain,
    eos,
    hearing,
    merged,
    reader_plan,
    run_view,
    source_plan,
    wm,
)


def test_a_bounded_source_ends_and_says_so_once():
    rig = Rig(source_plan(until=5)).start()
    rig.chunk(ORDERS0, 5, 100)
    assert rig.letters() == [("end", ORDERS, None), ("end", None, None)]
    assert rig.said()[-1] == ("end", 1, (0, 1))
    assert rig.told() == ["running", "ended"]
    assert not rig.task.may_take(ORDERS0)
    assert rig.again().told() == ["ended"]


def test_an_end_that_is_where_it_starts_ends_at_once():
    rig = Rig(source_plan(start=5, until=5)).start()
    assert rig.told() == ["ended", "running"] or rig.told() == ["running", "ended"]
    assert rig.task.phase == "ended"


def test_ended_is_reported_only_when_it_is_durable():
    rig = Rig(source_plan(until=5), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    rig.begin_commit()
    assert rig.told() == ["running"]
    assert rig.task.phase == "ending"
    rig.end_commit()
    assert rig.told() == ["running", "ended"]


def test_a_task_that_owns_nothing_of_what_flows_into_an_output_ends_it_at_once():
    plan = TaskPlan(JOB, ME, (InputPlan(ORDERS, (0,), 1),), (OutputPlan(BY, 2, frozenset({"elsewhere"})),))
    rig = Rig(plan).start()
    assert rig.said() == [("end", 1, (0, 1))]


def test_a_restart_in_the_middle_of_an_aggregation_completes():
    """The original keeps what it has heard in memory, and its offsets on disk: after a restart it waits for ever."""
    rig = Rig(reader_plan()).start(run_view("a", "b"))
    rig.hear(BY0, eos("a"))
    again = rig.again()
    assert again.task.position(BY0) == 1
    again.hear(BY0, eos("b"))
    assert again.told() == ["running", "ended"]


def test_control_cuts_a_step_and_the_step_is_told_again_after_a_crash():
    """A flush of three steps dies after the second: the letter comes again, and the ended task is reported once."""
    rig = Rig(source_plan(until=5), auto_steps=False).start()
    rig.chunk(ORDERS0, 5, 100)
    letter = rig.of(RunStep)[-1].letter
    rig.feed(StepDone(letter, more=True))
    assert rig.of(RunStep)[-1].kind == "end"
    rig.feed(StepDone(letter, more=True))
    assert rig.said()[-1][0] == "wm"
    again = rig.again(auto_steps=True)
    assert again.letters() == [("end", ORDERS, None), ("end", None, None)]
    assert again.said()[-1] == ("end", 1, (0, 1))
    assert sorted(again.told()) == ["ended", "running"]


def test_the_next_step_waits_for_the_commit_of_the_last_one():
    rig = Rig(source_plan(until=5), auto_steps=False, auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    letter = rig.of(RunStep)[-1].letter
    rig.begin_commit()
    rig.feed(StepDone(letter, more=True))
    rig.did = []
    rig.end_commit()
    assert rig.of(RunStep) == []
    rig.begin_commit()
    assert not rig.task.may_take(ORDERS0)
    rig.end_commit()
    assert [one.letter for one in rig.of(RunStep)] == [letter]


def test_while_a_step_waits_for_its_commit_nothing_runs_so_nothing_can_be_done_or_fail():
    """An answer that comes twice must not complete a letter whose last step has not run."""
    rig = Rig(source_plan(until=5), auto_steps=False, auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    letter = rig.of(RunStep)[-1].letter
    rig.feed(StepDone(letter, more=True))
    assert rig.feed(StepDone(letter)) == []
    assert rig.feed(WorkFailed("boom")) == []
    assert rig.task.work.step is not None
    rig.did = []
    rig.commit()
    assert [one.letter for one in rig.of(RunStep)] == [letter]


def test_time_that_was_about_to_be_told_is_overtaken_by_the_drain():
    """While a timer's letter runs, time advances and then a drain comes: one last time, the drain, no older time after it."""
    rig = Rig(reader_plan(), auto_steps=False).start(run_view("a"))
    rig.wait(1)
    rig.feed(WorkDue("timer", "t"))
    rig.hear(BY0, wm("a", 10))
    rig.wait(1)
    rig.hear(BY0, drain("a"))
    for _ in range(4):
        rig.feed(StepDone(rig.task.letters.number))
    assert rig.letters() == [
        ("timer", None, None),
        ("watermark", BY, MAX_TIME),
        ("drain", BY, None),
        ("drain", None, None),
    ]
    assert rig.told()[-1] == "drained"


def test_a_failing_step_is_run_again():
    rig = Rig(source_plan(until=5), auto_steps=False).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(WorkFailed("boom"))
    assert RunAgain(1) in rig.wait(1.1)
    rig.feed(StepDone(rig.task.letters.number))
    rig.feed(StepDone(rig.task.letters.number))
    assert rig.told()[-1] == "ended"


def test_work_that_is_due_runs_between_chunks_and_never_beside_one():
    rig = Rig(source_plan(), auto_steps=False).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(WorkDue("timer", "t1"))
    assert rig.of(RunStep) == []
    rig.feed(ChunkDone(ORDERS0, 5))
    assert [(one.kind, one.key) for one in rig.of(RunStep)] == [("timer", "t1")]
    assert not rig.task.may_take(ORDERS0)
    assert rig.feed(StepDone(99)) == []
    rig.feed(StepDone(1))
    assert rig.task.may_take(ORDERS0)


def test_a_drain_is_told_as_the_last_time_then_the_drain_then_the_whole_task():
    rig = Rig(source_plan()).start()
    rig.feed(o.RunChanged(run_view(draining="d")))
    assert rig.letters() == [("watermark", ORDERS, MAX_TIME), ("drain", ORDERS, None), ("drain", None, None)]


def test_a_maximal_time_that_came_in_frames_is_told_as_part_of_the_drain():
    rig = Rig(reader_plan()).start(run_view("a"))
    rig.wait(1)
    rig.hear(BY0, wm("a", MAX_TIME))
    rig.wait(1)
    assert rig.of(RunStep, last=False)[-1].cause == "drain"
    rig.hear(BY0, drain("a"))
    assert rig.letters() == [("watermark", BY, MAX_TIME), ("drain", BY, None), ("drain", None, None)]


def test_work_goes_between_streams_and_the_last_letter():
    rig = Rig(hearing(source_plan()), auto_steps=False).start()
    rig.feed(WorkDue("timer", "t"))
    rig.feed(StepDone(1))
    rig.wait(1)
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1)
    assert rig.letters() == [("timer", None, None), ("watermark", ORDERS, 100)]


def test_the_time_of_a_step_travels_with_the_letter_and_outlives_a_crash():
    """A task that began again told its timers nothing until every stream had moved once more."""
    rig = merged()
    rig.hear(BY0, eos("a", left=True))
    assert rig.letters()[-2:] == [("watermark", None, None), ("end", BY, None)]
    assert rig.times() == {"both": 200, "one": 200}
    assert rig.again().task.step_times == {"both": 200, "one": 200}
