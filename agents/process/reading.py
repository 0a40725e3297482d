"""What stands in a job's coordinator stream and on its heartbeat topic, read to the end from outside of any worker.

The same fold as a worker's, so the command line sees what workers see. Heartbeats are those of the last seconds; how old each is, is
measured between the broker's newest and ours by the time that stands in the records, never by this machine's clock alone. A record that
is no heartbeat of this version is passed, and counted.

Promises: nothing is written, no group is joined, and a job that does not exist is `NotFound`; so is one that only shares another's topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from functools import partial

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException

from ...core.coordination import messages as c
from ...core.coordination.events import Heartbeat
from ...core.coordination.liveness import decode_beat
from ...core.coordination.state import JobState
from ...core.errors import DataError, DeclarationError, NotFound
from ...core.names import JobName, Topics, incarnation_order, parse_internal
from ...core.settings import find, offer, parse
from ..coordinator.coordinator_stream import CoordinatorReader
from ..kafka.connect import CONNECT_S, closed, retried, started
from ..kafka.offsets import KafkaOffsets
from ..kafka.port import KafkaPort
from ..kafka.settings import ClientSettings
from ..kafka.topics import TopicsAdmin

HEARD_S = 15.0
"""Heartbeats of the last so many seconds are read, and of two sessions where that is longer."""


class OtherJob(NotFound):
    """The topics that a job of this name would have belong to another one, whose name differs by `_` and `-`."""


@dataclass(slots=True)
class Follower:
    """The job state, as far as it was read, and the reader that goes on from there."""

    reader: CoordinatorReader
    job: JobState = field(default_factory=JobState)
    entries: list[c.Entry] = field(default_factory=list)
    keep: bool = False

    async def to_end(self) -> JobState:
        """Read to the end that the stream has now."""
        end = await self.reader.end()
        while self.reader.position < end:
            await self.more()
        return self.job

    async def more(self) -> bool:
        """Wait a moment for more; whether something came."""
        read = await self.reader.read()
        if read is None:
            return False
        self.job.fold(read.entries)
        if self.keep:
            self.entries.extend(read.entries)
        return True


@contextlib.asynccontextmanager
async def following(client: ClientSettings, topics: Topics, *, keep: bool = False) -> AsyncIterator[Follower]:
    """The coordinator stream of a job, read to its end."""
    await must_exist(client, topics)
    offsets = KafkaOffsets(client)
    reader = CoordinatorReader(KafkaPort(client), offsets, topics.coordinator)
    try:
        await offsets.start(deadline_s=CONNECT_S)
        await reader.start(deadline_s=CONNECT_S)
        follower = Follower(reader, keep=keep)
        await follower.to_end()
        if other := follower.job.other_job(str(topics.job)):
            raise OtherJob(
                f"there is no job '{shown(topics.job)}': its topics are those of the job '{other}'",
                remedy=f"say {shown(JobName.parse(other))}, or give this job another name",
            )
        yield follower
    finally:
        await reader.stop()
        await offsets.stop()


async def folded(client: ClientSettings, topics: Topics) -> JobState:
    """What the coordinator stream of a job comes to now."""
    async with following(client, topics) as stream:
        return stream.job


async def must_exist(client: ClientSettings, topics: Topics) -> None:
    """Raise `NotFound`, with the jobs that there are, when this one was never started on this cluster."""
    admin = TopicsAdmin(client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        if topics.coordinator in await admin.find([topics.coordinator]):
            return
        there = jobs_in(await admin.names(), topics.prefix)
    finally:
        await admin.stop()
    raise NotFound(
        f"there is no job '{shown(topics.job)}' at {client.bootstrap}",
        remedy=offer(shown(topics.job), map(shown, there))
        or "no job was ever run there; check the broker. A job exists from its first `headgate run` on",
    )


def jobs_in(names: Iterable[str], prefix: str = "") -> list[JobName]:
    """The jobs whose coordinator streams stand among these topics.

    >>> jobs_in(["orders", "__headgate_coordinator_my-sales_2", "__headgate_log_my-sales_2"])
    [JobName(name='my-sales', id='2')]
    """
    found = [parse_internal(name, prefix=prefix) for name in names]
    return sorted(one[1] for one in found if one is not None and one[0] == "coordinator")


def shown(job: JobName) -> str:
    """The job as people type it."""
    return job.name if job.id == "1" else str(job)


@dataclass(frozen=True, slots=True)
class HeartbeatPace:
    """How the workers of a run speak."""

    speaks_s: float = 2.5
    """Whoever lives has spoken since: two intervals and a half."""
    silent_s: float = 6.0
    """Who was not heard for longer is silent: what it said last is not what is."""


def pace_of(state: JobState) -> HeartbeatPace:
    """As the settings of the last run say. Before the first one nobody has said anything, and the defaults count.

    >>> pace_of(JobState()) == HeartbeatPace()
    True
    """
    given = {} if state.run is None else state.run.settings

    def seconds(name: str) -> float:
        return parse(name, given.get(name, find(name).default)) / 1000

    return HeartbeatPace(2.5 * seconds("heartbeat.interval"), seconds("session.timeout"))


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The last heartbeat of a process, and how old it is."""

    beat: Heartbeat
    age_s: float
    pace: HeartbeatPace = HeartbeatPace()

    @property
    def lives(self) -> bool:
        """Whether it was heard a moment ago, and has not said that it goes."""
        return self.age_s <= self.pace.silent_s and not self.beat.gone


