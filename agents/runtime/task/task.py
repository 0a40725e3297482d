"""One running task: its machine decides, and its parts carry out the instructions.

    site          what the parts share: names, machine, store, operators
    suspicion     letters that have ended a worker, or may
    under way     the current letter, its retries, topics that it is the first to write to
    contribution  what joins the transactions: outputs, changes, markers, checkpoints
    preparing     the store, from opening it to the first letter
    reading       the intake
    traced        the spans of its work
    due           timers and batches of operators
    failures      reports failures to the machine and to people
    background    coroutines in the background
    ends          the shutdown of all of these

`core.task.task.Task` says when to open the store, where to continue reading, what may be taken, which marker goes where and when to commit.
Everything runs on the worker's event loop. Long work (restoring, asking the broker) runs in the background and comes back as an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from ....core.orders import Order, Report, Start, TaskReported, TaskState
from ....core.task import protocol as t
from ....core.task.phase import TaskMode
from ....core.task.plan import TaskPlan
from ...job.derive.plans import task_settings
from ...learning import LateTopics
from ...live_settings import batch_limits
from ...measured import Meter
from ...port.alarm import Alarm
from ...tracing.contexts import Links
from ..writing.buffer import LogWrite
from .background import BackgroundWork
from .contribution import Contribution, Transactions
from .due import Due
from .end import TaskEnd
from .failures import Failures
from .preparing import Preparing, PreparingNeeds
from .reading import Reading, ReadingNeeds
from .site import Site, SiteNeeds
from .suspicion import LetterJob, Suspicion
from .task_intake import Room
from .traced import Traced
from .turns import BetweenRows
from .under_way import LetterNeeds, UnderWay


class TaskJob(LetterJob, Protocol):
    """The job, as far as a task reports to it."""

    def report(self, report: Report) -> None:
        """Take a task's report; it is fed once the current event has been handled."""
        ...


class TaskProducers(Transactions, LateTopics, Room, Protocol):
    """The producers of the process, as a task sees them."""


class TaskNeeds(SiteNeeds, PreparingNeeds, ReadingNeeds, LetterNeeds, Protocol):
    """What a task needs of the process: what its parts need."""

    @property
    def job(self) -> TaskJob: ...
    @property
    def producers(self) -> TaskProducers: ...


class TaskStarts(Protocol):
    """What starts the tasks of the process; see `Granted`."""

    def gone(self, task: str) -> None: ...
    def again(self, start: Start, *orders: Order) -> None: ...


