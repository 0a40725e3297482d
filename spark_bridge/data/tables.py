"""Rows of batches on their way to Spark: as one Arrow table, or, where that would need too much memory, as Arrow files.

A worker holds at most `spark.batch-memory` of the batches that are at Spark, and of their results. A batch that does not fit into what is
left of it is written to files, a block at a time, and the executors read them (`mapInArrow`); this process and Spark's driver never hold
its rows.

Promises: both ways give the same DataFrame, in the same order; and both can be cut, so that rows that fail can be searched for. A file that
an executor cannot read is an error that says so, never a smaller batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...core.batching.batches import Inline
from ..base.errors import SparkPlanError
from . import columns, spool_reader
from .handover import frame_of_table
from .spool import Spool, remove

FILE_BYTES = 32 << 20
"""About how large a file of rows is, which one task of Spark reads; and how much one task is sent."""
SMALL_ROWS = 100_000
AT_ONCE_BYTES = 1 << 20
"""Blocks of so many bytes become a table at once: that takes less time than to wait for a thread."""
HELD = 2
"""A batch in memory takes this many times its size: its blocks, and the table that Spark is given."""


class BatchMemory:
    """The bytes that the batches and results of a worker may take. For several threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Take this much, if so much is left."""
        with self._lock:
            if self.used + size > self.limit:
                return False
            self.used += size
            return True

    def give(self, size: int) -> None:
        """Give this much back."""
        with self._lock:
            self.used -= size


@dataclass(frozen=True, slots=True)
class FilePart:
    """Consecutive rows of a file."""

    path: str
    first: int
    rows: int


@dataclass(frozen=True)
class Spooled:
    """Rows in files. It has that part of a `pyarrow.Table`'s interface with which batches are cut."""

    parts: tuple[FilePart, ...]
    schema: pa.Schema

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(part.rows for part in self.parts)

    def slice(self, offset: int, length: int | None = None) -> Spooled:
        """So many rows from one on."""
        left = self.num_rows - offset if length is None else length
        found: list[FilePart] = []
        for part in self.parts:
            skipped = min(offset, part.rows)
            offset -= skipped
            rows = min(left, part.rows - skipped)
            if rows > 0:
                found.append(FilePart(part.path, part.first + skipped, rows))
                left -= rows
        return replace(self, parts=tuple(found))

    def filter(self, mask: Any) -> Spooled:
        """The rows at whose place the mask is true."""
        out = [place for place, kept in enumerate(mask.to_pylist()) if not kept]
        found: list[FilePart] = []
        start = 0
        for place in [*out, self.num_rows]:
            found += self.slice(start, place - start).parts
            start = place + 1
        return replace(self, parts=tuple(found))

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows."""
        found = [
            spool_reader.fitted(batch, self.schema, "UTC")
            for part in self.parts
            for batch in spool_reader.batches_of(part.path, part.first, part.rows)
        ]
        return pa.Table.from_batches(found, schema=self.schema).to_pylist()


class Carrier:
    """Takes the blocks of batches to Spark, within the memory that they may take."""

    def __init__(self, memory: int, spool: Spool, *, shared: bool = True) -> None:
        """`shared`: whether executors reach the spool."""
        self.memory = BatchMemory(memory)
        self.spool = spool
        self.shared = shared

    @asynccontextmanager
    async def rows(self, contents: Inline) -> AsyncIterator[pa.Table | Spooled]:
        """The rows of a batch, as long as it is at Spark."""
        if self.memory.take(HELD * contents.size):
            try:
                blocks = list(contents.blocks)
                small = contents.size <= AT_ONCE_BYTES
                yield table_of(blocks) if small else await asyncio.to_thread(table_of, blocks)
            finally:
                self.memory.give(HELD * contents.size)
            return
        if not self.shared:
            raise SparkPlanError(
                f"a batch of {contents.size} bytes does not fit into what is left of spark.batch-memory ({self.memory.limit} bytes)",
                remedy="set spark.spool to a directory that this worker and all executors share, or raise spark.batch-memory",
            )
        directory = await asyncio.to_thread(self.spool.directory)
        writing = _Files(directory)
        try:
            for (
                block
            ) in contents.blocks:  # a block at a time is read from the task's store, which belongs to this thread
                await asyncio.to_thread(writing.add, block)
            yield await asyncio.to_thread(writing.done)
        finally:
            writing.close()
            await asyncio.to_thread(remove, directory)

    def close(self) -> None:
        """Remove all files."""
        self.spool.close()


class _Files:
    """Writes blocks to files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._parts: list[FilePart] = []
        self._kind: pa.Schema | None = None
        """The schema that holds all rows."""
        self._writer: Any = None
        self._schema: pa.Schema | None = None
        """That of the file which is being written."""
        self._size = 0

    def add(self, block: bytes) -> None:
        """The next block."""
        table = columns.decode(block)
        self._kind = columns.unite(self._kind, table)
        if self._schema is None or self._size >= FILE_BYTES or not self._schema.equals(table.schema):
            self.close()
            path = str(self._directory / f"{len(self._parts):06d}.arrow")
            self._writer, self._schema, self._size = pa.ipc.new_file(path, table.schema), table.schema, 0
            self._parts.append(FilePart(path, 0, 0))
        self._writer.write_table(table)
        self._size += table.nbytes
        self._parts[-1] = replace(self._parts[-1], rows=self._parts[-1].rows + table.num_rows)

    def done(self) -> Spooled:
        """All rows are written."""
        self.close()
        assert self._kind is not None, "a batch has rows"
        return Spooled(tuple(self._parts), self._kind)

    def close(self) -> None:
        """Close the open file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


# ------------------------------------------------------------------------------------------------------------ what Spark gets


def table_of(blocks: Sequence[bytes]) -> pa.Table:
    """One table of the rows of all blocks."""
    return columns.together([columns.decode(block) for block in blocks]).combine_chunks()


def frame_of(session: Any, rows: pa.Table | Spooled) -> Any:
    """Rows as a DataFrame."""
    if isinstance(rows, Spooled):
        return _frame_of_files(session, rows)
    if rows.nbytes <= FILE_BYTES:
        return frame_of_table(session, rows)
    step = max(1, rows.num_rows * FILE_BYTES // rows.nbytes)
    parts = [rows.slice(start, step) for start in range(0, rows.num_rows, step)]
    return frame_of_table(session, pa.concat_tables(parts))  # a task for each part: what one is sent is limited


def is_small(rows: pa.Table | Spooled) -> bool:
    """Whether one task should take all of these rows: Spark then needs no exchange, and a third less time."""
    small = rows.num_rows <= SMALL_ROWS
    return small and (len(rows.parts) == 1 if isinstance(rows, Spooled) else rows.nbytes <= FILE_BYTES)


def _frame_of_files(session: Any, rows: Spooled) -> Any:
    """A DataFrame whose rows the executors read; each part of a file is a partition."""
    from pyspark import cloudpickle
    from pyspark.sql.pandas.types import from_arrow_schema

    cloudpickle.register_pickle_by_value(spool_reader)
    ntz = session.conf.get("spark.sql.timestampType") == "TIMESTAMP_NTZ"
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=ntz)  # the types that these columns have in Spark
    names = pa.schema([("path", pa.string()), ("first", pa.int64()), ("rows", pa.int64())])
    batches = [pa.record_batch([[one.path], [one.first], [one.rows]], schema=names) for one in rows.parts]
    parts = session.createDataFrame(pa.Table.from_batches(batches, schema=names))
    zone = session.conf.get("spark.sql.session.timeZone")
    kind = pa.schema(
        [_as_spark_has(field, one.dataType.typeName()) for field, one in zip(rows.schema, schema, strict=True)]
    )
    return parts.mapInArrow(spool_reader.reader(kind.serialize().to_pybytes(), zone), schema)


def _as_spark_has(field: pa.Field, name: str) -> pa.Field:
    """A field with the type in which Spark takes it. It has two types of timestamps; all have microseconds."""
    if not pa.types.is_timestamp(field.type):
        return field
    return field.with_type(pa.timestamp("us", "UTC" if name == "timestamp" else None))
