"""The job of ShuffleBench, in rows: its records are bytes without fields, of which no columns can be made, and its consumers start again
after each tenth record, which no aggregate does."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import headgate as hg

from ..shufflebench import OUTPUT_RATE, SPAN, long_of, wrapped
from .records import Topics

NEW = (0, 0, 0, 0)


def shuffle(app: hg.App, t: Topics) -> None:
    """Each record goes to the consumers whose rules it matches, as a whole; each of them sends an event for each ten records."""
    if t.side is None:
        raise ValueError("shuffle needs a file of rules")
    states = app.table("consumers", key=hg.text(), value=hg.msgpack())

    def consume(record: hg.Record[str, dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """The published state: count, sum, and the times of the first and of the last record."""
        count, total, first, _ = states.get(record.key, NEW)
        count, total = count + 1, wrapped(total + long_of(record.value["data"]))
        first, last = first if count > 1 else record.timestamp, record.timestamp
        if count < OUTPUT_RATE:
            states[record.key] = (count, total, first, last)
            return ()
        states[record.key] = NEW
        return ({"consumer": record.key, "count": count, "total": total, "first": first, "last": last},)

    matched = app.input(t.blob, serde=hg.raw()).flat_map(matcher(t.side))
    by_consumer = matched.repartition("consumer", name="by-consumer", serde=hg.msgpack(), key_serde=hg.text())
    by_consumer.flat_map(consume, with_record=True).to(t.out)


def matcher(file: Path) -> Callable[[bytes], Sequence[dict[str, Any]]]:
    """What gives a copy of a record for each consumer whose range it is in. It looks up the last number at which a range begins or ends."""
    rules = [
        (name, *map(int, ends.split())) for name, ends in (line.split(",") for line in file.read_text().splitlines())
    ]
    begins = sorted({0, *(end for _, *ends in rules for end in ends)})
    inside: dict[int, tuple[str, ...]] = {
        begin: tuple(name for name, low, high in rules if low <= begin < high) for begin in begins
    }
    consumers = [inside[begin] for begin in begins]

    def matched(data: bytes) -> Sequence[dict[str, Any]]:
        names = consumers[bisect_right(begins, long_of(data) % SPAN) - 1]
        return [{"consumer": name, "data": data} for name in names] if names else ()

    return matched
