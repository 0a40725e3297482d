"""What chunks add to the states of aggregates: rows, columns, or partial states, each with its keys.

What it decides: which numbers are refused, and whether keys have the bytes that a step needs already. Promise: nothing is made for each
record where columns hold numbers and keys have these bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.columns.schema import PYTHON
from ...core.errors import DataError
from ..job import steps as s
from ..job.aggregates import NUMERIC
from ..records.arrow_columns import ArrivedColumns
from ..records.column_chunk import ColumnChunk
from ..records.decoder import RecordSpans
from ..records.groups import KeyTable, null_among, numbers_in
from ..records.record import Rows
from ..records.serdes import KEY, writes_utf8
from ..records.vectors import Buffer, Vector
from .key_arrays import NULL_NUMBER, Addition, KeyArrays
from .stateless import Operator, UserCodeError, blaming, encode_keys


class Addends:
    """What a chunk of rows, or of partial states, adds to the states of an aggregate. Keys are bytes, or text that is to be encoded."""

    limited = False
    """Numbers of columns have 64 bits; those of rows have as many as they need."""

    def __init__(self, step: s.AggregateStep, keys: list[Any], rows: Rows, *, partial: bool = False) -> None:
        self.step = step
        self.keys = keys
        self.rows = rows
        self.partial = partial

    @property
    def timestamps(self) -> list[int]:
        """The time of each row."""
        return self.rows.timestamps

    def blaming(self) -> blaming:
        """Errors in this block are the aggregate's; the message says which field a row lacks."""
        return blaming(self.step, None if self.partial else self.step.plan.lacking(self.rows.values))

    def numbers(self, keys: KeyTable) -> Buffer:
        """The numbers of the keys."""
        return keys.numbers_listed(self.keys)

    def listed(self) -> list[bytes]:
        """The keys as bytes."""
        return [key if type(key) is bytes else key.encode() for key in self.keys]

    def addition(self, arrays: KeyArrays) -> Addition | None:
        """The same for arrays; None if something is no number of 64 bits."""
        values = self.rows.values
        columns: Sequence[Vector | None] | None
        if self.partial:
            columns = arrays.vectors(values)
        else:
            found = [select and numbers_in(select(values)) for select in self.step.plan.select]
            wrong = any(s and (v is None or v.nulls) for s, v in zip(self.step.plan.select, found, strict=True))
            columns = None if wrong else arrays.columns(found.__getitem__)
        if columns is None:
            return None
        return Addition(self.numbers(arrays.keys), list(columns), None, array("q", self.timestamps), self)

    def values(self) -> list[Any]:
        """The rows."""
        return self.rows.values


class PartialAddends:
    """What frames of partial states in columns add to the states of an aggregate."""

    def __init__(self, step: s.AggregateStep, columns: ArrivedColumns) -> None:
        self.step = step
        self.columns = columns
        self.limited = False

    @property
    def timestamps(self) -> list[int]:
        """The time of each partial state."""
        return self.columns.timestamps

    def blaming(self) -> blaming:
        """Errors in this block are the aggregate's."""
        return blaming(self.step)

    def numbers(self, keys: KeyTable) -> Buffer:
        """The numbers of the keys."""
        return keys.numbers_of(self.columns.key_spans)

    def listed(self) -> list[Any]:
        """The keys as bytes."""
        return list(self.columns.keys or ())

    def addition(self, arrays: KeyArrays) -> Addition | None:
        """The same for arrays; None if these are no numbers."""
        found = vectors_of(arrays, self.columns)
        return None if found is None else Addition(self.numbers(arrays.keys), [*found], None, self.columns.times, self)

    def values(self) -> list[Any]:
        """The states, a list for each key."""
        return self.columns.plain_values()


class ColumnAddends:
    """What a chunk of columns adds to the states of an aggregate. Rows are made only if its states are not all in arrays."""

    limited = True

    def __init__(self, step: s.AggregateStep, chunk: ColumnChunk, keys: ChunkKeys) -> None:
        self.step = step
        self.chunk = chunk
        self.keys = keys

    @property
    def timestamps(self) -> list[int]:
        """The time of each row."""
        return self.chunk.timestamps

    def blaming(self) -> blaming:
        """Errors in this block are the aggregate's."""
        return blaming(self.step)

    def numbers(self, keys: KeyTable) -> Buffer:
        """The numbers of the keys."""
        return self.keys.numbers(keys)

    def listed(self) -> list[bytes]:
        """The keys as bytes."""
        return [key if type(key) is bytes else key.encode() for key in self.keys.listed()]

    def addition(self, arrays: KeyArrays) -> Addition | None:
        """The same for arrays; None if something is no number."""
        refuse_nulls(self.step, self.chunk)
        chunk, parts = self.chunk, self.step.plan.parts
        if any(part.of is not None and chunk.vector(str(part.of)).kind not in ("int64", "float64") for part in parts):
            return None
        columns = arrays.columns(lambda at: chunk.vector(str(parts[at].of)))
        return Addition(self.numbers(arrays.keys), columns, chunk.picked, chunk.times, self)

    def values(self) -> list[Any]:
        """The columns as rows."""
        refuse_nulls(self.step, self.chunk)
        return self.chunk.rows(sorted(self.step.plan.reads)).values


