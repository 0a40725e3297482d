"""Arrow tables, and the blocks in which their rows wait. Rows never go to Spark as Python rows, nor one key per row.

Promises: the columns of a table are those that the job declares, and nothing here follows from what its rows hold. The same blocks always
make the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from ...core.errors import DataError


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


def unite(kind: pa.Schema | None, table: pa.Table) -> pa.Schema:
    """The schema that fits both. Blocks of a batch differ only if the job's code has declared other columns since it was opened."""
    if kind is None:
        return table.schema
    if kind.equals(table.schema):
        return kind
    try:
        return pa.unify_schemas([kind, table.schema], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(
            f"the rows of a batch were stored with columns that do not fit together: {error}",
            remedy="the columns of the batch were declared otherwise when it was opened: run that code until a drain has closed it",
        ) from error


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
    if len(tables) == 1:
        return tables[0]
    kind: pa.Schema | None = None
    for table in tables:
        kind = unite(kind, table)
    return pa.concat_tables(tables, promote_options="permissive")


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table. A map whose keys are text is a dict, as in the JSON that Spark writes; any other one is a list of pairs. Each
    map is what its own type says, whatever the other columns are.

    >>> rows_of(pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}))
    [{'m': {'a': 1}}]
    """
    kinds = _maps_by_text(table.schema)
    if kinds <= {True}:
        return table.to_pylist(maps_as_pydicts="lossy") if kinds else table.to_pylist()
    columns = [_values(column, field.type) for column, field in zip(table.columns, table.schema, strict=True)]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _maps_by_text(fields: Iterable[pa.Field]) -> set[bool]:
    """Of each map in these fields, whether its keys are text."""
    found: set[bool] = set()
    for field in fields:
        kind = field.type
        if pa.types.is_map(kind):
            found.add(_by_text(kind))
        found |= _maps_by_text(kind.field(at) for at in range(kind.num_fields))
    return found


def _by_text(kind: Any) -> bool:
    return pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)


def _values(column: Any, kind: Any) -> list[Any]:
    """The values of a column: at once if none of its maps, or each, has text as keys."""
    kinds = _maps_by_text([pa.field("", kind)])
    if kinds == {True}:
        return column.to_pylist(maps_as_pydicts="lossy")
    values = column.to_pylist()
    return values if kinds <= {False} else [_value(one, kind) for one in values]


def _value(value: Any, kind: Any) -> Any:
    """A value whose maps are all lists of pairs, with those maps as dicts whose keys are text."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [(_value(key, kind.key_type), _value(one, kind.item_type)) for key, one in value]
        return dict(pairs) if _by_text(kind) else pairs
    if pa.types.is_struct(kind):
        return {field.name: _value(value[field.name], field.type) for field in kind}
    if pa.types.is_nested(kind):
        return [_value(one, kind.value_type) for one in value]
    return value


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
