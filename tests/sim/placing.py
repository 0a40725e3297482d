"""Holds the leader's assignment against what placement promises: it is balanced, moves little, and leaves no task without an owner.

    every worker of the model has as many tasks as any other, or one more or less   `placed`
    no more tasks move than balance and requests need                               `placed`
    a task has an owner after `OWNED_S` in which one worker that could take it was unhindered   `look`

While a run drains, only the tasks of lost workers are placed again, so balance is not promised then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate.core.coordination import messages, requests
from headgate.core.graph.model import JobModel

if TYPE_CHECKING:
    from .invariants import Truth
    from .process import Process
    from .world import Job, World

OWNED_S = 30
"""How long a task may be without an owner while one worker is there and is not hindered, whatever happens to the others: a lost leader
is replaced after a session and a jitter, its successor waits a session for lost workers, fences them, and waits for their return
(`Timing`)."""
MODEL = "the tasks of the run"


class Placing:
    """The owners of the tasks of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._without: dict[tuple[str, str, str], int] = {}
        """By job, task and process: for how many seconds the task has had no owner, and the process could take it."""

    def placed(self, job: Job, truth: Truth, message: messages.SetJobModel) -> None:
        """A model was written."""
        model, before, run = message.model, truth.state.model, truth.state.run
        if run is None or run.state != messages.RunState.RUNNING:
            return
        load = Counter(dict.fromkeys(model.processors, 0))
        load.update(model.wanted.values())
        if max(load.values()) - min(load.values()) > 1:
            self.world.invariants.fail(f"{model.wanted} of {job.name} is not balanced: {dict(load)}")
        if before is None:
            return
        asked = sum(request.verb == requests.MOVE for request in truth.state.open_requests())
        stayed = sum(before.wanted.get(task) == processor for task, processor in model.wanted.items())
        most = most_stay(model.wanted, model.processors, before)
        if stayed < most - 2 * asked:  # a request moves one task, and perhaps another one in return
            self.world.invariants.fail(
                f"{stayed} tasks stay where they were, and {most} could: {dict(before.wanted)} becomes {dict(model.wanted)}"
            )

    # ------------------------------------------------------------------------------------------------------------- owners

    def look(self, free: dict[str, Process]) -> None:
        """Check once a second. `free`: the processes that nothing hinders."""
        without: dict[tuple[str, str, str], int] = {}
        for job in self.world.jobs:
            able = [process.name for process in job.processes if process.name in free and self.able(process)]
            for task in self._ownerless(job) if able else ():
                for name in able:
                    seconds = without[job.name, task, name] = self._without.get((job.name, task, name), 0) + 1
                    if seconds > OWNED_S:
                        self.world.invariants.fail(
                            f"{task} of {job.name} has had no owner for {seconds} s, while {name} could run it"
                        )
        self._without = without

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


def most_stay(tasks: Iterable[str], processors: Iterable[str], before: JobModel) -> int:
    """How many tasks can stay with their previous worker if each gets as many as any other, or one more or less."""
    counted, workers = set(tasks), list(processors)
    floor, more = divmod(len(counted), len(workers))
    held = Counter(owner for task, owner in before.wanted.items() if task in counted)
    fuller = sum(held[worker] > floor for worker in workers)
    return sum(min(held[worker], floor) for worker in workers) + min(more, fuller)
