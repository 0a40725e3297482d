"""Nothing is said before the commit that holds it; what is lost was never said."""

from __future__ import annotations

import pytest

from headgate.core import orders as o
from headgate.core.task.protocol import (
    ApplyFailed,
    Broken,
    ChunkDone,
    ChunkDropped,
    ChunkTaken,
    CloseStore,
    CommitBegins,
    CommitDone,
    CommitLost,
    Contribute,
    Discard,
    DropChunk,
    SendControl,
    SendReport,
    StepDone,
    WorkFailed,
)

from ..task_rig import ORDERS, ORDERS0, Rig, run_view, source_plan


def test_release_finishes_commits_closes_and_then_reports():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    assert rig.feed(o.Release("moved")) == [DropChunk("moved")]
    assert rig.feed(o.Release("moved")) == []
    rig.feed(ChunkDone(ORDERS0, 5))
    assert rig.of(CloseStore, last=False) == []
    rig.begin_commit()
    assert rig.told() == ["running"]
    rig.end_commit()
    assert rig.told() == ["running", "released"]
    assert rig.log[-1][0].positions == {ORDERS0: 5}


@pytest.mark.parametrize("answer", [ChunkDropped(ORDERS0), WorkFailed("cancelled")])
def test_release_drops_a_chunk_that_does_not_finish(answer):
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(o.Release("moved"))
    rig.feed(answer)
    assert rig.told() == ["running", "released"]
    assert rig.log[-1][0].positions == {ORDERS0: 0}
    assert rig.feed(ChunkDropped(ORDERS0)) == []


def test_release_of_what_waits_for_a_retry_waits_for_no_one():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(WorkFailed("boom"))
    rig.feed(o.Release("moved"))
    assert rig.told() == ["running", "released"]


