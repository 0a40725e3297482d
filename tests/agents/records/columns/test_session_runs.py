"""Runs of a chunk: the compiled part and its twin cut rows alike, as rows that are taken one by one would join."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.columns.session_runs import session_runs
from headgate.agents.records.layout import longs
from headgate.agents.records.native import chosen
from headgate.core.windows.sessions import join

GAP = 10
ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-40, 40) | st.sampled_from([2**62 - 1, 1 - 2**62])), max_size=30
)


@settings(deadline=None, max_examples=120)
@given(ROWS, st.data())
def test_both_ways_find_the_sessions_of_rows_taken_one_by_one(rows: list[tuple[int, int]], data: Any) -> None:
    """A run is a session of its rows alone; it is broken if a row of it had to merge two, or began a second one."""
    picked = (
        data.draw(st.none() | st.lists(st.sampled_from(range(len(rows))), unique=True).map(sorted)) if rows else None
    )
    taken = rows if picked is None else [rows[row] for row in picked]
    times = array("q", [time for _, time in rows])
    numbers = array("q", [number for number, _ in taken])
    of_rows = None if picked is None else array("q", picked)
    found = session_runs(numbers, times, of_rows, GAP)
    twin = chosen.PLAIN.session_runs(numbers, times, of_rows, GAP)
    assert longs(found.of).tolist() == longs(twin[0]).tolist()
    assert [found.keys, found.firsts, found.lasts, found.begins] == [longs(one).tolist() for one in twin[1:5]]
    assert found.broken == twin[5]
    spans: dict[int, tuple[list[int], list[int]]] = {}
    out_of_reach: set[tuple[int, int]] = set()
    seen: dict[int, tuple[int, int]] = {}
    for run, (number, time) in zip(longs(found.of).tolist(), taken, strict=True):
        starts, lasts = spans.setdefault(number, ([], []))
        first, upto, start, last = join(starts, lasts, time, GAP)
        starts[first:upto], lasts[first:upto] = [start], [last]
        low, high = seen.get(run, (time, time))
        if run in seen and not low - GAP <= time <= high + GAP:
            out_of_reach.add((run, time))
        seen[run] = min(low, time), max(high, time)
    whole = [(number, *one) for number in sorted(spans) for one in zip(*spans[number], strict=True)]
    assert list(zip(found.keys, found.firsts, found.lasts, strict=True)) == whole
    assert {run for run, _ in out_of_reach} == {run for run, broken in enumerate(found.broken) if broken}
    assert found.begins == [
        next(t for r, (_, t) in zip(longs(found.of).tolist(), taken, strict=True) if r == run)
        for run in range(len(whole))
    ]


@pytest.mark.parametrize("part", ["compiled", "plain"])
@pytest.mark.parametrize(
    ("numbers", "times", "rows", "said"),
    [
        ([1], [1, 2], None, "no such sessions"),
        ([1], [1, 2], [2], "no such row"),
        ([1], [1, 2], [-1], "no such row"),
        ([1], [2**62], None, "no such time"),
        ([1], [-(2**62)], None, "no such time"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    part: str, numbers: list[int], times: list[int], rows: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before memory is read that is not there."""
    if part == "plain":
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    with pytest.raises(ValueError, match=said):
        session_runs(array("q", numbers), array("q", times), None if rows is None else array("q", rows), GAP)
