"""One task under one grant: its machine, its buffers, its table, and the job's operators.

What is here the machine (`core.task.task.Task`) never sees: fetched records, the table with its changes on the way to a commit, and the
store on the location's disk. What happens when is the schedule's; what is decided is the machine's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from headgate.core import orders
from headgate.core.machine import Tick
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import Drain, EndOfStream, Watermark
from headgate.core.task import commit_protocol as commits
from headgate.core.task import protocol as facts
from headgate.core.task.task import Task

from .job import CYCLE, LAG_MS, Counted, Row, Sent, passes
from .log import OffsetOutOfRange

if TYPE_CHECKING:
    from .tasks import Tasks

CONTROL = (Watermark, EndOfStream, Drain)
POLL_S = 0.5
RETRY_S = 0.2
FETCH = 16


class Store:
    """A local store: what stands in it, up to which position of the task log, and when that was last known to be its end."""

    __slots__ = ("checkpoint", "followed_until_ms", "job_uuid", "position", "rows", "table")

    def __init__(self) -> None:
        self.job_uuid: str | None = None
        self.position: int | None = None
        self.followed_until_ms: int | None = None
        self.table: dict[Any, Any] = {}
        self.rows: dict[bytes, bytes] = {}
        self.checkpoint: Any = None

    def apply(self, key: Any, value: Any) -> None:
        """One record of the task log."""
        kind = key[0]
        if kind == "checkpoint":
            self.checkpoint = value
            return
        target: dict[Any, Any] = self.table if kind == "table" else self.rows
        if value is None:
            target.pop(key[1], None)
        else:
            target[key[1]] = value


class Head:
    """One partition as its task reads it."""

    __slots__ = ("announced", "at", "buffer", "fetched", "fetching", "log", "position")

    def __init__(self, at: StreamPartition, log: Any, position: int) -> None:
        self.at = at
        self.log = log
        self.position = position
        self.fetched = position
        self.buffer: deque[Any] = deque()
        self.fetching = True
        self.announced = -1


class Contribution:
    """What one task put into one transaction."""

    __slots__ = ("actor", "changes", "checkpoint", "max_ts", "moves", "outputs", "rows")

    def __init__(self, actor: Actor, outputs: list[Any], changes: dict[Any, Any], order: facts.Contribute) -> None:
        self.actor = actor
        self.outputs = outputs
        self.changes = changes
        self.rows = order.rows
        self.checkpoint = order.checkpoint
        self.moves, actor.moves = actor.moves, []
        self.max_ts = dict(actor.max_ts)


class Actor:
    """One task under one grant."""

    def __init__(self, tasks: Tasks, start: orders.Start) -> None:
        self.tasks = tasks
        self.process = tasks.process
        self.schedule = tasks.process.schedule
        self.kafka = tasks.process.kafka
        self.job = tasks.process.job
        self.name = start.task
        self.start = start
        self.grant = start.grant
        self.incarnation = tasks.incarnation
        self.producer = tasks.producer
        self.log_partition = start.log_partition
        self.job_uuid = start.run.job_uuid
        self.run_id = start.run.run_id
        self.machine: Task = self.process.world.make_task(self.process, start)
        self.gone = False
        self.store: Store | None = None
        self.heads: dict[StreamPartition, Head] = {}
        self.turn = 0
        self.until: Any = {}
        self.busy: Any = None
        self.ready: list[tuple[str, int, Any, Any, int]] = []
        self.changes: dict[Any, Any] = {}
        self.sealed: dict[Any, Any] = {}
        self._fetch_at = float("inf")
        self._work_soon = False
        self._tick_at = float("inf")
        self.reported = ""
        self.moves: list[tuple[StreamPartition, int, int]] = []
        """What was processed since the last transaction was sealed."""
        self.max_ts: dict[StreamPartition, int] = {}
        self.times: set[int] = set()
        self.marks: dict[str, int] = {}
        self.closed: dict[str, str] = {}

    # ------------------------------------------------------------------------------------------------- the machine

    def handle(self, event: Any) -> None:
        """Give the machine an event and carry out what it says."""
        if self.gone or not self.process.alive:
            return
        instructions = self.machine.handle(event, self.process.now())
        if self.schedule.trace is not None and (instructions or type(event) not in (facts.AtEnd, Tick)):
            told = ", ".join(map(str, instructions)) or "-"
            self.schedule.note(f"{self.process.name} {self.name}#{self.grant}", self.machine.state, event, "=>", told)
        for instruction in instructions:
            EDGE[type(instruction)](self, instruction)
            if self.gone:
                return
        self._arm()
        if not self._work_soon and self.busy is None and self.heads:
            self.work_soon()

    def _arm(self) -> None:
        deadline = self.machine.deadline()
        if deadline is None:
            return
        at = deadline - self.process.mono_origin
        if at < self._tick_at - 1e-9:
            self._tick_at = at
            self.schedule.post(self.process, max(0.0, at - self.schedule.moment) + 1e-6, self._tick, at)

    def _tick(self, at: float) -> None:
        if self.gone or self._tick_at != at:
            return
        self._tick_at = float("inf")
        deadline = self.machine.deadline()
        if deadline is not None and deadline <= self.schedule.moment + self.process.mono_origin:
            self.handle(Tick())
        else:
            self._arm()

    def later(self, delay: float, event: Any) -> None:
        """An answer of this machine's own disk or actor, after a while."""
        self.schedule.post(self.process, delay, self.handle, event)

    def machine_sources(self) -> list[StreamPartition]:
        """The source partitions that it reads."""
        return [at for at in self.heads if self.job.stages[at.stream] == "shuffle"]

    def ready_data(self) -> bool:
        """Whether something other than control waits for a commit."""
        return bool(self.changes) or any(type(row[3]) not in CONTROL for row in self.ready)

    def end(self) -> None:
        """Nothing of it is left in this process."""
        self.gone = True
        for head in self.heads.values():
            head.log.watchers.pop(self, None)
        self.process.world.invariants.actor_gone(self)

    # ------------------------------------------------------------------------------------------- store and restoring

    def open_store(self, _: facts.OpenStore) -> None:
        disk = self.process.world.disk(self.process.slot.location)
        self.store, foreign = disk.open(self.job.name, self.name, self)
        store = self.store
        if foreign:
            self.process.world.took_effect("store-held")
        self.later(0.001, facts.StoreOpened(store.position, store.job_uuid, store.followed_until_ms))

    def ask_log_ends(self, order: facts.AskLogEnds) -> None:
        topic = self.job.log_topic
        retention = self.job.delete_retention_ms

        def ends() -> facts.LogEnds:
            self.process.world.invariants.log_ends_asked(self)
            kafka = self.kafka
            return facts.LogEnds(
                kafka.start(topic, order.log_partition), kafka.end(topic, order.log_partition), retention
            )

        self.process.call(ends, self.handle)

    def wipe_store(self, _: facts.WipeStore) -> None:
        disk = self.process.world.disk(self.process.slot.location)
        self.store = disk.wipe(self.job.name, self.name, self)
        self.process.world.wiped += 1
        self.later(0.001, facts.StoreWiped())

    def restore(self, order: facts.Restore) -> None:
        store = self.store
        assert store is not None
        if store.position is None:
            store.position = order.start
        started = self.process.now().wall

        def read() -> Any:
            return self.kafka.read(self.job.log_topic, order.log_partition, store.position or 0, 50)

        def got(answer: Any) -> None:
            if self.gone:
                return
            records, position = answer
            for record in records:
                store.apply(record.key, record.value)
            moved = position > (store.position or 0)
            store.position = position
            if position >= order.end:
                store.job_uuid = self.job_uuid
                store.followed_until_ms = started
                self.process.world.invariants.restored(self, store)
                self.handle(facts.Restored(position, store.checkpoint, dict(store.rows)))
                return
            if not moved:
                self.handle(facts.RestoreProgress(position, blocked=True))
                self.schedule.post(self.process, 0.1, self.process.call, read, got)
                return
            self.process.call(read, got)

        if store.position >= order.end:
            got(([], store.position))
        else:
            self.process.call(read, got)

    def resolve(self, order: facts.Resolve) -> None:
        def bound(at: StreamPartition, bound: Any) -> int:
            start, end = self.kafka.start(*at), self.kafka.end(*at, committed=True)
            if isinstance(bound, int):
                return min(max(bound, start), end) if bound < end else bound
            if bound == "oldest":
                return start
            if bound == "newest":
                return end
            for record in self.kafka.read(at.stream, at.partition, start, 1 << 30)[0]:
                if record.ts >= bound[1]:
                    return record.offset
            return end

        def effect() -> facts.Resolved:
            self.kafka.up()
            return facts.Resolved(
                order.request,
                {at: bound(at, what) for at, what in order.positions.items()},
                {at: bound(at, what) for at, what in order.until.items()},
                {at: self.kafka.end(*at, committed=True) for at in sorted(order.ends)},
            )

        self.process.call(effect, self.handle)

    def close_store(self, _: facts.CloseStore) -> None:
        for head in self.heads.values():
            head.log.watchers.pop(self, None)
        self.heads = {}
        self.process.world.disk(self.process.slot.location).close(self.job.name, self.name, self)
        self.later(0.001, facts.StoreClosed())

    def discard(self, _: facts.Discard) -> None:
        self.tasks.gone(self)
        self.process.world.disk(self.process.slot.location).close(self.job.name, self.name, self)

    def begin_again(self, order: facts.BeginAgain) -> None:
        self.discard(facts.Discard("it begins again"))
        self.tasks.again(self, *order.seeks)

    # ------------------------------------------------------------------------------------------------------- intake

    def seek_consumer(self, order: facts.SeekConsumer) -> None:
        for at, position in sorted(order.positions.items()):
            old = self.heads.get(at)
            log = self.kafka.topics[at.stream][at.partition]
            head = Head(at, log, position)
            if old is not None:
                head.fetching = True
            self.heads[at] = head
            log.watchers[self] = None
        self.wake()

    def bounds(self, order: facts.Bounds) -> None:
        self.until = order.until

    def gate(self, order: facts.Gate) -> None:
        self.work_soon()

    def stop_fetching(self, order: facts.StopFetching) -> None:
        upto: dict[StreamPartition, int] = {}
        for at in order.partitions:
            head = self.heads.get(at)
            if head is None:
                continue
            head.fetching = False
            head.log.watchers.pop(self, None)
            if not order.keep:
                head.buffer.clear()
            upto[at] = head.buffer[-1].offset + 1 if head.buffer else self.machine.position(at)
            head.fetched = max(upto[at], head.position)
        self.later(0.0005, facts.FetchStopped(upto))

    def wake(self) -> None:
        """Records may be there: fetch soon, unless that is under way."""
        if self.gone or not self.heads:
            return
        at = self.schedule.moment + 0.002
        if at < self._fetch_at:
            self._fetch_at = at
            self.schedule.post(self.process, 0.002 + self.tasks.fetch_delay_s, self.fetch, at)

    def fetch(self, due: float) -> None:
        """One answered fetch of every partition that is fetched and has room."""
        if self.gone or due != self._fetch_at or not self.heads:
            return
        self._fetch_at = self.schedule.moment + POLL_S
        self.schedule.post(self.process, POLL_S, self.fetch, self._fetch_at)
        if self.kafka.down:
            for at in list(self.heads):
                self.handle(facts.NotAnswered(at))
                if self.gone:
                    return
            return
        for at, head in list(self.heads.items()):
            if not head.fetching or len(head.buffer) >= FETCH:
                continue
            log = head.log
            try:
                records, after = log.read(head.fetched, FETCH)
            except OffsetOutOfRange:
                self.handle(facts.Lost(at, head.fetched, log.start))
                if self.gone:
                    return
                continue
            if after > head.fetched:
                head.buffer.extend(records)
                head.fetched = after
            if not head.buffer and self.busy_at(at):
                continue
            if not head.buffer:
                if head.fetched > head.position:
                    head.position = head.fetched
                    self.handle(facts.PositionMoved(at, head.fetched))
                if self.gone:
                    return
                if head.fetched == log.end:
                    self.handle(facts.AtEnd(at, head.fetched))
                elif head.fetched == log.stable:
                    self.handle(facts.NotAtEnd(at, blocked=True))
            else:
                if head.fetched < log.stable:
                    self.wake()
            if self.gone:
                return
        self.work_soon()

    def busy_at(self, at: StreamPartition) -> bool:
        """Whether the chunk under work is of this partition."""
        return self.busy is not None and self.busy[0] == "chunk" and self.busy[1] == at

    # ------------------------------------------------------------------------------------------------------ the actor

    def work_soon(self) -> None:
        """Look for something to do as the next thing."""
        if not self._work_soon and not self.gone:
            self._work_soon = True
            self.schedule.post(self.process, 0.0003, self.work)

    def work(self) -> None:
        """Take a control message or a chunk from the next partition that may be taken."""
        self._work_soon = False
        if self.gone or self.busy is not None:
            return
        machine = self.machine
        heads = list(self.heads.values())
        for n in range(len(heads)):
            head = heads[(self.turn + n) % len(heads)]
            at, buffer = head.at, head.buffer
            while buffer and buffer[0].offset < head.position:
                buffer.popleft()
            if not buffer:
                continue
            first = buffer[0]
            if type(first.value) in CONTROL:
                if machine.position(at) > first.offset:
                    self.pass_control(head)
                    self.work_soon()
                    return
                if head.announced != first.offset and machine.may_take(at):
                    head.announced = first.offset
                    self.turn += n + 1
                    self.handle(facts.ControlAtHead(at, first.offset, first.value))
                    if not self.gone:
                        self.work_soon()
                    return
                continue
            if not machine.may_take(at):
                continue
            limit = self.until.get(at)
            if limit is not None and first.offset >= limit:
                continue
            self.turn += n + 1
            self.take(head, limit)
            return

    def pass_control(self, head: Head) -> None:
        """The machine's position has gone past the control message at the head."""
        head.buffer.popleft()
        head.position = self.machine.position(head.at)

    def take(self, head: Head, limit: int | None) -> None:
        """Hand a chunk to the actor; it takes a while."""
        chunk: list[Any] = []
        for record in head.buffer:
            if type(record.value) in CONTROL or len(chunk) == self.job.shape.chunk:
                break
            if limit is not None and record.offset >= limit:
                break
            chunk.append(record)
        upto = chunk[-1].offset + 1
        self.busy = ("chunk", head.at, chunk, upto)
        self.handle(facts.ChunkTaken(head.at, upto))
        self.schedule.post(self.process, 0.001 + self.schedule.rng.random() * 0.006, self.chunk_done, self.busy)

    def chunk_done(self, token: Any) -> None:
        """The actor is through with the chunk: its outputs and changes join the ready buffer, all of them."""
        if self.gone or self.busy is not token:
            return
        _, at, chunk, upto = token
        self.busy = None
        head = self.heads[at]
        world = self.process.world
        if world.failing_chunks > 0:
            world.failing_chunks -= 1
            world.took_effect("user-error")
            self.busy = ("failed", at, chunk, upto)
            self.handle(facts.WorkFailed("the user's function raised"))
            return
        newest = None
        before = len(self.ready)
        for record in chunk:
            if newest is None or record.ts > newest:
                newest = record.ts
            self.operate(at, record)
        for _ in chunk:
            head.buffer.popleft()
        self.moves.append((at, head.position, upto))
        head.position = upto
        if self.job.stages[at.stream] == "shuffle" and newest is not None:
            self.max_ts[at] = max(newest, self.max_ts.get(at, newest))
            self.times.add(self.max_ts[at] - LAG_MS)
        outputs = len(self.ready) > before or bool(self.changes)
        self.handle(facts.ChunkDone(at, upto, newest, outputs))
        if not self.gone:
            self.work_soon()
            if len(head.buffer) < FETCH // 2 and head.fetching:
                self.wake()

    def operate(self, at: StreamPartition, record: Any) -> None:
        """The user's job: filter and shuffle, or count."""
        job = self.job
        value = record.value
        stage = job.stages[at.stream]
        if stage == "shuffle":
            row: Row = value
            if passes(row):
                partition = row.key % job.shape.width
                self.ready.append((job.shuffled, partition, row.key, Sent(self.name, self.run_id, row), record.ts))
            return
        row = value.row
        self.process.world.invariants.processed(self, at, record)
        if stage == "count":
            count = self.get(row.key) + 1
            counted = Counted(row.producer, row.seq, row.key, count)
            self.changes[row.key] = None if count == CYCLE else count
        else:
            counted = Counted(row.producer, row.seq, row.key, 0)
        self.ready.append((job.output, row.key % job.outputs, row.key, counted, record.ts))

    def get(self, key: int) -> int:
        """The table as the actor sees it: what is not committed yet stands above what is."""
        for layer in (self.changes, self.sealed):
            if key in layer:
                return layer[key] or 0
        assert self.store is not None
        return self.store.table.get(key, 0)

    def drop_chunk(self, order: facts.DropChunk) -> None:
        busy, self.busy = self.busy, None
        if busy is not None:
            at = busy[1] if busy[0] != "step" else StreamPartition("", 0)
            self.later(0.0003, facts.ChunkDropped(at))

    def run_again(self, order: facts.RunAgain) -> None:
        assert self.busy is not None
        assert self.busy[0] == "failed"
        self.busy = ("chunk", *self.busy[1:])
        self.schedule.post(self.process, 0.002, self.chunk_done, self.busy)

    def run_step(self, order: facts.RunStep) -> None:
        """One bounded step of a letter. The world may ask for several, to see that nothing else runs between them."""
        self.process.world.invariants.letter(self, order)
        self.busy = ("step", order)
        self.schedule.post(self.process, 0.001 + self.schedule.rng.random() * 0.003, self.step_done, self.busy)

    def step_done(self, token: Any) -> None:
        if self.gone or self.busy is not token:
            return
        self.busy = None
        order: facts.RunStep = token[1]
        more = self.schedule.rng.random() < 0.1
        self.handle(facts.StepDone(order.letter, more, outputs=False))
        if not self.gone:
            self.work_soon()

    def send_control(self, order: facts.SendControl) -> None:
        self.process.world.invariants.control_sent(self, order)
        for partition in order.partitions:
            self.ready.append((order.stream, partition, None, order.frame, 0))

    # ------------------------------------------------------------------------------------------------------ committing

    def request_commit(self, order: facts.RequestCommit) -> None:
        self.tasks.to_committer(commits.Wanted(self.name, order.urgent))

    def contribute(self, order: facts.Contribute) -> None:
        outputs, self.ready = self.ready, []
        self.sealed, self.changes = self.changes, {}
        self.tasks.contributions[self.name] = Contribution(self, outputs, self.sealed, order)

    def tell(self, order: facts.Tell) -> None:
        report = order.report
        if isinstance(report, orders.TaskReported):
            self.reported = report.state
            self.process.world.invariants.reported(self, report)
        self.process.to_member(report)
        if isinstance(report, orders.TaskReported) and report.state == orders.TaskState.RELEASED:
            self.tasks.gone(self)

    def note(self, order: facts.Note) -> None:
        self.process.world.invariants.task_note(self, order)


EDGE: dict[type, Any] = {
    facts.OpenStore: Actor.open_store,
    facts.AskLogEnds: Actor.ask_log_ends,
    facts.WipeStore: Actor.wipe_store,
    facts.Restore: Actor.restore,
    facts.Resolve: Actor.resolve,
    facts.SeekConsumer: Actor.seek_consumer,
    facts.Bounds: Actor.bounds,
    facts.Gate: Actor.gate,
    facts.StopFetching: Actor.stop_fetching,
    facts.DropChunk: Actor.drop_chunk,
    facts.RunAgain: Actor.run_again,
    facts.RunStep: Actor.run_step,
    facts.SendControl: Actor.send_control,
    facts.RequestCommit: Actor.request_commit,
    facts.Contribute: Actor.contribute,
    facts.Tell: Actor.tell,
    facts.CloseStore: Actor.close_store,
    facts.Discard: Actor.discard,
    facts.BeginAgain: Actor.begin_again,
    facts.Note: Actor.note,
}