def test_release_while_the_commit_of_a_step_is_awaited():
    rig = Rig(source_plan(until=5), auto_steps=False, auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    rig.feed(StepDone(rig.task.letters.number, more=True))
    rig.feed(o.Release("moved"))
    rig.commit()
    assert rig.told() == ["running", "released"]


def test_release_just_before_drained_is_durable_reports_both():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(o.RunChanged(run_view(draining="d1")))
    rig.begin_commit()
    rig.feed(o.Release("run closes"))
    rig.end_commit()
    assert rig.told() == ["running", "drained", "released"]


def test_released_before_it_began():
    rig = Rig(source_plan())
    rig.feed(o.Release("moved"))
    assert rig.told() == ["released"]


def test_who_has_failed_goes_when_its_grant_goes():
    """The next incarnation starts it anew, and waits until the one before is gone."""
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(WorkFailed("boom", final=True))
    assert rig.told() == ["running", "failed"]
    assert rig.feed(CommitLost("of a neighbour")) == []
    assert rig.feed(o.Abandon("fenced")) == [Discard("fenced")]
    assert rig.feed(o.Abandon("fenced")) == []


def test_whoever_is_fenced_drops_everything_and_says_nothing():
    rig = Rig(source_plan()).start()
    rig.feed(ChunkTaken(ORDERS0, 5))
    assert rig.feed(o.Abandon("fenced")) == [Discard("fenced")]
    assert rig.feed(ChunkDone(ORDERS0, 5)) == []
    assert rig.feed(CommitBegins(99)) == []
    assert rig.feed(ChunkTaken(ORDERS0, 9)) == []
    assert rig.told() == ["running"]


def test_a_lost_commit_voids_what_was_not_durable():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(ChunkDone(ORDERS0, 5))
    rig.begin_commit()
    assert rig.feed(CommitLost("outcome unknown")) == [Discard("outcome unknown")]
    assert rig.task.phase == "abandoned"
    assert rig.again(auto_commit=True).task.position(ORDERS0) == 0


def test_the_task_that_wrote_to_what_failed_is_failed_and_what_comes_later_changes_nothing():
    """A right was revoked: the incarnation is over for all, but only one task is to blame."""
    rig = Rig(source_plan()).start()
    assert rig.feed(CommitLost("no permission to write to out", blamed=True)) == [
        Discard("no permission to write to out")
    ]
    assert rig.feed(CommitLost("fenced")) == []
    assert (rig.task.phase, rig.task.why) == ("failed", "no permission to write to out")


def test_a_full_disk_fails_the_task_after_its_last_commit():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(ChunkDone(ORDERS0, 5))
    rig.begin_commit()
    rig.feed(ChunkTaken(ORDERS0, 7))
    rig.feed(ChunkDone(ORDERS0, 7))
    rig.feed(ApplyFailed("disk full"))
    assert rig.told() == ["running"]
    rig.begin_commit()
    assert rig.pending is not None
    assert rig.pending.checkpoint.positions == {ORDERS0: 7}
    rig.feed(ApplyFailed("disk full"))
    assert rig.told() == ["running", "failed"]
    assert gone(rig)
    assert rig.feed(ApplyFailed("disk full")) == []


def gone(rig: Rig) -> bool:
    """Whether the last report says that the task can be started again: nobody else would, and it would stand still for good."""
    reports = [one.report for one in rig.all if isinstance(one, SendReport) and isinstance(one.report, o.TaskReported)]
    return reports[-1].gone


@pytest.mark.parametrize("later", [ApplyFailed("disk full"), Broken("the broker does not answer", passing=True)])
def test_a_task_that_failed_for_good_does_not_begin_again_for_what_happens_while_it_stops(later):
    """It would have begun again and again, at the same record, each time that its disk was full or its broker away just then."""
    rig = failing(Broken("its agent was stopped"))
    rig.feed(later)
    while rig.wants_commit:
        rig.commit()
    assert rig.told() == ["running", "failed"]
    assert not gone(rig)
    assert rig.task.why == "its agent was stopped"


def test_a_task_that_a_disk_has_failed_begins_again_whatever_happens_while_it_stops():
    """It would have stood still until somebody came, for a disk that was full for a moment."""
    rig = failing(Broken("disk full", passing=True))
    rig.feed(Broken("its agent was stopped"))
    while rig.wants_commit:
        rig.commit()
    assert rig.told() == ["running", "failed"]
    assert gone(rig)
    assert rig.task.why == "disk full"


@pytest.mark.parametrize("passing", [True, False])
def test_a_task_that_is_told_to_release_while_it_fails_says_released(passing):
    """The run could not stop: everybody waited for a release that the task had heard, and forgotten."""
    rig = failing(Broken("boom", passing=passing))
    assert rig.feed(o.Release("stop")) == []
    while rig.wants_commit:
        rig.commit()
    assert rig.told() == ["running", "released"]
    assert rig.task.why == "boom"


def failing(event: Broken) -> Rig:
    """A task that has failed, and has something to commit before it says so."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(ChunkTaken(ORDERS0, 5))
    rig.feed(ChunkDone(ORDERS0, 5))
    rig.feed(event)
    assert rig.task.phase == "releasing"
    return rig


def test_a_full_disk_while_restoring():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.begin_commit()
    rig.feed(ApplyFailed("disk full"))
    assert rig.told() == ["failed"]
    assert gone(rig)


def test_a_commit_that_is_not_this_tasks_changes_nothing():
    rig = Rig(source_plan()).start()
    assert rig.handle(CommitDone(99)) == []
    assert rig.handle(CommitBegins(99)) == []


def test_drained_is_said_after_its_commit_and_the_bookkeeping_is_in_it():
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    rig.commit()
    rig.feed(o.RunChanged(run_view(draining="d")))
    rig.begin_commit()
    assert rig.told() == ["running"]
    assert (ORDERS, 0, "own") in rig.pending.rows
    rig.end_commit()
    assert (rig.told(), rig.task.phase) == (["running", "drained"], "drained")


def test_a_newer_time_is_said_when_the_commit_begins_before_what_it_contributes():
    """What the time speaks for may be held back until then; said earlier, it would make operators give it on twice a commit."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    before = rig.said()
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1)
    assert rig.said() == before
    assert rig.wants_commit
    rig.begin_commit()
    assert [type(one) for one in rig.all[-2:]] == [SendControl, Contribute]
    rig.end_commit()
    assert rig.said() == [*before, ("wm", 100, (0, 1))]
