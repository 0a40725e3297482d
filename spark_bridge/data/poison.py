"""Finds rows that make a batch fail, by halving the batch; the others go through without them.

The first bad row is found with as many jobs as the number of rows has binary digits: if the first half of rows that fail succeeds, it is in
the second one. Then one job tries all rows behind it, and so on.

The frames of an intermediate stream hold many rows each. The frame is found in this way, and then the row among those of the frame, which
are read here.

Rows may also fail only together, as two numbers whose sum is too large. Then a prefix that succeeds and fails with the next row is looked
for, by halving, and that row is left out.

Promise: a row is left out only if the function fails on that row alone, or on it behind the rows before it that are not left out, without
which it succeeds. If more rows than `MOST_BAD` would be left out, none is, and the batch fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pyarrow as pa

from ...core.batching.failing import RowError
from . import columns
from .ranges import Unfetched

MOST_BAD = 100
"""The maximum number of rows that are left out of one batch. If there are more, the function is wrong rather than its rows."""

Attempt = Callable[[pa.Table], Awaitable[pa.Table]]
Bad = list[tuple[int, RowError]]


async def without_poison(attempt: Attempt, table: pa.Table, error: RowError) -> tuple[pa.Table | None, Bad]:
    """The result of the good rows (None if all are bad), and the bad ones by their position. Raises an error that says so if there are too
    many."""
    bad = await _alone(attempt, table, error)
    succeeds = 0
    while (good := good_rows(table, bad)) is not None:
        try:
            return await attempt(good), bad
        except RowError as failed:
            one, succeeds = await _behind_prefix(attempt, table, bad, failed, succeeds)
            bad.append(one)
            _not_too_many(bad, error)
    return None, bad


async def _alone(attempt: Attempt, table: pa.Table, error: RowError) -> Bad:
    """The rows that fail alone, up to where rows fail only together."""
    bad: Bad = []
    start, failed = 0, error
    while failed is not None:
        place, failed = await _first(attempt, table, start, failed)
        if failed is None:
            return bad
        bad += await _in_frame(attempt, table, place, failed) if is_framed(table) else [(place, failed)]
        _not_too_many(bad, error)
        start = place + 1
        failed = await _failure(attempt, table.slice(start)) if start < table.num_rows else None
    return bad


async def _behind_prefix(
    attempt: Attempt, table: Any, bad: Bad, failed: RowError, succeeds: int
) -> tuple[tuple[int, RowError], int]:
    """The row that makes a prefix of the good rows fail, and how long a prefix succeeds. `succeeds`: how long one is known to."""
    if is_framed(table):
        return await _row_of_frame(attempt, table, bad, failed), 0
    good = good_rows(table, bad)
    behind, found = await _shortest(lambda count: attempt(good.slice(0, count)), good.num_rows, failed, succeeds)
    out = {place for place, _ in bad}
    left = [place for place in range(table.num_rows) if place not in out]
    return (left[behind - 1], found), behind - 1


async def _row_of_frame(attempt: Attempt, table: Any, bad: Bad, failed: RowError) -> tuple[int, RowError]:
    """The same where a place is that of a frame: first the frame is found, then its row."""
    out = [(place, error.inside[0]) for place, error in bad if error.inside is not None]

    def of_frames(count: int) -> Awaitable[pa.Table]:
        return attempt(table.slice(0, count).without_rows([one for one in out if one[0] < count]))

    frames, failed = await _shortest(of_frames, table.num_rows, failed)
    rows = await asyncio.to_thread(table.frame_at, frames - 1)
    own = [row for row in range(rows.num_rows) if (frames - 1, row) not in out]

    def of_rows(count: int) -> Awaitable[pa.Table]:
        later = [(frames - 1, row) for row in own[count:]]
        return attempt(table.slice(0, frames).without_rows([*(one for one in out if one[0] < frames), *later]))

    count, failed = await _shortest(of_rows, len(own), failed)
    row = own[count - 1]
    failed.inside = row, rows.slice(row, 1).to_pylist()[0]
    return frames - 1, failed


async def _shortest(
    first: Callable[[int], Awaitable[pa.Table]], count: int, failed: RowError, succeeds: int = 0
) -> tuple[int, RowError]:
    """The length of a prefix that fails and, without its last part, succeeds; and how it fails. All `count` parts together have failed."""
    while count - succeeds > 1:
        middle = (succeeds + count) // 2
        try:
            await first(middle)
        except RowError as error:
            count, failed = middle, error
        else:
            succeeds = middle
    return count, failed


def is_framed(table: Any) -> bool:
    """Whether a place in these rows is that of a frame, which may hold many rows."""
    return isinstance(table, Unfetched) and table.rows is not None


def good_rows(table: Any, bad: Bad) -> Any:
    """The rows without the bad ones; None if all are bad."""
    if is_framed(table):
        places = [(place, error.inside[0]) for place, error in bad if error.inside is not None]
        return None if len(places) == table.rows else table.without_rows(places)
    return None if len(bad) == table.num_rows else columns.without(table, [place for place, _ in bad])


def bad_row(table: Any, place: int, error: RowError) -> Mapping[str, Any]:
    """The values of a bad row."""
    return table.slice(place, 1).to_pylist()[0] if error.inside is None else error.inside[1]


async def _in_frame(attempt: Attempt, table: Any, place: int, failed: RowError) -> Bad:
    """The bad rows of the frame at this place, which fails alone."""
    rows = await asyncio.to_thread(table.frame_at, place)
    _, found = await without_poison(attempt, rows, failed)
    for row, error in found:
        error.inside = row, rows.slice(row, 1).to_pylist()[0]
    return [(place, error) for _, error in found]


async def _first(attempt: Attempt, table: pa.Table, low: int, failed: RowError) -> tuple[int, RowError | None]:
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


async def _failure(attempt: Attempt, rows: pa.Table) -> RowError | None:
    try:
        await attempt(rows)
    except RowError as error:
        return error
    return None


def _not_too_many(bad: Bad, error: RowError) -> None:
    if len(bad) > MOST_BAD:
        raise type(error)(
            f"more than {MOST_BAD} rows of the batch fail, the first ones with: {error.what}",
            remedy="correct the function, or leave out such rows before .batch(); no row of a batch is left out if more than "
            f"{MOST_BAD} would be",
        )
