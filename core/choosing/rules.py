"""The three rules for partitions of equal rank: round robin, time aligned, starting alignment.

- `RoundRobin`: the partition that was served least recently. Between two turns of a partition, every other ready partition has had at most
  one. A partition that stays ready waits for no more turns than there are partitions.
- `TimeAligned`: the oldest timestamp first, and never a record beyond the first timestamp of another partition. An empty but active
  partition might have something older, so the rule waits for it, for up to `align_wait` after it became empty; then it is ignored until it
  has something again.
- `StartingAlignment`: for streams without useful times. It compares each partition's distance to its end with the distance at the start,
  and serves the one that has fallen behind most, or, if all are ahead, the one that is least ahead. A turn lasts until the next partition
  is in the same position, but for at least `grain` records (`Head.bulk` times as many in columns), so that two streams in step are not
  read record by record.

With equal claims, the partition that was served least recently comes first, then the order of names decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..names import StreamPartition
from .chooser import Choice, Head, Wait, listed, sooner


class _Turns:
    """Records when each partition was last served, as a count of turns."""

    def __init__(self) -> None:
        self._turn = 0
        self._last: dict[StreamPartition, int] = {}

    def taken(self, choice: Choice, records: int) -> None:
        if records > 0:
            self._turn += 1
            self._last[choice.at] = self._turn

    def _before(self, one: StreamPartition, other: StreamPartition) -> bool:
        """Whether the first partition comes before the second."""
        own, its = self._last.get(one, 0), self._last.get(other, 0)
        return own < its or (own == its and one < other)

    def describe(self) -> Mapping[str, object]:
        order = sorted(self._last, key=self._last.__getitem__)
        return {"rule": type(self).__name__, "least recent first": [str(at) for at in order]}


class RoundRobin(_Turns):
    """Serves the partition that was served least recently.

    >>> rule = RoundRobin()
    >>> heads = [Head(StreamPartition("a", n), ready=5) for n in range(2)]
    >>> first = rule.choose(heads, 0.0); rule.taken(first, 5); second = rule.choose(heads, 0.0)
    >>> str(first.at), str(second.at)
    ('a:0', 'a:1')
    """

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait:
        last = self._last
        best: Head | None = None
        oldest = 0
        for head in heads:
            if head.ready > 0 and not head.paused and not head.ended:
                turn = last.get(head.at, 0)
                if best is None or turn < oldest or (turn == oldest and head.at < best.at):
                    best, oldest = head, turn
        return Choice(best.at, best.ready) if best is not None else Wait()

    def stay(self, head: Head, heads: Sequence[Head], now: float) -> Choice | None:
        return Choice(head.at, head.ready)


class TimeAligned(_Turns):
    """Serves the oldest timestamp first. Waits up to `align_wait` seconds for partitions that might have something older."""

    def __init__(self, align_wait: float) -> None:
        super().__init__()
        self.align_wait = align_wait
        self._empty_since: dict[StreamPartition, float] = {}

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait:
        missing, until = self._missing(heads, now)
        best: Head | None = None
        bound: int | None = None
        for head in heads:
            if head.ready <= 0 or head.paused or head.ended:
                continue
            if best is None:
                best = head
            elif head.timestamp < best.timestamp or (
                head.timestamp == best.timestamp and self._before(head.at, best.at)
            ):
                best, bound = head, best.timestamp
            elif bound is None or head.timestamp < bound:
                bound = head.timestamp
        if best is None:
            return Wait()
        if missing and not self._timeless(best):
            return Wait(until, f"aligning: waiting for {listed(missing)}")
        return Choice(best.at, best.ready, bound)

    def stay(self, head: Head, heads: Sequence[Head], now: float) -> Choice | None:
        ready = [other for other in heads if other.takeable]
        if self._missing(heads, now)[0] or any(other.timestamp < head.timestamp for other in ready):
            return None
        bound = min((other.timestamp for other in ready if other is not head), default=None)
        return Choice(head.at, head.ready, bound)

    def _missing(self, heads: Sequence[Head], now: float) -> tuple[list[Head], float | None]:
        """The empty partitions that are still waited for, and when the first of these waits ends."""
        missing: list[Head] = []
        until: float | None = None
        since = self._empty_since
        for head in heads:
            if head.ready > 0:
                if since:
                    since.pop(head.at, None)
            elif head.active:
                over = since.setdefault(head.at, now) + self.align_wait
                if now < over:
                    missing.append(head)
                    until = sooner(until, over)
        return missing, until

    @staticmethod
    def _timeless(head: Head) -> bool:
        """Whether this is a control frame: it has no time of its own, and should be read early."""
        return head.timestamp <= -(2**63)

    def describe(self) -> Mapping[str, object]:
        empty = {str(at): since for at, since in sorted(self._empty_since.items())}
        return {**super().describe(), "align wait": self.align_wait, "empty since": empty}


class StartingAlignment(_Turns):
    """Keeps the distances to the ends in the proportion that they had at the start."""

    def __init__(self, grain: int = 500) -> None:
        super().__init__()
        self.grain = grain
        self._at_start: dict[StreamPartition, int] = {}

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait:
        best: Head | None = None
        most = next_most = 0
        others = False
        at_start = self._at_start
        for head in heads:
            at, offset, end = head.at, head.offset, head.end
            distance = end - offset if end is not None else head.ready
            start = at_start.get(at)
            if start is None:
                start = distance if head.start_end is None else max(0, head.start_end - offset)
                at_start[at] = start
            if head.ready <= 0 or head.paused or head.ended:
                continue
            fallen = distance - start
            if best is None or fallen > most or (fallen == most and self._before(at, best.at)):
                others, next_most = best is not None, most
                best, most = head, fallen
            elif not others or fallen > next_most:
                others, next_most = True, fallen
        if best is None:
            return Wait()
        least = self.grain * best.bulk
        return Choice(best.at, min(best.ready, max(most - next_most, least)) if others else best.ready)

    def stay(self, head: Head, heads: Sequence[Head], now: float) -> Choice | None:
        return Choice(head.at, head.ready)

    def describe(self) -> Mapping[str, object]:
        distances = {str(at): distance for at, distance in sorted(self._at_start.items())}
        return {**super().describe(), "distance at start": distances}
