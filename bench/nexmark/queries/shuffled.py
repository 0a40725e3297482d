"""The job of ShuffleBench, in rows: its records are bytes without fields, of which no columns can be made, and its consumers start again
after each tenth record, which no aggregate does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
        consumer = record.value["consumer"]
        count, total, first, _ = states.get(consumer, NEW)
        count, total = count + 1, wrapped(total + long_of(record.value["data"]))
        first, last = first if count > 1 else record.timestamp, record.timestamp
        if count < OUTPUT_RATE:
            states[consumer] = (count, total, first, last)
            return ()
        states[consumer] = NEW
        return ({"consumer": consumer, "count": count, "total": total, "first": first, "last": last},)

    class Copy(TypedDict):
        consumer: str
        data: bytes

    copies = app.input(t.blob, serde=hg.raw()).columns().frame(matcher(t.side), like="pyarrow", schema=Copy)
    copies.repartition("consumer", name="by-consumer").rows().flat_map(consume, with_record=True).to(t.out)


def matcher(file: Path) -> Callable[[pa.Table], pa.Table]:
    """What gives a copy of a record for each consumer in whose range it is. It looks up the last number at which a range begins or ends."""
    rules = [
        (name, *map(int, ends.split())) for name, ends in (line.split(",") for line in file.read_text().splitlines())
    ]
    begins = sorted({0, *(end for _, *ends in rules for end in ends)})
    inside = [[at for at, (_, low, high) in enumerate(rules) if low <= begin < high] for begin in begins]
    names = pa.array([name for name, *_ in rules])
    numbers = np.array(begins, np.int64)
    counts = np.array([len(one) for one in inside])
    firsts = np.cumsum(counts) - counts
    listed = np.array([at for one in inside for at in one])

    def matching(frame: pa.Table) -> pa.Table:
        data = frame["value"].combine_chunks()
        heads = pc.binary_slice(data, 0, 8)
        own = np.frombuffer(heads.buffers()[2], ">i8", len(data)) & np.int64(SPAN - 1)
        at = np.searchsorted(numbers, own, "right") - 1
        rows = np.repeat(np.arange(len(data)), counts[at])
        places = np.arange(len(rows)) - np.repeat(np.cumsum(counts[at]) - counts[at], counts[at])
        consumers = names.take(pa.array(listed[np.repeat(firsts[at], counts[at]) + places]))
        return pa.table(
            {"consumer": consumers, "data": data.take(pa.array(rows)), "__row": frame["__row"].take(pa.array(rows))}
        )

    return matching
