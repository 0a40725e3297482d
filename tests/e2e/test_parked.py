"""Records that wait: a worker is killed while a key is sick, and another one goes on with it, each record once, in the order of its key."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict

import pytest

from .test_keys import headgate

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

JOB = """
from pathlib import Path

import headgate as hg

app = hg.App("JOB")


def check(value):
    if value["k"] == "sick" and not Path("HEALED").exists():
        raise ValueError("the account is locked")
    return value


app.input("IN", key="k").map(check, on_error=hg.park(after="1s", times=10_000)).to("OUT")
"""


async def test_a_sick_key_waits_through_a_kill(job, topic, tmp_path):
    """`headgate parked` says what waits and why, of a worker that runs and from the log."""
    inp, out, healed = topic("in", 1), topic("out", 1), tmp_path / "healed"
    source = JOB.replace("IN", inp).replace("OUT", out).replace("HEALED", str(healed))
    sent = defaultdict(list)

    async def send(numbers):
        rows = [{"k": key, "n": n} for n in numbers for key in ("well", "sick", "fine")]
        await job.write(inp, rows)
        for row in rows:
            sent[row["k"]].append(row["n"])

    async def said(*words, verb="parked"):
        done = await headgate(job, verb, job.name, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = await job.process(source)
    await send(range(20))
    await job.records(out, 40)
    shown = json.loads(await said("-o", "json"))
    assert [json.loads(one["value"])["n"] for one in shown["records"]] == list(range(20))
    assert "the account is locked" in shown["records"][0]["why"]
    assert "why" not in shown["records"][1]
    while "20 records are parked" not in await said(verb="status"):  # noqa: ASYNC110 - another process says it
        await asyncio.sleep(0.2)
    first.kill()
    await first.ended()
    assert "behind the one before" in await said()
    second = await job.process(source, "w2")
    await send(range(20, 40))
    await job.records(out, 80)
    second.kill()
    await second.ended()
    healed.touch()
    await job.process(source, "w3")
    found = defaultdict(list)
    for record in await job.values(out, 120):
        found[record["k"]].append(record["n"])
    assert found == sent
    assert "no record" in await said()
