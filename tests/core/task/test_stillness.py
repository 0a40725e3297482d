"""What a task of a bounded run says when it only waits for others."""

from __future__ import annotations

from dataclasses import replace

from headgate.core import orders as o
from headgate.core.task.protocol import AtEnd, NotAtEnd, SendReport

from ..task_rig import BY, BY0, ORDERS0, Rig, reader_plan, run_view, two_inputs


def rests(rig: Rig) -> list[bool]:
    """What it has said of standing still since the beginning."""
    return [t.report.still for t in rig.of(SendReport, last=False) if t.report.state == "running"][1:]


def bounded(draining: str | None = None) -> o.RunView:
    return replace(run_view(), bounded=True)


def test_a_task_of_a_bounded_run_says_when_only_others_can_bring_it_more():
    """Without this nobody could tell a batch that works from one that waits for a task that has failed."""
    rig = Rig(two_inputs(until=3)).start(bounded())
    rig.feed(AtEnd(BY0, 0))
    assert rests(rig) == []  # its source has not ended
    rig.chunk(ORDERS0, 3)
    rig.wait(1)
    rig.feed(AtEnd(BY0, 0, owes=True))
    assert rests(rig) == []  # a batch is at Spark
    rig.feed(AtEnd(BY0, 0))
    rig.feed(AtEnd(BY0, 0))
    assert rests(rig) == [True]
    rig.chunk(BY0, 2)
    assert rests(rig) == [True, False]
    rig.wait(1)
    rig.feed(AtEnd(BY0, 2))
    assert rests(rig) == [True, False, True]
    rig.feed(NotAtEnd(BY0))
    rig.feed(AtEnd(BY0, 2, owes=True))
    assert rests(rig) == [True, False, True, False]


def test_a_run_without_ends_says_nothing_of_standing_still():
    rig = Rig(reader_plan()).start()
    rig.feed(AtEnd(BY0, 0))
    rig.wait(1)
    rig.feed(AtEnd(BY0, 0))
    assert rests(rig) == []


def test_a_paused_stream_is_not_still():
    """Whoever paused it may resume it."""
    view = replace(bounded(), paused_streams=frozenset({BY}))
    rig = Rig(reader_plan()).start(view)
    rig.feed(AtEnd(BY0, 0))
    rig.wait(1)
    rig.feed(AtEnd(BY0, 0))
    assert rests(rig) == []
