"""A job with one slow step, on a real broker: `headgate top`, the status and the metrics name that step, wherever it stands."""

from __future__ import annotations

import asyncio
import json
import re

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from .schemas import schema, wrong
from .test_keys import headgate

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
PATIENCE_S = 240.0
ROWS = 30_000
COST_S = 0.002

SOURCE = """
import time
import headgate as hg

def burns(row):
    end = time.thread_time() + COST
    while time.thread_time() < end:
        pass
    return row

def hurries(row):
    return {**row, "seen": True}

app = hg.App("JOB")
app.input("IN").map(FIRST).filter(lambda row: row["n"] >= 0).map(SECOND).to("OUT")
"""


async def command(job, *words):
    """A verb's output; it must succeed."""
    made = await headgate(job, *words)
    if made.returncode == 4:
        raise LookupError(made.stderr)
    assert made.returncode == 0, made.stderr
    return made.stdout


async def top_of(job):
    found = json.loads(await command(job, "top", job.name, "--once", "-o", "json"))
    assert wrong(found, schema("top")) == []
    return found


async def metrics_of(one):
    """By name and step, or alone by name."""
    url = re.search(r"http://127\.0\.0\.1:\d+(?=\D)", one.text())[0]
    async with aiohttp.ClientSession() as web, web.get(f"{url}/metrics") as answer:
        text = await answer.text()
    return {
        (sample.name, sample.labels.get("step", sample.labels.get("le", ""))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("slow", ["map", "map-2"])
async def test_the_step_that_burns_is_the_one_that_is_named(job, topic, slow):
    """Also where it pushes into the others, or they into it: each has its own time only."""
    inp, out = topic("in"), topic("out")
    first, second = ("burns", "hurries") if slow == "map" else ("hurries", "burns")
    names = {"COST": str(COST_S), "JOB": job.name, "IN": inp, "OUT": out, "FIRST": first, "SECOND": second}
    source = SOURCE
    for name, value in names.items():
        source = re.sub(rf"\b{name}\b", value, source)
    await job.write(inp, [{"n": n} for n in range(ROWS)])
    one = await job.process(source)
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await top_of_running(job)) or not found["verdict"].startswith(f"step '{slow}' is"):
            assert one.process.returncode is None, one.text()[-3000:]
    first_step = found["steps"][0]
    assert first_step["step"] == slow
    assert first_step["share"] > 0.8
    assert 0 < first_step["rows_s"] <= 1.1 / COST_S, "one core can do no more"
    assert found["lag"] > 0
    assert found["workers"][0]["loop"] > 0
    async with asyncio.timeout(
        PATIENCE_S
    ):  # where others take the processor, there are moments in which nothing is slow
        while f"step '{slow}' is what is slow" not in await command(job, "top", job.name, "--once"):
            assert one.process.returncode is None, one.text()[-3000:]
    status = json.loads(await command(job, "status", job.name, "-o", "json"))
    assert wrong(status, schema("status")) == []
    assert status["steps"][0]["step"] == slow

    said = await metrics_of(one)
    seconds = {step: value for (name, step), value in said.items() if name == "headgate_step_seconds_total"}
    rows = {step: value for (name, step), value in said.items() if name == "headgate_step_rows_total"}
    assert set(seconds) == set(rows) == {inp, "map", "filter", "map-2", "to"}
    assert max(seconds, key=seconds.get) == slow
    assert seconds[slow] > 0.8 * sum(seconds.values())
    assert seconds[slow] >= 0.9 * COST_S * rows["to"], "all rows that came out have been burnt for"
    assert said["headgate_chunk_seconds_bucket", "+Inf"] > 0
    assert said["headgate_commit_seconds_sum", ""] > 0
    assert said["headgate_loop_busy_seconds_total", ""] >= 0.9 * COST_S * rows["to"]


async def top_of_running(job):
    """What `top` says; None while the job is not there."""
    try:
        return await top_of(job)
    except LookupError:
        return None


FAILS = """
import headgate as hg

class OutOfStock(Exception):
    pass

def sold(row):
    if row["n"] % 4 == 1:
        raise OutOfStock(f"there is no {row['n']}")
    return 6 // row["left"]

app = hg.App("JOB")
app.input("IN", on_error="skip").map(sold).to("OUT")
"""


async def test_the_errors_of_a_step_are_counted_by_their_class(job, topic):
    """By whatever is asked: the command, the status, the metrics. What the text of an error says makes no other error."""
    inp, out = topic("in"), topic("out")
    source = FAILS.replace("JOB", job.name).replace("IN", inp).replace("OUT", out)
    await job.write(inp, [{"n": n, "left": n % 4} for n in range(20)])
    one = await job.process(source)
    wanted = {"OutOfStock": 5, "ZeroDivisionError": 5}

    def of(document):
        return {error["error"].rpartition(".")[2]: error["times"] for error in document["errors"]}

    async with asyncio.timeout(PATIENCE_S):
        while not (found := await top_of_running(job)) or of(found) != wanted:
            assert one.process.returncode is None, one.text()[-3000:]
    assert {error["step"] for error in found["errors"]} == {"map"}
    screen = await command(job, "top", job.name, "--once")
    assert re.search(r"FAILS +WITH +TIMES +A MINUTE", screen)
    assert re.search(r"map +\w+\.OutOfStock +5 ", screen)
    status = json.loads(await command(job, "status", job.name, "-o", "json"))
    assert wrong(status, schema("status")) == []
    assert of(status) == wanted
    url = re.search(r"http://127\.0\.0\.1:\d+(?=\D)", one.text())[0]
    async with aiohttp.ClientSession() as web, web.get(f"{url}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    samples = [
        sample for family in families for sample in family.samples if sample.name == "headgate_step_errors_total"
    ]
    assert {(one.labels["step"], one.labels["error"].rpartition(".")[2]): one.value for one in samples} == {
        ("map", "OutOfStock"): 5.0,
        ("map", "ZeroDivisionError"): 5.0,
    }
