"""The batches of a worker as plain values: for `/api/batches`, the page, and `headgate batches`.

Bytes are those of the rows as Arrow columns. Times are those of the wall clock, but for windows and `latest`, which are event times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.batching.batch_progress import (
    BatchDone,
    BatchSeen,
    SparkMemory,
    SparkProgress,
    SparkState,
    StepBatches,
    Tally,
    held_by,
)
from ...core.orders import TaskState
from ...core.secrets import masked
from ..worker.load.batch_load import BatchLoad, batches_of
from .documents import time_of

if TYPE_CHECKING:
    from ..worker.worker import Worker


def batches(worker: Worker) -> dict[str, Any]:
    """The batches of the tasks in this process, and the state of its Spark."""
    now_ms = worker.port.clock.now().wall
    found = batches_of(worker.actors.values())
    document = batch_documents(found, now_ms)
    failed = {name for name, actor in worker.actors.items() if actor.machine.phase == TaskState.FAILED}
    for one in document["batches"]:
        if one["task"] in failed:
            one["why"] = "its task has failed"
    return {
        "worker": worker.options.processor,
        "tasks": sorted(worker.actors),
        "spark": spark_document(
            worker.runtime.spark.seen().session if worker.runtime.spark is not None else None, now_ms
        ),
        **document,
    }


def batch_documents(found: Iterable[StepBatches], now_ms: int) -> dict[str, Any]:
    """Steps, batches that are not done, and the last that are, the newest first."""
    steps = list(found)
    done = sorted((one for step in steps for one in step.done), key=lambda one: -one.done_ms)
    return {
        "steps": [{"task": one.task, "step": one.step, **_tally(one.tally)} for one in steps],
        "batches": [_batch(batch, now_ms) for one in steps for batch in one.batches],
        "done": [_done(one, now_ms) for one in done],
    }


def spark_document(session: SparkState | None, now_ms: int) -> dict[str, Any] | None:
    """The session of a worker; None for a job without a Spark stage."""
    if session is None:
        return None
    return {
        "state": session.state,
        "for_s": _between(session.since_ms or None, now_ms),
        "where": session.where,
        "version": session.version,
        "ui": session.ui,
        "sessions": session.started,
        "memory": dict(session.memory),
        "taken": memory_documents(session.taken),
        "why": masked(session.why),
    }


def memory_documents(taken: Iterable[SparkMemory]) -> list[dict[str, Any]]:
    """What processes of Spark take of memory."""
    return [
        {"process": one.process, "bytes": one.used, "limit": one.limit, "count": one.count, "told": one.text()}
        for one in taken
    ]


def load_documents(loads: Iterable[BatchLoad], now_ms: int) -> list[dict[str, Any]]:
    """The batches of each step, as a heartbeat has them."""
    return [
        {
            "step": one.step,
            "open": one.open,
            "closed": one.closed,
            "running": one.running,
            "returned": one.returned,
            "failing": one.failing,
            "rows": one.rows,
            "bytes": one.size,
            "oldest_s": _between(one.oldest_ms, now_ms),
            "done": one.done,
            "rows_done": one.rows_done,
            "retried": one.retried,
            "poisoned": one.poisoned,
            "to_sink": one.to_sink > 0,
            "held": one.held,
            "told": _held(one, now_ms),
        }
        for one in loads
    ]


def _held(one: BatchLoad, now_ms: int) -> str:
    """What holds up the streams that lead to a step; empty if nothing does. What a sink has written waits for a commit only."""
    if not one.held:
        return ""
    return held_by(
        one.step,
        tasks=one.held,
        batches=one.closed + one.running + (0 if one.to_sink else one.returned),
        to_sink=one.to_sink > 0,
        oldest_s=_between(one.oldest_ms, now_ms),
        failing=one.failing,
    )


def _tally(one: Tally) -> dict[str, Any]:
    return {
        "opened": one.opened,
        "closed": dict(one.closed),
        "done": one.done,
        "rows": one.rows,
        "bytes": one.size,
        "results": one.results,
        "retried": one.retried,
        "poisoned": one.poisoned,
        "spark_s": round(one.spark_ms / 1000, 3),
        "retry_s": round(one.retry_ms / 1000, 3),
    }


def _batch(one: BatchSeen, now_ms: int) -> dict[str, Any]:
    return {
        "batch": one.id,
        "task": one.task,
        "step": one.step,
        "number": one.number,
        "state": one.state,
        "for_s": _between(one.since_ms, now_ms),
        "rows": one.rows,
        "bytes": one.size,
        "window": _window(one.window),
        "latest": time_of(one.latest_ms),
        "opened": time_of(one.opened_ms),
        "closed": time_of(one.closed_ms),
        "closed_by": one.closed_by,
        "stage": one.stage,
        "attempt": one.attempt,
        "retry_s": _seconds(one.retry_ms),
        "why": one.why,
        "error": masked(one.error),
        "progress": _progress(one.progress, now_ms),
        "ranges": [
            {"topic": at.topic, "partition": at.partition, "first": at.first, "last": at.behind - 1}
            for at in one.ranges
        ],
    }


def _done(one: BatchDone, now_ms: int) -> dict[str, Any]:
    return {
        "batch": one.id,
        "task": one.task,
        "step": one.step,
        "number": one.number,
        "rows": one.rows,
        "bytes": one.size,
        "window": _window(one.window),
        "latest": time_of(one.latest_ms),
        "closed_by": one.closed_by,
        "opened": time_of(one.opened_ms),
        "closed": time_of(one.closed_ms),
        "done": time_of(one.done_ms),
        "ago_s": _between(one.done_ms, now_ms),
        "waited_s": _between(one.closed_ms, one.begun_ms),
        "spark_s": _between(one.begun_ms, one.returned_ms),
        "took_s": _between(one.closed_ms, one.done_ms),
        "attempts": one.attempts,
        "retry_s": _seconds(one.retry_ms),
        "error": masked(one.error),
        "results": one.results,
        "poisoned": one.poisoned,
    }


def _progress(one: SparkProgress | None, now_ms: int) -> dict[str, Any] | None:
    if one is None or not one.at_ms:
        return None
    return {
        "jobs": one.jobs,
        "stages": one.stages,
        "stages_done": one.stages_done,
        "tasks": one.tasks,
        "tasks_done": one.tasks_done,
        "tasks_running": one.tasks_running,
        "tasks_failed": one.tasks_failed,
        "heard_s": _between(one.at_ms, now_ms),
        "told": one.text(),
    }


def _window(window: tuple[int, int] | None) -> dict[str, str | None] | None:
    return None if window is None else {"start": time_of(window[0]), "end": time_of(window[1])}


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else round(ms / 1000, 3)


def _between(start_ms: int | None, end_ms: int | None) -> float | None:
    return None if start_ms is None or end_ms is None else round(max(0, end_ms - start_ms) / 1000, 3)


def window_text(window: Mapping[str, str] | None) -> str:
    """A window for people: its day once, and no milliseconds that say nothing.

    >>> window_text({"start": "2026-01-31T12:00:00.000Z", "end": "2026-01-31T12:01:00.000Z"})
    '2026-01-31 12:00:00 – 12:01:00'
    """
    if window is None:
        return "-"
    (day, start), (last, end) = (
        window[at].removesuffix("Z").removesuffix(".000").split("T") for at in ("start", "end")
    )
    return f"{day} {start} – {end if last == day else f'{last} {end}'}"
