"""Checks what must not wait for long, once a second: a record that a task could read, and an answer that it owes.

    a record that a task may take is processed            `_records`
    time goes on when all other jobs say so               `_time`
    a seek that a task was told is answered, or told again  `_answers`
    a refused request is not carried out                   `applied`
    a setting reaches every worker, and a pause, a resume and a drain every task  `_settings`, `_views`
    a worker tells its tasks at once                       `_passed_on`
    a worker joins its job                                 `_joined`
    a task has an owner                                    `placing`
    what is due is out, once nothing hinders               `timely`

Time counts only while there is no obstacle: the process runs, the broker answers, disks have space, the task has its state, and nothing has
failed in it for a while. A partition that cannot be written or has no leader is an obstacle for who writes to it, and for the reading of
that partition. So these checks also hold during faults, for everything that the faults do not affect.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from headgate.agents.job.derive.plans import seconds
from headgate.core import orders
from headgate.core.coordination.member.grants import GrantPhase
from headgate.core.coordination.member.member import MemberState
from headgate.core.names import StreamPartition
from headgate.core.orders import WORKING
from headgate.core.task.inputs import PAUSED

from .job import SHARED
from .log import COMMITTED

if TYPE_CHECKING:
    from .life import Watched
    from .process import Process
    from .world import Job, World

PATIENCE = 6
"""After this many seconds in a row without an obstacle, a task must have read what there is, and have answered."""
AT_ONCE = 2
"""The same for what stays within a worker, and needs no broker."""
JOINING = (MemberState.NEW, MemberState.READING, MemberState.FENCING, MemberState.INITIALISING)
JOINS_S = 15
"""For how many seconds a worker may be there, unhindered, and not have joined."""
AFTER_S = 6.0
"""How long an obstacle has effects after it is over: connections, answers, outdated state."""
INTERVAL = "commit.interval"
"""The setting that requests of the simulated operators change."""
FAILED_S = 45.0
"""How long a failure may delay a task, which retries with growing pauses."""


class Waiting:
    """What each task owes, and since when."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._owed: dict[tuple[str, str, str], int] = {}
        """By process, task and request: for how many seconds nothing has prevented the answer."""
        self._unread: dict[tuple[str, str, StreamPartition], tuple[int, int]] = {}
        """By process, task and partition: the current record, and for how many seconds nothing has prevented reading it."""
        self._behind: dict[tuple[object, ...], int] = {}
        """What a process or a task does not know yet, and for how many seconds nothing has prevented that."""

    def told(self, process: Process, task: str, seek: orders.Errand) -> None:
        """A member told a task to seek."""
        self._owed[process.name, task, seek.request] = 0

    def answered(self, process: Process, answer: orders.SeekApplied) -> None:
        """A task has answered."""
        self._owed.pop((process.name, answer.task, answer.request), None)
        invariants = self.world.invariants
        if not answer.refused and answer.request not in invariants.reference(process.job.name, answer.task).seeks:
            invariants.fail(f"{answer.task} says that it has applied {answer.request}, and no checkpoint contains it")

    def applied(self, job: Job, task: str, request: str) -> None:
        """A checkpoint contains the seek for the first time. A refusal that died with its worker has reached nobody."""
        told = self.world.invariants.truth(job).state.task_states(task).values()
        if any(request in one.refused for one in told):
            self.world.invariants.fail(f"{task} carries out {request}, which it has refused")

    def look(self) -> None:
        """Check once a second."""
        self.world.schedule.at(1.0, self.look)
        running = {process.name: process for job in self.world.jobs for process in job.processes}
        free = {name: process for name, process in running.items() if self._unhindered(process)}
        unread: dict[tuple[str, str, StreamPartition], tuple[int, int]] = {}
        behind: dict[tuple[object, ...], int] = {}
        for process in running.values():
            self._passed_on(process, behind)
        for process in free.values():
            self._joined(process, behind)
            self._settings(process, behind)
            for watched in process.watched.values():
                if self._at_work(watched):
                    self._records(watched, unread)
                    self._time(watched)
                    self._views(watched, behind)
        self._unread, self._behind = unread, behind
        self._answers(running, free)
        self.world.placing.look(free)
        self.world.timely.look()

    def _unhindered(self, process: Process) -> bool:
        world, moment = self.world, self.world.schedule.moment
        disk = world.disk(process.slot.location)
        return (
            process.alive
            and not process.exiting
            and not world.kafka.down
            and moment > world.outage_over + AFTER_S
            and not (process.read_delay_s or process.fetch_delay_s)
            and not (disk.full or disk.busy)
            and moment - process.frozen_last > AFTER_S
            and not any(self._needs(process, at) for at in self._troubled())
        )

    def _troubled(self) -> list[StreamPartition]:
        """The partitions that cannot be written, or have no leader, or had not a while ago."""
        world = self.world
        after = [at for at, over in world.trouble_over.items() if world.schedule.moment <= over + AFTER_S]
        return sorted({*world.kafka.away, *world.kafka.broken, *after})

    def _needs(self, process: Process, at: StreamPartition) -> bool:
        """Whether the process cannot work without this partition: it follows or writes it."""
        job = process.job
        if at.stream == job.log_topic:
            return any(not one.gone and one.log_partition == at.partition for one in process.watched.values())
        return at.stream in (job.coordinator_topic, job.heartbeat_topic, *job.written)

    def _at_work(self, watched: Watched) -> bool:
        machine = watched.actor.machine
        recently = self.world.schedule.moment - watched.failed_at < FAILED_S
        return watched.began and not watched.gone and not recently and machine.phase in WORKING

    def _records(self, watched: Watched, unread: dict[tuple[str, str, StreamPartition], tuple[int, int]]) -> None:
        """A committed, undamaged record at the position of an open partition must be read."""
        machine, topics, troubled = watched.actor.machine, self.world.kafka.topics, self._troubled()
        for plan in watched.actor.site.plan.inputs:
            for at in plan.owned:
                log = topics[at.stream][at.partition]
                index = bisect_left(log.offsets, machine.position(at))
                if index >= len(log.records) or log.damaged or at in troubled or not self._open(watched, at):
                    continue
                record = log.records[index]
                bound = machine.inputs.until.get(at)
                if record.status != COMMITTED or record.offset >= (
                    log.stable if bound is None else min(bound, log.stable)
                ):
                    continue
                name = (watched.process.name, watched.name, at)
                before, seconds = self._unread.get(name, (-1, 0))
                seconds = seconds + 1 if before == record.offset else 0
                unread[name] = record.offset, seconds
                if seconds > PATIENCE:
                    self.world.invariants.fail(
                        f"{watched.process.name} {watched.name} is {machine.phase}, and {record} waits in {at} for {seconds} s"
                    )

    def _open(self, watched: Watched, at: StreamPartition) -> bool:
        """Whether the partition may be read when no letter is in progress. A letter that takes too long is what this check must find, and
        a pause that is over.
        """
        machine, run = watched.actor.machine, self.world.invariants.truth(watched.job).state.run
        why = machine.inputs.closed.get(at, "")
        if why == PAUSED and run is not None and not run.paused_job and at.stream not in run.paused_streams:
            why = ""
        return not why and at in machine.inputs.positions and not machine.completion.hooks

    def _time(self, watched: Watched) -> None:
        """A task that has read all of a stream of other jobs has the time that they have said."""
        shares = self.world.shares
        if any(at.stream == SHARED for at in self._troubled()):
            return
        if shares is not None and shares.waits(watched) > PATIENCE:
            self.world.invariants.fail(
                f"{watched.process.name} {watched.name} has read all of {SHARED} for {PATIENCE} s, and its time is "
                f"{watched.actor.machine.inputs.progress.watermark(SHARED)}, not {shares.due(watched)}"
            )

    def _settings(self, process: Process, behind: dict[tuple[object, ...], int]) -> None:
        """The committer of a worker and its tasks have the interval that the stream says."""
        state = self.world.invariants.truth(process.job).state
        wanted, committing = seconds(state.overrides, INTERVAL), process.runtime.producers.committing
        have = {} if committing is None else {"its committer": committing.machine.view.interval_s}
        for watched in process.watched.values():
            if self._at_work(watched):
                have[watched.name] = watched.actor.machine.plan.settings.watermark_interval_s
        for part, interval_s in have.items():
            if interval_s != wanted:
                name = process.name, part, INTERVAL, state.config_offset, "is said"
                self._late(behind, name, f"has {interval_s} s and not {wanted}")

    def _views(self, watched: Watched, behind: dict[tuple[object, ...], int]) -> None:
        """A task knows the run as it is: what is paused, and whether it drains."""
        self._view(watched, self.world.invariants.truth(watched.job).state.run, behind, "is said", PATIENCE)

    def _joined(self, process: Process, behind: dict[tuple[object, ...], int]) -> None:
        """A worker that waits for nobody and does not rest after a failure joins its job."""
        member = process.member
        if member.state in JOINING and self.world.placing.able(process):
            self._late(behind, (process.name, "a worker without a place in its job"), f"is {member.state}", JOINS_S)

    def _passed_on(self, process: Process, behind: dict[tuple[object, ...], int]) -> None:
        """What the member of a worker knows of the run, its tasks know, too. For this it needs nobody else."""
        if process.exiting or process.woke_s_ago() < AT_ONCE:
            return
        for name, watched in process.watched.items():
            mine = process.member.tasks.grants.get(name)
            started = mine is not None and mine.phase == GrantPhase.STARTED and mine.grant == watched.grant
            if started and watched.began and not watched.gone:
                self._view(watched, process.member.job.run, behind, "is known", AT_ONCE)

    def _view(self, watched: Watched, run: Any, behind: dict[tuple[object, ...], int], how: str, most: int) -> None:
        """This run, and the one that the task was told, are not paused or drained differently for longer than this."""
        told = watched.view
        if run is None or told is None or run.run_id != told.run_id:
            return
        wanted = run.drain or (run.paused_job, run.paused_streams)
        has = told.draining or (told.paused_job, told.paused_streams)
        if wanted != has:
            name = watched.process.name, watched.name, "drain, or pause of the job and of streams", wanted, how
            self._late(behind, name, f"was told {has}", most)

    def _late(
        self, behind: dict[tuple[object, ...], int], what: tuple[object, ...], has: str, most: int = PATIENCE
    ) -> None:
        lasts = behind[what] = self._behind.get(what, 0) + 1
        if lasts > most:
            self.world.invariants.fail(f"{' '.join(map(str, what))} for {lasts} s, and it {has}")

    def _answers(self, running: dict[str, Process], free: dict[str, Process]) -> None:
        for owed in list(self._owed):
            name, task, request = owed
            process = running.get(name)
            if process is None or not self._stands(process, task, request):
                del self._owed[owed]
                continue
            watched = process.watched.get(task)
            able = name in free and watched is not None and self._at_work(watched)
            able = able and self.world.reading.place_of(process.job, request) not in self._troubled()
            skipped = self.world.reading.skipped(process.job, request)
            if able and watched is not None and skipped is not None:  # it is applied where the record is passed
                able = watched.actor.machine.position(skipped[0]) > skipped[1]
            self._owed[owed] = self._owed[owed] + 1 if able else 0
            if self._owed[owed] > PATIENCE:
                self.world.invariants.fail(
                    f"{name} told {task} of {request}, and {PATIENCE} s later nobody has answered"
                )

    def _stands(self, process: Process, task: str, request: str) -> bool:
        """Whether the run still contains the seek, and this member still has the task."""
        run = process.member.job.run
        mine = process.member.tasks.grants.get(task)
        return (
            mine is not None
            and run is not None
            and request in mine.delivered
            and any(one.id == request for one in (*run.seeks, *run.unparks))
        )
