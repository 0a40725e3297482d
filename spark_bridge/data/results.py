"""Results of batches on their way back: record batches from Spark, cut into blocks, in memory or in a file.

A result is taken from Spark a record batch at a time. As long as `spark.batch-memory` has room it stays in memory; when it has not, the
result goes to a file of the spool, and its blocks are read from there when they are wanted.

Promises: the blocks are the rows in the order of Spark's result, each once. What a result takes is given back when its blocks are dropped.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import pyarrow as pa

from ...core.batching.batches import BLOCK_BYTES, BLOCK_ROWS
from . import columns
from .handover import elements
from .spool import Spool, remove
from .tables import BatchMemory


class ResultBlocks(Sequence[bytes]):
    """The blocks of a result."""

    def __init__(self, batches: Any, order: Sequence[int], rows: int, largest: int) -> None:
        """`batches`: a list of record batches that are blocks, or an Arrow file of them."""
        self._batches = batches
        self._order = order
        self.rows = rows
        self.largest = largest
        """The bytes of the largest block."""

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = self._order[index]
        batch = self._batches[at] if isinstance(self._batches, list) else self._batches.get_batch(at)
        return columns.encode([pa.Table.from_batches([batch])])


class ResultTaker:
    """Takes a result in."""

    def __init__(self, memory: BatchMemory, spool: Spool) -> None:
        self._memory = memory
        self._spool = spool
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._directory: Path | None = None
        self._writer: Any = None
        self._pieces: list[range] = []
        """For each record batch that has come, which blocks it has become."""
        self._rows = 0
        self._largest = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """The next record batch."""
        batch = _in_utc(batch)
        cut = list(_cut(batch))
        first = self._pieces[-1].stop if self._pieces else 0
        self._pieces.append(range(first, first + len(cut)))
        self._rows += batch.num_rows
        size = batch.nbytes
        self._largest = max(self._largest, *(one.nbytes for one in cut), 0)
        if self._writer is None and self._memory.take(size):
            self._bytes += size
            self._held += cut
            return
        if self._writer is None:
            self._directory = self._spool.directory()
            self._writer = pa.ipc.new_file(str(self._directory / "result.arrow"), batch.schema)
            for one in self._held:
                self._writer.write_batch(one)
            self._forget()
        for one in cut:
            self._writer.write_batch(one)

    def _forget(self) -> None:
        self._held = []
        self._memory.give(self._bytes)
        self._bytes = 0

    def done(self, order: Sequence[int] | None = None) -> ResultBlocks:
        """The whole result. `order`: the places of the record batches in it, if they did not come in that order."""
        pieces = self._pieces if order is None else [self._pieces[at] for at in order]
        places = [at for piece in pieces for at in piece]
        if self._writer is None:
            made = ResultBlocks(self._held, places, self._rows, self._largest)
            weakref.finalize(made, self._memory.give, self._bytes)
            return made
        self._writer.close()
        assert self._directory is not None
        source = pa.memory_map(str(self._directory / "result.arrow"))
        made = ResultBlocks(pa.ipc.open_file(source), places, self._rows, self._largest)
        weakref.finalize(made, remove, self._directory)
        return made

    def drop(self) -> None:
        """It failed on the way."""
        self._forget()
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
        if self._directory is not None:
            remove(self._directory)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    left: pa.Table | None = pa.Table.from_batches([batch]) if batch.num_rows else None
    while left is not None:
        head, _, _, left = columns.split(left, BLOCK_ROWS, BLOCK_BYTES)
        yield from head.to_batches()


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spark gives times in the time zone of its session."""
    kind = batch.schema
    for at, field in enumerate(kind):
        if pa.types.is_timestamp(field.type) and field.type.tz not in (None, "UTC"):
            kind = kind.set(at, field.with_type(pa.timestamp("us", "UTC")))
    return batch if kind is batch.schema else batch.cast(kind)


def take_result(frame: Any, memory: BatchMemory, spool: Spool) -> ResultBlocks:
    """Run a DataFrame, and take its rows in."""
    taking = ResultTaker(memory, spool)
    try:
        if hasattr(frame, "_jdf"):
            return taking.done(_from_jvm(frame, taking))
        client, plan = frame.sparkSession.client, frame._plan
        for one in client.to_table_as_iterator(plan.to_proto(client), plan.observations):
            for batch in one.to_batches() if isinstance(one, pa.Table) else ():
                taking.add(batch)
        return taking.done()
    except BaseException:
        taking.drop()
        raise


def _from_jvm(frame: Any, taking: ResultTaker) -> list[int]:
    """As `DataFrame.toArrow()`, which would hold all record batches. The JVM sends them as its tasks finish, and their order at the end."""
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.serializers import Serializer, UTF8Deserializer, read_int
    from pyspark.util import _load_from_socket

    class Stream(Serializer):
        def load_stream(self, stream: Any) -> Iterator[Any]:
            yield from pa.ipc.open_stream(stream)
            count = read_int(stream)
            if count == -1:
                raise RuntimeError(UTF8Deserializer().loads(stream))
            yield [read_int(stream) for _ in range(count)]

    port, secret, server = elements(frame._jdf.collectAsArrowToPython(), 3)
    order: list[int] = []
    try:
        where: Any = port, secret
        loaded: Any = _load_from_socket(where, Stream())
        with loaded if hasattr(loaded, "__enter__") else contextlib.nullcontext(loaded) as stream:
            for one in stream:
                if isinstance(one, list):
                    order = one
                else:
                    taking.add(one)
    finally:
        with unwrap_spark_exception():
            server.getResult()
    return order
