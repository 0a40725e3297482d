"""`headgate batches JOB`: the bounded batches of a job, as its workers see them now: what is open, what waits and why, what Spark works on,
and the last ones that are done.

Nothing of this is in a topic, so the workers are asked. A task that no worker spoke for is named, with the reason. Exit codes: 0, or 4 if
the job, the task or the step does not exist.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any

import click

from ....core.coordination.metadata import ASSIGNMENTS, LOCALITY, stored
from ....core.errors import NotFound
from ....core.names import natural
from ....core.settings import offer
from ...process.reading import following, shown
from ...status.batches import window_text
from ..options import Target, about_job, run_async
from ..output import age, megabytes, output_option, show_fields, show_table, shown_as_json
from ..pages import page, refusal, token_option

SUMS = ("opened", "done", "rows", "bytes", "results", "retried", "poisoned", "spark_s", "retry_s")
NARROW = re.compile(r"\s+")
WIDEST = 100
"""Of a reason in a table."""


@click.command()
@click.argument("job")
@click.option("--task", default="", metavar="TASK", help="Only the batches of this task.")
@click.option("--step", default="", metavar="STEP", help="Only the batches of this step.")
@click.option(
    "--done",
    "last",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="How many completed batches, newest last.",
)
@token_option
@about_job
@output_option
def batches(to: Target, task: str, step: str, last: int, output: str) -> None:
    """Show the batches of a job: what is open, what waits and why, what Spark works on, and the last that are done."""
    found = run_async(read(to, task, step, last))
    if not shown_as_json(output, found):
        show(found, shown(to.job))


async def read(to: Target, task: str, step: str, last: int) -> dict[str, Any]:
    """The batches as a document; its schema is `schemas/batches.json`."""
    async with following(to.client, to.topics) as stream:
        state = stream.job
    workers = [one for one in stored(state, LOCALITY).values() if one["tasks"]]
    answers = await asyncio.gather(*(_ask(to, one["url"]) for one in workers))
    heard = [answer for status, answer in answers if status == 200]
    tasks = {one["task"]: one["worker"] for one in stored(state, ASSIGNMENTS).values()}
    if task and task not in tasks:
        raise NotFound(f"{to.job} has no task '{task}'", remedy=offer(task, tasks))
    found = merged(heard)
    steps = [one["step"] for one in found["steps"]]
    if step and heard and step not in steps:
        raise NotFound(f"{to.job} has no batch step '{step}'", remedy=offer(step, steps))
    chosen = {
        name: [one for one in found[name] if task in ("", one["task"]) and step in ("", one["step"])]
        for name in ("batches", "done")
    }
    silent = {
        one["processor"]: refusal(one["processor"], status) or f"{one['processor']} cannot be reached"
        for one, (status, _) in zip(workers, answers, strict=True)
        if status != 200
    }
    return {
        "job": str(to.job),
        "run": None if state.run is None else state.run.state,
        "spark": found["spark"],
        "steps": [one for one in found["steps"] if step in ("", one["step"])],
        "batches": chosen["batches"],
        "done": chosen["done"][:last],
        "unseen": unseen(tasks, {name for one in heard for name in one["tasks"]}, silent),
    }


async def _ask(to: Target, url: str) -> tuple[int, Any]:
    """Status and answer of a worker."""
    return await page(to, url, "batches") if url else (0, None)


def unseen(tasks: Mapping[str, str | None], known: set[str], silent: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tasks that no worker spoke for, each with the reason. `tasks`: each with its worker. `silent`: workers, each with why it did not
    answer.
    """
    return [
        {
            "task": name,
            "worker": worker or None,
            "why": silent.get(worker or "", "no worker runs it"),
        }
        for name, worker in sorted(tasks.items(), key=lambda one: natural(one[0]))
        if name not in known
    ]


