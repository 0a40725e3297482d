"""Reads a job's coordinator stream and heartbeat topic to the end, from outside of its workers.

It uses the same fold as a worker, so commands see what workers see. It reads the heartbeats of the last seconds. A record that is no
heartbeat of this version is skipped and counted.

Promises: it writes nothing and joins no group. A job that does not exist raises `NotFound`, also if its topics belong to another job.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from functools import partial

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException

from ...core.coordination import messages as c
from ...core.coordination.events import Heartbeat
from ...core.coordination.liveness import decode_beat
from ...core.coordination.state import JobState
from ...core.errors import DataError, DeclarationError, NotFound
from ...core.names import JobName, Topics, incarnation_order, jobs_in
from ...core.settings import find, offer, parse
from ..coordinator.coordinator_stream import CoordinatorReader, unanswered
from ..kafka.connect import CONNECT_S, closed, retried, started
from ..kafka.offsets import KafkaOffsets
from ..kafka.port import KafkaPort
from ..kafka.settings import ClientSettings
from ..kafka.topics import TopicsAdmin

PARKED_OF = "parked."
"""Before the name of a task, in a heartbeat: how many of its records are parked."""
HEARD_S = 15.0
"""How far back heartbeats are read, in seconds; two sessions if that is longer."""


class OtherJob(NotFound):
    """The topics that a job of this name would have belong to another job, whose name differs only in `_` and `-`."""


@dataclass(slots=True)
class Follower:
    """The job state as read so far, and the reader that continues from there."""

    reader: CoordinatorReader
    job: JobState = field(default_factory=JobState)
    entries: list[c.Entry] = field(default_factory=list)
    keep: bool = False

    async def to_end(self) -> JobState:
        """Read to the current end of the stream. Raises `EnvironmentFault` if nothing comes for `CONNECT_S`."""
        end, heard_s = await self.reader.end(), time.monotonic()
        while self.reader.position < end:
            if await self.more():
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s >= CONNECT_S:
                where = f"{self.reader.at.stream}, which is read up to {self.reader.position} of {end}"
                raise unanswered(CONNECT_S, where)
        return self.job

    async def more(self) -> bool:
        """Wait a moment for more records. Returns whether any came."""
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
    """The state of a job now, folded from its coordinator stream."""
    async with following(client, topics) as stream:
        return stream.job


async def must_exist(client: ClientSettings, topics: Topics) -> None:
    """Raise `NotFound`, with the jobs that exist, if this job was never started on this cluster."""
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


def shown(job: JobName) -> str:
    """The job as people type it."""
    return job.name if job.id == "1" else str(job)


def pauses(job: bool, streams: Collection[str]) -> str:
    """What of a run is paused, for people; empty if nothing is.

    >>> pauses(True, []), pauses(False, ["rates", "orders"]), pauses(False, [])
    ('paused', 'paused: orders, rates', '')
    """
    return "paused" if job else f"paused: {', '.join(sorted(streams))}" if streams else ""


@dataclass(frozen=True, slots=True)
class HeartbeatPace:
    """How often the workers of a run send heartbeats."""

    speaks_s: float = 2.5
    """Every living worker has sent one within this time: two and a half intervals."""
    silent_s: float = 6.0
    """A worker that has sent none for longer counts as silent, and its last heartbeat as outdated."""


def pace_of(state: JobState) -> HeartbeatPace:
    """The pace in the settings of the last run; the default before the first run.

    >>> pace_of(JobState()) == HeartbeatPace()
    True
    """
    given = {} if state.run is None else state.run.settings

    def seconds(name: str) -> float:
        return parse(name, given.get(name, find(name).default)) / 1000

    return HeartbeatPace(2.5 * seconds("heartbeat.interval"), seconds("session.timeout"))


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The last heartbeat of a process, and its age."""

    beat: Heartbeat
    age_s: float
    pace: HeartbeatPace = HeartbeatPace()

    @property
    def alive(self) -> bool:
        """Whether the process has sent a heartbeat recently, and not announced its end."""
        return self.age_s <= self.pace.silent_s and not self.beat.gone


