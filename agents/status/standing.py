"""Why a job does not move, worst first: each reason with whom it waits for, and what to do.

It answers what a number cannot: a lag of 20,000 may be a pause that someone has asked for, a task that restores, or one partition without
records that holds the windows open. Everything is found in the status of the job; nothing is asked of anyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...core.coordination.fleet import workers_text
from ...core.coordination.member.admission import goes_on
from ...core.coordination.state import JobState
from ...core.names import JobName
from ..process.reading import shown
from .draining import listed, progress_lines
from .of_job import SILENT

BAD, WAITS = "bad", "waits"
HELD_S = 30.0
"""So long event time must have stood somewhere to be named."""
STARTING = ("waiting", "granted", "restoring", "bootstrapping")
StandingReason = dict[str, str]


def reason(kind: str, what: str, who: str = "", todo: str = "") -> StandingReason:
    """One reason. `who`: who asked for it, or whom it waits for."""
    return {"kind": kind, "what": what, "who": who, "todo": todo}


def standing(status: Mapping[str, Any], away_s: float | None = None, paused_by: str = "") -> list[StandingReason]:
    """The reasons. `away_s`: for how long no broker has answered this worker; `paused_by`: who paused the job, where that is known.

    >>> idle = dict(run=None, leader=None, drain=None, workers=[], tasks=[], times=[], streams=[], waits=[], batches=[], warnings=[])
    >>> [one["what"] for one in standing({"job": "sales/1", **idle, "workers_wanted": None})]
    ['no worker leads: no one places tasks, and no request is answered', 'no run has begun']
    """
    found = list(_of_run(status, paused_by)) + list(_of_fleet(status, away_s)) + list(_of_tasks(status))
    found += list(_of_time(status)) + [reason(BAD, one) for one in status["warnings"]]
    return sorted(found, key=lambda one: one["kind"] != BAD)


def _of_run(status: Mapping[str, Any], paused_by: str) -> Iterator[StandingReason]:
    run, job = status["run"], shown(JobName.parse(status["job"]))
    if run is None:
        yield reason(WAITS, "no run has begun", todo="headgate run MODULE:app")
        return
    if helps := goes_on(run["state"], job, run["why"]):
        yield reason(BAD if run["why"] else WAITS, f"run {run['id']} is {run['state']}", run["why"], helps)
    asked = f"requested by {paused_by}" if paused_by else ""
    if run["paused"]:
        yield reason(WAITS, "the job is paused", asked, f"headgate resume {job}")
    for stream in run["paused_streams"]:
        yield reason(WAITS, f"{stream} is paused", asked, f"headgate resume {job} --stream {stream}")
    if (drain := status["drain"]) is not None:
        by = f"requested by {drain['by']}" if drain["by"] else ""
        waits = "; ".join(progress_lines(drain, status["tasks"], status["batches"]))
        yield reason(
            BAD if drain["failed"] else WAITS,
            f"the job drains: {drain['done']} of {drain['of']} tasks are done",
            "; ".join(filter(None, [by, waits])),
            drain["todo"],
        )


def _of_fleet(status: Mapping[str, Any], away_s: float | None) -> Iterator[StandingReason]:
    if away_s is not None:
        what = f"no broker has answered this worker for {away_s:.0f} s: what is shown is older than that"
        yield reason(BAD, what, todo="look at the brokers and the network")
    silent = [one["processor"] for one in status["workers"] if not one["alive"]]
    leader = status["leader"]
    if leader is None or leader["processor"] in silent:
        yield reason(BAD, "no worker leads: no one places tasks, and no request is answered")
    if silent:
        yield reason(BAD, f"no heartbeats from {listed(silent)}", todo="see whether the process lives, and its log")
    alive = len(status["workers"]) - len(silent)
    if status["workers_wanted"] is not None and alive < status["workers_wanted"]:
        yield reason(WAITS, f"workers: {workers_text(status['workers_wanted'], alive)}")


def _of_tasks(status: Mapping[str, Any]) -> Iterator[StandingReason]:
    tasks = status["tasks"]
    if stale := [one["task"] for one in tasks if one["state"] == SILENT]:
        yield reason(BAD, f"{_tasks(stale)} of silent workers: they move after session.timeout", listed(stale))
    for state in STARTING:
        names = [one["task"] for one in tasks if one["state"] == state]
        left = sum(one["restore_left"] or 0 for one in tasks if one["state"] == state)
        if names:
            yield reason(
                WAITS, f"{_tasks(names)} {state}{f': {left:,} records to replay' if left else ''}", listed(names)
            )
    moving = [one["task"] for one in tasks if one["wanted"] and one["worker"] and one["wanted"] != one["worker"]]
    if moving:
        yield reason(WAITS, f"{_tasks(moving)} about to move", listed(moving))
    for one in tasks:
        if one["letter"]:
            what = f"{one['task']} works on {one['letter']['what']} for {one['letter']['for_s']:.0f} s"
            yield reason(BAD, what, f"on {one['worker']}", f'headgate status {status["job"]} --why "{one["task"]}"')
    parked = [(one["task"], one["parked"]) for one in tasks if one["parked"]]
    if parked:
        yield reason(WAITS, f"{sum(count for _, count in parked):,} records are parked", listed([t for t, _ in parked]))
    if status["waits"] and any(one["lag"] for one in status["streams"]):
        why = ", ".join(f"{one['reason']} ({one['a_minute']:,} times a minute)" for one in status["waits"][:3])
        yield reason(WAITS, f"tasks wait although records are buffered: {why}")


def _of_time(status: Mapping[str, Any]) -> Iterator[StandingReason]:
    """Where event time has not moved for long although someone waits for it."""
    for one in status["times"]:
        if one["stands_s"] is not None and one["stands_s"] >= HELD_S and one["held_by"] and one["watermark"] != "end":
            who = listed([_holder(held, one["place"]) for held in one["held_by"]])
            yield reason(WAITS, f"event time of {one['place']} has stood for {_age(one['stands_s'])}", f"held by {who}")


def _holder(held: Mapping[str, Any], place: str) -> str:
    """Who holds a watermark, where, and why."""
    state = held["state"] if held["state"] not in (None, "running") else held["why"]
    return f"{held['who'] or place}{' on ' + held['worker'] if held['worker'] else ''} ({state})"


def _age(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )


def _tasks(names: list[str]) -> str:
    return "1 task is" if len(names) == 1 else f"{len(names)} tasks are"


def paused_by(job: JobState, answered: Iterable[tuple[str, str]]) -> str:
    """Who paused the job last. `answered`: verb and author of the requests that were seen, oldest first."""
    if job.run is None or not (job.run.paused_job or job.run.paused_streams):
        return ""
    return next((by for verb, by in reversed(list(answered)) if verb == "pause"), "")
