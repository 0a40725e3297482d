"""Drives a `Committer` over an `Outbox`: the one coroutine through which all transactions of an incarnation go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from ...core.machine import Tick
from ...core.names import StreamPartition
from ...core.task import commit_protocol as e
from ...core.task.commit import FINISHED, OVER, Committer
from ..awaiting import said
from ..port.alarm import Alarm
from ..port.errors import Fenced, OutboxError, OutcomeUnknown, Spoiled, TargetFailed
from ..port.port import Port, Timer
from ..state.store import BUSY_S, StoreBusy
from .buffer import LogWrite, Receipt
from .outbox import Outbox

if TYPE_CHECKING:
    from .task import TaskActor

log = structlog.get_logger("headgate.commit")


class Tasks(Protocol):
    """What committing needs of the worker."""

    @property
    def port(self) -> Port: ...
    def actor(self, task: str) -> TaskActor | None: ...
    def crash(self, error: BaseException) -> None: ...
    def incarnation_over(self, incarnation: str, order: e.IncarnationOver) -> None: ...


class Committing:
    """The transactions of one producer incarnation."""

    def __init__(
        self,
        host: Tasks,
        incarnation: str,
        outbox: Outbox,
        *,
        interval_s: float,
        timeout_s: float,
        direct: Outbox | None = None,
    ) -> None:
        self.host = host
        self.incarnation = incarnation
        self.outbox = outbox
        self.direct = direct
        """The plain producer of final outputs, when they need not be exactly once."""
        self.machine = Committer(interval_s=interval_s, timeout_s=timeout_s)
        self.finished = asyncio.Event()
        self.last: Receipt | None = None
        self.commits = 0
        self._alarm = Alarm(self.machine.deadline, host.port.clock, lambda: self.feed(Tick()))
        self._transaction: asyncio.Task[None] | None = None
        self._spoilt: dict[str, str] = {}
        self._waiting: dict[str, Timer] = {}
        """Stores that are busy, and are asked again."""
        self._said_busy = (0, "")

    def feed(self, event: Any) -> None:
        """One event for the committer; what it wants is done or started before this returns."""
        for instruction in self.machine.handle(event, self.host.port.clock.now()):
            self._carry_out(instruction)
        self._alarm.see()

    def _carry_out(self, instruction: Any) -> None:
        match instruction:
            case e.Begin(txn):
                self.feed(e.Begun(txn))
            case e.Seal(txn, tasks):
                self._transaction = asyncio.get_running_loop().create_task(
                    self._run(txn, tasks), name=f"transaction {txn}"
                )
                self._transaction.add_done_callback(self._ended)
            case e.Apply(txn, task, position):
                self._apply(txn, task, position)
            case e.TellDone(txn, task, position):
                actor = self.host.actor(task)
                if actor is not None:
                    actor.committed(txn, position)
            case e.TellApplyFailed(task, why):
                actor = self.host.actor(task)
                if actor is not None:
                    from ...core.task.protocol import ApplyFailed

                    actor.feed(ApplyFailed(why))
            case e.IncarnationOver():
                self.host.incarnation_over(self.incarnation, instruction)
            case e.Finished():
                self.finished.set()
            case _:
                pass  # Flush, Commit and Abandoned: the outbox has done them, or has nothing to do

    def pace(self, interval_s: float) -> None:
        """Commit this often from now on, also what is waiting already."""
        self.machine.interval_s = interval_s
        self._alarm.see()

    def spoil(self, task: str, why: str) -> None:
        """Outputs of this task stand in the open transaction, and its positions never will."""
        self._spoilt.setdefault(task, why)
        asyncio.get_running_loop().call_soon(self.failed, Spoiled(frozenset({task}), why))

    def _ended(self, transaction: asyncio.Task[None]) -> None:
        """Whatever a transaction raised that is no error of the producer must not be lost: nobody would commit again."""
        if transaction.cancelled():
            if transaction.cancelling() == 0:
                self.failed(OutcomeUnknown("the transaction was cancelled, and not by headgate"))
        elif (error := transaction.exception()) is not None:
            self.host.crash(error)

    async def _run(self, txn: int, tasks: Iterable[str]) -> None:
        """Seal, send, confirm and commit, in the outbox's one go; the machine hears of each."""
        contributed: set[str] = set()
        logs: dict[str, Any] = {}

        def seal() -> list[LogWrite]:
            writes: list[LogWrite] = []
            # whoever completed something since the machine named its tasks is in this transaction, too
            for task in dict.fromkeys([*tasks, *sorted(self.outbox.writers)]):
                actor = self.host.actor(task)
                found = actor.seal(txn) if actor is not None else []
                if found:
                    contributed.add(task)
                    logs[task] = found[-1].at
                    writes += found
            astray = self.outbox.writers - contributed
            if astray:
                raise Spoiled(frozenset(astray), "; ".join(self._spoilt[one] for one in astray if one in self._spoilt))
            self.feed(e.Sealed(txn, frozenset(contributed)))
            return writes

        try:
            receipt = await self.outbox.commit(seal, before=self.direct.commit if self.direct is not None else None)
        except OutboxError as error:
            self.failed(error)
            return
        self.last = receipt
        self.commits += 1
        if contributed:
            self.feed(e.Sent(txn))
            self.feed(e.Acked(txn))
            self.feed(e.Committed(txn, {task: self._reached(receipt, task, at) for task, at in logs.items()}))

    def _reached(self, receipt: Receipt, task: str, at: StreamPartition) -> int:
        """Where a task's log stands now. A broker that had the batch already may not know its offset any more: then it is where the store
        stands, and a restore reads again what it has, which changes nothing."""
        found = receipt.positions.get(at)
        if found is not None:
            return found
        actor = self.host.actor(task)
        store = actor.state.store if actor is not None else None
        log.warning("the broker did not say where the task log ends", task=task, log=str(at))
        return store.meta.position or 0 if store is not None else 0

    def _apply(self, txn: int, task: str, position: int) -> None:
        self._waiting.pop(task, None)
        actor = self.host.actor(task)
        try:
            if actor is not None:
                actor.apply(position)
        except StoreBusy as error:
            self._apply_later(txn, task, position, error)
        except Exception as error:  # noqa: BLE001 - a full disk, a damaged store: only this task fails
            log.error("the store refused a commit's changes", task=task, error=str(error))
            self.feed(e.StoreRefused(txn, task, said(error)))
        else:
            self.feed(e.Applied(txn, task))

    def _apply_later(self, txn: int, task: str, position: int, error: StoreBusy) -> None:
        """The disk of this store has not followed. Everybody else goes on; the next commit waits for it."""
        if (txn, task) != self._said_busy:
            self._said_busy = (txn, task)
            log.warning("a commit's changes wait for the disk", task=task, why=str(error))
        self._waiting[task] = self.host.port.clock.call_later(BUSY_S, self._again, txn, task, position)

    def _again(self, txn: int, task: str, position: int) -> None:
        if self.machine.txn == txn and task in self.machine.tasks:  # else nobody waits for it any more
            self._apply(txn, task, position)

    def failed(self, error: OutboxError) -> None:
        """The producer is dead."""
        if self.machine.state in (OVER, FINISHED):
            return
        kind = "fenced" if isinstance(error, Fenced) else "unknown" if isinstance(error, OutcomeUnknown) else "failed"
        target, tasks, refused = "", frozenset[str](), False
        if isinstance(error, TargetFailed):
            target, tasks, refused = str(error.target), error.tasks, error.refused
        elif isinstance(error, Spoiled):
            target, tasks = "the transaction", error.tasks
        log.error("the producer failed", kind=kind, target=target, error=str(error))
        self.feed(e.ProducerFailed(str(error), kind, target, tasks, refused))

    def stop(self) -> None:
        """Feed nothing any more."""
        self._alarm.stop()
        for handle in self._waiting.values():
            handle.cancel()
        if self._transaction is not None:
            self._transaction.cancel()
