"""The layers above the rule: bootstrap first, higher tiers before lower ones, and batches from one partition.

Each layer decides which heads the next one sees, and shortens its choice where more would break the layer's own promise. Empty heads are
passed on, because a rule may have to wait for them.

- `Bootstrap`: while a bootstrap partition has not reached the end that it had at the start, only bootstrap partitions are read, and none
  beyond that end. A partition that is empty, ended, or drained counts as having reached it, so a drain during a bootstrap does not get
  stuck. A paused one does not count: pausing it also pauses what depends on it.
- `Tiers`: higher tiers first. After a start, no lower tier is read before the higher ones have reached the ends that they had at the start;
  a tier whose end is not known yet has not. (Here paused partitions hold nothing up: priority is about latency, not correctness.) From then
  on, a lower tier that has had something ready for `max_starve` seconds gets one chunk. A tier whose rule waits does not block lower ones.
  Priorities may change at any time.
- `Batching`: up to `size` records from one partition before the rule is asked again; exactly `size`, over several chunks if needed. It
  applies within a tier, so a batch never delays a higher one, and it ends early where it would break the rule. Of a partition that is read
  in columns, a choice may be `Head.bulk` times `size`, so that a fetch is not cut; the batch is over once `size` records have been taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..names import StreamPartition
from .chooser import Choice, Chooser, Head, Rule, Wait, listed, sooner


class Bootstrap:
    """Reads nothing else until every bootstrap partition has reached the end that it had at the start."""

    def __init__(self, inner: Chooser) -> None:
        self.inner = inner
        self._lagging: tuple[str, ...] = ()

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait | None:
        lagging = [head for head in heads if head.bootstrap and head.lagging]
        self._lagging = tuple(str(head.at) for head in lagging)
        if not lagging:
            return self.inner.choose(heads, now)
        answer = self.inner.choose(lagging, now)
        if not isinstance(answer, Choice):
            return Wait(answer.until if answer else None, f"bootstrapping: waiting for {listed(lagging)}")
        end = next(head.start_end for head in lagging if head.at == answer.at)
        if end is None:
            return answer
        return answer._replace(up_to_offset=end if answer.up_to_offset is None else min(answer.up_to_offset, end))

    def taken(self, choice: Choice, records: int) -> None:
        self.inner.taken(choice, records)

    def describe(self) -> Mapping[str, object]:
        return {"bootstrapping": list(self._lagging), "then": self.inner.describe()}


class Tiers:
    """Reads higher priorities first. `inner` makes a chooser for each tier when the tier is first seen.

    `priorities`: by stream, if not 0. They and `max_starve` may be replaced at any time, and apply from the next choice on.
    """

    def __init__(
        self,
        inner: Callable[[], Chooser],
        priorities: Mapping[str, int] | None = None,
        max_starve: float | None = 10.0,
    ) -> None:
        self._make = inner
        self.priorities = dict(priorities or {})
        self.max_starve = max_starve
        self._choosers: dict[int, Chooser] = {}
        self._waiting_since: dict[int, float] = {}

    def _of(self, tier: int) -> Chooser:
        chooser = self._choosers.get(tier)
        if chooser is None:
            chooser = self._choosers[tier] = self._make()
        return chooser

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait | None:
        by_tier: dict[int, list[Head]] = {}
        priority = self.priorities.get
        for head in heads:
            tier = priority(head.at[0], 0)
            held = by_tier.get(tier)
            if held is None:
                by_tier[tier] = [head]
            else:
                held.append(head)
        if len(by_tier) == 1:
            (tier,) = by_tier
            self._waiting_since.clear()
            return self._of(tier).choose(heads, now)
        order = sorted(by_tier, reverse=True)
        allowed, held_up = self._caught_up(order, by_tier)
        self._note_waiting(allowed, by_tier, now)
        until: float | None = None
        why = ""
        for tier in (*self._starving(allowed, now), *allowed):
            answer = self._of(tier).choose(by_tier[tier], now)
            if isinstance(answer, Choice):
                self._waiting_since[tier] = now
                return answer
            if answer is not None:
                until = sooner(until, answer.until)
                why = why or answer.why
        return Wait(until, why or (f"catching up before lower priorities: {listed(held_up)}" if held_up else ""))

    @staticmethod
    def _caught_up(order: list[int], by_tier: Mapping[int, list[Head]]) -> tuple[list[int], list[Head]]:
        """The tiers that may be read: down to the first that has not caught up with its start; and the heads that hold it up."""
        for n, tier in enumerate(order[:-1]):
            # The plain comparison comes first: it settles nearly all cases, and this runs for every chunk.
            behind = [
                head
                for head in by_tier[tier]
                if head.start_unknown or (head.start_end is not None and head.offset < head.start_end)
            ]
            if behind and (held_up := [head for head in behind if head.lagging and not head.paused]):
                return order[: n + 1], held_up
        return order, []

    def _note_waiting(self, allowed: list[int], by_tier: Mapping[int, list[Head]], now: float) -> None:
        """Note since when each allowed tier has had something ready. Its turn resets this."""
        before, self._waiting_since = self._waiting_since, {}
        for tier in allowed:
            if any(head.ready > 0 and not head.paused and not head.ended for head in by_tier[tier]):
                self._waiting_since[tier] = before.get(tier, now)

    def _starving(self, allowed: list[int], now: float) -> list[int]:
        """The tiers that have waited too long, longest first. The highest tier is among them, so that it does not starve in turn."""
        if self.max_starve is None:
            return []
        since = self._waiting_since
        over = [tier for tier in allowed if tier in since and now - since[tier] >= self.max_starve]
        return sorted(over, key=lambda tier: (since[tier], tier))

    def taken(self, choice: Choice, records: int) -> None:
        self._of(self.priorities.get(choice.at.stream, 0)).taken(choice, records)

    def describe(self) -> Mapping[str, object]:
        return {
            "priorities": dict(sorted(self.priorities.items())),
            "max starve": self.max_starve,
            "waiting since": {str(tier): since for tier, since in sorted(self._waiting_since.items(), reverse=True)},
            "tiers": {str(tier): self._choosers[tier].describe() for tier in sorted(self._choosers, reverse=True)},
        }


class Batching:
    """Stays with a partition for up to `size` records, as long as the rule permits and something is ready."""

    def __init__(self, rule: Rule, size: int) -> None:
        self.rule = rule
        self.size = size
        self._at: StreamPartition | None = None
        self._left = 0

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait | None:
        answer: Choice | Wait | None = self._stay(heads, now) if self._left > 0 else None
        if answer is None:
            self._left = 0
            answer = self.rule.choose(heads, now)
            if isinstance(answer, Choice):
                self._at, self._left = answer.at, self.size
        if not isinstance(answer, Choice):
            return answer
        bulk = next((head.bulk for head in heads if head.at == answer.at), 1)
        most = self._left if bulk == 1 else self.size * bulk
        return answer._replace(max_records=most) if answer.max_records > most else answer

    def _stay(self, heads: Sequence[Head], now: float) -> Choice | None:
        for head in heads:
            if head.at == self._at:
                return self.rule.stay(head, heads, now) if head.takeable else None
        return None

    def taken(self, choice: Choice, records: int) -> None:
        if choice.at == self._at:
            self._left -= records
        self.rule.taken(choice, records)

    def describe(self) -> Mapping[str, object]:
        return {
            "batch of": self.size,
            "from": str(self._at or ""),
            "left": max(0, self._left),
            "then": self.rule.describe(),
        }