@dataclass(slots=True)
class Hearing:
    """What the heartbeat topic says of the last seconds."""

    beats: dict[str, LastHeartbeat] = field(default_factory=dict)
    """The last one of each process, by process."""
    unreadable: int = 0
    """Records that are no heartbeats of this version: somebody may live of whom nothing is known."""
    why: str = ""

    def present(self, state: JobState) -> list[Heartbeat]:
        """The beats of those that live, and have neither said in the stream that they left nor a successor there: a beat outlives its
        process for a moment."""
        return [one.beat for one in self.beats.values() if one.lives and not _left(state, one)]

    def passed(self, error: Exception) -> None:
        """One more that cannot be read."""
        self.unreadable += 1
        self.why = str(error)


def _left(state: JobState, last: LastHeartbeat) -> bool:
    """Whether it has left, or another process has taken its name since: what is known of its life may be deleted by then."""
    beat = last.beat
    lives = state.recorded(beat.processor)
    own = [name for name, life in lives.items() if life.process == beat.process]
    try:
        mine = max([*own, *filter(None, [beat.incarnation])], key=incarnation_order, default="")
    except DeclarationError:  # no worker's
        return False
    if not mine:
        # it holds nothing; and it is about to begin, or has made room for the next of its name, and what it recorded is deleted
        return last.age_s > last.pace.speaks_s and any(other.process != beat.process for other in lives.values())
    if mine in lives and lives[mine].state == c.ProcessorState.LEFT:
        return True  # also one that came and went between two beats: its last one may not know of any incarnation
    return any(
        other.process != beat.process and incarnation_order(name) > incarnation_order(mine)
        for name, other in lives.items()
    )


async def heard(client: ClientSettings, topic: str, state: JobState, *, seconds: float = HEARD_S) -> Hearing:
    """The last heartbeat of each process within the last seconds. `state`: of the job, which says how often its workers speak."""
    pace = pace_of(state)
    seconds = max(seconds, 2 * pace.silent_s)
    at = TopicPartition(topic, 0)
    options = client.consumer(enable_auto_commit=False, auto_offset_reset="latest")
    consumer = await started(partial(AIOKafkaConsumer, **options), "heartbeats", deadline_s=CONNECT_S)
    found = Hearing()
    try:
        consumer.assign([at])
        end = (await retried(partial(consumer.end_offsets, [at]), "heartbeats", deadline_s=CONNECT_S))[at]
        since = int((time.time() - seconds) * 1000)
        first = (await retried(partial(consumer.offsets_for_times, {at: since}), "heartbeats"))[at]
        if first is None:
            return found
        consumer.seek(at, first.offset)
        now = time.time()
        async with asyncio.timeout(CONNECT_S):
            while await consumer.position(at) < end:
                answer = await consumer.getmany(at, timeout_ms=500)
                for record in answer.get(at, []):
                    try:
                        beat = decode_beat(record.value)
                    except DataError as error:
                        found.passed(error)
                    else:
                        found.beats[beat.process] = LastHeartbeat(beat, max(0.0, now - record.timestamp / 1000), pace)
    except CorruptRecordException as error:
        found.passed(error)
    finally:
        await closed(consumer.stop)
    return found
