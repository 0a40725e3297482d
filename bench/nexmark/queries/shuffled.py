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

    def consume(record: hg.Record[str, bytes]) -> Sequence[dict[str, Any]]:
        """The published state: count, sum, and the times of the first and of the last record."""
        count, total, first, _ = states.get(record.key, NEW)
        count, total = count + 1, wrapped(total + long_of(record.value))
        first, last = first if count > 1 else record.timestamp, record.timestamp
        if count < OUTPUT_RATE:
            states[record.key] = (count, total, first, last)
            return ()
        states[record.key] = NEW
        return ({"consumer": record.key, "count": count, "total": total, "first": first, "last": last},)

    matching = matcher(t.side)
    matched = app.input(t.blob, serde=hg.raw()).filter(lambda data: bool(matching(data)))
    copies = matched.flat_map(
        lambda one: [hg.Record(name, one.value) for name in matching(one.value)], with_record=True
    )
    copies.repartition(name="by-consumer", serde=hg.raw(), key_serde=hg.text()).flat_map(consume, with_record=True).to(
        t.out
    )


def matcher(file: Path) -> Callable[[bytes], tuple[str, ...]]:
    """What gives the consumers whose ranges a record is in. It looks up the last number at which a range begins or ends."""
    rules = [
        (name, *map(int, ends.split())) for name, ends in (line.split(",") for line in file.read_text().splitlines())
    ]
    begins = sorted({0, *(end for _, *ends in rules for end in ends)})
    consumers = [tuple(name for name, low, high in rules if low <= begin < high) for begin in begins]

    def matching(data: bytes) -> tuple[str, ...]:
        return consumers[bisect_right(begins, int.from_bytes(data[:8], "big") % SPAN) - 1]

    return matching
