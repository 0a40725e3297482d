"""Reads the coordinator streams of many jobs side by side, through one client.

A question about all jobs of a cluster (who reads what this job shares?) would otherwise need a few clients for each of hundreds of jobs,
one after the other.

Promises: each state holds everything that was committed before the call. A stream that cannot be read raises an error that names it; only a
job whose topic was deleted meanwhile is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from ...core.coordination.state import JobState
from ...core.errors import EnvironmentFault
from ...core.names import JobName, StreamPartition, Topics, jobs_in
from ..port.port import Consumer, Port
from ..port.waiting import fetched
from ..records.kafka.fetched import FetchAnswer, OutOfRange, Taken
from .coordinator_stream import FETCH_BYTES, entries_of, unanswered

POLL_MS = 200
SILENT_S = 2.0
"""After this time without news, it is asked which of the topics still exist."""
NAMED = 5
"""How many streams an error names."""


class _Stream:
    """One coordinator stream, as far as it was read."""

    __slots__ = ("end", "position", "state")

    def __init__(self) -> None:
        self.state = JobState()
        self.position = 0
        self.end: int | None = None
        """The read-committed end in the broker's first answer."""

    @property
    def done(self) -> bool:
        return self.end is not None and self.position >= self.end


async def states_of(
    port: Port, topics: Iterable[str], *, existing: Callable[[], Awaitable[Collection[str]]], within_s: float
) -> dict[str, JobState]:
    """The state of the job of each of these coordinator streams. `existing`: the topics that exist now. `within_s`: how long the broker may
    be silent.
    """
    return await _Reading(port, topics, within_s).all(existing)


async def states_of_all(
    port: Port, names: Callable[[], Awaitable[Collection[str]]], prefix: str, *, within_s: float
) -> dict[str, JobState]:
    """The state of every job on the cluster, by its exact name. `names`: the topics that exist now."""
    jobs = {Topics(job, prefix).coordinator: job for job in jobs_in(await names(), prefix)}
    found = await states_of(port, jobs, existing=names, within_s=within_s)
    return {_exact(state, str(jobs[topic])): state for topic, state in found.items()}


def _exact(state: JobState, found: str) -> str:
    """The exact name of a job; `found`: as its topics have it, where `_` is `-`."""
    leader = state.leader
    return leader.job if leader is not None and leader.job else found


def framed_streams(states: Mapping[str, JobState]) -> dict[str, str]:
    """The streams that hold frames, each with a job that writes it."""
    models = {job: state.model for job, state in states.items() if state.model is not None}
    return {stream: job for job, model in models.items() for stream in model.producers}


def own_topics(states: Mapping[str, JobState], prefix: str) -> dict[str, str]:
    """The topics that jobs have made for themselves, each with its job. Streams between stages are those of the models: a topic whose name
    only begins like theirs belongs to another job. Shared streams are not among them: they outlive their jobs."""
    found: dict[str, str] = {}
    for job, state in states.items():
        found |= dict.fromkeys(Topics(JobName.parse(job), prefix).fixed, job)
        if state.model is not None:
            own = {stream for stream in state.model.producers if stream not in state.model.shared}
            found |= dict.fromkeys(sorted(own.union(state.model.former)), job)
    return found


class _Reading:
    def __init__(self, port: Port, topics: Iterable[str], within_s: float) -> None:
        self._port = port
        self._within_s = within_s
        self._streams = {StreamPartition(topic, 0): _Stream() for topic in sorted(topics)}
        self._answered = asyncio.Event()

    async def all(self, existing: Callable[[], Awaitable[Collection[str]]]) -> dict[str, JobState]:
        """Read all of them to their ends."""
        if not self._streams:
            return {}
        consumer = self._port.consumer(
            self._on_answer, name="coordinator streams", fetch_bytes=FETCH_BYTES, max_wait_ms=POLL_MS, raw=True
        )
        try:
            await consumer.start(lambda: dict.fromkeys(self._streams, 0), deadline_s=self._within_s)
            await self._read(consumer, existing)
        finally:
            await consumer.stop()
        return {at.stream: one.state for at, one in self._streams.items()}

    def _on_answer(self, at: StreamPartition, answer: FetchAnswer) -> None:
        one = self._streams.get(at)
        if one is not None and one.end is None and not answer.error:
            one.end = answer.stable
        self._answered.set()

    async def _read(self, consumer: Consumer, existing: Callable[[], Awaitable[Collection[str]]]) -> None:
        clock = self._port.clock
        left, heard_s, asked_s = list(self._streams), clock.now().mono, clock.now().mono
        while left:
            if consumer.dead:
                raise EnvironmentFault("the client stopped reading because of an error", remedy="ask again")
            taken = await fetched(self._port, consumer, self._answered, POLL_MS / 1000)
            for one in taken:
                await self._take(consumer, one)
            done = [at for at in left if self._streams[at].done]
            for at in done:
                consumer.pause(at)
            left, now_s = [at for at in left if not self._streams[at].done], clock.now().mono
            if taken or done:
                heard_s = asked_s = now_s
            elif now_s - asked_s >= SILENT_S:
                left, asked_s = self._without_deleted(left, await existing()), now_s
                if left and now_s - heard_s >= self._within_s:
                    raise unanswered(self._within_s, _some(left))

    def _without_deleted(self, left: list[StreamPartition], existing: Collection[str]) -> list[StreamPartition]:
        for at in left:
            if at.stream not in existing:
                del self._streams[at]
        return [at for at in left if at in self._streams]

    async def _take(self, consumer: Consumer, taken: Taken) -> None:
        """Fold what was fetched from one stream."""
        one = self._streams.get(taken.at)
        if one is None:
            return
        if isinstance(taken.error, OutOfRange):  # the first records were deleted
            bounds = await consumer.bounds(taken.at, within_s=self._within_s)
            if bounds is not None:
                one.position = bounds[0]
                consumer.seek(taken.at, one.position)
                return
        try:
            if taken.error is not None:
                raise taken.error
            if taken.start != one.position:  # it does not continue here
                consumer.seek(taken.at, one.position)
                return
            for batch in taken.batches:
                one.state.fold(entries_of(batch, one.position))
                one.position = batch.next
        except EnvironmentFault as error:
            raise EnvironmentFault(f"{taken.at.stream} cannot be read: {error.what}", remedy=error.remedy) from error
        one.position = taken.next_position


def _some(left: list[StreamPartition]) -> str:
    """A few of them by name, and how many more there are."""
    named = ", ".join(at.stream for at in left[:NAMED])
    return named if len(left) <= NAMED else f"{named} and {len(left) - NAMED} more"
