"""The owner of an incarnation's producer, and the order of the steps of a commit.

There is one transaction at a time, and one owner of it:

    idle → beginning → sealing → flushing → committing → applying → idle
                      (any failure of the producer: → over)

What this machine decides and promises:

- A transaction begins at most every `interval_s`, at once for an urgent request, and never without a request. Requests during a transaction
  share the next one.
- A task that takes part sends a frame to each partition that it writes to, whatever is in it. So one that has worked on little so far, and
  has a backlog (it is *patient*), waits for up to `PATIENCE_S`. If only such tasks ask, the one that has waited longest takes part.
- *Sealing* divides: everything that a task has completed by then is in this transaction; what completes later is in the next one.
- `Commit` is given only after every send has returned and every future has succeeded (a client that commits although a batch has failed
  commits the rest, and loses that batch).
- A task's store is written, and the task is notified, only after the broker has committed. So a store is never ahead of its log.
- Any failure, or a transaction longer than `timeout_s`, ends the incarnation: nothing is retried on a producer in an unknown state. Only
  tasks that wrote to the failed target are blamed.
- A store that refuses its changes fails only its own task: the transaction is durable, and the log contains the changes. The task's
  requests since then still count: its completed work leaves with a last commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from ...machine import IGNORED, IllegalEvent, Machine, Now, TableRow, Tick, rules
from .commit_protocol import (
    Applied,
    Apply,
    Begin,
    Begun,
    Commit,
    CommitEvent,
    CommitInstruction,
    Committed,
    Flush,
    Flushed,
    IncarnationOver,
    Paced,
    ProducerFailed,
    Seal,
    Sealed,
    StoreRefused,
    TaskGone,
    TellApplyFailed,
    TellDone,
    Wanted,
)


class CommitterState(StrEnum):
    """The state of an incarnation's transaction."""

    IDLE = "idle"
    BEGINNING = "beginning"
    SEALING = "sealing"
    FLUSHING = "flushing"
    COMMITTING = "committing"
    APPLYING = "applying"
    OVER = "over"


PATIENCE_S = 2.0
"""How long a patient task waits at most, beyond the commits that it takes part in anyway."""
OPEN = (CommitterState.BEGINNING, CommitterState.SEALING, CommitterState.FLUSHING, CommitterState.COMMITTING)
"""The producer has a transaction whose outcome is not known."""
LIVE = (CommitterState.IDLE, *OPEN, CommitterState.APPLYING)
_NEXT = (CommitterState.IDLE, CommitterState.BEGINNING)
"""The states after a transaction: the next one begins, or none."""

_late = (Begun, Sealed, Flushed, Committed, Applied, StoreRefused, ProducerFailed, Wanted, TaskGone, Paced, Tick)


def _table() -> tuple[TableRow, ...]:
    s = CommitterState
    return rules(
        [
            (
                s.IDLE,
                Wanted,
                (s.IDLE, s.BEGINNING),
                "urgent, or the interval has passed: begin; else wait for the interval",
            ),
            (s.IDLE, Tick, (s.IDLE, s.BEGINNING), "the interval has passed"),
            (s.BEGINNING, Begun, s.SEALING, "now the tasks contribute"),
            (s.SEALING, Sealed, (s.FLUSHING, *_NEXT), "nothing contributed: nothing to commit"),
            (s.FLUSHING, Flushed, s.COMMITTING, "every send has returned, and every future has succeeded"),
            (
                s.COMMITTING,
                Committed,
                (s.APPLYING, *_NEXT),
                "durable: the stores may follow; no task left: nothing to apply",
            ),
            (s.APPLYING, Applied, (s.APPLYING, *_NEXT), "a store has followed; its task is notified"),
            (s.APPLYING, StoreRefused, (s.APPLYING, *_NEXT), "one store has not: its task fails alone"),
            (OPEN, Tick, ("", s.OVER), "too long: the outcome is unknown", "look_at_the_time"),
            ((*OPEN, s.APPLYING), Wanted, "", "shares the next one", "note_wanted"),
            ((s.IDLE, s.BEGINNING, s.FLUSHING, s.COMMITTING), TaskGone, "", "it wants nothing more"),
            (s.SEALING, TaskGone, "", "its contribution counts, and no store is waited for", "gone_while_sealing"),
            (s.APPLYING, TaskGone, ("", *_NEXT), "no store is waited for any more", "gone_while_applying"),
            (s.APPLYING, Tick, IGNORED, "stores have no deadline here: they are the worker's own disk"),
            (LIVE, Paced, "", "the next one follows at another interval"),
            (LIVE, ProducerFailed, s.OVER, "a producer in an unknown state writes nothing more"),
            (s.OVER, _late, IGNORED, "too late: the incarnation is over"),
        ]
    )


