"""The account of the windows: each result of each kind once, and equal to a plain recount of the input.

    tumbling, rows   one window for a record         hopping   every window that holds its time
    session          records of a key, as long as the next one is no farther than the gap; only of bursts (`in_burst`)

Every kind has a topic for its results, and one for its late records: these are not in the recount.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import orjson

from headgate.agents.records.kafka.partitioner import partition_of

from .load import PARTITIONS
from .reader import read_all

KINDS = ("tumbling", "hopping", "session", "rows")
SIZE_MS, EVERY_MS, GAP_MS = 2000, 1000, 500
"""As `job` declares them."""
Record = tuple[str, int, int, int]
"""Of the input: key, time, sequence number, amount."""
At = tuple[str, int, int]
"""Key, start and end of a window."""


def in_burst(seq: int) -> bool:
    """Whether a record counts for sessions: of a key half of the records do, in bursts, so that sessions end."""
    return seq // 10 % 2 == 0


def recount(kind: str, records: Iterable[Record]) -> dict[At, list[int]]:
    """Number and sum of each window of this kind."""
    if kind == "session":
        return _sessions(records)
    found: dict[At, list[int]] = defaultdict(lambda: [0, 0])
    every = EVERY_MS if kind == "hopping" else SIZE_MS
    for key, ms, _, amount in records:
        for start in range(ms - ms % every, ms - SIZE_MS, -every):
            sums = found[key, start, start + SIZE_MS]
            sums[0] += 1
            sums[1] += amount
    return found


def _sessions(records: Iterable[Record]) -> dict[At, list[int]]:
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, ms, seq, amount in records:
        if in_burst(seq):
            by_key[key].append((ms, amount))
    found: dict[At, list[int]] = {}
    for key, rows in by_key.items():
        start = last = n = total = 0
        for ms, amount in sorted(rows):
            if n and ms > last + GAP_MS:
                found[key, start, last + GAP_MS] = [n, total]
                n = total = 0
            start, last, n, total = (start if n else ms), ms, n + 1, total + amount
        found[key, start, last + GAP_MS] = [n, total]
    return found


def windowed(bootstrap: str, results: str, late: str, records: list[Record], *, closed: bool) -> list[str]:
    """What is wrong with the windows of all kinds, whose topics begin with these names."""
    wrong: list[str] = []
    for kind in KINDS:
        gone: Counter[tuple[str, int]] = Counter()
        for message in read_all(bootstrap, f"{late}-{kind}"):
            value = orjson.loads(message.value() or b"null")
            gone[value["key"], value["seq"]] += 1
        known = [one for one in records if not gone[one[0], one[2]]]
        wrong += [f"{kind}: late twice: {one}" for one, times in gone.items() if times > 1]
        wrong += _differences(bootstrap, kind, f"{results}-{kind}", recount(kind, known), closed=closed)
    return wrong


def _differences(bootstrap: str, kind: str, topic: str, wanted: dict[At, list[int]], *, closed: bool) -> list[str]:
    """Each window of a key has one result, which equals the recount.

    Only where the run has not `closed` may windows be open: in each task those from its newest result on, for a task closes them in order.
    """
    found: dict[At, list[int]] = {}
    newest: dict[int, int] = {}
    wrong: list[str] = []
    for message in read_all(bootstrap, topic):
        key, value = (message.key() or b"").decode(), orjson.loads(message.value() or b"null")
        at = (key, value["window_start"], value["window_end"])
        where = f"{kind}: {key} at {message.partition()}:{message.offset()}: {value}"
        if at in found:
            wrong.append(f"{where} came before as {found[at]}")
        elif [value["n"], value["total"]] != wanted.get(at):
            wrong.append(f"{where} is {wanted.get(at)} in the input")
        elif not value.get("in_order", True):
            wrong.append(f"{where} has rows that are not in the order of their times")
        if message.timestamp()[1] != value["window_end"] - 1:
            wrong.append(f"{where} has the time {message.timestamp()[1]}")
        found[at] = [value["n"], value["total"]]
        task = partition_of(key.encode(), PARTITIONS)
        newest[task] = max(at[2], newest.get(task, at[2]))
    wrong += [f"{kind}: task {task} has no result at all" for task in range(PARTITIONS) if task not in newest]
    for at in wanted:
        open_from = float("inf") if closed else newest.get(partition_of(at[0].encode(), PARTITIONS), 0)
        if at not in found and at[2] < open_from:
            wrong.append(f"{kind}: {at} has no result, {wanted[at]}")
    return wrong
