"""One heap of future events, one source of randomness, and clocks that cannot be trusted.

A run is a pure function of its seed. All randomness comes from `Schedule.rng`, all pending events are in one heap, ordered by time and then
by the order in which they were scheduled, and nothing is ever taken out of a set. Every process has a monotonic clock with an origin of its
own (so that comparing two of them fails) and a wall clock that can jump.

An event for a frozen process waits until it wakes; one for a process that has ended is dropped. Kills, stalls and zombies need no more than
that.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from headgate.core.machine import Now

SET = re.compile(r"frozenset\(\{([^}]*)\}\)")
START_MS = 1_700_000_000_000


def in_order(found: re.Match[str]) -> str:
    """Sort the printed elements of a set, whose order depends on the process's hash seed."""
    return "{" + ", ".join(sorted(found[1].split(", "))) + "}"


class Host:
    """A process on a machine, which can be killed or frozen. It owns events, and has clocks of its own."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule = schedule
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self.mono_origin = schedule.rng.uniform(0.0, 10_000.0)
        self.wall_offset_ms = 0
        self._now = (-1.0, 0, Now(0.0, 0))

    def now(self) -> Now:
        """The time as this process sees it. It is asked more often than it changes."""
        moment, known = self.schedule.moment, self._now
        if known[0] == moment and known[1] == self.wall_offset_ms:
            return known[2]
        now = Now(moment + self.mono_origin, START_MS + int(moment * 1000) + self.wall_offset_ms)
        self._now = moment, self.wall_offset_ms, now
        return now

    def freeze(self, seconds: float) -> None:
        """Stop it, like SIGSTOP: it sees everything later, and believes that no time has passed."""
        self.frozen_until = max(self.frozen_until, self.schedule.moment + seconds)

    def kill(self) -> None:
        """End it, like SIGKILL."""
        self.alive = False


class Schedule:
    """The heap. `post` schedules an event of a process, `at` one of the world."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.moment = 0.0
        self.steps = 0
        """The number of events given to machines."""
        self.turns = 0
        """The number of events taken from the heap."""
        self._order = 0
        self._heap: list[tuple[float, int, Host | None, Callable[..., Any], tuple[Any, ...]]] = []
        self.trace: list[str] | None = None

    @property
    def wall_ms(self) -> int:
        """The broker's wall clock, which does not jump."""
        return START_MS + int(self.moment * 1000)

    def at(self, delay: float, call: Callable[..., Any], *args: Any) -> None:
        """Call it after `delay` seconds."""
        self._order += 1
        heappush(self._heap, (self.moment + delay, self._order, None, call, args))

    def post(self, host: Host, delay: float, call: Callable[..., Any], *args: Any) -> None:
        """The same for a process: the call waits while the process is frozen, and is dropped if it was killed."""
        self._order += 1
        heappush(self._heap, (self.moment + delay, self._order, host, call, args))

    def latency(self) -> float:
        """The duration of a network call: mostly short, sometimes not."""
        draw = self.rng.random()
        return 0.0005 + draw * 0.004 if draw < 0.95 else draw * 0.05

    def step(self) -> bool:
        """Take the next event from the heap and run it. Returns False if nothing is left."""
        heap = self._heap
        while heap:
            moment, order, host, call, args = heappop(heap)
            if moment > self.moment:
                self.moment = moment
            if host is not None:
                if not host.alive:
                    continue
                if host.frozen_until > self.moment:
                    heappush(heap, (host.frozen_until, order, host, call, args))
                    continue
            self.turns += 1
            call(*args)
            return True
        return False

    def note(self, who: str, what: str, *details: object) -> None:
        """Add a line to the trace. Callers check `schedule.trace is not None` first, so that nothing is formatted in vain."""
        if self.trace is not None:
            text = SET.sub(in_order, " ".join(map(str, details)))
            self.trace.append(f"{self.steps:6d} {self.moment:9.3f}  {who:<14} {what:<18} {text}")
