"""Rows that make a batch fail are found by halving it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.batching.ranges import Range, Ranges
from headgate.spark_bridge.base.errors import SparkRowError
from headgate.spark_bridge.data.poison import bad_row, without_poison
from headgate.spark_bridge.data.ranges import Connect, Unfetched


class Fussy:
    """Fails on some numbers, doubles the others, and counts how often it was asked."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.tries = 0

    async def __call__(self, table: pa.Table) -> pa.Table:
        self.tries += 1
        numbers = table["n"].to_pylist()
        if found := [n for n in numbers if n in self.bad]:
            raise SparkRowError(f"bad {found[0]}")
        return pa.table({"n": [2 * n for n in numbers]})


def numbers(count: int) -> pa.Table:
    return pa.table({"n": list(range(count))})


@pytest.mark.asyncio
async def test_one_bad_row_among_a_thousand_costs_few_tries() -> None:
    """Halving: the logarithm, and the other 999 rows go through in order."""
    attempt = Fussy({617})
    result, bad = await without_poison(attempt, numbers(1000), SparkRowError("whole"))
    assert result is not None
    assert result["n"].to_pylist() == [2 * n for n in range(1000) if n != 617]
    assert [(place, str(error)) for place, error in bad] == [(617, "bad 617")]
    assert attempt.tries <= 12  # ten digits, the rows behind it, and all others


@pytest.mark.asyncio
async def test_when_all_rows_are_bad_nothing_is_left() -> None:
    """No empty batch is run."""
    result, bad = await without_poison(Fussy({0, 1}), numbers(2), SparkRowError("whole"))
    assert result is None
    assert sorted(place for place, _ in bad) == [0, 1]


@pytest.mark.asyncio
async def test_bad_everywhere_is_the_batch_s_own_error() -> None:
    """Ten thousand dead letters for one wrong function help nobody."""
    attempt = Fussy(set(range(10_000)))
    with pytest.raises(SparkRowError, match="more than 100 rows of the batch fail, the first ones with: whole"):
        await without_poison(attempt, numbers(10_000), SparkRowError("whole"))
    assert attempt.tries <= 101 * 15


@pytest.mark.asyncio
async def test_each_bad_row_costs_the_logarithm() -> None:
    """Also when there are many, far apart: 50,000 rows have sixteen digits."""
    bad = set(range(500, 50_000, 5_000))
    attempt = Fussy(bad)
    result, found = await without_poison(attempt, numbers(50_000), SparkRowError("whole"))
    assert result is not None
    assert result.num_rows == 49_990
    assert {place for place, _ in found} == bad
    assert attempt.tries <= len(bad) * 18 + 1


class Sums(Fussy):
    """Fails on sums over a limit, as a sum of 64-bit numbers does, whether rows come in frames or as a table."""

    def __init__(self, most: int, bad: set[int]) -> None:
        super().__init__(bad)
        self.most = most

    async def __call__(self, table: Any) -> pa.Table:
        rows = table if isinstance(table, pa.Table) else pa.Table.from_batches(table._read())
        if sum(rows["n"].to_pylist()) > self.most:
            self.tries += 1
            raise SparkRowError("too large together")
        return await super().__call__(rows)


@pytest.mark.asyncio
async def test_of_rows_that_fail_together_the_first_that_makes_a_good_prefix_fail_is_left_out() -> None:
    """Two numbers whose sum is too large: they failed the task for ever, though dead letters were asked for."""
    big = 2**40
    rows = [1, big, 2, 3, big, 4, big, 5]
    attempt = Sums(big + 100, set())
    result, bad = await without_poison(attempt, pa.table({"n": rows}), SparkRowError("whole"))
    assert result is not None
    assert result["n"].to_pylist() == [2 * n for n in (1, big, 2, 3, 4, 5)]
    assert [(place, str(error)) for place, error in bad] == [(4, "too large together"), (6, "too large together")]
    assert attempt.tries <= 20


@pytest.mark.asyncio
async def test_rows_that_fail_alone_and_rows_that_fail_together_are_both_left_out() -> None:
    """Whichever comes first."""
    rows = [50, 7, 60, 1, 7, 60, 2]
    result, bad = await without_poison(Sums(115, {7}), pa.table({"n": rows}), SparkRowError("whole"))
    assert result is not None
    assert result["n"].to_pylist() == [100, 120, 2, 4]
    assert sorted(place for place, _ in bad) == [1, 4, 5]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(9, 60), st.sets(st.integers(0, 9), max_size=2))
