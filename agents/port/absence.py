"""What does not answer is said in one line at a time, and ever more rarely, however many clients and inputs wait for it.

- `brokers`: clients of this process that cannot start, or ask and get no answer: said after three seconds, and again after twice that, up
  to once in five minutes; any answer ends it.
- `Unread`: the inputs of one worker that are not read, each with its reason: the first at once, then all of them together.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog

FIRST_S = 3.0
LONGEST_S = 300.0
NAMED = 3
log = structlog.get_logger("headgate.connect")


class Absence:
    """Brokers that do not answer, as everybody in this process finds them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._next = 0.0
        self._pause = FIRST_S
        self._told = False

    def missed(self, what: str, why: str, to_do: str) -> None:
        """One more attempt was in vain."""
        now = self._clock()
        if self._since is None:
            self._since, self._pause = now, FIRST_S
            self._next = now + FIRST_S
        if now < self._next:
            return
        self._told, self._pause = True, min(LONGEST_S, self._pause * 2)
        self._next = now + self._pause
        for_s = round(now - self._since)
        if structlog.is_configured():
            log.warning("no broker answers", wanted_for=what, for_s=for_s, why=why, to_do=to_do)
        else:  # a verb: nothing is logged there
            print(f"Still waiting: no broker answers for {for_s} s ({why}); {to_do}", file=sys.stderr, flush=True)

    def answered(self) -> None:
        """Somebody did answer."""
        if self._told and structlog.is_configured() and self._since is not None:
            log.info("a broker answers again", after_s=round(self._clock() - self._since))
        self._since, self._told = None, False


brokers = Absence()


class Unread:
    """The inputs of a worker that are not read, and why."""

    def __init__(self, say: Any = log, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._why: dict[str, str] = {}
        self._since: float = 0.0
        self._most = 0
        self._pause = 1.0
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, at: str, why: str) -> None:
        """This one is not read."""
        if not self._why:
            self._since, self._pause, self._most = self._clock(), 1.0, 0
        self._why[at] = why
        self._most = max(self._most, len(self._why))
        if self._timer is None:
            self._now()

    def back(self, at: str) -> None:
        """It is read again, or by somebody else."""
        if self._why.pop(at, None) is None or self._why:
            return
        self.stop()
        word = "input is read again" if self._most == 1 else "inputs are read again"
        self._say.info(word, inputs=self._most, after_s=round(self._clock() - self._since))

    def stop(self) -> None:
        """Say nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now(self) -> None:
        self._timer = None
        if not self._why:
            return
        names, for_s = list(self._why), round(self._clock() - self._since)
        why = Counter(self._why.values()).most_common(1)[0][0]
        if len(names) == 1:
            self._say.warning("input is not read", input=names[0], why=why, for_s=for_s)
        else:
            more = [f"and {len(names) - NAMED} more"] if len(names) > NAMED else []
            shown = names[:NAMED] + more
            self._say.warning("inputs are not read", count=len(names), inputs=shown, why=why, for_s=for_s)
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._now)
        self._pause = min(LONGEST_S, self._pause * 2)