def refuse_nulls(step: s.AggregateStep | s.WindowStep, chunk: ColumnChunk) -> None:
    """Refuse a null in a column of which numbers are aggregated."""
    for part in step.plan.parts:
        if part.name not in NUMERIC or part.of is None:
            continue
        index = null_among(chunk.vector(str(part.of)), chunk.picked)
        if index is not None:
            raise UserCodeError(
                step,
                DataError(f"'{part.of}' is null", remedy=f'filter before: .filter(~hg.col("{part.of}").is_null())'),
                index,
            )


def vectors_of(arrays: KeyArrays, columns: ArrivedColumns) -> list[Vector] | None:
    """Partial states in columns as a vector for each cell; None if they are no numbers, or one has no key."""
    found = [columns.vector(name) for name in arrays.columns_of_partials if name in columns.kinds]
    if not columns.has_every_key or not arrays.takes(found):
        return None
    return found


class ChunkKeys:
    """The keys of a chunk of columns as a serde encodes them. If a column or the bytes have them so already, no list is made."""

    def __init__(
        self, column: Vector | None, spans: RecordSpans | None, picked: Buffer | None, listing: Callable[[], list[Any]]
    ) -> None:
        self.column = column
        self.spans = spans
        self.picked = picked
        self.listed = listing
        """The keys as bytes, or text that is to be encoded. Raises if one is missing."""

    def numbers(self, keys: KeyTable) -> Buffer:
        """Their numbers."""
        if self.spans is not None:
            found = keys.numbers_of(self.spans, self.picked)
        elif self.column is not None:
            found = keys.numbers(self.column, self.picked)
        else:
            return keys.numbers_listed(self.listed())
        if NULL_NUMBER in bytes(found):
            self.listed()
        return found


def greatest_times(keys: Sequence[Any], timestamps: Sequence[int]) -> dict[Any, int]:
    """By key, the greatest time of its rows; the keys in the order in which they come first.

    >>> greatest_times("aba", [3, 1, 2])
    {'a': 3, 'b': 1}
    """
    times: dict[Any, int] = {}
    for key, time in zip(keys, timestamps, strict=True):
        if time > times.get(key, time - 1):
            times[key] = time
    return times


def later_times(times: dict[Any, int], others: Mapping[Any, int]) -> None:
    """Note the greater times of keys."""
    for key, time in others.items():
        if time > times.get(key, time - 1):
            times[key] = time


def too_large(step: s.Step, index: int | None) -> UserCodeError:
    """A sum of columns that 64 bits cannot hold."""
    return UserCodeError(
        step,
        DataError("a sum or count of whole numbers has more than 64 bits", remedy="cast the column: .cast(float)"),
        index,
    )


def refuse_large(step: s.AggregateStep, arrays: KeyArrays, one: Addition) -> None:
    """Raise for the first row of columns with which a sum has more than 64 bits."""
    refused = arrays.refused(one)
    if refused:
        raise too_large(step, refused[0] if one.rows is None else None)


def check_sums(step: s.AggregateStep, states: Mapping[Any, Sequence[Any]]) -> None:
    """Raise if a state of columns is a whole number of more than 64 bits."""
    for state in states.values():
        for part in state:
            for one in part if isinstance(part, tuple | list) else (part,):
                if type(one) is int and not -(2**63) <= one < 2**63:
                    raise too_large(step, None)


def has_these_bytes(serde: Any, column: Vector) -> bool:
    """Whether keys that this serde writes have the bytes that `KeyTable` gives a column."""
    if column.kind == "text":
        return writes_utf8(serde)
    return column.kind in ("int64", "bool") and serde.name == KEY and serde.type in (None, PYTHON[column.kind])


def same_keys(serde: Any, written: Any) -> bool:
    """Whether keys that one serde has written are as the other writes them."""
    return written is not None and written.name == serde.name and serde.type in (None, written.type)


def chunk_keys(operator: Operator, chunk: ColumnChunk, serde: Any) -> ChunkKeys:
    """The keys of a chunk of columns, as this serde encodes them."""
    written, values = chunk.key_serde, chunk.key_values
    column = values if isinstance(values, Vector) and has_these_bytes(serde, values) else None
    return ChunkKeys(
        column,
        chunk.key_spans if same_keys(serde, written) else None,
        chunk.picked,
        lambda: keyed(operator, chunk, serde),
    )


def keyed(operator: Operator, rows: Rows | ColumnChunk, serde: Any) -> list[bytes]:
    """The keys of rows, as bytes of this serde; raises if a row has no key."""
    if rows.keys is None or None in rows.keys:
        kind = operator.step.verb
        remedy = f'put .repartition("field") before {kind}, or declare the key of the input: key="field", key_serde='
        raise UserCodeError(operator.step, DataError("a record has no key", remedy=remedy))
    return encode_keys(operator.step, serde, rows.keys, rows.key_serde)
