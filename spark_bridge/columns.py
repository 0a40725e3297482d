"""Rows as Arrow tables, and as the blocks in which they wait. Rows never go to Spark as Python rows, nor one key per row.

Promises:

- A field that only some rows have is not lost; the other rows have None there.
- Rows that do not fit into one table are detected when they come, not when the batch is full.
- The same blocks always make the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pyarrow as pa

from ..core.errors import DataError

REMEDY = "rows must be flat, and each field must have one type: use .map() before .batch()"


def pack(rows: Sequence[Any]) -> pa.Table:
    """Rows as a table. A row may be a mapping, a dataclass or a Struct.

    >>> pack([{"n": 1}, {"n": 2, "s": "x"}]).to_pylist()
    [{'n': 1, 's': None}, {'n': 2, 's': 'x'}]
    """
    if any(type(row) is not dict for row in rows):
        rows = [as_mapping(row) for row in rows]
    names = rows[0].keys() if rows else ()
    if any(row.keys() != names for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row))
        rows = [{name: row.get(name) for name in names} for row in rows]
    try:
        table = pa.table({str(name): pa.array([row[name] for row in rows]) for name in names})
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"the rows do not form a table: {error}", remedy=REMEDY) from error
    if rows and not table.num_columns:
        raise DataError("the rows have no fields, so they do not form a table", remedy=REMEDY)
    return table


def select(batch: Any, picked: Any) -> pa.Table:
    """The rows at these places, 64-bit integers (None: all), of columns that speak the Arrow capsule interface. All rows are not copied."""
    table = pa.Table.from_batches([pa.record_batch(batch)])
    return table if picked is None else take(table, picked)


def take(table: pa.Table, places: Any) -> pa.Table:
    """The rows of a table at these places, 64-bit integers."""
    chosen = memoryview(places).cast("B")
    return table.take(pa.Array.from_buffers(pa.int64(), len(chosen) // 8, [None, pa.py_buffer(chosen)]))


def without(table: pa.Table, places: Sequence[int]) -> pa.Table:
    """The table without the rows at these places."""
    gone = set(places)
    keep: Any = pa.array([place not in gone for place in range(table.num_rows)], pa.bool_())
    return table.filter(keep)


def as_mapping(row: Any) -> Mapping[str, Any]:
    """One row as a mapping of its fields."""
    if isinstance(row, Mapping):
        return row
    if row is None:
        raise DataError(
            "a null value is not a row", remedy=".filter(lambda value: value is not None) before .batch() or .window()"
        )
    if is_dataclass(row):
        return {field.name: getattr(row, field.name) for field in fields(row)}
    names = getattr(row, "__struct_fields__", None)
    if names is None:
        raise DataError(f"a value of type {type(row).__name__} is not a row", remedy=REMEDY)
    return {name: getattr(row, name) for name in names}


def unite(kind: pa.Schema | None, table: pa.Table) -> pa.Schema:
    """The schema that fits both. Raises `DataError` if a field has two incompatible types."""
    if kind is None:
        return table.schema
    if kind.equals(table.schema):
        return kind
    try:
        return pa.unify_schemas([kind, table.schema], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"a row does not fit its batch: {error}", remedy=REMEDY) from error


def kind_of(blocks: Sequence[bytes]) -> pa.Schema | None:
    """The common schema of the blocks."""
    schemas = [pa.ipc.open_stream(block).schema for block in blocks]
    return pa.unify_schemas(schemas, promote_options="permissive") if schemas else None


def split(table: pa.Table, rows: int | None, size: int | None) -> tuple[pa.Table, int, int, pa.Table | None]:
    """Split off as many rows as fit, at least one. Returns the head, its rows and bytes, and the rest."""
    take = table.num_rows if rows is None else min(rows, table.num_rows)
    if size is not None and table.slice(0, take).nbytes > size:
        low, high = 1, take
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if table.slice(0, middle).nbytes <= size else (low, middle - 1)
        take = low
    head = table.slice(0, take)
    return head, take, head.nbytes, table.slice(take) if take < table.num_rows else None


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """One table with the rows of all tables."""
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table. A map whose keys are text is a dict, as in the JSON that Spark writes; any other one is a list of pairs.

    >>> rows_of(pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}))
    [{'m': {'a': 1}}]
    """
    by_text = all(_maps_by_text(field.type) for field in table.schema)
    return table.to_pylist(maps_as_pydicts="lossy") if by_text else table.to_pylist()


def _maps_by_text(kind: pa.DataType) -> bool:
    """Whether all maps in a type, if there are any, have text as keys."""
    if pa.types.is_map(kind) and not (pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)):
        return False
    return all(_maps_by_text(kind.field(at).type) for at in range(kind.num_fields))


def encode(tables: Sequence[pa.Table]) -> bytes:
    """The rows of all tables as an Arrow IPC stream, in one record batch, unless they are too much for one."""
    table = together(tables).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def decode(block: bytes) -> pa.Table:
    """The table of an Arrow IPC stream."""
    return pa.ipc.open_stream(block).read_all()
