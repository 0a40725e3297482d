"""What a worker that starts, works and is stopped writes on standard error: its own words, and none that sound like an error."""

from __future__ import annotations

import json
import re
import signal

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

WINDOWS = """
import headgate as hg

app = hg.App("JOB")
rows = app.input("IN", timestamp="ts")
rows.repartition("k").window(hg.tumbling("1s")).agg(n=hg.count()).to("OUT")
"""

SPARK = """
import headgate as hg
import msgspec
from pyspark.sql import functions as F

class Row(msgspec.Struct):
    k: str
    n: int
    ts: int

def same(tables):
    yield from tables

def per_key(df, batch):
    df = df.mapInArrow(same, df.schema)
    return df.groupBy("k").agg(F.sum("n").alias("n"))

app = hg.App("JOB")
rows = app.input("IN", serde=hg.json(Row), timestamp="ts")
rows.repartition("k").window(hg.tumbling("1s")).spark(per_key, schema="k string, n long").to("OUT", key="k")
"""

OWN = re.compile(r"w1 of \S+: http://|SIGTERM: committing and leaving ")
"""What `headgate run` says for people, beside its log."""


def strange(text):
    """The lines that are not ours, or that are louder than a start and a stop may be."""
    found = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            found += [] if OWN.match(line) else [line]
            continue
        if event.get("level") not in ("debug", "info") or "logger" in event:
            found.append(line)
    return found


@pytest.mark.parametrize("source", [pytest.param(WINDOWS, id="windows"), pytest.param(SPARK, id="spark")])
async def test_a_start_and_a_clean_stop_say_nothing_that_sounds_like_an_error(job, topic, source):
    """A line that is always there teaches people to read over lines."""
    inp, out = topic("in", 2), topic("out", 2)
    source = source.replace("IN", inp).replace("OUT", out)
    one = await job.process(
        source, "w1", "--set", "session.timeout=60s"
    )  # a machine that stands still is no trouble of its
    await job.write(inp, [{"k": f"k{n % 3}", "n": 1, "ts": n * 100} for n in range(60)])
    await job.records(out, 3, within_s=240)
    one.process.send_signal(signal.SIGTERM)
    assert await one.ended() == 0
    assert strange(one.text()) == []
