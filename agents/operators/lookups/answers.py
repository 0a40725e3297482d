"""Answers of a service that are still good: at most so many, and none for longer than its time to live.

Promises: what was not used for longest makes room first. An answer is good from the time at which it came; a clock that goes back makes
none good again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

MISSING = object()
"""There is no answer; None is one."""


class Answers:
    """By question. `most` answers at a time, each for `ttl_ms`."""

    def __init__(self, most: int, ttl_ms: int) -> None:
        self._most = most
        self._ttl_ms = ttl_ms
        self._kept: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._now_ms = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, question: Hashable, now_ms: int) -> Any:
        """The answer, if there is one that is still good; else `MISSING`."""
        found = self._kept.get(question)
        if found is None:
            return MISSING
        until_ms, answer = found
        if until_ms <= self._at(now_ms):
            del self._kept[question]
            return MISSING
        self._kept.move_to_end(question)
        return answer

    def keep(self, question: Hashable, answer: Any, now_ms: int) -> None:
        """An answer has come."""
        self._kept[question] = self._at(now_ms) + self._ttl_ms, answer
        self._kept.move_to_end(question)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def _at(self, now_ms: int) -> int:
        self._now_ms = max(self._now_ms, now_ms)
        return self._now_ms
