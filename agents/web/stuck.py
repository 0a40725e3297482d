"""Answers HTTP requests while the main loop is blocked.

The main loop serves the pages. If it is blocked, for example by a user function that never returns, even `/livez` would not answer, and a
supervisor would wait for its own timeout without a reason. A thread therefore watches the loop's turns. Once there has been none for
`AFTER_S`, the thread accepts connections on the same port and answers them with 503, with the duration, the work under way and the stack of
the main thread. While the loop turns, it accepts none.

The rules of the pages hold here, too (`door`): a request that may not see them is refused as the server would refuse it, and `/livez` and
`/readyz` show work and stack only to readers who may see the other pages.

Blocked is only what the main thread's own code holds up. Time in which this thread did not run either does not count (a suspended or
starved process), and a main thread that waits in `select` is about to turn: then the machine is short of processor time, which is only a
warning.
"""

from __future__ import annotations

import contextlib
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import orjson

from ..logger import Logger
from ..process.signals import main_frame_file, main_stack
from ..worker.load.health import BLOCKED_S
from .door import ASKS, Asked, PageDoor

log = Logger("headgate.life")
AFTER_S = BLOCKED_S
LOOK_S = 0.25
LATE_S = 4 * LOOK_S
"""The most that counts between two looks."""
READ_S = 1.0
"""How long it waits for the request of a connection."""
HEAD_BYTES = 16_384
"""The most that it reads of a request."""
REASONS = {401: "Unauthorized", 421: "Misdirected Request", 503: "Service Unavailable"}


class HeldUp:
    """How long the loop has not turned, as far as someone watched.

    >>> held = HeldUp()
    >>> held.look(1.0, 0.0), held.look(1.0, 0.25), held.look(1.0, 60.0), held.look(2.0, 61.0)
    (0.0, 0.25, 1.25, 0.0)
    """

    def __init__(self) -> None:
        self._turn: float | None = None
        self._looked_s = 0.0
        self._held_s = 0.0

    def look(self, turn: float, now_s: float) -> float:
        """`turn`: when the loop last turned."""
        passed_s, self._looked_s = min(now_s - self._looked_s, LATE_S), now_s
        self._held_s = self._held_s + passed_s if turn == self._turn else 0.0
        self._turn = turn
        return self._held_s


class Stuck:
    """The thread. It calls `turned_s()` for the time of the main loop's last turn, `work()` for what is under way, and `blocked()` when the
    loop is blocked.
    """

    def __init__(
        self,
        listening: socket.socket,
        turned_s: Callable[[], float],
        work: Callable[[], str] = lambda: "",
        door: PageDoor | None = None,
        *,
        blocked: Callable[[], None] = lambda: None,
    ) -> None:
        self._tell_blocked = blocked
        self._door = door if door is not None else PageDoor()
        self._socket = listening.dup()
        self._turned_s = turned_s
        self._work = work
        self._held = HeldUp()
        self._ended = threading.Event()
        self._said = ""

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._run, name="headgate-life", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            if not self._blocked():
                continue
            with contextlib.suppress(OSError):
                while self._blocked() and select.select([self._socket], [], [], 0)[0]:
                    self._answer(self._socket.accept()[0])
        self._socket.close()

    def _blocked(self) -> bool:
        """Look at the loop, and report what is new: that it is blocked, that it starves, or that it turns again."""
        held_s = self._held.look(self._turned_s(), time.monotonic())
        if held_s < AFTER_S:
            if self._said == "blocked":
                log.info("the main loop runs again")
            self._said = ""
            return False
        waits = main_frame_file() == selectors.__file__
        what = "starved" if waits else "blocked"
        if self._said not in (what, "blocked"):
            self._said = what
            if waits:
                log.warning("the main loop is ready to run, but gets no processor time", for_s=round(held_s, 1))
            else:
                self._tell_blocked()
                log.error("the main loop is blocked", for_s=round(held_s, 1), by=self._work(), where=main_stack())
        return not waits

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            head = _head(connection)
            age_s = time.monotonic() - self._turned_s()
            connection.sendall(answer(self._door, Asked.of(head), age_s, self._work(), main_stack()))


def _head(connection: socket.socket) -> bytes:
    """A request up to the end of its headers, as far as it comes within `READ_S`."""
    give_up, head = time.monotonic() + READ_S, b""
    while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES and (left_s := give_up - time.monotonic()) > 0:
        connection.settimeout(left_s)
        try:
            more = connection.recv(4096)
        except TimeoutError:
            break
        if not more:
            break
        head += more
    connection.settimeout(READ_S)
    return head


def answer(door: PageDoor, asked: Asked, age_s: float, work: str, where: str) -> bytes:
    """The response to one request: `work` and `where` (the stack) only for readers who may see the pages."""
    refused = door.refused(asked.host, asked.path, asked.given)
    if refused is not None:
        status, why = refused
        return _response(status, f"{why}\n".encode(), headers=ASKS if status == 401 else {})
    said = f"the main loop has been blocked for {age_s:.1f} s"
    if asked.path.startswith("/api/"):
        body = orjson.dumps({"error": said, "stuck_s": round(age_s, 1), "work": work, "where": where})
        return _response(503, body, kind="application/json")
    shown = (said, work, where) if door.knows(asked.given) else (said,)
    return _response(503, "\n".join(one for one in shown if one).encode())


def _response(
    status: int,
    body: bytes,
    *,
    kind: str = "text/plain; charset=utf-8",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    fields = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close", **headers}
    lines = (f"HTTP/1.1 {status} {REASONS[status]}", *(f"{name}: {value}" for name, value in fields.items()), "", "")
    return "\r\n".join(lines).encode() + body
