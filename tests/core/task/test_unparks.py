"""An operator's order about parked records: a letter of its own, carried out once, remembered in the commit of its effect."""

from __future__ import annotations

from dataclasses import replace

from headgate.core import orders as o
from headgate.core.task.protocol import BeginAgain, ChunkDone, ChunkTaken, CommitBegins, RunStep, StepDone, WorkFailed

from ..task_rig import ME, ORDERS0, Rig, run_view, source_plan

SKIP = o.Unpark("u1", o.LEAVE_OUT, 7, 9)


def rig_of(**given: object) -> Rig:
    rig = Rig(source_plan(), offset=10, auto_commit=False, auto_steps=False, **given).start()  # pyright: ignore[reportArgumentType]
    rig.commit()
    return rig


def step_of(rig: Rig) -> RunStep:
    [step] = [one for one in rig.of(RunStep) if one.kind == o.UNPARK]
    return step


def test_it_runs_between_chunks_and_counts_with_its_commit() -> None:
    rig = rig_of()
    rig.feed(ChunkTaken(ORDERS0, 12))
    assert rig.feed(SKIP) == []
    rig.feed(ChunkDone(ORDERS0, 12))
    step = step_of(rig)
    assert o.Unpark.of(step.key) == SKIP
    assert rig.feed(SKIP) == []
    rig.feed(StepDone(step.letter))
    assert rig.seeks() == []
    rig.commit()
    assert rig.seeks() == [o.SeekApplied(ME, "u1")]
    assert rig.log[-1][0].applied == ("u1",)
    again = rig.again(auto_commit=True)
    again.feed(SKIP)
    assert (again.seeks(), again.of(RunStep)) == ([o.SeekApplied(ME, "u1")], [])


def test_one_that_changes_nothing_is_refused_with_the_reason() -> None:
    rig = rig_of()
    rig.feed(SKIP)
    rig.feed(StepDone(step_of(rig).letter, refused="no such record is parked"))
    assert rig.seeks() == [o.SeekApplied(ME, "u1", "no such record is parked")]


def test_a_task_that_leaves_has_done_it_or_its_next_owner_does() -> None:
    rig = rig_of()
    rig.feed(SKIP)
    step = step_of(rig)
    rig.feed(o.Release("moved"))
    rig.feed(StepDone(step.letter))
    rig.commit()
    assert rig.seeks() == [o.SeekApplied(ME, "u1")]
    rig = rig_of()
    rig.feed(ChunkTaken(ORDERS0, 12))
    rig.feed(SKIP)
    rig.feed(o.Release("moved"))
    rig.feed(ChunkDone(ORDERS0, 12))
    assert (rig.of(RunStep), rig.seeks()) == ([], [])


def test_one_that_came_while_the_task_was_restored_runs_when_it_works() -> None:
    rig = Rig(source_plan(), offset=10, auto_commit=False, auto_steps=False)
    rig.feed(o.Start(ME, 1, run_view(), 0))
    rig.feed(SKIP)
    rig.commit()
    assert o.Unpark.of(step_of(rig).key) == SKIP


def test_a_failed_task_begins_again_with_it() -> None:
    """More records were parked than may be: they are left out before anything else runs."""
    rig = rig_of()
    rig.feed(ChunkTaken(ORDERS0, 12))
    rig.feed(WorkFailed("10001 records are parked", final=True))
    rig.commit()
    assert rig.task.phase == "failed"
    assert rig.feed(SKIP) == [BeginAgain((SKIP,))]


def test_one_with_which_a_task_failed_is_refused() -> None:
    rig = Rig(source_plan(), offset=10, auto_commit=False, auto_steps=False)
    rig.feed(o.Start(ME, 1, run_view(), 0))
    rig.feed(SKIP)
    rig.commit()
    step_of(rig)
    rig.feed(WorkFailed("the store is gone", final=True))
    rig.commit()
    assert "failed before it was applied: the store is gone" in rig.seeks()[0].refused


def test_a_task_that_has_drained_refuses_it() -> None:
    rig = Rig(source_plan(), offset=10).start()
    rig.feed(o.RunChanged(replace(run_view(), draining="d1")))
    rig.feed(SKIP)
    assert [one.request for one in rig.seeks()] == ["u1"]


def test_a_commit_that_is_lost_forgets_it() -> None:
    rig = rig_of()
    rig.feed(SKIP)
    rig.feed(StepDone(step_of(rig).letter))
    rig.feed(CommitBegins(99))
    again = rig.again(auto_commit=False, auto_steps=False)
    again.feed(SKIP)
    again.commit()
    assert o.Unpark.of(step_of(again).key) == SKIP