@pytest.mark.asyncio
async def test_what_is_left_succeeds_and_each_row_that_is_left_out_would_make_it_fail(
    rows: list[int], most: int, bad: set[int]
) -> None:
    """Against the rule: row by row, each that makes those before it fail."""
    kept: list[int] = []
    for n in rows:
        if n not in bad and sum(kept) + n <= most:
            kept.append(n)
    if len(kept) == len(rows):  # nothing failed
        return
    result, out = await without_poison(Sums(most, bad), pa.table({"n": rows}), SparkRowError("whole"))
    assert ([] if result is None else [n // 2 for n in result["n"].to_pylist()]) == kept
    assert len(out) == len(rows) - len(kept)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.sets(st.integers(0, 39), max_size=6))
@pytest.mark.asyncio
async def test_exactly_the_bad_rows_are_left_out(count: int, bad: set[int]) -> None:
    """Whatever is bad, it alone is named, and everything else comes through."""
    bad = {n for n in bad if n < count}
    if not bad:
        return
    result, found = await without_poison(Fussy(bad), numbers(count), SparkRowError("whole"))
    assert {place for place, _ in found} == bad
    good = [] if result is None else result["n"].to_pylist()
    assert good == [2 * n for n in range(count) if n not in bad]


class Frames(Unfetched):
    """Stands for frames in Kafka: the one at offset `n` has the numbers from `10 n` on, `n` of them."""

    def _read(self) -> list[pa.RecordBatch]:
        out = {(place.offset, place.row) for place in self._ranges.without}
        found: list[pa.RecordBatch] = []
        for part in self._ranges.parts:
            for n in range(part.first, part.behind):
                numbers = [10 * n + row for row in range(n) if (n, row) not in out]
                found.append(pa.record_batch({"n": pa.array(numbers, pa.int64())}))
        return found


class FussyFrames(Fussy):
    """Fails on some numbers, whether they come in frames or as a table."""

    async def __call__(self, table: Any) -> pa.Table:
        return await super().__call__(table if isinstance(table, pa.Table) else pa.Table.from_batches(table._read()))


def frames(first: int, behind: int) -> Frames:
    return Frames(
        Ranges((Range("t", 0, first, behind),), (), "", rows=sum(range(first, behind))),
        Connect("", ()),
    )


@pytest.mark.asyncio
async def test_a_bad_row_is_found_inside_of_its_frame() -> None:
    """The other rows of the frame go through."""
    attempt = FussyFrames({52, 53, 81})
    result, bad = await without_poison(attempt, frames(0, 10), SparkRowError("whole"))
    assert [(place, error.inside) for place, error in bad] == [
        (5, (2, {"n": 52})),
        (5, (3, {"n": 53})),
        (8, (1, {"n": 81})),
    ]
    assert [bad_row(None, place, error)["n"] for place, error in bad] == [52, 53, 81]
    assert result is not None
    every = [10 * n + row for n in range(10) for row in range(n)]
    assert result["n"].to_pylist() == [2 * n for n in every if n not in (52, 53, 81)]


@pytest.mark.asyncio
async def test_when_all_rows_of_all_frames_are_bad_nothing_is_left() -> None:
    result, bad = await without_poison(FussyFrames({10, 20, 21}), frames(0, 3), SparkRowError("whole"))
    assert (result, len(bad)) == (None, 3)


@pytest.mark.asyncio
async def test_a_row_of_a_frame_that_fails_only_behind_other_frames_is_found() -> None:
    """The frame is found, then its row; the rest of both goes through."""
    every = [10 * n + row for n in range(6) for row in range(n)]
    attempt = Sums(sum(every) - 52, {31})
    result, bad = await without_poison(attempt, frames(0, 6), SparkRowError("whole"))
    assert [(place, error.inside) for place, error in bad] == [(3, (1, {"n": 31})), (5, (4, {"n": 54}))]
    assert result is not None
    assert result["n"].to_pylist() == [2 * n for n in every if n not in (31, 54)]
