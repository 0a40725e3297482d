"""What time it is at the brokers, as far as this process can know.

The coordinator stream has LogAppendTime: the broker's clock shows the time of a record that was read, or a later one. Tasks run only
under a grant that was written for this incarnation and read by it, so the time is known when the first record is judged.

Promises: the time is never behind by more than a message takes to arrive, whether this machine's wall clock is wrong, or is set, or the
machine was suspended. It may be ahead by as much as the wall clock was set forward, until the next message.
"""

from __future__ import annotations

from ...core.machine import Now


class BrokerClock:
    """The broker's time of one process.

    >>> clock = BrokerClock()
    >>> clock.saw(5_000, Now(1.0, 9_000))
    >>> clock.ms(Now(2.0, 10_000)), clock.ahead_ms(Now(2.0, 10_000))
    (6000, 4000)
    """

    def __init__(self) -> None:
        self._offset_ms: float | None = None
        """The broker's time less the monotonic clock, at least."""
        self._wall_offset_ms = 0.0
        """The broker's time less the wall clock, at the last message."""

    def saw(self, append_ms: int, now: Now) -> None:
        """A message that was appended at this time is read now."""
        offset = append_ms - now.mono * 1000
        self._offset_ms = offset if self._offset_ms is None else max(self._offset_ms, offset)
        self._wall_offset_ms = self._offset_ms + now.mono * 1000 - now.wall

    def ms(self, now: Now) -> int | None:
        """The broker's time; None while no message was read."""
        if self._offset_ms is None:
            return None
        return int(max(self._offset_ms + now.mono * 1000, self._wall_offset_ms + now.wall))

    def ahead_ms(self, now: Now) -> int | None:
        """How far this machine's wall clock is ahead of the broker's; None while that is unknown."""
        return None if self._offset_ms is None else int(now.wall - self._offset_ms - now.mono * 1000)
