"""How far a drain is, for the page of the job, `headgate status` and `headgate drain --wait`: by stream and by task, who is waited for, and
what to do.

The coordinator stream has what the tasks have reported, heartbeats have which streams each draining task has not drained yet. A producer
whose worker sends no heartbeats has not drained as far as anyone knows, so it is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...core.coordination.state import JobState
from ...core.names import JobName, natural
from ...core.orders import RESTING, TaskState
from ..process.reading import shown
from ..worker.load.drain_load import owes

MOST_NAMED = 5
"""At most this many tasks are named in a line for people."""


def drain_of(
    job: JobName, state: JobState, tasks: list[dict[str, Any]], loads: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """Who requested the drain; for each stream the producers that it waits for; for each task the same; what has failed, and what to do.

    `tasks` are those of the status; `loads` come from the heartbeats of living workers, by processor.
    """
    failed, model, name = state.failed(), state.model, shown(job)
    known = {one["task"]: one for one in tasks}

    def waits_for(producer: str, stream: str) -> bool:
        one = known.get(producer)
        if one is None or one["state"] in RESTING:
            return False
        load = loads.get(one["worker"] or "")
        return one["state"] != TaskState.DRAINING or load is None or owes(load, producer, stream)

    producers = {} if model is None else model.producers
    missing = {
        stream: sorted((task for task in one.tasks if waits_for(task, stream)), key=natural)
        for stream, one in sorted(producers.items())
    }
    waiting: list[dict[str, Any]] = []
    for one in tasks:
        if model is None or one["state"] in RESTING or one["task"] in failed:
            continue
        for stream in sorted({at.stream for at in model.tasks.get(one["task"], ()) if at.stream in missing}):
            if others := [task for task in missing[stream] if task != one["task"]]:
                waiting.append({"task": one["task"], "stream": stream, "for": others})
                one["why"] = one["why"] or f"waits for {listed(others)} ({stream})"
    todo = ""
    if failed:
        todo = (
            f"fix the code without changing the graph, `headgate stop {name}`, run it, `headgate start {name}`: the drain resumes; "
            f"or continue after a bad record with `headgate seek {name} STREAM:PARTITION --to OFFSET`"
        )
    return {
        "request": state.run.drain if state.run is not None else None,
        "done": sum(1 for one in tasks if one["state"] in RESTING),
        "of": len(tasks),
        "by": state.run.drain_by if state.run is not None else "",
        "failed": [{"task": task, "why": why} for task, why in failed.items()],
        "streams": [
            {"stream": stream, "drained": len(producers[stream].tasks) - len(names), "of": len(producers[stream].tasks),
             "for": names}
            for stream, names in missing.items()
        ],
        "waiting": waiting,
        "todo": todo,
    }  # fmt: skip


def progress_lines(
    drain: dict[str, Any], tasks: list[dict[str, Any]], batches: Iterable[Mapping[str, Any]] = ()
) -> list[str]:
    """Who is waited for, a line for each stream that has not drained, for each task that still reads, and for each step whose batches are
    not done, for people."""
    lines = [
        f"{one['stream']}: {one['drained']} of {one['of']} producers have drained; waits for {listed(one['for'])}"
        for one in drain["streams"]
        if one["for"]
    ]
    blocked = {one["task"] for one in drain["waiting"]}
    for one in tasks:
        if one["state"] not in RESTING and one["task"] not in blocked:
            where = f" on {one['worker']}" if one["worker"] else ""
            left = f", {one['lag']} records behind" if one["lag"] else ""
            lines.append(f"{one['task']}{where}: {one['state']}{left}{', ' + one['why'] if one['why'] else ''}")
    lines += [batch_line(one) for one in batches if one["closed"] or one["running"] or one["returned"]]
    more = len(lines) - MOST_NAMED
    return [*lines[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]


def batch_line(one: Mapping[str, Any]) -> str:
    """The batches of a step that are not done.

    >>> batch_line({"step": "daily", "closed": 2, "running": 1, "returned": 0, "failing": 1})
    'daily: 3 batches are not done: 1 at Spark, 2 wait for Spark, the last attempt of 1 failed'
    """
    whom = "its sink" if one.get("to_sink") else "Spark"
    parts = [
        (one["running"], f"at {whom}"),
        (one["closed"], f"waits for {whom}" if one["closed"] == 1 else f"wait for {whom}"),
        (one["returned"], "with a result"),
    ]
    said = [f"{count} {what}" for count, what in parts if count]
    said += [f"the last attempt of {one['failing']} failed"] if one["failing"] else []
    count = sum(count for count, _ in parts)
    return f"{one['step']}: {count} {'batch is' if count == 1 else 'batches are'} not done: {', '.join(said)}"


def listed(names: list[str]) -> str:
    """The first of these names.

    >>> listed([f"Partition {n}" for n in range(7)])
    'Partition 0, Partition 1, Partition 2, Partition 3, Partition 4 and 2 more'
    """
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
