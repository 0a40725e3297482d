"""Two or three jobs of one seed and the stream between them: how they differ, what happens to them, and what the reader must make of it.

    orders       (source)  →  `upstream`  ┐
    side-orders  (source)  →  `side`      ┴→  shared  →  `downstream`        `side` is there in half of these seeds

The partitions of a source are apart in event time, so that tasks are. While the sources write, the jobs that share are drained and begun
again, with more tasks, too; the job that reads is killed, stopped and drained in between; and cascades drain all of them.

What the reader must know is told here from the frames alone, as they stand in each partition (`Spoken`); this is written again, not taken
from the code under test:

    a drain or an end of another job closes nothing                              `letter`
    each task's first control message of a run stands before its rows            `row`
    time does not pass a task that others wait for, whichever jobs are away      `row`: only what an away job sends may be late
    time goes on when all producers say so                                       `due`, asked once a second by `waiting`
    behind a cascade nothing is unread                                           `drained_through`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from headgate.core.coordination import messages
from headgate.core.coordination.cascade import Following, followers
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import NO_TIME, ControlFrame, EndOfStream, Watermark
from headgate.core.task import protocol as facts

from .job import SHARED, SIDE_BASE, Row, Shape

if TYPE_CHECKING:
    from .faults import Faults
    from .life import Watched
    from .world import Job, World

UPSTREAM, SIDE_JOB, DOWNSTREAM = "upstream", "side", "downstream"
Ends = dict[str, list[int]]
"""By stream: the end of each partition."""
LASTS_S = (9.0, 16.0)
"""How long the sources write."""
SKEW_MS = 3000
"""How far the partitions of a source are apart in event time."""


@dataclass(frozen=True)
class Sharing:
    """What differs between the pairs of jobs of two seeds."""

    side: bool
    """A second job writes the shared stream."""
    side_width: int
    skews_ms: tuple[int, ...]
    """How far each partition of a source lags in event time."""
    episodes: tuple[tuple[float, str], ...]
    """When something happens to the jobs, and what."""
    cascade: bool
    """The world ends in a cascade."""

    @classmethod
    def drawn(cls, shape: Shape) -> Sharing | None:
        """It is drawn from what is drawn anyway, so that all else of a seed stays as it is."""
        if not shape.split:
            return None
        rng = Random(f"shares {shape.pace_s}")
        kinds = rng.choices(sorted(EPISODES), k=rng.randint(2, 4))
        return cls(
            side=rng.random() < 0.5,
            side_width=rng.choice((2, 3)),
            skews_ms=tuple(rng.choice((0, 0, rng.randrange(SKEW_MS))) for _ in range(shape.sources)),
            episodes=tuple(sorted((rng.uniform(3.0, 14.0), kind) for kind in kinds)),
            cascade=rng.random() < 0.5,
        )

    @staticmethod
    def lasting(shape: Shape) -> Shape:
        """The shape with sources that write for long enough to see the jobs drained and begun again."""
        if not shape.split:
            return shape
        rng = Random(f"lasting {shape.pace_s}")
        pace_s = 0.15 + shape.pace_s / 2
        return replace(shape, pace_s=pace_s, rows=int(rng.uniform(*LASTS_S) / pace_s))

    @property
    def names(self) -> tuple[str, ...]:
        """The jobs that share."""
        return (UPSTREAM, SIDE_JOB) if self.side else (UPSTREAM,)


def writer_of(row: Row) -> str:
    """The job that shares this row."""
    return SIDE_JOB if row.producer >= SIDE_BASE else UPSTREAM


# ----------------------------------------------------------------------------------------------------- what the reader must know


OPEN, DRAINED, ENDED, LEFT = "open", "drained", "ended", "left"
"""A task that has ended begins its next run where it stopped: its last time counts while others are open. One that has left does not."""


class Spoken:
    """What the tasks of one job have said in one partition of the shared stream, in their newest run."""

    def __init__(self, run: str, floor: int, reached: int) -> None:
        self.run = run
        self.floor = floor
        """The time that the other jobs had reached when this run began: its rows before that may be late."""
        self.reached = reached
        """The greatest time that all tasks together have ever said."""
        self.epoch = -1
        self.tasks = 0
        self.said: dict[str, tuple[int, int, bool, str]] = {}
        """By task: the epoch, the time, whether it is idle, and its state."""

    def hear(self, frame: ControlFrame) -> None:
        """A further control message of the run."""
        if frame.epoch > self.epoch:
            self.epoch, self.tasks = frame.epoch, frame.tasks
        task = frame.task or ""
        _, before, _, state = self.said.get(task, (0, NO_TIME, False, OPEN))
        if isinstance(frame, Watermark):
            self.said[task] = (frame.epoch, max(before, frame.ts), frame.idle, state)
        else:
            if state not in (ENDED, LEFT):
                state = DRAINED if not isinstance(frame, EndOfStream) else LEFT if frame.left else ENDED
            self.said[task] = (frame.epoch, before, False, state)
        times = [ts for _, ts, idle, _ in self._live() if not idle] or [ts for _, ts, *_ in self._live()]
        if self._complete() and not self._draining():
            self.reached = max([self.reached, *([min([*times, *self._last()])] if times else [])])

    def _now(self) -> list[tuple[int, int, bool, str]]:
        return [one for one in self.said.values() if one[0] == self.epoch]

    def _live(self) -> list[tuple[int, int, bool, str]]:
        return [one for one in self._now() if one[3] == OPEN]

    def _last(self) -> list[int]:
        """The last times of the tasks that have ended. Who brought no row in this run has none."""
        return [ts for _, ts, _, state in self._now() if state == ENDED and ts > NO_TIME]

    def _complete(self) -> bool:
        return len(self._now()) == self.tasks

    def _draining(self) -> bool:
        """Whether some tasks have drained, and others have not."""
        return bool(self._live()) and any(state == DRAINED for *_, state in self._now())

    @property
    def away(self) -> bool:
        """Whether all tasks have drained or ended."""
        return self._complete() and not self._live()

    @property
    def promised(self) -> int | None:
        """The time that all tasks have surely reached; None if not all have said one."""
        if not self._complete() or self._draining() or not self._live():
            return None
        return min([*(ts for _, ts, *_ in self._live()), *self._last()])


class Shares:
    """What was seen of the shared stream of one world."""

    def __init__(self, world: World, sharing: Sharing) -> None:
        self.world = world
        self.sharing = sharing
        self.spoken: dict[StreamPartition, dict[str, Spoken]] = {}
        self.excused: set[Row] = set()
        """The rows that may be late at the reader."""
        self.judged = 0
        """How often the reader's time was held against what it must be."""
        self.last: tuple[str, Ends] | None = None
        """The request of the cascade that ends the world, and the ends that it has."""
        self._owed: dict[tuple[str, str], tuple[int, int]] = {}

    def said(self, at: StreamPartition, frame: ControlFrame) -> None:
        """A control message became visible in a partition."""
        jobs = self.spoken.setdefault(at, {})
        name = frame.job.partition("/")[0]
        before = jobs.get(name)
        if before is None or before.run != frame.run:
            others = [one.reached for job, one in jobs.items() if job != name]
            floor = max(others, default=NO_TIME) if before is not None else NO_TIME
            reached = before.reached if before is not None else NO_TIME
            jobs[name] = Spoken(frame.run, floor, reached)
        jobs[name].hear(frame)

    def row(self, at: StreamPartition, by: tuple[str, str], row: Row, ts: int) -> None:
        """A row became visible in a partition."""
        task, run = by
        spoken = self.spoken.get(at, {}).get(writer_of(row))
        if spoken is None or spoken.run != run or task not in spoken.said:
            self.world.invariants.fail(
                f"{row} of {by} stands in {at} before the first control message of its task's run"
            )
            return
        if ts < spoken.floor:
            self.excused.add(row)

    def letter(self, actor: Watched, order: facts.RunStep) -> None:
        """Only a drain of the reader's own run closes what it reads."""
        if order.stream != SHARED or order.kind not in (facts.END, facts.DRAIN):
            return
        run = self.world.invariants.truth(actor.job).state.run
        if order.kind == facts.END or run is None or (run.run_id == actor.run_id and run.drain is None):
            self.world.invariants.fail(
                f"{actor.name} hears the {order.kind} of {SHARED}, which only other jobs have said"
            )

    # ------------------------------------------------------------------------------------------------------ time goes on

    def due(self, actor: Watched) -> int | None:
        """The time that this task must have heard, as it has read everything: the least promise of all jobs that are not away."""
        machine = actor.actor.machine
        found: list[int] = []
        for plan in actor.actor.site.plan.inputs:
            for at in plan.owned if plan.stream == SHARED else ():
                log = self.world.kafka.topics[at.stream][at.partition]
                if machine.position(at) < log.stable or log.damaged or at in machine.inputs.closed:
                    return None
                jobs = self.spoken.get(at, {})
                if len(jobs) < len(self.sharing.names):
                    return None
                for one in jobs.values():
                    if not one.away and one.promised is None:
                        return None
                    if one.promised is not None:
                        found.append(one.promised)
        return min(found, default=None)

    def waits(self, actor: Watched) -> int:
        """For how many seconds this task has not heard the time that it must have heard."""
        name = (actor.process.name, actor.name)
        due = self.due(actor)
        if due is None:
            self._owed.pop(name, None)
            return 0
        self.judged += 1
        before, seconds = self._owed.get(name, (due, 0))
        if (
            due < before or actor.actor.machine.inputs.progress.watermark(SHARED) >= before
        ):  # a job that was away has begun again
            self._owed[name] = (due, 0)
            return 0
        self._owed[name] = (before, seconds + 1)
        return seconds + 1

    # ------------------------------------------------------------------------------------------------------------ cascades

    def ends(self) -> Ends:
        """The ends of the shared stream now, as a reader of committed records sees them."""
        return {SHARED: [log.stable for log in self.world.kafka.topics[SHARED]]}

    def ended(self, job: Job) -> None:
        """The world has ended."""
        run = self.world.invariants.truth(job).state.run
        if self.last is not None and run is not None and run.drain == self.last[0]:
            self.drained_through(job, self.last[1])

    def drained_through(self, job: Job, ends: Ends) -> None:
        """The reader has read everything up to these ends, and is drained."""
        positions: dict[StreamPartition, int] = {}
        for (name, _), reference in self.world.invariants.references.items():
            if name == job.name:
                positions |= reference.positions
        for partition, end in enumerate(ends[SHARED]):
            at = StreamPartition(SHARED, partition)
            if self.world.invariants.has_data(at, positions.get(at, 0), end):
                self.world.invariants.fail(
                    f"the cascade has drained {job.name} at {positions.get(at, 0)} of {at}, and rows stand before {end}"
                )


