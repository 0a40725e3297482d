"""Records whose whole value is one column, `value`: `.columns()` of an input of text or bytes, and `.to(…)` with such a serde.

What it decides: which columns such a record can have. Promises:

- The column has the value that a row would have: what is no text in the encoding of the serde is bad data. A record without a value is no
  row; a null is written as a record without a value.
- Without a bad record, text in UTF-8, and bytes, cost no object for a record; and bytes are not in base64 until an operator asks for that.
"""

from __future__ import annotations

from array import array
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ....core.columns.logical import BYTES, Logical
from ....core.columns.schema import TEXT, ColumnSchema, ColumnSpec
from ....core.errors import DataError
from ..layout import Buffer, longs
from ..memory.longs import extremes
from ..memory.octets import octets_of
from ..memory.record_spans import RecordSpans, is_text, packed, picked_spans, pieces
from ..memory.taking import spans_of, take_spans
from ..memory.vectors import Octets, Vector, VectorBatch
from ..values.serdes import Serde, is_whole, writes_utf8
from .decoder import BadSpan, DecodedColumns, RecordFlaw
from .encoder import WrittenRecords

VALUE = "value"
"""The name of the column."""
T = TypeVar("T")


def whole_schema(serde: Serde[Any]) -> ColumnSchema:
    """The schema of records with values of this serde."""
    return ColumnSchema((ColumnSpec(VALUE, TEXT, logical=Logical(BYTES) if _is_raw(serde) else None),))


def is_whole_column(schema: ColumnSchema, serde: Serde[Any]) -> bool:
    """Whether rows of these columns are values of this serde."""
    (own,) = whole_schema(serde).columns
    return schema.names == (VALUE,) and (schema[VALUE].type, schema[VALUE].said) == (own.type, own.said)


def reader_of(serde: Serde[Any], schema: ColumnSchema) -> Any:
    """What decodes records that are no JSON, as `Decoder` does those in JSON, for which it is None."""
    if is_whole(serde):
        return WholeReader(serde)
    return serde.column_reader(schema) if serde.reads_columns else None


def writer_of(serde: Serde[Any]) -> Any:
    """What encodes columns as records that are no JSON; None if rows must be made of them."""
    return WholeWriter(serde) if is_whole(serde) else serde.column_writer()


def _is_raw(serde: Serde[Any]) -> bool:
    return serde.type is bytes


class _Found(NamedTuple):
    """What was made of values, None for null and for those of which nothing can be made; and why not."""

    values: list[bytes | None]
    bad: list[tuple[int, DataError]]


def _each(parts: Sequence[T | None], convert: Callable[[T], bytes]) -> _Found:
    found = _Found([], [])
    for index, one in enumerate(parts):
        made: bytes | None = None
        try:
            made = None if one is None else convert(one)
        except DataError as error:
            found.bad.append((index, error))
        found.values.append(made)
    return found


class WholeReader:
    """Decodes records into their one column; see the top of this file."""

    kinds: Mapping[str, str] = {}

    def __init__(self, serde: Serde[Any]) -> None:
        self._serde = serde

    def decode(self, buffer: Buffer, offsets: Buffer, lengths: Buffer) -> DecodedColumns:
        """The column of these records."""
        spans = RecordSpans(buffer, offsets, lengths)
        if len(longs(lengths)) and extremes(lengths)[0] >= 0 and self._as_they_are(spans):
            return DecodedColumns(self._batch(spans), spans)
        parts = pieces(spans)
        found = self._values(parts)
        rows = array("q", [index for index, one in enumerate(found.values) if one is not None])
        return DecodedColumns(
            self._batch(packed([found.values[row] for row in rows])),
            picked_spans(spans, rows),
            [BadSpan(index, RecordFlaw.WRONG_TYPE, None) for index, _ in found.bad],
            [index for index, one in enumerate(parts) if one is None],
            rows,
        )

    def why(self, bad: BadSpan, data: bytes) -> DataError:
        """Why a record is bad: what is said of it as a row."""
        return self._values([data]).bad[0][1]

    def _as_they_are(self, spans: RecordSpans) -> bool:
        return _is_raw(self._serde) or (writes_utf8(self._serde) and is_text(spans))

    def _values(self, parts: Sequence[bytes | None]) -> _Found:
        """What the column has of these records."""
        return _Found(list(parts), []) if _is_raw(self._serde) else _each(parts, self._utf8)

    def _utf8(self, data: bytes) -> bytes:
        try:
            return self._serde.loads(data).encode()
        except UnicodeEncodeError as error:  # some encodings have lone surrogates, and UTF-8 has not
            raise DataError(f"not {self._serde.name}: {error}", remedy="see on_bad_data=") from None

    def _batch(self, spans: RecordSpans) -> VectorBatch:
        plain = take_spans(spans)
        return VectorBatch((VALUE,), (Octets(plain) if _is_raw(self._serde) else plain,), len(plain))


class WholeWriter:
    """Encodes the one column of records; see the top of this file."""

    def __init__(self, serde: Serde[Any]) -> None:
        self._serde = serde

    def encode(self, batch: VectorBatch, schema: ColumnSchema | None, rows: Buffer | None) -> WrittenRecords | None:
        """These rows, in ascending order, as records; None for results, of which no schema is declared."""
        if schema is None:
            return None
        column = batch[VALUE]
        if (spans := self._as_it_is(column)) is not None:
            return WrittenRecords(spans, [])
        wanted = range(len(column)) if rows is None else longs(rows).tolist()
        values = column.values()
        found = _each([values[row] for row in wanted], self._written)
        made: list[bytes | None] = [b""] * len(column)
        for row, one in zip(wanted, found.values, strict=True):
            made[row] = one
        return WrittenRecords(packed(made), found.bad)

    def _as_it_is(self, column: Vector) -> RecordSpans | None:
        """The records, if nothing can be wrong with them."""
        if not _is_raw(self._serde):
            return spans_of(column) if writes_utf8(self._serde) else None
        try:
            return spans_of(octets_of(column))
        except ValueError:  # another program has stored something else
            return None

    def _written(self, value: str) -> bytes:
        if not _is_raw(self._serde):
            return self._serde.dumps(value)
        try:
            return b64decode(value, validate=True)
        except ValueError as error:
            raise DataError(f"the field '{VALUE}' is stored as {value!r:.60}, which is no base64: {error}") from error
