"""The status of a worker: the job's tasks, with what this worker knows of its own."""

from __future__ import annotations

from types import SimpleNamespace as Bag
from typing import Any

from headgate.agents.status.documents import tasks_of_job
from headgate.core.names import StreamPartition

AT = StreamPartition("in", 0)


def worker(**lags: dict[StreamPartition, int | None]) -> Any:
    return Bag(participant=Bag(lags_now=lambda: lags))


def said(task: str, worker: str | None, said: str | None = None, why: str = "") -> dict[str, Any]:
    """A task as the coordinator stream has it."""
    return {"task": task, "worker": worker, "said": said, "why": why, "grant": 1}


def test_a_task_that_has_failed_here_is_shown_although_it_does_not_run() -> None:
    """A full disk had failed all tasks: `headgate status` said why, and the page of their worker had none."""
    tasks = [said("failed", "w1", "failed", "the disk is full"), said("else", "w2", "running"), said("new", None)]
    found = tasks_of_job(worker(failed={AT: 700}), [], [*tasks, said("granted", "w1")])
    assert [(one["task"], one["here"], one["state"], one["lag"], one["why"]) for one in found] == [
        ("failed", True, "failed", 700, "the disk is full"),
        ("else", False, "running", None, ""),
        ("new", False, "waiting", None, ""),
        ("granted", False, "granted", None, ""),
    ]
    assert {(one["for_s"], one["watermark"], one["restore_left"]) for one in found} == {(None, None, None)}


def test_a_task_that_runs_here_has_the_facts_of_its_worker() -> None:
    """Its own state comes first: the stream says what it last reported."""
    here = {"task": "t", "state": "restoring", "for_s": 3.0, "why": "", "restore": {"position": 30, "end": 100}}
    here["watermarks"] = {"in": "1970-01-01T00:00:09.000Z", "other": None}
    [found] = tasks_of_job(worker(t={AT: None}), [here], [said("t", "w1", "running", "before")])
    facts = {"here": True, "state": "restoring", "for_s": 3.0, "lag": None, "restore_left": 70, "why": "before"}
    assert found == {**said("t", "w1", "running", "before"), **facts, "watermark": "1970-01-01T00:00:09.000Z"}
    here["state"] = "running"
    assert tasks_of_job(worker(t={AT: 4}), [here], [said("t", "w1")])[0]["restore_left"] is None
