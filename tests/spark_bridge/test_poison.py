"""Rows that make a batch fail are found by halving it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.ranges import Range, Ranges
from headgate.spark_bridge.errors import SparkRowError
from headgate.spark_bridge.poison import bad_row, without_poison
from headgate.spark_bridge.ranges import Connect, Unfetched


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


@pytest.mark.asyncio
async def test_what_fails_together_and_not_alone_is_the_batch_s_own_error() -> None:
    """Then no row can be blamed."""

    async def pairs(table: pa.Table) -> pa.Table:
        if table.num_rows > 1:
            raise SparkRowError("two")
        return table

    with pytest.raises(SparkRowError, match="whole"):
        await without_poison(pairs, numbers(8), SparkRowError("whole"))


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
