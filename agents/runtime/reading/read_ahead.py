"""How far the partitions of a worker are read ahead, all together.

Each task has a consumer of its own, and each partition may be read ahead by `buffer.bytes`. What 64 tasks read ahead is not worth 64 times
as much memory: the loop works on one letter at a time, and needs only so much that the next ones are there when it ends.

What it decides: whether a partition may be fetched now, and whose turn it is when there is room again. Promises:

- A partition is read further only while all partitions of the worker hold less than `SHARED` times `buffer.bytes`, together with the chunks
  that were taken and with what may be fetched for them.
- Those that hold nothing wait for room in the order in which they came. So letters are as large with 64 partitions as with four, and only
  some of them are in memory at a time.
- The queue never stands still: while there is no room, its first partition is fetched all the same each `TURN_S`, with at most
  `WITHOUT_ROOM` bytes. Two kinds do not wait at all: what jobs have written (a shuffle must not stand still because inputs are read ahead),
  and a partition of a task that holds something of others, as the task may need it to go on. So tasks that are stuck take nothing from the
  others but the share that they would read ahead.
- With `SHARED` partitions or fewer, each is read ahead as if it were alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ...port.port import Clock, Timer

SHARED = 4
"""As many partitions may be read ahead in full."""
TURN_S = 0.1
"""For how long the queue stands still at most."""
WITHOUT_ROOM = 256 << 10
"""What a fetch asks for at most while there is no room: where letters take long, one of each partition comes to be in memory."""


class ReadAhead:
    """What all partitions of a worker hold, and the queue of those that wait for room."""

    def __init__(self, clock: Clock) -> None:
        self.held = 0
        """The bytes that are in memory, and those that may come for partitions of which more is known to be there."""
        self._clock = clock
        self._queue: dict[Hashable, tuple[int, int, Callable[[bool], None]]] = {}
        self._timer: Timer | None = None
        """When the first one of the queue goes on without room."""

    def change(self, size: int) -> None:
        """They hold so many bytes more now, or fewer: then those that wait have their turn."""
        self.held += size
        while size < 0 and self._queue:
            more, each, _ = next(iter(self._queue.values()))
            if not self.room(more, each):
                return
            self._next(True)

    def room(self, size: int, each: int) -> bool:
        """Whether there is room for `size` more bytes, if a partition may hold `each`."""
        return self.held + size <= SHARED * each

    def wait(self, who: Hashable, size: int, each: int, go: Callable[[bool], None]) -> None:
        """Call `go` when it is its turn, once, with whether there is room for `size` more bytes, as `room` says."""
        self._queue.setdefault(who, (size, each, go))
        self._watch()

    def withdraw(self, who: Hashable) -> None:
        """It does not wait any more."""
        self._queue.pop(who, None)
        if not self._queue and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if self._timer is None and self._queue:
            self._timer = self._clock.call_later(TURN_S, self._next, False)

    def _next(self, room: bool) -> None:
        """It is the turn of the first one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        _, _, go = self._queue.pop(next(iter(self._queue)))
        self._watch()
        go(room)
