"""Sends and receives heartbeats, apart from the main loop, so that a busy actor does not look like a dead process.

Every second a worker sends who it is and how long ago its main loop last turned. A stuck loop therefore shows as a growing number, not as
silence. Received heartbeats, the worker's own included, become events on the main loop. Old heartbeats are worthless, so a producer that
cannot send drops them; nothing is ever retried.

Promises: no record of the topic stops the listener. A record that is no heartbeat of this version is reported and skipped. So is one in
this process's name that it did not send: its own heartbeats are the clock by which it judges others (`core.coordination.liveness`), and
nothing but itself may move that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from ...core.coordination.events import Beat, Heartbeat
from ...core.coordination.leader.leader import Leader
from ...core.coordination.liveness import MAX_BEAT, decode_beat, encode_beat
from ...core.coordination.member.member import Member
from ...core.errors import DataError, EnvironmentFault
from ...core.names import StreamPartition
from ..cancellation import passes
from ..logger import Logger
from ..port.port import Apart, Consumer, Port, Tell
from ..port.waiting import fetched, in_time, pause
from ..records.kafka.columns import DamagedBatch
from ..records.kafka.fetched import OutOfRange, Taken

log = Logger("headgate.heartbeat")
CONNECT_S = 5.0
SEND_S = 5.0
POLL_MS = 500
REMEMBERED = 600
"""How many of its own heartbeats a process knows again; one comes back within seconds, or never."""
TURN_S = 0.5
"""How often the main loop records that it turns."""
LOAD_SHARE = 0.02
"""The share of the main loop's time that it spends on its load. To find the load of 64 tasks with windows takes 20 ms."""
LOAD_S = 5.0
"""An older load is found again, however long that takes: heartbeats must not say what was true long ago."""


class Heartbeats:
    """Sends and receives heartbeats in a separate thread. `say()` is called there for each heartbeat, so it may only read plain values."""

    def __init__(
        self,
        port: Port,
        topic: str,
        *,
        say: Callable[[], Heartbeat],
        heard: Callable[[Beat], None],
        unread: Callable[[str, int, int, str], None],
        interval_s: float = 1.0,
    ) -> None:
        """`heard` is called with each received heartbeat, in the loop that called `start`; so is `unread`, with topic, partition, offset
        and reason.
        """
        self.say = say
        self._port = port
        self._at = StreamPartition(topic, 0)
        self._heard = heard
        self._unread = unread
        self._interval_s = interval_s
        self._position: int | None = None
        """The next offset to read; None to continue at the end of the topic."""
        self._sent: deque[Heartbeat] = deque(maxlen=REMEMBERED)
        self._apart: Apart | None = None

    def start(self) -> None:
        """Start sending and receiving."""
        self._apart = self._port.apart("headgate-heartbeat", self._live)

    async def stop(self) -> None:
        """Stop, and close the clients."""
        if self._apart is not None:
            await self._apart.stop()

    async def _live(self, tell: Tell) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._speak())
            group.create_task(self._listen(tell))

    async def _speak(self) -> None:
        clock = self._port.clock
        while True:
            producer = self._port.producer(
                None,
                name="heartbeats",
                compression=None,
                batch_bytes=2 * MAX_BEAT,
                request_timeout_ms=int(SEND_S * 1000),
                transaction_timeout_ms=0,
            )
            try:
                await producer.start(deadline_s=CONNECT_S)
                while True:
                    due = clock.now().mono + self._interval_s
                    batch = producer.batch(2 * MAX_BEAT)
                    beat = self.say()
                    self._sent.append(beat)
                    batch.add(None, [encode_beat(beat)], clock.now().wall, None, 0)
                    sent = await in_time(clock, SEND_S, producer.send(self._at, batch))
                    await in_time(clock, 2 * SEND_S, sent)
                    await pause(clock, max(0.0, due - clock.now().mono))
            except BaseException as error:  # a sender that ended would make this process look dead
                if passes(error):
                    raise
                log.debug("heartbeat not sent", error=str(error))
                await pause(clock, self._interval_s)
            finally:
                await producer.discard()

    async def _listen(self, tell: Tell) -> None:
        came = asyncio.Event()
        while True:
            consumer = self._port.consumer(
                lambda at, answer: came.set(), name="heartbeats", fetch_bytes=1 << 20, max_wait_ms=POLL_MS, raw=True
            )
            try:
                await self._begin(consumer)
                while not consumer.dead:
                    for one in await fetched(self._port, consumer, came, POLL_MS / 1000):
                        self._read(one, tell)
            except (DamagedBatch, OutOfRange) as error:
                if isinstance(error, DamagedBatch) and self._position is not None:
                    tell(self._unread, *self._at, self._position, str(error))
                # the topic keeps one hour: after a longer absence, continue at its end
                await self._missed(error)
                self._position = None
            except BaseException as error:  # see above
                if passes(error):
                    raise
                await self._missed(error)
            finally:
                await consumer.stop()

    async def _missed(self, error: BaseException) -> None:
        log.debug("heartbeats not read", error=str(error))
        await pause(self._port.clock, self._interval_s)

    async def _begin(self, consumer: Consumer) -> None:
        """Continue at the last position, or at the end of the topic if there is none."""
        await consumer.start(lambda: {self._at: self._position or 0}, deadline_s=CONNECT_S)
        if self._position is not None:
            return
        consumer.pause(self._at)
        bounds = await consumer.bounds(self._at, within_s=CONNECT_S)
        if bounds is None:
            raise EnvironmentFault(f"no broker answered for the end of {self._at}")
        self._position = bounds[1]
        consumer.seek(self._at, self._position)
        consumer.resume(self._at)

    def _read(self, taken: Taken, tell: Tell) -> None:
        if taken.error is not None:
            raise taken.error
        for batch in taken.batches:
            columns = batch.columns()
            for index in range(columns.index_from(self._position or 0), len(columns)):
                self._hand_over(columns.offset(index), columns.values[index], tell)
            self._position = batch.next
        self._position = taken.next_position

    def _hand_over(self, offset: int, value: bytes | None, tell: Tell) -> None:
        try:
            beat = decode_beat(value)
        except DataError as error:
            tell(self._unread, *self._at, offset, str(error))
        else:
            if self._forged(beat):
                tell(
                    self._unread,
                    *self._at,
                    offset,
                    "a heartbeat that claims to be from this process, which did not send it",
                )
            else:
                tell(self._heard, Beat(beat))

    def _forged(self, beat: Heartbeat) -> bool:
        """Whether it claims to be one of this process's own and is not. That this process is gone is not true, either: it reads that."""
        own = bool(self._sent) and beat.process == self._sent[-1].process
        return own and (beat.gone or all(beat.sent_s != one.sent_s for one in reversed(self._sent)))