@dataclass(slots=True)
class Hearing:
    """The heartbeats of the last seconds."""

    beats: dict[str, LastHeartbeat] = field(default_factory=dict)
    """The last one of each process, by process."""
    unreadable: int = 0
    """Records that are no heartbeats of this version. They may come from living processes."""
    why: str = ""
    pace: HeartbeatPace = HeartbeatPace()
    parks: bool = False
    """Whether any of the heartbeats counts parked records. The last one of a process that ends does not name its tasks any more."""
    begins: bool = False
    """Whether it has listened for so short a time that who was not heard yet may live."""

    def hear(self, data: bytes | None, age_s: float) -> None:
        """Take a record of the topic that is this old."""
        try:
            beat = decode_beat(data)
        except DataError as error:
            self.passed(error)
        else:
            self.beats[beat.process] = LastHeartbeat(beat, age_s, self.pace)
            self.parks = self.parks or any(name.startswith(PARKED_OF) and n for name, n in beat.load.items())

    def present(self, state: JobState) -> list[Heartbeat]:
        """The heartbeats of living processes. A heartbeat outlives its process for a moment, so processes that have left or were replaced
        according to the stream are not included.
        """
        return [one.beat for one in self.beats.values() if one.alive and not _left(state, one)]

    def passed(self, error: Exception) -> None:
        """Count a record that cannot be read."""
        self.unreadable += 1
        self.why = str(error)


def _left(state: JobState, last: LastHeartbeat) -> bool:
    """Whether the process has left, or another one has taken its name since. The records about it may have been deleted by then."""
    beat = last.beat
    incarnations = state.recorded(beat.processor)
    own = [name for name, worker in incarnations.items() if worker.process == beat.process]
    try:
        newest = max([*own, *filter(None, [beat.incarnation])], key=incarnation_order, default="")
    except DeclarationError:  # not a worker's heartbeat
        return False
    if not newest:
        # it has no incarnation: it either starts now, or was replaced and its records were deleted
        return last.age_s > last.pace.speaks_s and any(other.process != beat.process for other in incarnations.values())
    if newest in incarnations and incarnations[newest].state == c.ProcessorState.LEFT:
        return True  # also if it came and went between two heartbeats: its last one may not name an incarnation
    return any(
        other.process != beat.process and incarnation_order(name) > incarnation_order(newest)
        for name, other in incarnations.items()
    )


async def heard(
    client: ClientSettings, topic: str, state: JobState, *, seconds: float = HEARD_S, sure: bool = False
) -> Hearing:
    """The last heartbeat of each process within the last seconds. `state`: the state of the job, which contains the heartbeat interval.

    A heartbeat's age depends on the clock of this machine, which may be ahead. If by it no worker lives although one should, or if this
    must be `sure`, it listens until every living process has spoken.
    """
    pace = pace_of(state)
    seconds = max(seconds, 2 * pace.silent_s)
    at = TopicPartition(topic, 0)
    options = client.consumer(enable_auto_commit=False, auto_offset_reset="latest")
    consumer = await started(partial(AIOKafkaConsumer, **options), "heartbeats", deadline_s=CONNECT_S)
    found = Hearing(pace=pace)
    try:
        consumer.assign([at])
        consumer.pause(at)  # a fetch at the end, where it stands now, would hold up the one that is wanted
        end = (await retried(partial(consumer.end_offsets, [at]), "heartbeats", deadline_s=CONNECT_S))[at]
        since = int((time.time() - seconds) * 1000)
        first = (await retried(partial(consumer.offsets_for_times, {at: since}), "heartbeats"))[at]
        if first is not None:
            consumer.seek(at, first.offset)
            consumer.resume(at)
            now = time.time()
            async with asyncio.timeout(CONNECT_S):
                while await consumer.position(at) < end:
                    for record in (await consumer.getmany(at, timeout_ms=500)).get(at, []):
                        found.hear(record.value, max(0.0, now - record.timestamp / 1000))
        if not any(one.alive for one in found.beats.values()) and (sure or _expects_workers(state)):
            consumer.seek(at, end)
            consumer.resume(at)
            until_s = time.monotonic() + pace.speaks_s
            while (left_s := until_s - time.monotonic()) > 0:
                for record in (await consumer.getmany(at, timeout_ms=1 + int(left_s * 1000))).get(at, []):
                    found.hear(record.value, 0.0)
    except CorruptRecordException as error:
        found.passed(error)
    finally:
        await closed(consumer.stop)
    return found


def _expects_workers(state: JobState) -> bool:
    """Whether a worker has neither left nor been fenced."""
    incarnations = (worker for processor in state.processors() for worker in state.incarnations(processor))
    return any(worker.state != c.ProcessorState.LEFT for worker in incarnations)
