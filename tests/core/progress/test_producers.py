"""One circle of producers in one partition; the whole of reconciliation is attacked in test_progress."""

from __future__ import annotations

import pytest

from headgate.core.progress.frames import MAX_TIME, NO_TIME, Drain, EndOfStream, Watermark
from headgate.core.progress.producers import (
    AFTER_END,
    DRAINED,
    ENDED,
    FOREIGN_DRAIN,
    HEARD,
    MAX_PAST_RUNS,
    NOTHING,
    OLD_EPOCH,
    OLD_RUN,
    OPEN,
    REGRESSED,
    SURPLUS,
    UNKNOWN_PRODUCER,
    ForeignProducers,
    ProducerGroup,
    Said,
    Sources,
    StreamStatus,
    advanced,
    fold,
)


def wm(task, ts=5, *, idle=False, run="r", epoch=1, tasks=2):
    return Watermark("j", run, task, tasks, epoch, ts, idle)


def end(task, *, run="r", epoch=1, tasks=2):
    return EndOfStream("j", run, task, tasks, epoch)


def drain(task, id="d", *, run="r", epoch=1, tasks=2):
    return Drain("j", run, task, tasks, epoch, id)


def own(*names):
    return ProducerGroup("r", frozenset(names), 1)


@pytest.mark.parametrize(
    ("before", "frame", "after"),
    [
        (None, wm("a", 5), Said(1, 5)),
        (Said(1, 9), wm("a", 5, idle=True), Said(1, 9, True)),
        (Said(3, 9), end("a"), Said(3, 9, False, ENDED)),
        (Said(1, 9), drain("a"), Said(1, 9, False, DRAINED, "d")),
        (Said(1, 9, False, DRAINED, "d"), drain("a", "e"), Said(1, 9, False, DRAINED, "e")),
        (Said(1, 9, False, DRAINED, "d"), wm("a", 50), Said(1, 9, False, DRAINED, "d")),
        (Said(1, 9, False, DRAINED, "d"), end("a"), Said(1, 9, False, ENDED)),
        (Said(1, 9, False, ENDED), drain("a"), Said(1, 9, False, ENDED)),
    ],
)
def test_nothing_goes_back(before, frame, after):
    assert advanced(before, frame) == after
    assert advanced(after, frame) == after


@pytest.mark.parametrize(
    ("parts", "quorum", "whole"),
    [
        ([], 0, NOTHING),
        ([StreamStatus(OPEN, 5), StreamStatus(OPEN, 3)], 0, StreamStatus(OPEN, 3)),
        ([StreamStatus(OPEN, 5), StreamStatus(ENDED)], 0, StreamStatus(OPEN, 5)),
        ([StreamStatus(OPEN, 5), StreamStatus(OPEN, 3, True)], 0.5, StreamStatus(OPEN, 5)),
        ([StreamStatus(OPEN, 5), StreamStatus(OPEN, 3, True)], 0.6, StreamStatus(OPEN, 3)),
        ([StreamStatus(OPEN, 5, True), StreamStatus(OPEN, 3, True)], 0, StreamStatus(OPEN, 3, True)),
        ([StreamStatus(DRAINED, id="d"), StreamStatus(ENDED)], 0, StreamStatus(DRAINED, id="d")),
        ([StreamStatus(ENDED), StreamStatus(ENDED)], 0, StreamStatus(ENDED)),
    ],
)
def test_several_as_one(parts, quorum, whole):
    assert fold(parts, quorum=quorum) == whole


def test_the_own_job():
    circle = own("a", "b")
    assert [circle.hear(f) for f in (wm("x"), wm("a", run="old"), end(None, epoch=0))] == [
        UNKNOWN_PRODUCER,
        OLD_RUN,
        OLD_EPOCH,
    ]
    assert circle.standing(0.5) == NOTHING
    assert [circle.hear(f) for f in (wm("a", 9), wm("a", 5), end("a"), wm("a", 99))] == [
        HEARD,
        REGRESSED,
        HEARD,
        AFTER_END,
    ]
    assert circle.silent() == (["b"], 0)
    assert circle.hear(wm("b", 3)) == HEARD
    assert circle.standing(0.5) == StreamStatus(OPEN, 3) == circle.standing(0.5)
    circle.hear(drain(None))
    assert (circle.standing(0.5), circle.silent()) == (StreamStatus(DRAINED, id="d"), ([], 0))


def test_who_is_active_by_name_makes_all_active():
    circle = own("a")
    circle.hear(wm(None, 5, idle=True))
    assert circle.standing(0.5) == StreamStatus(OPEN, 5, True)
    circle.hear(wm("a", 6))
    assert circle.standing(0.5) == StreamStatus(OPEN, 6)


def test_a_newer_set_keeps_who_remains_and_an_older_one_forgets_nothing():
    circle = own("a", "b")
    for frame in (end("a"), end("b"), end(None)):
        circle.hear(frame)
    circle.set_members(frozenset("a"), 0)
    assert (set(circle.said), circle.everyone is None, circle.standing(0.5)) == ({"a", "b"}, False, StreamStatus(ENDED))
    circle.set_members(frozenset("ac"), 2)
    assert (set(circle.said), circle.everyone, circle.silent()) == ({"a"}, None, (["c"], 0))


def test_another_job():
    circle = ProducerGroup("", None, -1)
    assert circle.silent() == ([], 1)
    assert [circle.hear(f) for f in (drain("a"), wm("a", MAX_TIME))] == [FOREIGN_DRAIN, FOREIGN_DRAIN]
    assert [circle.hear(f) for f in (wm("a"), end("b"), end("c"), end("b"))] == [HEARD, HEARD, SURPLUS, HEARD]
    assert circle.standing(0.5) == StreamStatus(OPEN, 5)
    assert circle.hear(wm("a", 7, tasks=3)) == HEARD
    assert (circle.silent(), circle.standing(0.5).ts) == (([], 1), NO_TIME)
    assert circle.hear(wm("c", 8, epoch=2)) == HEARD
    assert circle.hear(end("a", epoch=1)) == HEARD
    assert circle.waited_for() == {"c"}
    assert circle.hear(end(None, epoch=1)) == OLD_EPOCH
    assert circle.hear(end(None, epoch=2)) == HEARD
    assert (circle.standing(0.5), circle.silent()) == (StreamStatus(ENDED), ([], 0))


def test_the_runs_of_another_job_that_are_over_are_remembered_within_bounds():
    circle = ProducerGroup("", None, -1)
    for number in range(MAX_PAST_RUNS + 3):
        assert circle.hear(wm("a", 5, run=f"r{number}", tasks=1)) == HEARD
    assert len(circle.past) == MAX_PAST_RUNS
    assert circle.hear(end("a", run=circle.past[0])) == OLD_RUN


def test_the_two_other_ways_to_be_produced_are_values():
    assert ForeignProducers(frozenset({"up/1"})) == ForeignProducers(frozenset({"up/1"}))
    assert Sources() == Sources()


def test_who_left_the_set_is_forgotten_and_who_came_is_waited_for():
    circle = own("a", "b")
    circle.hear(wm("a", 7))
    circle.hear(wm("b", 5))
    circle.set_members(frozenset({"a", "c"}), 2)
    assert circle.silent() == (["c"], 0)
    assert circle.standing(0.5) == NOTHING
    circle.hear(wm("c", 9, epoch=2))
    assert circle.standing(0.5) == StreamStatus(OPEN, 7)
