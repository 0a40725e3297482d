"""The words between the committer of one producer incarnation and its edge.

One transaction at a time: begin → seal (each task contributes what is complete) → all sends have returned → all of their
futures have succeeded → commit → applied to the stores → the tasks are told. Between any two of these the process may die.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..machine import Tick

# ---------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Wanted:
    """A task has something to commit (its `RequestCommit`). `urgent`: now, not at the interval."""

    task: str
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class TaskGone:
    """The task is closed, abandoned or failed: it takes part no more, and nobody waits for its store."""

    task: str


@dataclass(frozen=True, slots=True)
class Begun:
    """Answer to `Begin`: the producer has an open transaction."""

    txn: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """Answer to `Seal`: these tasks contributed (those that had nothing are left out)."""

    txn: int
    tasks: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sent:
    """Every send of the transaction has returned."""

    txn: int


@dataclass(frozen=True, slots=True)
class Acked:
    """Every future of the transaction has succeeded."""

    txn: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The broker has committed. `positions`: by task, where its task log now ends."""

    txn: int
    positions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Applied:
    """A task's changes are in its store, with the task-log position."""

    txn: int
    task: str


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """A task's store would not take its changes (a full disk). The commit stands; only this task fails."""

    txn: int
    task: str
    why: str


@dataclass(frozen=True, slots=True)
class ProducerFailed:
    """Anything but success of begin, send, future or commit.

    `kind` is `failed` (certainly not committed), `fenced` (somebody else owns the id; not committed unless `unknown` says so) or
    `unknown` (it may have been committed). `target` and `tasks`: what could not be written, and which tasks wrote to it. `refused`: the
    target is well, and did not take what these tasks wrote.
    """

    why: str
    kind: str = "unknown"
    target: str = ""
    tasks: frozenset[str] = frozenset()
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """Take no new transaction once nothing is wanted any more; then `Finished`. For a worker that stops."""


# ---------------------------------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a transaction at the producer, if the outbox has not begun it with its first send; answer `Begun`."""

    txn: int


@dataclass(frozen=True, slots=True)
class Seal:
    """Synchronously give each of these tasks `CommitBegins(txn)` and carry out its `Contribute`; answer `Sealed`.

    What completes afterwards belongs to the next transaction.
    """

    txn: int
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Flush:
    """Wait until every send call has returned (`Sent`), then until every future has succeeded (`Acked`)."""

    txn: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit; answer `Committed`. Only ever said after `Acked`."""

    txn: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Nothing was contributed: abort the empty transaction (or keep it open; nothing is in it). No answer."""

    txn: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Write the task's changes and `log_position` into its store in one batch; answer `Applied` or `StoreRefused`."""

    txn: int
    task: str
    log_position: int


@dataclass(frozen=True, slots=True)
class TellDone:
    """Give the task `CommitDone(txn, log_position)`."""

    txn: int
    task: str
    log_position: int


@dataclass(frozen=True, slots=True)
class TellApplyFailed:
    """Give the task `ApplyFailed(why)`."""

    task: str
    why: str


@dataclass(frozen=True, slots=True)
class IncarnationOver:
    """The producer is finished. Give every task of the incarnation `CommitLost(why, blamed=task in blamed)`; start a new one.

    Before the new one asks for other grants, the blamed tasks are tried with backoff in a transaction of their own.
    """

    why: str
    kind: str
    target: str = ""
    blamed: frozenset[str] = frozenset()
    refused: bool = False
    """The target is well, and did not take what the blamed wrote."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is open, nothing is wanted: the producer may be closed."""


CommitEvent = (
    Wanted | TaskGone | Begun | Sealed | Sent | Acked | Committed | Applied | StoreRefused | ProducerFailed | Finish | Tick
)  # fmt: skip
CommitInstruction = (
    Begin | Seal | Flush | Commit | Abandoned | Apply | TellDone | TellApplyFailed | IncarnationOver | Finished
)  # fmt: skip
