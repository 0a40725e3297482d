"""What a window's result says about its window, and about what closed it."""

from __future__ import annotations

WATERMARK, CLOCK, END, DRAIN, EARLY = "watermark", "clock", "end", "drain", "early"
"""What closes a window: event time or the clock has passed it, its streams have ended, or the run is drained. `EARLY` marks a result that
does not close its window."""

START_FIELD, END_FIELD, CLOSED_FIELD = "window_start", "window_end", "closed_by"
RESERVED = frozenset({START_FIELD, END_FIELD, CLOSED_FIELD})
"""Fields of every result; no aggregate may have one of their names."""
WINDOW_HEADER = "hg-window"
"""The header of a result that is no mapping: the same fields as JSON."""


def result_time(end: int) -> int:
    """The timestamp of a result: the last millisecond of its window. A later step receives the watermark less the grace, so its time has
    not passed this result."""
    return end - 1
