"""Signals, heard in a thread of their own: a main loop that does not turn cannot keep a process from ending.

    SIGTERM, first Ctrl-C   the loop is told; the process has its time to end in order, and is ended when that is over, by this thread
    second Ctrl-C           ends at once

Promises: both are heard however the process was started (a shell's background job, `nohup`: they come with SIGINT ignored), and
whatever the main thread does, as long as Python's lock is let go now and then; who is ended by force says where the main thread stood.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable

import click

HEARD = (signal.SIGTERM, signal.SIGINT)
GRACE_S = 2.0
"""What a process gets beyond its time before it is ended."""
ENDED_AT_ONCE = 130
DEADLINE_PASSED = 3


def main_stack(frames: int = 12) -> str:
    """Where the main thread is now."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-frames:])


class Signals:
    """Listens from `listen()` on, which the main thread calls. `told` is called in the thread, once, with the first signal."""

    def __init__(self, told: Callable[[signal.Signals], object], seconds: Callable[[], float]) -> None:
        self._told = told
        self._seconds = seconds
        """How long the process may take to end."""
        self._first: signal.Signals | None = None
        self._until_s: float | None = None

    def listen(self) -> None:
        """Take the signals."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._wakes, self._hears = theirs, ours
        for number in HEARD:
            signal.signal(number, _noted)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._run, name="headgate-signals", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._hears.settimeout(None if self._until_s is None else max(0.01, self._until_s - time.monotonic()))
            try:
                heard = self._hears.recv(64)
            except TimeoutError:
                self._end()
            else:
                for number in heard:
                    if number in HEARD:
                        self._one(signal.Signals(number))

    def _one(self, number: signal.Signals) -> None:
        if self._first is None:
            self._first = number
            self._until_s = time.monotonic() + self._seconds() + GRACE_S
            self._told(number)
        elif number == signal.SIGINT:
            click.echo("Exited at once.", err=True)
            os._exit(ENDED_AT_ONCE)

    def _end(self) -> None:
        """The time is over, and the process is still there."""
        name = self._first.name if self._first is not None else "a signal"
        click.echo(
            f"Error: this process did not stop within stop.timeout after {name}, and is terminated now. "
            f"Its main thread was here:\n{main_stack()}"
            "To do: committed work is safe; the code shown above does not return",
            err=True,
        )
        sys.stderr.flush()
        os._exit(DEADLINE_PASSED)


def _noted(number: int, frame: object) -> None:
    """The thread hears of it."""
