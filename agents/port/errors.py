"""How writing and committing can fail, and what is known afterwards.

After any of these errors the producer is dead and a new incarnation must be made: aiokafka's sequence numbers are wrong after an aborted
transaction, and a commit without an answer may have succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...core.errors import EnvironmentFault
from ...core.names import StreamPartition


@dataclass(frozen=True, slots=True)
class Refusal:
    """A broker's answer to a batch that it rejected: the error code, the rejected records and the reason."""

    code: int
    why: str
    records: tuple[int, ...] = ()
    """Their indexes within the batch; empty if the broker named none."""
    first: str = ""
    """A description of the first of them, for people."""


class NotSent(EnvironmentFault):
    """A batch was not handed over. `Producer.explain` interprets its `__cause__`."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The meaning of an error that a batch raised, as far as the producer can tell."""

    said: str
    """The error as text, for people."""
    code: int = 0
    """Kafka's error code; 0 if the error did not come from a broker, -1 if the client does not know the code."""
    fenced: bool = False
    elsewhere: bool = False
    """The topic has no such partition."""
    forbidden: frozenset[str] = frozenset()
    """Topics without write permission, when the broker rejected all partitions of the request because of them."""
    refusal: Refusal | None = None
    error: OutboxError | None = None
    """Set if the error is one of headgate's own already."""


GONE, FORBIDDEN = 3, 29
"""Kafka's error codes for "unknown topic or partition" and for "topic authorization failed"."""


class OutboxError(EnvironmentFault):
    """The producer is dead. `committed`: whether its transaction was committed; None if that is not known."""

    committed: bool | None = False


class Fenced(OutboxError):
    """This incarnation is over: another process initialised the transactional id, or the transaction outlived its timeout."""

    def __init__(self, detail: str, *, committed: bool | None = False) -> None:
        self.committed = committed
        super().__init__(
            f"this worker's incarnation is fenced: {detail}", remedy="none needed: it restarts as a new incarnation"
        )


class OutcomeUnknown(OutboxError):
    """The commit was sent but not answered, so it may have succeeded. The checkpoint in the task log shows whether it did."""

    committed = None

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"the outcome of a commit is unknown: {detail}", remedy="none needed: the task log is read again"
        )


class ProducerBroken(OutboxError):
    """The producer failed before the commit was sent. Nothing of the transaction counts."""


class Spoiled(ProducerBroken):
    """The transaction contains outputs of some tasks without their positions, so it must not commit. The other tasks are not to blame."""

    def __init__(self, tasks: frozenset[str], why: str) -> None:
        self.tasks = tasks
        names = ", ".join(sorted(tasks))
        super().__init__(f"what {names} wrote cannot be committed: {why or 'its positions are not in the transaction'}")


class TargetFailed(OutboxError):
    """One target cannot be written. `tasks` are those that wrote to it; the others are not to blame."""

    refused = False
    """True if the target is healthy but rejected a record. `tasks` are then those that wrote the record."""

    def __init__(self, target: StreamPartition, tasks: frozenset[str], why: str, code: int = GONE) -> None:
        self.target, self.tasks, self.code = target, tasks, code
        super().__init__(f"{target} cannot be written: {why}", remedy=_remedy(target.stream, code))


class RecordRefused(TargetFailed):
    """The broker rejected a record or a batch, and the topic is not the reason."""

    refused = True

    def __init__(self, target: StreamPartition, tasks: frozenset[str], why: str) -> None:
        super().__init__(target, tasks, why)
        self.remedy = f"write another record, or change what {target.stream} accepts; `seek` continues after what the task has read"


OF_A_TARGET = frozenset({3, 5, 6, 10, 16, 17, 18, 29, 44, 56})
"""Codes about a topic or partition: missing, leaderless, forbidden or with a lower limit. All tasks that write there are affected."""
OF_THE_PRODUCER = frozenset({31, 35, 45, 48, 49, 51, 52, 53, 59, 120})
"""Codes about the producer, its transaction or its permissions: neither a record nor a target is to blame."""
FENCED = frozenset({47, 90})


def _remedy(topic: str, code: int) -> str:
    if code == FORBIDDEN:
        return f"grant WRITE on the topic {topic}"
    if code in (10, 18):
        return f"raise max.message.bytes of {topic}"
    if code in (GONE, 5, 6):
        return (
            f"create the topic {topic} again, or wait until it has a leader; `headgate topics plan` prints the command"
        )
    return f"check the topic {topic}"


def classify(
    cause: Cause, target: StreamPartition, writers: frozenset[str], parts: Iterable[tuple[int, str]] = ()
) -> OutboxError:
    """The typed error for a failed send to one target. Any broker error that is not about the producer names a target.

    `writers`: the tasks that write to the target. `parts`: which task wrote which part of the batch, each with the index behind its last
    record.
    """
    if cause.error is not None:
        return cause.error
    if cause.elsewhere:
        return TargetFailed(target, writers, f"partition {target.partition} is not in the topic's metadata")
    refusal = cause.refusal
    code = refusal.code if cause.code == UNKNOWN and refusal is not None else cause.code
    if cause.fenced or code in FENCED:
        return Fenced(cause.said)
    if code in OF_A_TARGET:
        return TargetFailed(target, writers, cause.said, code)
    if not code or code in OF_THE_PRODUCER:
        return ProducerBroken(
            f"writing to {target} failed: {cause.said}", remedy="none needed: a new incarnation is started"
        )
    about = refusal if refusal is not None and refusal.code == code else None
    return RecordRefused(target, _wrote(about, list(parts)) or writers, _said(cause.said, code, about))


UNKNOWN = -1
"""The code that a client reports for any code that it does not know."""


def _wrote(refusal: Refusal | None, parts: list[tuple[int, str]]) -> frozenset[str]:
    """The tasks that wrote the rejected records, or all that wrote to the batch if the broker names no records."""
    if refusal is None or not refusal.records:
        return frozenset(task for _, task in parts)
    return frozenset(task for task in (_of(index, parts) for index in refusal.records) if task)


def _of(index: int, parts: list[tuple[int, str]]) -> str:
    return next((task for end, task in parts if index < end), "")


def _said(said: str, code: int, refusal: Refusal | None) -> str:
    text = (refusal.why if refusal is not None else "") or said
    which = f" (record {refusal.records[0]} of a batch: {refusal.first})" if refusal and refusal.records else ""
    return f"the broker refused it with error {code}: {text}{which}"
