"""What a task says of itself for its status: each report with its beginning, and its end.

    degraded, retry, failure, failed     last; they are over, or withdrawn, when what they say is no longer so
    all others                           say what happened at one moment

Promises: a report that lasts is open only while it holds, and a repeated one keeps its beginning. What is over stays to be read until
another one takes its place; what is withdrawn is gone. All reports end with the task's actor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

DEGRADED, RETRY, FAILURE, FAILED = "degraded", "retry", "failure", "failed"
LASTING = frozenset((DEGRADED, RETRY, FAILURE, FAILED))


@dataclass(slots=True)
class Note:
    """One report."""

    detail: str
    since_ms: int
    until_ms: int | None = None
    """None: it holds."""
    traceback: str = ""


class StatusNotes:
    """The reports of one task, each by what it is about."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.said: dict[str, Note] = {}

    def open(self, what: str) -> Note | None:
        """The report about this, if it holds."""
        found = self.said.get(what)
        return found if found is not None and found.until_ms is None else None

    def say(self, what: str, detail: str, traceback: str = "") -> None:
        """Report something."""
        before, now_ms = self.open(what), self._now_ms()
        if before is not None and before.detail == detail:
            return
        self.said[what] = Note(detail, now_ms, None if what in LASTING else now_ms, traceback)

    def over(self, *whats: str) -> None:
        """What these said holds no longer."""
        for what in whats:
            if (note := self.open(what)) is not None:
                note.until_ms = self._now_ms()

    def withdraw(self, what: str) -> None:
        """Take a report back: nothing about it is worth reading any more."""
        self.said.pop(what, None)
