"""Answers HTTP requests while the main loop is blocked.

The main loop serves the pages. If it is blocked, for example by a user function that never returns, even `/livez` would not answer, and a
supervisor would wait for its own timeout without a reason. A thread therefore watches the time since the loop's last turn. While that
exceeds `AFTER_S`, the thread accepts connections on the same port and answers all of them with 503, with the duration and the stack of the
main thread. While the loop turns, it accepts none.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable

import orjson
import structlog

from ..process.signals import main_stack

log = structlog.get_logger("headgate.life")
AFTER_S = 5.0
LOOK_S = 0.25
READ_S = 1.0
"""How long it waits for the request of a connection."""


class Stuck:
    """The thread. It calls `age_s()` for the time since the main loop's last turn."""

    def __init__(self, listening: socket.socket, age_s: Callable[[], float]) -> None:
        self._socket = listening.dup()
        self._age_s = age_s
        self._ended = threading.Event()
        self._said = False

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._run, name="headgate-life", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            age = self._age_s()
            if age < AFTER_S:
                self._said = False
                continue
            if not self._said:
                self._said = True
                log.error("the main loop is blocked", for_s=round(age, 1), where=main_stack())
            with contextlib.suppress(OSError):
                while self._age_s() >= AFTER_S and select.select([self._socket], [], [], 0)[0]:
                    self._answer(self._socket.accept()[0])
        self._socket.close()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(READ_S)
            asked = connection.recv(4096).decode("latin-1").split(" ")
            age, where = round(self._age_s(), 1), main_stack()
            kind, body = "text/plain; charset=utf-8", f"the main loop has been blocked for {age:g} s\n{where}".encode()
            if len(asked) > 1 and asked[1].startswith("/api/"):
                kind = "application/json"
                body = orjson.dumps(
                    {"error": f"the main loop has been blocked for {age:g} s", "stuck_s": age, "where": where}
                )
            head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + body)
