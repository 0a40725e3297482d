"""Sends spans in a thread of its own.

What it decides: which spans are given up. Promises:

- To hand over a span costs an append. Nothing here waits for the receiver or is waited for, but for a moment at the end of the process.
- At most `most` spans wait. More are dropped, the newest first; those of a request that fails are dropped, too. All are counted.
- A receiver that is away is reported once, then at growing intervals while it stays so; that it is back is reported, too.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..logger import Logger

log = Logger("headgate.trace")
AGAIN_S = 60.0
LONGEST_S = 3600.0
"""Between two reports of a receiver that is away: at first, and at most."""


class SpanSender:
    """The spans of one process on their way."""

    def __init__(
        self,
        send: Callable[[Sequence[Any]], str],
        where: str,
        *,
        most: int,
        batch: int,
        every_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`send` returns why that has failed, or nothing. `batch`: so many go in one request at most. `every_s`: how long they wait for
        others."""
        self._send = send
        self._where = where
        self._most, self._batch, self._every_s = most, batch, every_s
        self._now_s = now_s
        self._waiting: deque[Any] = deque()
        self._ends = threading.Event()
        self._full = threading.Event()
        """Enough for a request are there, or the process ends."""
        self._again_s, self._pause_s = 0.0, 0.0
        """When the receiver is reported next; the pause is 0 while it answers."""
        self.sent = 0
        self._refused = self._failed = 0
        """Spans that were dropped: where they were made, and in the thread."""
        self._thread = threading.Thread(target=self._run, name="headgate trace", daemon=True)

    def start(self) -> None:
        """Send from now on."""
        self._thread.start()

    def add(self, span: Any) -> None:
        """Send this one. It is called where work is done."""
        if len(self._waiting) >= self._most or self._ends.is_set():
            self._refused += 1
            return
        self._waiting.append(span)
        if len(self._waiting) == self._batch:
            self._full.set()

    def stop(self, within_s: float) -> None:
        """Send what is there, for so long at most. What is left is dropped."""
        self._ends.set()
        self._full.set()
        self._thread.join(within_s)
        left = len(self._waiting)
        if left:
            log.info("spans are not sent: the process ends", spans=left)
        self._refused += left
        self._waiting.clear()

    @property
    def dropped(self) -> int:
        """How many were not sent."""
        return self._refused + self._failed

    def _run(self) -> None:
        while not self._ends.is_set():
            self._full.wait(self._every_s)
            if not self._ends.is_set():
                self._full.clear()
            self.turn()

    def turn(self) -> None:
        """Send what waits."""
        while self._waiting:
            spans = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
            try:
                why = self._send(spans)
            except Exception as error:  # noqa: BLE001 - a library's fault must not end the thread
                why = repr(error)
            if why:
                self._failed += len(spans)
                self._away(why)
                if self._ends.is_set():
                    return  # the others would wait for the same
            else:
                self.sent += len(spans)
                self._back()

    def _away(self, why: str) -> None:
        now_s = self._now_s()
        if self._pause_s and now_s < self._again_s:
            return
        log.warning(
            "spans are dropped: their receiver does not take them",
            why=why,
            where=self._where,
            dropped=self.dropped,
            to_do="start it, or name another one in OTEL_EXPORTER_OTLP_ENDPOINT; `trace.sample=0` makes none",
        )
        self._pause_s = min(LONGEST_S, 2 * self._pause_s) or AGAIN_S
        self._again_s = now_s + self._pause_s

    def _back(self) -> None:
        if self._pause_s:
            self._pause_s = 0.0
            log.info("the receiver of spans takes them again", where=self._where, dropped=self.dropped)