class HeartbeatSource:
    """What the heartbeats of this process say: that it lives, how long ago its main loop turned, and its load."""

    def __init__(
        self, port: Port, load: Callable[[], Mapping[str, float]], under_way: Callable[[], Mapping[str, float]]
    ) -> None:
        """`load` is called on the main loop, `under_way` in the thread of the heartbeats."""
        self.heartbeats: Heartbeats | None = None
        self._clock = port.clock
        self._load_of = load
        self._under_way = under_way
        self._load: Mapping[str, float] = {}
        self._turned = self._clock.now().mono
        self._member: Member
        self._leader: Leader

    def begin(self, member: Member, leader: Leader, heartbeats: Heartbeats) -> None:
        """Start the heartbeats."""
        self._member, self._leader, self.heartbeats = member, leader, heartbeats
        heartbeats.start()

    async def turn(self) -> None:
        """Record the turns of the main loop, and its load."""
        due_s = float("-inf")
        while True:
            self._turned = self._clock.now().mono
            if self._turned >= due_s:
                self._load = self._load_of()
                due_s = self._turned + min(LOAD_S, (self._clock.now().mono - self._turned) / LOAD_SHARE)
            await pause(self._clock, TURN_S)

    @property
    def turned_s(self) -> float:
        """When the main loop last turned, by the monotonic clock. Any thread may ask."""
        return self._turned

    def age(self) -> float:
        """How long ago the main loop turned. Any thread may call this."""
        return self._clock.now().mono - self._turned

    def say(self) -> Heartbeat:
        """The next heartbeat. Called in the heartbeat thread."""
        shown = self._member.view
        return Heartbeat(
            processor=shown.processor,
            process=shown.process,
            incarnation=shown.incarnation,
            sent_s=self._clock.now().mono,
            turn_age_s=self.age(),
            term=self._leader.view.term,
            load={**self._load, **self._under_way()},
        )

    async def stop(self) -> None:
        """Stop the heartbeats."""
        if self.heartbeats is not None:
            await self.heartbeats.stop()
