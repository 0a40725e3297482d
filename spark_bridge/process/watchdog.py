"""Notices that a session hangs: its JVM or its server is there, keeps its connections, and answers nothing.

One thread asks, again and again; another one counts how long no answer came, and calls `hung` once. It counts only time during which this
process itself ran: a worker that was stopped and goes on has not been waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..base.errors import said

TURNS = 8
"""How often within the patience it asks."""


class Watchdog:
    """Watches one session, until `end`."""

    def __init__(self, ask: Callable[[], Any], hung: Callable[[str], None], patience_s: float) -> None:
        """`ask` returns, or raises if the session is over. `hung` gets what is wrong; it must not wait for the session."""
        self._ask = ask
        self._hung = hung
        self._patience_s = patience_s
        self._turn_s = patience_s / TURNS
        self._ended = threading.Event()
        self._answers = 0
        for work in (self._asks, self._watches):
            threading.Thread(target=work, name=f"spark-probe-{work.__name__}", daemon=True).start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()

    def _asks(self) -> None:
        while not self._ended.is_set():
            try:
                complaint = self._ask()
            except Exception as error:  # noqa: BLE001 - whoever uses the session hears it, too
                if not self._ended.is_set():
                    self._over(f"it does not answer any more: {said(error)[:200]}")
                return
            if complaint:
                self._over(str(complaint))
                return
            self._answers += 1
            self._ended.wait(self._turn_s)

    def _watches(self) -> None:
        heard, silent, before = 0, 0.0, time.monotonic()
        while not self._ended.wait(self._turn_s):
            now = time.monotonic()
            silent, before = silent + min(now - before, 2 * self._turn_s), now
            if self._answers != heard:
                heard, silent = self._answers, 0.0
            elif silent >= self._patience_s:
                self._over(f"it has not answered for {self._patience_s:g} s (spark.probe-timeout)")
                return

    def _over(self, why: str) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._hung(why)
