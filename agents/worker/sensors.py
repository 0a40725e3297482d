"""A Faust sensor that counts the work of a worker's actors: letters, records and seconds, and page requests.

The mailbox calls it for each letter through Faust's sensor interface (`on_stream_event_in`, `on_stream_event_out`), so any other sensor
that is added to `worker.app.sensors` receives the same calls.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from faust.sensors import Sensor
from faust.types import TP

NOWHERE = TP("", 0)


def place_of(letter: Any) -> tuple[TP, int]:
    """The partition and offset of a letter. A letter without a chunk has none."""
    chunk = getattr(letter, "chunk", None)
    if chunk is None:
        return NOWHERE, -1
    return TP(chunk.at.stream, chunk.at.partition), chunk.next_position


class Counting(Sensor):
    """Totals since the start of the worker."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.records: Counter[str] = Counter()
        """By stream. A chunk that is processed again counts again."""
        self.letters = 0
        self.seconds = 0.0
        self.requests: Counter[int] = Counter()
        """By HTTP status."""

    def on_stream_event_in(self, tp: TP, offset: int, stream: Any, event: Any) -> Any:
        """Called before a letter is handled."""
        return time.perf_counter()

    def on_stream_event_out(self, tp: TP, offset: int, stream: Any, event: Any, state: Any = None) -> None:
        """Called when a letter was handled or has failed."""
        self.letters += 1
        if state is not None:
            self.seconds += time.perf_counter() - state
        chunk = getattr(event, "chunk", None)
        if chunk is not None:
            self.records[tp.topic] += len(chunk)

    def on_web_request_end(self, app: Any, request: Any, response: Any, state: Any, *, view: Any = None) -> None:
        """Called when a page was served."""
        self.requests[int(getattr(response, "status", 500) or 500)] += 1
