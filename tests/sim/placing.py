"""Holds the leader's assignment against what placement promises: it is balanced, moves little, and leaves no task without an owner.

    every worker of the model has as many tasks as any other, or one more or less   `placed`, and `look` for as long as the run runs
    no worker is idle for `IDLE_S` while all is quiet and another one has two tasks   `look`
    no more tasks move than balance and requests need                               `placed`
    a task has an owner after `OWNED_S` in which one worker that could take it was unhindered   `look`

While a run drains, only the tasks of lost workers are placed again, so balance is not promised then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headgate.core.coordination import messages, requests
from headgate.core.coordination.member.member import MemberState

if TYPE_CHECKING:
    from headgate.core.coordination.state import JobState
    from headgate.core.graph.model import JobModel

    from .invariants import Truth
    from .process import Process
    from .world import Job, World

OWNED_S = 30
"""How long a task may be without an owner while one worker is there and is not hindered, whatever happens to the others: a lost leader
is replaced after a session and a jitter, its successor waits a session for lost workers, fences them, and waits for their return
(`Timing`)."""
IDLE_S = 30
"""How long a worker may be without a task while another one has two or more, and nothing hinders any worker of the job: one that is gone is
noticed after a session and waited for, and a task is prepared before it moves."""
MODEL = "the tasks of the run"


class Placing:
    """The owners of the tasks of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._without: dict[tuple[str, str, str], int] = {}
        """By job, task and process: for how many seconds the task has had no owner, and the process could take it."""
        self._idle: dict[str, int] = {}
        """By process: for how many seconds it has had no task, although another one has more than it needs, and all was quiet."""

    def placed(self, job: Job, truth: Truth, message: messages.SetJobModel) -> None:
        """A model was written."""
        model, before, run = message.model, truth.state.model, truth.state.run
        if run is None or run.state != messages.RunState.RUNNING:
            return
        target = model.target
        self._balanced(job, truth.state, model)
        if before is None:
            return
        asked = sum(request.verb == requests.MOVE for request in truth.state.open_requests())
        known = {task: p if p in model.processors else before.wanted[task] for task, p in before.target.items()}
        stayed = sum(known.get(task) == processor for task, processor in target.items())
        most = most_stay(target, staying(truth.state, model), known)
        if stayed < most - 2 * asked:  # a request moves one task, and perhaps another one in return
            self.world.invariants.fail(
                f"{stayed} tasks stay where they were, and {most} could: {known} becomes {target}"
            )

    def _balanced(self, job: Job, state: JobState, model: JobModel) -> None:
        load = Counter(dict.fromkeys(staying(state, model), 0))
        load.update(model.target.values())
        if max(load.values()) - min(load.values()) > 1:
            self.world.invariants.fail(f"{model.target} of {job.name} is not balanced: {dict(load)}")

    def _look_at_loads(self, job: Job, free: dict[str, Process], idle: dict[str, int]) -> None:
        """Tasks are balanced as long as a run runs, however it has come to run: a model that was right may be so no longer."""
        state = self.world.invariants.truth(job).state
        run, model = state.run, state.model
        if run is None or run.state != messages.RunState.RUNNING:
            return
        if model is None or not model.is_of(run.run_id, run.deployment):
            return
        self._balanced(job, state, model)
        if not all(process.name in free and self.able(process) for process in job.processes):
            return
        held = [one for task in model.tasks if (one := state.held(task)) is not None]
        load = Counter({process.name: 0 for process in job.processes if process.member.state == MemberState.JOINED})
        for process in job.processes:
            mine = process.slot.processor, process.member.incarnation
            load[process.name] += sum((one.processor, one.incarnation) == mine for one in held)
        for name, tasks in load.items():
            if tasks == 0 and max(load.values()) > 1:
                idle[name] = self._idle.get(name, 0) + 1
                if idle[name] > IDLE_S:
                    self.world.invariants.fail(
                        f"{name} has had no task for {idle[name]} s, and the others: {dict(load)}"
                    )

    # ------------------------------------------------------------------------------------------------------------- owners

    def look(self, free: dict[str, Process]) -> None:
        """Check once a second. `free`: the processes that nothing hinders."""
        without: dict[tuple[str, str, str], int] = {}
        idle: dict[str, int] = {}
        for job in self.world.jobs:
            self._look_at_loads(job, free, idle)
            able = [process.name for process in job.processes if process.name in free and self.able(process)]
            for task in self._ownerless(job) if able else ():
                for name in able:
                    seconds = without[job.name, task, name] = self._without.get((job.name, task, name), 0) + 1
                    if seconds > OWNED_S:
                        self.world.invariants.fail(
                            f"{task} of {job.name} has had no owner for {seconds} s, while {name} could run it"
                        )
        self._without, self._idle = without, idle

    def able(self, process: Process) -> bool:
        """Whether this worker can be given a task: nobody has told it to go, and there is no other one of its name."""
        named = [one for one in process.job.slots if one.processor == process.slot.processor]
        member = self.world.invariants.truth(process.job).state.member(process.slot.processor)
        asked_to_go = member is not None and bool(member.dismissed)
        return len(named) == 1 and not asked_to_go and process.guilty_until < self.world.schedule.moment

    def _ownerless(self, job: Job) -> list[str]:
        state = self.world.invariants.truth(job).state
        run, model = state.run, state.model
        if run is None or run.closing or run.state not in (messages.RunState.RUNNING, messages.RunState.DRAINING):
            return []
        if model is None or not model.is_of(run.run_id, run.deployment):
            return [MODEL]
        living = {(process.slot.processor, process.member.incarnation) for process in job.processes}
        held = {task: state.held(task) for task in model.tasks}
        return [task for task, one in held.items() if one is None or (one.processor, one.incarnation) not in living]


def staying(state: JobState, model: JobModel) -> list[str]:
    """The workers on which the tasks of a model are spread: not those that are about to leave, or have left, once they have no tasks."""
    there = {member.processor for member in state.members()}
    there -= {p for p in there if (worker := state.newest(p)) is not None and worker.retires}
    return [p for p in model.processors if p in there or p in model.target.values()]


def most_stay(tasks: Iterable[str], processors: Iterable[str], before: Mapping[str, str]) -> int:
    """How many tasks can stay with their previous worker if each gets as many as any other, or one more or less."""
    counted, workers = set(tasks), list(processors)
    floor, more = divmod(len(counted), len(workers))
    held = Counter(owner for task, owner in before.items() if task in counted)
    fuller = sum(held[worker] > floor for worker in workers)
    return sum(min(held[worker], floor) for worker in workers) + min(more, fuller)
