"""The floor of a step with windows: the greatest watermark (or clock time) by which it has closed windows, as its table holds it.

Promise: a window that was closed stays closed, also across restarts and runs, and if the grace of the step is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ....core.progress.frames import NO_TIME
from ....core.windows import spans

FLOOR = "floor"
"""The row of the table that holds the floor."""
GRACE, SHUT = "grace", "shut"
"""Rows beside the floor: the grace with which it closes windows, and up to where windows were closed under another grace."""
FLOOR_ROWS = (FLOOR, GRACE, SHUT)
"""The rows of the table that say which windows are closed."""


@dataclass(frozen=True, slots=True)
class Floor:
    """A floor, and the grace with which it closes windows."""

    grace: int
    at: int = NO_TIME
    shut: int = NO_TIME
    """Windows that were closed under a shorter grace stay closed: those that end at this time or before."""
    said: bool = False
    """Whether the table holds the present grace."""
    closed_up_to: Callable[[int, int], int] = spans.closed_up_to
    """Which windows (or sessions) time has closed."""

    @classmethod
    def of(cls, table: Any, grace: int, closed_up_to: Callable[[int, int], int] = spans.closed_up_to) -> Floor:
        """The floor as it is stored."""
        at, before, shut = table.get_many([FLOOR, GRACE, SHUT])
        at, shut = (NO_TIME if one is None else one for one in (at, shut))
        if before is not None and before != grace:
            shut = max(shut, closed_up_to(at, before))
        return cls(grace, at, shut, before == grace, closed_up_to)

    @property
    def closed(self) -> int:
        """Windows that end at this time or before are closed."""
        return max(self.shut, self.closed_up_to(self.at, self.grace))

    def raised(self, ts: int, table: Any) -> Floor:
        """The floor at this time, unless it is higher; stored in the table."""
        if ts <= self.at:
            return self
        table.update({FLOOR: ts})
        if not self.said:
            table.update({GRACE: self.grace} | ({SHUT: self.shut} if self.shut > NO_TIME else {}))
        return replace(self, at=ts, said=True)
