"""Carries out the instructions of a `Committer` on an `Outbox`. All transactions of an incarnation go through it.

    Begin → outbox.free    Seal → each task, outbox.divide    Flush → outbox.flush    Commit → outbox.commit    Apply → each task's store

Promise: every answer of the outbox reaches the machine, success or failure. An unexpected exception ends the incarnation or the worker.
So a transaction never hangs silently.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from ....core.machine import Tick
from ....core.names import StreamPartition
from ....core.task.committer import commit_protocol as e
from ....core.task.committer.commit import Committer, CommitterState
from ....core.task.protocol import ApplyFailed
from ...cancellation import said
from ...durations import Durations
from ...logger import Logger
from ...port.alarm import Alarm
from ...port.errors import Fenced, OutboxError, OutcomeUnknown, ProducerBroken, Spoiled, TargetFailed
from ...port.port import Port, Timer
from ...state.store import BUSY_S, StoreBusy
from ...tracing.contexts import Links, TraceContext, bounded
from ...tracing.traces import Attributes, NoTraces, Traces, TraceSpan
from ..reading.gathering import GRACE_S, Gathering
from .buffer import LogWrite
from .outbox import Outbox

R = TypeVar("R")

log = Logger("headgate.commit")


class Writer(Protocol):
    """A task, as the committer sees it."""

    @property
    def name(self) -> str: ...
    @property
    def log_end(self) -> int:
        """Up to where its store contains its log."""
        ...

    @property
    def behind(self) -> bool:
        """Whether it has a backlog."""
        ...

    def patient(self, rest_s: float) -> bool:
        """Whether it has worked on little since it took part last, and has a backlog or took part less than `rest_s` ago."""
        ...

    def go_on(self) -> None:
        """No task of the worker has a backlog any more: what it held back because of one is fetched."""
        ...

    @property
    def arriving(self) -> bool:
        """Whether it still processes what it gathered for the commit that is due."""
        ...

    def seal(self, txn: int) -> list[LogWrite]:
        """The committer divides: return what this task adds to the transaction, without waiting. Empty when it takes no part."""
        ...

    def traced_work(self) -> Links:
        """The spans of what `seal` has added; each is given once."""
        ...

    def announce(self) -> None:
        """All tasks have sealed: the markers of this commit join the transaction."""
        ...

    def apply(self, position: int) -> None:
        """The transaction is durable: write what was sealed into the store, in one step. Raises what the store raises."""
        ...

    def committed(self, txn: int) -> None:
        """The transaction is durable and applied."""
        ...

    def feed(self, event: Any) -> bool:
        """Tell it what went wrong."""
        ...


class CommitHost(Protocol):
    """What `Committing` needs from its surroundings."""

    @property
    def port(self) -> Port: ...
    def writer(self, task: str) -> Writer | None: ...
    def crash(self, error: BaseException) -> None: ...
    def incarnation_over(self, incarnation: str, order: e.IncarnationOver) -> None: ...
    def arriving(self) -> bool: ...
    def patient(self) -> frozenset[str]: ...


class Committing:
    """The transactions of one producer incarnation."""

    def __init__(
        self,
        host: CommitHost,
        incarnation: str,
        outbox: Outbox,
        *,
        interval_s: float,
        timeout_s: float,
        direct: Outbox | None = None,
        took: Durations | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`took`: how long transactions have taken; it outlives the incarnation. `traces`: where those of traced work have spans."""
        self.host = host
        self._took = took or Durations()
        self._traces = traces or NoTraces()
        self._span: TraceSpan | None = None
        """That of the transaction under way, from the moment at which it is known whether its work is traced."""
        self.incarnation = incarnation
        self.outbox = outbox
        self.direct = direct
        """The non-transactional producer of final outputs, under `at_least_once`."""
        self.machine = Committer(interval_s=interval_s, timeout_s=timeout_s)
        self.commits = 0
        self._begun_s: float | None = None
        """When the transaction under way began; None between two of them."""
        self._done_s: float | None = None
        """When the last transaction was committed."""
        self._alarm = Alarm(self.machine.deadline, host.port.clock, lambda: self.feed(Tick()))
        self._stopped = False
        self._context = contextvars.copy_context()
        """Callbacks run in this context, so that they do not inherit the context variables of the task that requested a commit."""
        self._wants: dict[str, bool] = {}
        """Tasks that want a commit, and whether it is urgent; the machine has not been told of them yet."""
        self._logs: Mapping[str, StreamPartition] = {}
        """By task: the log partitions that the current transaction writes to."""
        self._invalid: dict[str, str] = {}
        self._waiting: dict[str, Timer] = {}
        """By task: the timers that retry a busy store."""
        self._said_busy = (0, "")
        self._gathering = Gathering()
        self._patience: Timer | None = None
        """Runs while the transaction that is to begin waits for what its tasks have gathered."""

    def feed(self, event: Any) -> None:
        """Feed one event to the committer; its instructions are carried out or started before this returns."""
        for instruction in self.machine.handle(event, self.host.port.clock.now()):
            self._carry_out(instruction)
        self._alarm.see()

    def _carry_out(self, instruction: e.CommitInstruction) -> None:
        match instruction:
            case e.Begin(txn):
                self._begin(txn)
            case e.Seal(txn, tasks):
                self._seal(txn, tasks)
            case e.Flush(txn):
                self._ask(self.outbox.flush(), partial(self._flushed, txn))
            case e.Commit(txn):
                self._ask(self.outbox.commit(), lambda _: self._committed(txn))
            case e.Apply(txn, task, position):
                self._apply(txn, task, position)
            case e.TellDone(txn, task):
                if (writer := self.host.writer(task)) is not None:
                    writer.committed(txn)
            case e.TellApplyFailed(task, why):
                if (writer := self.host.writer(task)) is not None:
                    writer.feed(ApplyFailed(why))
            case e.IncarnationOver():
                self.host.incarnation_over(self.incarnation, instruction)

    def under_way_s(self) -> float | None:
        """How long the transaction under way has taken so far; None if there is none."""
        if self._begun_s is None or self.machine.view.state in (CommitterState.IDLE, CommitterState.OVER):
            return None
        return self.host.port.clock.now().mono - self._begun_s

    def last_s(self) -> float | None:
        """How long ago the last transaction was committed; None if none was."""
        return None if self._done_s is None else self.host.port.clock.now().mono - self._done_s

    def _begin(self, txn: int) -> None:
        """Begin the transaction once the tasks have processed what they gathered for it; the wait is short, and has a limit."""
        self._begun_s = self.host.port.clock.now().mono
        if self.host.arriving():
            self._patience = self.host.port.clock.call_later(GRACE_S, self._begun, txn)
        else:
            self._free(txn)

    def _begun(self, txn: int) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        view = self.machine.view
        if view.state == CommitterState.BEGINNING and view.txn == txn:
            self._free(txn)

    def _free(self, txn: int) -> None:
        self._ask(self.outbox.free(), lambda _: self.feed(e.Begun(txn, self.host.patient())))

    def gather_until(self) -> float | None:
        """Until when a fetch is held back, so that what it brings joins the next transaction; None: not at all."""
        now_s, view = self.host.port.clock.now().mono, self.machine.view
        return self._gathering.until(now_s, view.due_s, view.interval_s)

    def arrived(self, took_s: float) -> None:
        """What a gathered fetch of a task brought is processed, this long after it was sent."""
        self._gathering.arrived(took_s)
        if self._patience is not None and not self.host.arriving():
            self._begun(self.machine.view.txn)

    def pace(self, interval_s: float) -> None:
        """Use this commit interval from now on, also for the commit that is already waiting."""
        self.feed(e.Paced(interval_s))

    def want(self, task: str, urgent: bool) -> None:
        """A task has something to commit. The machine is told once the current event has been handled."""
        if not self._wants:
            self.host.port.clock.call_later(0.0, self._tell_wants)
        self._wants[task] = urgent or self._wants.get(task, False)

    def _tell_wants(self) -> None:
        wants, self._wants = self._wants, {}
        for task, urgent in wants.items():
            self.feed(e.Wanted(task, urgent))

    def spoil(self, task: str, why: str) -> None:
        """The open transaction holds outputs of this task, but will never hold its positions: fail the transaction."""
        self._invalid.setdefault(task, why)
        asyncio.get_running_loop().call_soon(self.failed, Spoiled(frozenset({task}), why))

    # ------------------------------------------------------------------------------------------------------- the outbox

    def _ask(self, answer: asyncio.Future[R], then: Callable[[R], None]) -> None:
        """Handle the outbox's answer in a callback of its own. The request is never cancelled, so its outcome is always seen."""
        answer.add_done_callback(partial(self._answered, then), context=self._context)

    def _answered(self, then: Callable[[Any], None], answer: asyncio.Future[Any]) -> None:
        if self._stopped:
            return
        try:
            if answer.cancelled():
                raise OutcomeUnknown("the transaction was cancelled, but not by headgate")
            then(answer.result())
        except OutboxError as error:
            self.failed(error)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - if it were lost, there would be no more commits
            self.host.crash(error)

    def _seal(self, txn: int, tasks: Iterable[str]) -> None:
        """Divide off this transaction: it holds what the tasks have completed, with their state changes and checkpoints."""
        try:
            logs = self._divide(txn, tasks)
        except OutboxError as error:
            self.failed(error)
        except Exception as error:  # ends the incarnation, not the worker: nothing of this transaction is committed
            log.exception("a transaction could not be sealed")
            self.failed(ProducerBroken(f"a transaction could not be sealed: {said(error)}"))
        else:
            self._logs = logs
            self.feed(e.Sealed(txn, frozenset(logs)))

    def _divide(self, txn: int, tasks: Iterable[str]) -> dict[str, StreamPartition]:
        """Divide, and return the task logs that are written to. Tasks that completed something since the machine named its tasks take part,
        too."""
        writes: list[LogWrite] = []
        logs: dict[str, StreamPartition] = {}
        spans: list[TraceContext] = []
        left_out = 0
        sealing = dict.fromkeys([*tasks, *sorted(self.outbox.writers)])
        writers = [writer for writer in map(self.host.writer, sealing) if writer is not None]
        for writer in writers:
            if found := writer.seal(txn):
                logs[writer.name] = found[-1].at
                writes += found
                contexts, dropped = writer.traced_work()
                spans += contexts
                left_out += dropped
        if spans:
            self._trace(txn, logs, bounded(spans, left_out))
        for writer in writers:
            writer.announce()
        unexpected = self.outbox.writers - logs.keys()
        if unexpected:
            raise Spoiled(
                frozenset(unexpected), "; ".join(self._invalid[one] for one in unexpected if one in self._invalid)
            )
        if logs:
            self.outbox.divide(writes)
        return logs

    def _trace(self, txn: int, tasks: Iterable[str], links: Links) -> None:
        """The transaction has a span, which begins with it."""
        now = self.host.port.clock.now()
        ago_s = 0.0 if self._begun_s is None else now.mono - self._begun_s
        attributes: Attributes = {
            "headgate.incarnation": self.incarnation,
            "headgate.transaction": txn,
            "headgate.tasks": sorted(tasks),
        }
        began_ns = (now.wall - round(1000 * ago_s)) * 1_000_000
        self._span = self._traces.begin("commit", attributes, links, began_ns=began_ns)

    def _trace_ends(self, why: str = "") -> None:
        span, self._span = self._span, None
        if span is not None:
            if why:
                span.failed(why)
            span.end()

    def _flushed(self, txn: int, found: Mapping[StreamPartition, int]) -> None:
        """The transaction is flushed. Under `at_least_once`, final outputs are flushed as well before their positions are committed."""
        positions = {task: self._reached(found, task, at) for task, at in self._logs.items()}
        if self.direct is None:
            self.feed(e.Flushed(txn, positions))
        else:
            self.direct.divide()
            self._ask(self.direct.flush(), lambda _: self.feed(e.Flushed(txn, positions)))

    def _committed(self, txn: int) -> None:
        self.commits += 1
        self._done_s = self.host.port.clock.now().mono
        if self._begun_s is not None:
            self._took.add(self._done_s - self._begun_s)
        self._trace_ends()
        self.feed(e.Committed(txn))

    def _reached(self, positions: Mapping[StreamPartition, int], task: str, at: StreamPartition) -> int:
        """Where a task's log will end. A broker that already had the batch may no longer know its offset: then this is the store's
        position, and a restore reads the same records again, which changes nothing."""
        found = positions.get(at)
        if found is not None:
            return found
        writer = self.host.writer(task)
        log.warning("the broker did not say where the task log ends", task=task, log=str(at))
        return 0 if writer is None else writer.log_end

    # ------------------------------------------------------------------------------------------------------- the stores

    def _apply(self, txn: int, task: str, position: int) -> None:
        self._waiting.pop(task, None)
        writer = self.host.writer(task)
        try:
            if writer is not None:
                writer.apply(position)
        except StoreBusy as error:
            self._apply_later(txn, task, position, error)
        except Exception as error:  # noqa: BLE001 - a full disk, a damaged store: only this task fails
            log.error("the store refused the changes of a commit", task=task, error=str(error))
            self.feed(e.StoreRefused(txn, task, said(error)))
        else:
            self.feed(e.Applied(txn, task))

    def _apply_later(self, txn: int, task: str, position: int, error: StoreBusy) -> None:
        """The disk of this store cannot keep up: retry later. Other tasks go on; the next commit waits for this store."""
        if (txn, task) != self._said_busy:
            self._said_busy = (txn, task)
            log.warning("the changes of a commit wait for the disk", task=task, why=str(error))
        self._waiting[task] = self.host.port.clock.call_later(BUSY_S, self._again, txn, task, position)

    def _again(self, txn: int, task: str, position: int) -> None:
        view = self.machine.view
        if view.txn == txn and task in view.tasks:  # otherwise the machine no longer waits for it
            self._apply(txn, task, position)

    # ------------------------------------------------------------------------------------------------------- the end

    def failed(self, error: OutboxError) -> None:
        """The producer has failed: tell the machine how, and which tasks are to blame."""
        if self._stopped or self.machine.view.state == CommitterState.OVER:
            return
        kind = "fenced" if isinstance(error, Fenced) else "unknown" if isinstance(error, OutcomeUnknown) else "failed"
        target, tasks, refused = "", frozenset[str](), False
        if isinstance(error, TargetFailed):
            target, tasks, refused = str(error.target), error.tasks, error.refused
        elif isinstance(error, Spoiled):
            target, tasks = "the transaction", error.tasks
        log.error("the producer failed", kind=kind, target=target, error=str(error))
        self._trace_ends(f"the producer failed: {error}")
        self.feed(e.ProducerFailed(str(error), kind, target, tasks, refused))

    def stop(self) -> None:
        """Stop feeding the machine."""
        self._trace_ends("the producer was stopped")
        self._alarm.stop()
        if self._patience is not None:
            self._patience.cancel()
        self._stopped = True
        self._wants.clear()
        for handle in self._waiting.values():
            handle.cancel()
