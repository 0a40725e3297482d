"""What hurts a job, worst first: failed tasks with what to do, the steps by their share of the work, streams that are behind, waits.

Everything is found in the status of the job, which sums the heartbeats of all workers. The verdict is one sentence about what to look at
first. It names a step only if its work bounds the job: a step may have the greatest share of very little.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.orders import TaskState
from ..worker.load.work_load import StepErrors, StepRate, StreamLag, WaitRate

BATCHES = "headgate batches {} shows why"
BUSY = 0.7
"""A main loop that has work for such a share of the time, with a processor or without, is what bounds a worker."""


def step_documents(steps: Iterable[StepRate]) -> list[dict[str, Any]]:
    """The steps of all workers with their share of the work, those that take most first."""
    found = sorted(steps, key=lambda one: (-one.busy_us, one.step))
    total = sum(one.busy_us for one in found)
    return [
        {
            "step": one.step,
            "busy": round(one.busy_us / 1e6, 4),
            "share": round(one.busy_us / total, 4) if total else 0.0,
            "rows_s": one.rows,
        }
        for one in found
    ]


def stream_documents(streams: Iterable[StreamLag]) -> list[dict[str, Any]]:
    """The lag of each stream."""
    return [{"stream": one.step, "lag": one.records} for one in streams]


def wait_documents(waits: Iterable[WaitRate]) -> list[dict[str, Any]]:
    """Why tasks wait, the most frequent reason first."""
    found = sorted(waits, key=lambda one: (-one.waits, one.step))
    return [{"reason": one.step, "a_minute": one.waits} for one in found]


def error_documents(errors: Iterable[StepErrors]) -> list[dict[str, Any]]:
    """On what steps fail, what comes most often now first."""
    found = sorted(errors, key=lambda one: (-one.a_minute, -one.times, one.order))
    return [{"step": one.step, "error": one.error, "times": one.times, "a_minute": one.a_minute} for one in found]


def top(status: dict[str, Any]) -> dict[str, Any]:
    """What hurts, of the status of a job; the schema is `cli/schemas/top.json`."""
    job = status["job"]
    failed = [
        {
            "task": one["task"],
            "worker": one["worker"],
            "why": one["why"],
            "todo": f"headgate status {job} --why {quoted(one['task'])}",
        }
        for one in status["tasks"]
        if one["state"] == TaskState.FAILED
    ]
    times = {one["place"]: one for one in status["times"] if one["kind"] == "stream"}
    streams = [
        {
            **one,
            "watermark_delay_s": times[one["stream"]]["lag_s"] if one["stream"] in times else None,
            "held_by": [held["who"] for held in times[one["stream"]]["held_by"]] if one["stream"] in times else [],
        }
        for one in status["streams"]
    ]
    found = {
        "job": job,
        "run": None if status["run"] is None else status["run"]["state"],
        "lag": status["lag"],
        "failed": failed,
        "steps": status["steps"],
        "streams": sorted(streams, key=lambda one: (-one["lag"], one["stream"])),
        "waits": status["waits"],
        "errors": status["errors"],
        "held": [
            {"step": one["step"], "tasks": one["held"], "told": one["told"]}
            for one in sorted(status["batches"], key=lambda one: (-one["held"], one["step"]))
            if one["held"]
        ],
        "workers": [
            {"worker": one["processor"], **{name: one[name] for name in ("alive", "ready", "loop", "starved")}}
            for one in sorted(status["workers"], key=lambda one: (-_wants(one), one["processor"]))
        ],
    }
    return {**found, "verdict": verdict(found)}


def verdict(found: dict[str, Any]) -> str:
    """What to look at first, in one sentence.

    >>> idle = {"job": "sales", "failed": [], "steps": [], "waits": [], "held": [], "workers": [], "lag": 0}
    >>> verdict(idle)
    'no worker runs'
    >>> calm = {**idle, "workers": [{"alive": True, "loop": 0.04, "starved": 0.01}]}
    >>> verdict(calm)
    'nothing is slow'
    >>> step = {"step": "score", "share": 0.83, "busy": 0.8, "rows_s": 90}
    >>> verdict({**calm, "workers": [{"alive": True, "loop": 0.97, "starved": 0.02}], "steps": [step], "lag": 7})
    "step 'score' is what is slow: 83 % of the work, 90 rows/s; the busiest worker is at 97 % of a processor"
    >>> verdict({**calm, "steps": [{**step, "busy": 0.03}], "waits": [{"reason": "paused", "a_minute": 9}], "lag": 7})
    'tasks wait: paused'
    >>> verdict({**calm, "held": [{"step": "to-sql", "tasks": 1, "told": "1 task takes no more records: 5 batches wait"}], "lag": 7})
    '1 task takes no more records: 5 batches wait: headgate batches sales shows why'
    """
    alive = [one for one in found["workers"] if one["alive"]]
    if found["failed"]:
        count = len(found["failed"])
        return f"{count} failed task{'s' * (count > 1)}: nothing of {'them' if count > 1 else 'it'} is processed"
    if not alive:
        return "no worker runs"
    busiest = max(alive, key=_wants)
    at = f"at {percent(busiest['loop'] or 0.0)} of a processor"
    if full := _wants(busiest) >= BUSY and (busiest["loop"] or 0.0) < BUSY:
        at += f", and waits for one for {percent(busiest['starved'] or 0.0)} of the time: others take the machine, or a limit does"
    first = found["steps"][0] if found["steps"] else None
    held = sum(one["busy"] for one in found["steps"]) / len(alive)
    if first is not None and max(_wants(busiest), held) >= BUSY:
        work = f"{percent(first['share'])} of the work, {first['rows_s']:,} rows/s"
        if _wants(busiest) < BUSY:
            at += ", and has no processor for the rest: it blocks (await it)"
            at += ", or others take the machine" if busiest["starved"] is None else ""
        return f"step '{first['step']}' is what is slow: {work}; the busiest worker is {at}"
    if _wants(busiest) >= BUSY:
        return f"the main loop is {at}{';' if full else ','} not in steps: commits, fetches, many tasks"
    if found["held"]:
        return f"{found['held'][0]['told']}: {BATCHES.format(found['job'])}"
    if found["lag"] and found["waits"]:
        return f"tasks wait: {found['waits'][0]['reason']}"
    return (
        "no step is slow: what is behind waits for Kafka, a commit, or an answer" if found["lag"] else "nothing is slow"
    )


def _wants(worker: dict[str, Any]) -> float:
    """For which share of the time its loop has a processor, or waits for one."""
    return (worker["loop"] or 0.0) + (worker["starved"] or 0.0)


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.834), percent(0.0004), percent(0)
    ('83 %', '<1 %', '0 %')
    """
    return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def quoted(task: str) -> str:
    """A task as a shell takes it."""
    return f'"{task}"' if " " in task else task
