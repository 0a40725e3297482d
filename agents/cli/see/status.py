"""`headgate status JOB [--why TASK]`: run, leader, workers and tasks, from the coordinator stream and recent heartbeats.

The stream contains what is decided and reported; heartbeats contain what changes all the time (state, lag, watermark). A worker without a
heartbeat for a whole session is shown as silent. Exit codes: 0, or 4 if the job does not exist.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import click

from ....core.coordination.fleet import workers_text
from ....core.coordination.member.admission import goes_on
from ....core.coordination.state import JobState
from ....core.errors import NotFound
from ....core.graph.keying import ENOUGH, OTHER, UNKNOWN
from ....core.names import JobName
from ....core.orders import TaskState
from ....core.settings import offer
from ...process.reading import Hearing, following, heard, pauses, shown
from ...status.draining import progress_lines
from ...status.of_job import SILENT, of_job
from ...status.slow import BATCHES
from ..options import Target, about_job, run_async
from ..output import age, megabytes, output_option, show_fields, show_json, show_table, show_text
from ..pages import page, refusal, token_option
from .unread import unread_topics


@click.command()
@click.argument("job")
@click.option(
    "--why",
    "task",
    default="",
    metavar="TASK",
    help="Show why this task failed, or what it is waiting for, with the traceback.",
)
@token_option
@about_job
@output_option
def status(to: Target, task: str, output: str) -> None:
    """Show the leader, the workers, the tasks with state, lag and watermark, and the progress of a drain."""
    document = run_async(why_of(to, task) if task else read(to))
    if output == "json":
        show_json(document)
    elif task:
        show_why(document)
    else:
        show(document)


async def read(to: Target) -> dict[str, Any]:
    """The status as a document; its schema is `schemas/status.json`."""
    async with following(to.client, to.topics) as stream:
        beats = await heard(to.client, to.topics.heartbeat, stream.job)
        await stream.to_end()
        found = document(to, stream.job, beats)
        found["warnings"] += await unread_topics(to.client, to.topics, stream.job)
        return found


async def why_of(to: Target, name: str) -> dict[str, Any]:
    """Why a task is in its state; the schema is `schemas/status-why.json`. The stream contains the reason, and the worker has the
    traceback.
    """
    found = await read(to)
    tasks = {one["task"]: one for one in found["tasks"]}
    if name not in tasks:
        raise NotFound(f"{to.job} has no task '{name}'", remedy=offer(name, tasks))
    task = tasks[name]
    url = next((one["url"] for one in found["workers"] if one["processor"] == task["worker"]), "")
    code, answer = await page(to, url, "status") if url else (0, None)
    running = answer["worker"]["tasks"] if answer and answer.get("job") == str(to.job) else []
    said = next((one for one in running if one["task"] == name), None)
    failure: dict[str, Any] = {} if said is None else said["notes"].get("failure", {})
    return {
        "job": str(to.job),
        "task": name,
        "state": task["state"] if said is None else said["state"],
        "worker": task["worker"],
        "asked": said is not None,
        "refused": refusal(task["worker"] or "", code),
        "why": (said["why"] if said is not None else "") or task["why"],
        "failure": failure.get("detail", ""),
        "failure_since": failure.get("since"),
        "failure_until": failure.get("until"),
        "traceback": failure.get("traceback", ""),
    }


def show_why(found: dict[str, Any]) -> None:
    """Print it for people: what is known about the task, followed by the traceback as Python prints it."""
    fields = [("task", found["task"]), ("state", found["state"]), ("worker", found["worker"] or "-")]
    fields.append(("why", found["why"] or "-"))
    if found["failure"] and found["failure"] != found["why"]:
        fields.append(("last failure", found["failure"]))
    if found["state"] == TaskState.FAILED:
        fields.append(("more", more_of([found["why"] or found["failure"] or ""])))
    if found["failure"]:
        until = found["failure_until"]
        fields.append(
            ("when", f"{found['failure_since']} until {until}" if until else f"since {found['failure_since']}")
        )
    show_fields(fields)
    if found["traceback"]:
        show_text("\n" + found["traceback"].rstrip())
    elif not found["asked"]:
        note = f"{found['worker']} cannot be reached" if found["worker"] else "no worker runs it"
        note = found["refused"] or note
        show_text(
            f"Note: {note}: this is what the coordinator stream says; the log of the worker has the traceback",
            err=True,
        )


def document(to: Target, state: JobState, hearing: Hearing) -> dict[str, Any]:
    """The status from the stream and the heartbeats together."""
    return of_job(to.job, state, hearing, int(time.time() * 1000))


def holder(held: dict[str, Any]) -> str:
    """Who holds a watermark, and why, in a few words.

    >>> holder({"who": "Partition 2", "why": "behind", "task": "Partition 2", "worker": "w1", "state": "silent"})
    'Partition 2 on w1 (silent)'
    >>> holder({"who": "orders:2", "why": "paused", "task": "Partition 2", "worker": "w1", "state": "running"})
    'orders:2 on w1 (paused)'
    """
    state = held["state"] if held["state"] not in (None, "running") else held["why"]
    where = f" on {held['worker']}" if held["worker"] else ""
    return f"{held['who']}{where} ({state})" if held["who"] else state


def show(found: dict[str, Any]) -> None:
    """Print the status for people."""
    run = found["run"]
    paused = pauses(run["paused"], run["paused_streams"]) if run else ""
    leader = found["leader"]
    quiet = {w["processor"] for w in found["workers"] if not w["alive"]}
    gone = f", {SILENT}" if leader is not None and leader["processor"] in quiet else ""
    fields: list[tuple[str, object]] = [
        ("job", found["job"]),
        ("run", "none yet" if run is None else f"{run['id']}, {run['state']}{', ' + paused if paused else ''}"),
        ("leader", "none" if leader is None else f"{leader['processor']}, term {leader['term']}{gone}"),
        ("lag", lag(found)),
    ]
    if found["drain"]:
        drain = found["drain"]
        by = f", requested by {drain['by']}" if drain["by"] else ""
        fields.append(("drain", f"{drain['done']} of {drain['of']} tasks{by}"))
        fields += [("failed", f"{one['task']}: {one['why']}") for one in drain["failed"]]
        fields += [("waits", line) for line in progress_lines(drain, found["tasks"], found["batches"])]
        fields += [("to do", drain["todo"])] if drain["todo"] else []
    fields += [("waits", f"{one['told']}: {BATCHES.format(found['job'])}") for one in found["batches"] if one["told"]]
    if run is not None and run["why"]:
        fields.append(("why", run["why"]))
    if run is not None and (helps := goes_on(run["state"], shown(JobName.parse(found["job"])), run["why"])):
        fields.append(("to continue", helps))
    if found["workers_wanted"] is not None:
        there = sum(w["alive"] for w in found["workers"])
        fields.append(("workers", workers_text(found["workers_wanted"], there)))
    fields += [(f"keys of {stream}", keys(tasks)) for stream, tasks in sorted(found["keys"].items())]
    fields += [("request", f"{one['verb']} by {one['by']}: {one['state']}") for one in found["requests"]]
    if found["problems"]:
        note = f"{found['problems']} records of the coordinator stream cannot be decoded: headgate coordinator cat {found['job']}"
        fields.append(("unreadable", note))
    if found["unreadable_heartbeats"]["records"]:
        heartbeats = found["unreadable_heartbeats"]
        fields.append(("unreadable", f"{heartbeats['records']} recent heartbeats: {heartbeats['why']}"))
    fields += [
        (f"Spark of {w['processor']}", ", ".join(one["told"] for one in w["spark_memory"]))
        for w in found["workers"]
        if w["spark_memory"]
    ]
    fields += [("warning", one) for one in found["warnings"]]
    show_fields(fields)
    places = several_locations(found)
    if found["workers"]:
        click.echo()
        sparks = any(w["spark"] for w in found["workers"])
        show_table(
            ["WORKER", "STATE", "READY", "HEARD", "TASKS", *(["LOCATION"] if places else []), "INCARNATION",
             *(["SPARK"] if sparks else []), "PAGE"],
            (
                (w["processor"], w["state"] if w["alive"] else SILENT, "yes" if w["ready"] else "no",
                 "-" if w["heard_s"] is None else f"{w['heard_s']:g}s", len(w["tasks"]),
                 *([w["location"] or "-"] if places else []), w["incarnation"],
                 *([w["spark"] or "-"] if sparks else []), w["url"] or "-")
                for w in found["workers"]
            ),
        )  # fmt: skip
    if found["tasks"]:
        click.echo()
        show_table(
            ["TASK", "STATE", "FOR", "WORKER", *(["STORE AT"] if places else []), "LAG", "WATERMARK", "WHY"],
            (
                (t["task"], t["state"], "-" if t["for_s"] is None else age(t["for_s"]), t["worker"] or "-",
                 *([t["location"] or "-"] if places else []), "-" if t["lag"] is None else t["lag"], t["watermark"] or "-",
                 t["why"] or why(t))
                for t in found["tasks"]
            ),
        )  # fmt: skip
    if copies := [(w["processor"], one) for w in found["workers"] for one in w["copies"]]:
        click.echo()
        show_table(
            ["COPY OF", "WORKER", "STATE", "ROWS", "BYTES", "LAG", "READ UP", "LEFT OUT", "BUILT ANEW"],
            (
                (c["table"], worker, c["state"], c["rows"], c["bytes"], "-" if c["lag"] is None else c["lag"],
                 "-" if c["age_s"] is None else f"{c['age_s']:g}s ago", c["left_out"], c["built_anew"])
                for worker, c in copies
            ),
        )  # fmt: skip
    if failed := [t for t in found["tasks"] if t["state"] == TaskState.FAILED]:
        click.echo(f"\nMore: {more_of([t['why'] for t in failed])}")
    show_steps(found)


def several_locations(found: dict[str, Any]) -> bool:
    """Whether workers, or the last states of tasks, are at more than one location. A single one says nothing to people.

    >>> several_locations({"workers": [{"location": "rack-1"}], "tasks": [{"location": None}, {"location": "rack-2"}]})
    True
    """
    return len({one["location"] for one in (*found["workers"], *found["tasks"]) if one["location"]}) > 1


def more_of(reasons: Iterable[str]) -> str:
    """The commands that show what helps against these failures, each once."""
    from ..sections import as_command, section_of_failure

    return " · ".join(dict.fromkeys(as_command(section_of_failure(reason)) for reason in reasons))


def show_steps(found: dict[str, Any]) -> None:
    """Print what the steps of the job wait for and keep: event time, windows, batches, joins."""
    if found["times"]:
        click.echo()
        show_table(
            ["EVENT TIME", "WATERMARK", "BEHIND NOW", "BEHIND NEWEST", "UNCHANGED FOR", "HELD BY"],
            (
                (t["place"], t["watermark"] or "-", *(seconds(t[name]) for name in ("lag_s", "behind_newest_s", "stands_s")),
                 ", ".join([*map(holder, t["held_by"]), *([f"{t['more_holders']} more"] if t["more_holders"] else [])]) or "-")
                for t in found["times"]
            ),
        )  # fmt: skip

    if found["windows"]:
        click.echo()
        names = ("step", "windows", "entries", "oldest_ends", "late_rows", "late_for_some_windows")
        show_table(
            ["WINDOWS", "OPEN", "KEYS", "OLDEST ENDS", "LATE ROWS", "LATE FOR SOME"],
            (["-" if w[name] is None else w[name] for name in names] for w in found["windows"]),
        )
    if found["batches"]:
        click.echo()
        names = ("step", "open", "closed", "running", "returned", "failing", "rows")
        counts = ("done", "rows_done", "retried", "poisoned")
        show_table(
            ["BATCHES", "OPEN", "CLOSED", "RUNNING", "RETURNED", "FAILING", "ROWS", "BYTES", "OLDEST WAITS",
             "DONE", "ROWS DONE", "RETRIED", "POISONED ROWS"],
            ([*(b[name] for name in names), megabytes(b["bytes"]), seconds(b["oldest_s"]), *(b[name] for name in counts)]
             for b in found["batches"]),
        )  # fmt: skip

    if found["joins"]:
        click.echo()
        names = ("step", "side", "rows", "bytes", "rows_in_memory", "oldest", "late_rows", "without_partner")
        show_table(
            ["JOIN", "SIDE", "ROWS KEPT", "BYTES", "IN MEMORY", "OLDEST", "LATE ROWS", "WITHOUT PARTNER"],
            (["-" if j[name] is None else j[name] for name in names] for j in found["joins"]),
        )


def keys(tasks: dict[str, int]) -> str:
    """The partitioner of an input's keys, as its tasks have found.

    >>> keys({"murmur2": 3}), keys({"unknown": 1, "crc32": 2})
    ('murmur2', 'crc32 in 2 tasks, unknown (fewer than 50 keys) in 1')
    """
    said = {UNKNOWN: f"unknown (fewer than {ENOUGH} keys)", OTHER: "neither murmur2 nor crc32"}
    if len(tasks) == 1:
        return said.get(one := next(iter(tasks)), one)
    most = sorted(tasks.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{said.get(one, one)} in {n}{' tasks' if not at else ''}" for at, (one, n) in enumerate(most))


def lag(found: dict[str, Any]) -> str:
    """How many records wait, as far as it is known.

    >>> lag({"lag": 7, "tasks": [{"lag": 7}, {"lag": None}]}), lag({"lag": None, "tasks": [{"lag": None}]})
    ('7 records, unknown for 1 of 2 tasks', 'unknown: no task reports it')
    """
    if found["lag"] is None:
        return "unknown: no task reports it"
    silent = sum(1 for task in found["tasks"] if task["lag"] is None)
    return f"{found['lag']:,} records" + (f", unknown for {silent} of {len(found['tasks'])} tasks" if silent else "")


FAR = 10_000
"""How many records a standby may lack before the status says so of the task."""


def why(task: dict[str, Any]) -> str:
    """Additional information about a task."""
    if task["letter"]:
        return f"working on {task['letter']['what']} for {age(task['letter']['for_s'])}"
    if task["restore_left"]:
        return f"{task['restore_left']:,} records to replay"
    if task["preparing"]:
        left = "" if task["prepare_left"] is None else f": {task['prepare_left']:,} records to replay"
        return f"{task['preparing']} is preparing to run it{left}"
    if task["wanted"] and task["worker"] and task["wanted"] != task["worker"]:
        return f"moving to {task['wanted']}"
    if task["standby_left"] is not None and task["standby_left"] > FAR:
        return f"its standby {task['standby']} lacks {task['standby_left']:,} records"
    if task["parked"]:
        return f"{task['parked']:,} records are parked"
    return "-"


def seconds(apart: float | None) -> str:
    """A difference in time for people. It may be negative, because event time may be ahead of the clock."""
    return "-" if apart is None else f"-{age(-apart)}" if apart < 0 else age(apart)
