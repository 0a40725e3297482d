"""When a task deletes what has expired in its tables, and writes again what only a migration can read: between two letters, in shares.

A busy task has hardly a moment between two letters, and waiting for one would wait for ever. So each letter that is completed is
followed by a share of what is due, until nothing is left; an idle task goes on by itself. A share is larger than a chunk: what expires
is worked off faster than it is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..core.errors import DataError
from .table import Expired


class Expiry:
    """`ready`: whether the task is between two letters, and works. `share` deletes; `changed` has it committed.

    `failed`: told when a function of the user's, which makes new rows of old ones, has failed.
    """

    def __init__(
        self,
        ready: Callable[[], bool],
        share: Callable[[], Expired],
        changed: Callable[[], None],
        failed: Callable[[str], None],
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
        try:
            done = self._share()
        except DataError as error:
            self._due = False
            self._failed(str(error))
            return
        self._due = done.more
        if done.seen:
            self._changed()
            if done.more:
                asyncio.get_running_loop().call_soon(self.go_on)
