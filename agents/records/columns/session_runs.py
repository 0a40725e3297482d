"""Which rows of a chunk are near enough to be of one session, whatever sessions are open: its *runs*.

A run is all rows of a key of which none is more than the gap away from the next one in time. All of a run are in one session behind the
chunk. Runs are in the order of their keys' numbers, then of time.

What it decides: whether a run is *broken*: a row came that was out of reach of those of its run that had come before. Taken one by one,
such rows begin sessions that later rows merge. Promise: the compiled part (`session_runs.c`) and Python find the same.
"""

from __future__ import annotations

from typing import NamedTuple

from ..layout import Buffer, longs
from ..native import chosen


class SessionRuns(NamedTuple):
    """The runs: parallel columns, and the run of each row."""

    of: Buffer
    """By place of a row among those that were given."""
    keys: list[int]
    firsts: list[int]
    lasts: list[int]
    begins: list[int]
    """The time of the row that came first."""
    broken: bytes


def session_runs(numbers: Buffer, times: Buffer, rows: Buffer | None, gap: int) -> SessionRuns:
    """The runs of these rows (None: all). `numbers`: the key of each of them; `times`: of all rows. Raises `ValueError` for a row that does
    not exist, and for a time that no row can have.

    >>> found = session_runs(array("q", [7, 7, 3, 7]), array("q", [0, 30, 5, 8]), None, 10)
    >>> longs(found.of).tolist(), found.keys, found.firsts, found.lasts, found.broken
    ([1, 2, 0, 1], [3, 7, 7], [5, 0, 30], [5, 8, 30], b'\\x00\\x00\\x00')
    """
    of, *columns, broken = chosen.part.session_runs(numbers, times, rows, gap)
    keys, firsts, lasts, begins = (longs(one).tolist() for one in columns)
    return SessionRuns(of, keys, firsts, lasts, begins, broken)
