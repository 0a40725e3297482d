"""How long letters are: about 3 ms, whatever rows cost, and long enough where a letter itself is what costs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headgate.core.turns import EVERY, GROWTH, TURN_NS, LetterCosts

US, MS = 1_000, 1_000_000


def lengths(
    apart_ns: int, row_ns: int, letters: int = 60, most: int = 2000, costs: LetterCosts | None = None
) -> list[int]:
    """The lengths of successive letters of a stream, whose letters and rows cost this."""
    return run(apart_ns, row_ns, letters, most, costs or LetterCosts())[0]


def run(apart_ns: int, row_ns: int, letters: int, most: int, costs: LetterCosts) -> tuple[list[int], LetterCosts]:
    found: list[int] = []
    for _ in range(letters):
        found.append(costs.length(most))
        costs = costs.after(found[-1], apart_ns + row_ns * found[-1])
    return found, costs


def usual(found: list[int]) -> int:
    """The length that most of the last letters have."""
    last = sorted(found[-2 * EVERY :])
    return last[len(last) // 2]


def test_letters_of_slow_rows_are_short_from_the_first_one_on() -> None:
    """A function takes 1 ms a row: the first letter has one row, and none has more than three."""
    found = lengths(100 * US, MS)

    assert found[0] == 1
    assert set(found) <= {1, 2, 3}
    assert usual(found) == 2


def test_letters_of_fast_rows_reach_the_upper_bound_within_a_few_letters() -> None:
    """Rows of 0.5 µs: the length grows by at most eight times from letter to letter, up to `chunk.max-records`."""
    found = lengths(50 * US, US // 2)

    assert all(after <= GROWTH * before for before, after in pairwise(found))
    assert found.index(2000) <= 8
    assert usual(found) == 2000


@pytest.mark.parametrize(("apart_us", "row_us"), [(100, 3), (300, 3), (200, 40)])
def test_a_letter_takes_about_a_turn(apart_us: int, row_us: int) -> None:
    """Rows of work A cost a few µs, and a letter some hundred: together they take about 3 ms."""
    rows = usual(lengths(apart_us * US, row_us * US, most=100_000))

    assert TURN_NS * 0.9 <= apart_us * US + rows * row_us * US <= TURN_NS * 1.1


def test_letters_stay_long_where_a_letter_itself_costs_more_than_a_turn() -> None:
    """A sink sends a request of 5 ms for each letter: shorter letters would hold the loop for as long and bring less."""
    rows = usual(lengths(5 * MS, 10 * US))

    assert 3 * 5 * MS * 0.8 <= rows * 10 * US <= 3 * 5 * MS * 1.2


def test_what_is_done_once_does_not_count() -> None:
    """The first letter imports a library for two seconds: the letters after it are as short as those of slow rows must be."""
    costs = LetterCosts().after(1, 2_000 * MS)

    assert max(lengths(100 * US, MS, costs=costs)) <= 3


def test_rows_that_become_slow_get_short_letters() -> None:
    """Rows cost 1 µs, and then 1 ms: only one letter is as long as before."""
    _, costs = run(50 * US, US, 60, 2000, LetterCosts())
    found, _ = run(50 * US, MS, 80, 2000, costs)

    assert found[0] > 500
    assert sum(found[1:EVERY]) < 200
    assert usual(found) <= 4


def test_rows_that_become_fast_get_long_letters_again() -> None:
    """Rows cost 1 ms, and then 1 µs."""
    _, costs = run(50 * US, MS, 60, 2000, LetterCosts())

    assert usual(lengths(50 * US, US, 150, costs=costs)) == 2000


def test_the_tail_of_a_stream_teaches_little() -> None:
    """At low load letters have a few rows: after a hundred of them, a backlog gets letters of full length within ten."""
    _, costs = run(100 * US, 3 * US, 60, 2000, LetterCosts())
    for rows in (3, 1, 5, 2) * 25:
        costs = costs.after(rows, 100 * US + rows * 3 * US)

    assert max(lengths(100 * US, 3 * US, 10, costs=costs)) > 500


def test_a_letter_without_rows_teaches_nothing() -> None:
    """Nothing is learned of a control message."""
    costs = LetterCosts()

    assert costs.after(0, 5 * MS) is costs
    assert (costs.costs(), costs.expected_ns(100)) == ((0.0, 0.0), TURN_NS)


def test_a_clock_that_stands_still_limits_nothing() -> None:
    """Letters that cost nothing are as long as the settings permit."""
    assert max(lengths(0, 0)) == 2000


def test_what_a_letter_will_cost_is_what_such_letters_have_cost() -> None:
    """By this, short letters share a turn."""
    _, costs = run(100 * US, 3 * US, 60, 2000, LetterCosts())

    assert abs(costs.expected_ns(10) - 130 * US) < 30 * US
