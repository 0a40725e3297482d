"""The tasks of one process, each under its grant: starts them, gives them their orders, and restarts them.

Promises: a task has at most one actor in this process. A start waits until the previous actor has gone. A start that is called off while it
waits starts nothing; orders that arrive meanwhile go to the actor once it is made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...core.orders import Abandon, Order, Start
from ...core.task.protocol import SettingsChanged
from ..job.plans import task_settings
from ..port.outlasting import outlasted
from .task import TaskActor

if TYPE_CHECKING:
    from .runtime import Runtime


class Granted:
    """The tasks of a `Runtime`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.actors: dict[str, TaskActor] = {}
        self.counters: dict[str, Counter[str]] = {}
        """By task; the counters outlive the task's actor."""
        self.waiting: dict[str, list[Order]] = {}
        """Tasks that are about to start, with the orders that have arrived since."""

    def tell(self, task: str, order: Order) -> None:
        """Give an order to one task."""
        if isinstance(order, Start):
            self.waiting[task] = said = []
            self._runtime.life.spawn(partial(self._begin, order, said), f"{task}: start")
            return
        waiting, actor = self.waiting.get(task), self.actors.get(task)
        if waiting is not None:
            waiting.append(order)
        elif actor is not None:
            actor.feed(order)

    async def _begin(self, order: Start, said: list[Order]) -> None:
        """Make the actor once the previous one has gone. A start that is called off meanwhile (the producer is lost while the previous
        actor closes its store, or while the broker is asked) starts nothing: there may be no producer, or already the next start."""
        runtime = self._runtime
        old = self.actors.get(order.task)
        if old is not None:
            await old.ended.wait()
        if self._called_off(order, said):
            return
        plan = runtime.job.plan(order.task)
        await outlasted(runtime.producers.learn_all)
        if self._called_off(order, said):
            return
        actor = TaskActor(runtime, plan, order)
        await actor.under_way.mailbox.start()
        if self._called_off(order, said):
            await actor.under_way.mailbox.stop()
            return
        self.actors[order.task] = actor
        self.tell_settings(actor)  # they may have changed while the actor was made
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

    def tell_settings(self, actor: TaskActor) -> None:
        """Pass the current settings to one task: to its machine, intake, chooser and batches."""
        settings = self._runtime.settings
        own = task_settings(settings.given)
        if own != actor.machine.plan.settings:
            actor.feed(SettingsChanged(own))
        actor.site.patience.look()
        if actor.reading.intake is not None:
            actor.reading.intake.take_settings(settings.given, settings.seconds("fetch.watchdog"))
        if actor.site.pipeline is not None:
            actor.site.pipeline.fly(settings.value("spark.in-flight"), settings.value("gather.max-bytes"))

    def count(self, task: str, name: str, amount: int) -> None:
        """Add to a counter of a task."""
        self.counters.setdefault(task, Counter())[name] += amount

    def gone(self, task: str) -> None:
        """A task has ended in this process."""
        self.actors.pop(task, None)
        self._runtime.producers.gone(task)

    def again(self, start: Start, *orders: Order) -> None:
        """Restart a task that was stopped in this process, under the same grant and in the current run."""
        run = self._runtime.job.run_view()
        for order in (start if run is None else replace(start, run=run), *orders):
            self.tell(start.task, order)
