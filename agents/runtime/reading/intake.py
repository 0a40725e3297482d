"""The intake of one task: turns the broker's fetch answers into chunks, and shows the chooser the state of each partition.

What it decides: what is fetched, what is paused, when a partition is at its end, and when an answer is overdue.

Promises:

- Each task has one consumer, with manual assignment and `read_committed`; it never resets a position by itself.
- Each partition's buffer is bounded in bytes (plus one fetch), and so is what all partitions of a worker hold (see `read_ahead`). A full
  partition is not polled, and does not hold back the others.
- A partition is *at its end* only by a fresh answer of the broker: its position equals the high watermark. If its position equals a last
  stable offset below the high watermark, it is `blocked` by an open transaction.
- A partition's trouble (records deleted, topic deleted, no permission, no answer, a batch that cannot be decoded) is shown in its
  `PartitionHead`; the other partitions go on. A damaged batch is fetched again and again, and never skipped: only a seek gets past it.
- Nothing is handed out of a topic that was made again: its id is compared with that of the topic that the position belongs to, before the
  first record, after each change of the metadata, and when a position is refused. What was buffered of the one before is dropped, too.
- Fetched data is buffered only if it continues exactly where the buffer ends. Anything else (the answer to a fetch from before a seek, a
  position that the client moved by itself) is discarded, and fetched again from the end of the buffer.
- A fetch is held back only for a partition that was read up to its end, only for a bounded time (see `gathering`), and not across a seek, a
  new bound, a pause or the beginning of a drain. While another partition has a backlog, it is held back for `BEHIND_S`: the task has enough
  to do until then, and each fetch costs as much as a hundred rows. While another task has one, it is held back as long as this one rests.
- `take` never waits, and reading heads changes nothing. One coroutine calls `fill` in a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from ....core.errors import EnvironmentFault
from ....core.names import StreamPartition
from ....core.progress.frames import ControlFrame
from ...logger import Logger
from ...port.absence import WatchedTime
from ...port.outlasting import outlasted
from ...port.port import Consumer, Offsets, Port, Timer
from ...port.waiting import fetched, pause
from ...records.frames.chunks import Chunk, FetchBuffer, FetchedRecords
from ...records.frames.range_buffer import RangeBuffer
from ...records.kafka.columns import DamagedBatch
from ...records.kafka.fetched import FetchAnswer, OutOfRange, Taken
from ...records.limits import MOST_BYTES
from ...records.values.serdes import Serde
from .asked import AskingConsumer
from .gathering import SHORTEST_S
from .read_ahead import WITHOUT_ROOM, ReadAhead

log = Logger("headgate.intake")

BOUNDS_TIMEOUT_S = 5.0
FETCH_BYTES = 1 << 20
"""The most bytes of one partition in a fetch answer; a record batch always comes whole."""
BUSY_POLL_MS = 20
"""The long poll while a partition waits for room: a long one would delay its next fetch."""
GATHER_BYTES = 64 << 10
"""A gathered fetch is sent when about so many bytes of a partition have come, by their rate so far."""
BEHIND_S = 1.5
"""How long a fetch is held back while the task has a backlog in another partition. The ends of logs stay known meanwhile; see `lags`."""
RETRY_S = 1.0
"""How long a failed partition is not fetched: a broker refuses within a millisecond, and would be asked again at once."""


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """One partition to read: from `position` up to, not including, `until`."""

    at: StreamPartition
    position: int
    framed: Serde[Any] | None = None
    """The serde of the values, if the stream holds frames."""
    until: int | None = None
    times: Callable[[FetchedRecords], list[int]] | None = None
    """Computes the times that the chooser uses, if they are not Kafka's timestamps."""
    spanned: bool = False
    """Whether its records are read in spans; see `records.chunks`."""
    bulk: bool = False
    """Whether its chunks are bounded by bytes, because a record of it costs little; see `Head.bulk`."""
    gathers: bool = False
    """Whether its fetches may be held back for a share of the commit interval."""
    topic: str = ""
    """The id of the topic that the position belongs to; empty: unknown, the topic that is read is the one."""
    unread: int = 0
    """If it is not 0, its records are not fetched, and its chunks are ranges of at most so many offsets."""
    most_bytes: int = MOST_BYTES
    """How large a record batch may be once it is decompressed."""


