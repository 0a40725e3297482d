"""The columns of an export in Parquet: those that the table declares, or else made of the values themselves.

    key                     __key: text, whole numbers or bytes; anything else, or several types, as JSON text
    a value with fields     a column for each field; a field that a row does not have is null
    any other value         the column `value`

A column is of booleans, whole numbers of 64 bits, floats (also of whole numbers among floats), text or bytes (`{"bytes": "01ff"}`); what is
nested, or of several types, is JSON text. Values with fields and others in one table: all of them are JSON text in `value`.

Promise: where a table declares the type of its values, its fields alone decide the columns, whatever the rows are: another day's export has
the same ones. A row with another value, which nothing but an earlier version of the job can have written, is refused, not converted.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import orjson

from ...core.errors import DataError
from ..queries.kinds import BOOL, BYTES, FLOAT, INT, JSON, NULL, TEXT

KEY, VALUE = "__key", "value"
GROUP = 10_000
"""How many rows are converted at once, which make a row group."""


class ColumnKinds:
    """What the columns of an export have been so far."""

    def __init__(self) -> None:
        self.key = NULL
        self.whole = NULL
        """Of values without fields."""
        self.fields: dict[str, str] = {}
        self.declared: dict[str, str] | None = None
        """The kind of each field, if the table says them."""

    def declare(self, fields: dict[str, str] | None) -> None:
        """A task begins, whose worker says what the table declares. The first one decides."""
        if fields is not None and self.declared is None:
            self.declared, self.fields = fields, dict(fields)

    def seen(self, key: Any, value: Any) -> None:
        """Take a row into account."""
        self.key = joined(self.key, kind_of(key))
        if self.declared is not None:
            self._fits(key, value, self.declared)
            return
        if not isinstance(value, dict) or kind_of(value) == BYTES:
            self.whole = joined(self.whole, kind_of(value))
            return
        fields = self.fields
        for name, one in cast("dict[str, Any]", value).items():
            kind, known = kind_of(one), fields.get(name)
            if kind != known:
                fields[name] = kind if known is None else joined(known, kind)

    def _fits(self, key: Any, value: Any, declared: dict[str, str]) -> None:
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {VALUE: value}
        for name, one in fields.items():
            kind = declared.get(name)
            if kind is None or (kind != JSON and joined(kind, kind_of(one)) != kind):
                raise DataError(
                    f"the row of {key!r:.80} has {name!r:.60} = {one!r:.60}, which the table declares "
                    + (f"as {kind}" if kind else "no field for"),
                    remedy="let the job write it again, or export with --format jsonl",
                )

    @property
    def flat(self) -> bool:
        """Whether the fields of the values are columns."""
        return self.whole == NULL and bool(self.fields) and KEY not in self.fields

    @property
    def columns(self) -> dict[str, str]:
        """The columns with their kinds, the key first."""
        return {KEY: self.key, **(self.fields if self.flat else {VALUE: JSON if self.fields else self.whole})}

    def row(self, key: Any, value: Any) -> list[Any]:
        """A row as it stands in these columns."""
        if not self.flat:
            return [in_column(key, self.key), in_column(value, self.columns[VALUE])]
        fields = cast("dict[str, Any]", value)
        return [in_column(key, self.key), *(in_column(fields.get(name), kind) for name, kind in self.fields.items())]


def kind_of(value: Any) -> str:
    """The kind of a value in JSON.

    >>> kind_of(7), kind_of({"bytes": "01ff"}), kind_of(["DE", 7]), kind_of(2**70)
    ('int', 'bytes', 'json', 'json')
    """
    match value:
        case None:
            return NULL
        case bool():
            return BOOL
        case int():
            return INT if -(1 << 63) <= value < 1 << 63 else JSON
        case float():
            return FLOAT
        case str():
            return TEXT
        case {"bytes": str(), **others} if not others:
            return BYTES
        case _:
            return JSON


def joined(one: str, other: str) -> str:
    """The kind of a column that has both.

    >>> joined("null", "int"), joined("int", "float"), joined("int", "text")
    ('int', 'float', 'json')
    """
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    return FLOAT if {one, other} == {INT, FLOAT} else JSON


def in_column(value: Any, kind: str) -> Any:
    """A value as a column of this kind has it.

    >>> in_column(7, "json"), in_column(7, "float"), in_column({"bytes": "01ff"}, "bytes")
    ('7', 7.0, b'\\x01\\xff')
    """
    if value is None:
        return None
    if kind == JSON:
        return orjson.dumps(value).decode()
    if kind == FLOAT:
        return float(value)
    return bytes.fromhex(value["bytes"]) if kind == BYTES else value


def to_parquet(lines: Path, to: Path, kinds: ColumnKinds) -> None:
    """Convert a file of lines."""
    pa: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    types = {NULL: pa.string(), BOOL: pa.bool_(), INT: pa.int64(), FLOAT: pa.float64(), TEXT: pa.string()}
    types |= {BYTES: pa.binary(), JSON: pa.string()}
    schema = pa.schema([(name, types[kind]) for name, kind in kinds.columns.items()])
    with lines.open("rb") as file, parquet.ParquetWriter(to, schema) as writer:
        for rows in _groups(file):
            columns = zip(*(kinds.row(row["key"], row["value"]) for row in rows), strict=True)
            arrays = [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=GROUP)


def _groups(file: Any) -> Iterator[list[Any]]:
    while some := list(islice(file, GROUP)):
        yield list(map(orjson.loads, some))
