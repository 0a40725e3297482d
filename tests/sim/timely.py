"""Time goes on: each window that the sources' promise and its grace permit is out in time, once nothing hinders any more.

A third of the worlds from `CALM_FROM` on whose sources have no end become calm when their faults are over: some partitions write on, the
others are quiet, and nothing is drained before the time of every job was judged. Checked once a second, while nothing hinders:

    the time due to a step is told to it and committed, `BOUND_S` after the records that make it due      `_told`
    each window that this closes is out                                                                   `_out`

The time that is due follows from the records alone (`due`): the least of the partitions' newest times, less the lag. While one of them goes
on without a pause, those that are quiet do not count: they are idle, and are lifted to the others.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import orjson

from headgate.core.coordination import messages
from headgate.core.names import StreamPartition
from headgate.core.orders import WORKING
from headgate.core.progress.frames import NO_TIME
from headgate.core.windows.results import EARLY

from . import joins
from .job import SHARED, passes, row_of
from .windows import COMBINED, FAR, SESSION

if TYPE_CHECKING:
    from .log import Record
    from .world import Job, World

CALM_FROM = 4_000_000
IDLE_S = 2.0
"""The idle-timeout of all jobs."""
STEADY_MS = 1500
"""A partition that gets a record at least so often is not idle."""
JUDGED = 2
"""How often time is judged before the world ends."""
MOST_S = 75.0
"""How long a world waits for this, at most."""


class Timely:
    """The time of all jobs of one world."""

    def __init__(self, world: World, session_s: float) -> None:
        self.world = world
        self.bound_s = IDLE_S + session_s + 10.0
        self.judged = 0
        """How often the time of a job was held against what was due."""
        self._hindered = 0.0
        """When something has hindered last."""
        self._most = float("inf")
        """When the world no longer waits."""
        rng = Random(f"calm {world.seed}")
        bounded = world.shape.bounded or world.shape.mixed
        self.calm = world.seed >= CALM_FROM and not bounded and rng.random() < 1 / 3
        for topic, feed in world.feeds.items() if self.calm else ():
            width = len(world.kafka.topics[topic])
            feed.lasting = set(rng.sample(range(width), rng.randint(1, width // 2)))

    def over(self) -> bool:
        """Whether the world may end: its faults are over, and time was judged."""
        if not self.calm:
            return True
        moment = self.world.schedule.moment
        self._most = min(self._most, moment + MOST_S)
        if self.judged < JUDGED * len(self.world.jobs) and moment < self._most:
            return False
        self.calm = False
        self.world.quiet_from = moment
        for feed in self.world.feeds.values():
            feed.lasting.clear()
        return True

    def look(self) -> None:
        """Check once a second."""
        if not self.calm:
            return
        moment = self.world.schedule.moment
        self._hindered = max(self._hindered, self._last_obstacle())
        if moment - self._hindered < self.bound_s:
            return
        for job in self.world.jobs:
            self._judge(job)

    # ---------------------------------------------------------------------------------------------------------- obstacles

    def _last_obstacle(self) -> float:
        """When something has hindered any job last; now, if something does."""
        world, kafka, now = self.world, self.world.kafka, self.world.schedule.moment
        if (
            kafka.down
            or kafka.away
            or kafka.broken
            or any(log.damaged for logs in kafka.topics.values() for log in logs)
        ):
            return now
        if any(disk.full or disk.busy for disk in world.disks.values()):
            return now
        found = [world.quiet_from, world.last_request, world.outage_over, *world.trouble_over.values()]
        for job in world.jobs:
            if not self._runs(job):
                return now
            for slot in job.slots:
                process = slot.process
                if process is None and not (slot.absent or slot.once):
                    return now
                if process is not None:
                    if process.exiting or process.read_delay_s or process.fetch_delay_s:
                        return now
                    found += [process.born, process.frozen_last]
                    for one in process.watched.values():
                        if one.failed_at > 0.0:
                            retries = not one.gone and one.actor.machine.phase not in WORKING
                            found.append(now if retries else one.failed_at)
        return min(now, max(found))

    def _runs(self, job: Job) -> bool:
        """Whether the job runs, and nobody has asked it for anything that is not done."""
        truth = self.world.invariants.truth(job)
        run = truth.state.run
        if run is None or run.state != messages.RunState.RUNNING or run.drain is not None:
            return False
        asked = any(uuid not in truth.finals for uuid in job.requests)
        return not (asked or run.paused_job or run.paused_streams or truth.state.failed())

    # ------------------------------------------------------------------------------------------------------------- judging

    def _judge(self, job: Job) -> None:
        steps = timed(job)
        due = self.due(job) if steps else None
        self.judged += 1
        if due is None:
            return
        for step, stream, held_ms in steps:
            self._told(job, step, stream, due - held_ms)
        self.world.invariants.ends["time went on"] += 1
        if job.windows is not None and job.windows.first.kind != SESSION and stream_of(job) != SHARED:
            self._out(job, due)

    def due(self, job: Job) -> int | None:
        """The time that the steps of the job must have been told by now; None if there is no such time."""
        since = self.world.schedule.wall_ms - int(self.bound_s * 1000)
        newest: list[int] = []
        moving: list[int] = []
        steady = False
        for reader in [one for one in self.world.jobs if one.writes] or [job]:
            for at in self._sources(reader):
                stamps = [(one.append_ms, one.ts) for one in self._read(reader, at)]
                ts = max((ts for append_ms, ts in stamps if append_ms <= since), default=NO_TIME)
                newest.append(ts)
                lately = [append_ms for append_ms, _ in stamps if append_ms > since]
                if lately:
                    moving.append(ts)
                    ends = [since, *lately, self.world.schedule.wall_ms]
                    steady = steady or all(after - before <= STEADY_MS for before, after in pairwise(ends))
        ts = min(moving if steady else newest, default=NO_TIME)
        return None if ts == NO_TIME else ts - job.lag_ms

    def _sources(self, job: Job) -> list[StreamPartition]:
        """The partitions from outside that the tasks of the job read."""
        model = self.world.invariants.truth(job).state.model
        owned = [at for some in model.tasks.values() for at in some] if model is not None else []
        return sorted(at for at in owned if job.is_source(at.stream))

    def _read(self, job: Job, at: StreamPartition) -> list[Record]:
        """The records of a partition that the committed positions cover."""
        log = self.world.kafka.topics[at.stream][at.partition]
        moves = self.world.invariants.intervals.get(job.name, {}).get(at, [])
        return [one for one in (*log.deleted, *log.records) if any(a <= one.offset < b for a, b in moves)]

    def _told(self, job: Job, step: str, stream: str, due: int) -> None:
        """All tasks that read the stream of this step have told it the time, and that is committed."""
        model = self.world.invariants.truth(job).state.model
        for task, owned in sorted(model.tasks.items()) if model is not None else ():
            if any(at.stream == stream for at in owned):
                told = self.world.invariants.reference(job.name, task).step_times.get(step, NO_TIME)
                if told < due:
                    self.world.invariants.fail(
                        f"nothing has hindered {job.name} for {self.bound_s:g} s, and '{step}' of {task} has been told {told}, "
                        f"although {due} is due"
                    )

    def _out(self, job: Job, due: int) -> None:
        """The windows that end before the time that is due are out, for every row that must be in time."""
        assert job.windows is not None
        world, spec = self.world, job.windows.first
        since = world.schedule.wall_ms - int(self.bound_s * 1000)
        values = [(one.key, orjson.loads(one.value)) for one in world.kafka.read(spec.topic, 0, 0, 1 << 30)[0]]
        out = {(key, value["window_end"]) for key, value in values if value["closed_by"] != EARLY}
        for at in self._sources(job):
            for record in self._read(job, at):
                row = row_of(record.value)
                if record.append_ms > since or not passes({"s": row.seq}) or world.may_be_late(row):
                    continue
                if job.branches is not None and not job.branches.left(
                    [(row, record.ts)]
                ):  # a policy leaves it out of everything
                    continue
                for end in spec.ends(record.ts):
                    if end + spec.holds_ms <= due and (record.key, end) not in out:
                        world.invariants.fail(
                            f"{row} at {record.ts} is in no result of {spec.name} to {end}, and {due} is due"
                        )


def stream_of(job: Job) -> str:
    """The stream that the first window reads."""
    windows = job.windows
    return job.streams[0] if windows is not None and windows.how == COMBINED else job.shuffled


def timed(job: Job) -> list[tuple[str, str, int]]:
    """The steps of the job that have a time: the name, a stream that brings it, and what the steps before hold back."""
    found: list[tuple[str, str, int]] = []
    windows = job.windows
    if windows is not None:
        found.append((windows.first.name, stream_of(job), 0))
        if windows.second is not None:
            behind = job.reshuffled if windows.place == FAR else stream_of(job)
            found.append((windows.second.name, behind, windows.first.holds_ms))
    if job.joining is not None:
        found += [(joins.JOIN, job.declared.topics.intermediate(one), 0) for one in (joins.LEFTS, joins.RIGHTS)]
    return found
