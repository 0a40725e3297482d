"""Rows in typed columns: what operators of column streams pass on, and how values become columns and columns become rows.

A column is a `Vector`, as the decoder made it, until a step needs its values: then it becomes a list once, in which None is null. So a
column that no step looks at is never made of Python objects. What it decides: which values fit a schema. Promises:

- The rules for values are those of the decoder for records (see `decoder`): types are strict, a whole number has at most 64 bits, a missing
  field is null, and null is an error where the column is not optional. A float is finite.
- Each row keeps where it came from: timestamp, key, headers and, where a later step needs it, offset.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, compress
from math import isfinite
from typing import Any

import orjson

from ...core.columns.schema import BOOL, FLOAT, INT, LEAST, MOST, PYTHON, TEXT, ColumnSchema, ColumnSpec
from ...core.errors import DataError
from .columns import pick
from .decoder import BadSpan, DecodedColumns, Decoder, RecordFlaw
from .encoder import Encoder
from .record import Headers, Rows
from .selecting import field_of
from .vectors import DeclaredColumn, Vector, VectorBatch, longs

_NO_OBJECTS = frozenset((str, int, float, bool, list, tuple, type(None)))
_FILL: dict[str, Any] = {INT: 0, FLOAT: 0.0, BOOL: False, TEXT: ""}
"""Stands in rows of a vector that are not those of its chunk."""
_MISSING = object()
_SHOWN = 60
_OPTIONAL = "declare it optional (| None), or see on_bad_data="


class ColumnChunk:
    """Rows in columns of equal length. `keys`, `headers`, `offsets` and `key_serde` are as in `Rows`."""

    __slots__ = ("_made", "_picked", "_read", "_vectors", "headers", "key_serde", "keys", "offsets", "timestamps")

    def __init__(
        self,
        timestamps: list[int],
        keys: list[Any] | None = None,
        headers: list[Headers] | None = None,
        offsets: Sequence[int] | None = None,
        key_serde: Any = None,
        *,
        vectors: VectorBatch | None = None,
        picked: list[int] | None = None,
        made: Mapping[str, list[Any]] | None = None,
        read: dict[str, list[Any]] | None = None,
    ) -> None:
        """`vectors`: the decoded columns, of which the rows in `picked` (None: all) are those of this chunk. `made`: further columns of
        this chunk's rows; they hide decoded ones of their names. `read`: decoded columns that are lists already."""
        self.timestamps = timestamps
        self.keys = keys
        self.headers = headers
        self.offsets = offsets
        self.key_serde = key_serde
        self._vectors = vectors
        self._picked = picked
        self._made = made if made is not None else {}
        self._read = read if read is not None else {}

    def __len__(self) -> int:
        return len(self.timestamps)

    def __getitem__(self, name: str) -> list[Any]:
        """A column as a list; it must not be changed."""
        found = self._made.get(name, self._read.get(name))
        if found is None:
            assert self._vectors is not None, "the columns of a step's schema are decoded or made"
            found = self._vectors[name].values()
            if self._picked is not None:
                found = pick(found, self._picked)
            self._read[name] = found
        return found

    def kept(self, keep: Sequence[Any]) -> ColumnChunk:
        """The rows for which `keep` is true: neither false nor null."""
        if all(keep):
            return self

        def of(column: Any) -> Any:
            return None if column is None else list(compress(column, keep))

        return ColumnChunk(
            of(self.timestamps),
            of(self.keys),
            of(self.headers),
            of(self.offsets),
            self.key_serde,
            vectors=self._vectors,
            picked=of(range(len(self)) if self._picked is None else self._picked),
            made={name: of(column) for name, column in self._made.items()},
            read={name: of(column) for name, column in self._read.items()},
        )

    def extended(self, columns: Mapping[str, list[Any]]) -> ColumnChunk:
        """The same rows with further columns; one that has the name of another hides it."""
        return ColumnChunk(
            self.timestamps,
            self.keys,
            self.headers,
            self.offsets,
            self.key_serde,
            vectors=self._vectors,
            picked=self._picked,
            made={**self._made, **columns},
            read=self._read,
        )

    def batch(self, schema: ColumnSchema) -> tuple[VectorBatch, array[int] | None]:
        """The columns of a schema as vectors, and which of their rows are those of this chunk, in order; None for all."""
        decoded_rows, picked = self._vectors, self._picked
        length = len(self) if decoded_rows is None else len(decoded_rows)
        found: list[Vector] = []
        for one in schema.columns:
            column = self._made.get(one.name)
            if column is None and decoded_rows is not None:
                found.append(decoded_rows[one.name])
                continue
            column = column or []
            if picked is not None:
                whole: list[Any] = [_FILL[one.type]] * length
                for index, value in zip(picked, column, strict=True):
                    whole[index] = value
                column = whole
            found.append(Vector.of(one.type, column))
        return VectorBatch(schema.names, tuple(found), length), None if picked is None else array("q", picked)

    def rows(self, names: Sequence[str], make: Callable[[dict[str, Any]], Any] | None = None) -> Rows:
        """The rows as dicts of these columns, or as what `make` makes of such a dict."""
        records = zip(*[self[name] for name in names], strict=True) if names else [()] * len(self)
        values: list[Any] = [dict(zip(names, record, strict=True)) for record in records]
        if make is not None:
            values = list(map(make, values))
        return Rows(values, self.timestamps, self.keys, self.headers, self.offsets, key_serde=self.key_serde)


