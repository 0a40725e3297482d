"""Seeks: accepted into the run, applied once by each task that owns one of the partitions, then removed from the run.

- The request adds one `SeekRequest` for each partition to `set-run`. The task stores its id in the checkpoint that applied it, and then
  reports it; a later grant only reports it again.
- When all tasks have reported, the seeks are removed from the run and the request is done. If a task refuses, the request has failed, with
  the reason.
- What leaves out one record moves no position: it is carried out in every stream that tasks read, also between the job's own stages, and
  alongside other seeks. A later seek of the partition to a position replaces it.
- While the run drains, only failed tasks can be moved to another position; they restart, and drain from there.
- A seek that was not applied before its `not_after` is removed, and has failed. The partitions where it was applied are named, and stay so.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ...graph.model import JobModel
from ...names import StreamPartition
from ...orders import HERE, NO_POSITION, skips
from ..messages import AnswerState, Reason, RunState, SeekRequest, SetRequest, SetRun
from ..requests import seek_target
from ..state import JobState
from .answers import Answer, no_live_run, other_run
from .draft import Draft


def seek(draft: Draft, request: SetRequest) -> Answer | None:
    """Accept a seek, or check its progress."""
    run = draft.run
    if run is None:
        return no_live_run()
    if draft.state.answer(request.uuid) is not None:
        return _progress(draft, run, request)
    if request.run_id and request.run_id != run.run_id:
        return other_run(f"the run is {run.run_id}")
    stream, partition = request.arguments["stream"], request.arguments.get("partition")
    if stream in draft.plan.graph.copied:
        return Answer(
            AnswerState.REFUSED,
            f"no task reads '{stream}': each worker follows it for its own copy of a table. To read it anew, give the table another name, "
            "or stop the worker and remove its directory below copies/ in state.dir",
        )
    if why := refusal(draft.state, draft.plan.inputs, stream, partition, request.arguments["to"]):
        return Answer(AnswerState.REFUSED, why)
    to = seek_target(request.arguments["to"])
    assert to is not None, "`problem` has refused it"
    chosen = _owned(draft.state.model, stream) if partition is None else [partition]
    shown = request.arguments.get("positions", {})
    seen = {n: NO_POSITION if shown[str(n)] is None else shown[str(n)] for n in chosen if str(n) in shown}
    requests = tuple(SeekRequest(f"{request.uuid}:{n}", request.uuid, stream, n, to, seen.get(n)) for n in chosen)
    others = tuple(s for s in run.seeks if skips(to) or s.stream != stream or s.partition not in chosen)
    draft.put(replace(run, seeks=others + requests))
    return Answer(AnswerState.ACCEPTED, "", {"partitions": len(requests), "stream": stream})


def refusal(state: JobState, inputs: Collection[str], stream: str, partition: int | None, to: Any) -> str:
    """Why a seek cannot be accepted now; empty if it can. The leader asks this for a request, and a command for the plan of one."""
    run, model = state.run, state.model
    if run is None:
        return Reason.NO_LIVE_RUN.value
    if run.state in (RunState.ENDING, RunState.STOPPING):
        return f"run {run.run_id} is {run.state}; seek when it is closed, or in the next run"
    width = 0 if model is None else model.streams.get(stream, 0)
    every = to == HERE or (skips(to) and stream in _read(model))  # in streams between stages, too
    if width and not (stream in inputs or every):
        return (
            f"'{stream}' is a stream between stages of the job: its control messages are counted, so it cannot be read again; "
            "`headgate seek --skip OFFSET[.ROW]` leaves out one record of it"
        )
    if not width:
        return f"'{stream}' is not an input of the job; it has {', '.join(inputs) or 'none'}"
    if partition is not None and partition >= width:
        return f"'{stream}' has {width} partitions; there is no partition {partition}"
    chosen = _owned(model, stream) if partition is None else [partition]
    if run.state == RunState.DRAINING and (held := _not_failed(state, stream, chosen)):
        return (
            f"run {run.run_id} is draining: only failed tasks can be moved to another position, and {', '.join(held)} has not; "
            "name the partition, or seek when the run is closed"
        )
    return ""


def inputs_of(state: JobState) -> list[str]:
    """The inputs of a job as its model has them, for who has not its code.

    >>> inputs_of(JobState())
    []
    """
    model = state.model
    return [] if model is None else sorted(_read(model) - model.producers.keys())


def _read(model: JobModel | None) -> set[str]:
    """The streams that tasks read."""
    return set() if model is None else {at.stream for task in model.tasks.values() for at in task}


def _owned(model: JobModel | None, stream: str) -> list[int]:
    """The partitions of a stream that are owned by tasks."""
    owned = () if model is None else model.tasks.values()
    return sorted({at.partition for task in owned for at in task if at.stream == stream})


def _not_failed(state: JobState, stream: str, chosen: list[int]) -> list[str]:
    """The tasks that own one of these partitions and have not failed."""
    model, failed = state.model, state.failed()
    owners = () if model is None else (model.owners_of(StreamPartition(stream, n)) for n in chosen)
    return sorted({task for tasks in owners for task in tasks if task not in failed})


def withdraw(draft: Draft, request: SetRequest) -> str:
    """Withdraw an accepted seek. Returns the partitions in which it was already applied, which stay so."""
    run = draft.run
    parts = () if run is None else tuple(one for one in run.seeks if one.request == request.uuid)
    if run is not None and parts:
        draft.put(replace(run, seeks=tuple(one for one in run.seeks if one.request != request.uuid)))
    return ", ".join(str(one.partition) for one in parts if _applied(draft, one)) or "none"


def _progress(draft: Draft, run: SetRun, request: SetRequest) -> Answer | None:
    parts = [one for one in run.seeks if one.request == request.uuid]
    if not parts:
        return Answer(AnswerState.FAILED, "superseded by a newer seek of the same partitions")
    refused = [why for one in parts if (why := _refused(draft, one))]
    applied = [one for one in parts if _applied(draft, one)]
    late = request.not_after is not None and draft.now.wall > request.not_after
    if len(applied) < len(parts) and not refused and not late:
        return None
    draft.put(replace(run, seeks=tuple(one for one in run.seeks if one.request != request.uuid)))
    if refused:
        return Answer(AnswerState.FAILED, "; ".join(refused))
    if len(applied) < len(parts):
        done = ", ".join(str(one.partition) for one in applied) or "none"
        return Answer(AnswerState.FAILED, f"{Reason.EXPIRED}; applied in partitions: {done}", reason=Reason.EXPIRED)
    return Answer(AnswerState.DONE, "")


def _applied(draft: Draft, one: SeekRequest) -> bool:
    """Whether every task that owns the partition has reported the seek as applied."""
    owners = _owners(draft, one)
    return bool(owners) and all(
        any(one.id in report.applied for report in draft.state.task_states(task).values()) for task in owners
    )


def _refused(draft: Draft, one: SeekRequest) -> str:
    """Why a task that owns the partition has refused the seek; empty if none has."""
    for task in _owners(draft, one):
        for report in draft.state.task_states(task).values():
            if why := report.refused.get(one.id):
                return f"{task}: {why}"
    return ""


def _owners(draft: Draft, one: SeekRequest) -> tuple[str, ...]:
    model = draft.state.model
    return () if model is None else tuple(model.owners_of(StreamPartition(one.stream, one.partition)))