@dataclass(frozen=True, slots=True)
class CommitView:
    """What a committer shows."""

    state: CommitterState
    txn: int
    """The number of the current transaction, or of the last one."""
    tasks: frozenset[str]
    """The tasks that contributed to it and are waited for."""
    interval_s: float
    due_s: float
    """From when on the next transaction may begin, if it is not urgent."""

    @property
    def open(self) -> bool:
        """Whether the producer has a transaction whose outcome is not known."""
        return self.state in OPEN


class Committer(Machine[CommitEvent, CommitInstruction]):
    """Owns the producer of an incarnation. The top of this file describes the states and promises.

    >>> committer = Committer(interval_s=0.2)
    >>> committer.handle(Wanted("Partition 0", urgent=True), Now(10.0, 0))
    [Begin(txn=1)]
    """

    TABLE: ClassVar[tuple[TableRow, ...]] = _table()
    INITIAL: ClassVar[str] = CommitterState.IDLE
    GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {"live": LIVE, "open": OPEN}

    def __init__(self, interval_s: float = 0.2, timeout_s: float = 60.0) -> None:
        super().__init__()
        self.interval_s = interval_s
        self.timeout_s = timeout_s
        self.txn = 0
        """The number of the current transaction, or of the last one."""
        self.tasks: frozenset[str] = frozenset()
        """The tasks that contributed to it and are waited for."""
        self._wanted: dict[str, float] = {}
        """The tasks that asked, and since when they wait."""
        self._pressing: set[str] = set()
        """Those that asked urgently."""
        self._begun_s = float("-inf")
        self._positions: dict[str, int] = {}
        self._gone: set[str] = set()
        """Tasks that went between sealing and its answer. Their contributions are committed; no one waits for their stores."""

    @property
    def _due_s(self) -> float:
        return self._begun_s + self.interval_s

    @property
    def view(self) -> CommitView:
        """What it shows now."""
        return CommitView(CommitterState(self.state), self.txn, self.tasks, self.interval_s, self._due_s)

    def deadline(self) -> float | None:
        if self.state == CommitterState.IDLE:
            return self._due_s if self._wanted else None
        return self._begun_s + self.timeout_s if self.state in OPEN else None

    # ------------------------------------------------------------------------------------------------- wanting, beginning

    def on_Wanted(self, event: Wanted, now: Now) -> list[CommitInstruction]:
        self._want(event, now)
        return self._rest(now)

    def note_wanted(self, event: Wanted, now: Now) -> list[CommitInstruction]:
        """A task wants a commit while one is under way."""
        self._want(event, now)
        return []

    def _want(self, event: Wanted, now: Now) -> None:
        self._wanted.setdefault(event.task, now.mono)
        if event.urgent:
            self._pressing.add(event.task)

    def on_Paced(self, event: Paced, now: Now) -> list[CommitInstruction]:
        self.interval_s = event.interval_s
        return []

    def on_TaskGone(self, event: TaskGone, now: Now) -> list[CommitInstruction]:
        self._satisfied(event.task)
        self.tasks -= {event.task}
        return []

    def _satisfied(self, task: str) -> None:
        self._wanted.pop(task, None)
        self._pressing.discard(task)

    def gone_while_sealing(self, event: TaskGone, now: Now) -> list[CommitInstruction]:
        """It may have contributed already."""
        self._gone.add(event.task)
        return self.on_TaskGone(event, now)

    def gone_while_applying(self, event: TaskGone, now: Now) -> list[CommitInstruction]:
        """It may have been the last one whose store is waited for."""
        waited = event.task in self.tasks
        self.on_TaskGone(event, now)
        return self._when_applied(now) if waited else []

    def on_Tick(self, event: Tick, now: Now) -> list[CommitInstruction]:
        return self._rest(now) if self._wanted else []

    def look_at_the_time(self, event: Tick, now: Now) -> list[CommitInstruction]:
        """A transaction may stand for too long."""
        if now.mono >= self._begun_s + self.timeout_s:
            why = f"transaction {self.txn} has been in '{self.state}' for {self.timeout_s:g} s"
            return self._over(ProducerFailed(why, "unknown"))
        return []

    def _rest(self, now: Now) -> list[CommitInstruction]:
        """Begin the next transaction if it is due; otherwise wait."""
        self.state = CommitterState.IDLE
        if not self._wanted or not (self._pressing or now.mono >= self._due_s):
            return []
        self.state = CommitterState.BEGINNING
        self.txn += 1
        self._begun_s = now.mono
        return [Begin(self.txn)]

    # --------------------------------------------------------------------------------------------------- one transaction

    def on_Begun(self, event: Begun, now: Now) -> list[CommitInstruction]:
        self._current(event, event.txn)
        self.state = CommitterState.SEALING
        waits = event.patient - self._pressing
        long_ago = now.mono - PATIENCE_S
        asked = tuple(task for task, since_s in self._wanted.items() if task not in waits or since_s <= long_ago)
        asked = asked or tuple(self._wanted)[:1]
        for task in asked:
            self._satisfied(task)
        self.tasks = frozenset(asked)
        self._gone.clear()
        return [Seal(self.txn, asked)]

    def on_Sealed(self, event: Sealed, now: Now) -> list[CommitInstruction]:
        self._current(event, event.txn)
        self.tasks = event.tasks - self._gone
        for task in event.tasks:  # a task that has written contributes, also if it was to wait
            self._satisfied(task)
        if not event.tasks:
            return self._rest(now)
        self.state = CommitterState.FLUSHING
        return [Flush(self.txn)]

    def on_Flushed(self, event: Flushed, now: Now) -> list[CommitInstruction]:
        self._current(event, event.txn)
        if not self.tasks <= event.positions.keys():
            raise IllegalEvent(self, event)
        self.state = CommitterState.COMMITTING
        self._positions = dict(event.positions)
        return [Commit(self.txn)]

    def on_Committed(self, event: Committed, now: Now) -> list[CommitInstruction]:
        self._current(event, event.txn)
        self.state = CommitterState.APPLYING
        apply: list[CommitInstruction] = [Apply(self.txn, task, self._positions[task]) for task in sorted(self.tasks)]
        return apply + self._when_applied(now)

    def on_Applied(self, event: Applied, now: Now) -> list[CommitInstruction]:
        self._current(event, event.txn)
        if event.task not in self.tasks:
            return []
        self.tasks -= {event.task}
        return [TellDone(self.txn, event.task), *self._when_applied(now)]

    def on_StoreRefused(self, event: StoreRefused, now: Now) -> list[CommitInstruction]:
        self._current(event, event.txn)
        if event.task not in self.tasks:
            return []
        self.tasks -= {event.task}
        return [TellApplyFailed(event.task, event.why), *self._when_applied(now)]

    def _when_applied(self, now: Now) -> list[CommitInstruction]:
        return [] if self.tasks else self._rest(now)

    def _current(self, event: CommitEvent, txn: int) -> None:
        """An answer about another than the current transaction is a mistake of the edge."""
        if txn != self.txn:
            raise IllegalEvent(self, event)

    # -------------------------------------------------------------------------------------------------------- the end

    def on_ProducerFailed(self, event: ProducerFailed, now: Now) -> list[CommitInstruction]:
        return self._over(event)

    def _over(self, failure: ProducerFailed) -> list[CommitInstruction]:
        self.state = CommitterState.OVER
        self.tasks = frozenset()
        self._wanted.clear()
        self._pressing.clear()
        return [IncarnationOver(failure.why, failure.kind, failure.target, self.blamed(failure), failure.refused)]

    def blamed(self, failure: ProducerFailed) -> frozenset[str]:
        """The tasks that become `failed`: those that wrote to the failed target; none if there is no target."""
        return failure.tasks if failure.target else frozenset()
