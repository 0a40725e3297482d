"""Finds rows that make a batch fail, by halving the batch; the others go through without them.

The first bad row is found with as many jobs as the number of rows has binary digits: if the first half of rows that fail succeeds, it is in
the second one. Then one job tries all rows behind it, and so on.

Promise: a row is left out only if the function fails on that row alone. If rows fail only together, or there are more bad rows than
`MOST_BAD`, the batch fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa

from . import columns
from .errors import SparkRowError

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
        bad.append((place, failed))
        if len(bad) > MOST_BAD:
            raise _too_many(error)
        start = place + 1
        failed = await _failure(attempt, table.slice(start)) if start < table.num_rows else None
    if len(bad) == table.num_rows:
        return None, bad
    try:
        return await attempt(columns.without(table, [place for place, _ in bad])), bad
    except SparkRowError:
        raise error from None


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
