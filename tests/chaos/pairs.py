"""The account of a join over many runs: which pairs and which rows without a partner must have come out, and what differs.

A drain ends the wait of all rows, so two rows make a pair only if the same run has read them; a stop ends nothing. Each row says its run
(`drain_job` writes it into the copies), so what must come out follows from the copies, the times in the input, and which rows were late.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

BEFORE_MS, AFTER_MS = 200, 400
"""The distance, as `drain_job` declares it."""

Id = tuple[str, int]
"""A row: its key and its number."""
Result = tuple[str, int | None, int | None]
"""A key, and the numbers of the left and of the right row; None: without a partner."""


class Row(NamedTuple):
    """What is known of a row that the join has not refused as late."""

    key: str
    seq: int
    ms: int
    run: str


def wanted(lefts: Iterable[Row], rights: Iterable[Row]) -> Counter[Result]:
    """What an outer join of these rows gives.

    >>> sorted(wanted([Row("a", 1, 1000, "r1"), Row("b", 1, 1000, "r1")], [Row("a", 7, 1400, "r1"), Row("b", 7, 1000, "r2")]), key=str)
    [('a', 1, 7), ('b', 1, None), ('b', None, 7)]
    """
    found: Counter[Result] = Counter()
    waiting: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in rights:
        waiting[row.run, row.key].append((row.ms, row.seq))
    for rows in waiting.values():
        rows.sort()
    paired: set[Id] = set()
    for row in lefts:
        rows = waiting.get((row.run, row.key), [])
        low = bisect_left(rows, (row.ms - BEFORE_MS, -1))
        partners = rows[low : bisect_right(rows, (row.ms + AFTER_MS, 1 << 62))]
        found.update((row.key, row.seq, seq) for _, seq in partners)
        paired.update((row.key, seq) for _, seq in partners)
        if not partners:
            found[row.key, row.seq, None] += 1
    for (_, key), rows in waiting.items():
        found.update((key, None, seq) for _, seq in rows if (key, seq) not in paired)
    return found


def in_time(times: Mapping[Id, int], runs: Mapping[Id, str], late: Counter[Id]) -> list[Row]:
    """The rows of one side that the join has taken."""
    return [Row(*one, times[one], run) for one, run in runs.items() if one not in late and one in times]


def differences(found: Counter[Result], wanted: Counter[Result]) -> list[str]:
    """What is missing, what is too much."""
    wrong = [f"pair lost ({times} times): {one}" for one, times in (wanted - found).items()]
    return wrong + [f"pair too many ({times} times): {one}" for one, times in (found - wanted).items()]
