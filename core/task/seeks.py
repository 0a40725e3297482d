"""Positions that change otherwise than by reading: an operator's seek, and a log that begins after the position.

Promises: a seek goes to an existing offset, or to the end, and only from the position that its plan showed. A request is applied once, and
remembered in the checkpoint that applied it. It is answered after that checkpoint is durable, or refused with the reason. A lost position
follows the input's `on_lost`, and the note says how many records are lost.

Every seek that a task was told has one outcome:

- It is applied or refused, even if the task has drained or ended meanwhile.
- A later seek of the same partition replaces it before it is applied, and it is refused as replaced. If it is already applied, it is
  answered as applied, whatever comes after it.
- The task is released before: the next holder of the grant is told again.
- The task fails for good before: it restarts with the seeks that came since its start, because they may lead past the record that it failed
  on. The seeks with which it started are refused with the reason of the failure, so no seek restarts a task twice.
- The task fails for a reason that may pass: it is told again when it is restarted.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..names import StreamPartition
from ..orders import NO_POSITION, Seek, SeekApplied
from .checkpoint import MAX_APPLIED
from .completion import Completion
from .inputs import Inputs
from .ledger import Ledger
from .plan import FOREIGN, INTERMEDIATE
from .protocol import Lost, ResolveOffsets, SeekConsumer, SendReport, TaskInstruction, TaskNote
from .work import Work


class Seeks:
    """The seeks and lost positions of one task that are not settled yet."""

    def __init__(self, inputs: Inputs, ledger: Ledger, work: Work, completion: Completion) -> None:
        self.task = inputs.plan.task
        self.inputs, self.ledger, self.work, self.completion = inputs, ledger, work, completion
        self.early: list[Seek] = []
        """Seeks that came while restoring."""
        self.late: list[Seek] = []
        """Seeks that came while the task was stopped."""
        self._first: list[str] = []
        """The requests with which this task has started."""
        self._before_drain: set[StreamPartition] = set()
        """For a task that restarts in a drain: the sources that a seek moves before they drain."""
        self.applied: list[str] = []
        """The requests in the checkpoint, newest last."""
        self._asked: dict[int, Seek | StreamPartition] = {}
        self._number = 0
        self._ready: dict[StreamPartition, tuple[Seek | None, int]] = {}
        """Offsets that wait for the chunk of their partition."""
        self._durable: list[tuple[int, str]] = []

    def before_drain(self, sources: Iterable[StreamPartition]) -> set[StreamPartition]:
        """The task opens in a drain: returns the sources that drain only after the seeks that came while it was restored."""
        sought = {StreamPartition(order.stream, order.partition) for order in self.early}
        self._before_drain = sought & set(sources)
        return set(self._before_drain)

    @property
    def held_up(self) -> int:
        """How many sources wait for a seek before they drain."""
        return len(self._before_drain)

    def begin(self) -> list[TaskInstruction]:
        """Begin the seeks that came while the task was restored."""
        early, self.early = self.early, []
        self._first = [order.request for order in early]
        said: list[TaskInstruction] = []
        for order in early:
            at = StreamPartition(order.stream, order.partition)
            first = self.seek(order)
            said += first if at in self.inputs.held else self._over(at, first)
        return said

    def _unanswered(self) -> list[Seek]:
        """Remove and return the seeks that are neither applied nor refused, in the order in which they came."""
        waiting = [order for order, _ in self._ready.values() if order is not None]
        told = [*self.early, *self._asked_seeks(), *waiting, *self.late]
        self.early, self.late = [], []
        self._asked.clear()
        self._ready.clear()
        return told

    def too_late(self, order: Seek, state: str) -> list[TaskInstruction]:
        """Answer a seek of a task that has drained or ended: as applied if it was, otherwise as refused."""
        if order.request in self.applied:
            return self._if_applied(order)
        return [self.refused(order, f"the task has {state} in this run")]

    def when_at_rest(self, state: str) -> list[TaskInstruction]:
        """Answer all seeks: the task has just drained or ended, or had done so before it was restarted."""
        return [said for order in self._unanswered() for said in self.too_late(order, state)]

    def when_failed(self, why: str) -> tuple[list[TaskInstruction], tuple[Seek, ...]]:
        """The task has failed for good: returns the refusals, and the seeks with which it restarts."""
        why = f"the task failed before it was applied: {why}"
        told = self._unanswered()
        refused = [self.refused(order, why) for order in told if order.request in self._first]
        return refused, tuple(order for order in told if order.request not in self._first)

    def seek(self, order: Seek) -> list[TaskInstruction]:
        """Begin a seek, or refuse it."""
        at = StreamPartition(order.stream, order.partition)
        if order.request in self.applied:
            return self._if_applied(order)
        why = self._refusal(at)
        if why:
            return [self.refused(order, why)]
        if why := self._moved(at, order.expected):
            return [self.refused(order, why)]
        replaced = self._replaced(at, order.request)
        self.inputs.held[at] = "seek"
        return [*replaced, *self._ask(order, at, order.to)]

    def _moved(self, at: StreamPartition, expected: int | None) -> str:
        """Why the task is not at the position that the plan showed; empty if it is."""
        inputs = self.inputs
        here = inputs.positions[at]
        if expected == NO_POSITION:
            nowhere = inputs.first.get(at) == here
            return "" if nowhere else f"{at} has moved: it had no position, and is now at {here}"
        if expected in (None, here):
            return ""
        return f"{at} has moved: it was expected at {expected}, and is now at {here}"

    def _if_applied(self, order: Seek) -> list[TaskInstruction]:
        """The answer to a seek that is in the checkpoint. While that is not durable, nothing: it is answered then."""
        done = order.request in self.applied and all(request != order.request for _, request in self._durable)
        return [SendReport(SeekApplied(self.task, order.request))] if done else []

    def _replaced(self, at: StreamPartition, by: str) -> list[TaskInstruction]:
        """A seek begins: drop earlier moves of this partition that are not applied yet."""
        before: list[Seek | None] = [order for order, _ in (self._ready.pop(at, (None, 0)),)]
        for number, what in list(self._asked.items()):
            if (what.stream, what.partition) == at:
                del self._asked[number]
                before.append(what if isinstance(what, Seek) else None)
        return [
            self.refused(order, f"replaced by a later seek of {at}")
            for order in before
            if order and order.request != by
        ]

    def refused(self, order: Seek, why: str) -> TaskInstruction:
        """The final answer to a seek that is not carried out."""
        return SendReport(SeekApplied(self.task, order.request, why))

    def _refusal(self, at: StreamPartition) -> str:
        inputs = self.inputs
        if at not in inputs.positions:
            return f"{self.task} does not read {at}"
        if inputs.by_stream[at.stream].kind == INTERMEDIATE:
            return (
                f"{at.stream} is an intermediate stream: its control messages are counted, so it cannot be read again"
            )
        if self.completion.drain_id is not None and at not in self._before_drain:
            return "the run is draining: no new input is read"
        if at in inputs.finished:
            return f"{at} has ended in this run"
        return ""

    def gone(self, event: Lost) -> str:
        """What the log no longer contains; empty if it contains the position, or if the partition is moved anyway."""
        at, position = event.at, self.inputs.positions.get(event.at)
        if position is None or at in self.inputs.held or at in self._ready:
            return ""
        if event.log_end is not None and event.position > event.log_end:
            return (
                f"{at} was recreated or truncated: the position was {event.position}, the log ends at {event.log_end}"
            )
        if event.log_start > position:
            count = event.log_start - position
            return f"{count} records of {at} are lost: the position was {position}, the log begins at {event.log_start}"
        return ""

    def lost(self, event: Lost, gone: str) -> list[TaskInstruction]:
        """Continue at the beginning of the log, or at its end, as the input declares."""
        on_lost = self.inputs.by_stream[event.at.stream].on_lost
        note = TaskNote("lost", f"{gone}; continuing at the {on_lost}")
        if on_lost == "oldest":
            return [note, *self._go(event.at, None, event.log_start)]
        self.inputs.held[event.at] = "lost"
        return [note, *self._ask(event.at, event.at, "newest")]

    def _ask(
        self, what: Seek | StreamPartition, at: StreamPartition, to: str | int | tuple[str, int]
    ) -> list[TaskInstruction]:
        self._number += 1
        self._asked[self._number] = what
        if isinstance(to, int):  # ask where the log begins and ends: an offset outside of it is not valid
            return [ResolveOffsets(self._number, {at: "oldest"}, ends=frozenset({at}))]
        return [ResolveOffsets(self._number, {at: to})]

    def resolved(self, request: int, offset: int | None, end: int | None = None) -> list[TaskInstruction]:
        """Take the broker's answer: the offset; for a seek to an offset, where the log begins and ends."""
        what = self._asked.pop(request, None)
        if what is None or offset is None:
            return []
        at = StreamPartition(what.stream, what.partition)
        self.inputs.held.pop(at, None)
        if isinstance(what, Seek):
            why = self._refusal(at)
            if not why and isinstance(what.to, int) and end is not None:
                if not offset <= what.to <= end:
                    why = f"there is no offset {what.to} in {at}: it begins at {offset} and ends before {end}"
                offset = what.to
            return self._over(at, [self.refused(what, why)] if why else self._go(at, what, offset))
        return self._go(at, None, offset)

    def _over(self, at: StreamPartition, said: list[TaskInstruction]) -> list[TaskInstruction]:
        """A seek is applied or refused: if its partition waited for it to drain, it drains from its current position."""
        if at in self._before_drain and not self._durable:
            self._drain_on(at)
        return said

    def _drain_on(self, at: StreamPartition) -> None:
        """Drain a partition that waited for its seek. The seek must be durable first, because user code at a drain may fail again."""
        self._before_drain.discard(at)
        self.inputs.held.pop(at, None)
        self.inputs.drain(self.completion.drain_id or "", {at: self.inputs.positions[at]})

    def _go(self, at: StreamPartition, order: Seek | None, offset: int) -> list[TaskInstruction]:
        if self.work.reads(at):
            self._ready[at] = (order, offset)
            return []
        inputs = self.inputs
        inputs.waiting.pop(at, None)
        inputs.moved(at)
        if inputs.by_stream[at.stream].kind == FOREIGN and offset < inputs.positions[at]:
            inputs.progress.forget(*at)
        made = self.ledger.touch()
        if order is not None:
            self.applied.append(order.request)
            del self.applied[:-MAX_APPLIED]
            self._durable.append((made, order.request))
        inputs.advance(at, offset)
        if at in self._before_drain:
            inputs.held[at] = "seek"
        commit = self.ledger.request_commit(urgent=True)
        return [SeekConsumer({at: offset}), *commit]

    def after_chunk(self, at: StreamPartition) -> list[TaskInstruction]:
        """The chunk for which a seek waited is over."""
        if at not in self._ready:
            return []
        order, offset = self._ready.pop(at)
        why = self._refusal(at) if order is not None else ""
        return [self.refused(order, why)] if order is not None and why else self._go(at, order, offset)

    def durable(self) -> list[TaskInstruction]:
        """A commit is done: answer the seeks that it contains."""
        ledger = self.ledger
        done = [request for made, request in self._durable if ledger.is_durable(made)]
        self._durable = [(made, request) for made, request in self._durable if not ledger.is_durable(made)]
        if done and not self._durable:
            for at in sorted(
                self._before_drain - {StreamPartition(o.stream, o.partition) for o in self._asked_seeks()}
            ):
                self._drain_on(at)
        return [SendReport(SeekApplied(self.task, request)) for request in done]

    def _asked_seeks(self) -> list[Seek]:
        return [what for what in self._asked.values() if isinstance(what, Seek)]
