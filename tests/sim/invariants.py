"""Invariants, checked at the moment when a violation first becomes visible.

No check looks at the whole world. Each is made where something becomes visible (a commit, a message of the coordinator stream, a grant that
is used, a letter, a record given to an operator), against a small reference state.

    one running owner per task, by grant            `actor_started`, `end_asked`, `committed`, `_grant`
    an incarnation initialises its id once          `initialising`
    a fenced writer writes nothing                  the modelled broker refuses it; `committed` sees that the committer was the owner
    positions move without gaps, back only by seek  `committed`
    nothing processed after drained or ended        `committed`, `processed`
    control stands behind all data of its producer  `seen`
    a source watermark is exact, never past data    `control_sent`, `seen`, `processed`
    jobs of jobs: time, drains and cascades         `shares`
    a restored table equals the fold of its log     `restored`
    applied configuration never goes back           `config_applied`
    one final answer per request                    `_answer`
    a closed run stays closed                       `_run`
    an outage kills nobody                          `fencing`
    compaction changes no state                     `folds`
    what is released has no store open, and who exits no transaction   `closed`
    an answer has its effect                        `answers`
    reading obeys seeks, bounds and pauses          `reading`
    placement is balanced, moves little, has owners `placing`
    a machine that is replayed decides the same     `stories`
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgpack

from headgate.agents.job.types.schemas import PARKED
from headgate.core import orders
from headgate.core.coordination import messages
from headgate.core.coordination.state import FINAL, JobState
from headgate.core.coordination.wire import read
from headgate.core.names import StreamPartition, incarnation_order, worker_id
from headgate.core.progress.frames import MAX_TIME, NO_TIME, EndOfStream, Watermark, is_control
from headgate.core.progress.producers import StreamPhase
from headgate.core.task import protocol as facts
from headgate.core.task.inputs import JUST_NOW_S
from headgate.core.task.stored.checkpoint import (
    CHECKPOINT_KEY,
    MAX_APPLIED,
    Checkpoint,
    decode_checkpoint,
    parse_log_key,
)

from .branches import REMINDERS, Reminded
from .job import LAG_MS, PARTIAL, SHARED, Row, framed, stray
from .log import COMMITTED, Producer, Record
from .lookups import ASKED, foreign
from .shares import writer_of
from .waiting import AFTER_S
from .windows import TOPICS, Windows

if TYPE_CHECKING:
    from .life import Watched
    from .process import Process
    from .world import Job, World

Tables = dict[str, dict[bytes, bytes]]


class Violation(Exception):
    """An invariant was violated."""


def number_of(key: bytes) -> int:
    """The number of a parked row, of its key in the table."""
    return msgpack.unpackb(key)


class Reference:
    """The durable state of one task: what its log contains, maintained without reading it."""

    __slots__ = (
        "checkpoint",
        "closed_run",
        "grant",
        "max_ts",
        "owner",
        "positions",
        "run",
        "seeks",
        "step_times",
        "tables",
        "times",
    )

    def __init__(self) -> None:
        self.grant = 0
        self.owner: Watched | None = None
        self.tables: Tables = {}
        self.checkpoint: bytes | None = None
        self.positions: dict[StreamPartition, int] = {}
        self.max_ts: dict[StreamPartition, int] = {}
        self.closed_run = ""
        self.run = ""
        self.times: dict[str, set[int]] = {}
        """By run: the valid watermarks of a source partition, each a greatest timestamp at some moment minus the lag."""
        self.seeks: dict[str, int] = {}
        self.step_times: dict[str, int] = {}
        """By step: the time last committed as told to the step."""


def _job_in(at: StreamPartition, frame: Any) -> str:
    """The job of a frame, as `Wire` names it."""
    return frame.job.partition("/")[0] if at.stream == SHARED else ""


class Wire:
    """One partition of a framed stream: what each producer has announced in it, as far as it was read."""

    __slots__ = ("closed", "marks", "upto")

    def __init__(self) -> None:
        self.upto = 0
        self.closed: dict[tuple[str, str, str, str | None], int] = {}
        self.marks: dict[tuple[str, str, str | None], int] = {}
        """By job, run and task. Only in a shared stream, a job has a name: runs of two jobs may have the same id."""


class Truth:
    """The coordinator stream of one job, folded as it is written."""

    def __init__(self) -> None:
        self.position = 0
        self.state = JobState()
        self.finals: dict[str, str] = {}
        self.term = 0
        self.closed_runs: dict[str, str] = {}
        self.terms = 0


class Invariants:
    """All invariants of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.references: dict[tuple[str, str], Reference] = {}
        self.initialised: set[tuple[str, str, str]] = set()
        self.condemned: set[str] = set()
        self.wires: dict[StreamPartition, Wire] = {}
        self.windows = Windows(world)
        self.reminded = Reminded(self)
        self.truths: dict[str, Truth] = {}
        self.passed_from: dict[StreamPartition, int] = {}
        """By source partition that has ended in a run in which time does not wait for it: from which offset a later run reads on."""
        self.told = NO_TIME
        """The latest time, short of an end, that any step was ever told."""
        self.came: dict[StreamPartition, int] = {}
        """By source partition that was added: the latest time that anybody had said when its first record was committed, or with
        state its first position."""
        self.left_out: dict[str, list[bytes]] = {}
        """By job, the parked rows that went when an operator had some left out."""
        self.intervals: dict[str, dict[StreamPartition, list[tuple[int, int]]]] = {}
        self.runs: dict[str, dict[StreamPartition, list[str]]] = {}
        """As `intervals`: the run in which each of them was read."""
        self.commits = 0
        self.restores = 0
        self.ends: Counter[str] = Counter()
        """How runs were closed, and how requests were answered."""
        self.max_ts: dict[StreamPartition, list[tuple[int, int]]] = {}

    def fail(self, what: str) -> None:
        """Stop the world. The violation is recorded even if the caller catches the exception."""
        violation = Violation(f"{what} (step {self.world.schedule.steps}, at {self.world.schedule.moment:.3f})")
        self.world.broke(violation)
        raise violation

    def reference(self, job: str, task: str) -> Reference:
        found = self.references.get((job, task))
        if found is None:
            found = self.references[job, task] = Reference()
        return found

    # --------------------------------------------------------------------------------------------- incarnations, fences

    def initialising(self, process: Process, incarnation: str) -> None:
        """An incarnation initialises its transactional id exactly once."""
        name = (process.job.name, process.slot.processor, incarnation)
        if name in self.initialised:
            self.fail(f"{process.name} initialises {incarnation} a second time: a zombie would unfence itself")
        self.initialised.add(name)

    def fencing(self, process: Process, processor: str, incarnation: str) -> None:
        """A process that sends heartbeats, turns, obeys and stays is not fenced because the broker was away."""
        world = self.world
        for other in process.job.processes:
            if other.slot.processor != processor or other.member.incarnation != incarnation:
                continue
            if other is process or other.name in self.condemned:
                continue
            if not world.innocent(other):
                self.condemned.add(
                    other.name
                )  # the fence is repeated until it is done, even if the process has woken meanwhile
                continue
            said = self.truth(process.job).state.recorded(processor).get(incarnation)
            if said is not None and said.state in (messages.ProcessorState.LEFT, messages.ProcessorState.LEAVING):
                continue  # it had left, and was granted something in the same moment
            self.fail(f"{process.name} fences {other.name} ({incarnation}), which lives and beats")

    # ------------------------------------------------------------------------------------------------------ grants

    def actor_started(self, actor: Watched) -> None:
        """A grant is used once, by its holder, after the previous one is released or fenced."""
        reference = self.reference(actor.job.name, actor.name)
        before = reference.owner
        again = before is not None and before.gone and before.grant == actor.grant
        if actor.grant <= reference.grant and actor.fenced() and actor.process.woke_s_ago() < 1.0:
            return  # it was frozen between the order and the start; nothing that it does will count
        if actor.grant <= reference.grant and not (again and before.incarnation == actor.incarnation):
            self.fail(f"{actor.process.name} starts {actor.name} under grant {actor.grant}, after {reference.grant}")
        if (
            before is not None
            and not again
            and before.reported != orders.TaskState.RELEASED
            and not (before.reported == orders.TaskState.FAILED and before.actor.ended.is_set())
            and not before.fenced()
        ):
            self.fail(
                f"{actor.process.name} starts {actor.name} under grant {actor.grant}, but {before.process.name} "
                f"({before.incarnation}) holds {before.grant}, has not released it and is not fenced"
            )
        held = self.truth(actor.job).state.grant(actor.name)
        if held is None or held.grant < actor.grant:
            self.fail(f"{actor.process.name} starts {actor.name} under grant {actor.grant}, which was never written")
        if held.grant == actor.grant and (held.processor, held.incarnation) != (
            actor.process.slot.processor,
            actor.incarnation,
        ):
            self.fail(
                f"{actor.process.name} ({actor.incarnation}) starts {actor.name} under grant {actor.grant} "
                f"of {held.processor} ({held.incarnation})"
            )
        self._not_refused(actor)
        reference.grant = actor.grant
        reference.owner = actor
        actor.max_ts = dict(reference.max_ts) if reference.run == actor.run_id else {}
        actor.times = reference.times.setdefault(actor.run_id, set())

    def refused(self, process: Process, target: StreamPartition, tasks: Iterable[str]) -> None:
        """Note that a target rejected the writes of these tasks, and the process knows it."""
        if target in self.world.kafka.broken:
            process.refused |= {(task, target, self.world.kafka.broken[target]) for task in tasks}

    def _not_refused(self, actor: Watched) -> None:
        """A task that failed at a target is not started before the target can be written: each attempt would end the worker's producer."""
        for task, target, time in actor.process.refused:
            if task == actor.name and self.world.kafka.broken.get(target) == time:
                self.fail(f"{actor.process.name} starts {task}, which has failed at {target}, and that is still broken")

    def end_asked(self, process: Process, at: StreamPartition, committed: bool) -> None:
        """The end of a log is meaningful only if nobody else can still write to it. Whoever follows a log knows that others write to it."""
        if committed or at.stream != process.job.log_topic:
            return
        follows = {name for name, one in process.runtime.followers.all.items() if one.work is not None}
        for watched in process.watched.values():
            if watched.name in follows:
                continue
            owner = self.reference(process.job.name, watched.name).owner
            if watched.log_partition == at.partition and owner is watched and (undecided := self._undecided(at)):
                self.fail(f"{watched.name} asks for the end of its log while {undecided} transaction is open in it")

    def _undecided(self, at: StreamPartition) -> int:
        """How many transactions are open in a partition and may still grow; what only waits for its marker does not."""
        kafka = self.world.kafka
        decided = {producer.pid for producer in kafka.producers.values() if at in producer.unmarked}
        return len(kafka.topics[at.stream][at.partition].open.keys() - decided)

    def reported(self, actor: Watched, report: orders.TaskReported) -> None:
        """A report contains only what is durable."""
        reference = self.reference(actor.job.name, actor.name)
        if report.state in (orders.TaskState.DRAINED, orders.TaskState.ENDED):
            if reference.owner is actor and (actor.moves or actor.sealed):
                self.fail(f"{actor.name} reports {report.state} with records that are not committed")
            reference.closed_run = actor.run_id
        if report.state == orders.TaskState.RELEASED or report.gone:
            self.closed(actor.process, actor.name)

    def closed(self, process: Process, task: str | None = None) -> None:
        """A worker has released a task, or exits in order: no store of the task, or of any, is open in it. The store of a log that it
        follows may be."""
        followers = process.runtime.followers.all.values() if task is not None else ()
        followed = [one.store for one in followers]
        for place, disk in sorted(self.world.disks.items()):
            for (job, name), files in sorted(disk.files.items()):
                for one in files:
                    mine = one.holder is not None and one.holder.process is process and job == process.job.name
                    if mine and task in (None, name) and one.holder not in followed:
                        self.fail(f"{process.name} has released {name}, and its store at {place} is open")
        for txid, producer in sorted(self.world.kafka.producers.items()) if task is None else ():
            mine = producer.owner is not None and producer.owner[0] is process
            if mine and producer.touched and txid not in process.unclear and self._reached(process):
                self.fail(f"{process.name} exits, and its transaction of {txid} is open in {sorted(producer.touched)}")

    def _reached(self, process: Process) -> bool:
        """Whether the broker has answered this process for a while, so that it could end what it has begun."""
        world, moment = self.world, self.world.schedule.moment
        away = world.kafka.away or any(moment <= over + AFTER_S for over in world.trouble_over.values())
        recently = moment <= world.outage_over + AFTER_S or process.woke_s_ago() <= AFTER_S
        return not (world.kafka.down or away or recently)

    # ------------------------------------------------------------------------------------------------------ commits

    def committed(
        self, process: Process, producer: Producer, touched: list[tuple[tuple[str, int], list[Record]]]
    ) -> None:
        """A data transaction became visible."""
        self.commits += 1
        job = process.job
        contributed = process.contributed.pop(producer.owner[1], {})
        actors = dict(contributed)
        for (topic, partition), records in touched:
            if topic != job.log_topic:
                continue
            task = records[-1].by[0]
            actor = contributed.pop(task, None)
            if actor is None:
                self.fail(f"{process.name} commits changes of {task}, which has contributed nothing")
                return
            self._contributed(process, producer, actor, partition, records)
        if contributed:
            self.fail(f"{process.name} commits without the checkpoint of {sorted(contributed)}")
        written = {record.by[0] for (topic, _), records in touched if topic != job.log_topic for record in records}
        logged = {records[-1].by[0] for (topic, _), records in touched if topic == job.log_topic}
        if astray := sorted(written - logged):
            self.fail(f"{process.name} commits what {astray[0]} has written, without its positions")
        for (topic, _), records in touched:
            if topic in TOPICS:
                self.windows.committed(topic, records)
            if topic == REMINDERS and job.branches is not None:
                self.reminded.committed(job.branches, records)
            if topic == ASKED and (why := foreign(process, actors, records)):
                self.fail(why)

    def _contributed(
        self, process: Process, producer: Producer, actor: Watched, partition: int, records: list[Record]
    ) -> None:
        reference = self.reference(process.job.name, actor.name)
        if reference.owner is not actor:
            self.fail(
                f"{process.name} ({producer.owner[1]}) commits for {actor.name} under grant {actor.grant}, "
                f"but grant {reference.grant} has been taken up"
            )
        if partition != actor.log_partition:
            self.fail(
                f"{actor.name} writes into partition {partition} of the log, and its own is {actor.log_partition}"
            )
        checkpoint: Checkpoint | None = None
        unparked: dict[int, bytes] = {}
        for record in records:
            if record.key == CHECKPOINT_KEY:
                reference.checkpoint = record.value
                checkpoint = decode_checkpoint(record.value)
                continue
            at = parse_log_key(record.key)
            rows = reference.tables.setdefault(at.table or "", {})
            if record.value is None:
                gone = rows.pop(at.key, None)
                if at.table == PARKED and gone is not None:
                    unparked[number_of(at.key)] = gone
            else:
                rows[at.key] = record.value
        if checkpoint is None:
            self.fail(f"{actor.name} commits without a checkpoint")
            return
        self._left_out(process.job, actor, reference, checkpoint, unparked)
        self._moves(process.job, actor, reference, checkpoint)
        self.windows.counted(actor)
        actor.sealed = []
        reference.max_ts = actor.sealed_ts
        reference.step_times = actor.sealed_times
        reference.run = actor.run_id

    def _left_out(
        self, job: Job, actor: Watched, reference: Reference, checkpoint: Checkpoint, unparked: dict[int, bytes]
    ) -> None:
        """Parked rows that an operator has left out are gone with the commit that remembers the order, and no others because of it."""
        rows = reference.tables.get(PARKED, {})
        for request in checkpoint.applied:
            order = None if request in reference.seeks else self.world.reading.left_out(job, request)
            if order is None:
                continue
            assert order.upto is not None, "an operator has seen what is to be left out"
            if order.number is None and (left := [n for n in map(number_of, rows) if n <= order.upto]):
                self.fail(
                    f"{actor.name} has left out what was parked up to {order.upto}, and {min(left)} is still there"
                )
            self.left_out.setdefault(job.name, []).extend(row for n, row in unparked.items() if n <= order.upto)

    def _moves(self, job: Job, actor: Watched, reference: Reference, checkpoint: Checkpoint) -> None:
        """Positions continue where they were, over records that were processed in this transaction."""
        intervals, runs = self.intervals.setdefault(job.name, {}), self.runs.setdefault(job.name, {})
        applied = checkpoint.applied
        fresh = [request for request in applied if request not in reference.seeks]
        seeks = [request for request in fresh if not self.world.reading.unparks(job, request)]
        skipped = [at for request in seeks if (at := self.world.reading.skipped(job, request)) is not None]
        sought = len(seeks) > len(skipped)
        before = dict(reference.positions)
        upto = dict(before)
        for at, begin, end in actor.sealed:
            last = upto.get(at, 0)
            if begin != last and not sought and (begin < last or self.has_data(at, last, begin)):
                self.fail(f"{actor.name} went on in {at} at {begin}, but {last} was committed")
            self.world.reading.read(actor, at, begin, end)
            if reference.closed_run == actor.run_id and self.has_data(at, begin, end):
                self.fail(f"{actor.name} goes on in {at} from {begin} to {end} after it drained or ended")
            upto[at] = end
            if at not in self.came and self.grown(at):
                self.came[at] = self._latest()
            for move in without(begin, end, [offset for one, offset in skipped if one == at]):
                intervals.setdefault(at, []).append(move)
                runs.setdefault(at, []).append(actor.run_id)
        for at, position in checkpoint.positions.items():
            done = upto.get(at, 0)
            if position != done and not sought:
                low, high = min(done, position), max(done, position)
                if self.has_data(at, low, high):
                    self.fail(f"{actor.name} commits position {position} of {at}, but has processed up to {done}")
            reference.positions[at] = position
            if (
                at not in self.came and job.shape.stateful and self.grown(at)
            ):  # it has joined a task that others wait for already
                self.came[at] = self._latest()
        if seeks:
            self.world.reading.sought(actor, seeks, before, checkpoint)
        self.world.reading.ended(actor, checkpoint)
        forgotten = [request for request in reference.seeks if request not in applied]
        if forgotten and len(applied) < MAX_APPLIED:
            self.fail(f"{actor.name} no longer remembers that it has applied {forgotten[0]}: it would be applied twice")
        for request in fresh:
            reference.seeks[request] = actor.grant
            self.world.waiting.applied(actor.job, actor.name, request)
            self.world.seek_committed(job)

    def has_data(self, at: StreamPartition, begin: int, end: int) -> bool:
        if begin >= end:
            return False
        log = self.world.kafka.topics[at.stream][at.partition]
        for record in log.records[bisect_left(log.offsets, begin) : bisect_left(log.offsets, end)]:
            if record.status == COMMITTED and not (at.stream in self.world.framed and is_control(record.value)):
                return True
        return False

    def seen(self, at: StreamPartition) -> None:
        """Check what has just become visible in a framed stream: each producer's control messages come after its data."""
        if at.stream not in self.world.framed:
            return
        log = self.world.kafka.topics[at.stream][at.partition]
        wire = self.wires.get(at)
        if wire is None:
            wire = self.wires[at] = Wire()
        stop = log.stable
        records = log.records
        index = bisect_left(log.offsets, wire.upto)
        while index < len(records) and records[index].offset < stop:
            record = records[index]
            index += 1
            if record.status != COMMITTED:
                continue
            value = framed(record.value)
            shares = self.world.shares if at.stream == SHARED else None
            if shares is not None:
                if not isinstance(value, list):
                    shares.said(at, value)
                for row, ts in value if isinstance(value, list) else ():
                    shares.row(at, record.by, row, ts)
            if isinstance(value, list):
                for row, ts in value:
                    self._data_on_wire(at, wire, record.by, row, ts)
            elif type(value) is Watermark:
                mark = (_job_in(at, value), value.run, value.task)
                if value.ts < wire.marks.get(mark, value.ts):
                    self.fail(f"the watermark of {value.task} in {at} goes back to {value.ts}")
                if not value.idle:
                    wire.marks[mark] = value.ts
            else:
                mark = (_job_in(at, value), value.run, value.task)
                if isinstance(value, EndOfStream) and (value.left or wire.marks.get(mark, NO_TIME) == NO_TIME):
                    self.windows.left.add((at.stream, value.task))
                wire.closed[(*mark[:2], type(value).__name__, value.task)] = record.offset
        wire.upto = max(wire.upto, stop)

    def _data_on_wire(self, at: StreamPartition, wire: Wire, by: tuple[str, str], row: Row, ts: int) -> None:
        writer, run = by
        job = writer_of(row) if at.stream == SHARED else ""
        for task in (writer, None):
            for what in ("EndOfStream", "Drain"):
                if (job, run, what, task) in wire.closed:
                    self.fail(f"{row} of {by} stands in {at} behind the {what} of {task or 'all producers'}")
            mark = wire.marks.get((job, run, task))
            behind = mark is not None and ts < mark and not self.may_be_late(row)
            if behind and self.world.shares is not None and at.stream != SHARED and self.passed(row):
                self.excuse(row)  # it was late where it came from
            elif behind:
                self.fail(f"{row} of {by} at {ts} stands in {at} behind a watermark {mark} of {task or 'all'}")

    # ------------------------------------------------------------------------------------------------ tables, stores

    def restored(self, actor: Watched) -> None:
        """The restored state is the committed one, whatever was compacted, and from whichever store it started."""
        self.restores += 1
        reference = self.reference(actor.job.name, actor.name)
        store = actor.actor.state.store
        if reference.owner is not actor or store is None:
            return
        for name in sorted({*store.tables(), *reference.tables}):
            have, want = dict(store.range(name)), reference.tables.get(name, {})
            if have != want:
                wrong = {
                    key: (have.get(key), want.get(key))
                    for key in sorted({*have, *want})
                    if have.get(key) != want.get(key)
                }
                self.fail(f"{actor.name} restored a table {name} that differs from its log (restored, true): {wrong}")
        if store.meta.checkpoint != reference.checkpoint:
            self.fail(f"{actor.name} restored another checkpoint than the last")

    # ------------------------------------------------------------------------------------------------ control, time

    def control_sent(self, actor: Watched, order: facts.SendControl) -> None:
        """A task announces only the time of its sources that its operators have heard; and that it is idle, only if nothing waits
        for it.
        """
        frame = order.frame
        if type(frame) is not Watermark or frame.task is None:
            return
        if order.stream == actor.job.reshuffled:
            self.windows.passed_on(actor.name, frame.ts)
            if frame.idle:
                self.world.idle_said.add((order.stream, frame.run, actor.name))
            return
        name = (order.stream, frame.run, frame.task)
        sources = actor.sources()
        if not sources:  # the first stage reads another job, and is as idle as that one says
            if frame.idle:
                self.world.idle_said.add(name)
            return
        heard = actor.marks.get(sources[0].stream, frame.ts)
        if frame.ts not in (MAX_TIME, NO_TIME) and frame.ts > heard:
            self.fail(f"{actor.name} says watermark {frame.ts}; its operators have heard {heard}")
        if frame.idle:
            self.world.idle_said.add(name)
            for at in sources:
                self._nothing_waits(actor, at)

    def _nothing_waits(self, actor: Watched, at: StreamPartition) -> None:
        """Idle means that the broker has nothing, not that nobody looked: a fetch was answered just now, and showed nothing that waits. A
        later answer may be known to the process and not yet to the task."""
        position, now = actor.actor.machine.position(at), actor.process.now().mono
        answers = actor.process.shown.get(at, ())
        empty = (answered_s for answered_s, end in reversed(answers) if not self.has_data(at, position, end))
        age_s = now - next(empty, float("-inf"))
        if age_s > JUST_NOW_S:
            self.fail(
                f"{actor.name} says that it is idle at {position} of {at}; the last answer that showed nothing there is {age_s:.3f} s old"
            )

    def processed(self, actor: Watched, at: StreamPartition, begin: int, end: int) -> None:
        """Records were given to the stage after a framed stream. A fenced task may read on behind its drain or end, until it is told: the
        records there are of a run of its successors, and nothing that it makes of them is ever committed.
        """
        if actor.fenced():
            return
        mark = actor.marks.get(at.stream)
        log = self.world.kafka.topics[at.stream][at.partition]
        for record in log.records[bisect_left(log.offsets, begin) : bisect_left(log.offsets, end)]:
            found = framed(record.value) if record.status == COMMITTED else None
            if not isinstance(found, list):
                continue
            for row, ts in found:
                late = mark is not None and ts < mark and not self.may_be_late(row)
                if late and self.passed(row):
                    self.excuse(row)
                elif late:
                    self.fail(f"{actor.name} gets {row} of {at} at {ts}, behind its own watermark {mark}")
            if found and at.stream in actor.closed:
                self.fail(f"{actor.name} gets a record of {at} after its {actor.closed[at.stream]}")

    def may_be_late(self, row: Row) -> bool:
        """Behind a seek that leads back rows come again; a new partition is read from its beginning although time had advanced before it
        came; strays are old, and so may be others when they are written, so that an idle task was lifted past them by then. A partial state
        may hold such rows. Results of a window are never late."""
        if row.producer < 0:
            return row == PARTIAL
        shares = self.world.shares
        if shares is not None and row in shares.excused:
            return True
        old = bool(self.world.idle_said) and any(row in feed.old for feed in self.world.feeds.values())
        grouped = any(row in feed.grouped for feed in self.world.feeds.values())
        return stray(row) or grouped or self._before_it_came(row) or old or self.world.read_again(row)

    def grown(self, at: StreamPartition) -> bool:
        """Whether this source partition was added while the job ran."""
        feed = self.world.feeds.get(at.stream)
        return feed is not None and at.partition >= feed.width

    def _before_it_came(self, row: Row) -> bool:
        """Whether time had passed this row of a new partition before anybody knew of the partition. From then on time waits for it."""
        at = self.world.source_of(row)
        if at is None or not self.grown(at):
            return False
        return at not in self.came or self.world.feeds[at.stream].times[at.partition, row.seq] < self.came[at]

    def _latest(self) -> int:
        """The latest time that stands in a stream, or that a step was ever told: what was late for a join stays late in later runs."""
        said = [self.told, *(ts for wire in self.wires.values() for ts in wire.marks.values())]
        said += [ts for one in self.references.values() for ts in one.step_times.values()]
        for job in self.world.jobs:
            said += [ts for process in job.processes for one in process.watched.values() for ts in one.marks.values()]
        return max((ts for ts in said if ts != MAX_TIME), default=NO_TIME)

    def excuse(self, row: Row) -> None:
        """Note that this row is rightly late where it is read from another job, and so in all later stages."""
        if self.world.shares is not None:
            self.world.shares.excused.add(row)

    def passed(self, row: Row) -> bool:
        """Whether the partition of this row had ended in a run before this one, and time went on without it: it had left, because another
        input has no end, or it brought no record in that run."""
        at = self.world.source_of(row)
        return at is not None and row.seq >= self.passed_from.get(at, row.seq + 1)

    def letter(self, actor: Watched, order: facts.RunStep) -> None:
        """Operators see time advance, across a restart too, and each end once."""
        if self.world.shares is not None:
            self.world.shares.letter(actor, order)
        self.windows.letter(actor.name, order)
        self.reminded.letter(actor.name, actor.run_id, order)
        self.told = max([self.told, *(ts for _, ts in order.times if ts != MAX_TIME)])
        reference = self.reference(actor.job.name, actor.name)
        if reference.owner is actor and reference.run == actor.run_id:
            for step, ts in reference.step_times.items():
                if actor.actor.machine.step_times.get(step, NO_TIME) < ts:
                    self.fail(
                        f"{actor.name} gets a letter, and does not know that '{step}' has been told the time {ts}"
                    )
        if order.stream is None:
            return
        if order.kind == facts.WATERMARK:
            assert order.ts is not None
            exact = actor.job.is_source(order.stream) and order.ts != MAX_TIME
            if exact and order.ts not in actor.times:
                self.fail(
                    f"{actor.name} hears watermark {order.ts} of {order.stream}, which was never its greatest "
                    f"timestamp less {LAG_MS}; now that is {actor.max_ts}"
                )
            if order.ts < actor.marks.get(order.stream, order.ts):
                self.fail(f"{actor.name}: the watermark of {order.stream} goes back to {order.ts}")
            actor.marks[order.stream] = order.ts
        elif order.kind in (facts.END, facts.DRAIN):
            actor.closed[order.stream] = order.kind
            if order.kind == facts.END and actor.job.is_source(order.stream):
                self._passed_by(actor, order.stream)

    def _passed_by(self, actor: Watched, stream: str) -> None:
        """A task has ended this source: note the partitions for which time does not wait. It may have ended before it read anything."""
        machine = actor.actor.machine
        for at in [at for plan in actor.actor.site.plan.inputs if plan.stream == stream for at in plan.owned]:
            one = machine.inputs.progress.partition(*at)
            if one.ts == NO_TIME or one.status == StreamPhase.LEFT:
                upto = machine.position(at)
                self.passed_from[at] = min(upto, self.passed_from.get(at, upto))

    def config_applied(self, process: Process, offset: int) -> None:
        """The applied configuration offset of a worker never goes back."""
        if offset < process.config_offset:
            self.fail(f"{process.name} applies configuration {offset} after {process.config_offset}")

    # --------------------------------------------------------------------------------------------- coordinator stream

    def truth(self, job: Job) -> Truth:
        found = self.truths.get(job.name)
        if found is None:
            found = self.truths[job.name] = Truth()
        return found

    def coordinator(self, job: Job) -> None:
        """Fold what has become visible, and check each message before it is folded."""
        log = self.world.kafka.topics[job.coordinator_topic][0]
        truth = self.truth(job)
        if log.stable <= truth.position:
            return
        records, truth.position = log.read(max(truth.position, log.start), 1 << 30)
        for record in records:
            entry = read(record.offset, record.key, record.value, record.append_ms)
            check = CHECKS.get(type(entry.message))
            if check is not None:
                check(self, job, truth, entry.message)
            truth.state.apply(entry)
        self.world.answers.check(job, truth)

    def _fence(self, job: Job, truth: Truth, fence: messages.SetFence) -> None:
        """It is written after the fence has returned, for this incarnation and every recorded one below it."""
        for incarnation in truth.state.recorded(fence.processor):
            if incarnation_order(incarnation) <= incarnation_order(fence.incarnation):
                producer = self.world.kafka.producers.get(worker_id(job.job_name, fence.processor, incarnation))
                if producer is None or producer.owner is not None:
                    self.fail(f"the stream says that {fence.processor} ({incarnation}) is fenced; it is not")

    def _grant(self, job: Job, truth: Truth, grant: messages.SetGrant) -> None:
        before = truth.state.grant(grant.task)
        if before is None:
            return
        if grant.grant <= before.grant:
            self.fail(f"grant {grant.grant} of {grant.task} is written after {before.grant}")
        said = truth.state.task_states(grant.task).get(before.grant)
        if said is not None and said.state == orders.TaskState.RELEASED:
            return
        txid = worker_id(job.job_name, before.processor, before.incarnation)
        producer = self.world.kafka.producers.get(txid)
        if producer is not None and producer.owner is not None:
            self.fail(
                f"{grant.task} is granted to {grant.processor} ({grant.grant}) while {before.processor} "
                f"({before.incarnation}) holds {before.grant}, has not released it, and its id is not fenced"
            )

    def _leader(self, job: Job, truth: Truth, leader: messages.SetLeader) -> None:
        if leader.processor and leader.term <= truth.term:
            self.fail(f"{leader.processor} leads in term {leader.term} after {truth.term}")
        truth.term = max(truth.term, leader.term)
        truth.terms += 1

    def _answer(self, job: Job, truth: Truth, answer: messages.SetAnswer) -> None:
        before = truth.finals.get(answer.uuid)
        if before is not None:
            self.fail(f"request {answer.uuid} was answered '{before}', and now '{answer.state}'")
        if answer.state in FINAL:
            truth.finals[answer.uuid] = answer.state
            asked = job.requests.get(answer.uuid)
            self.ends[f"{'request' if asked is None else asked.verb} {answer.state}"] += 1
        self.world.answers.said(answer)

    def _member(self, job: Job, truth: Truth, member: messages.SetMember) -> None:
        worker = truth.state.recorded(member.processor).get(member.incarnation)
        if member.prepare_ms and worker is not None and worker.state == messages.ProcessorState.JOINED:
            self.ends["dismissed that work on"] += 1

    def _model(self, job: Job, truth: Truth, model: messages.SetJobModel) -> None:
        self.world.placing.placed(job, truth, model)

    def _run(self, job: Job, truth: Truth, run: messages.SetRun) -> None:
        before = truth.state.run
        closed = truth.closed_runs.get(run.run_id)
        if closed in (messages.RunState.DRAINED, messages.RunState.ENDED) and run.state not in messages.CLOSED:
            self.fail(f"run {run.run_id} is {run.state} after it was {closed}")
        if before is not None and before.run_id != run.run_id:
            if before.state in messages.LIVE:
                self.fail(f"run {run.run_id} begins while {before.run_id} is {before.state}")
            if not job.may_begin(run):
                self.fail(f"run {run.run_id} begins by itself after {before.run_id} was {before.state}")
        if before is not None and before.run_id == run.run_id:
            if before.drain is not None and run.drain is None:
                self.fail(f"run {run.run_id} no longer drains")
            resumed = before.state == messages.RunState.STOPPED and run.state in messages.LIVE
            if resumed and not before.failed and not job.may_resume(run):
                self.fail(f"run {run.run_id} goes on by itself after it was stopped")
        self.world.reading.bounded(job, run)
        if run.state in messages.CLOSED:
            if run.run_id not in truth.closed_runs or closed != run.state:
                self.ends[f"run {run.state}"] += 1
                self.world.answers.nothing_runs(job, run)
            truth.closed_runs[run.run_id] = run.state
            for task in sorted(truth.state.changelogs):
                if truth.state.held(task) is not None:
                    self.fail(f"run {run.run_id} is {run.state} while {task} is held")

    def folds(self, job: Job) -> None:
        """Folding the compacted stream gives the same state as folding everything that was ever written."""
        log = self.world.kafka.topics[job.coordinator_topic][0]
        compacted = JobState()
        for record in log.read(log.start, 1 << 30)[0]:
            compacted.apply(read(record.offset, record.key, record.value, record.append_ms))
        if compacted != self.truth(job).state:
            self.fail(f"the compacted coordinator stream of {job.name} folds to another state")


def without(begin: int, end: int, skipped: Iterable[int]) -> list[tuple[int, int]]:
    """The parts of a range that are left when these offsets are left out."""
    parts = []
    for offset in sorted(skipped):
        if begin <= offset < end:
            parts.append((begin, offset))
            begin = offset + 1
    return [*parts, (begin, end)]


CHECKS: dict[type, Any] = {
    messages.SetGrant: Invariants._grant,
    messages.SetFence: Invariants._fence,
    messages.SetLeader: Invariants._leader,
    messages.SetAnswer: Invariants._answer,
    messages.SetRun: Invariants._run,
    messages.SetJobModel: Invariants._model,
    messages.SetMember: Invariants._member,
}
