"""How a transaction can fail, and what is known afterwards.

After any of these the producer is dead and a new incarnation must be made: a transaction that aborts would leave aiokafka's
sequence numbers behind, and a commit without an answer may have happened.
"""

from __future__ import annotations

from aiokafka.errors import (
    InvalidProducerEpoch,
    InvalidTopicError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    PolicyViolationError,
    ProducerFenced,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from ..core.errors import EnvironmentFault, HeadgateError
from ..core.names import StreamPartition


class TooLarge(HeadgateError):
    """A record that its target topic cannot take; found before anything was sent. `index`: which of the values emitted."""

    def __init__(self, topic: str, index: int, size: int, limit: int) -> None:
        self.topic, self.index, self.size, self.limit = topic, index, size, limit
        super().__init__(
            f"a record for {topic} takes {size} bytes, and the topic takes {limit}",
            remedy=f"write smaller records, or raise max.message.bytes of {topic}",
        )


class UnknownTarget(EnvironmentFault):
    """Nobody has told the outbox how wide this topic is; whoever can ask the broker does so, and runs the letter again."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"the number of partitions of {topic} is not known", remedy="declare it as an output of the job"
        )


def unknown_target(error: BaseException | None) -> str | None:
    """The topic that a letter failed on, if that was all."""
    while error is not None and not isinstance(error, UnknownTarget):
        error = error.__cause__
    return None if error is None else error.topic


class OutboxError(EnvironmentFault):
    """The producer is dead. `committed`: whether the transaction counts; None when that is not known."""

    committed: bool | None = False


class Fenced(OutboxError):
    """Another process has initialised this transactional id, or the transaction outlived its timeout: this incarnation is over."""

    def __init__(self, detail: str, *, committed: bool | None = False) -> None:
        self.committed = committed
        super().__init__(
            f"this worker's incarnation is fenced: {detail}", remedy="none needed: it starts again as a new incarnation"
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

    def __init__(self, target: StreamPartition, tasks: frozenset[str], cause: BaseException | str) -> None:
        self.target, self.tasks, self.cause = target, tasks, cause
        why = cause if isinstance(cause, str) else (str(cause) or type(cause).__name__)
        super().__init__(f"{target} cannot be written: {why}", remedy=_remedy(target.stream, cause))


_OF_A_TARGET = (
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnknownTopicOrPartitionError,
    TopicAuthorizationFailedError,
    NotLeaderForPartitionError,
    LeaderNotAvailableError,
    InvalidTopicError,
    PolicyViolationError,
)


def _remedy(topic: str, cause: BaseException | str) -> str:
    if isinstance(cause, TopicAuthorizationFailedError):
        return f"grant WRITE on the topic {topic}"
    if isinstance(cause, MessageSizeTooLargeError | RecordListTooLargeError):
        return f"raise max.message.bytes of {topic}"
    if isinstance(cause, str | UnknownTopicOrPartitionError | NotLeaderForPartitionError):
        return (
            f"create the topic {topic} again, or wait until it has a leader; `headgate topics plan` prints the command"
        )
    return f"check the topic {topic}"


def classify(cause: BaseException, target: StreamPartition, tasks: frozenset[str]) -> OutboxError:
    """The typed error for what a send to one target raised."""
    if isinstance(cause, OutboxError):
        return cause
    if isinstance(cause, ProducerFenced | InvalidProducerEpoch):
        return Fenced(str(cause) or type(cause).__name__)
    if isinstance(cause, _OF_A_TARGET):
        return TargetFailed(target, tasks, cause)
    if isinstance(cause, AssertionError) and "partition" in str(cause).lower():
        return TargetFailed(target, tasks, f"partition {target.partition} is not in the topic's metadata")
    return ProducerBroken(f"writing to {target} failed: {cause!r}", remedy="none needed: a new incarnation is made")
