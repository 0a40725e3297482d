"""Deletes expired rows of a task's tables, and rewrites rows that only a migration function can read, in shares between two letters.

A busy task is hardly ever idle, so this does not wait for an idle moment. Each completed letter is followed by one share, until nothing is
left; in an idle task the shares follow each other. A share is larger than a chunk, so rows are deleted faster than they expire. A busy task
checks after each commit, an idle one every second.

An exception of the store fails this task only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from ..logger import Logger
from .table import NOTHING_EXPIRED, Expired

log = Logger("headgate.task")


class Expiry:
    """`ready`: whether the task is running and between two letters. `share` deletes one share. `changed` requests a commit. `failed`
    receives an exception of the store, or of a migration function of the user.
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
        """Check for expired rows."""
        self._due = True
        self.go_on()

    def go_on(self) -> None:
        """Work off one share, if any is due. Called after each letter and each commit."""
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
        """Turn an exception, such as a full disk or a damaged file, into a failure of this task. The worker continues with the
        other tasks.
        """
        try:
            yield
        except Exception as error:
            log.exception("a task failed outside of its mailbox")
            self._failed(error)
