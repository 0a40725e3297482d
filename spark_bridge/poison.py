"""Finds rows that make a batch fail, by halving the batch; the others go through without them.

Promise: a row is left out only if the function fails on that row alone. If rows fail only together, or there are more bad rows than can be
searched for, the batch fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa

from . import columns
from .errors import SparkRowError

MOST_TRIES = 200

Attempt = Callable[[pa.Table], Awaitable[pa.Table]]
Bad = list[tuple[int, SparkRowError]]


async def without_poison(attempt: Attempt, table: pa.Table, error: SparkRowError) -> tuple[pa.Table | None, Bad]:
    """The result of the good rows (None if all are bad), and the bad ones by their position. Raises `error` if this does not help."""
    bad: Bad = []
    todo = [(0, table.num_rows)]
    tries = 0
    while todo:
        low, high = todo.pop()
        tries += 1
        if tries > MOST_TRIES:
            raise error
        try:
            if high - low < table.num_rows or tries > 1:
                await attempt(table.slice(low, high - low))
                continue
            failed = error  # the whole table was tried before
        except SparkRowError as again:
            failed = again
        if high - low == 1:
            bad.append((low, failed))
        else:
            middle = (low + high) // 2
            todo += [(middle, high), (low, middle)]
    if not bad:
        raise error
    if len(bad) == table.num_rows:
        return None, bad
    try:
        return await attempt(columns.without(table, [place for place, _ in bad])), bad
    except SparkRowError:
        raise error from None
