"""Holds each answer `done` against its effect, at the moment when the answer becomes visible.

pause, resume   the run says so                                       (that nothing is read: `reading`)
set-config, unset-config  the stream says so                          (that every worker has it: `waiting`)
withdraw        the request is answered, was not done, and no run contains it
move            the wanted worker runs the task
release-parked, skip-parked  the checkpoint of each task contains it
seek            the checkpoint of the partition's task contains it    (that it goes on at the target: `reading`)
stop, drain     the run is closed, and no task of it is at work       (`nothing_runs`)
stop of a worker  none of its tasks is at work
start           a run is live
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headgate.core.coordination import messages, requests
from headgate.core.orders import TaskState

if TYPE_CHECKING:
    from .invariants import Truth
    from .life import Watched
    from .world import Job, World

Asked = messages.SetRequest
Answer = messages.SetAnswer
STOPPED = (messages.RunState.STOPPING, *messages.CLOSED)


class Answers:
    """Checks the answers of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._done: list[Answer] = []
        """What became visible in this transaction."""

    def said(self, answer: Answer) -> None:
        """An answer became visible. Its effect may stand behind it, in the same transaction."""
        if answer.state == messages.AnswerState.DONE:
            self._done.append(answer)

    def check(self, job: Job, truth: Truth) -> None:
        """All of a transaction is folded. A later request of the same transaction may have undone an earlier one."""
        done, self._done = self._done, []
        last = {self._subject(job.requests[one.uuid]): one for one in done if one.uuid in job.requests}
        for answer in last.values():
            request = job.requests[answer.uuid]
            wrong = EFFECTS[request.verb](self, job, truth, request, answer)
            if wrong:
                self.world.invariants.fail(f"{request.verb} {dict(request.arguments)} is done, but {wrong}")

    def _subject(self, request: Asked) -> tuple[object, ...]:
        """What a request changes: two with the same subject may follow each other in one transaction."""
        verb = ALIKE.get(request.verb, request.verb)
        if verb in (requests.SEEK, requests.WITHDRAW, *requests.UNPARKING):
            return verb, request.uuid
        if verb in (requests.STOP, requests.DRAIN, requests.START) and "worker" not in request.arguments:
            return ("the run",)
        return verb, request.arguments.get("setting"), request.arguments.get("task"), request.arguments.get("worker")

    # -------------------------------------------------------------------------------------------------------------- effects

    def _paused(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        run, stream = truth.state.run, request.arguments.get("stream")
        if run is None or run.state != messages.RunState.RUNNING:
            return ""
        paused = run.paused_job if stream is None else stream in run.paused_streams
        return "" if paused == (request.verb == requests.PAUSE) else f"the run is {run}"

    def _configured(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        found = truth.state.configs.get(request.arguments["setting"])
        return "" if found is not None and found.value == request.arguments["value"] else f"it is {found}"

    def _unset(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        found = truth.state.configs.get(request.arguments["setting"])
        return "" if found is None else f"it is {found}"

    def _withdrawn(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        name, run = request.arguments["request"], truth.state.run
        said = truth.finals.get(name)
        if said not in (messages.AnswerState.REFUSED, messages.AnswerState.FAILED):
            return f"{name} is answered '{said}'"
        left = [] if run is None else [one.id for one in (*run.seeks, *run.unparks) if one.request == name]
        return f"the run contains {left[0]}" if left else ""

    def _moved(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        task, to = request.arguments["task"], request.arguments["to"]
        held = truth.state.held(task)
        owner, run = self.world.invariants.reference(job.name, task).owner, truth.state.run
        if held is None and run is not None and run.state in STOPPED:  # it has moved, and was stopped there since
            return ""
        if held is None or held.processor != to:
            return f"the task is granted by {held}"
        if truth.state.says(task) == TaskState.FAILED:  # a target that it had failed at may keep it from its start
            return ""
        if owner is None or owner.process.slot.processor != to or owner.grant != held.grant:
            return f"{'no worker' if owner is None else owner.process.name} runs the task"
        return ""

    def _sought(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        name = f"{request.uuid}:{request.arguments['partition']}"
        known = any(
            name in one.seeks for (owner, _), one in self.world.invariants.references.items() if owner == job.name
        )
        return "" if known else "no checkpoint contains it"

    def _released(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        applied = {
            name
            for (owner, _), one in self.world.invariants.references.items()
            for name in one.seeks
            if owner == job.name
        }
        meant = {
            f"{request.uuid}:{task}:{at}"
            for task, some in request.arguments["tasks"].items()
            for at in range(len(some))
        }
        return "" if meant <= applied else f"no checkpoint contains {sorted(meant - applied)[0]}"

    def _stopped(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        worker = request.arguments.get("worker")
        if worker is None:
            return self._closed(job, truth, request, answer)
        incarnation = answer.progress.get("incarnation")
        return self._at_work(job, lambda one: one.process.slot.processor == worker and one.incarnation == incarnation)

    def _closed(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        run, meant = truth.state.run, answer.progress.get("run")
        if run is None or (meant is not None and run.run_id != meant):
            return ""
        return "" if run.state in messages.CLOSED else f"run {run.run_id} is {run.state}"

    def _started(self, job: Job, truth: Truth, request: Asked, answer: Answer) -> str:
        run = truth.state.run
        return "" if run is not None and run.state in messages.LIVE else f"the run is {run}"

    def nothing_runs(self, job: Job, run: messages.SetRun) -> None:
        """A run is closed: none of its tasks is at work, and behind a drain or an end each has committed that it has closed."""
        if at_work := self._at_work(job, lambda one: one.run_id == run.run_id):
            self.world.invariants.fail(f"run {run.run_id} is {run.state}, but {at_work}")
        model = self.world.invariants.truth(job).state.model
        if run.state == messages.RunState.STOPPED or model is None or not model.is_of(run.run_id, run.deployment):
            return
        for task in model.tasks:
            closed = self.world.invariants.reference(job.name, task).closed_run
            if closed != run.run_id:
                self.world.invariants.fail(
                    f"run {run.run_id} is {run.state}, but {task} has not said that it has closed"
                )

    def _at_work(self, job: Job, meant: Callable[[Watched], bool]) -> str:
        """Who still runs a task and may write; empty if there is no such task."""
        for process in job.processes:
            for one in process.watched.values():
                if one.began and meant(one) and not one.gone and not one.fenced():
                    return f"{process.name} still runs {one.name} ({one.actor.machine.phase})"
        return ""


ALIKE = {requests.RESUME: requests.PAUSE, requests.UNSET_CONFIG: requests.SET_CONFIG}
"""Requests that change the same as another."""
Effect = Callable[[Answers, "Job", "Truth", Asked, Answer], str]
EFFECTS: Mapping[str, Effect] = {
    requests.PAUSE: Answers._paused,
    requests.RESUME: Answers._paused,
    requests.SET_CONFIG: Answers._configured,
    requests.UNSET_CONFIG: Answers._unset,
    requests.WITHDRAW: Answers._withdrawn,
    requests.MOVE: Answers._moved,
    requests.SEEK: Answers._sought,
    requests.RELEASE_PARKED: Answers._released,
    requests.SKIP_PARKED: Answers._released,
    requests.STOP: Answers._stopped,
    requests.DRAIN: Answers._closed,
    requests.START: Answers._started,
}
"""By verb: what is wrong with the effect of an answer `done`; empty if nothing is."""
