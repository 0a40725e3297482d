"""The job that is tormented: source → repartition → keyed count → output, twice: every record shuffled, and combined before it.
The shuffled records are counted by window, too.

It keeps, for each key, how many records it saw, their sum, the sequence number of the last one, and how often one did not stand
directly behind the one before: a record that is lost, doubled or overtaken leaves a trace that no later record wipes out.
"""

from __future__ import annotations

import os
from typing import Any

import headgate as hg

INPUT = os.environ["CHAOS_INPUT"]
COUNTS = os.environ["CHAOS_COUNTS"]
GROUPS = os.environ["CHAOS_GROUPS"]
WINDOWS, LATE = os.environ["CHAOS_WINDOWS"], os.environ["CHAOS_LATE"]


def in_order(state: list[int], value: dict[str, Any]) -> list[int]:
    """The sequence number of the last record, and how many did not follow their predecessor."""
    return [value["seq"], state[1] + (value["seq"] != state[0] + 1)]


app = hg.App(os.environ.get("CHAOS_JOB", "chaos"))
events = app.input(INPUT, until="newest" if os.environ.get("CHAOS_BOUNDED") else None)
by_key = events.repartition("key")
by_key.agg(n=hg.count(), total=hg.sum("amount"), order=hg.aggregate(lambda: [-1, 0], in_order)).to(COUNTS)
(
    by_key.window(hg.tumbling("2s", grace="200ms"), late=LATE, name="windows")
    .agg(n=hg.count(), total=hg.sum("amount"))
    .to(WINDOWS)
)
events.repartition("group").agg(n=hg.count(), total=hg.sum("amount")).to(GROUPS)
