"""The status of a whole job, from its coordinator stream and the last heartbeats of all workers: one derivation for the page of the job,
`headgate status`, `headgate watch` and `headgate top`.

The stream contains what is decided and reported; heartbeats contain what changes all the time (state, lag, watermark). A worker without a
heartbeat for a whole session is shown as silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.coordination.state import JobState
from ...core.names import JobName, StreamPartition, natural
from ...core.orders import RESTING, WORKING
from ..process.reading import Hearing
from ..worker.load.batch_load import BatchLoad, memory_of_load, spark_of_load
from ..worker.load.copy_load import CopyLoad, copy_documents
from ..worker.load.health import BLOCKED_S, work_of_load
from ..worker.load.join_load import JoinRows
from ..worker.load.load import follow_left, key_load, masks_of, task_load
from ..worker.load.step_facts import F, steps_of_load, summed
from ..worker.load.times import merged, times_of_load
from ..worker.load.window_load import StepWindows
from ..worker.load.work_load import LOOP, STARVED, StepErrors, StepRate, StreamLag, WaitRate
from .batches import load_documents, memory_documents
from .documents import job, join_documents, time_documents, time_of, window_documents
from .draining import drain_of
from .slow import error_documents, step_documents, stream_documents, wait_documents

MOST_SHOWN = 5
"""At most this many holders of a watermark are named."""
SILENT = "silent"
"""The state of a task whose worker sends no heartbeats. Its last known state may be outdated."""


@dataclass(slots=True)
class _Said:
    """What the heartbeats of living workers say."""

    loads: dict[str, Mapping[str, float]] = field(default_factory=dict)
    present: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Only of workers with a recent heartbeat: an older one may be outdated."""
    blocked: set[str] = field(default_factory=set)
    """Workers whose main loop is blocked: what only it knows, it knew when it last turned."""


def of_job(name: JobName, state: JobState, hearing: Hearing, now_ms: int) -> dict[str, Any]:
    """The status from the stream and the heartbeats together; its schema is `cli/schemas/status.json`."""
    found = job(state)
    said = _Said()
    for worker in found["workers"]:
        found["warnings"] += _hear(worker, hearing, said)
    loads = said.loads
    silent = {worker["processor"] for worker in found["workers"] if not worker["alive"]}
    run_state = "" if found["run"] is None else found["run"]["state"]
    over = run_state if run_state in RESTING else ""
    """What all tasks of a closed run have come to, although the last that each of them has reported is its release."""
    for task in found["tasks"]:
        _add_load(task, said, over, silent, now_ms)
    tasks = found["tasks"]
    found["drain"] = None
    if found["run"] is not None and found["run"]["state"] == "draining":
        found["drain"] = drain_of(name, state, tasks, loads)
    known = [task["lag"] for task in tasks if task["lag"] is not None]
    found["unreadable_heartbeats"] = {"records": hearing.unreadable, "why": hearing.why}
    found["keys"] = key_load(loads.values())
    found["times"] = times_of(state, found["tasks"], said.present, now_ms)
    found["windows"] = window_documents(_of_all(StepWindows, loads))
    found["batches"] = load_documents(_of_all(BatchLoad, loads), now_ms)
    found["steps"] = step_documents(_of_all(StepRate, loads))
    found["streams"] = stream_documents(_of_all(StreamLag, loads))
    found["waits"] = wait_documents(_of_all(WaitRate, loads))
    found["errors"] = error_documents(_of_all(StepErrors, loads))
    found["joins"] = join_documents(_of_all(JoinRows, loads))
    return {"job": str(name), "lag": sum(known) if known or not tasks else None, **found}


def overridden_on(load: Mapping[str, float], state: JobState) -> list[str]:
    """The settings with an override that has no effect on the worker with this load, because a flag or a variable there masks it."""
    return sorted(masks_of(load) & state.configs.keys())


