"""Rows in typed columns: what operators of column streams pass on, and how values become columns and columns become rows.

A `ColumnChunk` is a batch of *base rows*, as the decoder or a step has made it, and a selection of them. Every column is aligned with the
base rows; a filter changes the selection alone. Vectors, times, keys, headers and original bytes stay buffers: lists of Python objects are
made only for a step that asks for one.

What it decides: which values fit a schema. Promises:

- The rules for values are those of the decoder for records (see `decoder`): types are strict, a whole number has at most 64 bits, a missing
  field is null, and null is an error where the column is not optional. A float is finite.
- Each row keeps where it came from: timestamp, key, headers and, where a later step needs it, offset.
- A row that is not selected may hold anything; nothing is computed, written or reported of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from operator import attrgetter, itemgetter
from typing import Any

import orjson

from ....core.columns.schema import BOOL, FLOAT, INT, LEAST, MOST, PYTHON, TEXT, ColumnSchema, ColumnSpec
from ....core.errors import DataError
from ..kafka.columns import pick
from ..kafka.spans import headers_of, packed_headers
from ..layout import Buffer, longs
from ..memory.longs import gathered, scaled
from ..memory.record_spans import RecordSpans, packed, pieces
from ..memory.vectors import Vector, VectorBatch, dicts_of
from ..values.record import Headers, Rows
from .decoder import BadSpan, RecordFlaw
from .selecting import field_of

_NO_OBJECTS = frozenset((str, int, float, bool, list, tuple, type(None)))
_MISSING = object()
_SHOWN = 60
_OPTIONAL = "declare it optional (| None), or see on_bad_data="


@dataclass(slots=True)
class ColumnChunk:
    """Selected rows of a batch, in columns. The fields are aligned with the base rows; `timestamps`, `keys`, `headers`, `offsets` and
    `chunk[name]` are lists of the selected rows, made when they are asked for, and must not be changed."""

    vectors: Mapping[str, Vector]
    times: Buffer
    """The event times, 64-bit integers."""
    picked: Buffer | None = None
    """The selected base rows, ascending 64-bit integers; None if all are."""
    key_spans: RecordSpans | None = None
    """The keys, encoded by `key_serde`; None if there are none, or `key_values` has them."""
    key_serde: Any = None
    key_values: Vector | Sequence[Any] | None = None
    """The keys as user code sees them, if they come from a column or a later step wants them decoded."""
    header_spans: RecordSpans | None = None
    """The headers in Kafka's format; None if no record has any."""
    positions: Sequence[int] | None = None
    """The offsets, if a later step needs them: a range or a view of 64-bit integers if each is greater than the one before, else a list."""
    origin: RecordSpans | None = None
    """The original bytes, if the values are records as they were read; only then can a record be written by splicing."""
    others: Buffer | None = None
    """For splicing: which fields each original record has besides the columns, as the decoder marks them; None if none has any."""
    records: Callable[[int], int] | None = None
    """Which record of the letter's chunk a base row was made of (`int`: the one at its own index); None if other records may have had a
    part in it."""
    _lists: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]], repr=False)

    @classmethod
    def of_rows(cls, rows: Rows, columns: Mapping[str, list[Any]], schema: ColumnSchema) -> ColumnChunk:
        """The columns of rows, as `columns_of_values` found them."""
        encoded = rows.keys is not None and rows.key_serde is not None
        return cls(
            {one.name: Vector.of(one.type, columns[one.name]) for one in schema.columns},
            array("q", rows.timestamps),
            key_spans=packed(rows.keys) if encoded and rows.keys is not None else None,
            key_serde=rows.key_serde,
            key_values=None if encoded else rows.keys,
            header_spans=None if rows.headers is None else packed_headers(rows.headers),
            positions=rows.offsets,
            records=rows.record_of,
        )

    @property
    def base_length(self) -> int:
        """How many base rows there are."""
        return len(longs(self.times))

    def __len__(self) -> int:
        return len(longs(self.times if self.picked is None else self.picked))

    def indexes(self) -> Sequence[int]:
        """The selected base rows."""
        return range(self.base_length) if self.picked is None else longs(self.picked).tolist()

    @property
    def record_of(self) -> Callable[[int], int] | None:
        """The index, in the letter's chunk, of the record that a selected row was made of; None if that is not known."""
        if self.records is None:
            return None
        rows, records = self.indexes(), self.records
        return lambda place: records(rows[place])

    def vector(self, name: str) -> Vector:
        """A column of the base rows."""
        return self.vectors[name]

    # ------------------------------------------------------------------------------------------------------------- lists

    def __getitem__(self, name: str) -> list[Any]:
        found = self._lists.get(name)
        if found is None:
            found = self._lists[name] = self._selected(self.vectors[name].values())
        return found

    def _selected(self, column: list[Any]) -> list[Any]:
        return column if self.picked is None else pick(column, longs(self.picked).tolist())

    @property
    def timestamps(self) -> list[int]:
        """The event times."""
        return self._selected(longs(self.times).tolist())

    @property
    def keys(self) -> list[Any] | None:
        """The keys: bytes of `key_serde`, or values if that is None."""
        if self.key_spans is not None:
            return self._selected(pieces(self.key_spans))
        values = self.key_values
        if values is None:
            return None
        return self._selected(values.values() if isinstance(values, Vector) else list(values))

    @property
    def headers(self) -> list[Headers] | None:
        """The headers."""
        return None if self.header_spans is None else self._selected(list(map(headers_of, pieces(self.header_spans))))

    @property
    def offsets(self) -> Sequence[int] | None:
        """The offsets."""
        if self.positions is None or self.picked is None:
            return self.positions
        return [self.positions[row] for row in longs(self.picked)]

    def ascending_offsets(self) -> Sequence[int] | None:
        """As `offsets`, without an object for each: a range or a view of 64-bit integers if each is greater than the one before."""
        if self.positions is None or self.picked is None:
            return self.positions
        return offsets_at(self.positions, self.picked)

    def selected_times(self) -> Buffer:
        """As `timestamps`, without an object for each."""
        return self.times if self.picked is None else gathered(self.times, self.picked)

    # ------------------------------------------------------------------------------------------------------- other chunks

    def kept(self, picked: Buffer) -> ColumnChunk:
        """These base rows of the selected ones."""
        return self if len(longs(picked)) == len(self) else replace(self, picked=picked, _lists={})

    def extended(self, columns: Mapping[str, Vector]) -> ColumnChunk:
        """The same rows with further columns; one that has the name of another hides it."""
        lists = {name: found for name, found in self._lists.items() if name not in columns}
        return replace(self, vectors={**self.vectors, **columns}, _lists=lists)

    def spread(self, kind: Any, values: list[Any]) -> Vector:
        """A column of the base rows from one of the selected rows; the others are null."""
        if self.picked is None:
            return Vector.of(kind, values)
        whole: list[Any] = [None] * self.base_length
        for row, value in zip(longs(self.picked), values, strict=True):
            whole[row] = value
        return Vector.of(kind, whole)

    def spread_spans(self, spans: RecordSpans) -> RecordSpans:
        """Spans of the base rows from spans of the selected rows; the others are null."""
        if self.picked is None:
            return spans
        starts, sizes = array("q", bytes(8 * self.base_length)), array("q", b"\xff" * (8 * self.base_length))
        for row, start, size in zip(longs(self.picked), longs(spans.offsets), longs(spans.lengths), strict=True):
            starts[row], sizes[row] = start, size
        return RecordSpans(spans.buffer, starts, sizes)

    def batch(self, schema: ColumnSchema) -> tuple[VectorBatch, Buffer | None]:
        """The columns of a schema, of the base rows, and which of them are selected; None for all."""
        vectors = tuple(self.vectors[name] for name in schema.names)
        return VectorBatch(schema.names, vectors, self.base_length), self.picked

    def rows(self, names: Sequence[str], make: Callable[[list[list[Any]]], list[Any]] | None = None) -> Rows:
        """The rows as dicts of these columns, or as what `make` makes of the columns."""
        values = (make or partial(dicts_of, tuple(names), len(self)))([self[name] for name in names])
        at = self.indexes()
        return Rows(
            values,
            self.timestamps,
            self.keys,
            self.headers,
            self.offsets,
            key_serde=self.key_serde,
            places=at if self.records is int else None if self.records is None else list(map(self.records, at)),
        )


