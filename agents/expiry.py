"""When a task deletes what has expired in its tables: between two letters, in shares.

A busy task has hardly a moment between two letters, and waiting for one would wait for ever. So each letter that is completed is
followed by a share of what is due, until nothing is left; an idle task goes on by itself. A share is larger than a chunk: what expires
is worked off faster than it is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .table import Expired


class Expiry:
    """`ready`: whether the task is between two letters, and works. `share` deletes; `changed` has it committed."""

    def __init__(self, ready: Callable[[], bool], share: Callable[[], Expired], changed: Callable[[], None]) -> None:
        self._ready = ready
        self._share = share
        self._changed = changed
        self._due = False

    def look(self) -> None:
        """Something may have expired."""
        self._due = True
        self.go_on()

    def go_on(self) -> None:
        """A letter or a commit is through: one share, if something is due."""
        if not self._due or not self._ready():
            return
        done = self._share()
        self._due = done.more
        if done.seen:
            self._changed()
            if done.more:
                asyncio.get_running_loop().call_soon(self.go_on)