class LostPosition(EnvironmentFault):
    """The position is outside of the log: records that should have been read are gone, or the topic was re-created or truncated."""

    def __init__(
        self, at: StreamPartition, position: int, start: int | None, end: int | None, *, topic: str = ""
    ) -> None:
        """`topic`: the id of the topic that has the name now, if it is another one."""
        self.at, self.position, self.start, self.end, self.topic = at, position, start, end, topic
        if topic:
            what = f"{at}: the topic was deleted and re-created; position {position} belongs to the one before"
        elif end is not None and position > end:
            what = f"{at}: position {position} is above the log's end {end}; the topic was re-created or truncated"
        else:
            gone = f"{start - position} records" if start is not None and start >= 0 else "an unknown number of records"
            what = f"{at}: {gone} are gone; the log starts at {start}, but the next position was {position}"
        super().__init__(what, remedy=f"headgate seek JOB {at} --to oldest, or on_lost='oldest' on the input")


@dataclass(slots=True)
class PartitionHead:
    """What the chooser, the watermark and the status need to know of one partition at this moment. Treat it as immutable: one is made per
    partition at each look, and a frozen dataclass takes five times as long to make."""

    at: StreamPartition
    offset: int
    timestamp: int | None
    count: int
    size: int
    position: int
    at_end: bool
    blocked: bool
    end_reached: bool
    paused: bool
    answers: int
    """How many answers there have been: every new answer is told to the machine, even if it says the same."""
    answered_age_s: float | None
    high_watermark: int | None
    stable: int | None
    """The last stable offset: records at or behind it belong to open transactions, or follow them."""
    degraded: str | None
    lost: LostPosition | None
    value: bytes | None
    bulk: bool = False
    topic: str = ""
    """The id of the topic that is read."""

    def more(self, position: int) -> bool:
        """Whether there is more to read from this position on, as far as the last answer tells."""
        return self.stable is not None and self.stable > position and not (self.paused or self.end_reached)

    @property
    def lag(self) -> int | None:
        """Records between the position and the high watermark; None until an answer has told the high watermark."""
        return None if self.high_watermark is None else max(0, self.high_watermark - self.position)


class _Partition:
    """The state of one partition of the task."""

    __slots__ = (
        "answer",
        "answers",
        "at",
        "buffer",
        "bulk",
        "came_s",
        "counted",
        "damage",
        "framed",
        "full",
        "gathering",
        "gathers",
        "held",
        "lost",
        "out",
        "retry_at",
        "since",
        "topic",
        "trouble",
    )

    def __init__(self, source: PartitionSource, now_s: float) -> None:
        self.buffer = _buffer(source)
        self.at = source.at
        self.topic = source.topic
        self.bulk = source.bulk
        self.framed = source.framed is not None
        self.answer: FetchAnswer | None = None
        self.answers = 0
        self.since = now_s
        self.trouble: str | None = None
        self.damage: str | None = None
        """Why the batch at the position cannot be read; kept until a readable batch has been fetched there."""
        self.lost: LostPosition | None = None
        self.full = False
        self.held = False
        self.retry_at = 0.0
        """After a failure: when the partition may be fetched again."""
        self.gathers = source.gathers
        self.gathering = False
        """It is not fetched for now, so that the next fetch brings more."""
        self.came_s = now_s
        """When the last records came."""
        self.counted = 0
        """What it holds of what the worker reads ahead."""
        self.out = 0
        """The bytes of chunks that were taken and are not let go."""


def _buffer(source: PartitionSource) -> FetchBuffer | RangeBuffer:
    if source.unread:
        return RangeBuffer(source.at, source.position, until=source.until, most=source.unread)
    return FetchBuffer(
        source.at,
        source.position,
        framed=source.framed,
        until=source.until,
        times=source.times,
        spanned=source.spanned,
        most_bytes=source.most_bytes,
    )