def merged(answers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The answers of all workers as one. Numbers of a step are summed over its tasks."""
    heard = list(answers)
    steps: dict[str, dict[str, Any]] = {}
    for one in (step for answer in heard for step in answer["steps"]):
        into = steps.setdefault(one["step"], {"step": one["step"], "tasks": 0, "closed": {}, **dict.fromkeys(SUMS, 0)})
        into["tasks"] += 1
        for name in SUMS:
            into[name] = round(into[name] + one[name], 3)
        for why, count in one["closed"].items():
            into["closed"][why] = into["closed"].get(why, 0) + count
    found = [batch for answer in heard for batch in answer["batches"]]
    return {
        "spark": [{"worker": one["worker"], **one["spark"]} for one in heard if one["spark"] is not None],
        "steps": [steps[name] for name in sorted(steps)],
        "batches": sorted(found, key=lambda one: (one["step"], natural(one["task"]))),
        "done": sorted((batch for answer in heard for batch in answer["done"]), key=lambda one: one["ago_s"]),
    }


def show(found: dict[str, Any], job: str) -> None:
    """Print the batches for people."""
    fields: list[tuple[str, object]] = [("job", found["job"])]
    fields += [(f"Spark of {one['worker']}", spark(one)) for one in found["spark"]]
    fields += [("not seen", f"{one['task']}: {one['why']}") for one in found["unseen"]]
    show_fields(fields)
    if found["steps"]:
        click.echo()
        states = ("open", "closed", "running", "returned")
        show_table(
            ["STEP", *(state.upper() for state in states), "DONE", "ROWS DONE", "RESULT ROWS", "RETRIED", "POISONED ROWS", "CLOSED BY"],
            (
                [one["step"], *(_count(found["batches"], one["step"], state) for state in states),
                 one["done"], one["rows"], one["results"], one["retried"], one["poisoned"],
                 ", ".join(f"{why} {count}" for why, count in sorted(one["closed"].items())) or "-"]
                for one in found["steps"]
            ),
        )  # fmt: skip
    if found["batches"]:
        click.echo()
        show_table(
            ["BATCH", "STATE", "FOR", "ROWS", "BYTES", "WINDOW", "CLOSED BY", "ATTEMPT", "WHY"],
            (
                [one["batch"], one["state"], _length(one["for_s"]), one["rows"], _bytes(one["bytes"]), window_text(one["window"]),
                 one["closed_by"] or "-", one["attempt"] or "-", why(one)]
                for one in found["batches"]
            ),
        )  # fmt: skip
    if found["done"]:
        click.echo()
        show_table(
            ["DONE", "AGO", "ROWS", "BYTES", "WINDOW", "CLOSED BY", "WAITED", "AT SPARK", "TOOK", "RESULT ROWS", "ATTEMPTS", "POISONED",
             "RETRIED"],
            (
                [one["batch"], age(one["ago_s"]), one["rows"], _bytes(one["bytes"]), window_text(one["window"]), one["closed_by"],
                 _length(one["waited_s"]), _length(one["spark_s"]), _length(one["took_s"]), one["results"], one["attempts"] or "-",
                 one["poisoned"], retried(one)]
                for one in found["done"]
            ),
        )  # fmt: skip
    if note := remark(found, job):
        click.echo(note, err=True)


def remark(found: Mapping[str, Any], job: str) -> str:
    """Why nothing is shown, and what to do.

    >>> remark({"steps": [], "unseen": [], "run": "running"}, "sales")
    'sales has no .batch(), no .spark() and no sink: there are no batches'
    """
    if found["steps"]:
        return ""
    if found["run"] in ("stopped", "drained", "ended"):
        return f"No worker is running, because the run is {found['run']}: only workers know about batches. headgate start {job}"
    if found["unseen"]:
        return f"Only workers know about batches, and none was reached: headgate status {job} says why"
    if found["run"] is None:
        return f"{job} has not begun: no worker has started its first run"
    return f"{job} has no .batch(), no .spark() and no sink: there are no batches"


def spark(one: Mapping[str, Any]) -> str:
    """A worker's session for people.

    >>> spark({"state": "ready", "for_s": 61.2, "where": "local[2]", "version": "4.0.0", "ui": "", "sessions": 2, "memory": {},
    ... "taken": [{"told": "jvm 700 MiB"}], "why": ""})
    'ready for 1m, local[2], Spark 4.0.0, session 2, jvm 700 MiB'
    """
    parts = [f"{one['state']} for {_length(one['for_s'])}" if one["for_s"] is not None else one["state"], one["where"]]
    parts += [f"Spark {one['version']}"] if one["version"] else []
    parts += [f"session {one['sessions']}"] if one["sessions"] > 1 else []
    parts += [f"{name} {value}" for name, value in one["memory"].items()]
    parts += [taken["told"] for taken in one.get("taken", ())]
    return ", ".join([*parts, *(part for part in (one["ui"], one["why"]) if part)])


def retried(one: Mapping[str, Any]) -> str:
    """How long after a failure Spark had a batch again, and what failed.

    >>> retried({"retry_s": 4.21, "error": "the JVM died"}), retried({"retry_s": None, "error": ""})
    ('after 4.2s: the JVM died', '-')
    """
    return (
        "-" if one["retry_s"] is None else NARROW.sub(" ", f"after {_length(one['retry_s'])}: {one['error']}")[:WIDEST]
    )


def why(one: Mapping[str, Any]) -> str:
    """How far a batch is, or what it waits for, and the error of its last attempt, on one line."""
    stage = one["stage"] if one["state"] == "running" else ""
    progress = one["progress"]["told"] if one["progress"] else ""
    again = "" if one["retry_s"] is None else f", retried after {_length(one['retry_s'])}"
    error = f"last error: {one['error']}{again}" if one["error"] else ""
    ranges = ", ".join(f"{at['topic']}[{at['partition']}] {at['first']} to {at['last']}" for at in one["ranges"])
    return NARROW.sub(" ", "; ".join(part for part in (stage, progress, one["why"], ranges, error) if part)) or "-"


def _count(batches: Iterable[Mapping[str, Any]], step: str, state: str) -> int:
    return sum(1 for one in batches if (one["step"], one["state"]) == (step, state))


def _length(seconds: float | None) -> str:
    """A duration for people; short ones with a decimal, because a batch may take a part of a second."""
    return "-" if seconds is None else f"{seconds:.1f}s" if seconds < 10 else age(seconds)


def _bytes(size: int | None) -> str:
    return "-" if size is None else megabytes(size) if size >= 100_000 else f"{size} B"
