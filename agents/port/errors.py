"""How a transaction can fail, and what is known afterwards.

After any of these the producer is dead and a new incarnation must be made: a transaction that aborts would leave aiokafka's
sequence numbers behind, and a commit without an answer may have happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...core.errors import EnvironmentFault
from ...core.names import StreamPartition


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a broker said of a batch that it did not take: its own code, which records it was for, and why."""

    code: int
    why: str
    records: tuple[int, ...] = ()
    """Their numbers within the batch; none when it was not about records."""
    first: str = ""
    """The first of them, for people."""


class NotSent(EnvironmentFault):
    """A batch was not handed over; its `__cause__` is for the producer to explain."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What was raised for a batch, as far as its producer can tell what it means."""

    said: str
    """For people."""
    code: int = 0
    """Kafka's; 0 when it was no broker who said it, -1 for one that the client does not know."""
    fenced: bool = False
    elsewhere: bool = False
    """The topic has no such partition."""
    forbidden: frozenset[str] = frozenset()
    """The topics that may not be written, where a broker took none of the partitions for their sake."""
    refusal: Refusal | None = None
    error: OutboxError | None = None
    """It was said in headgate's own words already."""


GONE, FORBIDDEN = 3, 29
"""Kafka's codes for a topic or partition that does not exist, and for one that may not be written."""


class OutboxError(EnvironmentFault):
    """The producer is dead. `committed`: whether the transaction counts; None when that is not known."""

    committed: bool | None = False


class Fenced(OutboxError):
    """Another process has initialised this transactional id, or the transaction outlived its timeout: this incarnation is over."""

    def __init__(self, detail: str, *, committed: bool | None = False) -> None:
        self.committed = committed
        super().__init__(
            f"this worker's incarnation is fenced: {detail}", remedy="none needed: it restarts as a new incarnation"
        )


class OutcomeUnknown(OutboxError):
    """The commit was asked for and not answered: it may have happened. The checkpoint in the task log tells."""

    committed = None

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"the outcome of a commit is unknown: {detail}", remedy="none needed: the task log is read again"
        )


class ProducerBroken(OutboxError):
    """The producer failed before the commit was asked for; nothing of the transaction counts."""


class Spoiled(ProducerBroken):
    """Outputs of some tasks stand in the transaction without their positions, so it must not commit. The others are not to blame."""

    def __init__(self, tasks: frozenset[str], why: str) -> None:
        self.tasks = tasks
        names = ", ".join(sorted(tasks))
        super().__init__(f"what {names} wrote cannot be committed: {why or 'its positions are not in the transaction'}")


class TargetFailed(OutboxError):
    """One target cannot be written. `tasks` wrote to it; the other tasks are not to blame."""

    refused = False
    """The target is well: it was one of the records that it did not take. Then `tasks` wrote that record."""

    def __init__(self, target: StreamPartition, tasks: frozenset[str], why: str, code: int = GONE) -> None:
        self.target, self.tasks, self.code = target, tasks, code
        super().__init__(f"{target} cannot be written: {why}", remedy=_remedy(target.stream, code))


class RecordRefused(TargetFailed):
    """The broker did not take a record, or a batch, and it is not the topic's fault."""

    refused = True

    def __init__(self, target: StreamPartition, tasks: frozenset[str], why: str) -> None:
        super().__init__(target, tasks, why)
        self.remedy = f"write another record, or change what {target.stream} accepts; `seek` continues after what the task has read"


OF_A_TARGET = frozenset({3, 5, 6, 10, 16, 17, 18, 29, 44, 56})
"""Codes that speak of a topic or partition: gone, without a leader, forbidden, with another limit. Whoever writes there is concerned."""
OF_THE_PRODUCER = frozenset({31, 35, 45, 48, 49, 51, 52, 53, 59, 120})
"""Codes that speak of the producer, its transaction or its permissions: no record and no target is to blame."""
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
    cause: Cause, target: StreamPartition, everybody: frozenset[str], parts: Iterable[tuple[int, str]] = ()
) -> OutboxError:
    """The typed error for what a send to one target raised. Any refusal of a broker that is not about the producer has a target.

    `everybody`: who writes to the target; `parts`: who wrote the batch, up to which of its records.
    """
    if cause.error is not None:
        return cause.error
    if cause.elsewhere:
        return TargetFailed(target, everybody, f"partition {target.partition} is not in the topic's metadata")
    refusal = cause.refusal
    code = refusal.code if cause.code == UNKNOWN and refusal is not None else cause.code
    if cause.fenced or code in FENCED:
        return Fenced(cause.said)
    if code in OF_A_TARGET:
        return TargetFailed(target, everybody, cause.said, code)
    if not code or code in OF_THE_PRODUCER:
        return ProducerBroken(
            f"writing to {target} failed: {cause.said}", remedy="none needed: a new incarnation is started"
        )
    about = refusal if refusal is not None and refusal.code == code else None
    return RecordRefused(target, _wrote(about, list(parts)) or everybody, _said(cause.said, code, about))


UNKNOWN = -1
"""What a client makes of every code that it does not know."""


def _wrote(refusal: Refusal | None, parts: list[tuple[int, str]]) -> frozenset[str]:
    """Who wrote the records that were refused; all who wrote the batch, where the broker names none."""
    if refusal is None or not refusal.records:
        return frozenset(task for _, task in parts)
    return frozenset(task for task in (_of(index, parts) for index in refusal.records) if task)


def _of(index: int, parts: list[tuple[int, str]]) -> str:
    return next((task for end, task in parts if index < end), "")


def _said(said: str, code: int, refusal: Refusal | None) -> str:
    text = (refusal.why if refusal is not None else "") or said
    which = f" (record {refusal.records[0]} of a batch: {refusal.first})" if refusal and refusal.records else ""
    return f"the broker refused it with error {code}: {text}{which}"
