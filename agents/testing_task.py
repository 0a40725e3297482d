"""One task in a test driver: the real machine, the real operators, the real tables, over memory.

It carries out what the machine says, as `task_actor` does on a worker, without Kafka, without Faust and without waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Protocol

import msgpack

from ..core import task_events as t
from ..core.checkpoint import CONTROL_TABLE, decode_checkpoint, encode_checkpoint
from ..core.frames import HEADER, header_value
from ..core.frames import encode as encode_frame
from ..core.machine import Now, Tick
from ..core.names import StreamPartition
from ..core.orders import FAILED, RunView, Start
from ..core.task import Task
from ..core.task_plan import TaskPlan
from .chunks import Buffer, Chunk
from .declared import Declared
from .fetched import Batch
from .key_test import KeyTest
from .pipeline import Pipeline
from .source import BadRecord
from .store import MemoryStore
from .table_opening import open_tables
from .tables import TaskTables
from .testing_topics import MemoryBuffer, MemoryTopics
from .trouble import Failed, recover

FOREVER_MS = 10**15


class World(Protocol):
    """What a task needs of the driver."""

    declared: Declared
    topics: MemoryTopics
    spark: Any

    def now(self) -> Now: ...
    def patience_s(self) -> float: ...
    def want_commit(self, task: str, urgent: bool) -> None: ...
    def resolve(self, order: t.Resolve) -> t.Resolved: ...
    def count(self, task: str, name: str, amount: int) -> None: ...


class DriverTask:
    """A task, its store, and what the machine asked for."""

    def __init__(
        self, world: World, plan: TaskPlan, store: MemoryStore, *, chunk_records: int, careful: bool = False
    ) -> None:
        """`careful`: a commit has failed on what its operators held back; now they hold nothing back."""
        self.world = world
        self.careful = careful
        self.plan = plan
        self.name = plan.task
        self.store = store
        self.chunk_records = chunk_records
        self.log_end = 0
        self.machine = Task(plan)
        self.tables: TaskTables
        self.pipeline: Pipeline | None = None
        self.buffer = MemoryBuffer(world.topics, plan.task)
        self.failure: BaseException | None = None
        self.spoilt: Exception | None = None
        """What a commit failed on: whatever of this task stands in the open transaction must not count."""
        self.said: list[str] = []
        """What it has reported, after the commit."""
        self.buffers: dict[StreamPartition, Buffer] = {}
        self._fed: dict[StreamPartition, int] = {}
        self._held: dict[StreamPartition, tuple[int, Any]] = {}
        self._events: deque[Any] = deque()
        self._letter: Chunk | t.RunStep | None = None
        self._again = False
        self._at_fault: BaseException | None = None
        self._checkpoints: deque[bytes] = deque()
        self._closing = False
        self._fresh = False

    # ------------------------------------------------------------------------------------------------ events and answers

    def start(self, grant: int, run: RunView, log_partition: int) -> None:
        """The order to run."""
        self.feed(Start(self.name, grant, run, log_partition))

    def feed(self, event: Any) -> None:
        """One event, and all that follows from it at once."""
        self._events.append(event)
        while self._events:
            for instruction in self.machine.handle(self._events.popleft(), self.world.now()):
                answer = self._HANDLERS[type(instruction)](self, instruction)
                if answer is not None:
                    self._events.append(answer)

    def _open_store(self, _: t.OpenStore) -> Any:
        meta = self.store.meta
        return t.StoreOpened(meta.position, meta.job_uuid or None, meta.followed_until_ms)

    def _log_ends(self, _: t.AskLogEnds) -> Any:
        return t.LogEnds(0, self.log_end, FOREVER_MS)

    def _wipe(self, _: t.WipeStore) -> Any:
        self.store = MemoryStore(self.machine.run.job_uuid)
        return t.StoreWiped()

    def _restore(self, order: t.Restore) -> Any:
        clock: Callable[[], int] = lambda: self.world.now().wall  # noqa: E731
        tables = self.tables = open_tables(self.store, self.world.declared, clock=clock).tables
        self.pipeline = Pipeline(
            self.world.declared,
            self.name,
            buffer=self.buffer,
            seal_buffer=MemoryBuffer(self.world.topics, self.name),
            table=tables.table,
            widths={one.stream: one.width for one in self.plan.outputs},
            now_ms=clock,
            count=lambda what, amount: self.world.count(self.name, what, amount),
            streams=[one.stream for one in self.plan.inputs],
            prepare=self._prepare,
            careful=self.careful,
            patience_s=self.world.patience_s,
        )
        count = partial(self.world.count, self.name)
        self.pipeline.keys = KeyTest(self.world.declared, self.name, self.plan.inputs, count)
        self.pipeline.spark = self.world.spark
        self.pipeline.spark_in_flight = 1
        self._fresh = True
        found = self.store.meta.checkpoint
        rows = {_tuple(key): _tuple(row) for key, row in tables.raw_rows(CONTROL_TABLE)}
        return t.Restored(order.end, decode_checkpoint(found) if found is not None else None, rows)

    def _prepare(self) -> None:
        for spec in self.world.declared.tables():
            self.tables.table(spec.name).prepare()

    def _resolve(self, order: t.Resolve) -> Any:
        return self.world.resolve(order)

    def _seek(self, order: t.SeekConsumer) -> Any:
        for at, position in order.positions.items():
            framed = any(one.stream == at.stream and one.framed for one in self.plan.inputs)
            until = self.machine.inputs.until.get(at)
            self.buffers[at] = Buffer(at, position, framed=framed, until=until)
            self._fed[at] = position
            self._held.pop(at, None)

    def _stop_fetching(self, order: t.StopFetching) -> Any:
        if not order.keep:
            return t.FetchStopped({at: self.machine.position(at) for at in order.partitions})
        return t.FetchStopped({at: len(self.world.topics.records(at)) for at in order.partitions})

    def _drop_chunk(self, _: t.DropChunk) -> Any:
        letter, self._letter = self._letter, None
        return t.ChunkDropped(letter.at) if isinstance(letter, Chunk) else None

    def _run_step(self, order: t.RunStep) -> Any:
        self._letter = order

    def _run_again(self, _: t.RunAgain) -> Any:
        self._again = True

    def _send_control(self, order: t.SendControl) -> Any:
        self._give_on()
        marker = MemoryBuffer(self.world.topics, self.name)  # never with what a chunk has half done
        for partition in order.partitions:
            marker.emit(
                order.stream,
                partition,
                None,
                [encode_frame(order.frame)],
                self.world.now().wall,
                [[(HEADER, header_value(order.frame))]],
            )
        marker.complete()

    def _give_on(self) -> None:
        """What operators hold back stands before whatever comes next."""
        if self.pipeline is None:
            return
        try:
            self.pipeline.seal()
            self.tables.complete()
        except Exception as error:  # noqa: BLE001 - user code behind an aggregate may raise anything
            self.spoilt = error

    def _request_commit(self, order: t.RequestCommit) -> Any:
        self.world.want_commit(self.name, order.urgent)

    def _contribute(self, order: t.Contribute) -> Any:
        rows = {_packed(key): None if row is None else _packed(row) for key, row in order.rows.items()}
        self.tables.raw(CONTROL_TABLE, rows)
        self.tables.seal()
        self._checkpoints.append(encode_checkpoint(order.checkpoint))

    def _tell(self, order: t.Tell) -> Any:
        state = getattr(order.report, "state", "")
        self.said.append(state)
        if state == FAILED and self.failure is None:
            self.failure = self._at_fault or RuntimeError(getattr(order.report, "why", ""))

    def _close_store(self, _: t.CloseStore) -> Any:
        self._closing = True
        return t.StoreClosed()

    def _nothing(self, _: Any) -> Any:
        return None

    # -------------------------------------------------------------------------------------------------------------- turns

    async def turn(self) -> bool:
        """One letter, if there is one; whether there was."""
        if self._fresh and self.pipeline is not None:
            self._fresh = False
            self.pipeline.knows(self.machine.step_times)
            self.pipeline.durable()
        if self._letter is not None and self._again:
            self._again = False
            if isinstance(self._letter, Chunk):
                await self._chunk(self._letter)
            else:
                await self._step(self._letter)
            return True
        if isinstance(self._letter, t.RunStep) and self._at_fault is None:
            await self._step(self._letter)
            return True
        if self._letter is not None:
            return False
        return await self._take()

    async def _take(self) -> bool:
        full = self.pipeline.held() if self.pipeline is not None else frozenset[str]()
        for at, buffer in sorted(self.buffers.items(), key=lambda one: (not one[1].framed, one[0])):
            if not self.machine.may_take(at):
                continue
            if at.stream in full and at not in self._held:
                continue
            if at in self._held:
                offset, frame = self._held.pop(at)
                self.feed(t.ControlAtHead(at, offset, frame))
                return True
            self._fill(at, buffer)
            chunk = buffer.take(self.chunk_records)
            if chunk is None:
                continue
            if chunk.control is not None:
                self._held[at] = (chunk.next_position - 1, chunk.control)
                return True
            self.feed(t.ChunkTaken(at, chunk.next_position))
            self._letter = chunk
            await self._chunk(chunk)
            return True
        return False

    def _fill(self, at: StreamPartition, buffer: Buffer) -> None:
        records = self.world.topics.records(at)
        start, end = self._fed[at], len(records)
        if end > start:
            buffer.put([Batch.of(records[start:end], following=end)], start, end)
            self._fed[at] = end

    async def _chunk(self, chunk: Chunk) -> None:
        assert self.pipeline is not None
        pipeline, left_out = self.pipeline, False
        try:
            greatest = await pipeline.chunk(chunk)
        except Exception as error:  # noqa: BLE001 - user code and data may raise anything; the policy decides
            answer = await recover(pipeline, chunk, error, drop=self.tables.drop)
            if isinstance(answer, Failed):
                self._fail(answer.why, answer.error)
                return
            greatest, left_out = answer.greatest, True
        commit, stop = pipeline.complete()
        self.tables.complete()
        self._letter = self._at_fault = None
        done = t.ChunkDone(chunk.at, chunk.next_position, greatest, outputs=True, commit=commit or left_out, stop=stop)
        self.feed(done)

    async def _step(self, step: t.RunStep) -> None:
        assert self.pipeline is not None
        try:
            if step.kind == "expire":
                more = self.tables.expire(self.world.now().wall).more
            else:
                more = await self.pipeline.step(step.kind, step.stream, step.ts, step.key, step.cause, step.times)
        except Exception as error:  # noqa: BLE001 - as above
            self.tables.drop()
            self._fail(f"{step.kind} {step.stream or ''}: {error}", error)
            return
        commit, stop = self.pipeline.complete()
        self.tables.complete()
        self._letter = self._at_fault = None
        self.feed(t.StepDone(step.letter, more, commit=commit, stop=stop))

    def _fail(self, why: str, error: BaseException) -> None:
        self._at_fault = error.cause if isinstance(error, BadRecord) else error
        self.feed(t.WorkFailed(why))
        if self.machine.state == "releasing":
            self._letter = None

    def tick(self) -> None:
        """Time has passed: deadlines, ends of partitions, timers and expiry."""
        for at, buffer in self.buffers.items():  # first: the broker answers all the time
            records = self.world.topics.records(at)
            if not buffer.framed and self._fed[at] == len(records) and self.machine.position(at) == len(records):
                self.feed(t.AtEnd(at, len(records)))
        deadline = self.machine.deadline()
        if deadline is not None and deadline <= self.world.now().mono:
            self.feed(Tick())
        self.work()
        if self.pipeline is not None and any(one.ttl_ms is not None for one in self.world.declared.tables()):
            self.feed(t.WorkDue("expire"))

    def work(self) -> bool:
        """Whether something of an operator's own is due: a timer, a batch, a result of Spark. It is a letter, then."""
        due = self.pipeline.due() if self.pipeline is not None else None
        if due is None or due[0] > self.world.now().wall or self._letter is not None:
            return False
        self.feed(t.WorkDue("work", due[1]))
        return self._letter is not None

    def next_s(self) -> float | None:
        """When it wants to be looked at again."""
        times = [self.machine.due_s()]
        due = self.pipeline.due() if self.pipeline is not None else None
        if due is not None:
            now = self.world.now()
            times.append(now.mono + (due[0] - now.wall) / 1000)
        return min((one for one in times if one is not None), default=None)

    def end(self, stream: str, upto: int) -> None:
        """An input has ended: its bound lies right behind what is there."""
        for at in self.buffers:
            if at.stream == stream and at not in self.machine.inputs.finished:
                self.feed(t.PositionMoved(at, upto))

    # -------------------------------------------------------------------------------------------------------------- commit

    def seal(self, txn: int) -> bool:
        """The transaction is divided; whether this task took part."""
        before = len(self._checkpoints)
        self._give_on()
        if self.spoilt is not None:
            return False
        self.feed(t.CommitBegins(txn))
        took = len(self._checkpoints) > before
        if took and self.pipeline is not None:
            self.pipeline.sealed()
        return took

    def apply(self, position: int) -> None:
        """It is durable."""
        self.tables.applied(position, checkpoint=self._checkpoints.popleft(), followed_until_ms=self.world.now().wall)
        assert self.pipeline is not None
        self.pipeline.durable()

    _HANDLERS: ClassVar[dict[type[Any], Callable[[DriverTask, Any], Any]]] = {
        t.OpenStore: _open_store,
        t.AskLogEnds: _log_ends,
        t.WipeStore: _wipe,
        t.Restore: _restore,
        t.Resolve: _resolve,
        t.SeekConsumer: _seek,
        t.StopFetching: _stop_fetching,
        t.DropChunk: _drop_chunk,
        t.RunStep: _run_step,
        t.RunAgain: _run_again,
        t.SendControl: _send_control,
        t.RequestCommit: _request_commit,
        t.Contribute: _contribute,
        t.Tell: _tell,
        t.CloseStore: _close_store,
        t.Bounds: _nothing,
        t.Gate: _nothing,
        t.Discard: _nothing,
        t.BeginAgain: _nothing,
        t.Note: _nothing,
    }


def _packed(row: tuple[Any, ...]) -> bytes:
    packed: Any = msgpack.packb(row)
    return packed


def _tuple(data: bytes) -> tuple[Any, ...]:
    return msgpack.unpackb(data, use_list=False)
