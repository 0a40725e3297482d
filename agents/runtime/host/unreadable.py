"""Records of the job's own topics that this worker skipped: written by a newer version or by hand, or damaged.

Every reader of the job's own topics skips such a record. Promises: each is counted by topic, `/api/status` shows the last one, and the log
names each new reason once, not once per record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...logger import Logger

log = Logger("headgate.unreadable")


@dataclass(slots=True)
class Passed:
    """The records of one topic that were skipped."""

    count: int = 0
    last: str = ""
    """Partition and offset of the last one."""
    why: str = ""


class Unreadable:
    """Counts by topic; used only on the worker's event loop."""

    def __init__(self) -> None:
        self.topics: dict[str, Passed] = {}

    def passed(self, topic: str, partition: int, offset: int, why: str, *, count: int = 1) -> None:
        """Count a skipped record, or several of which this is the last."""
        one = self.topics.setdefault(topic, Passed())
        one.count += count
        one.last = f"{partition}@{offset}"
        if one.why != why:
            one.why = why
            log.warning("a record of the job's own topic is skipped", topic=topic, at=one.last, why=why)

    def document(self) -> dict[str, dict[str, Any]]:
        """The counts as plain values, for `/api/status`."""
        return {
            topic: {"records": one.count, "last": one.last, "why": one.why}
            for topic, one in sorted(self.topics.items())
        }
