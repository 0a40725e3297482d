"""Who answers while the main loop is blocked.

The pages are served by the main loop: when it stands (a function of the user's that never returns, a ring that is walked for ever), so
would `/livez`, and a supervisor would wait for its own timeout and know nothing. A thread watches the loop's last turn. While that
is older than `AFTER_S` it takes connections at the same port: `/livez` and everything else answer 503, with how long, and where the main
thread stands. It takes none while the loop turns.
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
"""How long it waits for a request that does not come."""


class Stuck:
    """The thread. `age_s()` says how long ago the main loop turned; it is asked in the thread."""

    def __init__(self, listening: socket.socket, age_s: Callable[[], float]) -> None:
        self._socket = listening.dup()
        self._age_s = age_s
        self._ended = threading.Event()
        self._said = False

    def start(self) -> None:
        """Watch."""
        threading.Thread(target=self._run, name="headgate-life", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
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
