"""The gaps that `bench rebalance` reports: which partitions moved, how long each stood still, and when all is settled."""

from __future__ import annotations

from bench.gaps import Gaps, Output, gaps, last_change, owners, settled


def steady(worker: str, begin: float, end: float, every: float = 0.5) -> list[Output]:
    """Outputs of a worker at a steady rate."""
    return [Output(begin + i * every, worker) for i in range(int((end - begin) / every) + 1)]


def test_partitions_that_changed_their_worker_are_counted_apart() -> None:
    outputs = {
        0: [*steady("a", 0, 10), *steady("b", 13, 20)],
        1: steady("c", 0, 20),
        2: [*steady("c", 0, 11), *steady("c", 12, 20)],
    }
    assert gaps(outputs, 9.9, 20) == Gaps(moved=3, stayed=1, moved_partitions=1)


def test_a_partition_whose_worker_was_ended_moved_even_if_that_worker_has_it_again() -> None:
    outputs = {0: [*steady("a", 0, 10), *steady("a", 16, 20)], 1: steady("b", 0, 20)}
    assert gaps(outputs, 10, 20, gone="a") == Gaps(6, 0.5, 1)
    assert gaps(outputs, 10, 20) == Gaps(None, 6, 0)


def test_a_partition_that_went_away_and_came_back_moved() -> None:
    outputs = {0: [*steady("a", 0, 10), *steady("b", 11, 12), *steady("a", 13, 20)]}
    assert gaps(outputs, 10, 20).moved_partitions == 1


def test_the_gap_before_the_event_does_not_count_and_silence_up_to_the_end_does() -> None:
    outputs = {0: [*steady("a", 0, 3), *steady("a", 8, 10)]}
    assert gaps(outputs, 10, 14).stayed == 4


def test_a_partition_that_never_gave_an_output_stood_still_all_the_time() -> None:
    assert gaps({0: []}, 10, 14) == Gaps(None, 4, 0)


def test_owners_and_the_last_change() -> None:
    outputs = {0: [*steady("a", 0, 5), *steady("b", 6, 9)], 1: steady("c", 0, 9), 2: []}
    assert owners(outputs) == {0: "b", 1: "c"}
    assert last_change(outputs, 2) == 6
    assert last_change(outputs, 7) == 7


def test_nothing_is_settled_while_a_partition_stands_still_or_has_just_moved() -> None:
    moved = {0: [*steady("a", 0, 5), *steady("b", 6, 9)], 1: steady("c", 0, 9)}
    assert settled(moved, 4, 9.2, fresh_s=0.6, calm_s=3)
    assert not settled(moved, 4, 8.9, fresh_s=0.6, calm_s=3)
    assert not settled({**moved, 1: steady("c", 0, 8)}, 4, 9.2, fresh_s=0.6, calm_s=3)
    assert not settled({**moved, 2: []}, 4, 9.2, fresh_s=0.6, calm_s=3)