def _hear(worker: dict[str, Any], hearing: Hearing, said: _Said) -> list[str]:
    """Add to a worker what its last heartbeat says. Returns warnings."""
    beat = hearing.beats.get(worker["process"])
    silent = not beat.alive if beat is not None else not hearing.begins
    worker["heard_s"] = None if beat is None else round(beat.age_s, 1)
    worker["alive"] = not silent
    worker["ready"] = not silent and beat is not None and beat.beat.load.get("ready") == 1.0
    worker["spark"] = None if beat is None else spark_of_load(beat.beat.load)
    worker["spark_memory"] = [] if beat is None or silent else memory_documents(memory_of_load(beat.beat.load))
    copies = [] if beat is None or silent else steps_of_load(CopyLoad, beat.beat.load)
    worker["copies"] = copy_documents(copies)
    for name in (LOOP, STARVED):
        share = None if beat is None or silent else beat.beat.load.get(name)
        worker[name] = None if share is None else round(share / 1000, 3)
    worker["applied_config"] = None if beat is None else int(beat.beat.load.get("config", -1))
    if beat is None or silent:
        return []
    said.loads[worker["processor"]] = beat.beat.load
    if beat.age_s <= beat.pace.speaks_s:
        said.present[worker["processor"]] = beat.beat.load
    if beat.beat.turn_age_s < BLOCKED_S:
        return []
    said.blocked.add(worker["processor"])
    worker["ready"] = False
    where = f"; {worker['url']}/livez shows where it is blocked" if worker["url"] else ""
    return [f"the main loop of {worker['processor']} has been blocked for {beat.beat.turn_age_s:.0f} s{where}"]


def _add_load(task: dict[str, Any], heard: _Said, over: str, silent: set[str], now_ms: int) -> None:
    """Add to a task what the heartbeats say of it."""
    loads, own = heard.loads, heard.loads.get(task["worker"] or "", {})
    said = task_load(own, task["task"])
    task["state"] = said["state"] or over or task["said"] or ("granted" if task["worker"] else "waiting")
    if task["worker"] in silent:
        task["why"] = task["why"] or f"no heartbeats from {task['worker']}; its last state was {task['state']}"
        task["state"] = SILENT
    task["since"] = time_of(said["since_ms"])
    task["for_s"] = None if said["since_ms"] is None else round(max(0, now_ms - said["since_ms"]) / 1000, 1)
    task["lag"] = None if task["worker"] in heard.blocked else said["lag"]
    letter = work_of_load(own, now_ms).get(task["task"])
    task["letter"] = None if letter is None else {"what": letter.what, "for_s": round(letter.for_s, 1)}
    task["watermark"] = time_of(said["watermark_ms"])
    task["restore_left"], task["parked"] = said["restore_left"], said["parked"]
    task["prepare_left"] = follow_left(loads.get(task["preparing"] or "", {}), task["task"])
    task["standby_left"] = follow_left(loads.get(task["standby"] or "", {}), task["task"])


def _of_all(kind: type[F], loads: Mapping[str, Mapping[str, float]]) -> list[F]:
    """What all workers say of their steps, summed."""
    return summed(one for load in loads.values() for one in steps_of_load(kind, load))


def times_of(
    state: JobState, tasks: list[dict[str, Any]], loads: Mapping[str, Mapping[str, float]], now_ms: int
) -> list[dict[str, Any]]:
    """The times of all workers merged. Each holder has its worker and state; so has a task that cannot report its time."""
    found = time_documents(merged([one for load in loads.values() for one in times_of_load(load)]), now_ms)
    known = {task["task"]: task for task in tasks}
    mute = {name: task["state"] for name, task in known.items() if task["state"] not in (*WORKING, *RESTING)}
    mute |= {name: SILENT for name, task in known.items() if task["worker"] and task["worker"] not in loads}
    owned = state.model.tasks if state.model is not None else {}
    for one in found:
        holding = {held["who"] for held in one["held_by"]}
        for name in sorted(mute, key=natural):
            if name not in holding and any(at.stream == one["place"] for at in owned.get(name, ())):
                one["held_by"].append({"who": name, "why": mute[name], "at": None})
        for held in one["held_by"]:
            task = known.get(held["who"]) or next((t for t in tasks if _reads(owned, t["task"], held["who"])), None)
            held["task"], held["worker"] = (None, None) if task is None else (task["task"], task["worker"])
            held["state"] = None if task is None else mute.get(task["task"], task["state"])
        one["more_holders"] += max(0, len(one["held_by"]) - MOST_SHOWN)
        del one["held_by"][MOST_SHOWN:]
    return found


def _reads(owned: Mapping[str, tuple[StreamPartition, ...]], task: str, partition: str) -> bool:
    return any(str(at) == partition for at in owned.get(task, ()))
