"""Who a drain waits for, as the status and `headgate drain --wait` say it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.agents.cli.data.draining import show_drains
from headgate.agents.cli.options import Target
from headgate.agents.cli.see.status import document
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.process.reading import Hearing
from headgate.agents.status.draining import drain_of, progress_lines
from headgate.core.coordination import messages as c
from headgate.core.coordination.state import JobState
from headgate.core.graph.model import JobModel
from headgate.core.names import JobName, StreamPartition, Topics
from headgate.core.orders import ProducerSet

BY = "sales-1-by-user"
TASKS = ("Partition 0", "Partition 1", "Partition 2")


def state(*more: c.Message) -> JobState:
    owned = {task: (StreamPartition("in", n), StreamPartition(BY, n)) for n, task in enumerate(TASKS)}
    model = JobModel(1, 1, "r1", "d", owned, producers={BY: ProducerSet(BY, 1, frozenset(TASKS))})
    messages = (c.SetRun("r1", "d", "draining", "u", drain="u1", drain_by="me"), c.SetJobModel(model), *more)
    return JobState().fold(c.Entry(n, c.key_of(m), m) for n, m in enumerate(messages))


def tasks(*states: str, lag: int = 0) -> list[dict[str, Any]]:
    rows = zip(TASKS, states, strict=True)
    return [{"task": task, "state": of, "worker": f"w{n}", "why": "", "lag": lag} for n, (task, of) in enumerate(rows)]


def test_the_producers_that_have_not_drained_a_stream_are_waited_for() -> None:
    """Those that have drained it are not, although they still read it; one whose worker is silent is."""
    rows = tasks("draining", "draining", "silent")
    found = drain_of(JobName("sales"), state(), rows, {"w0": {}, "w1": {f"owes.Partition 1/{BY}": 1.0}})
    assert (found["done"], found["of"], found["by"], found["request"]) == (0, 3, "me", "u1")
    assert found["streams"] == [{"stream": BY, "drained": 1, "of": 3, "for": ["Partition 1", "Partition 2"]}]
    assert found["waiting"] == [
        {"task": "Partition 0", "stream": BY, "for": ["Partition 1", "Partition 2"]},
        {"task": "Partition 1", "stream": BY, "for": ["Partition 2"]},
        {"task": "Partition 2", "stream": BY, "for": ["Partition 1"]},
    ]
    assert rows[0]["why"] == f"waits for Partition 1, Partition 2 ({BY})"
    assert progress_lines(found, rows) == [f"{BY}: 1 of 3 producers have drained; waits for Partition 1, Partition 2"]


def test_who_waits_for_no_one_is_named_with_what_it_has_left() -> None:
    """The stream has drained, and one task has not read it to its end."""
    rows = tasks("drained", "draining", "ended", lag=7)
    found = drain_of(JobName("sales"), state(), rows, {"w1": {}})
    assert found["streams"] == [{"stream": BY, "drained": 3, "of": 3, "for": []}]
    assert (found["done"], found["waiting"]) == (2, [])
    assert progress_lines(found, rows) == ["Partition 1 on w1: draining, 7 records behind"]
    none = {"closed": 0, "running": 0, "returned": 0, "failing": 0}
    batches = [{**none, "step": "all"}, {**none, "step": "daily", "closed": 1}]
    assert progress_lines(found, rows, batches)[1:] == ["daily: 1 batch is not done: 1 waits for Spark"]
    of_sink = {**none, "step": "to-sql", "closed": 2, "running": 1, "to_sink": True}
    assert progress_lines(found, rows, [of_sink])[1:] == [
        "to-sql: 3 batches are not done: 1 at its sink, 2 wait for its sink"
    ]


@pytest.mark.parametrize(("run", "shown"), [("drained", "drained"), ("ended", "ended"), ("stopped", "released")])
def test_behind_a_drain_the_tasks_are_drained_although_the_last_that_they_reported_is_their_release(
    run: str, shown: str
) -> None:
    """Whoever looks at the status the next morning must not ask himself whether they have drained before they were released."""
    job = JobName("sales")
    messages = [c.SetRun("r1", "d", run, "u"), c.SetGrant("Partition 0", 1, "w0", "000001-aa")]
    closed = state(*messages, c.SetTaskState("Partition 0", 1, "released", ""))
    target = Target(job, Topics(job), configure(CommandLine("b:1"), environ={}))
    [task] = [one for one in document(target, closed, Hearing())["tasks"] if one["task"] == "Partition 0"]
    assert task["state"] == shown


def test_that_there_are_no_drains_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Headers alone look like an answer that was cut off."""
    job = JobName("sales")
    target = Target(job, Topics(job), configure(CommandLine("b:1"), environ={}))
    show_drains(target, [], "table")
    assert capsys.readouterr().out == "No drain of sales is pending or in progress.\n"
    show_drains(target, [], "json")
    assert json.loads(capsys.readouterr().out) == {"job": "sales/1", "drains": []}


def test_a_heartbeat_without_room_for_all_names_waits_for_all_of_its_tasks() -> None:
    """Better a name too many than a drain that waits for nobody."""
    found = drain_of(JobName("sales"), state(), tasks("draining", "drained", "drained"), {"w0": {"owes": 2.0}})
    assert found["streams"][0]["for"] == ["Partition 0"]


def test_a_failed_task_is_named_with_what_to_do() -> None:
    """It holds the drain up until somebody acts."""
    failed = state(c.SetGrant("Partition 1", 1, "w1", "000001-aa"), c.SetTaskState("Partition 1", 1, "failed", "boom"))
    found = drain_of(JobName("sales"), failed, tasks("draining", "failed", "drained"), {"w0": {}})
    assert found["failed"] == [{"task": "Partition 1", "why": "boom"}]
    assert "headgate stop sales" in found["todo"]
    assert found["waiting"] == [{"task": "Partition 0", "stream": BY, "for": ["Partition 1"]}]
