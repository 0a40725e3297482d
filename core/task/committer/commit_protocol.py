"""The events and instructions of the committer of one producer incarnation.

One transaction at a time: begin → seal (each task contributes what is complete) → flush (everything is sent and acknowledged) → commit →
apply to the stores → tell the tasks. The process may die between any two of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...machine import Tick

# ---------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Wanted:
    """A task has something to commit (its `RequestCommit`). `urgent`: now, not at the interval."""

    task: str
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Paced:
    """Transactions follow each other at this interval from now on, also the one that is waited for."""

    interval_s: float


@dataclass(frozen=True, slots=True)
class TaskGone:
    """The task is closed, abandoned or failed: it takes part no more, and no one waits for its store."""

    task: str


@dataclass(frozen=True, slots=True)
class Begun:
    """Answers `Begin`: the producer is free. `patient`: the tasks that have worked on little so far, with a backlog behind it."""

    txn: int
    patient: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sealed:
    """Answers `Seal`: these tasks contributed (those without changes are left out)."""

    txn: int
    tasks: frozenset[str]


@dataclass(frozen=True, slots=True)
class Flushed:
    """Answers `Flush`. `positions`: by task, where its task log ends once this is committed."""

    txn: int
    positions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """Answers `Commit`: the broker has committed."""

    txn: int


@dataclass(frozen=True, slots=True)
class Applied:
    """A task's changes are in its store, with the task-log position."""

    txn: int
    task: str


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """A task's store refused its changes (a full disk). The commit is valid; only this task fails."""

    txn: int
    task: str
    why: str


@dataclass(frozen=True, slots=True)
class ProducerFailed:
    """Begin, a send, a future or the commit has failed.

    `kind` is `failed` (certainly not committed), `fenced` (another process owns the id; not committed unless `unknown` says so) or
    `unknown` (it may have been committed). `target` and `tasks`: what could not be written, and which tasks wrote to it. `refused`: the
    target is healthy, but rejected what these tasks wrote.
    """

    why: str
    kind: str = "unknown"
    target: str = ""
    tasks: frozenset[str] = frozenset()
    refused: bool = False


# ---------------------------------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class Begin:
    """Make the producer finish what it sends ahead of the commit; answer `Begun`. Requests that come meanwhile share the transaction."""

    txn: int


@dataclass(frozen=True, slots=True)
class Seal:
    """Synchronously give each of these tasks, and all that have written, `CommitBegins(txn)`, and carry out its `Contribute`; answer
    `Sealed`.

    What completes afterwards belongs to the next transaction.
    """

    txn: int
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Flush:
    """Send everything. Answer `Flushed` when every send has returned and every future has succeeded."""

    txn: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit; answer `Committed`. Given only after `Flushed`."""

    txn: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Write the task's changes and `log_position` into its store in one batch; answer `Applied` or `StoreRefused`."""

    txn: int
    task: str
    log_position: int


@dataclass(frozen=True, slots=True)
class TellDone:
    """Give the task `CommitDone(txn)`."""

    txn: int
    task: str


@dataclass(frozen=True, slots=True)
class TellApplyFailed:
    """Give the task `ApplyFailed(why)`."""

    task: str
    why: str


@dataclass(frozen=True, slots=True)
class IncarnationOver:
    """The producer cannot be used any more. Give every task of the incarnation `CommitLost(why, blamed=task in blamed)`; start a new one.

    Before the new one takes other grants, the blamed tasks are tried with backoff in a transaction of their own.
    """

    why: str
    kind: str
    target: str = ""
    blamed: frozenset[str] = frozenset()
    refused: bool = False
    """The target is healthy, but rejected what the blamed tasks wrote."""


CommitEvent = (
    Wanted | Paced | TaskGone | Begun | Sealed | Flushed | Committed | Applied | StoreRefused | ProducerFailed | Tick
)
CommitInstruction = Begin | Seal | Flush | Commit | Apply | TellDone | TellApplyFailed | IncarnationOver
