"""A consumer that does not fetch some of its partitions: it asks how far their logs are readable.

Batches by reference are cut of the offsets; executors read the records. The other partitions are read by the consumer that it wraps.

Promises: what it reports of a partition are answers of the broker, as those of a fetch are. The readable end is the last stable offset, so
a range never holds a record of an open transaction. A position outside of the log is reported as `OutOfRange`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ....core.errors import EnvironmentFault
from ....core.names import StreamPartition
from ...cancellation import passes, said
from ...port.port import Clock, Consumer, Offsets
from ...port.waiting import in_time, wait
from ...records.kafka.fetched import FetchAnswer, OutOfRange, Taken

Answered = Callable[[StreamPartition, FetchAnswer], None]
OFTEN_S = 0.05
"""How soon a log is asked again that has grown since it was asked."""
SELDOM_S = 0.4
"""How soon one is asked again that has not. It is well below the time for which an answer is valid (`core.task.inputs`)."""


START_EVERY = 10
"""The start of a log is asked so seldom: executors look at it before they read."""


class AskingConsumer:
    """Asks about `asked`; `inner` fetches the others."""

    def __init__(
        self, inner: Consumer, asked: frozenset[StreamPartition], offsets: Offsets, clock: Clock, answered: Answered
    ) -> None:
        self._inner = inner
        self._asked = asked
        self._offsets = offsets
        self._clock = clock
        self._answered = answered
        self._ends: dict[StreamPartition, int] = {}
        """By partition, up to where it has been reported."""
        self._starts: dict[StreamPartition, int] = {}
        self._ids: dict[str, str] = {}
        self._turn = 0
        self._paused: set[StreamPartition] = set()
        self._found: list[Taken] = []
        self._again = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None

    async def start(self, where: Callable[[], Mapping[StreamPartition, int]], *, deadline_s: float) -> None:
        """See `port`."""
        await self._inner.start(
            lambda: {at: position for at, position in where().items() if at not in self._asked}, deadline_s=deadline_s
        )
        self._ends = {at: position for at, position in where().items() if at in self._asked}
        self._asking = asyncio.get_running_loop().create_task(self._ask(), name="asking for offsets")

    async def _ask(self) -> None:
        while True:
            self._again.clear()
            self._turn += 1
            grew = False
            for at in [one for one in self._ends if one not in self._paused]:
                grew = await self._ask_one(at) or grew
            await wait(self._clock, self._again, OFTEN_S if grew else SELDOM_S)

    async def _ask_one(self, at: StreamPartition) -> bool:
        """Report what the broker says of one partition. Returns whether there is more than before."""
        position = self._ends[at]
        try:
            if self._turn % START_EVERY == 0 or at not in self._starts:
                self._starts[at] = await self._offsets.start_of(at)
            stable = high = await self._offsets.end_of(at, committed=True)
            if stable <= position:  # only then does it matter whether a transaction is open
                high = await self._offsets.end_of(at, committed=False)
            if stable > position or self._turn % START_EVERY == 0 or at.stream not in self._ids:
                self._ids[at.stream] = await self._offsets.topic_id(
                    at.stream
                )  # behind the end: it is that topic's, or its id is refused
        except Exception as error:
            if passes(error):
                raise
            self._report(at, EnvironmentFault(f"the ends of {at} are not known: {said(error)}"))
            return False
        start = self._starts[at]
        if position != self._ends[at]:
            return True  # a seek came in between
        if at in self._paused:
            return False
        if not start <= position <= max(high, stable):
            self._starts.pop(at)
            self._report(at, OutOfRange(f"the log of {at} goes from {start} to {high}"))
            return False
        if stable > position:
            self._ends[at] = stable
            self._found.append(Taken(at, position, next_position=stable))
        self._answered(at, FetchAnswer(self._clock.now().mono, "", max(high, stable), stable, start))
        return stable > position

    def _report(self, at: StreamPartition, error: EnvironmentFault) -> None:
        self._found.append(Taken(at, -1, error=error))
        self._answered(at, FetchAnswer(self._clock.now().mono, error.what, 0, 0, -1))

    async def take(self) -> list[Taken]:
        """See `port`."""
        found, self._found = self._found, []
        return [*found, *await self._inner.take()]

    def seek(self, at: StreamPartition, offset: int) -> None:
        """See `port`."""
        if at not in self._asked:
            self._inner.seek(at, offset)
            return
        self._ends[at] = offset
        self._found = [one for one in self._found if one.at != at]
        self._again.set()

    def pause(self, at: StreamPartition) -> None:
        """See `port`."""
        if at in self._asked:
            self._paused.add(at)
        else:
            self._inner.pause(at)

    def resume(self, at: StreamPartition) -> None:
        """See `port`."""
        if at in self._asked:
            self._paused.discard(at)
            self._again.set()
        else:
            self._inner.resume(at)

    def long_poll(self, most_ms: int) -> None:
        """See `port`."""
        self._inner.long_poll(most_ms)

    def fetch_bytes(self, most: int) -> None:
        """See `port`."""
        self._inner.fetch_bytes(most)

    async def bounds(self, at: StreamPartition, *, within_s: float) -> tuple[int, int] | None:
        """See `port`."""
        if at not in self._asked:
            return await self._inner.bounds(at, within_s=within_s)

        async def both() -> tuple[int, int]:
            return await self._offsets.start_of(at), await self._offsets.end_of(at, committed=True)

        try:
            return await in_time(self._clock, within_s, both())
        except (TimeoutError, EnvironmentFault):
            return None

    def knows(self, topic: str) -> bool:
        """See `port`."""
        return any(at.stream == topic for at in self._asked) or self._inner.knows(topic)

    def topic_id(self, topic: str) -> str:
        """See `port`."""
        return self._ids[topic] if topic in self._ids else self._inner.topic_id(topic)

    async def topic_id_now(self, topic: str, *, within_s: float) -> str:
        """See `port`."""
        if all(at.stream != topic for at in self._asked):
            return await self._inner.topic_id_now(topic, within_s=within_s)
        try:
            return await in_time(self._clock, within_s, self._offsets.topic_id(topic))
        except (TimeoutError, EnvironmentFault):
            return ""

    @property
    def dead(self) -> bool:
        """See `port`."""
        return self._inner.dead or (self._asking is not None and self._asking.done())

    async def stop(self) -> None:
        """See `port`."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])
            if not asking.cancelled():
                asking.exception()  # a consumer that is dead is replaced, and its error does not matter
        await self._inner.stop()
