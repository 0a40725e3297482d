"""What is told are plain values, equal when they say the same."""

from __future__ import annotations

from typing import get_args

from headgate.core.progress.events import (
    DRAIN,
    END,
    WATERMARK,
    EpochAhead,
    Event,
    PartitionComplete,
    StreamDrained,
    StreamEnded,
    StreamWatermark,
)
from headgate.core.progress.frames import NO_TIME


def test_events_are_values():
    assert StreamWatermark("s", 5) == StreamWatermark("s", 5, False) != StreamWatermark("s", 5, True)
    assert PartitionComplete("s", 1, END, 2) == PartitionComplete("s", 1, "end", 2, NO_TIME, False, "")
    assert len({StreamEnded("s"), StreamEnded("s"), StreamDrained("s", "d"), EpochAhead("s", 0, 2)}) == 3
    assert len({WATERMARK, END, DRAIN}) == 3


def test_every_event_is_named_in_the_union():
    assert set(get_args(Event)) == {StreamWatermark, StreamEnded, StreamDrained, PartitionComplete, EpochAhead}
