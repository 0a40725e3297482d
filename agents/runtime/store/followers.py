"""Follows the logs of tasks that other workers run, each into a store of its own, so that their tasks can start here with little to replay.

The member says which (`Follow`). A follower reads what is committed, up to one end of the log after another, and goes on. It is near the
end once it has reached an end that it had asked for at most `NEAR_S` before: what it lacks then was written within that time.

Promises:

- It never writes to Kafka, runs no user code, and decides nothing. The store is a cache: the task that takes it over checks it as it checks
  one that it has found on the disk.
- The memory is bounded: what is fetched and not yet written is at most `BUFFER_BYTES` and one fetch for each log, and `AT_ONCE` logs are
  read up at the same time. The others wait for their turn. One that is near the end has nothing to hold.
- A store that may have missed deletions, whose log was made again, or of another job is wiped, by the rules of a restore, before each step.
- A task that starts takes the store over open, and nothing writes to it from then on (`take`).
- What goes wrong is logged, and tried again after a pause: nothing depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ....core.coordination.member.protocol import FollowedLog
from ....core.machine import Now
from ....core.names import StreamPartition
from ....core.task import protocol as t
from ....core.task.store_trust import distrust
from ...cancellation import passes
from ...logger import Logger
from ...port.port import Port, Process
from ...port.waiting import pause
from ...state.store import Disk, Owner, Store, StoreUnusable
from .log import LogProgress, Replay

log = Logger("headgate.state")
NEAR_S = 1.0
"""How old the end that a follower has reached may be for it to be near the end of the log."""
LOOK_S = 0.2
"""How often it asks for the end of a log that it has read up, of a task that is about to move."""
STANDBY_LOOK_S = 1.0
"""The same of a log that it follows all the time."""
AGAIN_S = 2.0
"""The pause before a follower that has failed begins again."""
BUFFER_BYTES = 4 << 20
FETCH_BYTES = 2 << 20
AT_ONCE = 2
REFRESH_MS = 10_000
"""How often a store at the end of its log is told so."""


class LogEnd(NamedTuple):
    """Where a log starts and ends, and when that was asked for."""

    start: int
    end: int
    asked: Now


class TakenStore(NamedTuple):
    """The open store of a task that was followed, and the disk that it lies on."""

    store: Store
    disk: Disk


class LogFollower:
    """One log that is followed."""

    def __init__(
        self,
        port: Port,
        task: str,
        log_name: str,
        order: FollowedLog,
        disk: Disk,
        tables: tuple[str, ...],
        ends: Callable[[StreamPartition], Any],
        turns: asyncio.Semaphore,
        near: Callable[[], None],
    ) -> None:
        self.order = order
        self.progress: LogProgress | None = None
        self.near = False
        """It is near the end, or was once."""
        self.records = 0
        self.task = task
        self._port = port
        self._at = StreamPartition(log_name, order.partition)
        self._disk = disk
        self._tables = tables
        self._ends = ends
        self._turns = turns
        self._tell = near
        self.store: Store | None = None
        self._busy: asyncio.Task[None] | None = None
        """What runs in a thread, which cannot be cancelled: opening, wiping or closing the store."""
        self.work: asyncio.Task[Any] | None = None

    def again(self, order: FollowedLog, near: Callable[[], None]) -> None:
        """Go on for another reason, and say once more when the store lacks little."""
        self.order, self._tell, self.near = order, near, False

    async def run(self) -> None:
        """Follow the log until cancelled."""
        while True:
            try:
                await self._follow()
            except BaseException as error:
                if passes(error):
                    raise
                log.warning("a task log is not followed", task=self.task, why=f"{type(error).__name__}: {error}")
            await self._in_turn(self._close)
            await pause(self._port.clock, AGAIN_S)

    async def _follow(self) -> None:
        await self._in_turn(self._open)
        found = await self._trusted()
        store = self.store
        assert store is not None
        replay = Replay(
            self._port,
            self._at,
            store,
            found.start if store.meta.position is None else store.meta.position,
            name="follow",
            buffer_bytes=BUFFER_BYTES,
            fetch_bytes=FETCH_BYTES,
            progress=self._heard,
            unread=lambda count, offset, why: log.warning(
                "a task log holds what is no entry", task=self.task, offset=offset, count=count, why=why
            ),
        )
        try:
            async with self._turns:
                await replay.start()
                while not await self._reach(replay, found):
                    found = await self._trusted(again=False)
            while True:
                await pause(self._port.clock, LOOK_S if self.order.grant else STANDBY_LOOK_S)
                await self._reach(replay, await self._trusted(again=False))
        finally:
            self.records += replay.records
            await replay.stop()

    async def _reach(self, replay: Replay, found: LogEnd) -> bool:
        """Read up to this end. Returns whether the store is near the end, or was once."""
        followed_ms = replay.followed_ms or 0
        if found.end > replay.position or found.asked.wall - followed_ms >= REFRESH_MS:
            await replay.to(found.end, since_ms=found.asked.wall)
        self.progress = LogProgress(replay.position, found.end, replay.records, 0.0)
        if not self.near and self._port.clock.now().mono - found.asked.mono <= NEAR_S:
            self.near = True
            log.info("a task log is followed", task=self.task, position=replay.position, records=replay.records)
            self._tell()
        return self.near

    def _heard(self, progress: LogProgress) -> None:
        self.progress = progress

    async def _trusted(self, *, again: bool = True) -> LogEnd:
        """Ask for the end of the log. A store that cannot be trusted is wiped. `again`: the log is read from the position of the store;
        otherwise it is being read, and that begins anew."""
        assert self.store is not None
        asked = self._port.clock.now()
        start, end, retention_ms = await self._ends(self._at)
        meta = self.store.meta
        opened = t.StoreOpened(meta.position, meta.owner.job_uuid, meta.followed_until_ms)
        wall_ms = self._port.clock.now().wall  # the answer may have taken long, and what follows is read after it
        if why := distrust(opened, t.LogEnds(start, end, retention_ms), self.order.job_uuid, wall_ms):
            log.warning("local store is rebuilt", task=self.task, why=why)
            await self._in_turn(self._wipe)
            if not again:
                raise StoreUnusable(f"the store of {self.task}", why)
        return LogEnd(start, end, asked)

    # ------------------------------------------------------------------------------------------------------- its store

    async def _in_turn(self, work: Callable[[], None]) -> None:
        """Do this in a thread. Who cancels the follower waits for it (`give`)."""

        async def run() -> None:
            await self._port.in_thread(work)

        self._busy = asyncio.get_running_loop().create_task(run(), name=f"{self.task}: followed store")
        await asyncio.shield(self._busy)

    def _open(self) -> None:
        owner = Owner(self.order.job_uuid, self.task, self.order.partition)
        try:
            self.store = self._disk.open(owner, self._tables)
        except StoreUnusable:
            self._disk.wipe()
            self.store = self._disk.open(owner, self._tables)

    def _close(self) -> None:
        store, self.store = self.store, None
        if store is not None:
            store.close()

    def _wipe(self) -> None:
        self._close()
        self._disk.wipe()
        self._open()

    async def give(self) -> TakenStore | None:
        """Stop following, and give the store away; None if it is not open."""
        work, self.work = self.work, None
        if work is not None:
            work.cancel()  # nothing is written from here on: a write has no await within
        if self._busy is not None:
            await asyncio.wait([self._busy])
        store, self.store = self.store, None
        return None if store is None else TakenStore(store, self._disk)


class Followers:
    """The logs that a worker follows."""

    def __init__(
        self,
        port: Port,
        process: Process,
        disk: Callable[[str], Disk],
        log_name: str,
        tables: tuple[str, ...],
        ends: Callable[[StreamPartition], Any],
    ) -> None:
        self._port = port
        self._process = process
        self._disk = disk
        self._log_name = log_name
        self._tables = tables
        self._ends = ends
        self._turns = asyncio.Semaphore(AT_ONCE)
        self.all: dict[str, LogFollower] = {}
        """Also those whose store a task has taken over."""
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, logs: Mapping[str, FollowedLog], near: Callable[[str, int], None]) -> None:
        """Follow these logs and no others. `near` is called once for each task and grant when its store lacks little."""
        for task, one in list(self.all.items()):
            order = logs.get(task)
            if order == one.order:
                continue
            if order is not None and one.work is not None and replace(order, grant=one.order.grant) == one.order:
                one.again(order, partial(near, task, order.grant))
                continue
            ending = self._process.spawn(partial(self._end, self.all.pop(task)), f"{task}: follows no more")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        for task, order in logs.items():
            if task not in self.all:
                self._begin(task, order, partial(near, task, order.grant))

    def _begin(self, task: str, order: FollowedLog, near: Callable[[], None]) -> None:
        one = LogFollower(
            self._port, task, self._log_name, order, self._disk(task), self._tables, self._ends, self._turns, near
        )
        self.all[task] = one
        one.work = self._process.spawn(one.run, f"{task}: follows its log")

    async def _end(self, one: LogFollower) -> None:
        taken = await one.give()
        if taken is not None:
            await self._port.in_thread(taken.store.close)

    def left(self) -> dict[str, int]:
        """By task that is followed: how many records the store still lacks, as far as is known; tasks that have not begun are left out."""
        return {
            task: max(0, one.progress.end - one.progress.position)
            for task, one in self.all.items()
            if one.work is not None and one.progress is not None
        }

    async def take(self, task: str) -> TakenStore | None:
        """The open store of a task that starts here, if its log was followed."""
        one = self.all.get(task)
        return None if one is None else await one.give()

    async def stop(self) -> None:
        """Close all stores; they stay on disk."""
        following, self.all = list(self.all.values()), {}
        for one in following:
            await self._end(one)
        if self._ending:
            await asyncio.wait(list(self._ending))
