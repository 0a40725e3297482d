"""Warnings about brokers that do not answer and inputs that are not read.

Each is a single log line, repeated at growing intervals, however many clients or inputs are affected.

- `brokers`: clients of this process that cannot connect or get no answer. The first warning comes after three seconds; the interval then
  doubles, up to five minutes. Any answer ends the series.
- `Unread`: the inputs of one worker that are not read, each with its reason. The first is logged at once, later ones together. What is
  reported is withdrawn when the input is read again, and when the task that reads it leaves this worker.
- `WatchedTime`: a clock for silence. It advances only while someone looks, so a blocked or suspended process blames no broker.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..logger import Logger, configured

FIRST_S = 3.0
LONGEST_S = 300.0
NAMED = 3
MOST_S = 2.0
"""The most that one look can wait for an answer, and a little more."""
log = Logger("headgate.connect")


class Absence:
    """Brokers that do not answer, for all clients of this process together."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._next = 0.0
        self._pause = FIRST_S
        self._warned = False

    def missed(self, what: str, why: str, to_do: str) -> None:
        """Note one more failed attempt, and log a warning if one is due."""
        now = self._clock()
        if self._since is None:
            self._since, self._pause = now, FIRST_S
            self._next = now + FIRST_S
        if now < self._next:
            return
        self._warned, self._pause = True, min(LONGEST_S, self._pause * 2)
        self._next = now + self._pause
        for_s = round(now - self._since)
        if configured():
            log.warning("no broker answers", wanted_for=what, for_s=for_s, why=why, to_do=to_do)
        else:  # a command: it has no log
            print(f"Still waiting: no broker answers for {for_s} s ({why}); {to_do}", file=sys.stderr, flush=True)

    def answered(self) -> None:
        """Note that a broker answered; this ends the series of warnings."""
        if self._warned and configured() and self._since is not None:
            log.info("a broker answers again", after_s=round(self._clock() - self._since))
        self._since, self._warned = None, False


brokers = Absence()


class WatchedTime:
    """Time as far as someone has looked: at most `MOST_S` pass between two looks.

    >>> watched = WatchedTime(100.0)
    >>> watched.look(101.0), watched.look(161.0)
    (1.0, 3.0)
    """

    def __init__(self, mono: float) -> None:
        self._mono = mono
        self._s = 0.0

    def look(self, mono: float) -> float:
        """The time now."""
        self._s += min(max(0.0, mono - self._mono), MOST_S)
        self._mono = mono
        return self._s


class Unread:
    """The inputs of a worker that are not read, and the reason for each."""

    def __init__(self, say: Any = log, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._why: dict[str, str] = {}
        self._since: float = 0.0
        self._most = 0
        self._pause = 1.0
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, at: str, why: str) -> None:
        """Note that this input is not read."""
        if not self._why:
            self._since, self._pause, self._most = self._clock(), 1.0, 0
        self._why[at] = why
        self._most = max(self._most, len(self._why))
        if self._timer is None:
            self._now()

    def back(self, at: str) -> None:
        """Note that this input is read again."""
        if self._withdrawn(at):
            word = "input is read again" if self._most == 1 else "inputs are read again"
            self._say.info(word, inputs=self._most, after_s=round(self._clock() - self._since))

    def left(self, at: str) -> None:
        """Note that the task which reads this input has left this worker, or has failed; others may read it now."""
        if self._withdrawn(at):
            word = "input is not read here any more" if self._most == 1 else "inputs are not read here any more"
            self._say.info(word, inputs=self._most, after_s=round(self._clock() - self._since))

    def _withdrawn(self, at: str) -> bool:
        """Withdraw one report. Returns whether it was the last one."""
        if self._why.pop(at, None) is None or self._why:
            return False
        self.stop()
        return True

    def stop(self) -> None:
        """Log nothing more."""
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
