"""Operations that need all workers of a job to be stopped: how that is checked, and how returning workers are kept out.

`reset` and `tables clear` both take these steps: check; take the leader's transactional id, so that no one can lead and no task can be
granted; check again, because workers may have started while the user confirmed; fence every recorded incarnation; then do the work.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterable

from ....core.coordination import messages as c
from ....core.coordination.state import JobState
from ....core.errors import EnvironmentFault, HeadgateError
from ...coordinator.coordinator_stream import LeaderLost, LeaderWriter, fence
from ...kafka.port import KafkaPort
from ...process.reading import following, heard, shown
from ...process.user import user_name
from ..options import Target


async def state_and_living(to: Target) -> tuple[JobState, list[str]]:
    """The job's state, and the names of the living workers. The sender of an unreadable heartbeat counts as alive."""
    async with following(to.client, to.topics) as stream:
        beats = await heard(to.client, to.topics.heartbeat, stream.job, sure=True)
        state = await stream.to_end()  # a worker that has left by now has written so here
    alive = sorted({beat.processor for beat in beats.present(state)})
    if beats.unreadable:
        alive.append(f"the sender of {beats.unreadable} unreadable heartbeats ({beats.why})")
    return state, alive


def refuse_living(to: Target, alive: Iterable[str]) -> None:
    """Raise if workers use what would be deleted."""
    if names := ", ".join(alive):
        stop = f"headgate stop {shown(to.job)}"
        raise HeadgateError(
            f"workers of {to.job} are running: {names}",
            remedy=f"stop them first: `{stop} --wait`; a worker that only waits for a run: `{stop} --worker P --wait`",
        )


def run_text(state: JobState) -> str:
    """The state of the job's run, for a plan."""
    return f"run {state.run.run_id} is {state.run.state}" if state.run is not None else "it never ran"


def between_stages(state: JobState) -> list[str]:
    """The job's own streams between its stages, as its model has them: a name alone does not make a topic the job's own."""
    return [] if state.model is None else [name for name in state.model.producers if name not in state.model.shared]


def former_stages(state: JobState) -> list[str]:
    """The streams that earlier versions of the job wrote between their stages."""
    return [] if state.model is None else list(state.model.former)


def incarnations_of(state: JobState) -> list[tuple[str, str]]:
    """Every recorded incarnation that is not fenced, with its processor."""
    return [(p, worker.incarnation) for p in state.processors() for worker in state.incarnations(p)]


@contextlib.asynccontextmanager
async def leading(to: Target, verb: str) -> AsyncIterator[LeaderWriter]:
    """Hold the leader's transactional id: until another process takes it, no one can lead. Raises, with a remedy, if the id is refused or
    lost.
    """
    stamp = c.Stamp(socket.gethostname(), user_name(), f"headgate {verb}", int(time.time() * 1000))
    leader = LeaderWriter(KafkaPort(to.client), to.job, to.topics.coordinator, stamp)
    try:
        await leader.start()
        yield leader
    except LeaderLost as error:
        cause = error.__cause__
        if error.fenced:
            what, remedy = "a worker or another command has taken the leader's transactional id", ""
        elif isinstance(cause, HeadgateError):
            what, remedy = cause.what, cause.remedy
        else:
            what, remedy = str(error), ""
        raise EnvironmentFault(
            f"{verb} of {shown(to.job)} has changed nothing: {what}", remedy=remedy or "run the same command again"
        ) from error
    finally:
        await leader.stop()


async def resign(leader: LeaderWriter, to: Target, term: int) -> None:
    """Write that no one leads. That also proves that no one has led since the id was taken."""
    await leader.commit([c.SetLeader(term, "", "", str(to.job))])


async def fence_all(to: Target, incarnations: Iterable[tuple[str, str]]) -> None:
    """Fence all these incarnations: none of them can write any more."""
    port = KafkaPort(to.client)
    for processor, incarnation in incarnations:
        await fence(port, to.job, processor, incarnation)
