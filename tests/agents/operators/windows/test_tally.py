"""What a combiner of windows counts beside the states: it must be what a plain recount gives, in whatever order rows come."""

from __future__ import annotations

from array import array
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.types.aggregates import AggregatePlan
from headgate.agents.operators.base.addends import Addends
from headgate.agents.operators.windows.open_windows import OpenWindows
from headgate.agents.operators.windows.window_states import ArrayWindow
from headgate.agents.records.columns.window_rows import rows_of_times
from headgate.agents.records.layout import longs
from headgate.core.progress.frames import NO_TIME
from headgate.core.windows.spans import Spans

PLAN = AggregatePlan({"n": hg.count(), "sum": hg.sum("v")})
VALUES = st.sampled_from([1, 2, 2**62, -(2**62), True, 2**64])
ROWS = st.tuples(st.integers(-5, 25), st.sampled_from([b"a", b"b", b"c"]), VALUES)
CHUNK = st.lists(ROWS, min_size=1, max_size=6)
IN_ORDER = CHUNK.map(sorted)


@pytest.mark.parametrize("arrays", [False, True])
@given(st.lists(st.one_of(CHUNK, IN_ORDER), max_size=5))
@settings(deadline=None)
def test_rows_and_greatest_times_of_each_key_and_window(arrays: bool, chunks: list[list[Any]]) -> None:
    """Whether the states are in arrays, in lists, or go from one to the other."""
    kept = OpenWindows(Spans(10, 10), PLAN, None, arrays=arrays, timed=True)
    rows, times, sums = Counter[Any](), dict[Any, int](), Counter[Any]()
    step: Any = SimpleNamespace(plan=PLAN)
    for chunk in chunks:
        of = Addends(step, [key for _, key, _ in chunk], [{"v": one} for *_, one in chunk], [at for at, *_ in chunk])
        kept.take(rows_of_times(kept.spans, array("q", of.timestamps), None, NO_TIME), of)
        kept.prepare()
        kept.complete()
        for time, key, one in chunk:
            place = time // 10, key
            rows[place] += 1
            sums[place] += one
            times[place] = max(time, times.get(place, time))
    found: dict[Any, Any] = {}
    for end, window in kept.open.live.items():
        if isinstance(window, ArrayWindow):
            keys, found_states = window.results(0, window.count)
            states = found_states.listed()
            latest = longs(window.arrays.cells.take(window.arrays.keys.numbers_listed(keys))[1]).tolist()
        else:
            keys, states = list(window.states), list(window.states.values())
            latest = [window.times[key] for key in keys]
        for key, state, time in zip(keys, states, latest, strict=True):
            found[end // 10 - 1, key] = [*state, time]
    assert found == {place: [rows[place], sums[place], times[place]] for place in rows}
