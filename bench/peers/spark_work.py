"""Work P on headgate: windows of 10 s in event time, counted and summed by key. `headgate run spark_work:app`.

Spark gets the rows of each window (`inline`), or reads them from Kafka itself (`ranges`); or headgate's own window does it (`window`).
"""

from __future__ import annotations

import os
from typing import TypedDict

from spark_totals import SCHEMA, totals

import headgate as hg

FORM, SOURCE, TARGET = os.environ["BENCH_FORM"], os.environ["BENCH_SOURCE"], os.environ["BENCH_TARGET"]
ROWS = int(os.environ["BENCH_ROWS"])
FILES = os.environ["BENCH_FILES"]
"""The directory of results that are files; empty if they are records."""
MIXED = bool(os.environ["BENCH_MIXED"])
"""Whether each user is in all partitions of the input."""


class Event(TypedDict):
    """What is read of a record."""

    user: str
    amount: int
    ts: int


app = hg.App(os.environ["BENCH_JOB"])
source = app.input(
    SOURCE,
    serde=hg.json(Event),
    timestamp="ts",
    key=None if MIXED else "user",
    max_out_of_order=os.environ["BENCH_LAG_MS"] + "ms",
)
rows = source.columns().repartition("user") if MIXED else source.columns()
match FORM:
    case "window":
        rows.window(hg.tumbling("10s")).agg(n=hg.count(), total=hg.sum("amount")).to(TARGET)
    case "batch":  # a window has as many records
        rows.batch(max_rows=ROWS).spark(totals, schema=SCHEMA).to(TARGET, key="user")
    case _ if FILES:
        rows.window(hg.tumbling("10s")).spark(totals, schema=SCHEMA).write(FILES)
    case _:
        rows.window(hg.tumbling("10s")).spark(totals, schema=SCHEMA).to(TARGET, key="user")
