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


def wm(task, ts=5, *, idle=False, run="r", epoch=1, tasks=2, away=False):
    return Watermark("j", run, task, tasks, epoch, ts, idle or away, away)


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
        (Said(1, 9, lift=20), wm("a", 15), Said(1, 15, lift=20)),
        (Said(1, 9, lift=20), end("a"), Said(1, 20, False, StreamPhase.ENDED)),
        (Said(1, 9, lift=20), drain("a"), Said(1, 20, False, StreamPhase.DRAINED, "d")),
        (Said(1, lift=20), end("a"), Said(1, NO_TIME, False, StreamPhase.ENDED)),
        (Said(1, 9, True, mark=20), wm("a", 9, idle=True), Said(1, 9, True, mark=20)),
        (Said(1, 9, True, mark=20), wm("a", 9), Said(1, 9)),
        (Said(1, 9, True, mark=20), wm("a", 9, away=True), Said(1, 9, True, away=True)),
    ],
)
def test_nothing_goes_back(before, frame, after):
    assert advanced(before, frame) == after
    assert advanced(after, frame) == after


@pytest.mark.parametrize(
    ("said", "row"),
    [
        (Said(1, 5), (1, 5, False, 0, "")),
        (Said(1, 5, True), (1, 5, False, 0, "")),
        (Said(1, 5, True, away=True), (1, 5, True, 0, "", True)),
        (Said(1, 5, True, lift=9), (1, 5, False, 0, "", False, 9, NO_TIME)),
        (Said(1, 5, True, mark=9), (1, 5, False, 0, "", False, NO_TIME, 9)),
        (Said(1, 5, True, away=True, lift=9), (1, 5, True, 0, "", True, 9, NO_TIME)),
    ],
)
def test_a_row_has_the_lift_and_the_mark_if_there_are_any_and_no_idleness(said, row):
    assert said.row() == row
    assert Said(*row) == (said if said.away else said._replace(idle=False))


@pytest.mark.parametrize(
    ("status", "row"),
    [
        (StreamStatus(ts=5, idle=True), (0, 5, False, "")),
        (StreamStatus(ts=5, idle=True, away=True), (0, 5, True, "", True)),
    ],
)
def test_a_row_of_a_stream_has_no_idleness_but_that_it_is_away(status, row):
    assert status.row() == row


OPEN, GONE = StreamPhase.OPEN, StreamStatus(StreamPhase.OPEN, 2, True, "", True)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([], NOTHING),
        ([StreamStatus(OPEN, 5), StreamStatus(OPEN, 3)], StreamStatus(OPEN, 3)),
        ([StreamStatus(OPEN, 5), StreamStatus(StreamPhase.ENDED)], StreamStatus(OPEN, 5)),
        ([StreamStatus(OPEN, 5), StreamStatus(OPEN, 3, True)], StreamStatus(OPEN, 3)),
        ([StreamStatus(OPEN, 5, True), StreamStatus(OPEN, 3, True)], StreamStatus(OPEN, 3, True)),
        ([StreamStatus(OPEN, 5, True), StreamStatus(StreamPhase.ENDED, 7)], StreamStatus(OPEN, 5)),
        ([StreamStatus(OPEN, 5), GONE], StreamStatus(OPEN, 5)),
        ([StreamStatus(OPEN, 5, True), GONE], StreamStatus(OPEN, 5, True)),
        ([GONE, StreamStatus(StreamPhase.ENDED, 7)], StreamStatus(OPEN, 7)),
        ([GONE, StreamStatus(StreamPhase.LEFT, 7), GONE._replace(ts=4)], GONE),
        ([StreamStatus(StreamPhase.DRAINED, id="d"), StreamStatus(StreamPhase.ENDED)], StreamStatus(1, id="d")),
        ([StreamStatus(StreamPhase.ENDED), StreamStatus(StreamPhase.ENDED)], StreamStatus(StreamPhase.ENDED)),
        ([StreamStatus(OPEN, 5), StreamStatus(OPEN, MAX_TIME)], NOTHING),
        ([StreamStatus(OPEN, 5), StreamStatus(StreamPhase.DRAINED, id="d")], NOTHING),
        ([StreamStatus(OPEN, MAX_TIME), StreamStatus(StreamPhase.DRAINED, id="d")], StreamStatus(OPEN, MAX_TIME)),
    ],
)
def test_several_as_one(parts, whole):
    assert fold(parts) == whole


