"""What a copy does with records: the steps between its topic and its table, and what becomes of records that fail in them.

It runs the steps as a task runs them, and asks the same policies. Promises:

- Of a chunk, either all of its rows are in the table's changes, without those that a policy leaves out, or the chunk has failed and has
  changed nothing.
- Nothing is written to Kafka. A record that a policy calls a dead letter is left out like one that is skipped: it stays in the topic. One
  that is to be parked is left out, too, because a copy never goes back to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from ....core.errors import DeclarationError
from ...job.derive.declaration import Declared
from ...learning import MustLearn
from ...operators.pipeline.pipeline import Pipeline
from ...operators.pipeline.trouble import Failed, Recovered, recover
from ...patience import Patience
from ...records.frames.chunks import Chunk
from ...state.opening import OWN
from ...state.tables import TaskTables


class _NoBuffer:
    """The ready buffer of what writes nothing."""

    def emit(self, *_: Any, **__: Any) -> tuple[int, int]:
        """A dead letter, which is counted and logged instead."""
        return 0, 0

    def emit_spans(self, *_: Any, **__: Any) -> NoReturn:
        """Nothing before a table writes."""
        raise AssertionError("a copy writes to no topic")

    def complete(self) -> None:
        """Nothing is in it."""

    def drop(self) -> None:
        """Nothing is in it."""


class _CopyPipeline(Pipeline):
    """The steps of a copy."""

    def may_park(self, stream: str) -> bool:
        """See `Pipeline`. A copy tries nothing again later."""
        return False


class CopyRows:
    """Runs the chunks of one copy, one at a time."""

    def __init__(
        self,
        declared: Declared,
        name: str,
        topic: str,
        tables: TaskTables,
        *,
        now_ms: Callable[[], int],
        patience: Patience,
        counts: Counter[str],
    ) -> None:
        """`declared`: the part of the copy. `counts`: what users see."""
        self._tables = tables
        self._name = name
        self._asked: set[object] = set()
        buffer: Any = _NoBuffer()
        self._pipeline = _CopyPipeline(
            declared,
            f"the copy of {name}",
            buffer=buffer,
            seal_buffer=buffer,
            table=self._table,
            widths={},
            now_ms=now_ms,
            count=lambda what, amount: counts.update({what: amount}),
            streams=[topic],
            prepare=tables.prepare,
            patience=patience,
        )
        self.source = self._pipeline.sources[topic]

    def _table(self, name: str) -> Any:
        if name != self._name and name not in OWN:
            raise DeclarationError(
                f"the table {name!r} is used before the table '{self._name}', of which each worker keeps one copy: no task runs there, so "
                "there is no table of a task",
                remedy="use it behind the join, or repartition the stream and leave out broadcast=True",
            )
        return self._tables.table(name)

    async def run(self, chunk: Chunk, learn: Callable[[MustLearn], Any]) -> Recovered | Failed:
        """Run a chunk. `learn` finds out what is not known yet; then the chunk runs again from its beginning."""
        while True:
            try:
                outcome = await self._ran(chunk)
            except MustLearn as unknown:
                self._tables.drop()
                if unknown.question in self._asked:
                    raise
                await learn(unknown)
                self._asked.add(unknown.question)
                continue
            if isinstance(outcome, Recovered):
                self._pipeline.complete()
                self._tables.complete()
            else:
                self._tables.drop()
            return outcome

    async def _ran(self, chunk: Chunk) -> Recovered | Failed:
        try:
            return Recovered(await self._pipeline.chunk(chunk))
        except MustLearn:
            raise
        except Exception as error:  # noqa: BLE001 - user code and data may raise anything; the policy decides
            return await recover(self._pipeline, chunk, error, drop=self._tables.drop)

    async def close(self) -> None:
        """End running user code."""
        await self._pipeline.close()
