"""A Faust sensor that counts what the actors of a worker do: letters, records, the seconds that they took, and requests of pages.

It is told by the mailbox, once for each letter, in Faust's own words (`on_stream_event_in`, `on_stream_event_out`), so any other sensor
that somebody adds to `worker.app.sensors` hears the same.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from faust.sensors import Sensor
from faust.types import TP

NOWHERE = TP("", 0)


def place_of(letter: Any) -> tuple[TP, int]:
    """The partition and offset that a letter is about; a letter that is no chunk stands nowhere."""
    chunk = getattr(letter, "chunk", None)
    if chunk is None:
        return NOWHERE, -1
    return TP(chunk.at.stream, chunk.at.partition), chunk.next_position


class Counting(Sensor):
    """Totals since the worker has started."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.records: Counter[str] = Counter()
        """By stream; a chunk that is tried again counts again."""
        self.letters = 0
        self.seconds = 0.0
        self.requests: Counter[int] = Counter()
        """By HTTP status."""

    def on_stream_event_in(self, tp: TP, offset: int, stream: Any, event: Any) -> Any:
        """A letter begins."""
        return time.perf_counter()

    def on_stream_event_out(self, tp: TP, offset: int, stream: Any, event: Any, state: Any = None) -> None:
        """A letter is done, or has failed."""
        self.letters += 1
        if state is not None:
            self.seconds += time.perf_counter() - state
        chunk = getattr(event, "chunk", None)
        if chunk is not None:
            self.records[tp.topic] += len(chunk)

    def on_web_request_end(self, app: Any, request: Any, response: Any, state: Any, *, view: Any = None) -> None:
        """A page was asked for."""
        self.requests[int(getattr(response, "status", 500) or 500)] += 1
