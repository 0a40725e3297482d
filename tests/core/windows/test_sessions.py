"""What a row joins, compared with a plain reading of the rule over all rows; and what does not depend on chunks."""

from __future__ import annotations

import doctest

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.core.windows import sessions as module
from headgate.core.windows.sessions import closed_up_to, end_of, join

Sessions = list[tuple[int, int]]


def added(sessions: Sessions, time: int, gap: int) -> Sessions:
    found = join([start for start, _ in sessions], [last for _, last in sessions], time, gap)
    return [*sessions[: found.first], (found.start, found.last), *sessions[found.upto :]]


def plainly(times: list[int], gap: int) -> Sessions:
    """Sort all of them, and cut where the distance is greater than the gap."""
    found: Sessions = []
    for time in sorted(times):
        if found and time - found[-1][1] <= gap:
            found[-1] = (found[-1][0], time)
        else:
            found.append((time, time))
    return found


def test_the_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


@given(st.lists(st.integers(-50, 50), max_size=25), st.integers(1, 12))
@example([0, 10, 20], 10)
@example([0, 22, 11], 11)
def test_rows_in_any_order_make_the_sessions_of_the_sorted_rows(times: list[int], gap: int) -> None:
    """A row at exactly the gap joins; one that stands between two sessions makes one of them."""
    sessions: Sessions = []
    for time in times:
        sessions = added(sessions, time, gap)
    assert sessions == plainly(times, gap)


def test_a_session_ends_a_gap_after_its_last_row() -> None:
    assert end_of(20, 5) == 25


def test_a_session_is_closed_when_time_has_passed_its_end() -> None:
    """A row of just that time joins it, and may come as long as time has only reached it."""
    assert [end <= closed_up_to(floor, 5) for end, floor in ((25, 30), (25, 31))] == [False, True]
