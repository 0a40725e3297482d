"""Results that Spark, or a sink, writes itself: files of an attempt, which a transaction names and which are published after it.

    Spark has written → the attempt is named, committed → published → the batch is forgotten, committed

Promises:

- An attempt is published only when its name is durable, so that every later owner of the task publishes the same one. A fenced owner cannot
  name any.
- A batch is forgotten only when it is published. Publishing may be repeated by the same owner or the next one.
- Publishing never blocks the event loop. Between its steps, control messages wait as they do for any result.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ....core.batching.batches import BatchOutcome, BatchStage, Bridge, Closed, SinkStage
from ....core.batching.publishing import Keep, SparkWrite, Undone, series_name
from ....core.batching.sinking import SinkOwner
from ...job.steps.batches import WriteStep
from ...records.columns.records import Records
from ..base.stateless import Operator
from .batch_rows import BatchRows
from .spark_runs import TargetPauses


class WriteOp(Operator):
    """Says how Spark writes. The batch operator runs the stage before it."""

    def push(self, rows: Records) -> None:
        """Never called: Spark writes the rows."""
        raise AssertionError("the rows of a stage that Spark writes do not come back")


class Publishing:
    """The published batch of one batch step: at most one at a time, because batches are done in their order."""

    def __init__(
        self,
        rows: BatchRows,
        env: Any,
        bridge: Callable[[], Bridge],
        pauses: TargetPauses,
        failed: Callable[[int, BaseException], bool],
    ) -> None:
        """`failed` is told of each failure, by the number of the batch. It answers whether the target is away, and then begins a pause."""
        self._pauses = pauses
        self._failed = failed
        self.rows = rows
        self._bridge = bridge
        self.env = env
        self._sealed: deque[tuple[int | None, Undone]] = deque()
        """The batch that is named and those that are not done, at each seal that is not durable yet."""
        self._durable: int | None = None
        """The number of the batch whose attempts are durably named."""
        self._keeps: dict[str, Keep | None] = {}
        """By stage, how long its batches stay. Until the first batch of this life runs, nothing is forgotten."""
        self._undone = Undone(0, frozenset())
        """The batches that are durably not done."""
        self._running: tuple[int, asyncio.Task[None]] | None = None

    # ------------------------------------------------------------------------------------------------------------- names

    def stage(self, stage: BatchStage, step: WriteStep | None) -> BatchStage:
        """The stage as this task runs it: it writes to a series of the task's own, and a sink knows the task and its grant."""
        if isinstance(stage, SinkStage):
            uuid, grant = self.env.under
            owner = SinkOwner(self._job, uuid, self.env.task, stage.name, grant, self.rows.kept.begun_ms or 0)
            stage = replace(stage, owner=owner)
        if step is None:
            return stage
        self._keeps[stage.name] = step.write.keep
        return replace(stage, write=replace(step.write, job=self._job, series=self._series(stage.name)))

    @property
    def _job(self) -> str:
        return str(self.env.declared.app.job)

    def _series(self, stage: str) -> str:
        return series_name(self._job, stage, self.env.task, self.rows.kept.begun_ms or 0)

    @staticmethod
    def names(stages: Sequence[BatchStage], outcomes: Sequence[BatchOutcome]) -> Mapping[str, Sequence[str]]:
        """What the transaction says: for each stage that has files to be published, where, and the attempt that counts."""
        return {
            stage.name: [stage.write.path, outcome.attempt]
            for stage, outcome in zip(stages, outcomes, strict=True)
            if stage.write is not None and outcome.attempt
        }

    # ----------------------------------------------------------------------------------------------------------- commits

    def _present(self) -> tuple[int | None, Undone]:
        first = self.rows.kept.first()
        named = first is not None and first.named and first.all_sent
        return (first.number if first is not None and named else None), self.rows.kept.undone()

    def sealed(self) -> None:
        """Everything complete joins the transaction that closes."""
        self._sealed.append(self._present())

    def durable(self) -> None:
        """What the oldest seal held is committed, or everything is restored: publishing may begin."""
        self._durable, self._undone = self._sealed.popleft() if self._sealed else self._present()
        first = self.rows.kept.first()
        if first is not None:
            self.start(first)

    # -------------------------------------------------------------------------------------------------------- publishing

    def waits(self, one: Closed) -> bool:
        """Whether the batch can only wait: until its names are durable, or until it is published."""
        if one.number != self._durable:
            return True
        return self.under_way(one)

    def under_way(self, one: Closed) -> bool:
        """Whether the batch is being published."""
        return self._running is not None and self._running[0] == one.number and not self._running[1].done()

    def start(self, one: Closed) -> None:
        """Begin to publish a batch, if its names are durable, and its target is not away."""
        if one.number == self._durable and not self._pauses.lasts(one.number):
            self._start(one)

    def _start(self, one: Closed) -> asyncio.Task[None]:
        if self._running is None or self._running[0] != one.number:
            work = self._publish(one)
            task = asyncio.get_running_loop().create_task(work, name=f"spark publishes {self.env.task}/{one.number}")
            task.add_done_callback(partial(self._came_back, one.number))
            self._running = one.number, task
        return self._running[1]

    async def _publish(self, one: Closed) -> None:
        for stage, (path, attempt) in one.named.items():
            write = SparkWrite(path, job=self._job, series=self._series(stage), keep=self._keeps.get(stage))
            try:
                await self._bridge().publish(write, one.number, attempt, self._undone)
            except Exception as error:
                error.stage = stage  # type: ignore[attr-defined]
                raise

    def _came_back(self, number: int, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()  # marks it as retrieved, because no one may ask for the result any more
            if error is None:
                self._pauses.forget(number)
            elif self._failed(number, error) and self._running is not None and self._running[1] is task:
                self._running = None
            self.env.poke()

    async def publish(self, one: Closed) -> bool:
        """Wait until the batch is published. False if its names are not durable yet. A failure is raised and forgotten, so that publishing
        can be begun again."""
        if one.number != self._durable:
            return False
        task = self._start(one)
        try:
            await asyncio.shield(task)
        except BaseException:
            if task.done() and self._running is not None and self._running[1] is task:
                self._running = None
            raise
        return True

    async def stop(self) -> None:
        """The task is released. What is under way in a thread may go on: the next owner may publish at the same time."""
        running, self._running = self._running, None
        if running is not None:
            running[1].cancel()
            await asyncio.wait([running[1]])
