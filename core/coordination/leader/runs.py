"""When a run begins, resumes and closes.

    running → draining → (every task drained or ended: closing) → (every task released) → drained
    running → ending (every task has ended: closing) → ended
    running → (bounded; a task has failed, and nothing else can move) → stopping → stopped, with the reason
    running | draining → stopping → stopped → (start) → running | draining

- A restarted worker begins no run. Only a deployment that never ran before begins one by itself, and only if the last run is drained or
  ended; a new `--run-id` and `headgate start` do so, too. `headgate start` or the run's own id resumes a stopped run.
- A worker whose supervisor was running when its run closed neither resumes that run nor begins another: it was restarted, not started.
- A worker with `--bounded` begins another run if the last one has *ended*, unless it came within one session of that end with the same
  code: then it takes that run for its own. Any worker resumes a bounded run that has stopped by itself.
- The leader of a run has its code. A leader with other code than the run that should begin resigns in favour of a worker that has it.
- Settings that change only between runs are fixed when a run begins or resumes, and written into it: every later leader, and every task
  wherever it starts, uses the same.
- A run whose tasks cannot be created (joined inputs that are not co-partitioned) does not begin; the process is told why.
- Closing is the last step: after every task was released or its holder fenced, together with the answers to the requests for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import DeclarationError
from ...graph.model import JobModel
from ...settings import DYNAMIC, find
from ..messages import CLOSED, LIVE, ProcessorState, RunState, SetProcessor, SetRequest, SetRun
from ..requests import DRAIN, SEEK, START, drain_ends, problem
from ..run_choice import cannot_follow, in_charge, late, may_begin
from ..state import JobState
from .assignment import counted, tasks_of
from .damage import unknown
from .draft import Draft
from .protocol import ResolveBounds

STILL_S = 2.0
"""How long nothing must move in a bounded run with a failed task before it stops. Each fetch takes up to half a second."""
MOST_SHOWN = 5
"""For how many failed tasks the run gives the reason."""
PAST_KEPT = 1000
"""How many past runs, and how many deployments, are remembered."""


@dataclass(frozen=True, slots=True)
class Starter:
    """The worker whose code the next run uses, and the id of that run (empty: any new one)."""

    worker: SetProcessor
    run_id: str
    resume: bool


def starter(
    state: JobState, silent: Callable[[SetProcessor], str], wall: int, session_s: float = 6.0
) -> Starter | None:
    """The worker for which a run should begin or resume now; None if there is none."""
    run = state.run
    if run is not None and run.state not in CLOSED:
        return None
    workers = [
        worker
        for p in state.processors()
        if (worker := state.newest(p)) is not None and worker.state == ProcessorState.JOINED
    ]
    workers = [worker for worker in workers if not silent(worker) and not cannot_follow(run, worker.fingerprint)]
    workers.sort(key=lambda worker: state.at["set-processor", (worker.processor, worker.incarnation)][0])
    for request in state.open_requests():
        if request.verb == START and not problem(request) and (request.not_after is None or wall <= request.not_after):
            found = _asked(run, request, workers)
            if found is not None:
                return found
    workers = [worker for worker in workers if not in_charge(state, worker)]
    if run is not None and run.state == RunState.STOPPED:
        # Workers that were there when it was stopped are leaving, or were not meant: only a process that came later resumes it.
        closed = state.at["set-run", ()][0]
        workers = [
            worker
            for worker in workers
            if state.at["set-processor", (worker.processor, worker.incarnation)][0] > closed
        ]
    return next(
        (
            one
            for worker in reversed(workers)
            if (one := _by_itself(run, worker, run is not None and late(state, worker, session_s))) is not None
        ),
        None,
    )


def _asked(run: SetRun | None, request: SetRequest, workers: list[SetProcessor]) -> Starter | None:
    if run is not None and run.state == RunState.STOPPED:
        fitting = [worker for worker in workers if worker.run_id in ("", run.run_id)]
        return Starter(fitting[-1], run.run_id, True) if fitting and request.run_id in ("", run.run_id) else None
    past: set[str] = set() if run is None else {run.run_id, *run.past_runs}
    if request.run_id in past:
        return None
    for worker in reversed(workers):
        if worker.run_id == "" or (worker.run_id not in past and request.run_id in ("", worker.run_id)):
            return Starter(worker, request.run_id or worker.run_id, False)
    return None


def _by_itself(run: SetRun | None, worker: SetProcessor, late: bool) -> Starter | None:
    if run is None:
        return Starter(worker, worker.run_id, False)
    if not may_begin(run, worker, late=late):
        return None
    return Starter(worker, run.run_id, True) if run.state == RunState.STOPPED else Starter(worker, worker.run_id, False)


def begin(draft: Draft) -> None:
    """Begin or resume a run, or resign in favour of workers with its code."""
    run, plan = draft.run, draft.plan
    if unknown(draft, "set-run"):
        return
    found = starter(draft.state, draft.silent, draft.now.wall, draft.timing.session_s)
    if found is None:
        return
    if found.worker.deployment != plan.deployment or dict(found.worker.fingerprint) != dict(plan.fingerprint):
        draft.resign = f"'{found.worker.processor}' has the code of the run that is to begin"
        return
    resumed = run if found.resume else None
    if not _can_run(draft, draft.memory.counts if resumed is None else counted(draft, resumed)):
        return
    if resumed is not None:
        draft.put(
            replace(
                resumed,
                state=RunState.DRAINING if resumed.drain is not None else RunState.RUNNING,
                closing=False,
                failed="",
                deployment=plan.deployment,
                fingerprint=dict(plan.fingerprint),
                settings=dict(plan.settings),
                overrides=_pinned(draft),
                reads=dict(plan.reads),
                past_deployments=_with(resumed.past_deployments, plan.deployment),
            )
        )
        return
    _new(draft, run, found.run_id)


def _pinned(draft: Draft) -> dict[str, Any]:
    """The overrides that are fixed for this run, that is, all but dynamic ones."""
    said = draft.state.configs
    return {name: one.value for name, one in sorted(said.items()) if find(name).kind != DYNAMIC}


def _can_run(draft: Draft, widths: Mapping[str, int]) -> bool:
    """Whether the run's tasks can be created. A run that could never read a record is not begun, because corrected code could not follow
    it.
    """
    try:
        tasks = tasks_of(draft.plan, widths, draft.state.model)
    except DeclarationError as error:
        draft.refuse(error)
        return False
    if tasks is None:
        draft.note_once("waiting for the partition counts of the inputs")
    return tasks is not None


def _new(draft: Draft, run: SetRun | None, wanted: str) -> None:
    plan, memory = draft.plan, draft.memory
    memory.next_run = run_id = wanted or memory.next_run or f"{draft.now.wall}-{draft.term}"
    resolved = memory.resolved
    if plan.resolve and (resolved is None or resolved.run_id != run_id):
        if memory.resolving != run_id:
            memory.resolving = run_id
            draft.instructions.append(ResolveBounds(run_id))
        return
    asked = draft.state.open_requests()
    drain = next((one for one in asked if one.verb == DRAIN and one.run_id == run_id and not problem(one)), None)
    memory.next_run = ""
    draft.put(
        SetRun(
            run_id=run_id,
            deployment=plan.deployment,
            state=RunState.RUNNING if drain is None else RunState.DRAINING,
            job_uuid=draft.config.job_uuid if run is None else run.job_uuid,
            drain=None if drain is None else drain.uuid,
            drain_upto={} if drain is None else drain_ends(drain.arguments),
            drain_by="" if drain is None else drain.requested_by,
            reads=dict(plan.reads),
            goes_on=run is not None and run.state == RunState.DRAINED,
            reopens=any(one.verb == SEEK and not problem(one) and one.arguments.get("reopens", False) for one in asked),
            seeks=() if run is None else run.seeks,
            unparks=() if run is None else run.unparks,
            starts={} if resolved is None or not plan.resolve else _starts(draft, resolved.starts),
            untils={} if resolved is None or not plan.resolve else resolved.untils,
            settings=dict(plan.settings),
            overrides=_pinned(draft),
            fingerprint=dict(plan.fingerprint),
            past_runs=() if run is None else _with(run.past_runs, run.run_id),
            past_deployments=_with(() if run is None else run.past_deployments, plan.deployment),
        )
    )


def _starts(draft: Draft, resolved: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Where the partitions start without a checkpoint. What an input of the job got since the last run is read from its beginning, whatever
    `start` says: records came there while the job read the input.
    """
    had = {} if draft.state.model is None else draft.state.model.streams
    return {stream: offsets[: had.get(stream, len(offsets))] for stream, offsets in resolved.items()}


