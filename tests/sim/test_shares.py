"""What the reader of a shared stream must know of its time, as the checker counts it."""

from __future__ import annotations

from headgate.core.progress.frames import NO_TIME, ControlFrame, EndOfStream, Watermark

from .shares import Spoken


def spoken(*frames: ControlFrame) -> Spoken:
    found = Spoken("r1", NO_TIME, NO_TIME)
    for frame in frames:
        found.hear(frame)
    return found


def says(task: str, ts: int) -> Watermark:
    return Watermark("upstream/1", "r1", task, 2, 1, ts)


def ends(task: str, *, left: bool = False) -> EndOfStream:
    return EndOfStream("upstream/1", "r1", task, 2, 1, left)


def test_a_task_that_has_ended_holds_the_time_while_others_are_open():
    found = spoken(says("a", 10), says("b", 50), ends("a"))
    assert (found.promised, found.reached) == (10, 10)
    assert not found.away


def test_a_task_that_has_left_holds_nothing_and_neither_does_one_that_brought_nothing():
    assert spoken(says("a", 10), says("b", 50), ends("a", left=True)).promised == 50
    assert spoken(says("a", NO_TIME), says("b", 50), ends("a")).promised == 50


def test_a_job_is_away_when_all_its_tasks_have_ended():
    found = spoken(says("a", 10), says("b", 50), ends("a"), ends("b", left=True))
    assert (found.away, found.promised, found.reached) == (True, None, 10)
