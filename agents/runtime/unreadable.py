"""What this worker has read of the job's own topics and could not understand: a newer version's message, somebody's by hand, rubbish.

Every reader of an own topic goes on behind such a record. What is promised here: each is counted by its topic, the last one can be found
(`/api/status`), and each new reason is said once in the log, not once a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

log = structlog.get_logger("headgate.unreadable")


@dataclass(slots=True)
class Passed:
    """The records of one topic that were passed unread."""

    count: int = 0
    last: str = ""
    """Where the last one stands: partition and offset."""
    why: str = ""


class Unreadable:
    """Counts by topic; used on the worker's own loop."""

    def __init__(self) -> None:
        self.topics: dict[str, Passed] = {}

    def passed(self, topic: str, partition: int, offset: int, why: str, *, count: int = 1) -> None:
        """One more, or the last of several."""
        one = self.topics.setdefault(topic, Passed())
        one.count += count
        one.last = f"{partition}@{offset}"
        if one.why != why:
            one.why = why
            log.warning(
                "a record of the job's own topic cannot be decoded and is skipped", topic=topic, at=one.last, why=why
            )

    def document(self) -> dict[str, dict[str, Any]]:
        """As plain values."""
        return {
            topic: {"records": one.count, "last": one.last, "why": one.why}
            for topic, one in sorted(self.topics.items())
        }
