"""A user function that fails under the default policy is found by its traceback, in the log and in the status of its worker."""

from __future__ import annotations

import json
import re
import time

import pytest
from structlog.testing import capture_logs

import headgate as hg

from .scenes import why
from .schemas import schema, wrong
from .test_keys import headgate

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def broken(value):
    return 1 / value["n"]


async def test_the_log_says_where_it_was_once(job, topic):
    """Only its message was said: nobody could tell which line of which function had divided by nothing."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name)
    app.input(inp).map(broken).to(out)
    with capture_logs() as logs:
        one = await job.start(app, settings={"error.retries": 1})
        await one.until_running(1)
        await job.write(inp, [{"n": 0}])
        await one.until(lambda: "ZeroDivisionError" in why(one), "the task has failed")
    failures = [line for line in logs if line["event"] == "user code failed"]
    assert [("traceback" in line, line["log_level"]) for line in failures] == [(True, "error"), (False, "error")]
    assert 'return 1 / value["n"]' in failures[0]["traceback"]
    assert "headgate/agents" not in failures[0]["traceback"]
    assert [line["log_level"] for line in logs if line["event"] == "failed"] == ["error"]


SOURCE = """
import headgate as hg

app = hg.App("JOB")


def broken(value):
    return 1 / value["n"]


app.input("IN", timestamp=hg.field("ts", unit="iso")).map(broken).to("OUT")
"""


async def test_status_why_shows_the_traceback_and_without_its_worker_the_reason(job, topic):
    """It stood in a log of some worker on some machine; here it is for whoever can reach the job."""
    inp, out = topic("in", 2), topic("out")
    worker = await job.process(SOURCE.replace("IN", inp).replace("OUT", out), "w1", "--set", "error.retries=0")
    await job.write(inp, [{"n": 0, "ts": "2026-01-31T12:00:00Z"}], partition=0)
    await job.write(inp, [{"n": 1, "ts": 1700000000}], partition=1)

    async def told(task, *words):
        return await headgate(job, "status", job.name, "--why", task, *words)

    async def document(task):
        done = await told(task, "-o", "json")
        found = json.loads(done.stdout) if done.returncode == 0 else {"why": ""}
        assert done.returncode in (0, 4), done.stderr
        assert done.returncode == 4 or not wrong(found, schema("status-why")), found
        return found

    give_up = time.monotonic() + 180
    while "ZeroDivisionError" not in (found := await document("Partition 0"))["why"] or found["state"] != "failed":
        assert time.monotonic() < give_up, (found, worker.text()[-3000:])  # it says why before it has released
    assert (found["worker"], found["asked"]) == ("w1", True)
    assert re.match(r'\S+\.py:\d+ `return 1 / value\["n"\]`: record at ', found["why"]), found["why"]
    assert f"{inp}[0] offset 0" in found["why"]
    assert 'return 1 / value["n"]' in found["traceback"].splitlines()[2]
    shown = await told("Partition 0")
    assert found["traceback"].strip() in shown.stdout
    while "expected ISO text" not in (iso := await document("Partition 1"))["why"]:
        assert time.monotonic() < give_up, (iso, worker.text()[-3000:])
    assert f"{inp}[1] offset 0" in iso["why"]
    assert re.match(r"\S+\.py:\d+ `app\.input\(", iso["why"]), iso["why"]
    told_of = [line for line in worker.text().splitlines() if "Partition 1" in line and "expected ISO text" in line]
    assert any('"data cannot be read"' in line for line in told_of)
    assert not any("user code failed" in line for line in told_of)  # nobody looks for a fault of his function
    missing = await told("Partition 7")
    assert (missing.returncode, "has no task 'Partition 7'" in missing.stderr) == (4, True)
    worker.kill()
    await worker.ended()
    after = await document("Partition 0")
    assert (after["asked"], after["traceback"]) == (False, "")
    assert "ZeroDivisionError" in after["why"]
    assert "w1 cannot be reached" in (await told("Partition 0")).stderr
