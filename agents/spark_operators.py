"""`.batch(...)` and `.spark(...)` as operators of a task; what a batch is and how it runs is the Spark room's.

Closing a batch asks for a commit, and only what is durable is started. A result comes back as a letter of its own, in the order of
the batches; at the end of the stream, or in a drain, the marker waits for all of them.
"""

from __future__ import annotations

from typing import Any

from ..spark_bridge.batches import Batches, Runs
from . import steps as s
from .operators import Env, Operator, UserCodeError
from .record import Rows

RUN = "run"
AGE = "age"


class SparkOp(Operator):
    """Gives results on. Its function runs with the batch in front of it."""

    def push(self, rows: Rows) -> None:
        raise AssertionError("rows reach a Spark step through its batch")


class BatchOp(Operator):
    """Collects rows into bounded batches, and takes Spark's results in."""

    letters = True

    def __init__(self, step: s.BatchStep, env: Env) -> None:
        super().__init__(step, env)
        self.batch = step
        self.batches = Batches(step, env)
        self._runs: Runs | None = None
        self._durable: list[list[Any]] = []
        """Closed batches that are committed."""
        self._restored = False

    def _sparks(self) -> list[Operator]:
        return [child for child in self.children if isinstance(child, SparkOp)]

    def _running(self) -> Runs:
        if self._runs is None:
            env: Any = self.env
            steps: list[Any] = [child.step for child in self._sparks()]
            self._runs = Runs(env.spark, steps, self.step.name, self.env.task, env.poke, in_flight=env.spark_in_flight)
        return self._runs

    def push(self, rows: Rows) -> None:
        if self.batches.add(rows.values, max(rows.timestamps, default=0)):
            self._want_commit()

    def _want_commit(self) -> None:
        env: Any = self.env
        env.wants_commit = True

    def durable(self) -> None:
        """What is closed is committed now (or was, before this life of the task): Spark may begin."""
        self._durable = list(self.batches.meta()["closed"])
        if self._durable:
            self._running().start(self.batches, self._durable)

    def due(self) -> tuple[int, str] | None:
        now = self.env.now_ms()
        if self._durable and self._running().ready(self._durable[0][0]):
            return now, RUN
        meta = self.batches.meta()
        if self.batch.max_age_ms is not None and meta["rows"]:
            return meta["since"] + self.batch.max_age_ms, AGE
        return None

    async def work(self, key: str) -> bool:
        if key == AGE:
            if self.batches.close("age"):
                self._want_commit()
            return False
        await self._take_first()
        return False

    async def on_close(self, cause: str) -> bool:
        """One thing a step: close the open batch, then take the results one by one. Only durable batches are waited for."""
        if self.batches.close(cause):
            return True
        closed = self.batches.meta()["closed"]
        if not closed:
            return False
        self.durable()
        await self._take_first()
        return True

    async def _take_first(self) -> None:
        if not self._durable:
            return
        number, blocks, _, _, latest = self._durable[0]
        runs = self._running()
        runs.start(self.batches, self._durable[:1])
        try:
            results = await runs.result(number)
        except Exception as cause:
            raise UserCodeError(self._sparks()[0].step, cause) from cause
        for child, rows in zip(self._sparks(), results, strict=True):
            child.forward(Rows(rows, [latest] * len(rows)))
        self.batches.forget(number, blocks)
        runs.forget(number)
        del self._durable[0]
        self.env.count("batches")

    def drop(self) -> None:
        self._durable = list(self.batches.meta()["closed"]) if self._durable else []

    async def close(self) -> None:
        if self._runs is not None:
            await self._runs.stop()
