"""Checks what must not wait for long, once a second: a record that a task could read, and an answer that it owes.

    a record that a task may take is processed            `_records`
    time goes on when all other jobs say so               `_time`
    a seek that a task was told is answered, or told again  `_answers`
    a refused request is not carried out                   `applied`

Time counts only while there is no obstacle: the process runs, the broker answers, disks have space, the task has its state, and nothing has
failed in it for a while. So these checks also hold during faults, for everything that the faults do not affect.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from headgate.core import orders
from headgate.core.names import StreamPartition
from headgate.core.orders import WORKING

from .job import SHARED
from .log import COMMITTED

if TYPE_CHECKING:
    from .life import Watched
    from .process import Process
    from .world import World

PATIENCE = 6
"""After this many seconds in a row without an obstacle, a task must have read what there is, and have answered."""
AFTER_S = 6.0
"""How long an obstacle has effects after it is over: connections, answers, outdated state."""
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
        self._refused: set[tuple[str, str]] = set()

    def told(self, process: Process, task: str, seek: orders.Seek) -> None:
        """A member told a task to seek."""
        self._owed[process.name, task, seek.request] = 0

    def answered(self, process: Process, answer: orders.SeekApplied) -> None:
        """A task has answered."""
        self._owed.pop((process.name, answer.task, answer.request), None)
        if answer.refused:
            self._refused.add((answer.task, answer.request))

    def applied(self, task: str, request: str) -> None:
        """A checkpoint contains the seek for the first time."""
        if (task, request) in self._refused:
            self.world.invariants.fail(f"{task} carries out {request}, which it has refused")

    def look(self) -> None:
        """Check once a second."""
        self.world.schedule.at(1.0, self.look)
        running = {process.name: process for job in self.world.jobs for process in job.processes}
        free = {name: process for name, process in running.items() if self._unhindered(process)}
        unread: dict[tuple[str, str, StreamPartition], tuple[int, int]] = {}
        for process in free.values():
            for watched in process.watched.values():
                if self._at_work(watched):
                    self._records(watched, unread)
                    self._time(watched)
        self._unread = unread
        self._answers(running, free)

    def _unhindered(self, process: Process) -> bool:
        world, moment = self.world, self.world.schedule.moment
        disk = world.disk(process.slot.location)
        return (
            process.alive
            and not process.exiting
            and not world.kafka.down
            and world.schedule.wall_ms > world.last_outage_ms + AFTER_S * 1000
            and not (process.read_delay_s or process.fetch_delay_s)
            and not (disk.full or disk.busy or world.kafka.broken)
            and moment - process.frozen_last > AFTER_S
        )

    def _at_work(self, watched: Watched) -> bool:
        machine = watched.actor.machine
        recently = self.world.schedule.moment - watched.failed_at < FAILED_S
        return watched.began and not watched.gone and not recently and machine.state in WORKING

    def _records(self, watched: Watched, unread: dict[tuple[str, str, StreamPartition], tuple[int, int]]) -> None:
        """A committed, undamaged record at the position of an open partition must be read."""
        machine, topics = watched.actor.machine, self.world.kafka.topics
        for plan in watched.actor.site.plan.inputs:
            for at in plan.owned:
                log = topics[at.stream][at.partition]
                index = bisect_left(log.offsets, machine.position(at))
                if index >= len(log.records) or log.damaged or not _open(machine, at):
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
                        f"{watched.process.name} {watched.name} is {machine.state}, and {record} waits in {at} for {seconds} s"
                    )

    def _time(self, watched: Watched) -> None:
        """A task that has read all of a stream of other jobs has the time that they have said."""
        shares = self.world.shares
        if shares is not None and shares.waits(watched) > PATIENCE:
            self.world.invariants.fail(
                f"{watched.process.name} {watched.name} has read all of {SHARED} for {PATIENCE} s, and its time is "
                f"{watched.actor.machine.inputs.progress.watermark(SHARED)}, not {shares.due(watched)}"
            )

    def _answers(self, running: dict[str, Process], free: dict[str, Process]) -> None:
        for owed in list(self._owed):
            name, task, request = owed
            process = running.get(name)
            if process is None or not self._stands(process, task, request):
                del self._owed[owed]
                continue
            watched = process.watched.get(task)
            able = name in free and watched is not None and self._at_work(watched)
            self._owed[owed] = self._owed[owed] + 1 if able else 0
            if self._owed[owed] > PATIENCE:
                self.world.invariants.fail(
                    f"{name} told {task} of {request}, and {PATIENCE} s later nobody has answered"
                )

    def _stands(self, process: Process, task: str, request: str) -> bool:
        """Whether the run still contains the seek, and this member still has the task."""
        run = process.member.job.run
        mine = process.member.tasks.mine.get(task)
        return (
            mine is not None
            and run is not None
            and request in mine.told
            and any(one.id == request for one in run.seeks)
        )


def _open(machine: Any, at: StreamPartition) -> bool:
    """Whether the partition may be read when no letter is in progress. A letter that takes too long is what this check must find."""
    return at not in machine.inputs.closed and at in machine.inputs.positions and not machine.completion.hooks
