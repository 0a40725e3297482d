"""The columns of the simulated job: its first stage, and what it gives besides the rows that are counted, in a third of the seeds.

    orders  →  filter  →  copies (output)
                       →  shuffle of columns  →  count by key, windows        as with rows
                                              →  aggregates by key            `SUMS`
                       →  partial states  →  aggregates by key                `COMBINED_SUMS`

The same records make the copies and the aggregates, whatever happens on the way: `wrong` says where they do not. From `RANKED_FROM` on,
half of these worlds have aggregates, too, whose states are no numbers: those that rank rows and count values, with conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypedDict

import orjson

import headgate as hg

from .log import Kafka

PLAIN, AWAITED, NAMED = "plain", "awaited", "named"
"""Columns alone; columns that are made of rows that a function has awaited; rows whose steps only name fields."""
COPIES, SUMS, COMBINED_SUMS = "copies", "sums", "combined-sums"
TOPICS = (COPIES, SUMS, COMBINED_SUMS)
RANKED_FROM = 7_000_000
SUMMED = "summed"
"""The stream of partial states."""


class Order(TypedDict):
    """An input record."""

    p: int
    s: int
    k: str


def drawn(pace_s: float) -> str:
    """How the first stage works. It is drawn from what is drawn anyway, so that all else of a seed stays as it is."""
    return Random(pace_s).choice(("", "", "", PLAIN, AWAITED, NAMED))


def ranks(seed: int) -> bool:
    """Whether rows are ranked. It is drawn from the seed alone, so that all else of it stays as it is."""
    return seed >= RANKED_FROM and Random(f"ranked {seed}").random() < 0.5


def first_stage(
    source: Any, how: str, work: Callable[[Any], Any], name: str, width: int, *, ranked: bool
) -> tuple[Any, Any]:
    """The filtered records, and these behind the shuffle."""
    before = (source if how == NAMED else source.columns()).filter(hg.col("s") % 5 != 3)
    before.to(COPIES)
    before.repartition("k", name=SUMMED, partitions=2).agg(name="summing", combine=True, **_aggregates(ranked)).to(
        COMBINED_SUMS
    )
    sent = before.rows().map_async(work).columns(Order) if how == AWAITED else before
    stream = sent.repartition("k", name=name, partitions=width)
    stream.agg(name="summing-near", **_aggregates(ranked)).to(SUMS)
    return before, stream


def _aggregates(ranked: bool) -> dict[str, Any]:
    made = {"n": hg.count(), "sum": hg.sum("s"), "most": hg.max("p"), "mean": hg.mean("s")}
    if not ranked:
        return made
    odd = hg.col("s") % 2 == 1
    more = {"best": hg.arg_max("s", by="p"), "top": hg.top(3, "s", by="p", where=odd), "odd": hg.count(where=odd)}
    return {**made, **more, "kinds": hg.count_distinct("p", where=odd)}


def _ranked(rows: list[Any]) -> dict[str, Any]:
    """What ranks and conditions give, of all rows of a key."""
    odd = [row for row in rows if row.seq % 2 == 1]
    best, top = ([row.seq for row in sorted(some, key=lambda row: (-row.producer, row.seq))] for some in (rows, odd))
    found = {"best": best[0] if best else None, "top": top[:3], "odd": len(odd)}
    return {**found, "kinds": len({row.producer for row in odd})}


def wrong(kafka: Kafka, taken: Iterable[tuple[Any, int]], *, ranked: bool) -> list[tuple[object, ...]]:
    """What differs from these records."""
    rows = [row for row, _ in taken]
    found: list[tuple[object, ...]] = []
    copies = Counter((one["p"], one["s"], int(one["k"])) for one in _values(kafka, COPIES).values() for one in one)
    if copies != (true := Counter((row.producer, row.seq, row.key) for row in rows)):
        found.append((COPIES, {"lost": true - copies, "too many": copies - true}))
    by_key: dict[str, list[Any]] = {}
    for row in rows:
        by_key.setdefault(str(row.key), []).append(row)
    for topic in (SUMS, COMBINED_SUMS):
        updates = _values(kafka, topic)
        for key in sorted(by_key.keys() | updates.keys()):
            own, said = by_key.get(key, []), updates.get(key, [])
            sum_ = sum(row.seq for row in own)
            want = {"n": len(own), "sum": sum_, "most": max((row.producer for row in own), default=None)}
            want["mean"] = sum_ / len(own) if own else None
            want |= _ranked(own) if ranked else {}
            counts = [one["n"] for one in said]
            if not said or said[-1] != want or counts != sorted(set(counts)):
                found.append((topic, key, {"found": said[-1:], "true": want, "counts": counts}))
    return found


def _values(kafka: Kafka, topic: str) -> dict[str, list[Any]]:
    """By key, the values of the records of a topic, in order."""
    values: dict[str, list[Any]] = {}
    for record in kafka.read(topic, 0, 0, 1 << 30)[0]:
        values.setdefault((record.key or b"").decode(), []).append(orjson.loads(record.value))
    return values
