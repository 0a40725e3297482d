"""`headgate jobs`: the jobs of a cluster, with the state of their runs, workers, tasks and lag.

A job is there from its first `headgate run` until `headgate reset`. All coordinator streams are read through one client; heartbeats only of
jobs whose run is not over, a few at a time.

Promises: it says of each job what `headgate status` says of it. It changes nothing. Exit code 0, also if there are no jobs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import click

from ....core.coordination.state import JobState
from ....core.names import JobName, Topics
from ....core.orders import RESTING, TaskState
from ...coordinator.job_states import states_of_all
from ...kafka.connect import CONNECT_S
from ...kafka.port import KafkaPort
from ...kafka.topics import TopicsAdmin
from ...process.configuration import CommandLine, Configuration
from ...process.reading import Hearing, heard, pauses, shown
from ..options import Target, broker_options, configured, run_async
from ..output import output_option, show_table, shown_as_json
from .status import document

AT_ONCE = 8
"""Of so many jobs heartbeats are read at the same time: each takes a connection."""


@click.command()
@broker_options
@output_option
def jobs(said: CommandLine, output: str) -> None:
    """List the jobs of this cluster, with the state of their runs, workers, tasks and lag."""
    found = run_async(read(configured(said)))
    if not shown_as_json(output, {"jobs": found}):
        show_table(
            ("JOB", "STATE", "WORKERS", "TASKS", "LAG"),
            map(row, found),
            none="There are no jobs. A job exists from its first `headgate run` on.",
        )


async def read(configuration: Configuration) -> list[dict[str, Any]]:
    """All jobs, by name; the schema of the whole document is `schemas/jobs.json`."""
    client, prefix = configuration.client, str(configuration.value("topic.prefix"))
    admin = TopicsAdmin(client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        states = await states_of_all(KafkaPort(client), admin.names, prefix, within_s=CONNECT_S)
        there = set(await admin.names())
    finally:
        await admin.stop()
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(name: JobName, state: JobState) -> dict[str, Any]:
        to = Target(name, Topics(name, prefix), configuration)
        over = state.run is not None and state.run.state in RESTING
        if over or to.topics.heartbeat not in there:
            return summary(document(to, state, Hearing()))
        async with turns:
            return summary(document(to, state, await heard(client, to.topics.heartbeat, state)))

    known = sorted((JobName.parse(name), state) for name, state in states.items())
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(one(name, state)) for name, state in known]
    return [task.result() for task in asked]


def summary(status: dict[str, Any]) -> dict[str, Any]:
    """What the list says of a job, from its status."""
    run, workers, tasks = status["run"], status["workers"], status["tasks"]
    return {
        "job": status["job"],
        "run": None if run is None else run["id"],
        "state": None if run is None else run["state"],
        "paused": "" if run is None else pauses(run["paused"], run["paused_streams"]),
        "workers": sum(1 for worker in workers if worker["alive"]),
        "silent_workers": sum(1 for worker in workers if not worker["alive"] and worker["state"] != "left"),
        "tasks": len(tasks),
        "tasks_running": sum(1 for task in tasks if task["state"] == "running"),
        "tasks_failed": sum(1 for task in tasks if task["state"] == TaskState.FAILED),
        "lag": status["lag"],
    }


def row(job: dict[str, Any]) -> tuple[object, ...]:
    """A job in the table.

    >>> row({"job": "sales/1", "state": "running", "paused": "paused", "workers": 1, "silent_workers": 1, "tasks": 4, "tasks_running": 3,
    ...      "tasks_failed": 1, "lag": 1200})
    ('sales', 'running, paused', '1, 1 silent', '3 of 4 running, 1 failed', '1,200')
    """
    state = job["state"] or "no run yet"
    silent = f", {job['silent_workers']} silent" if job["silent_workers"] else ""
    failed = f", {job['tasks_failed']} failed" if job["tasks_failed"] else ""
    return (
        shown(JobName.parse(job["job"])),
        f"{state}, {job['paused']}" if job["paused"] else state,
        f"{job['workers']}{silent}",
        f"{job['tasks_running']} of {job['tasks']} running{failed}",
        "-" if job["lag"] is None else f"{job['lag']:,}",
    )
