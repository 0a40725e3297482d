"""`.batch(...)` and `.spark(...)` as operators of a task: rows are stored in the task's own tables, closed into batches, and sent to Spark.

    rows → blocks → closed, committed → Spark → (stored, committed, if it is large) → sent, committed → forgotten

Each block is stored with the timestamps of its rows and their origins, as runs (`core.origins`). For a row behind `map`, `filter`,
`flat_map`, `rekey`, `join` or `map_async` the origin is its record. For a row that a step made from several (an aggregate, an actor's
`forward`) it is the first and last record of the chunk. For a row made at a watermark or by a timer only the streams that lead here are
known.

What it promises:

- A batch goes to Spark only when its closing is durable: a retry, or the next owner of the task, passes the same rows under the same id.
  Its result and the deletion of its rows are in one transaction; until that commits, the batch can be run again.
- A result that needs more than one step is stored before its first row is sent, and is sent from the store.
- Results are emitted in the order of the batches, each with the greatest timestamp of its batch. While a result is missing, no end, drain
  or maximal watermark passes, and no event time that is newer than the oldest missing result (`owed_ms`).
- While more batches wait than may be in flight, no more chunks are taken from the streams that lead here.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import orjson

from ...core import origins
from ...core.batches import (
    AGE,
    BLOCK_BYTES,
    BLOCK_ROWS,
    BatchInfo,
    BatchOutcome,
    Book,
    Bridge,
    Closed,
    Limits,
    SparkStage,
)
from ...core.errors import DataError
from ...core.progress.frames import MAX_TIME
from ..cancellation import said
from ..job import steps as s
from ..records.column_chunk import ColumnChunk
from ..records.record import Rows
from .spark_runs import Runs
from .stateless import Env, Operator, UserCodeError

RUN = "run"
META = "meta"
TAIL_ROWS = 1_000
"""A last block with fewer rows takes in more, so that a slow stream does not make one block per row."""
STEP_BLOCKS = 4
"""The maximum number of blocks that one step stores or sends."""


class SparkOp(Operator):
    """Passes results on. The batch operator in front of it runs its function."""

    def __init__(self, step: s.SparkStep, env: Env) -> None:
        super().__init__(step, env)
        policy = step.on_error or env.app.on_error
        self.policy = policy
        self.stage = SparkStage(step.name, step.fn, step.schema, keeps_going=policy != "fail")

    def push(self, rows: Rows) -> None:
        """Never called: rows arrive through the batch."""
        raise AssertionError("rows reach a Spark step only through its batch")


class BatchOp(Operator):
    """Collects rows into bounded batches, and takes in Spark's results."""

    letters = True
    gives_keys = True
    awaits = True  # so that nothing is pushed here while a transaction is sealed

    def __init__(self, step: s.BatchStep, env: Env) -> None:
        super().__init__(step, env)
        self.batch_step = step
        self.limits = Limits(step.max_rows, step.max_bytes, step.max_age_ms)
        self.table = env.table(step.name)
        (stored,) = self.table.get_many([META])
        self._kept = Book.unpack(stored)
        self._book = self._kept
        """The bookkeeping with the changes of the current letter."""
        self._sealed: deque[int] = deque()
        """The number of the open batch at each seal that is not durable yet."""
        self._durable = 0
        """Batches with lower numbers are durably closed."""
        self._kind: Any = None
        self._runs: Runs | None = None
        self._taken: tuple[int, list[tuple[str, bytes]], list[BatchOutcome]] | None = None
        """A large result that is being stored."""
        self._stored = 0
        """How many of its blocks are stored."""

    # ---------------------------------------------------------------------------------------------------------- surroundings

    @property
    def _env(self) -> Any:
        return self.env

    @property
    def _bridge(self) -> Bridge:
        return self._env.spark

    @property
    def _sparks(self) -> list[SparkOp]:
        return [child for child in self.children if isinstance(child, SparkOp)]

    @property
    def _running(self) -> Runs:
        if self._runs is None:
            stages = [child.stage for child in self._sparks]
            timeout_s = lambda: self._env.spark_timeout_s  # noqa: E731
            self._runs = Runs(self._bridge, stages, self._name, self._blocks, lambda: self._env.poke(), timeout_s)
        return self._runs

    def _name(self, one: Closed) -> BatchInfo:
        return BatchInfo(self.env.task, self.step.name, one.number, one.rows, one.why)

    def _stored_rows(self, one: Closed) -> Sequence[tuple[bytes, list[Any], bytes]]:
        """The stored blocks of a batch, each with the origins and timestamps of its rows."""
        return self.table.get_many([_row_key(one.number, block) for block in range(one.blocks)])

    def _blocks(self, one: Closed) -> Sequence[bytes]:
        return [block for block, *_ in self._stored_rows(one)]

    def _write(self, book: Book, rows: dict[str, Any] | None = None) -> None:
        self._book = book
        self.table.update({**(rows or {}), META: book.pack()})

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def push(self, rows: Rows) -> None:
        """Add rows to the open batch; close it whenever it is full."""
        self._collect(rows, lambda: self._bridge.pack(rows.values))

    def push_columns(self, chunk: ColumnChunk) -> None:
        """As `push`, without an object for each row."""
        schema = self.batch_step.schema
        assert schema is not None, "columns reach a batch only if it is declared to collect them"
        self._collect(chunk, lambda: self._bridge.select(*chunk.batch(schema)))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        schema = self.batch_step.schema
        return behind if schema is None else frozenset(schema.names)

    def _collect(self, rows: Rows | ColumnChunk, table: Callable[[], Any]) -> None:
        times = rows.timestamps
        latest = max(times, default=0)
        before = self._book.number
        try:
            left, runs = table(), self._came_from(rows)
            while left is not None:
                left, runs, times = self._add(left, runs, times, latest)
        except Exception as cause:
            raise UserCodeError(self.step, cause) from cause
        if self._book.number != before:
            self.env.wants_commit = True

    def _came_from(self, rows: Rows | ColumnChunk) -> list[origins.Run]:
        at = self._env.origin()
        if rows.offsets is None:
            return origins.among(at.stream, at.partition, at.offsets, len(rows))
        return origins.runs_of(at.stream, at.partition, rows.offsets)

    def _add(
        self, table: Any, runs: list[origins.Run], times: Sequence[int], latest: int
    ) -> tuple[Any, list[origins.Run], Sequence[int]]:
        """Add as many rows as fit into one block. Returns the rest."""
        book = self._book
        if self._kind is None and book.blocks:
            open_batch = Closed(book.number, book.blocks, book.rows, "", 0)
            self._kind = self._bridge.kind_of(self._blocks(open_batch))
        kind = self._bridge.fits(self._kind, table)
        room, size = book.room(self.limits)
        if room is not None and room <= 0:  # the limit has been lowered since
            self._close("rows")
            return table, runs, times
        within = BLOCK_BYTES if size is None else min(size, BLOCK_BYTES)
        head, count, nbytes, rest = self._bridge.split(table, min(room or BLOCK_ROWS, BLOCK_ROWS), within)
        if size is not None and nbytes > size and book.rows:
            self._close("bytes")
            return table, runs, times
        into_tail = 0 < book.tail < TAIL_ROWS
        tail = self.table.get_many([_row_key(book.number, book.blocks - 1)]) if into_tail else []
        into_tail = into_tail and len(tail[0][0]) + nbytes <= BLOCK_BYTES
        before = tail if into_tail else []
        key = _row_key(book.number, book.blocks - 1 if into_tail else book.blocks)
        block = self._bridge.encode(head, *(one for one, *_ in before))
        came, later = origins.cut(runs, count)
        came_from = origins.pack(origins.joined([*(origins.unpack(one) for _, one, _ in before), came]))
        stamps = b"".join([*(one for *_, one in before), struct.pack(f"<{count}q", *times[:count])])
        self._must_fit(len(block) + len(msgpack.packb(came_from) or b"") + len(stamps), "a row")
        grown = book.with_block(
            count, nbytes, into_tail=into_tail, now_ms=self.env.now_ms(), latest_ms=latest, limits=self.limits
        )
        self._kind = kind if grown.number == book.number else None
        self._write(grown, {key: [block, came_from, stamps]})
        return rest, later, times[count:]

    def _must_fit(self, size: int, what: str) -> None:
        """Refuse a block that is larger than the task log accepts. It is a single row: all other blocks are cut well below that size."""
        most = self.table.most_bytes
        if most is not None and size > most:
            raise DataError(
                f"{what} needs a block of {size} bytes, but the task log accepts only {most}",
                remedy="make smaller rows before .batch(), or raise max.message.bytes of the task log and start again",
            )

    def _close(self, why: str) -> bool:
        closed = self._book.close(why)
        if closed is self._book:
            return False
        self._kind = None
        self._write(closed)
        self.env.wants_commit = True
        return True

    @property
    def full(self) -> bool:
        """Whether so many batches wait that no more chunks should be taken."""
        return self._kept.full(self._env.spark_in_flight)

    # ---------------------------------------------------------------------------------------------------- letters and commits

    def complete(self) -> None:
        """The letter is complete."""
        self._kept = self._book
        if self._runs is not None:
            self._runs.keep(one.number for one in self._kept.closed if not one.whole)

    def drop(self) -> None:
        """The letter failed."""
        if self._book is not self._kept:
            self._kind = None
        self._book = self._kept
        self._taken = None

    def suspend(self) -> Any:
        """Set aside the changes of the letter: a seal must see only what is complete."""
        aside, self._book = self._book, self._kept
        return aside

    def resume(self, aside: Any) -> None:
        """Resume the letter."""
        self._book = aside

    def sealed(self) -> None:
        """Everything complete joins the transaction that closes."""
        self._sealed.append(self._kept.number)

    def durable(self) -> None:
        """What the oldest seal held is committed (or everything is restored): Spark may begin with the batches that are closed in it."""
        self._durable = self._sealed.popleft() if self._sealed else self._kept.number
        self._start()

    def room_changed(self) -> None:
        """The number of batches that may run at a time has changed."""
        self._start()

    def _start(self) -> None:
        durable = [one for one in self._kept.closed if one.number < self._durable]
        if durable:
            self._running.start(durable, self._env.spark_in_flight)

    def due(self) -> tuple[int, str] | None:
        """When a result is available, or the open batch reaches its maximum age."""
        first = self._kept.first()
        if first is not None and first.number < self._durable and (first.whole or self._running.ready(first.number)):
            return self.env.now_ms(), RUN
        old = self._kept.due_ms(self.limits)
        return (old, AGE) if old is not None else None

    def owes(self) -> bool:
        """Whether a closed batch still has its result to emit, or something is due."""
        return self._kept.first() is not None or self.due() is not None

    def owed_ms(self) -> int | None:
        """A result has the greatest timestamp of the rows of its batch. That of the open batch can only grow."""
        return self._kept.owed_ms()

    async def work(self, key: str) -> bool:
        """Take a result, or close a batch that is too old."""
        if key == RUN:
            first = self._book.first()
            if first is None or first.number >= self._durable:
                return False
            if self._running.has(first.number) and not self._running.ready(first.number):
                return False
            return await self._take(first)
        old = self._book.due_ms(self.limits)
        if old is not None and old <= self.env.now_ms():
            self._close(AGE)
        return False

    async def on_watermark(self, watermark: int) -> bool:
        """The maximal time precedes a drain, so every older result must be out first; any other time passes at once."""
        if watermark == MAX_TIME and await self.on_close("drain"):
            return True
        self.watermark = watermark
        return False

    async def on_close(self, cause: str) -> bool:
        """Close the open batch, then take the results one by one, waiting for each. A batch is not begun before its closing is durable."""
        if self._close(cause):
            return True
        first = self._book.first()
        if first is None:
            return False
        if first.number < self._durable:
            await self._take(first)
        return True

    # --------------------------------------------------------------------------------------------------------- results come in

    async def _take(self, first: Closed) -> bool:
        """Take in one step of the first batch's result. Returns whether it needs another."""
        if first.whole:
            return self._send(first)
        self._start()
        if self._taken is None or self._taken[0] != first.number:
            self._running.start([first], self._env.spark_in_flight + 1)
            outcomes = await self._result(first)
            blocks = [
                (child.step.name, block)
                for child, outcome in zip(self._sparks, outcomes, strict=True)
                for block in outcome.blocks
            ]
            if len(blocks) <= STEP_BLOCKS:
                self._forward(first, blocks)
                self._bury(first, outcomes)
                self._forget(first, 0)
                return False
            self._all_fit(first, blocks)
            self._taken, self._stored = (first.number, blocks, outcomes), 0
        return self._store(first, *self._taken[1:])

    def _all_fit(self, first: Closed, blocks: list[tuple[str, bytes]]) -> None:
        for name, block in blocks:
            try:
                self._must_fit(len(block), f"a row of the result of batch {self._name(first).id}")
            except DataError as cause:
                step = next(child.step for child in self._sparks if child.step.name == name)
                raise UserCodeError(step, cause) from cause

    async def _result(self, first: Closed) -> list[BatchOutcome]:
        try:
            return await self._running.result(first.number)
        except Exception as cause:
            stage = getattr(cause, "stage", "")
            blamed = next((child for child in self._sparks if child.step.name == stage), self._sparks[0])
            raise UserCodeError(blamed.step, cause) from cause

    def _store(self, first: Closed, blocks: list[tuple[str, bytes]], outcomes: Sequence[BatchOutcome]) -> bool:
        """Store the next blocks of a large result. A rerun of the batch overwrites what an earlier run has left."""
        at = self._stored
        some = blocks[at : at + STEP_BLOCKS]
        rows = {_result_key(first.number, at + n): list(one) for n, one in enumerate(some)}
        stored = max(first.stored, at + len(some))
        whole = at + len(some) == len(blocks)
        if whole:
            self.table.delete_many([_result_key(first.number, n) for n in range(len(blocks), stored)])
            self._bury(first, outcomes)
            self._taken, stored = None, len(blocks)
        self._stored = at + len(some)
        self._write(self._book.with_first(stored=stored, whole=whole), rows)
        return True

    def _send(self, first: Closed) -> bool:
        """Send the next blocks of a stored result, and delete them in the same step. Returns whether there are more."""
        upto = min(first.sent + STEP_BLOCKS, first.stored)
        keys = [_result_key(first.number, n) for n in range(first.sent, upto)]
        self._forward(first, self.table.get_many(keys))
        self.table.delete_many(keys)
        if upto == first.stored:
            self._forget(first, first.stored)
            return False
        self._write(self._book.with_first(sent=upto))
        return True

    def _forward(self, first: Closed, blocks: Sequence[Sequence[Any]]) -> None:
        for name, block in blocks:
            rows = self._bridge.decode(block)
            for child in self._sparks:
                if child.step.name == name:
                    child.forward(Rows(rows, [first.latest_ms] * len(rows)))

    def _forget(self, first: Closed, results: int) -> None:
        self.table.delete_many([_row_key(first.number, block) for block in range(first.blocks)])
        self._write(self._book.done())
        self.env.count("batches")
        self.env.count("batch_rows", first.rows)

    def _bury(self, first: Closed, outcomes: Sequence[BatchOutcome]) -> None:
        """Skip the rows that were left out, or write them as dead letters."""
        runs: list[origins.Run] = []
        times: list[int] = []
        for _, came_from, stamps in self._stored_rows(first) if any(outcome.bad for outcome in outcomes) else ():
            runs += origins.unpack(came_from)
            times += struct.unpack(f"<{len(stamps) // 8}q", stamps)
        for child, outcome in zip(self._sparks, outcomes, strict=True):
            for place, row, error in outcome.bad:
                self.env.count("records_failed")
                if child.policy == "skip" or (callable(child.policy) and child.policy(row, error) != "dead_letter"):
                    self.env.count("records_skipped")
                    continue
                self.env.count("dead_letters")
                headers = [
                    *self._origin_headers(origins.origin_of(runs, place)),
                    ("hg-timestamp", str(times[place]).encode()),
                    ("hg-task", self.env.task.encode()),
                    ("hg-step", child.step.name.encode()),
                    ("hg-batch", self._name(first).id.encode()),
                    ("hg-exception", said(error).encode(errors="backslashreplace")[:2000]),
                ]
                value = orjson.dumps(row, default=str)
                topic = self._env.declared.topics.dead_letters
                self.env.emit(topic, 0, [None], [value], [self.env.now_ms()], [headers])

    def _origin_headers(self, origin: origins.Run) -> list[tuple[str, bytes]]:
        if not origin.stream:
            return [("hg-topic", ",".join(sorted(self._env.reads.get(id(self), ()))).encode())]
        headers = [
            ("hg-topic", origin.stream.encode()),
            ("hg-partition", str(origin.partition).encode()),
            ("hg-offset", str(origin.first).encode()),
        ]
        return headers if origin.exact else [*headers, ("hg-offset-last", str(origin.last).encode())]

    async def close(self) -> None:
        """The task is released: cancel the running batches."""
        if self._runs is not None:
            await self._runs.stop()


def _row_key(number: int, block: int) -> str:
    return f"{number:012d}.{block:06d}"


def _result_key(number: int, block: int) -> str:
    return f"{number:012d}.r{block:06d}"
