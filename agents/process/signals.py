"""Handles signals in a separate thread, so that a main loop that hangs cannot keep a process from ending.

    SIGTERM, first Ctrl-C   the loop is told; if the process has not ended by its deadline, this thread ends it
    second Ctrl-C           the process ends at once

Promises: signals work however the process was started (a shell's background job or `nohup` starts it with SIGINT ignored), and whatever the
main thread does, as long as it releases Python's lock now and then. If the process is ended by force, it prints where the main thread was.
A process that user code forks has none of this: signals end it, and what it hears does not reach its parent.
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
"""The time after its deadline before the process is ended."""
ENDED_AT_ONCE = 130
DEADLINE_PASSED = 3


def main_stack(frames: int = 12) -> str:
    """The stack of the main thread."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-frames:])


def main_frame_file() -> str:
    """The file of the code that the main thread runs now."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "" if frame is None else frame.f_code.co_filename


class Signals:
    """Handles signals after the main thread has called `listen()`. Calls `on_signal` once, in its thread, on the first signal."""

    def __init__(
        self,
        on_signal: Callable[[signal.Signals], object],
        seconds: Callable[[], float],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """`before` is called before the process is ended at once, in the thread of the signals. It is not called at the deadline: the
        letters that are under way then have not ended for as long as a stop may take, and the next process must know of them.
        """
        self._before = before
        self._on_signal = on_signal
        self._seconds = seconds
        """How long the process may take to end."""
        self._first: signal.Signals | None = None
        self._until_s: float | None = None

    def listen(self) -> None:
        """Take over the signals."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._wakes, self._hears = theirs, ours
        for number in HEARD:
            signal.signal(number, _noted)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._run, name="headgate-signals", daemon=True).start()
        os.register_at_fork(after_in_child=_as_before)

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
            self._on_signal(number)
        elif number == signal.SIGINT:
            click.echo("Exited at once.", err=True)
            self._before()
            os._exit(ENDED_AT_ONCE)

    def _end(self) -> None:
        """The deadline has passed, and the process still runs."""
        name = self._first.name if self._first is not None else "a signal"
        click.echo(
            f"Error: this process did not stop within stop.timeout after {name}, and is terminated now. "
            f"Its main thread was here:\n{main_stack()}"
            "To do: committed work is safe; the code shown above does not return",
            err=True,
        )
        sys.stderr.flush()
        os._exit(DEADLINE_PASSED)


def _as_before() -> None:
    """In a process that was forked: the thread that takes signals is not there, and the wakeup socket is the parent's. With what it has
    inherited it could not be ended by a signal, and `multiprocessing` would wait for it at the exit of its parent."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _noted(number: int, frame: object) -> None:
    """Do nothing: the thread receives the signal through the wakeup socket."""
