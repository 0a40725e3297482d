"""What a combiner of windows counts beside the states: it must be what a plain recount gives, in whatever order rows come."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.operators.open_windows import Tally, WindowRows

ROWS = st.tuples(st.sampled_from([10, 20]), st.sampled_from([b"a", b"b", b"c"]), st.integers(-5, 25))
CHUNK = st.lists(ROWS, min_size=1, max_size=6)
IN_ORDER = CHUNK.map(lambda rows: sorted(rows, key=lambda row: row[2]))


@given(st.lists(st.one_of(CHUNK, IN_ORDER), max_size=5))
def test_rows_and_greatest_times_of_each_key_and_window(chunks):
    tally, rows, times = Tally(), Counter(), {}
    for chunk in chunks:
        for end in {end for end, _, _ in chunk}:
            part = [(key, time) for at, key, time in chunk if at == end]
            tally.add(WindowRows(end, [key for key, _ in part], [time for _, time in part], [], None))
        for end, key, time in chunk:
            rows[end, key] += 1
            times[end, key] = max(time, times.get((end, key), time))
    assert {(end, key): n for end, found in tally.rows.items() for key, n in found.items()} == rows
    assert {(end, key): time for end, found in tally.times.items() for key, time in found.items()} == times
