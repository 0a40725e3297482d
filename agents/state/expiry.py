"""What a task's store needs beside the letters. What it raises there is this task's failure, and nobody else's.

When a task deletes what has expired in its tables, and writes again what only a migration can read: between two letters, in shares.

A busy task has hardly a moment between two letters, and waiting for one would wait for ever. So each letter that is completed is
followed by a share of what is due, until nothing is left; an idle task goes on by itself. A share is larger than a chunk: what expires
is worked off faster than it is made. A busy task looks again after each commit, an idle one each second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import structlog

from .table import NOTHING_EXPIRED, Expired

log = structlog.get_logger("headgate.task")


class Expiry:
    """`ready`: whether the task is between two letters, and works. `share` deletes; `changed` has it committed.

    `failed`: told what the store has raised, or a function of the user's, which makes new rows of old ones.
    """

    def __init__(
        self,
        ready: Callable[[], bool],
        share: Callable[[], Expired],
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._ready = ready
        self._share = share
        self._changed = changed
        self._failed = failed
        self._due = False

    def look(self) -> None:
        """Something may have expired."""
        self._due = True
        self.go_on()

    def go_on(self) -> None:
        """A letter or a commit is through: one share, if something is due."""
        if not self._due or not self._ready():
            return
        done = NOTHING_EXPIRED
        with self.alone():
            done = self._share()
        self._due = done.more
        if done.seen:
            self._changed()
            if done.more:
                asyncio.get_running_loop().call_soon(self.go_on)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A full disk, a damaged file: the task fails, and the worker goes on with the others."""
        try:
            yield
        except Exception as error:
            log.exception("a task failed outside of its mailbox")
            self._failed(error)
