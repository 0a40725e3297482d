"""Works A, B, C and W on headgate, as a user would write them; S is B on another input. `headgate run headgate_work:app`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import headgate as hg

WORK, SOURCE, TARGET = os.environ["BENCH_WORK"], os.environ["BENCH_SOURCE"], os.environ["BENCH_TARGET"]
seen = total = 0


def add_up(batch: hg.Batch[Any, Any]) -> None:
    """Work C: adds up a batch, and prints the progress."""
    global seen, total
    total += sum([value["amount"] for value in batch.values])
    seen += len(batch.values)
    print(f"MARK {time.time()} {seen} {total}", file=sys.stdout, flush=True)


app = hg.App(os.environ["BENCH_JOB"])
events = app.input(SOURCE, timestamp="ts" if WORK == "W" else None)
match WORK:
    case "A":
        events.filter(lambda o: o["amount"] >= 10).map(lambda o: {**o, "total": o["amount"] * 2}).to(TARGET)
    case "B" | "S":
        events.repartition("user").agg(n=hg.count(), total=hg.sum("amount")).to(TARGET)
    case "W":
        windows = events.repartition("user").window(hg.tumbling("10s", grace=os.environ["BENCH_GRACE_MS"] + "ms"))
        windows.agg(n=hg.count(), total=hg.sum("amount")).to(TARGET)
    case _:
        events.sink(add_up)