def records_of(encoder: Encoder, chunk: ColumnChunk, schema: ColumnSchema) -> list[bytes | None]:
    """The rows as records in JSON."""
    buffer, offsets, lengths = encoder.encode(*chunk.batch(schema))
    data = bytes(buffer)
    return [data[start : start + size] for start, size in zip(longs(offsets), longs(lengths), strict=True)]


# ------------------------------------------------------------------------------------------------------------- from bytes


def decoder_of(schema: ColumnSchema) -> Decoder:
    """The decoder of records of this schema."""
    return Decoder([DeclaredColumn(one.name, one.type, one.optional) for one in schema.columns])


def decoded(decoder: Decoder, values: Sequence[bytes]) -> DecodedColumns:
    """Decode records in JSON; none of them is null."""
    lengths = array("q", map(len, values))
    offsets = array("q", accumulate(lengths, initial=0))
    offsets.pop()
    return decoder.decode(b"".join(values), offsets, lengths)


def why_bad(bad: BadSpan, data: bytes) -> DataError:
    """Why a record is bad, for people."""
    if bad.flaw == RecordFlaw.NOT_JSON:
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError as error:
            return DataError(f"not json: {error} in {_shown(data)}", remedy="see on_bad_data=")
    if bad.flaw == RecordFlaw.NOT_OBJECT or bad.column is None:
        return DataError(f"the record is {_shown(data)}, not an object with fields", remedy="see on_bad_data=")
    where = f"the field '{bad.column}'"
    match bad.flaw:
        case RecordFlaw.MISSING:
            return DataError(f"{where} is missing", remedy=_OPTIONAL)
        case RecordFlaw.NULL:
            return DataError(f"{where} is null", remedy=_OPTIONAL)
        case RecordFlaw.OUT_OF_RANGE:
            return DataError(f"{where} has a number of more than 64 bits in {_shown(data)}", remedy="see on_bad_data=")
        case _:
            return DataError(f"{where} is of another type in {_shown(data)}", remedy="see on_bad_data=")


# ------------------------------------------------------------------------------------------------------------ from values


def columns_of_values(
    values: Sequence[Any], schema: ColumnSchema
) -> tuple[dict[str, list[Any]], list[tuple[int, DataError]]]:
    """The columns of values (mappings, or objects with attributes), with None for those that do not fit; and why these do not.

    >>> from headgate.core.columns.schema import TEXT
    >>> columns, bad = columns_of_values([{"a": "x"}, {"a": 1}], ColumnSchema((ColumnSpec("a", TEXT),)))
    >>> columns, bad[0][1].what
    ({'a': ['x', None]}, "the field 'a' is 1, not text")
    """
    bad: list[tuple[int, DataError]] = []
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for index, value in enumerate(values):
        try:
            if type(value) in _NO_OBJECTS:
                raise DataError(f"the value is {_shown(value)}, not an object with fields")
            row = [_one(value, one) for one in schema.columns]
        except DataError as error:
            bad.append((index, error))
            row = [None] * len(schema.columns)
        for name, found in zip(schema.names, row, strict=True):
            columns[name].append(found)
    return columns, bad


def _one(value: Any, spec: ColumnSpec) -> Any:
    """The value of one field; a `DataError` that says why it does not fit."""
    found: Any = _MISSING
    if isinstance(value, Mapping):
        found = value.get(spec.name, _MISSING)
    elif hasattr(value, spec.name):
        found = field_of(value, spec.name)
    if found is not None and found is not _MISSING:
        return _fitting(found, spec)
    if spec.optional:
        return None
    raise DataError(f"the field '{spec.name}' is {'null' if found is None else 'missing'}", remedy=_OPTIONAL)


def _fitting(found: Any, spec: ColumnSpec) -> Any:
    wanted, is_bool = PYTHON[spec.type], isinstance(found, bool)
    if spec.type == FLOAT and isinstance(found, int) and not is_bool:
        try:
            found = float(found)
        except OverflowError:
            raise DataError(f"the field '{spec.name}' is a number that no float64 can hold") from None
    if not isinstance(found, wanted) or (is_bool and spec.type != BOOL):
        raise DataError(f"the field '{spec.name}' is {_shown(found)}, not {spec.type}")
    if spec.type == INT and not LEAST <= found <= MOST:
        raise DataError(f"the field '{spec.name}' is {_shown(found)}, which has more than 64 bits")
    if spec.type == FLOAT and not isfinite(found):
        raise DataError(f"the field '{spec.name}' is {found}, which is no finite number")
    return wanted(found)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
