"""The state of a worker and of its job as plain values: for `/api`, the page, metrics and heartbeats.

Everything is read from the worker's own current state; nothing is requested from Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.coordination.fleet import workers_wanted
from ...core.coordination.metadata import ASSIGNMENTS, LOCALITY, open_requests, stored
from ...core.coordination.state import JobState
from ...core.names import StreamPartition, natural
from ...core.orders import WORKING, TaskState
from ...core.progress.frames import MAX_TIME, NO_TIME
from ...core.secrets import masked
from ...core.settings import find, shown
from ...core.task.view import STEP
from ..worker.load.copy_load import copies_of, copy_documents
from ..worker.load.health import LONG_S, readiness
from ..worker.load.join_load import JoinRows, joins_of
from ..worker.load.lags import total
from ..worker.load.load import key_tests, watermarks
from ..worker.load.times import PlaceTime
from ..worker.load.window_load import StepWindows, windows_of

if TYPE_CHECKING:
    from ..process.configuration import Configuration
    from ..runtime.copies.facts import CopyFacts
    from ..runtime.task.notes import Note
    from ..runtime.task.task import TaskActor
    from ..worker.worker import Worker


def run_id(worker: Worker) -> str:
    """The run that the worker knows of; empty if none."""
    member = getattr(worker.coordination, "member", None)
    run = member.view.job.run if member is not None else None
    return run.run_id if run is not None else ""


def time_of(ms: int | None) -> str | None:
    """An event time for people: ISO 8601, or `end` for a stream that has ended."""
    if ms is None or ms <= NO_TIME + 1:
        return None
    if ms >= MAX_TIME:
        return "end"
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms / 1000)) + f".{ms % 1000:03d}Z"
    except (OverflowError, ValueError, OSError):
        return str(ms)


def time_documents(times: Iterable[PlaceTime], now_ms: int) -> list[dict[str, Any]]:
    """Times as plain values; durations are in seconds."""
    return [
        {
            "place": one.place.removeprefix(STEP),
            "kind": "step" if one.place.startswith(STEP) else "stream",
            "watermark": time_of(one.ms),
            "lag_s": _apart_s(now_ms, one.ms),
            "behind_newest_s": None if one.newest_ms is None else _apart_s(max(one.newest_ms, one.ms), one.ms),
            "stands_s": None if one.since_ms is None else max(0, now_ms - one.since_ms) / 1000,
            "held_by": [{"who": held.who, "why": held.why, "at": time_of(held.ts)} for held in one.holders],
            "more_holders": one.more,
        }
        for one in times
    ]


def window_documents(windows: Iterable[StepWindows]) -> list[dict[str, Any]]:
    """The windows of the steps as plain values."""
    return [
        {
            "step": one.step,
            "windows": one.windows,
            "entries": one.entries,
            "oldest_ends": time_of(one.oldest_ms),
            "late_rows": one.late,
            "late_for_some_windows": one.partly,
        }
        for one in windows
    ]


def join_documents(joins: Iterable[JoinRows]) -> list[dict[str, Any]]:
    """The sides of the joins as plain values."""
    return [
        {
            "step": one.step,
            "side": one.side,
            "rows": one.rows,
            "bytes": one.size,
            "rows_in_memory": one.in_memory,
            "oldest": time_of(one.oldest_ms),
            "late_rows": one.late,
            "without_partner": one.alone,
        }
        for one in joins
    ]


def copy_document(one: CopyFacts) -> dict[str, Any]:
    """A copy of a table that this worker keeps, as plain values."""
    (found,) = copy_documents(copies_of([one]))
    positions = {str(partition): offset for partition, offset in sorted(one.positions.items())}
    return {**found, "topic": one.topic, "read": one.read, "positions": positions, "why": masked(one.why)}


def memory_document(worker: Worker) -> dict[str, int]:
    """What the state of a worker takes in memory, in bytes."""
    memory = worker.memory
    return {
        "decoded": memory.decoded.used,
        "decoded_limit": memory.decoded.limit,
        "evicted": memory.decoded.evicted,
        "rocksdb": memory.used(),
        "rocksdb_limit": memory.limit,
    }


def _apart_s(to_ms: int, ms: int) -> float | None:
    return None if ms in (NO_TIME, MAX_TIME) else (to_ms - ms) / 1000


def task(actor: TaskActor, now_ms: int, lags: Mapping[StreamPartition, int | None]) -> dict[str, Any]:
    """One task that runs in this worker. `lags`: of each partition that it reads; None where no one knows it."""
    machine, intake = actor.machine, actor.reading.intake
    inputs: list[dict[str, Any]] = []
    heads = intake.intake.heads() if intake is not None else {}
    for at, head in sorted(heads.items()):
        inputs.append(
            {
                "stream": at.stream,
                "partition": at.partition,
                "position": machine.position(at),
                "lag": lags.get(at),
                "buffered": head.count,
                "at_end": head.at_end,
                "paused": head.paused,
                "state": "lost" if head.lost else "blocked" if head.blocked else "degraded" if head.degraded else "ok",
                "why": str(head.lost or head.degraded or ""),
            }
        )
    progress, letter = actor.state.progress, actor.under_way.doing.now()
    return {
        "task": actor.name,
        "grant": actor.grant,
        "state": machine.phase,
        "since": time_of(actor.since_ms),
        "for_s": round(max(0.0, (now_ms - actor.since_ms) / 1000), 1),
        "why": why_of(actor),
        "lag": total(lags.values()) if lags else None,
        "letter": None if letter is None else {"what": letter.what, "for_s": round(letter.for_s, 1)},
        "watermarks": {stream: time_of(ms) for stream, ms in watermarks(actor).items()},
        "inputs": inputs,
        "restore": None if progress is None else restore_of(progress),
        "counts": dict(sorted(actor.site.counts.items())),
        "parked": _parked(actor),
        "notes": {what: note_of(note) for what, note in actor.site.notes.said.items()},
        "keys": key_tests(actor),
    }


def _parked(actor: TaskActor) -> dict[str, Any] | None:
    """How many records of how many keys wait, and when the next key is tried again; None if none waits."""
    pipeline = actor.site.pipeline
    if pipeline is None or not pipeline.parked.total:
        return None
    parked = pipeline.parked
    return {"records": parked.total, "keys": parked.keys, "tried": time_of(parked.due() or None)}


def note_of(note: Note) -> dict[str, Any]:
    """A report, with its beginning and its end; without an end it holds."""
    shown = {"detail": note.detail, "since": time_of(note.since_ms), "until": time_of(note.until_ms)}
    return {**shown, "traceback": note.traceback} if note.traceback else shown


def restore_of(progress: Any) -> dict[str, Any]:
    """The progress of a restore."""
    return {
        "position": progress.position,
        "end": getattr(progress, "end", None),
        "records": getattr(progress, "records", None),
    }


def restores(worker: Worker) -> list[tuple[str, int, int, float]]:
    """The tasks that replay their log: name, records done, records in total (estimated from offsets), seconds so far."""
    found: list[tuple[str, int, int, float]] = []
    for name, actor in sorted(worker.actors.items()):
        progress = actor.state.progress
        if actor.machine.phase == TaskState.RESTORING and progress is not None:
            left = max(0, progress.end - progress.position)
            found.append((name, progress.records, progress.records + left, progress.seconds))
    return found


def work_under_way(worker: Worker) -> str:
    """The letter that takes longest, for people; empty without one. Any thread may call this."""
    found = [one for actor in list(worker.actors.values()) if (one := actor.under_way.doing.now()) is not None]
    return max(found, key=lambda one: one.for_s).text if found else ""


def tasks_of_job(
    worker: Worker, here: Iterable[dict[str, Any]], tasks: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """All tasks of the job, as the coordinator stream has them, with the facts of this worker about its own: also about those that have
    failed here and do not run. `here`: the tasks that run in this worker.
    """
    run, lags = {one["task"]: one for one in here}, worker.participant.lags_now()
    found: list[dict[str, Any]] = []
    for one in tasks:
        name, running = one["task"], run.get(one["task"])
        known = lags.get(name)
        found.append(
            {
                **one,
                "here": name in run or name in lags,
                "state": running["state"] if running else one["said"] or ("granted" if one["worker"] else "waiting"),
                "for_s": running["for_s"] if running else None,
                "lag": total(known.values()) if known else None,
                "watermark": min(filter(None, running["watermarks"].values()), default=None) if running else None,
                "restore_left": None
                if not running or not running["restore"] or running["state"] != TaskState.RESTORING
                else max(0, running["restore"]["end"] - running["restore"]["position"]),
                "why": (running["why"] if running else "") or one["why"],
            }
        )
    return found


def why_of(actor: TaskActor) -> str:
    """What a task waits for, or why it failed."""
    why = getattr(actor.machine, "why", "") or actor.site.waits()
    letter = actor.under_way.doing.now()
    if not why and letter is not None and letter.for_s >= LONG_S:
        return f"working on {letter.what} for {letter.for_s:.0f} s"
    if not why and actor.machine.phase in WORKING and actor.reading.intake is not None:
        why = actor.reading.intake.chooser.why or actor.reading.intake.held_why()
    return masked(str(why))


def status(worker: Worker) -> dict[str, Any]:
    """This worker with its tasks, and the job as this worker sees it."""
    now = worker.port.clock.now()
    ready, why = readiness(worker.participant)
    member = getattr(worker.coordination, "member", None)
    lags, committing = worker.participant.lags_now(), worker.committing
    here = [task(actor, now.wall, lags.get(name, {})) for name, actor in sorted(worker.actors.items())]
    of_job = None if member is None else job(member.view.job)
    if of_job is not None:
        of_job["tasks"] = tasks_of_job(worker, here, of_job["tasks"])
    return {
        "job": str(worker.job),
        "worker": {
            "processor": worker.options.processor,
            "incarnation": worker.incarnation,
            "location": worker.options.location,
            "url": worker.options.url,
            "pid": worker.options.pid,
            "version": worker.options.version,
            "ready": ready,
            "why": why,
            "leads": leads(worker),
            "up_s": round((now.wall - worker.started_ms) / 1000, 1),
            "commits": 0 if committing is None else committing.commits,
            "last_commit_s": None if committing is None else _rounded(committing.last_s()),
            "commit_under_way_s": None if committing is None else _rounded(committing.under_way_s()),
            "broker_away_s": _rounded(worker.participant.health.contact.away_s),
            "applied_config": worker.participant.overrides.offset,
            "unreadable": worker.runtime.unreadable.document(),
            "times": time_documents(worker.participant.times.look(worker.actors.values(), now.wall), now.wall),
            "windows": window_documents(windows_of(worker.actors.values())),
            "joins": join_documents(joins_of(worker.actors.values())),
            "copies": [copy_document(one) for one in worker.runtime.copies.facts()],
            "state_memory": memory_document(worker),
            "tasks": here,
        },
        **(of_job or {"run": None, "leader": None, "workers": [], "workers_wanted": None, "tasks": [], "warnings": []}),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def leads(worker: Worker) -> bool:
    """Whether this worker is the leader, as far as it knows."""
    member = getattr(worker.coordination, "member", None)
    leader = member.view.job.leader if member is not None else None
    return leader is not None and leader.process == worker.options.process


def job(state: JobState) -> dict[str, Any]:
    """The job according to its coordinator stream: run, leader, workers, tasks."""
    run, leader = state.run, state.leader
    asked = open_requests(state)
    return {
        "run": None
        if run is None
        else {
            "id": run.run_id,
            "state": run.state,
            "why": run.failed,
            "deployment": run.deployment,
            "draining": run.drain,
            "paused": run.paused_job,
            "paused_streams": sorted(run.paused_streams),
        },
        "leader": None
        if leader is None or not leader.processor
        else {"processor": leader.processor, "term": leader.term},
        "workers": list(stored(state, LOCALITY).values()),
        "workers_wanted": workers_wanted(state),
        "tasks": list(stored(state, ASSIGNMENTS).values()),
        "requests": [{name: one[name] for name in ("request", "verb", "by", "state")} for one in asked],
        "problems": state.problem_count,
        "warnings": warnings(state),
    }


def warnings(state: JobState) -> list[str]:
    """Warnings about overrides in the coordinator stream that have no effect."""
    return [f"the override of '{setting}' has no effect: {why}" for setting, why in state.wrong_configs.items()]


def model(worker: Worker) -> dict[str, Any]:
    """The job model, for people."""
    member = getattr(worker.coordination, "member", None)
    return whole_model(member.view.job if member is not None else JobState())


def whole_model(job: JobState) -> dict[str, Any]:
    """The job model as plain values, and the streams of other jobs that its run reads, each with the jobs that produce it."""
    reads = {} if job.run is None else job.run.reads
    return {**model_document(job.model), "reads": {stream: list(jobs) for stream, jobs in sorted(reads.items())}}


def model_document(found: Any) -> dict[str, Any]:
    """A job model as plain values."""
    if found is None:
        return {"version": None, "term": None, "run": None, "streams": {}, "shared": {}, "tasks": [], "producers": []}
    return {
        "version": found.version,
        "term": found.term,
        "run": found.run_id,
        "streams": found.streams,
        "shared": dict(found.shared),
        "tasks": [
            {"task": name, "wanted": found.wanted.get(name), "partitions": [f"{s}[{p}]" for s, p in owned]}
            for name, owned in sorted(found.tasks.items(), key=lambda pair: natural(pair[0]))
        ],
        "producers": [
            {"stream": stream, "epoch": one.epoch, "tasks": sorted(one.tasks, key=natural)}
            for stream, one in sorted(found.producers.items())
        ],
    }


def config(worker: Worker, configuration: Configuration) -> dict[str, Any]:
    """Every setting with its origin, and the client settings with secrets masked."""
    member = getattr(worker.coordination, "member", None)
    overrides: dict[str, Any] = {} if member is None else member.view.job.overrides
    return config_document(configuration, overrides)


def config_document(configuration: Configuration, overrides: dict[str, Any]) -> dict[str, Any]:
    """Settings as plain values."""
    return {
        "file": str(configuration.file) if configuration.file is not None else None,
        "settings": [
            {
                "name": name,
                "value": shown(name, one.raw),
                "origin": one.origin,
                "masks": list(one.masked),
                "kind": find(name).kind,
                "owner": find(name).owner,
            }
            for name, one in sorted(configuration.resolved(overrides).items())
        ],
        "client": configuration.client.shown(),
        "broker_from": configuration.broker_origin,
    }
