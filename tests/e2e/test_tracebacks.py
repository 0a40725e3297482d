"""A user function that fails under the default policy is found by its traceback, in the log and in the status of its worker."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

import headgate as hg

from .scenes import why

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
