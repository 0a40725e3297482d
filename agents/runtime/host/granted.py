"""The tasks of one process, each under its grant: starts them, gives them their orders, and restarts them.

Promises: a task has at most one actor in this process. A start waits until the previous actor has gone. A start that is called off while it
waits starts nothing; orders that arrive meanwhile go to the actor once it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from ....core.orders import Abandon, Order, RunView, Start
from ....core.task.plan import TaskPlan
from ...port.outlasting import outlasted
from ...port.port import Process
from ..task.past import Past
from ..task.task import TaskActor, TaskJob
from ..writing.producers import Producers


class JobOfTasks(TaskJob, Protocol):
    """The job that a process takes part in, as its tasks see it. It starts and ends incarnations, and gives tasks their orders."""

    def plan(self, task: str) -> TaskPlan:
        """What this task reads in the current run."""
        ...

    def run_view(self) -> RunView | None:
        """The current run."""
        ...


class Granted:
    """The tasks of a process. `make` makes the actor of one."""

    def __init__(
        self,
        actors: dict[str, TaskActor],
        process: Process,
        job: JobOfTasks,
        producers: Producers,
        make: Callable[[TaskPlan, Start], TaskActor],
        past: Past,
    ) -> None:
        self.actors = actors
        self._process = process
        self._job = job
        self._producers = producers
        self._make = make
        self._past = past
        self.waiting: dict[str, list[Order]] = {}
        """Tasks that are about to start, with the orders that have arrived since."""

    def tell(self, task: str, order: Order) -> None:
        """Give an order to one task."""
        if isinstance(order, Start):
            self.waiting[task] = said = []
            self._process.spawn(partial(self._begin, order, said), f"{task}: start")
            return
        waiting, actor = self.waiting.get(task), self.actors.get(task)
        if waiting is not None:
            waiting.append(order)
        elif actor is not None:
            actor.feed(order)

    async def _begin(self, order: Start, said: list[Order]) -> None:
        """Make the actor once the previous one has gone. A start that is called off meanwhile (the producer is lost while the previous
        actor closes its store, or while the broker is asked) starts nothing: there may be no producer, or already the next start."""
        old = self.actors.get(order.task)
        if old is not None:
            await old.ended.wait()
        if self._called_off(order, said):
            return
        plan = self._job.plan(order.task)
        await outlasted(self._producers.learn_all)
        if self._called_off(order, said):
            return
        actor = self._make(plan, order)
        await actor.mailbox.start()
        if self._called_off(order, said):
            await actor.mailbox.stop()
            return
        self._leaves(order.task)
        self.actors[order.task] = actor
        actor.take_settings()  # they may have changed while the actor was made
        actor.feed(order)
        if self.waiting.get(order.task) is said:
            del self.waiting[order.task]
        for waiting in said:
            actor.feed(waiting)

    def _called_off(self, order: Start, said: list[Order]) -> bool:
        overtaken = self.waiting.get(order.task) is not said
        if not overtaken and not any(isinstance(one, Abandon) for one in said):
            return False
        if not overtaken:
            del self.waiting[order.task]
        return True

    def gone(self, task: str) -> None:
        """A task has ended in this process."""
        self._producers.gone(task)
        self._leaves(task)

    def _leaves(self, task: str) -> None:
        actor = self.actors.pop(task, None)
        if actor is not None and actor.site.pipeline is not None:
            self._past.take(actor.site.pipeline)

    def again(self, start: Start, *orders: Order) -> None:
        """Restart a task that was stopped in this process, under the same grant and in the current run."""
        run = self._job.run_view()
        for order in (start if run is None else replace(start, run=run), *orders):
            self.tell(start.task, order)
