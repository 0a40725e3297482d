"""The job that is tormented: source → repartition → keyed count → output, twice: every record shuffled as a row, and combined as columns.
The shuffled records are counted by windows of every kind, too, some of them in columns.

It keeps, for each key, how many records it saw, their sum, the sequence number of the last one, and how often one did not stand
directly behind the one before: a record that is lost, doubled or overtaken leaves a trace that no later record wipes out.
"""

from __future__ import annotations

import os
from typing import Any, TypedDict

from outputs import declared

import headgate as hg

INPUT = os.environ["CHAOS_INPUT"]
COUNTS = os.environ["CHAOS_COUNTS"]
GROUPS = os.environ["CHAOS_GROUPS"]
WINDOWS, LATE = os.environ["CHAOS_WINDOWS"], os.environ["CHAOS_LATE"]


class Event(TypedDict):
    """The fields of a record."""

    key: str
    group: str
    seq: int
    amount: int


def in_order(state: list[int], value: dict[str, Any]) -> list[int]:
    """The sequence number of the last record, and how many did not follow their predecessor."""
    return [value["seq"], state[1] + (value["seq"] != state[0] + 1)]


class Rows(hg.Actor):
    """Sums up the records of a key and window."""

    def on_batch(self, ctx: hg.Context, batch: hg.Batch[str, Any]) -> None:
        """All of them, in the order of their times."""
        seqs = [value["seq"] for value in batch.values]
        total = sum(value["amount"] for value in batch.values)
        ctx.forward({"n": len(seqs), "total": total, "in_order": seqs == sorted(seqs)})


def windowed(stream: Any, kind: str, window: Any) -> None:
    """Results of one kind of windows."""
    rows = stream.window(window, late=f"{LATE}-{kind}", name=kind)
    results = rows.process(Rows) if kind == "rows" else rows.agg(n=hg.count(), total=hg.sum("amount"))
    results.to(f"{WINDOWS}-{kind}")


app = hg.App(os.environ.get("CHAOS_JOB", "chaos"))
events = app.input(INPUT, until="newest" if os.environ.get("CHAOS_BOUNDED") else None)
by_key = events.repartition("key")
by_key.agg(n=hg.count(), total=hg.sum("amount"), order=hg.aggregate(lambda: [-1, 0], in_order)).to(COUNTS)
declared(events)
columns = events.columns(Event)
columns_by_key = columns.repartition("key", name="columns-by-key")
windowed(columns_by_key, "tumbling", hg.tumbling("2s", grace="200ms"))
windowed(columns_by_key, "hopping", hg.hopping("2s", every="1s", grace="200ms"))
windowed(by_key, "rows", hg.tumbling("2s", grace="200ms"))
bursts = by_key.filter(lambda value: value["seq"] // 10 % 2 == 0)
windowed(bursts, "session", hg.session("500ms", grace="200ms"))
columns.repartition("group").agg(n=hg.count(), total=hg.sum("amount")).to(GROUPS)
