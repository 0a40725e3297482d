"""Rows by window: the compiled part and the rules of `core.windows.spans` say the same."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.columns.window_rows import WindowedRows, rows_of_ends, rows_of_times
from headgate.agents.records.layout import longs
from headgate.agents.records.native import chosen
from headgate.core.windows.spans import Spans

WAYS = pytest.mark.parametrize("plain", [False, True], ids=["compiled", "plain"])
TIMES = st.lists(st.integers(-60, 60) | st.sampled_from([2**62 - 1, 1 - 2**62]), max_size=40)


@st.composite
def windows(draw: Any) -> Spans:
    size = draw(st.integers(1, 40))
    every = draw(st.integers(1, size))
    return Spans(size, every, draw(st.integers(0, every - 1)))


def plainly(found: WindowedRows) -> tuple[dict[int, Any], list[int], int]:
    late = [] if found.late is None else longs(found.late).tolist()
    return {end: rows if rows is None else longs(rows).tolist() for end, rows in found.open}, late, found.partly


@settings(deadline=None, max_examples=120)
@given(windows(), TIMES, st.integers(-80, 80), st.data())
def test_both_ways_assign_the_same_rows(spans: Spans, times: list[int], closed: int, data: Any) -> None:
    """Tumbling and hopping, with a rest; rows in any order, before 1970 and far away; all rows, and some of them."""
    rows = (
        data.draw(st.none() | st.lists(st.sampled_from(range(len(times))), unique=True).map(sorted)) if times else None
    )
    picked = None if rows is None else array("q", rows)
    chosen = times if rows is None else [times[row] for row in rows]
    rule = spans.assign_open(chosen, closed)

    def of(places: list[int] | None) -> list[int] | None:
        if places is None or len(places) == len(chosen):
            return None
        return places if rows is None else [rows[place] for place in places]

    wanted = {end: of(places) for end, places in rule.open.items()} if chosen else {}
    found = plainly(rows_of_times(spans, array("q", times), picked, closed))
    assert found == (wanted, rule.late if rows is None else [rows[place] for place in rule.late], rule.partly)


@WAYS
def test_states_go_to_the_window_with_their_end(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late ones belong to a closed window."""
    if plain:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    found = rows_of_ends(array("q", [20, 10, 20, 30]), 10)
    assert plainly(found) == ({20: [0, 2], 30: [3]}, [1], 0)
    assert plainly(rows_of_ends(array("q", [20, 20]), 10)) == ({20: None}, [], 0)
    assert plainly(rows_of_ends(array("q"), 10)) == ({}, [], 0)


@WAYS
def test_a_row_that_does_not_exist_is_refused(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    for row in (-1, 2):
        with pytest.raises(ValueError, match="no such row"):
            rows_of_times(Spans(10, 10), array("q", [1, 2]), array("q", [row]), 0)


@WAYS
@pytest.mark.parametrize("time", [2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_a_time_that_no_row_has_is_refused(plain: bool, time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of its window would leave 64 bits."""
    if plain:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    for spans in (Spans(10, 10), Spans(10, 5)):
        with pytest.raises(ValueError, match="no such time"):
            rows_of_times(spans, array("q", [1, time]), None, 0)


@pytest.mark.parametrize("spans", [Spans(10, 10), Spans(10, 5), Spans(7, 3)], ids=str)
def test_both_ways_read_the_same_at_the_ends_of_a_range(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that stand alone, in one window, and in windows of their own."""
    for times in ([], [0], [9, 10, 9], list(range(-30, 30)), [5] * 100):
        fast = plainly(rows_of_times(spans, array("q", times), None, -3))
        with monkeypatch.context() as patch:
            patch.setattr(chosen, "part", chosen.PLAIN)
            assert plainly(rows_of_times(spans, array("q", times), None, -3)) == fast
