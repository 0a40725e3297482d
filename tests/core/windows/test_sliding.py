"""What the window of a row holds, compared with a plain reading of the rule; what it costs; and what does not depend on letters."""

from __future__ import annotations

import doctest
from collections.abc import Iterable
from itertools import groupby
from math import fsum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.core.windows import sliding as module
from headgate.core.windows.sliding import KeyRows, NextRows, end_of, passed, slice_end, slice_ms

Row = tuple[int, str]


def plainly(rows: list[Row], size: int) -> list[str]:
    """What each time's window holds, in order."""
    return [
        "".join(name for at, name in rows if time - size < at <= time) for time in dict.fromkeys(at for at, _ in rows)
    ]


def joined(letters: Iterable[list[Row]], size: int, of: KeyRows[str] | None = None) -> list[str]:
    """The same by the module: each letter's rows count once it is complete."""
    found: list[str] = []
    of = of or KeyRows[str]()
    for letter in letters:
        fresh = NextRows(of, size, str.__add__)
        found += [fresh.add(time, [name for _, name in some]) for time, some in groupby(letter, lambda row: row[0])]
        fresh.apply()
    return found


def test_the_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


times = st.lists(st.integers(-70, 70), max_size=80).map(sorted)


@given(times, st.integers(1, 12), st.integers(1, 80))
@example([0, 9, 10, 10, 11, 19, 20, 40, 41], 10, 2)
def test_a_window_holds_the_rows_of_the_time_before_it_in_their_order(at: list[int], size: int, cut: int) -> None:
    """Whatever the pane, and however the rows are divided into letters."""
    rows = [(time, chr(0x100 + place)) for place, time in enumerate(at)]
    letters: list[list[Row]] = [[]]
    for row in rows:
        if len(letters[-1]) >= cut and letters[-1][-1][0] != row[0]:
            letters.append([])
        letters[-1].append(row)
    assert joined(letters, size) == plainly(rows, size)


def test_a_row_costs_a_few_joins_however_many_its_window_holds() -> None:
    """Three on average: one as its pane grows, two as the pane is left; and one for each result."""
    joins = 0

    def counted(a: int, b: int) -> int:
        nonlocal joins
        joins += 1
        return a + b

    fresh = NextRows(KeyRows[int](), 5_000, counted)
    found = [fresh.add(time, [1]) for time in range(50_000)]
    assert found == [min(time + 1, 5_000) for time in range(50_000)]
    assert joins < 4 * 50_000


def test_floats_are_put_together_alike_whatever_was_forgotten_and_wherever_letters_end() -> None:
    """A task that begins again has only the rows that windows may still hold; sums are equal to the last bit all the same."""
    rows = [(time * 7, 0.1 * (time % 13) + 1e9 * (time % 3)) for time in range(900)]

    def add(fresh: NextRows[float], some: list[tuple[int, float]]) -> list[float]:
        return [fresh.add(time, [value]) for time, value in some]

    at_once = add(NextRows(KeyRows[float](), 1_000, float.__add__), rows)
    assert at_once != [fsum(value for at, value in rows if time - 1_000 < at <= time) for time, _ in rows]
    for cut in range(0, 899, 37):
        kept = [row for row in rows[:cut] if cut and row[0] > passed(end_of(rows[cut - 1][0]), 1_000)]
        again = NextRows(KeyRows[float](), 1_000, float.__add__)
        add(again, kept)
        assert add(NextRows(again.apply(), 1_000, float.__add__), rows[cut:]) == at_once[cut:]


def test_a_letter_that_is_not_kept_leaves_no_trace() -> None:
    of = KeyRows[str]()
    first = NextRows(of, 10, str.__add__)
    first.add(3, "ab")
    first.apply()
    NextRows(of, 10, str.__add__).add(4, "x")
    NextRows(of, 10, str.__add__).add(17, "y")
    assert joined([[(5, "c")], [(13, "d")]], 10, of) == ["abc", "cd"]
    assert (of.last, KeyRows[str]().last) == (13, 0)


def test_what_cannot_be_put_together_is_in_no_window() -> None:
    """The rows before it and behind it are what they would be without it."""

    def join(a: str, b: str) -> str:
        if "!" in a + b:
            raise ValueError("no")
        return a + b

    fresh = NextRows(KeyRows[str](), 10, join)
    assert fresh.add(1, ["a"]) == "a"
    for time in (2, 3):
        with pytest.raises(ValueError, match="no"):
            fresh.add(time, ["b", "!"])
    assert fresh.add(5, ["c"]) == "ac"
    assert fresh.add(12, ["d"]) == "cd"


def test_records_that_are_read_again_begin_anew() -> None:
    """Rows behind the time of one that is added are forgotten with all before them."""
    of = KeyRows[str]()
    assert joined([[(5, "a"), (12, "b")]], 10, of) == ["a", "ab"]
    assert joined([[(11, "A"), (12, "B"), (15, "c")]], 10, of) == ["A", "AB", "ABc"]


def test_slices_and_what_is_over() -> None:
    assert [slice_end(time, 10) for time in (-11, -10, 0, 9, 10)] == [-10, 0, 10, 10, 20]
    assert [slice_ms(size) for size in (1, 7_999, 8_000, 8_001)] == [1_000, 1_000, 1_000, 1_001]
    assert passed(end_of(20), 10) == 11
