"""What a worker does once a second alongside its work: expire rows of tables, publish positions for lag tools, trim intermediate streams,
let go of what tasks have left behind.

It publishes and deletes only up to a task's committed positions. One task reads an intermediate partition, so that task's position decides
what may be deleted from it; records that an unfinished batch by reference needs stay. A broadcast stream has as many readers as there are
tasks, and is not trimmed.

Promises: nothing depends on it, so nothing that it calls ends the worker. An error or an unasked cancellation is logged once for each
reason, and the work is tried again at its next turn (`Upkeep._tried` is the only place that awaits a client). What fails in the state of
a task fails that task. A deleted record was processed and committed, and no task can need it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from ...core.errors import HeadgateError
from ...core.names import StreamPartition
from ..cancellation import answered, passes, said
from ..kafka.settings import ClientSettings
from ..kafka.topics import TopicsAdmin
from ..logger import Logger
from .garbage import Garbage
from .positions import PositionPublisher

if TYPE_CHECKING:
    from ..runtime.task.task import TaskActor

R = TypeVar("R")
log = Logger("headgate.upkeep")
TURN_S = 1.0
TRIM_AFTER = 10
"""Turns between two trimmings."""
LOOK_AFTER = 10
"""Turns between two looks at the clocks."""
OFF_MS = 60_000
"""So far may this machine's clock be from the broker's. Its time is known but for the time that a message needs."""
TOUCH_AFTER = 60
"""Turns after which an idle store notes again that it is at the end of its log."""


class Upkeep:
    """Runs the turns of one worker."""

    def __init__(
        self,
        client: ClientSettings,
        group: str,
        topics: TopicsAdmin,
        trimmed: frozenset[str],
        *,
        ahead_ms: Callable[[], int | None],
        known_ms: Callable[[], int],
        turn_s: float = TURN_S,
    ) -> None:
        """`trimmed`: the streams whose consumed records are deleted. `ahead_ms`: how far this machine's clock is ahead of the broker's;
        None while that is unknown. `known_ms`: until when it is known what was decided (wall clock)."""
        self._ahead_ms = ahead_ms
        self._known_ms = known_ms
        self._off = False
        """It was said that this machine's clock is wrong."""
        self._publisher = PositionPublisher(client, group)
        self._garbage = Garbage()
        self._topics = topics
        self._trimmed = trimmed
        self._turn_s = turn_s
        self._published: dict[StreamPartition, int] = {}
        self._cut: dict[StreamPartition, int] = {}
        self._said: set[str] = set()
        self._turns = 0
        self.trim = True
        """The dynamic setting `intermediate.trim`."""

    async def run(self, actors: Mapping[str, TaskActor]) -> None:
        """Run turns until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._turn_s)
                await self.turn(list(actors.values()))
        finally:
            await self._publisher.stop()

    async def turn(self, actors: Collection[TaskActor], *, trim: bool | None = None) -> None:
        """Do once whatever is due."""
        self._turns += 1
        self._garbage.turn(actors)
        durable: dict[StreamPartition, int] = {}
        done: dict[StreamPartition, int] = {}
        known_ms = self._known_ms() if self._turns % TOUCH_AFTER == 0 else None
        for actor in actors:
            try:
                actor.contribution.upkeep(known_ms)
            except Exception as error:  # noqa: BLE001 - a store that cannot be read or written, a row that cannot be decoded
                actor.failures.broken(error)
            durable |= actor.contribution.durable
            done |= actor.contribution.done
        if self._turns % LOOK_AFTER == 0 and actors:
            self._look_at_clock()
        await self._publish({at: n for at, n in durable.items() if at.stream not in self._trimmed})
        wanted = self.trim and self._turns % TRIM_AFTER == 0 if trim is None else trim
        if wanted:
            await self._cut_off({at: n for at, n in done.items() if at.stream in self._trimmed and n > 0})

    def _look_at_clock(self) -> None:
        """Say it once when this machine's clock is wrong, and once when it is right again."""
        ahead_ms = self._ahead_ms()
        off = ahead_ms is not None and abs(ahead_ms) > OFF_MS
        if off and not self._off:
            log.warning(
                "this machine's clock differs from the broker's",
                ahead_s=round((ahead_ms or 0) / 1000),
                remedy="let both be set by NTP: what is kept for a time, or waits for one, uses this machine's clock",
            )
        elif self._off and not off:
            log.info("this machine's clock agrees with the broker's again")
        self._off = off

    async def _publish(self, durable: Mapping[StreamPartition, int]) -> None:
        news = {at: n for at, n in durable.items() if self._published.get(at) != n}
        if not news:
            return
        if await self._tried("publishing positions", self._published_now(news)):
            self._published |= news

    async def _published_now(self, news: Mapping[StreamPartition, int]) -> bool:
        await self._publisher.publish(news)
        return True

    async def _cut_off(self, durable: Mapping[StreamPartition, int]) -> None:
        due = {at: n for at, n in durable.items() if n > self._cut.get(at, 0)}
        if not due:
            return
        answers = await self._tried("deleting consumed records", self._topics.trim(due))
        for at, answer in (answers or {}).items():
            if isinstance(answer, HeadgateError):
                self._once(str(answer))
            else:
                self._cut[at] = due[at]

    async def _tried(self, what: str, work: Awaitable[R]) -> R | None:
        """The result of a client's call; None if it raised anything, which is logged. A cancellation of this worker's own passes."""
        try:
            with answered(what):
                return await work
        except BaseException as error:  # a client may raise anything
            if passes(error):
                raise
            self._once(str(error) if isinstance(error, HeadgateError) else f"{what}: {said(error)}")
            return None

    def _once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("housekeeping", why=what)
