"""Work W: its input, the recount of its results, and what results say about progress.

W counts and sums by key and window of 10 s in event time, and gives each result once, when its window closes. Record number `s` of all
partitions together has the event time `BASE_MS + s / PER_MS`, so a window holds 100,000 records: ten of each user. A program may read one
partition ahead of another. Kafka Streams takes time from the newest record of a partition behind its shuffle, whichever task has sent it:
the grace must be longer than that distance, or it drops rows.

Compared are the windows whose end plus grace has passed with the last record that counts. The input goes on for one second of event time,
so that each partition behind the shuffle has a later record. No other window may give a result.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from .inputs import Input
from .rig import PAD, PARTITIONS, USERS, loads

WINDOW_MS = 10_000
GRACE_MS = 30_000
PER_MS = 10
BEYOND = 1000 * PER_MS
"""Records that follow those that count."""
BASE_MS = (int(time.time()) - 3600) // 10 * 10_000
"""The first event time, an hour ago: brokers refuse timestamps of the future and delete old ones."""

EVENTS = Input(0)
"""Whose users and amounts these are."""

Window = tuple[int, str]
"""The end of a window, and a key."""


class Result(NamedTuple):
    """One result as it was read: when it was appended or arrived (ms), its key and window, its count and sum."""

    at: float
    key: str
    end: int
    n: int
    total: int


def row(p: int, i: int, partitions: int = PARTITIONS) -> bytes:
    """Record number `i` of partition `p`; about 100 bytes."""
    ts = BASE_MS + (i * partitions + p) // PER_MS
    return b'{"user":"user%d","amount":%d,"ts":%d,"city":"Leuven","pad":"%s"}' % (
        EVENTS.user(p, i), EVENTS.amount(p, i), ts, PAD.encode(),
    )  # fmt: skip


def windows(records: int) -> int:
    """How many windows have closed with so many records."""
    return (records // PER_MS - GRACE_MS) // WINDOW_MS


@cache
def recount(records: int) -> Mapping[Window, Sequence[int]]:
    """The count and the sum of each key in each of these windows."""
    found: dict[Window, list[int]] = {}
    names = [f"user{number}" for number in range(USERS)]
    for i in range(windows(records) * WINDOW_MS * PER_MS // PARTITIONS):
        for p in range(PARTITIONS):
            at = (i * PARTITIONS + p) // PER_MS
            end = BASE_MS + at - at % WINDOW_MS + WINDOW_MS
            pair = found.setdefault((end, names[EVENTS.user(p, i)]), [0, 0])
            pair[0] += 1
            pair[1] += EVENTS.amount(p, i)
    return found


def parsed(at: float, key: bytes, value: Mapping[str, Any]) -> Result:
    """A result; some programs write their keys as JSON."""
    return Result(at, key.decode().strip('"'), value["window_end"], value["n"], value["total"])


def result(message: Any) -> Result:
    """A result, with the time at which the broker appended it."""
    return parsed(message.timestamp()[1], message.key(), loads(message.value()))


def curve(results: Iterable[Result]) -> list[tuple[float, float]]:
    """When each window was complete (wall, s), and how many records had been read by then at least."""
    complete: dict[int, float] = {}
    for one in results:
        complete[one.end] = max(one.at, complete.get(one.end, 0.0))
    found: list[tuple[float, float]] = []
    latest = 0.0
    for end in sorted(complete):
        latest = max(latest, complete[end])
        found.append((latest / 1000, float((end + GRACE_MS - BASE_MS) * PER_MS)))
    return found


def wrong(results: Iterable[Result], wanted: Mapping[Window, Sequence[int]]) -> str:
    """How the results differ from the recount; empty if there is exactly one for each key and window, and each is correct."""
    found: dict[Window, list[int]] = {}
    twice = 0
    for one in results:
        twice += (one.end, one.key) in found
        found[one.end, one.key] = [one.n, one.total]
    lost = sum(window not in found for window in wanted)
    more = sum(window not in wanted for window in found)
    bad = sum(window in found and found[window] != pair for window, pair in wanted.items())
    return f"{lost} lost, {twice} doubled, {more} too many, {bad} wrong" if lost or twice or more or bad else ""
