"""One group of producers in one partition; the whole of reconciliation is attacked in test_progress."""

from __future__ import annotations

import pytest

from headgate.core.progress.frames import MAX_TIME, NO_TIME, Drain, EndOfStream, Watermark
from headgate.core.progress.producers import (
    AFTER_END,
    FOREIGN_MAXIMUM,
    HEARD,
    MAX_PAST_RUNS,
    NOTHING,
    OLD_EPOCH,
    OLD_RUN,
    REGRESSED,
    SURPLUS,
    UNKNOWN_PRODUCER,
    ForeignProducers,
    ProducerGroup,
    Said,
    Sources,
    StreamPhase,
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
        (Said(3, 9), end("a"), Said(3, 9, False, StreamPhase.ENDED)),
        (Said(1, 9), drain("a"), Said(1, 9, False, StreamPhase.DRAINED, "d")),
        (Said(1, 9, False, StreamPhase.DRAINED, "d"), drain("a", "e"), Said(1, 9, False, StreamPhase.DRAINED, "e")),
        (Said(1, 9, False, StreamPhase.DRAINED, "d"), wm("a", 50), Said(1, 9, False, StreamPhase.DRAINED, "d")),
        (Said(1, 9, False, StreamPhase.DRAINED, "d"), end("a"), Said(1, 9, False, StreamPhase.ENDED)),
        (Said(1, 9, False, StreamPhase.ENDED), drain("a"), Said(1, 9, False, StreamPhase.ENDED)),
    ],
)
def test_nothing_goes_back(before, frame, after):
    assert advanced(before, frame) == after
    assert advanced(after, frame) == after


@pytest.mark.parametrize(
    ("parts", "quorum", "whole"),
    [
        ([], 0, NOTHING),
        ([StreamStatus(StreamPhase.OPEN, 5), StreamStatus(StreamPhase.OPEN, 3)], 0, StreamStatus(StreamPhase.OPEN, 3)),
        ([StreamStatus(StreamPhase.OPEN, 5), StreamStatus(StreamPhase.ENDED)], 0, StreamStatus(StreamPhase.OPEN, 5)),
        (
            [StreamStatus(StreamPhase.OPEN, 5), StreamStatus(StreamPhase.OPEN, 3, True)],
            0.5,
            StreamStatus(StreamPhase.OPEN, 5),
        ),
        (
            [StreamStatus(StreamPhase.OPEN, 5), StreamStatus(StreamPhase.OPEN, 3, True)],
            0.6,
            StreamStatus(StreamPhase.OPEN, 3),
        ),
        (
            [StreamStatus(StreamPhase.OPEN, 5, True), StreamStatus(StreamPhase.OPEN, 3, True)],
            0,
            StreamStatus(StreamPhase.OPEN, 3, True),
        ),
        (
            [StreamStatus(StreamPhase.DRAINED, id="d"), StreamStatus(StreamPhase.ENDED)],
            0,
            StreamStatus(StreamPhase.DRAINED, id="d"),
        ),
        ([StreamStatus(StreamPhase.ENDED), StreamStatus(StreamPhase.ENDED)], 0, StreamStatus(StreamPhase.ENDED)),
        ([StreamStatus(StreamPhase.OPEN, 5), StreamStatus(StreamPhase.OPEN, MAX_TIME)], 0, NOTHING),
        ([StreamStatus(StreamPhase.OPEN, 5), StreamStatus(StreamPhase.DRAINED, id="d")], 0, NOTHING),
        (
            [StreamStatus(StreamPhase.OPEN, MAX_TIME), StreamStatus(StreamPhase.DRAINED, id="d")],
            0,
            StreamStatus(StreamPhase.OPEN, MAX_TIME),
        ),
    ],
)
def test_several_as_one(parts, quorum, whole):
    assert fold(parts, quorum=quorum) == whole


