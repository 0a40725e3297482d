"""What a result of a window says of its window, and what it says that closed it."""

from __future__ import annotations

WATERMARK, CLOCK, END, DRAIN, EARLY = "watermark", "clock", "end", "drain", "early"
"""What closes a window: event time or the clock has passed it, its streams have ended, or the run is drained. An early result closes
nothing."""

START_FIELD, END_FIELD, CLOSED_FIELD = "window_start", "window_end", "closed_by"
RESERVED = frozenset({START_FIELD, END_FIELD, CLOSED_FIELD})
"""Fields of every result; no aggregate may have one of these names."""


def result_time(end: int) -> int:
    """The timestamp of a result: the last millisecond of its window. A step behind, told of the time less grace, has not passed it."""
    return end - 1
