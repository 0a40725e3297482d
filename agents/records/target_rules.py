"""What a topic refuses besides records that are too large: records too new or too old for its settings and, if it is compacted, records
without a key.

For one such record a broker refuses the whole batch, and with it the transaction of all tasks of a worker. So these records are found
before anything is sent, while it is still known which task wrote them. Promises: nothing that a broker accepts is refused, as long as its
clock and this one agree; a topic without such rules costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.errors import EnvironmentFault, HeadgateError


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


class UnknownTarget(EnvironmentFault):
    """The outbox does not know how many partitions this topic has. The task asks the broker, and runs the letter again."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"the number of partitions of {topic} is unknown", remedy="declare it as an output of the job")


FOREVER_MS = 2**63 - 1
HOUR_MS = 3_600_000
NO_TIMESTAMP = -1
"""Kafka's value for a record without a timestamp; the rules do not apply to it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one topic. A limit of None accepts every timestamp."""

    compacted: bool = False
    before_ms: int | None = None
    """How far in the past a timestamp may be."""
    after_ms: int | None = None
    """How far in the future a timestamp may be."""

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Rules | None:
        """The rules that follow from a topic's settings; None if it accepts everything.

        >>> Rules.of({"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"})
        Rules(compacted=True, before_ms=None, after_ms=None)
        """
        compacted = "compact" in config.get("cleanup.policy", "")
        before = after = None
        if config.get("message.timestamp.type") != "LogAppendTime":  # otherwise the broker sets the timestamps
            both = config.get("message.timestamp.difference.max.ms", str(FOREVER_MS))
            before = _bound(config.get("message.timestamp.before.max.ms", both))
            after = _bound(config.get("message.timestamp.after.max.ms", both))
        if not compacted and before is None and after is None:
            return None
        return cls(compacted, before, after)

    def takes(self, *, keyless: bool, oldest: int | None, newest: int) -> bool:
        """Whether the topic takes all records, of which some have no key, and which have such timestamps (`oldest`: of those that have
        one). If not, `refuse` says why."""
        if self.compacted and keyless:
            return False
        now = int(time.time() * 1000)
        if self.after_ms is not None and newest > now + self.after_ms:
            return False
        return self.before_ms is None or oldest is None or oldest >= now - self.before_ms

    def refuse(self, topic: str, keys: Sequence[bytes | None] | None, stamps: Sequence[int] | int) -> None:
        """Raise `NotTaken` for a record that the topic would refuse."""
        if self.compacted and (keys is None or None in keys):
            raise NotTaken(
                topic,
                0 if keys is None else keys.index(None),
                "has no key, but the topic is compacted and accepts only records with keys",
                f"give it a key, as in .to({topic!r}, key=…), or set cleanup.policy=delete on the topic",
            )
        if self.before_ms is None and self.after_ms is None:
            return
        now = int(time.time() * 1000)
        one = isinstance(stamps, int)
        if self.after_ms is not None and (newest := stamps if one else max(stamps)) > now + self.after_ms:
            raise NotTaken(
                topic,
                0 if one else stamps.index(newest),
                f"has the timestamp {newest}, which is {_length(newest - now)} in the future, but the limit is "
                f"{_length(self.after_ms)}",
                f"check that it is in milliseconds, or raise message.timestamp.after.max.ms of {topic}",
            )
        if self.before_ms is None:
            return
        first = stamps if one else min((s for s in stamps if s != NO_TIMESTAMP), default=now)
        if NO_TIMESTAMP != first < now - self.before_ms:
            raise NotTaken(
                topic,
                0 if one else stamps.index(first),
                f"has the timestamp {first}, which is {_length(now - first)} in the past, but the limit is {_length(self.before_ms)}",
                f"raise message.timestamp.before.max.ms of {topic}",
            )


def _bound(value: str) -> int | None:
    """The limit in ms; None if no timestamp can ever reach it."""
    return None if int(value) >= FOREVER_MS // 2 else int(value)


def _length(ms: int) -> str:
    """A length of time for people.

    >>> _length(3_600_000), _length(90_000)
    ('1 h', '90 s')
    """
    return f"{ms / HOUR_MS:.3g} h" if ms >= HOUR_MS else f"{ms / 1000:g} s"
