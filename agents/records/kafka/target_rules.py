"""What a topic accepts besides records of a certain size: timestamps within its limits and, if it is compacted, only records with keys.

For one record that it does not accept a broker refuses the whole batch, and with it the transaction of all tasks of a worker. So these
records are found before anything is sent, while it is still known which task wrote them: one without a key is refused, and one that is too
new or too old for the topic gets the nearest timestamp that the topic accepts (`timestamps`). Promise: nothing that a broker accepts is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....core.errors import HeadgateError
from ...learning import MustLearn


class TooLarge(HeadgateError):
    """A record that is too large for its target topic; found before it was sent. `index`: its index among the emitted values."""

    def __init__(self, topic: str, index: int, size: int, limit: int) -> None:
        self.topic, self.index, self.size, self.limit = topic, index, size, limit
        super().__init__(
            f"a record for {topic} takes {size} bytes, but the topic accepts only {limit}",
            remedy=f"write smaller records, or raise max.message.bytes of {topic}",
        )


class NotTaken(HeadgateError):
    """A record that its target topic refuses for a reason other than its size; found before it was sent. `index`: its index among the
    emitted values."""

    def __init__(self, topic: str, index: int, why: str, remedy: str) -> None:
        self.topic, self.index = topic, index
        super().__init__(f"a record for {topic} {why}", remedy=remedy)


class UnknownTarget(MustLearn):
    """The outbox does not know how many partitions this topic has."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"the number of partitions of {topic} is unknown",
            question=("topic", topic),
            lacks=f"the topic {topic}, which user code writes to, has no metadata",
            learn=lambda topics: topics.learn(topic),
            remedy="declare it as an output of the job",
        )


FOREVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one topic. A limit of None accepts every timestamp."""

    compacted: bool = False
    before_ms: int | None = None
    """How far in the past a timestamp may be."""
    after_ms: int | None = None
    """How far in the future a timestamp may be."""
    retention_ms: int | None = None
    """How old a record may become before Kafka deletes it; None if it is not deleted by its age."""

    @property
    def accepts_all(self) -> bool:
        """Whether it has no limit for timestamps."""
        return self.before_ms is None and self.after_ms is None

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Rules | None:
        """The rules that follow from a topic's settings; None if it accepts and keeps everything.

        >>> Rules.of({"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"})
        Rules(compacted=True, before_ms=None, after_ms=None, retention_ms=None)
        """
        policy = config.get("cleanup.policy", "")
        compacted = "compact" in policy
        before = after = retention = None
        if config.get("message.timestamp.type") != "LogAppendTime":  # otherwise the broker sets the timestamps
            both = config.get("message.timestamp.difference.max.ms", str(FOREVER_MS))
            before = _bound(config.get("message.timestamp.before.max.ms", both))
            after = _bound(config.get("message.timestamp.after.max.ms", both))
            retention = _bound(config.get("retention.ms", "-1")) if "delete" in policy else None
        if not compacted and before is None and after is None and retention is None:
            return None
        return cls(compacted, before, after, retention)

    def expires(self, stamp: int, now_ms: int) -> bool:
        """Whether Kafka deletes a record of this timestamp as soon as it can, because of its age.

        >>> Rules(retention_ms=10).expires(5, 20), Rules(retention_ms=10, before_ms=10).expires(5, 20)
        (True, False)
        """
        return self.kept_ms is not None and stamp < now_ms - self.kept_ms

    @property
    def kept_ms(self) -> int | None:
        """How old a record that is written may be without being deleted at once. None: any, as nothing is deleted by its age, or no older
        timestamp is accepted."""
        kept = self.retention_ms
        return None if kept is None or (self.before_ms is not None and self.before_ms <= kept) else kept

    def refuse(self, topic: str, keys: Sequence[bytes | None] | None) -> None:
        """Raise `NotTaken` for a record that the topic would refuse."""
        if self.compacted and (keys is None or None in keys):
            raise NotTaken(
                topic,
                0 if keys is None else keys.index(None),
                "has no key, but the topic is compacted and accepts only records with keys",
                f"give it a key, as in .to({topic!r}, key=…), or set cleanup.policy=delete on the topic",
            )


def _bound(value: str) -> int | None:
    """The limit in ms; None if no timestamp can ever reach it."""
    return int(value) if 0 <= int(value) < FOREVER_MS // 2 else None