class Story:
    """What happens to the jobs beside the faults of the seed."""

    def __init__(self, shares: Shares, faults: Faults) -> None:
        self.shares = shares
        self.world = shares.world
        self.faults = faults
        self.rng = Random(f"story {shares.world.seed}")
        jobs = {job.name: job for job in self.world.jobs}
        self.writers = [jobs[name] for name in shares.sharing.names]
        self.reader = jobs[DOWNSTREAM]

    def begin(self) -> None:
        """Schedule all episodes."""
        for at_s, kind in self.shares.sharing.episodes:
            self.world.schedule.at(at_s, self._begin, kind)

    def _begin(self, kind: str) -> None:
        if not self.faults.concluding:
            EPISODES[kind](self)

    def _soon(self, least: float, most: float, call: Callable[..., Any], *args: Any) -> None:
        self.world.schedule.at(self.rng.uniform(least, most), call, *args)

    def _run(self, job: Job) -> Any:
        return self.world.invariants.truth(job).state.run

    def _away(self, between: Callable[[Job], None] | None = None) -> None:
        """Drain a job that shares, and begin it again. In half of the cases one of its workers is stopped while it drains, so that its
        tasks drain one after the other."""
        job = self.rng.choice(self.writers)
        run = self._run(job)
        if run is None or run.state != messages.RunState.RUNNING or run.drain is not None:
            return
        alive = [slot.process for slot in job.slots if slot.process is not None]
        if alive and self.rng.random() < 0.5:
            self.rng.choice(alive).freeze(self.rng.uniform(0.3, 3.0))
            self.world.took_effect("stall")
        self.faults.requested(job, "drain", "drain")
        if between is not None:
            self._soon(0.2, 3.0, between, job)
        self._soon(1.0, 5.0, self.faults.start, job)

    def again(self) -> None:
        self._away()

    def grown(self) -> None:
        self._away(lambda job: self.faults.growth() if job.name == UPSTREAM else None)

    def reader_killed(self) -> None:
        self._away(lambda _: self.faults.kill_job(self.reader))

    def reader_stopped(self) -> None:
        def stop(_: Job) -> None:
            if self.faults.run_state(self.reader) == messages.RunState.RUNNING:
                self.faults.requested(self.reader, "stop", "stop")
                self._soon(1.0, 4.0, self.faults.start, self.reader)

        self._away(stop)

    def reader_drained(self) -> None:
        def drain(_: Job) -> None:
            if self.faults.run_state(self.reader) == messages.RunState.RUNNING:
                self.faults.requested(self.reader, "drain", "drain")
                self._soon(1.0, 4.0, self.faults.start, self.reader)

        self._away(drain)

    def cascade(self) -> None:
        """`headgate drain JOB --cascade`: drains jobs one behind the other, in the order of production; then they begin again."""
        jobs = {str(job.job_name): job for job in self.world.jobs}
        runs = {name: self._run(job) for name, job in jobs.items()}
        if None in runs.values():
            return
        first = str(self.rng.choice(self.writers).job_name)
        order = [Following(first, ()), *followers(first, {name: run.reads for name, run in runs.items()})]
        self._drain_next([(jobs[one.job], bool(one.streams)) for one in order])

    def _drain_next(self, left: list[tuple[Job, bool]]) -> None:
        if not left or self.faults.concluding:
            return
        (job, follows), *rest = left
        run = self._run(job)
        if run.state != messages.RunState.RUNNING or run.drain is not None:
            return  # somebody else drains or stops it
        ends = self.shares.ends() if follows else {}
        uuid = self.faults.requested(job, "drain", "cascade", **({"upto": ends} if ends else {}))
        self._follow(job, run.run_id, uuid, ends, rest)

    def _follow(self, job: Job, run_id: str, uuid: str, ends: Ends, left: list[tuple[Job, bool]]) -> None:
        run = self._run(job)
        if run.run_id != run_id:
            return
        if run.state != messages.RunState.DRAINED:
            self.world.schedule.at(0.3, self._follow, job, run_id, uuid, ends, left)
            return
        if ends and run.drain == uuid:
            self.shares.drained_through(job, ends)
        if not self.faults.concluding:
            self._soon(0.5, 6.0, self.faults.start, job)
            self._drain_next(left)


EPISODES: dict[str, Callable[[Story], None]] = {
    "again": Story.again,
    "grown": Story.grown,
    "reader-killed": Story.reader_killed,
    "reader-stopped": Story.reader_stopped,
    "reader-drained": Story.reader_drained,
    "cascade": Story.cascade,
}