class Intake:
    """Reads the partitions of one task.

    The owner calls `fill` in a loop. `heads`, `take`, `pause` and `seek` may be called at any time between.
    """

    def __init__(
        self,
        port: Port,
        sources: Iterable[PartitionSource],
        *,
        name: str,
        buffer_bytes: int = 4 << 20,
        fetch_bytes: int = FETCH_BYTES,
        raw: bool = True,
        max_wait_ms: int = 500,
        fresh_s: float = 2.0,
        watchdog_s: float = 30.0,
        gather_until: Callable[[], float | None] = lambda: None,
        seldom_until: Callable[[float], float | None] = lambda now_s: None,
        offsets: Offsets | None = None,
        ahead: ReadAhead | None = None,
    ) -> None:
        """`gather_until`: until when (monotonic clock) the next fetch of sources that gather is held back; None: not at all.
        `seldom_until`: the same, because of a backlog. Then the fetch of a partition that just answered without records is held back, too.

        `offsets`: whom to ask about sources that are not fetched. `ahead`: what all intakes hold that are bounded together;
        then `let_go` must be called.
        """
        self._port = port
        self._clock = port.clock
        self._name = name
        self._buffer_bytes = buffer_bytes
        self._fetch_bytes = self._asks = fetch_bytes
        self._raw = raw
        self._max_wait_ms = max_wait_ms
        self._fresh_s = fresh_s + max_wait_ms / 1000
        self._watchdog_s = watchdog_s
        self._offsets = offsets
        self._ahead = ahead
        now_s = self._mono()
        self._watched = WatchedTime(now_s)
        """Silence is measured by it: while the main loop was blocked, no answer could be taken, and no broker is to blame."""
        sources = list(sources)
        self._unread = frozenset(source.at for source in sources if source.unread)
        self._parts = {source.at: _Partition(source, now_s) for source in sources}
        self._consumer: Consumer | None = None
        self._answered = asyncio.Event()
        self._gather_until = gather_until
        self._seldom_until = seldom_until
        self._gathered: Timer | None = None
        self._until = 0.0
        """When the gathered fetch is sent."""
        self._sent_s = 0.0
        self._awaited: set[StreamPartition] = set()
        """The partitions of the gathered fetch that are not answered yet."""
        self.arriving = False
        """A gathered fetch was sent, and what it brings has not been processed yet."""

    def _mono(self) -> float:
        return self._clock.now().mono

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect, and start at the given positions. Retries while no broker answers, until the deadline."""
        consumer: Consumer = self._port.consumer(
            self._on_answer,
            name=self._name,
            fetch_bytes=self._fetch_bytes,
            max_wait_ms=self._max_wait_ms,
            raw=self._raw,
        )
        if self._unread and self._offsets is not None:
            consumer = AskingConsumer(consumer, self._unread, self._offsets, self._clock, self._on_answer)
        await consumer.start(
            lambda: {at: part.buffer.buffered_to for at, part in self._parts.items()}, deadline_s=deadline_s
        )
        self._consumer, self._asks = consumer, self._fetch_bytes
        for at, part in self._parts.items():
            part.since = self._watched.look(self._mono())
            part.full = part.full or not self._has_room(part)
            if part.held or part.full or part.gathering or part.buffer.ended:
                consumer.pause(at)
            self._count(part)

    async def _begin_again(self) -> None:
        """The client's fetcher has failed. Replace the client; the new one continues behind what is buffered."""
        log.warning("the client has stopped reading and is replaced", intake=self._name)
        await self.stop()
        await pause(self._clock, RETRY_S)
        await outlasted(self.start)

    async def stop(self) -> None:
        """Stop the consumer."""
        if self._gathered is not None:
            self._gathered.cancel()
            self._gathered = None
            for part in self._parts.values():
                part.gathering = False
        consumer, self._consumer = self._consumer, None
        for part in self._parts.values():
            self._waits_no_more(part)
            self._counts(part, 0)
        if consumer is not None:
            await consumer.stop()

    # ---------------------------------------------------------------------------------------------------------- fetching

    def _on_answer(self, at: StreamPartition, answer: FetchAnswer) -> None:
        part = self._parts.get(at)
        if part is None:
            return
        part.answer = answer
        part.answers += 1
        if not answer.error:
            part.since = self._watched.look(self._mono())
            part.trouble = None
        elif part.trouble is None:  # a reason given by `_failed` is more precise
            part.trouble = f"the broker answers {answer.error}"
        self._awaited.discard(at)
        self._answered.set()
        self._count(part)

    async def fill(self, most_s: float) -> bool:
        """Move fetched records into the buffers; wait for an answer if there are none. True if heads may have changed."""
        if self._consumer is not None and self._consumer.dead:
            await self._begin_again()
        if self._consumer is None:
            raise EnvironmentFault(f"intake of {self._name} is not started")
        self._resume_drained()
        taken = await fetched(self._port, self._consumer, self._answered, most_s)
        await self._identify()
        await self._absorb(taken)
        if self._seldom_until(self._mono()) is not None:
            for part in self._parts.values():
                self._gather(part)
        self._watch()
        return bool(taken) or self._answered.is_set()

    async def _identify(self) -> None:
        """Compare the topics that are read with those that the positions belong to; take the ids of those that are not known."""
        assert self._consumer is not None
        for at, part in self._parts.items():
            found = self._consumer.topic_id(at.stream)
            if not part.topic:
                part.topic = found
            elif found and found != part.topic and part.lost is None:
                before, position = part.topic, part.buffer.position
                start, end = await self._bounds(at)
                if (part.topic, part.buffer.position) == (before, position):  # otherwise a seek came in between
                    part.buffer.clear(position)
                    part.lost = LostPosition(at, position, start, end, topic=found)
                    self._leave_alone(part)
                    self._answered.set()

    async def _absorb(self, taken: list[Taken]) -> None:
        for one in taken:
            part = self._parts.get(one.at)
            if part is None:
                continue
            if part.lost is not None:
                continue  # until a seek: what comes may be another topic's
            if one.error is not None:
                await self._failed(part, one.error)
            elif one.start == part.buffer.buffered_to:
                self._put(part, one)
            elif self._consumer is not None:  # fetched before a seek
                self._consumer.seek(part.at, part.buffer.buffered_to)

    def _put(self, part: _Partition, one: Taken) -> None:
        size = sum([batch.size for batch in one.batches])
        part.buffer.put(one.batches, one.start, one.next_position)
        part.damage = None
        self._look(part)
        self._hold_full(part)
        now = self._mono()
        took_s, part.came_s = now - part.came_s, now
        self._gather(part, took_s / max(size, 1))

    def _gather(self, part: _Partition, byte_s: float = inf) -> None:
        """Hold the next fetch of this partition back, unless there is more to fetch already. Of late, a byte came each `byte_s` seconds; an
        answer without records says nothing of that."""
        answer, now = part.answer, self._mono()
        if (
            not part.gathers
            or part.gathering
            or answer is None
            or answer.error
            or part.full
            or part.held
            or self._consumer is None
        ):
            return
        if part.buffer.buffered_to < min(answer.stable, answer.high_watermark):
            return
        seldom = self._seldom_until(now)
        until = seldom or self._gather_until()
        if until is None:
            return
        enough = self._fetch_bytes // 2 if part.bulk or seldom else GATHER_BYTES
        until = min(until, now + byte_s * enough)
        if until < now + SHORTEST_S:
            return
        part.gathering = True
        self._consumer.pause(part.at)
        if self._gathered is None or until < self._until:
            if self._gathered is not None:
                self._gathered.cancel()
            self._until = until
            self._gathered = self._clock.call_later(until - now, self.go_on)

    def go_on(self) -> None:
        """Fetch what is held back now."""
        if self._gathered is None:
            return
        self._gathered.cancel()
        self._gathered = None
        self._sent_s = self._mono()
        for part in self._parts.values():
            if part.gathering:
                part.gathering = False
                if self._consumer is not None and not part.held and not part.full:
                    self._awaited.add(part.at)
                    self._consumer.resume(part.at)
        if self._consumer is not None and self._awaited:
            self.arriving = True
            self._consumer.long_poll(1)  # what is there now is wanted, not what comes later

    def arrived(self) -> float | None:
        """Nothing that is buffered may be handed out now. If a gathered fetch was answered: how long it took since that was sent."""
        if not self.arriving or self._awaited or self._answered.is_set():  # what an answer brought is not buffered yet
            return None
        self.arriving = False
        return self._mono() - self._sent_s

    def _look(self, part: _Partition) -> None:
        """If the new head batch cannot be decoded, have it fetched again after a while."""
        if part.buffer.damaged is not None:
            error, behind = part.buffer.damaged
            part.buffer.clear(part.buffer.position)
            self._damaged(part, error, str(behind))

    def _damaged(self, part: _Partition, error: DamagedBatch, behind: str) -> None:
        why = error.what
        if "cannot be read" not in why:
            why = f"the batch at offset {part.buffer.buffered_to} cannot be read: {why}"
        part.damage = f"{why}; it is fetched again; to continue after it: headgate seek JOB {part.at} --to {behind}"
        self._leave_alone(part)

    def _leave_alone(self, part: _Partition) -> None:
        """Pause this partition for a while; then fetch from the end of its buffer, wherever the client's own position is."""
        if self._consumer is not None:
            self._consumer.seek(part.at, part.buffer.buffered_to)
            self._consumer.pause(part.at)
        part.full = True  # fetched again after a seek, or after a while unless the position is lost
        self._waits_no_more(part)
        part.retry_at = self._mono() + RETRY_S
        self._count(part)

    async def _failed(self, part: _Partition, error: EnvironmentFault) -> None:
        if isinstance(error, OutOfRange):
            before, position = part.topic, part.buffer.position
            start, end = await self._bounds(part.at)
            found = await self._id_now(part.at)
            if (part.topic, part.buffer.position) != (before, position):
                return  # a seek came in between
            other = bool(before and found and found != before)
            if not other and start is not None and end is not None and start <= position <= end:
                return  # the answer to a fetch from before a seek
            if other:  # what was buffered of the one before is dropped, too
                part.buffer.clear(position)
            part.lost = LostPosition(part.at, position, start, end, topic=found if other else "")
        elif isinstance(error, DamagedBatch):
            self._damaged(part, error, "OFFSET")
            return
        else:
            part.trouble = error.what
        self._leave_alone(part)

    async def _bounds(self, at: StreamPartition) -> tuple[int | None, int | None]:
        """Where the log starts and ends; the answer that refused the position does not tell."""
        found = None if self._consumer is None else await self._consumer.bounds(at, within_s=BOUNDS_TIMEOUT_S)
        return (None, None) if found is None else found

    async def _id_now(self, at: StreamPartition) -> str:
        """The id of its topic: the broker refuses a position before the client's metadata says that the topic is another one."""
        return "" if self._consumer is None else await self._consumer.topic_id_now(at.stream, within_s=BOUNDS_TIMEOUT_S)

    def _hold_full(self, part: _Partition) -> None:
        if self._consumer is None:
            return
        self._drop_behind(part)
        self._counts(part, self._held(part))
        if part.full:
            return
        room = self._has_room(part)
        if room:
            self._ask_for(self._fetch_bytes)
        if part.buffer.size >= self._buffer_bytes or part.buffer.ended or not room:
            part.full = True
            self._consumer.pause(part.at)
        self._count(part)

    def _drop_behind(self, part: _Partition) -> None:
        """What lies behind the bound of a partition that has reached it is never handed out, so it takes nothing from the others."""
        buffer = part.buffer
        if buffer.ended and buffer.size and buffer.until is not None:
            buffer.clear(max(buffer.position, buffer.until))
            if self._consumer is not None:  # another bound may let it be fetched after all
                self._consumer.seek(part.at, buffer.buffered_to)
                self._consumer.pause(part.at)
            part.full, part.gathering = True, False
            self._awaited.discard(part.at)

    def _held(self, part: _Partition) -> int:
        """The bytes that are in memory because of this partition."""
        return part.buffer.size + part.out

    def _has_room(self, part: _Partition) -> bool:
        """Whether the worker may hold one more fetch of this partition. A task that has something of others may wait for this one, and what
        jobs have written comes first: to work it off makes room. What is not fetched needs none."""
        ahead = self._ahead
        return (
            ahead is None
            or part.at in self._unread
            or ahead.room(self._fetch_bytes, self._buffer_bytes)
            or (not self._held(part) and (part.framed or any(map(self._held, self._parts.values()))))
        )

    def _drained(self, part: _Partition) -> bool:
        """Whether this full partition is to be fetched again."""
        return (
            part.full
            and part.buffer.size <= self._buffer_bytes // 2
            and not (part.held or part.buffer.ended or part.lost is not None)
        )

    def _ask_for(self, size: int) -> None:
        """Fetches ask for so much of a partition from now on."""
        if size != self._asks and self._consumer is not None:
            self._asks = size
            self._consumer.fetch_bytes(size)

    def _resume(self, part: _Partition, room: bool) -> None:
        """Fetch this full partition again."""
        self._waits_no_more(part)
        if self._consumer is not None and self._drained(part):
            part.full = False
            self._ask_for(self._fetch_bytes if room else min(self._fetch_bytes, WITHOUT_ROOM))
            self._consumer.resume(part.at)
            self._count(part)

    def _wait_for_room(self, part: _Partition) -> None:
        if self._ahead is not None and not self._held(part):
            self._ahead.wait(part, self._fetch_bytes, self._buffer_bytes, partial(self._resume, part))

    def _waits_no_more(self, part: _Partition) -> None:
        if self._ahead is not None:
            self._ahead.withdraw(part)

    def _count(self, part: _Partition) -> None:
        """Count what the partition holds: what is in memory, and a fetch, if it is being fetched and not known to be at its end."""
        if self._consumer is None or part.at in self._unread:
            return
        answer, size = part.answer, self._held(part)
        idle = part.full or part.held or part.gathering or part.buffer.ended
        if not idle and (answer is None or answer.error or answer.high_watermark > part.buffer.buffered_to):
            size += self._asks
        self._counts(part, size)

    def _counts(self, part: _Partition, size: int) -> None:
        if self._ahead is not None:
            more, part.counted = size - part.counted, size
            self._ahead.change(more)  # it may be this partition's turn by that, which counts it again

    def _resume_drained(self) -> None:
        consumer = self._consumer
        if consumer is None:
            return
        waiting = False
        now = self._mono()
        for part in self._parts.values():
            if part.lost is not None or part.buffer.ended or now < part.retry_at:
                continue
            if self._drained(part):
                if self._has_room(part):
                    self._resume(part, True)
                else:
                    self._wait_for_room(part)
            waiting = waiting or part.full
        most = BUSY_POLL_MS if waiting else self._max_wait_ms
        if self._awaited and now < self._sent_s + SHORTEST_S:
            most = 1
        if self._gathered is not None:  # the fetch of the others must be answered by then
            most = min(most, max(1, int((self._until - now) * 1000)))
        consumer.long_poll(most)

    def _watch(self) -> None:
        """Note the partitions without an answer."""
        now = self._watched.look(self._mono())
        for part in self._parts.values():
            if part.full or part.held or part.gathering:
                part.since = now  # it is not being fetched
                if part.held:
                    part.trouble = None
                continue
            silent = now - part.since
            stream = part.buffer.at.stream
            if silent > min(5.0, self._watchdog_s) and self._gone(stream):
                part.trouble = f"the topic {stream} no longer exists"
            elif silent > self._watchdog_s:
                part.trouble = f"no answer from the broker for more than {self._watchdog_s:g} s"

    def _gone(self, stream: str) -> bool:
        return self._consumer is not None and not self._consumer.knows(stream)

    # ------------------------------------------------------------------------------------------------- what the task sees

    def heads(self) -> dict[StreamPartition, PartitionHead]:
        """The state of every partition, for the chooser."""
        return {at: self.head(at) for at in self._parts}

    def head(self, at: StreamPartition) -> PartitionHead:
        """The state of one partition."""
        part = self._parts[at]
        buffer, answer = part.buffer, part.answer
        record = buffer.head()
        ended = buffer.ended
        age = None if answer is None else self._mono() - answer.at_s
        position = buffer.position
        fresh = answer is not None and not answer.error and age is not None and age <= self._fresh_s
        reading = record is None and fresh and answer is not None and not part.held
        high = answer.high_watermark if answer is not None and not answer.error else None
        return PartitionHead(
            at=at,
            offset=position if record is None else record.offset,
            timestamp=None if record is None or ended else record.timestamp,
            count=0 if ended else buffer.count,
            size=buffer.size,
            position=position,
            at_end=reading and answer is not None and position >= answer.high_watermark,
            blocked=reading and not ended and answer is not None and answer.stable <= position < answer.high_watermark,
            end_reached=ended,
            paused=part.held,
            answers=part.answers,
            answered_age_s=age,
            high_watermark=high,
            stable=answer.stable if answer is not None and high is not None else None,
            degraded=part.damage or part.trouble,
            lost=part.lost,
            value=None if record is None else record.value,
            bulk=part.bulk,
            topic=part.topic,
        )

    def ends(self) -> dict[StreamPartition, tuple[int, float]]:
        """Where the log of each partition ended according to the last fetch answer, and how old that is."""
        now = self._mono()
        return {
            at: (part.answer.high_watermark, now - part.answer.at_s)
            for at, part in self._parts.items()
            if part.answer is not None and not part.answer.error
        }

    def troubles(self) -> list[tuple[StreamPartition, str | None]]:
        """Why each partition cannot be read at present; None if it can."""
        return [(at, part.damage or part.trouble) for at, part in self._parts.items()]

    def positions(self) -> dict[StreamPartition, int]:
        """The next position of each partition, assuming that every chunk taken so far is completed."""
        return {at: part.buffer.position for at, part in self._parts.items()}

    def drains_to(self, at: StreamPartition) -> int:
        """The position behind everything that has been fetched of this partition."""
        return self._parts[at].buffer.drains_to

    def control(self, at: StreamPartition) -> tuple[int, ControlFrame] | None:
        """The control message at the head of a framed partition, with its offset; `take` removes it."""
        return self._parts[at].buffer.control()

    def take(
        self,
        at: StreamPartition,
        most: int,
        up_to_ms: int | None = None,
        most_bytes: int | None = None,
        most_rows: int | None = None,
    ) -> Chunk | None:
        """The next chunk of this partition, without waiting; None if there is none, or none up to `up_to_ms`."""
        part = self._parts[at]
        before = part.buffer.size
        chunk = part.buffer.take(most, up_to_ms, most_bytes, most_rows)
        part.out += before - part.buffer.size if self._ahead is not None else 0
        self._look(part)
        self._drop_behind(part)
        self._count(part)
        if self._drained(part):
            self._answered.set()  # there is room again: `fill` must resume the partition, not wait for an answer
        return chunk

    def let_go(self) -> None:
        """No chunk that was taken is in use any more."""
        for part in self._parts.values():
            if part.out:
                part.out = 0
                self._count(part)
                if self._drained(part):
                    self._answered.set()

    def unread(self, at: StreamPartition) -> bool:
        """Whether the records of this partition are not fetched, and its chunks are ranges of offsets."""
        return at in self._unread

    def pause(self, at: StreamPartition) -> None:
        """Stop fetching this partition; what is buffered stays."""
        part = self._parts[at]
        part.held = True
        part.gathering = False
        self._waits_no_more(part)
        self._awaited.discard(at)
        if self._consumer is not None:
            self._consumer.pause(part.at)
        self._count(part)

    def resume(self, at: StreamPartition) -> None:
        """Fetch this partition again."""
        part = self._parts[at]
        part.held = part.gathering = False
        part.since = self._watched.look(self._mono())
        if self._consumer is not None and not part.full:
            self._consumer.resume(part.at)
        self._count(part)

    def bound(self, at: StreamPartition, until: int | None) -> None:
        """Hand out no records at or behind this offset."""
        part = self._parts[at]
        part.buffer.until = until
        self._drop_behind(part)
        self._count(part)
        self.go_on()

    def watch(self, watchdog_s: float) -> None:
        """Set after what time without an answer a partition is in trouble."""
        self._watchdog_s = watchdog_s

    def seek(self, at: StreamPartition, offset: int, topic: str = "") -> None:
        """Drop this partition's buffer and its trouble, and continue at `offset` of the topic with this id."""
        part = self._parts[at]
        part.topic = topic
        part.buffer.clear(offset)
        part.lost = part.trouble = part.damage = part.answer = None
        part.since = self._watched.look(self._mono())
        part.full = part.gathering = False
        self._waits_no_more(part)
        part.retry_at = 0.0
        if self._consumer is not None:
            self._consumer.seek(part.at, offset)
            if not part.held:
                self._consumer.resume(part.at)
        self._count(part)