def _stuck(draft: Draft, run: SetRun, model: JobModel) -> str:
    """Why a bounded run cannot continue: what has failed, if every other task has ended or only waits for others; otherwise empty.

    Reports are a little older than what happens, hence the pause. A task with a broken target restarts when the target accepts writes
    again, so it is given `stall.timeout`.
    """
    failed, ends = draft.state.failed(), draft.plan.ends
    if not failed or not ends or any(stream not in run.untils for stream in ends):
        return ""
    said = {task: draft.state.task_state(task) for task in model.tasks}
    moving = [t for t, one in said.items() if one is None or not (one.still or one.state == RunState.ENDED)]
    if any(task not in failed for task in moving):
        return ""
    if not draft.waits.over(("stuck", tuple(failed), not moving), draft.timing.stall_s if moving else STILL_S):
        return ""
    reasons = [f"{task}: {why}" for task, why in failed.items()]
    return "; ".join(reasons[:MOST_SHOWN]) + (
        f"; and {len(reasons) - MOST_SHOWN} more" if len(reasons) > MOST_SHOWN else ""
    )


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Append this name as the newest and drop the oldest: the run is one message, and a job may begin a run every minute."""
    return (*(one for one in names if one != name), name)[-PAST_KEPT:]


def close(draft: Draft) -> None:
    """Check whether all tasks have drained, ended or released, and take the run one step further."""
    run, model, state = draft.run, draft.state.model, draft.state
    if run is None or run.state not in LIVE:
        return
    current = model is not None and model.is_of(run.run_id, run.deployment) and bool(model.tasks)
    if current and model is not None and not run.closing and run.state in (RunState.RUNNING, RunState.DRAINING):
        said = {found.state if (found := state.task_state(task)) is not None else "" for task in model.tasks}
        if said == {RunState.ENDED} and run.state == RunState.RUNNING:
            run = replace(run, state=RunState.ENDING, closing=True)
            draft.put(run)
        elif said <= {RunState.DRAINED, RunState.ENDED} and run.state == RunState.DRAINING:
            run = replace(run, closing=True)
            draft.put(run)
        elif run.state == RunState.RUNNING and (why := _stuck(draft, run, model)):
            run = replace(run, state=RunState.STOPPING, failed=why)
            draft.put(run)
            draft.note("a bounded run can go no further", level="error", run=run.run_id, why=why)
    if (run.closing or run.state == RunState.STOPPING) and not any(state.held(grant.task) for grant in state.grants()):
        closed = {
            RunState.DRAINING: RunState.DRAINED,
            RunState.ENDING: RunState.ENDED,
            RunState.STOPPING: RunState.STOPPED,
        }[run.state]
        paused = run.state == RunState.STOPPING
        draft.put(
            replace(
                run,
                state=closed,
                closing=False,
                paused_job=run.paused_job and paused,
                paused_streams=run.paused_streams if paused else frozenset(),
            )
        )
        draft.note("run is closed", run=run.run_id, state=closed)
