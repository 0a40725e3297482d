"""Finds rows that make a batch fail, by halving the batch; the others go through without them.

The first bad row is found with as many jobs as the number of rows has binary digits: if the first half of rows that fail succeeds, it is in
the second one. Then one job tries all rows behind it, and so on.

The frames of an intermediate stream hold many rows each. The frame is found in this way, and then the row among those of the frame, which
are read here.

Promise: a row is left out only if the function fails on that row alone. If rows fail only together, or there are more bad rows than
`MOST_BAD`, the batch fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pyarrow as pa

from . import columns
from .errors import SparkRowError
from .ranges import Unfetched

MOST_BAD = 100
"""With more bad rows than these, something else is wrong, and nobody wants so many letters about it."""

Attempt = Callable[[pa.Table], Awaitable[pa.Table]]
Bad = list[tuple[int, SparkRowError]]


async def without_poison(attempt: Attempt, table: pa.Table, error: SparkRowError) -> tuple[pa.Table | None, Bad]:
    """The result of the good rows (None if all are bad), and the bad ones by their position. Raises `error` if this does not help."""
    bad: Bad = []
    start, failed = 0, error
    while failed is not None:
        place, failed = await _first(attempt, table, start, failed)
        if failed is None:
            raise error
        bad += await _in_frame(attempt, table, place, failed) if is_framed(table) else [(place, failed)]
        if len(bad) > MOST_BAD:
            raise _too_many(error)
        start = place + 1
        failed = await _failure(attempt, table.slice(start)) if start < table.num_rows else None
    good = good_rows(table, bad)
    if good is None:
        return None, bad
    try:
        return await attempt(good), bad
    except SparkRowError:
        raise error from None


def is_framed(table: Any) -> bool:
    """Whether a place in these rows is that of a frame, which may hold many rows."""
    return isinstance(table, Unfetched) and table.rows is not None


def good_rows(table: Any, bad: Bad) -> Any:
    """The rows without the bad ones; None if all are bad."""
    if is_framed(table):
        places = [(place, error.inside[0]) for place, error in bad if error.inside is not None]
        return None if len(places) == table.rows else table.without_rows(places)
    return None if len(bad) == table.num_rows else columns.without(table, [place for place, _ in bad])


def bad_row(table: Any, place: int, error: SparkRowError) -> Mapping[str, Any]:
    """The values of a bad row."""
    return table.slice(place, 1).to_pylist()[0] if error.inside is None else error.inside[1]


async def _in_frame(attempt: Attempt, table: Any, place: int, failed: SparkRowError) -> Bad:
    """The bad rows of the frame at this place, which fails alone. Raises `failed` if its rows fail only together."""
    rows = await asyncio.to_thread(table.frame_at, place)
    _, found = await without_poison(attempt, rows, failed)
    for row, error in found:
        error.inside = row, rows.slice(row, 1).to_pylist()[0]
    return [(place, error) for _, error in found]


async def _first(
    attempt: Attempt, table: pa.Table, low: int, failed: SparkRowError
) -> tuple[int, SparkRowError | None]:
    """The first bad row behind `low`, where all rows together have just failed; and how it fails alone (None: it does not)."""
    high, alone = table.num_rows, table.num_rows - low == 1
    while high - low > 1:
        middle = (low + high) // 2
        half = await _failure(attempt, table.slice(low, middle - low))
        if half is None:
            low, alone = middle, False
        else:
            high, failed, alone = middle, half, middle - low == 1
    return low, failed if alone else await _failure(attempt, table.slice(low, 1))


async def _failure(attempt: Attempt, rows: pa.Table) -> SparkRowError | None:
    try:
        await attempt(rows)
    except SparkRowError as error:
        return error
    return None


def _too_many(error: SparkRowError) -> SparkRowError:
    return SparkRowError(
        f"more than {MOST_BAD} rows of the batch fail, the first ones with: {error.what}",
        remedy="correct the function, or leave out such rows before .batch()",
    )
