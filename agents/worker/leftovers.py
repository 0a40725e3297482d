"""Removes what tasks of this job have left on the disk of this worker when they moved elsewhere, and copies of tables that are not used
any more: `state.cleanup-delay`.

`core.coordination.leftovers` says which tasks those are, and when it is time; `agents.state.leftovers` removes a store that no one uses.

Promises: what is removed is logged and counted. Nothing depends on it, so no error ends the worker: it is logged once for each reason, and
tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...core.coordination.leftovers import left_behind, look_s, over
from ...core.coordination.state import JobState
from ..logger import Logger
from ..port.port import Port
from ..port.waiting import wait
from ..state.leftovers import RemovedStore, remove_copies, remove_left
from ..state.rocks import StoreMemory
from ..state.store import Owner

log = Logger("headgate.store")


class Leftovers:
    """The stores that tasks have left behind below the directory of one job."""

    def __init__(self, job: Path, processor: str, memory: StoreMemory, port: Port, delay_s: float) -> None:
        self._job = job
        self._processor = processor
        self._memory = memory
        self._port = port
        self._delay_s = delay_s
        self._changed = asyncio.Event()
        self._foreign: set[Path] = set()
        self._said: set[str] = set()
        self.removed = 0
        self.removed_bytes = 0

    def keep_for(self, delay_s: float) -> None:
        """Take the dynamic setting."""
        if delay_s != self._delay_s:
            self._delay_s = delay_s
            self._changed.set()

    async def run(self, state: Callable[[], JobState | None]) -> None:
        """Look at the disk from time to time, until cancelled. `state`: that of the job, as this worker knows it now."""
        while True:
            await wait(self._port.clock, self._changed, look_s(self._delay_s))
            self._changed.clear()
            known = state()
            if known is not None and known.run is not None and self._delay_s > 0:
                await self.look(known, known.run.job_uuid)

    async def look(self, state: JobState, job_uuid: str) -> None:
        """Remove what is due now."""
        now_s, is_over = self._port.clock.now().wall / 1000, partial(over, delay_s=self._delay_s)
        for task, partition in left_behind(state, self._processor).items():
            owner = Owner(job_uuid, task, partition)
            work = partial(remove_left, self._job, owner, self._memory, is_over, now_s, self._foreign)
            await self._remove(f"the store that {task!r} has left behind", "the task runs elsewhere", work)
        work = partial(remove_copies, self._job, job_uuid, self._memory, is_over, now_s, self._foreign)
        await self._remove("a copy of a table", "no worker here uses this copy", work)

    async def _remove(self, what: str, why: str, work: Callable[[], list[RemovedStore]]) -> None:
        try:
            found = await self._port.in_thread(work)
        except OSError as error:
            self._once(f"{what} cannot be removed: {error}")
            return
        for one in found:
            self._count(one, why)

    def _count(self, one: RemovedStore, why: str) -> None:
        self.removed += 1
        self.removed_bytes += one.size
        log.info(
            "a store is removed",
            task=one.task,
            path=str(one.path),
            bytes=one.size,
            why=f"{why}, and nothing was written here for {one.unused_s:.0f} s (state.cleanup-delay)",
        )

    def _once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("housekeeping", why=what)
