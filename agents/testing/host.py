"""The process around a test driver's runtime: it runs the coroutines, receives the reports, and knows whether something is in progress.

The driver is *quiet* when nothing is ready to run, no background task runs, no actor has a letter, and Spark has no batch. The services
that run as long as the driver (intakes, the outbox) then only wait, and no transaction is in progress: in memory, each step of a
transaction makes the next one ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ...core.coordination.member import protocol as mw
from ...core.coordination.messages import LetterMark
from ...core.orders import Report, RunView, TaskReported, TaskState
from ...core.task.plan import TaskPlan
from ..port.port import Background
from ..runtime.copies.copy import CopyDisk
from ..runtime.copies.directory import NoDirectory
from ..state.store import Disk, NoDisk
from .loop import VirtualLoop
from .port import MemoryMailbox

__tracebackhide__ = True
"""See `driver`."""


class DriverHost:
    """See `runtime.RuntimeHost` and `runtime.Job`. `again` makes the next producer and restarts the tasks; `starts_again` one that has
    failed, if a worker would do so at once.    `trouble_of` returns the error of a failed task.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        plan: Callable[[str], TaskPlan],
        run: Callable[[], RunView],
        again: Callable[[str], Awaitable[None]],
        trouble_of: Callable[[str], BaseException | None],
        reported: Callable[[Report], None],
        starts_again: Callable[[TaskReported], bool],
    ) -> None:
        self._loop = loop
        self._run = run
        self._again = again
        self._trouble_of = trouble_of
        self._reported = reported
        self._starts_again = starts_again
        self._plan = plan
        self._spawned: set[asyncio.Task[Any]] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._mailboxes: dict[MemoryMailbox, None] = {}
        self._said: dict[str, set[str]] = {}
        self._failure: BaseException | None = None
        self._ending = False
        loop.set_exception_handler(self._unheard)

    def begin(self) -> None:
        """Begin another life, without reports."""
        self._said.clear()
        self._failure, self._ending = None, False

    def plan(self, task: str) -> TaskPlan:
        """See `runtime`."""
        return self._plan(task)

    def run_view(self) -> RunView | None:
        """See `runtime`."""
        return self._run()

    def disk(self, task: str) -> Disk:
        """See `runtime`. The state is in memory."""
        return NoDisk()

    def copy_disk(self, table: str) -> CopyDisk:
        """See `runtime`. A copy is in memory, too: a restart reads its topic anew."""
        return NoDirectory()

    # ------------------------------------------------------------------------------------------------------------- reports

    def report(self, report: Report) -> None:
        """See `runtime`."""
        self._reported(report)
        if isinstance(report, TaskReported):
            self._said.setdefault(report.task, set()).add(report.state)
            if report.state == TaskState.FAILED:
                if self._starts_again(report):
                    self._said.pop(report.task, None)
                else:
                    self._fail(self._trouble_of(report.task) or RuntimeError(report.why))

    def letters_left(self, task: str, grant: int) -> Sequence[LetterMark]:
        """See `runtime`. No process dies here."""
        return ()

    async def say_letters(self, task: str, grant: int, marks: Sequence[LetterMark]) -> None:
        """See `runtime`."""

    def said(self, tasks: Iterable[str]) -> list[set[str]]:
        """The states that each of these tasks has reported."""
        return [self._said.get(task, set()) for task in tasks]

    def producer_lost(self, lost: mw.ProducerLost) -> None:
        """See `runtime`."""
        if not self._ending:
            self.spawn(partial(self._again, lost.why), "next life")

    def crash(self, error: BaseException) -> None:
        """See `runtime`."""
        self._fail(error)

    def _unheard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception that no one has awaited, mostly one of user code."""
        error = context.get("exception")
        if isinstance(error, BaseException) and "handle" in context:
            self._fail(error)
        else:
            loop.default_exception_handler(context)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error

    def raise_failure(self) -> None:
        """Raise the first failure since the last call."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # ------------------------------------------------------------------------------------------------------------ coroutines

    def spawn(self, work: Background, name: str) -> asyncio.Task[None]:
        """See `runtime`."""
        task = self._made(work, name)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    async def serve(self, name: str, work: Background) -> Any:
        """See `runtime`."""
        task = self._made(work, name)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return task

    def _made(self, work: Background, name: str) -> asyncio.Task[None]:
        async def awaited() -> None:
            await work()

        task = self._loop.create_task(awaited(), name=name)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def mailbox(
        self,
        name: str,
        on_letter: Callable[[Any], Awaitable[None]],
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> MemoryMailbox:
        """See `runtime`."""
        made = MemoryMailbox(name, on_letter, on_gone)
        self._mailboxes[made] = None
        return made

    @property
    def busy(self) -> bool:
        """Whether something is in progress."""
        for mailbox in [one for one in self._mailboxes if one.ended]:
            del self._mailboxes[mailbox]
        return bool(self._spawned) or any(mailbox.working for mailbox in self._mailboxes) or self._loop.at_spark > 0

    async def end(self) -> None:
        """End the services."""
        self._ending = True
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)
