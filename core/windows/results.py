"""What a result of a window says of its window, and what it says that closed it."""

from __future__ import annotations

WATERMARK, END, DRAIN = "watermark", "end", "drain"
"""What closes a window: time has passed it, its streams have ended, or the run is drained."""

START_FIELD, END_FIELD, CLOSED_FIELD = "window_start", "window_end", "closed_by"
RESERVED = frozenset({START_FIELD, END_FIELD, CLOSED_FIELD})
"""Fields of every result; no aggregate may have one of these names."""


def result_time(end: int) -> int:
    """The timestamp of a result: the last millisecond of its window. A step behind, told of the time less grace, has not passed it."""
    return end - 1
