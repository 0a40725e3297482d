"""Holds the reading of each task against what it was asked: seeks, bounds and pauses.

    a seek continues at its target, as the broker named it since then  `sought`, when the checkpoint that contains it is committed
    a skip leaves out its record, and moves nothing                  `sought`, `skipped` (that it was not processed: the account)
    a bounded input is read up to its bound, and not behind it       `read`, `ended`
    a run has the bounds that the broker gave                        `bounded`
    nothing is taken of a stream while its pause is known,
    and nothing more in a drain of what is paused                    `taken`

An answer of the broker that only the process under test has heard (where `newest` is) is noted when it is given (`answered`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.core import orders
from headgate.core.coordination import messages
from headgate.core.names import StreamPartition
from headgate.core.orders import RunView, skips
from headgate.core.task.stored.checkpoint import Checkpoint

if TYPE_CHECKING:
    from .life import Watched
    from .process import Process
    from .world import Job, World


class Reading:
    """What was asked of the readers of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._seeks: dict[tuple[str, str], messages.SeekRequest] = {}
        """By job and id, every seek that a run has contained."""
        self._unparks: dict[tuple[str, str], messages.UnparkRequest] = {}
        """By job and id, every order about parked records that a run has contained."""
        self._untils: dict[tuple[str, str], Mapping[str, tuple[int, ...]]] = {}
        """By job and run, the bounds of its inputs."""
        self._contained: dict[tuple[str, str], float] = {}
        """By job and id of a seek, since when a run contains it."""
        self._answers: dict[tuple[str, StreamPartition], list[tuple[float, str | int, int | None]]] = {}
        """By process and partition, what the broker has answered: when, to what (`start`, `end`, or a time), and the offset."""
        self._reread: dict[StreamPartition, int] = {}
        """Up to which offset a partition had been read when a seek led back."""

    # ------------------------------------------------------------------------------------------------------ what was asked

    def answered(self, process: Process, at: StreamPartition, asked: str | int, offset: int | None) -> None:
        """The broker has named an offset of this partition to a process; or none, since there is no record of that time or a later one."""
        self._answers.setdefault((process.name, at), []).append((self.world.schedule.moment, asked, offset))

    def bounded(self, job: Job, run: messages.SetRun) -> None:
        """A run was written: its bounds are what the broker has answered, and they stay."""
        for seek in run.seeks:
            self._seeks[job.name, seek.id] = seek
            self._contained.setdefault((job.name, seek.id), self.world.schedule.moment)
        self._unparks |= {(job.name, one.id): one for one in run.unparks}
        before = self._untils.get((job.name, run.run_id))
        if before is not None:
            if dict(before) != dict(run.untils):
                self.world.invariants.fail(f"run {run.run_id} ends at {dict(run.untils)}, and first at {dict(before)}")
            return
        self._untils[job.name, run.run_id] = run.untils
        for stream, offsets in run.untils.items():
            for partition, offset in enumerate(offsets):
                at = StreamPartition(stream, partition)
                named = [said for (_, one), told in self._answers.items() if one == at for _, _, said in told]
                if offset not in named:
                    self.world.invariants.fail(f"run {run.run_id} ends {at} at {offset}, which no broker has named")

    def unparks(self, job: Job, name: str) -> bool:
        """Whether this request is about parked records, and moves no position."""
        return (job.name, name) in self._unparks

    def left_out(self, job: Job, name: str) -> messages.UnparkRequest | None:
        """The order that leaves parked records out; None if it does something else."""
        found = self._unparks.get((job.name, name))
        return found if found is not None and found.what == orders.LEAVE_OUT else None

    def place_of(self, job: Job, name: str) -> StreamPartition | None:
        """The partition that a seek moves."""
        seek = self._seeks.get((job.name, name))
        return None if seek is None else StreamPartition(seek.stream, seek.partition)

    def skipped(self, job: Job, name: str) -> tuple[StreamPartition, int] | None:
        """The record that a seek leaves out; None if it moves the position instead."""
        seek = self._seeks.get((job.name, name))
        if seek is None or not skips(seek.to):
            return None
        return StreamPartition(seek.stream, seek.partition), seek.to[1]

    def until(self, watched: Watched, at: StreamPartition) -> int | None:
        """Where the run of this task ends the partition."""
        offsets = self._untils.get((watched.job.name, watched.run_id), {}).get(at.stream, ())
        return offsets[at.partition] if at.partition < len(offsets) else None

    def read_again(self, at: StreamPartition, offset: int) -> bool:
        """Whether a seek has led back behind this record after it had been read."""
        return offset < self._reread.get(at, 0)

    # -------------------------------------------------------------------------------------------------------- what was done

    def taken(self, watched: Watched, at: StreamPartition, view: RunView | None) -> None:
        """A task takes records of a partition."""
        if view is None or at.stream not in watched.job.inputs or at.stream in view.drain_upto:
            return
        if view.paused_job or at.stream in view.paused_streams:
            self.world.invariants.fail(f"{watched.process.name} {watched.name} reads {at} and knows that it is paused")

    def read(self, watched: Watched, at: StreamPartition, begin: int, end: int) -> None:
        """A task has committed what it read of a partition."""
        until = self.until(watched, at)
        if until is not None and self.world.invariants.has_data(at, max(begin, until), end):
            self.world.invariants.fail(f"{watched.name} reads {at} up to {end}, and its run ends it at {until}")

    def ended(self, watched: Watched, checkpoint: Checkpoint) -> None:
        """A task has committed that it has ended."""
        if checkpoint.phase != orders.TaskState.ENDED:
            return
        for at, position in checkpoint.positions.items():
            until = self.until(watched, at)
            if until is not None and self.world.invariants.has_data(at, position, until):
                self.world.invariants.fail(
                    f"{watched.name} has ended {at} at {position}, and its run ends it at {until}"
                )

    def sought(
        self, watched: Watched, fresh: list[str], before: Mapping[StreamPartition, int], after: Checkpoint
    ) -> None:
        """A task has committed that it has applied these requests: it went on at the target of the last one of each partition.

        `before`: the positions in the checkpoint before.
        """
        last = {}
        for name in fresh:
            seek = self._seeks.get((watched.job.name, name))
            if seek is None:
                self.world.invariants.fail(f"{watched.name} has applied {name}, which no run has contained")
                return
            if not skips(seek.to):
                last[StreamPartition(seek.stream, seek.partition)] = seek
            elif not any(
                (one, True) == (self.place_of(watched.job, name), begin <= seek.to[1] < end)
                for one, begin, end in watched.sealed
            ):
                self.world.invariants.fail(
                    f"{watched.name} has applied {seek.id} ({seek.to}), and has not passed that record"
                )
        for at, seek in last.items():
            moves = [(begin, end) for one, begin, end in watched.sealed if one == at]
            begun = [*(begin for begin, _ in moves), after.positions[at]]
            if not any(self._is_target(watched, at, seek, offset) for offset in begun):
                self.world.invariants.fail(
                    f"{watched.name} has applied {seek.id} ({at} to {seek.to}), and stood at {before.get(at)}, went on "
                    f"from {begun[:-1]}, and is at {begun[-1]}"
                )

    def turned(self, watched: Watched, at: StreamPartition) -> None:
        """A task goes on at another position. It may be committed with rows that it reads again, which readers see first."""
        committed = self.world.invariants.reference(watched.job.name, watched.name).positions.get(at, 0)
        reached = [end for one, _, end in (*watched.sealed, *watched.moves) if one == at]
        self._reread[at] = max([committed, *reached, self._reread.get(at, 0)])

    def _is_target(self, watched: Watched, at: StreamPartition, seek: messages.SeekRequest, offset: int) -> bool:
        start, since = (
            self.world.kafka.topics[at.stream][at.partition].start,
            self._contained[watched.job.name, seek.id],
        )
        told = [one for one in self._answers.get((watched.process.name, at), ()) if one[0] >= since]
        ends = {offset for _, asked, offset in told if asked == "end"}
        if isinstance(seek.to, int):
            targets = {seek.to}
        elif seek.to == "oldest":
            targets = {offset for _, asked, offset in told if asked == "start"} | {start}
        elif seek.to == "newest":
            targets = ends
        else:
            found = {offset for _, asked, offset in told if asked == seek.to[1]}
            targets = found | (ends if None in found else set())
        targets = {offset for offset in targets if offset is not None}
        return offset in targets or any(one < offset <= start for one in targets)  # the target may be deleted by now
