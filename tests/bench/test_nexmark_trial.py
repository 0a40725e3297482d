"""When a phase of a trial ends, and which queries the engines have."""

from __future__ import annotations

from typing import cast

from bench.nexmark.queries import QUERIES
from bench.nexmark.trial import ENGINES, STREAMS_HAS, figures
from bench.rig import Program


class Used:
    """A program that takes half of a core."""

    def cpu_between(self, start: float, end: float) -> float:
        return (end - start) / 2


def rates(query: str, stamps: list[float]) -> tuple[float, ...]:
    """The rates of two phases of 100 records, whose positions are at their ends after 1 s; then comes the tail."""
    times = [(10.0, 11.0, 100), (20.0, 21.0, 100), (30.0, 31.0, 4)]
    return figures(query, cast(Program, Used()), times, stamps)[0]


def test_a_phase_of_windows_ends_with_its_positions_or_a_later_result() -> None:
    assert rates("q5", [10.5, 14.0, 20.5]) == (25.0, 100.0)


def test_a_phase_without_any_result_yet_does_not_end_with_those_of_a_later_one() -> None:
    assert rates("q5", [32.0, 33.0]) == rates("q5", []) == (100.0, 100.0)


def test_other_queries_end_with_their_last_result() -> None:
    assert rates("q0", [10.5, 20.25]) == (200.0, 400.0)


def test_kafka_streams_has_queries_that_there_are_and_says_of_others_that_it_lacks_them() -> None:
    assert set(STREAMS_HAS) <= set(QUERIES)
    assert "not written" in ENGINES["streams"].lacks("q9")
