"""When a gathered fetch is sent: shortly before the commit that its records can still join.

Under `exactly_once` no one sees a record before its commit. So when a partition has brought records and is read up to its end, its next
fetch is held back for a share of the commit interval: one fetch brings what would otherwise come in hundreds, and the chunk is as large.
Of a stream between two stages, a fetch would mostly bring nothing until the next commit of its producers. Nothing is held back of a
partition with a backlog, and the first record after a silence is fetched at once.

What it decides: how long before the commit the fetches are sent. That is as long as fetching and processing took of late.

Promise: no fetch is held back for longer than `LONGEST_S`, which is less than a long poll.
"""

from __future__ import annotations

LONGEST_S = 0.45
"""The longest time that a fetch is held back, however long the commit interval is."""
SHORTEST_S = 0.01
"""A shorter time is not worth holding a fetch back."""
LEAST_LEAD_S = 0.003
GRACE_S = 0.015
"""How long a commit waits for records that were fetched for it and are still being processed."""
WEIGHT = 0.1
"""The weight of the latest time in the average."""
FADE = 0.99
"""While the lead is too long for gathering, it becomes shorter by this with each fetch."""


class Gathering:
    """The lead of one worker's gathered fetches."""

    def __init__(self) -> None:
        self.lead_s = 0.006

    def until(self, now_s: float, due_s: float, interval_s: float) -> float | None:
        """Until when to hold a fetch back, if the next commit may begin at `due_s`; None: not at all.

        >>> Gathering().until(10.0, 10.106, 0.2)
        10.1
        """
        lead_s = self.lead_s
        if lead_s > interval_s / 4:
            self.lead_s *= FADE  # tried again after a while
            return None
        until = max(due_s, now_s) - lead_s
        if until < now_s + lead_s:  # too late for that commit: the fetch is for the one after it
            until += interval_s
        until = min(until, now_s + LONGEST_S)
        return until if until >= now_s + SHORTEST_S else None

    def arrived(self, took_s: float) -> None:
        """All that a gathered fetch brought has been processed, this long after the fetch was sent."""
        self.lead_s = max(LEAST_LEAD_S, self.lead_s + WEIGHT * (took_s - self.lead_s))
