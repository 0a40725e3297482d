"""Reads the rows of spooled batches, in this process and in Spark's executors.

Spark sends the functions of this file to the executors as they are, so an executor needs pyarrow, but not this package.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa


def batches_of(path: str, first: int, rows: int) -> Iterator[Any]:
    """So many rows of a file from one on, a record batch at a time."""
    with pa.memory_map(path) as source:
        file = pa.ipc.open_file(source)
        skip, left = first, rows
        for index in range(file.num_record_batches):
            batch = file.get_batch(index)
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            found = batch.slice(skip, left)
            skip, left = 0, left - found.num_rows
            yield found
            if not left:
                return
    raise OSError(f"{left} rows are missing")


def fitted(batch: Any, schema: Any, zone: str) -> Any:
    """A record batch in the schema of all. A column that it does not have is null; a time without a time zone is in this one."""
    compute: Any = importlib.import_module("pyarrow.compute")
    made: list[Any] = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if at < 0 else batch.column(at)
        if column.type != field.type:
            has = pa.types.is_timestamp(column.type) and column.type.tz is None
            if has and pa.types.is_timestamp(field.type) and field.type.tz is not None:
                column = compute.assume_timezone(column, zone)
            column = column.cast(field.type)
        made.append(column)
    return pa.RecordBatch.from_arrays(made, schema=schema)


def reader(kind: bytes, zone: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function of `mapInArrow` that turns parts of files into their rows, in the schema whose message is `kind`."""

    def read(parts: Iterator[Any]) -> Iterator[Any]:
        schema = pa.ipc.read_schema(pa.py_buffer(kind))
        for some in parts:
            for part in some.to_pylist():
                try:
                    for batch in batches_of(part["path"], part["first"], part["rows"]):
                        yield fitted(batch, schema, zone)
                except OSError as error:
                    raise RuntimeError(f"a file of spark.spool cannot be read: {part['path']}: {error}") from error

    return read
