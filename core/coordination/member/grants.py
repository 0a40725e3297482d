"""What a member runs: for each grant that it holds, what must be sent to the task, and what must be reported in the stream.

It compares what the job state wants with what was ordered and reported, and returns the difference. Promises:

- A task gets `Start` only under the current grant of this incarnation, once, and again only after the task has reported that it is gone.
  The member must first be sure that the grant is still valid, because a worker that slept reads an old grant before the newer one (`eager`
  says that a task waits for this check).
- A grant that was never used is released, too, with that reason.
- A task that runs with other partitions than the model gives it is released, to be granted again with these.
- A task whose grant went to another worker, or disappeared from the stream, is abandoned at once.
- A task's report is written until it can be read in the stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ...names import StreamPartition
from ...orders import Abandon, Release, RunChanged, RunView, Seek, SeekApplied, Start, TaskReported, TaskState, Unpark
from ...secrets import masked
from ..messages import LIVE, RunState, SeekRequest, SetGrant, SetRun, SetTaskState, UnparkRequest, key_of
from ..state import NEVER_RAN, JobState
from .protocol import Probe, SendOrder
from .targets import Targets


class GrantPhase(StrEnum):
    """What this process does with a grant of its own."""

    HELD_BACK = "held back"
    """Not started yet: its log partition is not known, or its target is broken (`targets`)."""
    STARTED = "started"
    RELEASING = "releasing"
    OVER = "over"
    """It was released, or never ran."""


AT_WORK = (GrantPhase.STARTED, GrantPhase.RELEASING)
"""The task runs here."""
JOINS = "its inputs have changed"
"""Why a task is released that goes on where it is: a topic has joined the run."""
MOST_BRIEF = 200
"""The most of a reason that the readiness of the worker shows, in characters."""
MAX_WHY = 2000
"""The longest reason in the stream, in characters."""


@dataclass(slots=True)
class LocalGrant:
    """One grant of this worker."""

    grant: int
    phase: GrantPhase
    state: TaskState | None = None
    why: str = ""
    still: bool = False
    applied: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """The seeks that the task has refused, each with the reason."""
    delivered: set[str] = field(default_factory=set[str])
    """The seeks of the run that were sent to this start of the task."""
    ran: bool = False
    """The task has run here under this grant."""
    unproven: bool = False
    """A holder before died, and no commits since have shown that no letter of the task was to blame."""
    owned: tuple[StreamPartition, ...] | None = None
    """The partitions with which the task was started last; None before that."""


class Tasks:
    """The grants of one incarnation."""

    def __init__(self, processor: str, backoff_s: float) -> None:
        self.processor = processor
        self.incarnation = ""
        self.grants: dict[str, LocalGrant] = {}
        self.targets = Targets(backoff_s)
        """The targets that could not be written. This outlives incarnations."""
        self.eager = False
        """A task would have been started if the grant were certain."""
        self._view: RunView | None = None

    # ---------------------------------------------------------------------------------------------------------- reports

    def reported(self, report: TaskReported, mono: float = 0.0) -> None:
        """Take a task's report of its state. A report about a grant that is not ours any more changes nothing.

        A task that is gone is held back until a pause is over or a seek comes; if it was releasing, it counts as released.
        """
        local = self.grants.get(report.task)
        if local is None or local.grant != report.grant or local.phase == GrantPhase.OVER:
            return
        local.state, local.why, local.still = report.state, _short(report.why), report.still
        if local.state == TaskState.RELEASED:
            local.unproven = report.unproven
        if report.gone and local.phase == GrantPhase.RELEASING:
            local.state = TaskState.RELEASED
        elif report.gone:
            local.phase, local.ran = GrantPhase.HELD_BACK, True
            local.delivered.clear()
            self.targets.broke([report.task], local.why, None, mono, most=float("inf") if report.passing else 0)
        if local.state == TaskState.RELEASED:
            local.phase = GrantPhase.OVER

    def sought(self, report: SeekApplied) -> None:
        """Note that a task has applied or refused a seek."""
        local = self.grants.get(report.task)
        if local is None:
            return
        if report.refused:
            local.refused[report.request] = _short(report.refused)
        elif report.request not in local.applied:
            local.applied = (*local.applied, report.request)

    def lost(
        self,
        failed: Iterable[tuple[str, str]] = (),
        mono: float = 0.0,
        target: StreamPartition | None = None,
        *,
        refused: bool = False,
    ) -> list[SendOrder]:
        """End the incarnation: abandon everything, and hold back the tasks whose target is broken."""
        orders = [SendOrder(task, Abandon("fenced")) for task, local in self.grants.items() if local.phase in AT_WORK]
        self.grants.clear()
        self.incarnation = ""  # its grants are no longer ours to release: only a fence can free them
        blamed = dict(failed)
        for why in dict.fromkeys(blamed.values()):
            self.targets.broke([task for task in blamed if blamed[task] == why], why, target, mono, refused=refused)
        return orders

    # --------------------------------------------------------------------------------------------------------- what next

    def orders(self, job: JobState, going: str, mono: float, *, sure: bool) -> list[SendOrder]:
        """The orders to give now. `going`: why everything must be released, if so. `sure`: the stream contains no newer grant."""
        run, view = job.run, job.run_view()
        self.eager = False
        orders = self._abandoned(job)
        changed = view is not None and view != self._view
        for task, local in self.grants.items():
            if changed and view is not None and local.phase == GrantPhase.STARTED:
                orders.append(SendOrder(task, RunChanged(view)))
        self._view = view
        theirs = {task for task in self.targets.tasks() if self._is_elsewhere(job, task)}
        self.targets.forget(theirs, mono)
        for grant in job.grants():
            if grant.processor == self.processor and grant.incarnation == self.incarnation:
                orders += self._order(job, run, view, grant, going, mono, sure)
        return orders

    def _is_elsewhere(self, job: JobState, task: str) -> bool:
        grant = job.grant(task)
        return grant is not None and grant.processor != self.processor

    def _abandoned(self, job: JobState) -> list[SendOrder]:
        orders: list[SendOrder] = []
        for task in list(self.grants):
            grant = job.grant(task)
            if grant is None or grant.grant != self.grants[task].grant or grant.incarnation != self.incarnation:
                if self.grants[task].phase in AT_WORK:
                    orders.append(SendOrder(task, Abandon("the task was granted to another worker")))
                del self.grants[task]
        return orders

    def _order(
        self,
        job: JobState,
        run: SetRun | None,
        view: RunView | None,
        grant: SetGrant,
        going: str,
        mono: float,
        sure: bool,
    ) -> list[SendOrder]:
        task, local = grant.task, self.grants.get(grant.task)
        self.targets.sought(task, frozenset(request.id for request in _errands(job, task)))
        stay = going or _must_go(job, run, task, self.processor)
        if local is None:
            said = job.task_states(task).get(grant.grant)
            if said is not None and said.state == TaskState.RELEASED:
                return []
            local = self.grants[task] = LocalGrant(grant.grant, GrantPhase.HELD_BACK, unproven=grant.died)
        if local.phase == GrantPhase.HELD_BACK:
            if stay:
                local.phase, local.state = GrantPhase.OVER, TaskState.RELEASED
                local.why = local.why if local.ran else NEVER_RAN
                return []
            return self._start(job, view, grant, local, mono, sure)
        if local.phase == GrantPhase.RELEASING and not stay:
            # it is wanted here again: the leader must know that no one runs it until it is released
            local.state = TaskState.RELEASING
        if local.phase != GrantPhase.STARTED:
            return []
        if stay:
            local.phase = GrantPhase.RELEASING
            return [SendOrder(task, Release(stay))]
        if local.owned is not None and _owned(job, task) != local.owned:
            local.phase, local.state = GrantPhase.RELEASING, TaskState.RELEASING  # it is granted again where it is
            return [SendOrder(task, Release(JOINS))]
        return self._seeks(job, task, local)

    def _start(
        self, job: JobState, view: RunView | None, grant: SetGrant, local: LocalGrant, mono: float, sure: bool
    ) -> list[SendOrder]:
        log_partition = job.changelog(grant.task)
        if view is None or log_partition is None:
            return []
        if why := self.targets.holds(grant.task, mono):
            local.state, local.why = TaskState.FAILED, _short(why)
            return []
        if not sure:
            self.eager = True
            return []
        local.phase, local.owned = GrantPhase.STARTED, _owned(job, grant.task)
        started = SendOrder(grant.task, Start(grant.task, grant.grant, view, log_partition, grant.died))
        return [started, *self._seeks(job, grant.task, local)]

    def _seeks(self, job: JobState, task: str, local: LocalGrant) -> list[SendOrder]:
        orders: list[SendOrder] = []
        requests = _errands(job, task)
        local.delivered.intersection_update(request.id for request in requests)
        for request in requests:
            if request.id not in local.delivered and not _answered(job, task, local, request.id):
                local.delivered.add(request.id)
                orders.append(SendOrder(task, _order_of(request)))
        return orders

    def probes(self, mono: float) -> list[Probe]:
        """The probes that are due for tasks that are held back."""
        return self.targets.due(self._waiting(), mono)

    def wake(self) -> float | None:
        """When a probe is due, or a task that is held back may start."""
        return self.targets.wake(self._waiting())

    def _waiting(self) -> set[str]:
        return {task for task, local in self.grants.items() if local.phase == GrantPhase.HELD_BACK}

    # ----------------------------------------------------------------------------------------------------------- records

    def wanted(self, job: JobState) -> list[SetTaskState]:
        """The reports that are missing in the stream."""
        run = job.run if self.grants else None
        seeks = set[str]() if run is None else {one.id for one in (*run.seeks, *run.unparks)}
        missing: list[SetTaskState] = []
        bounded = job.run is not None and bool(job.run.untils)
        failed = bounded and bool(job.failed())
        for task, local in self.grants.items():
            if local.state:
                rests = local.phase == GrantPhase.STARTED or (
                    local.phase == GrantPhase.HELD_BACK and self.targets.given_up(task)
                )
                still = bounded and rests and (local.state == TaskState.FAILED or (local.still and failed))
                local.applied = tuple(one for one in local.applied if one in seeks)
                local.refused = {one: why for one, why in local.refused.items() if one in seeks}
                unproven = local.unproven and local.state == TaskState.RELEASED
                message = SetTaskState(
                    task, local.grant, local.state, local.why, local.applied, still, dict(local.refused), unproven
                )
                if job.task_states(task).get(local.grant) != message or key_of(message) in job.damaged:
                    missing.append(message)
        return missing

    def here(self) -> set[str]:
        """The tasks of this incarnation that are not released."""
        return {task for task, local in self.grants.items() if local.phase != GrantPhase.OVER}

    def all_over(self) -> bool:
        """Whether no task of this incarnation runs any more."""
        return all(local.phase == GrantPhase.OVER for local in self.grants.values())

    def not_ready(self) -> dict[str, str]:
        """The tasks that have not reported that they run, each with what it waits for."""
        return {
            task: _brief(local)
            for task, local in self.grants.items()
            if local.phase == GrantPhase.HELD_BACK
            or (local.phase == GrantPhase.STARTED and local.state in (None, TaskState.FAILED))
        }


def _brief(local: LocalGrant) -> str:
    if local.state == TaskState.FAILED:
        return f"failed: {local.why[:MOST_BRIEF]}" if local.why else "failed"
    return "restoring" if local.phase == GrantPhase.STARTED else "not started yet"


def _owned(job: JobState, task: str) -> tuple[StreamPartition, ...]:
    """The partitions that the task owns now."""
    return () if job.model is None else job.model.tasks.get(task, ())


def _errands(job: JobState, task: str) -> list[SeekRequest | UnparkRequest]:
    """The seeks of this task in the run, and what is to be done with its parked records."""
    run, model = job.run, job.model
    if run is None or model is None:
        return []
    seeks = (request for request in run.seeks if (request.stream, request.partition) in model.tasks.get(task, ()))
    return [*seeks, *(request for request in run.unparks if request.task == task)]


def _order_of(request: SeekRequest | UnparkRequest) -> Seek | Unpark:
    if isinstance(request, UnparkRequest):
        return Unpark(request.id, request.what, request.number, request.upto)
    return Seek(request.id, request.stream, request.partition, request.to, request.expected)


def _answered(job: JobState, task: str, local: LocalGrant, seek: str) -> bool:
    """Whether this seek must not be carried out any more: this grant has answered it, or an earlier one has refused it, which is final."""
    before = (one.refused for one in job.task_states(task).values())
    return seek in local.applied or any(seek in refused for refused in (local.refused, *before))


def _short(why: str) -> str:
    """A reason as it is written to the stream. The text of a user's exception may be too long for a message, or not valid text, or hold the
    address of a database with its password."""
    plain = masked(why.encode(errors="replace").decode())
    return plain if len(plain) <= MAX_WHY else f"{plain[: MAX_WHY - 1]}…"


def _must_go(job: JobState, run: SetRun | None, task: str, processor: str) -> str:
    """Why this processor must not run the task now; empty if it may."""
    model = job.model
    if run is None or run.state not in LIVE:
        return "the run is closed"
    if run.state == RunState.STOPPING:
        return "stop"
    if run.closing:
        return "the run closes"
    if model is None or not model.is_of(run.run_id, run.deployment) or model.wanted.get(task) != processor:
        return "moved"
    return ""
