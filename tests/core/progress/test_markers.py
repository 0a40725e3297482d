"""Routes and announcements: what is announced is the difference between what was announced and what is so."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.progress.frames import MAX_TIME, NO_TIME, Drain, EndOfStream, Watermark
from headgate.core.progress.markers import (
    AGGREGATED,
    DIRECT,
    NOTHING_ANNOUNCED,
    Announcement,
    Sender,
    aggregator,
    announce,
    frames_between,
    merged,
    named_targets,
    only_time_is_new,
    relay,
    relay_targets,
    route,
)

ME = Sender("sales/1", "r1", "Partition 0", 2)
ALL = Sender("sales/1", "r1", None, 2)
BY = "sales-1-by"
OTHERS = relay_targets(BY, 3)
AGG = aggregator(BY, 3)


def test_the_route_is_chosen_by_the_number_of_messages():
    assert (route(32, 32), route(32, 33), route(2, 2, 3)) == (DIRECT, AGGREGATED, AGGREGATED)


def test_the_aggregating_partition_is_the_same_for_everyone_and_within_the_stream():
    assert {aggregator(f"s{n}", 5) for n in range(200)} == set(range(5))
    assert named_targets(DIRECT, BY, 3) == (0, 1, 2)
    assert named_targets(AGGREGATED, BY, 3) == (AGG,)
    assert sorted((*OTHERS, AGG)) == [0, 1, 2]
    assert relay_targets(BY, 1) == ()


def test_the_first_word_is_said_everywhere_so_that_it_stands_before_the_first_data():
    spoken = announce(NOTHING_ANNOUNCED, Announcement(1, 5), ME, BY, 3, AGGREGATED)
    assert [(one.frame.ts, one.partitions) for one in spoken] == [(NO_TIME, OTHERS), (5, (AGG,))]
    assert [one.partitions for one in announce(NOTHING_ANNOUNCED, Announcement(1, 5), ME, BY, 3, DIRECT)] == [(0, 1, 2)]
    assert [one.partitions for one in announce(NOTHING_ANNOUNCED, Announcement(1, 5), ME, BY, 1, AGGREGATED)] == [(0,)]
    assert [one.partitions for one in announce(Announcement(1, 4), Announcement(1, 5), ME, BY, 3, AGGREGATED)] == [
        (AGG,)
    ]


def test_nothing_new_is_nothing_said():
    drained = Announcement(1, MAX_TIME, False, False, "d")
    for announcement in (Announcement(1, 5), Announcement(1, 5, True), Announcement(1, 5, False, True), drained):
        assert frames_between(announcement, announcement, ME) == []


def test_a_new_epoch_says_everything_again():
    said = Announcement(1, MAX_TIME, False, False, "d")
    assert frames_between(said, said._replace(epoch=2), ME) == [
        Watermark("sales/1", "r1", "Partition 0", 2, 2, MAX_TIME),
        Drain("sales/1", "r1", "Partition 0", 2, 2, "d"),
    ]
    ended = Announcement(1, 9, False, True)
    assert frames_between(ended, ended._replace(epoch=2), ME) == [
        Watermark("sales/1", "r1", "Partition 0", 2, 2, 9),
        EndOfStream("sales/1", "r1", "Partition 0", 2, 2),
    ]
    empty = Announcement(1, NO_TIME, False, True, left=True)
    assert frames_between(empty, empty._replace(epoch=2), ME) == [
        EndOfStream("sales/1", "r1", "Partition 0", 2, 2, left=True)
    ]


def test_after_an_end_nothing_is_said_and_after_a_drain_only_an_end():
    ended, drained = Announcement(1, 9, False, True), Announcement(1, MAX_TIME, False, False, "d")
    assert frames_between(ended, Announcement(1, 10, True, False), ME) == []
    assert frames_between(ended, Announcement(1, 10, False, True, "d"), ME) == []
    assert frames_between(drained, Announcement(1, 10, True, False, None), ME) == []
    assert frames_between(drained, drained._replace(ended=True), ME) == [
        EndOfStream("sales/1", "r1", "Partition 0", 2, 1)
    ]


def test_becoming_idle_and_active_again_is_said_with_the_same_time():
    assert frames_between(Announcement(1, 5), Announcement(1, 5, True), ME) == [
        Watermark("sales/1", "r1", "Partition 0", 2, 1, 5, True)
    ]
    assert frames_between(Announcement(1, 5, True), Announcement(1, 5), ME) == [
        Watermark("sales/1", "r1", "Partition 0", 2, 1, 5)
    ]
    away = Announcement(1, 5, True, away=True)
    assert frames_between(Announcement(1, 5, True), away, ME) == [
        Watermark("sales/1", "r1", "Partition 0", 2, 1, 5, True, True)
    ]
    assert frames_between(away, away, ME) == []
    assert (Announcement(*away.row()), Announcement(*merged(away, Announcement(1, 9)).row())) == (
        away,
        Announcement(1, 9),
    )


def test_what_can_wait_for_the_interval():
    assert only_time_is_new(Announcement(1, 5), Announcement(1, 9, True))
    assert not only_time_is_new(Announcement(1, 5), Announcement(2, 5))
    assert not only_time_is_new(Announcement(1, 5), Announcement(1, 5, False, True))
    assert not only_time_is_new(Announcement(1, 5), Announcement(1, 5, False, False, "d"))
    assert only_time_is_new(Announcement(1, 5, False, True), Announcement(1, 5, False, True, "d"))


def test_a_relay_speaks_for_all_to_the_others():
    spoken = relay(NOTHING_ANNOUNCED, Announcement(3, 7), ALL, BY, 3)
    assert [(one.frame, one.partitions) for one in spoken] == [(Watermark("sales/1", "r1", None, 2, 3, 7), OTHERS)]
    assert relay(NOTHING_ANNOUNCED, Announcement(3, 7), ALL, BY, 1) == []


announcements = st.builds(
    Announcement, st.integers(1, 2), st.integers(0, 9), st.booleans(), st.booleans(), st.sampled_from([None, "d"])
)


@settings(deadline=None, max_examples=80)
@given(st.lists(announcements, max_size=8))
def test_saying_it_once_is_enough(states):
    """Whatever the task goes through: after it has spoken there is nothing left to say, and time never goes back."""
    said = NOTHING_ANNOUNCED
    for now in states:
        said_next = merged(said, now)
        frames = frames_between(said, said_next, ME)
        assert frames_between(said_next, said_next, ME) == []
        for frame in frames:
            if isinstance(frame, Watermark):
                assert frame.ts >= said.ts
        said = said_next
