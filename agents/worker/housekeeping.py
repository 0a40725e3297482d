"""What a worker does once a second beside its work: expire rows of tables, publish positions for lag tools, trim intermediate streams.

It publishes and deletes only up to a task's committed positions. One task reads an intermediate partition, so that task's position decides
what may be deleted from it; records that an unfinished batch by reference needs stay. A broadcast stream has as many readers as there are
tasks, and is not trimmed.

Promises: nothing depends on it. An error is logged once for each reason, and the work is tried again. A deleted record was processed and
committed, and nobody can need it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import structlog
from aiokafka.errors import KafkaError

from ...core.errors import HeadgateError
from ...core.names import StreamPartition
from ..kafka.settings import ClientSettings
from ..kafka.topics import TopicsAdmin
from .positions import PositionPublisher

if TYPE_CHECKING:
    from ..runtime.task import TaskActor

log = structlog.get_logger("headgate.upkeep")
TURN_S = 1.0
TRIM_AFTER = 10
"""Turns between two trimmings."""
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
        turn_s: float = TURN_S,
    ) -> None:
        """`trimmed`: the streams whose consumed records are deleted."""
        self._publisher = PositionPublisher(client, group)
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
            await self._publisher.start()
            while True:
                await asyncio.sleep(self._turn_s)
                await self.turn(list(actors.values()))
        finally:
            await self._publisher.stop()

    async def turn(self, actors: Iterable[TaskActor], *, trim: bool | None = None) -> None:
        """Do once whatever is due."""
        self._turns += 1
        durable: dict[StreamPartition, int] = {}
        done: dict[StreamPartition, int] = {}
        for actor in actors:
            actor.contribution.upkeep(refresh=self._turns % TOUCH_AFTER == 0)
            durable |= actor.contribution.durable
            done |= actor.contribution.done
        await self._publish({at: n for at, n in durable.items() if at.stream not in self._trimmed})
        wanted = self.trim and self._turns % TRIM_AFTER == 0 if trim is None else trim
        if wanted:
            await self._cut_off({at: n for at, n in done.items() if at.stream in self._trimmed and n > 0})

    async def _publish(self, durable: Mapping[StreamPartition, int]) -> None:
        news = {at: n for at, n in durable.items() if self._published.get(at) != n}
        if not news:
            return
        try:
            await self._publisher.publish(news)
        except (HeadgateError, KafkaError, OSError) as error:
            self._once(str(error))
        else:
            self._published |= news

    async def _cut_off(self, durable: Mapping[StreamPartition, int]) -> None:
        due = {at: n for at, n in durable.items() if n > self._cut.get(at, 0)}
        if not due:
            return
        try:
            answers = await self._topics.trim(due)
        except (HeadgateError, KafkaError, OSError) as error:
            self._once(str(error))
            return
        for at, answer in answers.items():
            if isinstance(answer, HeadgateError):
                self._once(str(answer))
            else:
                self._cut[at] = due[at]

    def _once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("upkeep", why=what)
