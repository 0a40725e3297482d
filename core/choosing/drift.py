"""Keeps streams that meet in a join of two streams together in event time, so that the join keeps rows for its distance and little more.

A partition waits while its next record is more than `max_drift` ms younger than that of another partition of its group: all streams whose
records reach the same join. What it decides:

- The oldest partition never waits, so a group always goes on.
- No one waits for a partition that is paused, ended or drained, or that is at its end: its next record may be long in coming.
- A partition that is empty, but not at its end, is waited for as with time alignment: for up to `align_wait` seconds after it became empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..names import StreamPartition
from .chooser import Choice, Chooser, Head, Wait, listed, sooner

UNKNOWN = -(2**63)
"""The time of a control frame, and of a record that cannot be read."""


class Drift:
    """The layer that holds back partitions which are too far ahead. `max_drift` and `align_wait` may be replaced at any time; 0 ms holds
    no one back."""

    def __init__(self, inner: Chooser, groups: Sequence[frozenset[str]], max_drift: int, align_wait: float) -> None:
        self.inner = inner
        self.groups = groups
        self.max_drift = max_drift
        self.align_wait = align_wait
        self._seen: dict[StreamPartition, int] = {}
        """The time of the last record that was seen at the head of a partition."""
        self._empty_since: dict[StreamPartition, float] = {}
        self._ahead: tuple[str, ...] = ()

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait | None:
        ahead: dict[StreamPartition, Head] = {}
        until: float | None = None
        if self.max_drift:
            for group in self.groups:
                members = [head for head in heads if head.at.stream in group]
                low, over = self._oldest(members, now)
                until = sooner(until, over) if over is not None else until
                if low is not None:
                    limit = low + self.max_drift
                    ahead |= {head.at: head for head in members if head.takeable and head.timestamp > limit}
        self._ahead = tuple(map(str, ahead))
        if not ahead:
            return self.inner.choose(heads, now)
        answer = self.inner.choose([head for head in heads if head.at not in ahead], now)
        if isinstance(answer, Choice):
            return answer
        why = answer.why if answer is not None else ""
        if answer is not None and answer.until is not None:
            until = sooner(until, answer.until)
        return Wait(until, why or f"aligning the streams of a join: {listed(list(ahead.values()))} is ahead")

    def _oldest(self, members: Sequence[Head], now: float) -> tuple[int | None, float | None]:
        """The time that no one may be too far ahead of, and when the wait for an empty partition ends."""
        low: int | None = None
        until: float | None = None
        for head in members:
            at = head.at
            if head.ready == 0 and head.active and (head.end is None or head.offset < head.end):
                over = self._empty_since.setdefault(at, now) + self.align_wait
                if now >= over:
                    continue
                until = sooner(until, over)
                time = self._seen.get(at, UNKNOWN)
            else:
                self._empty_since.pop(at, None)
                if not head.takeable or head.timestamp == UNKNOWN:
                    continue
                time = self._seen[at] = head.timestamp
            low = time if low is None else min(low, time)
        return low, until

    def taken(self, choice: Choice, records: int) -> None:
        self.inner.taken(choice, records)

    def describe(self) -> Mapping[str, object]:
        return {"max drift": self.max_drift, "ahead": list(self._ahead), "then": self.inner.describe()}
