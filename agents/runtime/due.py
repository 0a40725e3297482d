"""What the operators of a task want next (a timer of user code, a batch that is full or old), and the clock that waits for it.

Promises: what has been asked for is not asked for again before it began; when nothing is wanted, nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable

from ..port.port import Clock, Timer

Appointment = tuple[int, str]
"""When (wall ms), and for what."""


class Due:
    """The clock of one task."""

    def __init__(self, next_one: Callable[[], Appointment | None], clock: Clock, tell: Callable[[str], bool]):
        """`tell` hears what is due, and answers whether it will be seen to."""
        self._next = next_one
        self._clock = clock
        self._tell = tell
        self._timer: Timer | None = None
        self._asked: set[str] = set()

    def watch(self) -> None:
        """Look what is wanted next, and wait for that alone."""
        self.stop()
        found = self._next()
        if found is not None and found[1] not in self._asked:
            at, key = found
            wait_s = max(0.0, (at - self._clock.now().wall) / 1000)
            self._timer = self._clock.call_later(wait_s, self._is_due, key)

    def _is_due(self, key: str) -> None:
        self._timer = None
        self._asked.add(key)
        if not self._tell(key):
            self._asked.discard(key)

    def begins(self, key: str) -> None:
        """What was asked for is done now; from here on it may be wanted again."""
        self._asked.discard(key)

    def stop(self) -> None:
        """Wait for nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