class TaskActor:
    """A task under one grant. It is made for a `Start`, and ends with `released`, `Abandon` or a lost producer."""

    def __init__(self, needs: TaskNeeds, starts: TaskStarts, plan: TaskPlan, start: Start) -> None:
        self.site = site = Site(needs, Meter(needs.turns.clocks), plan, start, self.feed)
        self.name, self.grant, self.machine, self.state = site.name, site.grant, site.machine, site.state
        self.failures = Failures(site)
        self.due = Due(site)
        self.traced = Traced(site)
        self.background = BackgroundWork(site, needs.process, self.failures.broken)
        self.suspicion = Suspicion(
            start, needs.solitude, needs.job, needs.process, site.clock, site.log, BetweenRows(needs.turns.clocks)
        )
        self.contribution = Contribution(
            site,
            needs.producers,
            self.failures,
            self.suspicion,
            self.due,
            self.traced,
            awaited=needs.turns.clocks is not None,
        )  # in virtual time no reader waits
        self.under_way = UnderWay(
            site,
            needs,
            self.failures,
            self.suspicion,
            self.background,
            self.contribution,
            self.due,
            self.traced,
            self.failures.stopped,
            self._started_again,
        )
        self.mailbox = self.under_way.mailbox
        self.preparing = Preparing(site, needs, self.suspicion, self.due.watch, self.failures.broken)
        self.reading = Reading(site, needs, self.background, self.under_way.take)
        self.ends = TaskEnd(site.log, lambda: site.settings.seconds("release.timeout") / 3)
        self.ended = asyncio.Event()
        """Set when nothing of this task is left in this process."""
        self.since_ms = site.wall_ms()
        """When the task entered its current state."""
        self._job = needs.job
        self._process = needs.process
        self._starts = starts
        self._copies = needs.copies
        self._silent = needs.port.silent
        self._start = start
        self._phase = self.machine.phase
        """The phase after the last event."""
        self._alarm = Alarm(self._deadline, site.clock, lambda: self.feed(t.Tick()))
        self._broken = False
        self._sealed: list[LogWrite] = []
        """What this task adds to the transaction that is being sealed."""
        self._last_report: Report | None = None
        """The report to send once nothing of this task is left in this process."""
        self._handlers: Mapping[type[Any], Callable[[Any], None]] = {
            t.OpenStore: self._background(self.preparing.open, "open store"),
            t.AskLogEnds: self._background(self.preparing.log_ends, "ask log ends"),
            t.WipeStore: self._background(self.preparing.wipe, "wipe store"),
            t.Restore: self._background(self.preparing.restore, "restore"),
            t.ResolveOffsets: self._background(self.preparing.resolve, "ask offsets"),
            t.SeekConsumer: self._seek,
            t.SkipRecord: self.reading.skip,
            t.Bounds: self.reading.bound,
            t.Gate: self.reading.look,
            t.StopFetching: self.reading.stop_fetching,
            t.DropChunk: self.under_way.drop,
            t.RunAgain: self.under_way.again,
            t.RunStep: self.under_way.step,
            t.SendControl: self.contribution.mark,
            t.RequestCommit: self.contribution.want,
            t.Contribute: self._contribute,
            t.SendReport: self._report,
            t.CloseStore: self._background(self._close_store, "close store"),
            t.Discard: self._discard,
            t.BeginAgain: self._begin_again,
            t.TaskNote: self.failures.note,
        }

    def _background(self, work: Callable[[Any], Awaitable[None]], name: str) -> Callable[[Any], None]:
        """A handler that runs this beside the actor."""
        return lambda order: self.background.run(partial(work, order), name)

    def feed(self, event: Any) -> bool:
        """Feed one event to the machine; its instructions are carried out or started before this returns. Returns whether the machine has
        taken the event and the task goes on; otherwise nothing may follow from it."""
        if self.site.gone:
            return False
        taken = False
        try:
            instructions = self.machine.handle(event, self.site.clock.now())
            taken = True
            self._carry_out(instructions)
        except Exception as error:
            if self._broken:
                raise  # handling the first failure failed, too: the worker must know
            self._broken = True
            self.site.log.exception("task is broken")
            self.failures.broken(error)
        return taken and not self.site.gone

    def _carry_out(self, instructions: Iterable[Any]) -> None:
        before = self._phase
        for instruction in instructions:
            self._handlers[type(instruction)](instruction)
        phase = self._phase = self.machine.phase
        if phase != before:
            self.traced.phase_over(before, phase, self.since_ms)
            self.since_ms = self.site.wall_ms()
            self.site.log.info("task state", state=phase, before=before)
            self.due.watch()  # something may wait until the tables are read
            if phase == TaskState.DRAINING:
                self.site.patience.drains()
            if phase in (TaskState.DRAINED, TaskState.ENDED):
                self._tell_parked()
        self._alarm.see()
        self.reading.decided()

    def _tell_parked(self) -> None:
        """The task has come to its end: what has failed in its last try, too, waits for the next run."""
        parked = None if self.site.pipeline is None else self.site.pipeline.parked
        if parked is not None and parked.total:
            self.site.log.warning(
                "records stay parked",
                records=parked.total,
                keys=parked.keys,
                until="the next run; see `headgate parked`",
            )

    # --------------------------------------------------------------------------------------------- what the committer asks

    def seal(self, txn: int) -> list[LogWrite]:
        """See `committing.Writer`."""
        if self.site.gone or not self.contribution.opens():
            return []
        self._sealed = []
        with self.contribution.sealing():
            self.feed(t.CommitBegins(txn))
        return self._sealed

    def _contribute(self, order: t.Contribute) -> None:
        self._sealed = self.contribution.sealed(order)

    def traced_work(self) -> Links:
        """See `committing.Writer`."""
        return self.traced.take()

    def announce(self) -> None:
        """See `committing.Writer`."""
        self.contribution.announce()

    def apply(self, position: int) -> None:
        """See `committing.Writer`. The store of a dropped task is closed: the next one reads the changes from the log."""
        if not self.site.gone or self.state.tables is not None:
            self.contribution.apply(position)

    def committed(self, txn: int) -> None:
        """See `committing.Writer`."""
        self.contribution.committed(works=not self.site.gone)
        self.feed(t.CommitDone(txn))
        self.contribution.expiry.look()

    @property
    def log_end(self) -> int:
        """See `committing.Writer`."""
        store = self.state.store
        return 0 if store is None else store.meta.position or 0

    @property
    def behind(self) -> bool:
        """See `committing.Writer`."""
        return self.site.behind

    def patient(self, rest_s: float) -> bool:
        """See `committing.Writer`."""
        return self.contribution.small and (self.site.behind or self.site.rests(rest_s) is not None)

    def go_on(self) -> None:
        """See `committing.Writer`."""
        self.reading.go_on()

    @property
    def arriving(self) -> bool:
        """See `committing.Writer`."""
        return self.reading.arriving and not self.site.behind

    # ---------------------------------------------------------------------------------------------------------------- ticks

    def _deadline(self) -> float | None:
        if self.site.gone:
            return None
        return self.machine.deadline() if self._silent else self.machine.due_s()

    def take_settings(self) -> None:
        """Apply the current settings in the machine, the intake, the chooser and the batches."""
        settings = self.site.settings
        own = task_settings(settings.given)
        if own != self.machine.plan.settings:
            self.feed(t.SettingsChanged(own))
        self.site.patience.look()
        self.reading.take_settings()
        if self.site.pipeline is not None:
            in_flight, gathered = settings.value("spark.in-flight"), settings.value("gather.max-bytes")
            self.site.pipeline.fly(in_flight, gathered, batch_limits(settings))

    def _seek(self, order: t.SeekConsumer) -> None:
        self.reading.seek(order)
        self.due.watch()

    # ------------------------------------------------------------------------------------------------------------------ end

    def _report(self, order: t.SendReport) -> None:
        if getattr(order.report, "gone", False):
            self._last_report = order.report  # sent once the store is closed: the next owner may open it at once
            return
        report = order.report
        released = isinstance(report, TaskReported) and report.state == TaskState.RELEASED
        if isinstance(report, TaskReported) and released:
            report = replace(report, unproven=self.suspicion.announced.active)
        self._job.report(report)
        if released:
            self._go()

    async def _close_store(self, _: t.CloseStore) -> None:
        await self._shut_down()
        self.feed(t.StoreClosed())

    def _discard(self, order: t.Discard) -> None:
        self.site.log.warning("task is dropped", why=order.why)
        self.contribution.discard(order.why)
        self._go()

    def _begin_again(self, order: t.BeginAgain) -> None:
        self._go()
        self._starts.again(self._start, *order.seeks)

    def _started_again(self) -> None:
        """The agent was started again: restart a failed task under the same grant, from its log."""
        if not self.site.gone and self.machine.state == TaskMode.FAILED:
            self._go()
            self._starts.again(self._start)

    def _go(self) -> None:
        if self.site.gone:
            return
        self.site.gone = True
        self.under_way.call_off()
        self.site.idle.set()
        self._alarm.stop()
        self.due.stop()
        self._process.spawn(self._end, f"{self.name}: end")

    async def _end(self) -> None:
        self.background.cancel()
        self._copies.leaves(self.name)
        try:
            await self._shut_down()
        finally:
            self._starts.gone(self.name)
            self.ended.set()
            if self._last_report is not None:
                self._job.report(self._last_report)

    async def _shut_down(self) -> None:
        """Shut the parts down. Running user code ends first: neither its hooks nor the next owner may run at the same time."""
        await self.ends.shut_down(
            ("agent", self.mailbox.stop),
            ("intake", self.reading.stop),
            ("user code", self._end_hooks),
            last=("store", self.state.close),
        )
        self.suspicion.close(survived=self.machine.state in (TaskMode.ABANDONED, TaskMode.RELEASED))

    async def _end_hooks(self) -> None:
        if self.site.pipeline is not None:
            await self.site.pipeline.close()

    async def kill(self) -> None:
        """The worker ends: drop the task now."""
        if not self.site.gone:
            self._go()
        await self.ended.wait()