def test_the_own_job():
    group = own("a", "b")
    assert [group.hear(f) for f in (wm("x"), wm("a", run="old"), end(None, epoch=0))] == [
        UNKNOWN_PRODUCER,
        OLD_RUN,
        OLD_EPOCH,
    ]
    assert group.reached(0.5) == NOTHING
    assert [group.hear(f) for f in (wm("a", 9), wm("a", 5), end("a"), wm("a", 99))] == [
        HEARD,
        REGRESSED,
        HEARD,
        AFTER_END,
    ]
    assert group.silent() == (["b"], 0)
    assert group.hear(wm("b", 3)) == HEARD
    assert group.reached(0.5) == StreamStatus(StreamPhase.OPEN, 3) == group.reached(0.5)
    group.hear(drain(None))
    assert (group.reached(0.5), group.silent()) == (StreamStatus(StreamPhase.DRAINED, id="d"), ([], 0))


def test_who_is_active_by_name_makes_all_active():
    group = own("a")
    group.hear(wm(None, 5, idle=True))
    assert group.reached(0.5) == StreamStatus(StreamPhase.OPEN, 5, True)
    group.hear(wm("a", 6))
    assert group.reached(0.5) == StreamStatus(StreamPhase.OPEN, 6)


def test_a_newer_set_keeps_who_remains_and_an_older_one_forgets_nothing():
    group = own("a", "b")
    for frame in (end("a"), end("b"), end(None)):
        group.hear(frame)
    group.set_members(frozenset("a"), 0)
    assert (set(group.said), group.everyone is None, group.reached(0.5)) == (
        {"a", "b"},
        False,
        StreamStatus(StreamPhase.ENDED),
    )
    group.set_members(frozenset("ac"), 2)
    assert (set(group.said), group.everyone, group.silent()) == ({"a"}, None, (["c"], 0))


def test_another_job():
    group = ProducerGroup("", None, -1)
    assert group.silent() == ([], 1)
    assert group.hear(wm("a", MAX_TIME)) == FOREIGN_MAXIMUM
    assert [group.hear(f) for f in (wm("a"), end("b"), end("c"), end("b"))] == [HEARD, HEARD, SURPLUS, HEARD]
    assert group.reached(0.5) == StreamStatus(StreamPhase.OPEN, 5)
    assert group.hear(wm("a", 7, tasks=3)) == HEARD
    assert (group.silent(), group.reached(0.5).ts) == (([], 1), NO_TIME)
    assert group.hear(wm("c", 8, epoch=2)) == HEARD
    assert group.hear(end("a", epoch=1)) == HEARD
    assert group.waited_for() == {"c"}
    assert group.hear(end(None, epoch=1)) == OLD_EPOCH
    assert group.hear(end(None, epoch=2)) == HEARD
    assert (group.reached(0.5), group.silent()) == (StreamStatus(StreamPhase.LEFT), ([], 0))


def test_the_runs_of_another_job_that_are_over_are_remembered_within_bounds():
    group = ProducerGroup("", None, -1)
    for number in range(MAX_PAST_RUNS + 3):
        assert group.hear(wm("a", 5, run=f"r{number}", tasks=1)) == HEARD
    assert len(group.past) == MAX_PAST_RUNS
    assert group.hear(end("a", run=group.past[0])) == OLD_RUN


def test_the_two_other_ways_to_be_produced_are_values():
    assert ForeignProducers(frozenset({"up/1"})) == ForeignProducers(frozenset({"up/1"}))
    assert Sources() == Sources()


def test_who_left_the_set_is_forgotten_and_who_came_is_waited_for():
    group = own("a", "b")
    group.hear(wm("a", 7))
    group.hear(wm("b", 5))
    group.set_members(frozenset({"a", "c"}), 2)
    assert group.silent() == (["c"], 0)
    assert group.reached(0.5) == NOTHING
    group.hear(wm("c", 9, epoch=2))
    assert group.reached(0.5) == StreamStatus(StreamPhase.OPEN, 7)