def offsets_at(offsets: Sequence[int], places: Buffer) -> Sequence[int]:
    """The offsets at these places, 64-bit integers. Of a range or a view, a view.

    >>> offsets_at(range(5, 9), array("q", [0, 3])).tolist()
    [5, 8]
    """
    if isinstance(offsets, range):
        return longs(scaled(places, add=offsets.start))
    if isinstance(offsets, memoryview):
        return longs(gathered(offsets, places))
    return [offsets[place] for place in longs(places)]


# ------------------------------------------------------------------------------------------------------------- from bytes


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
    if (plain := _plainly(values, schema)) is not None:
        return plain, []
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


def _plainly(values: Sequence[Any], schema: ColumnSchema) -> dict[str, list[Any]] | None:
    """The columns of values of one type that fit without a conversion, a column at a time; None if there is anything else among them."""
    kinds = set(map(type, values))
    if len(kinds) != 1 or not kinds.isdisjoint(_NO_OBJECTS):
        return None
    (kind,) = kinds
    if kind is not dict and (issubclass(kind, Mapping) or any("." in name for name in schema.names)):
        return None
    columns: dict[str, list[Any]] = {}
    for one in schema.columns:
        try:
            columns[one.name] = list(map(itemgetter(one.name) if kind is dict else attrgetter(one.name), values))
        except (KeyError, AttributeError):
            if kind is not dict or not one.optional:
                return None
            columns[one.name] = [value.get(one.name) for value in values]
        if not _all_fit(columns[one.name], one):
            return None
    return columns


def _all_fit(column: list[Any], spec: ColumnSpec) -> bool:
    types = set(map(type, column))
    if type(None) in types:
        if not spec.optional:
            return False
        types.discard(type(None))
        column = [value for value in column if value is not None]
    if not types <= {PYTHON[spec.type]}:
        return False
    if spec.type == INT:
        return not column or LEAST <= min(column) <= max(column) <= MOST
    return spec.type != FLOAT or all(map(isfinite, column))


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
        raise DataError(
            f"the field '{spec.name}' is {_shown(found)}, which has more than 64 bits", remedy="declare it as float"
        )
    if spec.type == FLOAT and not isfinite(found):
        raise DataError(f"the field '{spec.name}' is {found}, which is no finite number")
    if spec.type == TEXT and isinstance(found, str):
        try:
            found.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"the field '{spec.name}' is {_shown(found)}, which is no text: {error.reason}") from None
    return wanted(found)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
