"""Drains a job, and then the jobs that read what it shares: `headgate drain JOB --cascade`.

Which jobs follow is in the coordinator streams: each run says which streams it reads of which jobs. They are drained one after the
other, each when the runs of its producers are closed, and it still reads the streams of these up to the ends that they have then.

Promises:

- Nothing is drained before all followers are known, and a follower that cannot be drained (it is stopped) refuses the whole cascade. So
  does a job whose stream cannot be read, because it may be a follower.
- The streams of all jobs of the cluster are read through one client, side by side: hundreds of jobs take few connections and little time.
- A cascade that was interrupted, or whose deadline has passed, is continued by asking again: a job that is drained already is passed over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...core.coordination import requests as r
from ...core.coordination.cascade import Following, followers
from ...core.coordination.messages import RunState
from ...core.coordination.state import JobState
from ...core.errors import DeadlinePassed, EnvironmentFault, HeadgateError, NotFound
from ...core.names import JobName, StreamPartition, Topics
from ..coordinator.job_states import states_of_all
from ..kafka.connect import CONNECT_S
from ..kafka.offsets import KafkaOffsets
from ..kafka.port import KafkaPort
from ..kafka.settings import ClientSettings
from ..kafka.topics import TopicsAdmin
from .reading import shown
from .requests import Outcome, Request, ask

TellDrained = Callable[[JobName, Outcome | None], None]
"""Told of each job of a cascade: the outcome of its drain, or None if it is drained already."""


async def cascade(
    client: ClientSettings,
    topics: Topics,
    arguments: Mapping[str, Any],
    *,
    run_id: str,
    timeout_s: float,
    tell: TellDrained,
) -> None:
    """Drain the job and its followers, and wait for each. `arguments`: those of each drain. `run_id`: the run of the first job."""
    deadline = time.monotonic() + timeout_s
    states = await _states(client, topics.prefix, timeout_s)
    order = followers(str(topics.job), {job: _reads(state) for job, state in states.items()})
    for one in order:
        _check(one.job, states[one.job])
    first = str(topics.job)
    for number, one in enumerate([Following(first, ()), *order]):
        job = JobName.parse(one.job)
        if one.job in states and _closed(states[one.job]) and not (run_id and one.job == first):
            tell(job, None)
            continue
        upto = await _ends(client, one.streams)
        request = Request(
            r.DRAIN, run_id if one.job == first else "", {**arguments, **({"upto": upto} if upto else {})}
        )
        left_s = max(0.0, deadline - time.monotonic())
        try:
            tell(job, await ask(client, Topics(job, topics.prefix), request, wait=True, timeout_s=left_s))
        except DeadlinePassed as error:
            rest = ", ".join(shown(JobName.parse(late.job)) for late in order[number:])
            more = f"\n  not begun: {rest}" if rest else ""
            raise DeadlinePassed(f"{error.what}{more}", remedy="ask again with --cascade: it continues") from error


async def drained(
    client: ClientSettings, topics: Topics, arguments: Mapping[str, Any], *, run_id: str, timeout_s: float
) -> Outcome:
    """Drain the job and its followers. Returns the outcome of the last one; raises `NotFound` if all of them are drained already."""
    found: list[Outcome] = []

    def tell(_: JobName, outcome: Outcome | None) -> None:
        found.extend([] if outcome is None else [outcome])

    await cascade(client, topics, arguments, run_id=run_id, timeout_s=timeout_s, tell=tell)
    if not found:
        raise NotFound(f"neither '{shown(topics.job)}' nor a job downstream of it has a live run")
    return found[-1]


async def _states(client: ClientSettings, prefix: str, within_s: float) -> dict[str, JobState]:
    """The state of every job on the cluster that has had a run, by its exact name."""
    admin = TopicsAdmin(client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        async with asyncio.timeout(within_s):
            return await states_of_all(KafkaPort(client), admin.names, prefix, within_s=CONNECT_S)
    except TimeoutError as error:
        raise DeadlinePassed(
            "the deadline passed while the downstream jobs were looked up; nothing is drained",
            remedy="give a longer --timeout",
        ) from error
    except EnvironmentFault as error:
        raise EnvironmentFault(
            f"the jobs downstream are unknown: {error.what}",
            remedy=f"{error.remedy or 'make it readable'}; or drain the jobs one by one, without --cascade",
        ) from error
    finally:
        await admin.stop()


def _reads(state: JobState) -> Mapping[str, tuple[str, ...]]:
    return {} if state.run is None else state.run.reads


def _closed(state: JobState) -> bool:
    """Whether the last run is over, so that there is nothing to drain."""
    return state.run is not None and state.run.state in (RunState.DRAINED, RunState.ENDED)


def _check(job: str, state: JobState) -> None:
    """Refuse the cascade if this follower could not be drained."""
    if state.run is not None and state.run.state in (RunState.STOPPED, RunState.STOPPING):
        name = shown(JobName.parse(job))
        raise HeadgateError(
            f"'{name}' reads what would be drained, but its run {state.run.run_id} is {state.run.state}",
            remedy=f"start it first (`headgate start {name}`), or drain without --cascade",
        )


async def _ends(client: ClientSettings, streams: tuple[str, ...]) -> dict[str, list[int]]:
    """The ends of these streams now, as readers of committed records see them."""
    if not streams:
        return {}
    admin, offsets = TopicsAdmin(client), KafkaOffsets(client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        await offsets.start(deadline_s=CONNECT_S)
        widths = {name: topic.partitions for name, topic in (await admin.find(streams)).items()}
        wanted = [StreamPartition(name, partition) for name in widths for partition in range(widths[name])]
        ends = await offsets.committed_ends(wanted)
        return {name: [ends[StreamPartition(name, partition)] for partition in range(widths[name])] for name in widths}
    finally:
        await offsets.stop()
        await admin.stop()
