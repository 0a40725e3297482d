"""Positions that change otherwise than by reading: an operator's seek, and a log that begins after the position.

A topic that was deleted and re-created under the same name is another log: its position is lost, whatever offsets it has. Where an operator
knows that it is a copy of the same records (after a mirror's failover), a seek to `here` keeps the position, and the task takes its id.

Promises: a seek goes to an existing offset, or to the end, and only from the position that its plan showed. A request is applied once, and
remembered in the checkpoint that applied it. It is answered after that checkpoint is durable, or refused with the reason. A lost position
follows the input's `on_lost`, and the note says how many records are lost.

Every seek that a task received has one outcome:

- It is applied or refused, even if the task has drained or ended meanwhile.
- A later seek of the same partition replaces it before it is applied, and it is refused as replaced. If it is already applied, it is
  answered as applied, whatever comes after it.
- The task is released before: the next holder of the grant receives it again.
- The task fails for good before: it restarts with the seeks that came since its start, because they may lead past the record that it failed
  on. The seeks with which it started are refused with the reason of the failure, so no seek restarts a task twice.
- The task fails for a reason that may pass: it is delivered again when the task is restarted.

A skip is a seek that leaves out one record and moves no position. It is applied when the task has passed the record without it, in that
checkpoint; it is refused for a record that the task has passed already. It survives failures of the task, since a frame may hold more rows
on which it fails, each with a skip of its own. A seek of the partition to a position replaces it.

An order to release or to leave out parked records (`Unpark`) has the same outcomes. It is carried out as a letter of its own (see
`letters`), because operators keep those records; the checkpoint of that letter remembers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard, cast

from ..names import StreamPartition
from ..orders import HERE, NO_POSITION, UNPARK, Errand, Seek, SeekApplied, Unpark, skips
from .completion import Completion
from .inputs import Inputs
from .ledger import Ledger
from .letters import Letters
from .plan import FOREIGN, INTERMEDIATE
from .protocol import (
    Bounds,
    Lost,
    ResolveOffsets,
    SeekConsumer,
    SendReport,
    SkipRecord,
    TaskInstruction,
    TaskNote,
    WorkDue,
)
from .stored.checkpoint import MAX_APPLIED
from .work import Work


class Seeks:
    """The seeks and lost positions of one task that are not settled yet."""

    def __init__(self, inputs: Inputs, ledger: Ledger, work: Work, completion: Completion, letters: Letters) -> None:
        self.task = inputs.plan.task
        self.inputs, self.ledger, self.work, self.completion = inputs, ledger, work, completion
        self.letters = letters
        self.early: list[Errand] = []
        """Seeks that came while restoring."""
        self.late: list[Errand] = []
        """Seeks that came while the task was stopped."""
        self.unparks: dict[str, Unpark] = {}
        """By the keys of their letters: what is to be done with parked records."""
        self._first: list[str] = []
        """The requests with which this task has started."""
        self._before_drain: set[StreamPartition] = set()
        """For a task that restarts in a drain: the sources that a seek moves before they drain."""
        self.applied: list[str] = []
        """The requests in the checkpoint, newest last."""
        self._asked: dict[int, Seek | StreamPartition] = {}
        self._found: dict[StreamPartition, str] = {}
        """For lost positions that are not settled: the id of the topic that is there now."""
        self._number = 0
        self._ready: dict[StreamPartition, tuple[Seek | None, int]] = {}
        """Offsets that wait for the chunk of their partition."""
        self._durable: list[tuple[int, str]] = []
        self._skips: dict[Seek, bool] = {}
        """The skips whose records are not passed yet, and whether the intake knows of them."""
        self.kept: tuple[Seek, ...] = ()
        """The skips that a failed task starts with again."""

    def before_drain(self, sources: Iterable[StreamPartition]) -> set[StreamPartition]:
        """The task opens in a drain: returns the sources that drain only after the seeks that came while it was restored."""
        sought = {StreamPartition(one.stream, one.partition) for one in self.early if _moves(one)}
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
            if isinstance(order, Unpark):
                said += self.unpark(order)
                continue
            at = StreamPartition(order.stream, order.partition)
            first = self.seek(order)
            said += first if at in self.inputs.held else self._over(at, first)
        return said

    def unpark(self, order: Unpark) -> list[TaskInstruction]:
        """Do something with parked records, as the next letter."""
        if order.request in self.applied:
            return self._if_applied(order)
        if order.key not in self.unparks:
            self.unparks[order.key] = order
            self.letters.work.append(WorkDue(UNPARK, order.key))
        return []

    def unparked(self, key: str, refused: str) -> list[TaskInstruction]:
        """The letter of an order to unpark is complete, or has changed nothing, for this reason."""
        order = self.unparks.pop(key, None)
        if order is None:
            return []
        if refused:
            return [self.refused(order, refused)]
        self._remember(self.ledger.touch(), order)
        return self.ledger.request_commit(urgent=True)

    def _unanswered(self) -> list[Errand]:
        """Remove and return the seeks that are neither applied nor refused, in the order in which they came."""
        waiting = [order for order, _ in self._ready.values() if order is not None]
        seeks = [*self.early, *self._asked_seeks(), *waiting, *self._skips, *self.unparks.values(), *self.late]
        self.early, self.late = [], []
        self.unparks.clear()
        self._skips.clear()
        self._asked.clear()
        self._ready.clear()
        return seeks

    def too_late(self, order: Errand, state: str) -> list[TaskInstruction]:
        """Answer a seek of a task that has drained or ended: as applied if it was, otherwise as refused."""
        if order.request in self.applied:
            return self._if_applied(order)
        return [self.refused(order, f"the task has {state} in this run")]

    def when_at_rest(self, state: str) -> list[TaskInstruction]:
        """Answer all seeks: the task has just drained or ended, or had done so before it was restarted."""
        return [said for order in self._unanswered() for said in self.too_late(order, state)]

    def when_failed(self, why: str) -> tuple[list[TaskInstruction], tuple[Errand, ...]]:
        """The task has failed for good: returns the refusals, and the seeks with which it restarts."""
        why = f"the task failed before it was applied: {why}"
        seeks = self._unanswered()
        before = [order for order in seeks if order.request in self._first]
        self.kept = tuple(order for order in before if isinstance(order, Seek) and skips(order.to))
        refused = [self.refused(order, why) for order in before if order not in self.kept]
        fresh = tuple(order for order in seeks if order.request not in self._first)
        return refused, (*self.kept, *fresh) if fresh else ()

    def seek(self, order: Seek) -> list[TaskInstruction]:
        """Begin a seek, or refuse it."""
        at = StreamPartition(order.stream, order.partition)
        if order.request in self.applied:
            return self._if_applied(order)
        if skips(order.to):
            return self._skip(order, at)
        why = self._refusal(at, order)
        if why:
            return [self.refused(order, why)]
        if why := self._moved(at, order.expected):
            return [self.refused(order, why)]
        replaced = self._replaced(at, order.request)
        self.inputs.held[at] = "seek"
        return [*replaced, *self._ask(order, at, self.inputs.positions[at] if order.to == HERE else order.to)]

    def _skip(self, order: Seek, at: StreamPartition) -> list[TaskInstruction]:
        """Begin a skip, or refuse it. The chunk that is under way may hold the record: then it is known afterwards."""
        if order in self._skips:
            return []
        why = self._passed(order, at)
        if why:
            return [self.refused(order, why)]
        self._skips[order] = known = not self.work.reads(at)
        return [_skipped(order, at)] if known else []

    def _passed(self, order: Seek, at: StreamPartition) -> str:
        """Why the record cannot be skipped any more; empty if it can."""
        here = self.inputs.positions.get(at)
        if here is None:
            return f"{self.task} does not read {at}"
        _, offset, *_ = cast("tuple[str, int]", order.to)
        return f"the record at {at} offset {offset} has been processed: the next one is {here}" if here > offset else ""

    def _skips_after(self, at: StreamPartition) -> list[TaskInstruction]:
        """The task has moved on in this partition: settle the skips that it has passed, and tell the intake of the others."""
        said: list[TaskInstruction] = []
        for order, known in list(self._skips.items()):
            if (order.stream, order.partition) != at:
                continue
            why = self._passed(order, at)
            if not why:
                self._skips[order] = True
                said += [] if known else [_skipped(order, at)]
                continue
            del self._skips[order]
            if known:
                self._remember(self.ledger.touch(), order)
                said += self.ledger.request_commit(urgent=True)
            else:
                said.append(self.refused(order, why))
        return said

    def _remember(self, made: int, order: Errand) -> None:
        """The next checkpoint contains the seek."""
        self.applied.append(order.request)
        del self.applied[:-MAX_APPLIED]
        self._durable.append((made, order.request))

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

    def _if_applied(self, order: Errand) -> list[TaskInstruction]:
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
        before += self._take_skips(at)
        return [
            self.refused(order, f"replaced by a later seek of {at}")
            for order in before
            if order and order.request != by
        ]

    def _take_skips(self, at: StreamPartition) -> list[Seek]:
        """Remove and return the skips of this partition."""
        here = [one for one in self._skips if (one.stream, one.partition) == at]
        for one in here:
            del self._skips[one]
        return here

    def refused(self, order: Errand, why: str) -> TaskInstruction:
        """The final answer to a seek that is not carried out."""
        return SendReport(SeekApplied(self.task, order.request, why))

    def _refusal(self, at: StreamPartition, order: Seek) -> str:
        inputs = self.inputs
        if at not in inputs.positions:
            return f"{self.task} does not read {at}"
        if inputs.by_stream[at.stream].kind == INTERMEDIATE and order.to != HERE:
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
        if self.inputs.is_other(at, event.topic):
            return (
                f"{at.stream} was deleted and re-created: the position {position} of {at} belongs to the topic of id "
                f"{self.inputs.topics[at]}, and its id is {event.topic} now"
            )
        if event.ends_before:
            return (
                f"{at} was recreated or truncated: the position was {event.position}, the log ends at {event.log_end}"
            )
        if event.log_start > position:
            count = event.log_start - position
            return f"{count} records of {at} are lost: the position was {position}, the log begins at {event.log_start}"
        return ""

    def otherwise(self, event: Lost) -> str:
        """What else an operator can do about a lost position."""
        if not self.inputs.is_other(event.at, event.topic):
            return ""
        return f"; or, if it holds the same records at the same offsets, with `headgate topics adopt JOB {event.at.stream}`"

    def lost(self, event: Lost, gone: str) -> list[TaskInstruction]:
        """Continue at the beginning of the log, or at its end, as the input declares."""
        on_lost = self.inputs.by_stream[event.at.stream].on_lost
        self._found[event.at] = event.topic
        said: list[TaskInstruction] = [TaskNote("lost", f"{gone}; continuing at the {on_lost}")]
        # of the same log, the end in the answer is only older than that of the run
        another = event.ends_before or self.inputs.is_other(event.at, event.topic)
        if another and self.inputs.cut(event.at, event.log_end):
            said.append(Bounds(dict(self.inputs.until), dict(self.inputs.bootstrap)))
        said += [self.refused(one, gone) for one in self._take_skips(event.at)]  # the record may be another one now
        if on_lost == "oldest":
            return said + self._go(event.at, None, event.log_start)
        self.inputs.held[event.at] = "lost"
        return said + self._ask(event.at, event.at, "newest")

    def _ask(self, what: Seek | StreamPartition, at: StreamPartition, to: Any) -> list[TaskInstruction]:
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
            why, to = self._refusal(at, what), self.inputs.positions[at] if what.to == HERE else what.to
            if not why and isinstance(to, int) and end is not None:
                if not offset <= to <= end:
                    why = f"there is no offset {to} in {at}: it begins at {offset} and ends before {end}"
                offset = to
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
        self._take_topic(at, order)
        made = self.ledger.touch()
        if order is not None:
            self._remember(made, order)
        inputs.advance(at, offset)
        if at in self._before_drain:
            inputs.held[at] = "seek"
        commit = self.ledger.request_commit(urgent=True)
        for one in self._take_skips(at):  # they came after the seek, and the intake forgets them at the seek
            self._skips[one] = False
        return [SeekConsumer({at: offset}), *self._skips_after(at), *commit]

    def _take_topic(self, at: StreamPartition, order: Seek | None) -> None:
        """The next position belongs to the topic that is there now. For a seek, the reader tells which one that is."""
        found = self._found.pop(at, "")
        self.inputs.leave_topic(at, adopt=order is not None and order.to == HERE)
        if order is None:
            self.inputs.identify(at, found)

    def after_chunk(self, at: StreamPartition) -> list[TaskInstruction]:
        """A chunk is over: settle the seeks that waited for it, and the skips that it has passed."""
        said = self._skips_after(at)
        return said + self._go_on(at)

    def _go_on(self, at: StreamPartition) -> list[TaskInstruction]:
        if at not in self._ready:
            return []
        order, offset = self._ready.pop(at)
        why = self._refusal(at, order) if order is not None else ""
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


def _moves(order: Errand) -> TypeGuard[Seek]:
    """Whether it moves a position."""
    return isinstance(order, Seek) and not skips(order.to)


def _skipped(order: Seek, at: StreamPartition) -> SkipRecord:
    _, offset, *row = cast("tuple[str, int]", order.to)
    return SkipRecord(at, offset, row[0] if row else None)
