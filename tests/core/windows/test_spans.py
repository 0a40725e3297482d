"""Which windows a row belongs to, what is late, what closes: compared with a plain count, one row and one window after the other."""

from __future__ import annotations

import doctest
from math import gcd

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.core.windows import spans as module
from headgate.core.windows.spans import Spans, closed_up_to, due

TIMES = st.lists(st.integers(-60, 60), min_size=1, max_size=30)
SPANS = st.builds(
    lambda every, more, offset: Spans(every + more, every, offset % every),
    st.integers(1, 12),
    st.integers(0, 20),
    st.integers(0, 11),
)


def plainly(spans: Spans, time: int) -> set[int]:
    """The ends of all windows that hold a time, by looking at each."""
    ends = range(time + 1, time + spans.size + 1)
    return {end for end in ends if (end - spans.size - spans.offset) % spans.every == 0}


def test_the_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


@given(SPANS, TIMES)
@example(Spans(10, 10), [0, -1, 9, 10, -10])
@example(Spans(7, 3), [0, 1, 2, 3])
def test_each_row_is_in_the_windows_that_hold_its_time(spans: Spans, times: list[int]) -> None:
    """Borders and times before 1970 included; within a window rows keep their order."""
    found = spans.assign(times)
    places = {end: list(range(len(times))) if some is None else some for end, some in found.items()}
    assert {end: sorted(some) for end, some in places.items()} == places
    assert all(places.values())
    for place, time in enumerate(times):
        assert {end for end, some in places.items() if place in some} == plainly(spans, time)


@given(SPANS, TIMES, st.integers(-80, 80), st.integers(0, 20))
@example(Spans(10, 10), [9, 10, 0], 12, 2)
def test_a_row_is_late_when_all_of_its_windows_are_closed(
    spans: Spans, times: list[int], floor: int, grace: int
) -> None:
    """A window is closed from the moment in which end and grace have passed: that millisecond is too late."""
    found = spans.assign_open(times, closed_up_to(floor, grace))
    places = {end: list(range(len(times))) if some is None else some for end, some in found.open.items()}
    late: list[int] = []
    partly = 0
    for place, time in enumerate(times):
        taking = {end for end in plainly(spans, time) if end + grace > floor}
        assert {end for end, some in places.items() if place in some} == taking
        if not taking:
            late.append(place)
        elif taking != plainly(spans, time):
            partly += 1
    assert (found.late, found.partly) == (late, partly)


@given(SPANS, TIMES, st.integers(0, 5), st.randoms(use_true_random=False))
def test_rows_in_any_order_within_the_bound_are_counted_once_each(
    spans: Spans, times: list[int], lag: int, chance: object
) -> None:
    """What a stream with a lag brings, in any chunks, with a watermark behind each: every window closes once, and holds what a plain
    count says."""
    shuffled = sorted(times, key=lambda time: time + chance.randint(0, lag))  # type: ignore[attr-defined]
    open_: dict[int, int] = {}
    closed: dict[int, int] = {}
    floor = -10_000
    while shuffled:
        cut = chance.randint(1, 4)  # type: ignore[attr-defined]
        chunk, shuffled = shuffled[:cut], shuffled[cut:]
        found = spans.assign_open(chunk, closed_up_to(floor, 0))
        assert (found.late, found.partly) == ([], 0)
        for end, places in found.open.items():
            open_[end] = open_.get(end, 0) + (len(chunk) if places is None else len(places))
        floor = max(floor, max(chunk) - lag)
        for end in due(sorted(open_), closed_up_to(floor, 0)):
            assert end not in closed
            closed[end] = open_.pop(end)
    closed |= {end: open_[end] for end in due(sorted(open_), None)}
    plain: dict[int, int] = {}
    for time in times:
        for end in plainly(spans, time):
            plain[end] = plain.get(end, 0) + 1
    assert closed == plain


@given(SPANS, TIMES)
@example(Spans(10, 9), [0])
@example(Spans(7, 3), [0])
def test_rows_of_a_pane_belong_to_the_same_windows(spans: Spans, times: list[int]) -> None:
    """So their states can be added up once for all of these windows. Panes that are too short are none."""
    panes = spans.panes
    assert (panes is None) == (spans.every > 8 * gcd(spans.size, spans.every))
    for time in times:
        assert spans.first_end(time) == min(plainly(spans, time))
        if panes is not None:
            (end,) = plainly(panes, time)
            assert all(plainly(spans, one) == plainly(spans, time) for one in range(end - panes.size, end))


def test_no_row_is_in_no_window() -> None:
    assert Spans(10, 10).assign([]) == {}
    assert Spans(10, 10).assign_open([], 0) == ({}, [], 0)