def test_the_own_job():
    group = own("a", "b")
    assert [group.hear(f) for f in (wm("x"), wm("a", run="old"), end(None, epoch=0))] == [
        UNKNOWN_PRODUCER,
        OLD_RUN,
        OLD_EPOCH,
    ]
    assert group.reached() == NOTHING
    assert [group.hear(f) for f in (wm("a", 9), wm("a", 5), end("a"), wm("a", 99))] == [
        HEARD,
        REGRESSED,
        HEARD,
        AFTER_END,
    ]
    assert group.silent() == (["b"], 0)
    assert group.hear(wm("b", 3)) == HEARD
    assert group.reached() == StreamStatus(StreamPhase.OPEN, 3) == group.reached()
    group.hear(drain(None))
    assert (group.reached(), group.silent()) == (StreamStatus(StreamPhase.DRAINED, id="d"), ([], 0))


def test_who_is_active_by_name_makes_all_active():
    group = own("a")
    group.hear(wm(None, 5, idle=True))
    assert group.reached() == StreamStatus(StreamPhase.OPEN, 5, True)
    group.hear(wm("a", 6))
    assert group.reached() == StreamStatus(StreamPhase.OPEN, 6)


def test_a_newer_set_keeps_who_remains_and_an_older_one_forgets_nothing():
    group = own("a", "b")
    for frame in (end("a"), end("b"), end(None)):
        group.hear(frame)
    group.set_members(frozenset("a"), 0)
    assert (set(group.said), group.everyone is None, group.reached()) == (
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
    assert group.reached() == StreamStatus(StreamPhase.OPEN, 5)
    assert group.hear(wm("a", 7, tasks=3)) == HEARD
    assert (group.silent(), group.reached().ts) == (([], 1), NO_TIME)
    assert group.hear(wm("c", 8, epoch=2)) == HEARD
    assert group.hear(end("a", epoch=1)) == HEARD
    assert group.waited_for() == {"c"}
    assert group.hear(end(None, epoch=1)) == OLD_EPOCH
    assert group.hear(end(None, epoch=2)) == HEARD
    assert (group.reached(), group.silent()) == (StreamStatus(StreamPhase.LEFT), ([], 0))


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
    assert group.reached() == NOTHING
    group.hear(wm("c", 9, epoch=2))
    assert group.reached() == StreamStatus(StreamPhase.OPEN, 7)


def test_the_least_of_those_that_are_not_idle_moves():
    group = own("a", "b", "c")
    for frame in (wm("a", 5), wm("b", 20)):
        group.hear(frame)
    assert group.moving() == NO_TIME  # one has said nothing, and may be anywhere
    group.hear(wm("c", 9, idle=True))
    assert (group.moving(), group.moving("a"), group.moving("b")) == (5, 20, 5)
    group.hear(end("b"))
    assert group.moving("a") == 20
    group.hear(wm("a", 5, idle=True))
    assert group.moving() == 20
    group.hear(wm(None, 5))
    assert group.moving() is None


def test_of_a_group_that_is_done_no_one_moves_and_of_one_that_drains_no_one_is_known_to():
    group = own("a", "b")
    for frame in (wm("a", 5), wm("b", MAX_TIME)):
        group.hear(frame)
    assert group.moving() == NO_TIME
    group.hear(drain("b"))
    assert group.moving() == NO_TIME
    group.hear(drain("a"))
    assert group.moving() is None
    group = ProducerGroup("", None, -1)
    group.hear(wm("a", 5, tasks=1))
    assert group.moving() == 5
    group.hear(end("a", tasks=1))
    assert group.moving() is None


def test_only_an_idle_one_that_is_open_and_not_away_is_lifted():
    group = own("a")
    for frame, whole in (
        (wm("a", 5), Said(1, 5)),
        (wm("a", 5, idle=True), Said(1, 5, True, mark=9)),
        (wm("a", 5, idle=True), Said(1, 5, True, lift=9, mark=9)),
        (wm("a", 6, away=True), Said(1, 6, True, away=True, lift=9)),
        (end("a"), Said(1, 9, False, StreamPhase.ENDED)),
    ):
        group.hear(frame)
        group.lift("a", 9)
        assert group.said["a"] == whole


def test_where_none_moves_the_mark_lifts_once_more_and_is_used_up():
    group = own("a")
    group.hear(wm("a", 5, idle=True))
    group.lift("a", 9)
    assert group.reached() == StreamStatus(OPEN, 5, True)
    group.lift("a", None)
    assert (group.said["a"], group.reached()) == (Said(1, 5, True, lift=9), StreamStatus(OPEN, 9, True))
    group.lift("a", None)
    assert group.said["a"] == Said(1, 5, True, lift=9)
