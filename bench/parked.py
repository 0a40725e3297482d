"""What one sick key costs all others: a pipeline without Kafka in which a key waits after an error, and one in which no record fails.

    python -m bench parked [--records 1000000] [--rounds 12]

- 1,000,000 records, each of another key, but ten of one key, spread over all of them: with `on_error="park"` its first one fails, and
  the others wait behind it. `held`: with `hold="1h"`, so windows and timers behind the step would wait for them.
- Rows: a function is called with each record. Columns: numbers are added, and the key's first record has none.
- What a task asks of its pipeline behind each letter (who owes time, and how much) is asked here, too. Commits every 100 chunks.
- CPU-seconds, in rounds: each has all three, in turning order. The median of the ratios counts. Wanted: at most 5 % more.

Writes `bench/out/parked.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from array import array
from collections.abc import Mapping
from statistics import median
from typing import Any, TypedDict

import headgate as hg
from headgate.agents.operators.pipeline.trouble import Recovered, recover
from headgate.agents.process.memory import keep_memory
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.records.kafka.spans import SpannedColumns, SpannedRecords
from headgate.agents.records.memory.record_spans import packed
from headgate.core.names import StreamPartition

from . import report
from .operators import CHUNK, CHUNKS_A_COMMIT, Rig

SICK = b"sick"
WAITING = 10
MOST = 1.05
POLICIES: Mapping[str, Any] = {"well": "fail", "parked": hg.park(), "held": hg.park(hold="1h")}


class Event(TypedDict):
    """A record, as columns have it."""

    n: int
    m: int
    note: str


def add(event: dict[str, Any]) -> dict[str, Any]:
    """Fails for a record without a number."""
    event["total"] = event["n"] + event["m"]
    return event


def job(policy: Any, *, columns: bool) -> hg.App:
    """One step that may fail."""
    app = hg.App("bench", on_error=policy, on_bad_data=policy)
    events = app.input("events")
    if columns:
        events.columns(Event).with_columns(total=hg.col("n") + hg.col("m")).to("out")
    else:
        events.map(add).to("out")
    return app


def chunks(records: int, *, sick: bool) -> list[Chunk]:
    """The input. With `sick`, the first record of the key that comes again and again cannot be added up."""
    found: list[Chunk] = []
    every = records // WAITING
    for first in range(0, records, CHUNK):
        numbers = range(first, min(first + CHUNK, records))
        keys = packed([SICK if n % every == 0 else b"key-%d" % n for n in numbers])
        bad = b'{"n":null,"m":1,"note":"%s"}' % (b"x" * 60)
        values = packed(
            [bad if sick and n == 0 else b'{"n":%d,"m":%d,"note":"%s"}' % (n, n % 7, b"x" * 60) for n in numbers]
        )
        times = array("q", [1_700_000_000_000 + n for n in numbers])
        columns = SpannedColumns(SpannedRecords(values, times, first, keys))
        found.append(Chunk(StreamPartition("events", 0), numbers[-1] + 1, columns))
    return found


async def spent(rig: Rig, made: list[Chunk]) -> float:
    """CPU-seconds for all chunks, with what a task asks behind each of them."""
    gc.collect()
    began = time.process_time()
    for number, chunk in enumerate(made, 1):
        try:
            await rig.pipeline.chunk(chunk)
        except Exception as error:  # noqa: BLE001 - as a task does
            outcome = await recover(rig.pipeline, chunk, error, drop=rig.tables.drop)
            assert isinstance(outcome, Recovered), outcome
        rig.done()
        rig.pipeline.owed()
        rig.pipeline.seen()
        if number % CHUNKS_A_COMMIT == 0:
            rig.commit()
    rig.commit()
    return time.process_time() - began


def measured(records: int, rounds: int, *, columns: bool) -> dict[str, list[float]]:
    """The CPU-seconds of each round, by policy."""
    well, sick = chunks(records, sick=False), chunks(records, sick=True)
    found: dict[str, list[float]] = {name: [] for name in POLICIES}
    for number in range(rounds + 1):
        names = list(POLICIES)
        names = names[number % 3 :] + names[: number % 3]
        for name in names:
            rig = Rig(job(POLICIES[name], columns=columns), ["events"])
            took = asyncio.run(spent(rig, well if name == "well" else sick))
            waiting = 0 if name == "well" else WAITING
            assert rig.ready.records == records - waiting, (name, rig.ready.records)
            if number:  # the first round warms up
                found[name].append(took)
    return found


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench parked", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--records", type=int, default=1_000_000)
    words.add_argument("--rounds", type=int, default=12)
    words.add_argument("--quick", action="store_true", help="20,000 records, two rounds")
    given = words.parse_args()
    records, rounds = (20_000, 2) if given.quick else (given.records, given.rounds)
    keep_memory()
    rows: list[dict[str, Any]] = []
    failed = False
    for form in ("rows", "columns"):
        took = measured(records, rounds, columns=form == "columns")
        rate = records / median(took["well"]) / 1000
        more = {
            name: median(one / well for one, well in zip(took[name], took["well"], strict=True))
            for name in ("parked", "held")
        }
        failed |= max(more.values()) > MOST
        rows.append({"form": form, "took": took, "more": more})
        print(
            f"{form:8} {rate:7,.0f} k records a CPU-second if all are well; one key waits: {more['parked'] - 1:+.1%}; "
            f"it holds time: {more['held'] - 1:+.1%}",
            flush=True,
        )
    report.keep("parked", {"records": records, "rounds": rounds, "rows": rows})
    return int(failed and not given.quick)


if __name__ == "__main__":
    sys.exit(main())
