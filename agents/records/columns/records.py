"""`Records`: what operators pass on. Rows of one chunk, or what steps have made of them.

A row has a value, an event time, and perhaps a key, headers and the offset of the record that it was made of. Each of these is kept in the
form in which it came, and the other form is made when a step asks for it, once:

- as *lists* of Python objects, aligned with the rows: `values`, `timestamps`, `keys`, `headers`, `offsets`;
- as *buffers*, aligned with *base rows*: `vectors`, `times`, `key_spans`, `header_spans`, `positions`. A batch of base rows is what the
  decoder or a step has made; `picked` says which of them are rows. A filter changes the selection alone.

What it decides: nothing. Promises:

- Each row keeps where it came from: timestamp, key, headers and, where a later step needs it, offset.
- A base row that is not selected may hold anything; nothing is computed, written or reported of it.
- Lists and buffers that it has handed out are never changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import chain, compress, repeat
from typing import Any

from ....core.columns.schema import ColumnSchema
from ..kafka.columns import pick
from ..kafka.spans import headers_of, packed_headers
from ..layout import Buffer, longs
from ..memory.longs import gathered, scaled, scattered
from ..memory.record_spans import RecordSpans, packed, pieces
from ..memory.taking import take, take_longs
from ..memory.vectors import Vector, VectorBatch, dicts_of
from ..values.record import Headers, Record

_UNMADE: Any = object()


class Records:
    """Rows. `vectors` is None if their values are objects only."""

    __slots__ = (
        "_headers",
        "_keys",
        "_lists",
        "_make",
        "_offsets",
        "_places",
        "_results",
        "_times",
        "_timestamps",
        "_values",
        "header_spans",
        "key_serde",
        "key_spans",
        "key_values",
        "origin",
        "others",
        "picked",
        "plan",
        "positions",
        "vectors",
        "window",
    )

    picked: Buffer | None
    """The base rows that are rows, ascending 64-bit integers; None if all are."""
    vectors: Mapping[str, Vector] | None
    """The columns of the values. Of partial states: a column for each cell."""
    key_serde: Any
    """If set, the keys are bytes that this serde has encoded; otherwise they are keys as user code sees them."""
    key_spans: RecordSpans | None
    key_values: Vector | Sequence[Any] | None
    """The keys of the base rows as user code sees them, if they come from a column or a later step wants them decoded."""
    header_spans: RecordSpans | None
    """The headers in Kafka's format; None if no record has any."""
    positions: Sequence[int] | None
    """The offsets: a range or a view of 64-bit integers if each is greater than the one before, else a list."""
    origin: RecordSpans | None
    """The original bytes, if the values are records as they were read; only then can a record be written by splicing."""
    others: Buffer | None
    """For splicing: which fields each original record has besides the columns, as the decoder marks them; None if none has any."""
    plan: int | None
    """The digest of the aggregate plan whose partial states the values are; None for rows."""
    window: Mapping[str, Any] | None
    """The fields that name the window, if these are all of its rows for one key."""

    def __init__(
        self,
        values: list[Any],
        timestamps: list[int],
        keys: list[Any] | None = None,
        headers: list[Headers] | None = None,
        offsets: Sequence[int] | None = None,
        *,
        key_serde: Any = None,
        places: Sequence[int] | None = None,
        plan: int | None = None,
        window: Mapping[str, Any] | None = None,
    ) -> None:
        """Rows of objects. `offsets`: only if a later step needs them, and each row was made of one record."""
        self._values, self._timestamps, self._keys, self._headers = values, timestamps, keys, headers
        self._offsets, self.key_serde, self._places, self.plan, self.window = offsets, key_serde, places, plan, window
        self._times = self._make = self._results = self.picked = self.vectors = None
        self.key_spans = self.key_values = self.header_spans = self.positions = self.origin = self.others = None
        self._lists: dict[str, list[Any]] = {}

    @classmethod
    def of_vectors(
        cls,
        vectors: Mapping[str, Vector] | None,
        times: Buffer,
        *,
        picked: Buffer | None = None,
        key_spans: RecordSpans | None = None,
        key_serde: Any = None,
        key_values: Vector | Sequence[Any] | None = None,
        header_spans: RecordSpans | None = None,
        positions: Sequence[int] | None = None,
        origin: RecordSpans | None = None,
        others: Buffer | None = None,
        places: Sequence[int] | None = None,
        plan: int | None = None,
        results: Callable[[], VectorBatch] | None = None,
        make: Callable[[], list[Any]] | None = None,
    ) -> Records:
        """Rows in columns. `make` makes the values of base rows as objects; else they are dicts of all columns. `results`: see there."""
        found = cls(_UNMADE, _UNMADE, _UNMADE, _UNMADE, _UNMADE, key_serde=key_serde, places=places, plan=plan)
        found.vectors, found._times, found.picked, found._results, found._make = vectors, times, picked, results, make
        found.key_spans, found.key_values, found.header_spans = key_spans, key_values, header_spans
        found.positions, found.origin, found.others = positions, origin, others
        return found

    @classmethod
    def of(cls, records: Sequence[Record[Any, Any]]) -> Records:
        """Rows from records."""
        return cls(
            [r.value for r in records],
            [r.timestamp for r in records],
            [r.key for r in records] if any(r.key is not None for r in records) else None,
            [r.headers or () for r in records] if any(r.headers for r in records) else None,
        )

    def __len__(self) -> int:
        if self.picked is not None:
            return len(longs(self.picked))
        return len(self._values) if self._times is None else len(longs(self._times))

    def __repr__(self) -> str:
        form = "objects" if self.vectors is None else f"columns {', '.join(self.vectors)}"
        return f"Records({len(self)} rows of {form})"

    # ------------------------------------------------------------------------------------------------------------- lists

    @property
    def values(self) -> list[Any]:
        """The values as objects."""
        if self._values is _UNMADE:
            names = tuple(self.vectors or ())
            if self._make is not None:
                self._values = self._selected(self._make())
            else:
                self._values = dicts_of(names, len(self), [self[name] for name in names])
        return self._values

    @property
    def timestamps(self) -> list[int]:
        """The event times."""
        if self._timestamps is _UNMADE:
            self._timestamps = self._selected(longs(self.times).tolist())
        return self._timestamps

    @property
    def keys(self) -> list[Any] | None:
        """The keys: bytes of `key_serde`, or keys as user code sees them if that is None; None if no row has any."""
        if self._keys is _UNMADE:
            found = self.key_values
            if self.key_spans is not None:
                found = pieces(self.key_spans)
            elif isinstance(found, Vector):
                found = found.values()
            self._keys = None if found is None else self._selected(list(found))
        return self._keys

    def shown_keys(self) -> list[Any] | None:
        """The keys as user code sees them."""
        keys = self.keys
        if keys is None or self.key_serde is None:
            return keys
        found = self.key_serde.loads_many(keys)
        if found.bad:
            raise found.bad[0][1]
        return found.values

    @property
    def headers(self) -> list[Headers] | None:
        """The headers; None if no row has any."""
        if self._headers is _UNMADE:
            spans = self.header_spans
            self._headers = None if spans is None else self._selected(list(map(headers_of, pieces(spans))))
        return self._headers

    @property
    def offsets(self) -> Sequence[int] | None:
        """The offsets; None if they are not known. Of a range or a view of 64-bit integers, such a one."""
        if self._offsets is _UNMADE:
            self._offsets = self.positions
            if self.positions is not None and self.picked is not None:
                self._offsets = offsets_at(self.positions, self.picked)
        return self._offsets

    def records(self) -> Iterator[Record[Any, Any]]:
        """The rows one by one, for functions that want records."""
        keys = self.shown_keys() or repeat(None)
        headers = self.headers or repeat(())
        return map(Record, keys, self.values, self.timestamps, headers)

    def __getitem__(self, name: str) -> list[Any]:
        """A column as a list."""
        found = self._lists.get(name)
        if found is None:
            found = self._lists[name] = self.listed(self.vector(name))
        return found

    def listed(self, column: Vector) -> list[Any]:
        """A column of base rows as a list of the rows."""
        return self._selected(column.values())

    def _selected(self, column: list[Any]) -> list[Any]:
        return column if self.picked is None else pick(column, longs(self.picked).tolist())

    # ----------------------------------------------------------------------------------------------------------- buffers

    @property
    def times(self) -> Buffer:
        """The event times of the base rows, 64-bit integers."""
        return array("q", self._timestamps) if self._times is None else self._times

    def selected_times(self) -> Buffer:
        """The event times of the rows."""
        return self.times if self.picked is None else gathered(self.times, self.picked)

    @property
    def base_length(self) -> int:
        """How many base rows there are."""
        return len(self) if self.picked is None else len(longs(self.times))

    def vector(self, name: str) -> Vector:
        """A column of the base rows."""
        assert self.vectors is not None, "a step asks for columns only where there are some"
        return self.vectors[name]

    def batch(self, schema: ColumnSchema) -> tuple[VectorBatch, Buffer | None]:
        """The columns of a schema, of the base rows, and which of them are rows; None for all."""
        return VectorBatch(schema.names, tuple(map(self.vector, schema.names)), self.base_length), self.picked

    def indexes(self) -> Sequence[int]:
        """The base rows that are rows."""
        return range(self.base_length) if self.picked is None else longs(self.picked).tolist()

    @property
    def places(self) -> Sequence[int] | None:
        """For each row the index, in the letter's chunk, of the record that it was made of; None if other records may have had a part in
        it. So a step that fails on some rows can name all records that fail, whatever the others are."""
        places = self._places
        if places is None or self.picked is None:
            return places
        return _SomePlaces(lambda: [places[row] for row in self.indexes()])

    @property
    def results(self) -> VectorBatch | None:
        """The values as columns of whatever types, for a step that only writes them; None if they are nothing but objects."""
        return None if self._results is None else self._results()

    # -------------------------------------------------------------------------------------------------------- other rows

    def _with(self, **changes: Any) -> Records:
        found = copy(self)
        for name, change in changes.items():
            setattr(found, name, change)
        return found

    def with_values(self, values: list[Any]) -> Records:
        """The same rows with other values, which are objects."""
        found = self._with(_values=values, _lists={}, vectors=None, _results=None, origin=None, others=None, plan=None)
        found.window = None
        return found

    def with_keys(self, keys: list[Any], serde: Any = None) -> Records:
        """The same rows with other keys: bytes of this serde, or keys as user code sees them."""
        return self._with(_keys=keys, key_serde=serde, key_spans=None, key_values=None)

    def with_key_spans(self, spans: RecordSpans | None) -> Records:
        """The same rows with these bytes as keys, of the base rows."""
        return self._with(_keys=_UNMADE, key_serde=None, key_spans=spans, key_values=None)

    def without_places(self) -> Records:
        """The same rows, in which other records may have had a part."""
        return self._with(_places=None)

    def of_columns(self, names: Sequence[str], make: Callable[[list[list[Any]]], list[Any]] | None = None) -> Records:
        """The same rows with dicts of these columns as values, or what `make` makes of the columns. Values that are objects only stay."""
        if self.vectors is None:
            return self
        columns = [self[name] for name in names]
        return self.with_values(make(columns) if make else dicts_of(tuple(names), len(self), columns))

    def with_vectors(self, vectors: Mapping[str, Vector]) -> Records:
        """The same rows of objects, with columns of the rows instead of their values."""
        keys, headers, encoded = self.keys, self.headers, self.key_serde is not None
        return Records.of_vectors(
            vectors,
            self.selected_times(),
            key_spans=packed(keys) if encoded and keys is not None else None,
            key_serde=self.key_serde,
            key_values=None if encoded else keys,
            header_spans=None if headers is None else packed_headers(headers),
            positions=self.offsets,
            places=self.places,
        )

    def extended(self, columns: Mapping[str, Vector]) -> Records:
        """The same rows with further columns; one that has the name of another hides it."""
        lists = {name: found for name, found in self._lists.items() if name not in columns}
        return self._in_columns({**(self.vectors or {}), **columns}, lists)

    def only(self, columns: Mapping[str, Vector]) -> Records:
        """The same rows with these columns as values."""
        return self._in_columns(columns, {}, origin=None, others=None)

    def _in_columns(self, columns: Mapping[str, Vector], lists: dict[str, list[Any]], **changes: Any) -> Records:
        """The same rows with these columns: what made their values as objects, or for a step that only writes, made them without."""
        return self._with(vectors=columns, _lists=lists, _values=_UNMADE, _results=None, _make=None, **changes)

    def made_of(self, rows: Buffer | None, columns: Mapping[str, Vector], times: Buffer | None = None) -> Records:
        """Rows of these columns, each of which was made of the base row with this number; None: of all of them, in order. A row keeps the
        time, the key, the headers and the offset of what it was made of. `times`: those instead. Raises `ValueError` for other numbers."""
        places = self._places
        return Records.of_vectors(
            columns,
            take_longs(self.times, rows) if times is None else times,
            key_spans=_taken_spans(self.key_spans, rows),
            key_serde=self.key_serde,
            key_values=_taken(self.key_values, rows),
            header_spans=_taken_spans(self.header_spans, rows),
            positions=_taken(self.positions, rows),
            places=places
            if places is None or rows is None
            else _SomePlaces(lambda: [places[row] for row in longs(rows)]),
        )

    def kept(self, picked: Buffer) -> Records:
        """These base rows."""
        if len(longs(picked)) == len(self):
            return self
        unmade = dict.fromkeys(("_values", "_timestamps", "_keys", "_headers", "_offsets"), _UNMADE)
        return self._with(picked=picked, _lists={}, **unmade)

    def filtered(self, keep: Sequence[Any]) -> Records:
        """The rows for which `keep` is true."""
        if all(keep):
            return self
        if self._untouched:
            return self.kept(array("q", compress(self.indexes(), keep)))
        return self._some(lambda column: list(compress(column, keep)))

    def at(self, places: list[int]) -> Records:
        """The rows at these places, which ascend."""
        if self._untouched:
            return self.kept(array("q", pick(self.indexes(), places)))
        return self._some(lambda column: pick(column, places))

    @property
    def _untouched(self) -> bool:
        """Whether the values are in columns, and no step has seen them as objects, which it may have changed."""
        return self.vectors is not None and self._values is _UNMADE

    def repeated(self, sizes: Sequence[int]) -> Records:
        """Each row as many times as this says."""
        return self._some(lambda column: list(chain.from_iterable(map(repeat, column, sizes))))

    def _some(self, some: Callable[[Any], list[Any]]) -> Records:
        """Rows of objects, of which each list has been made by this function. The places are made when they are asked for: hardly ever."""
        keys, headers, offsets, places = self.keys, self.headers, self.offsets, self.places
        return Records(
            some(self.values),
            some(self.timestamps),
            None if keys is None else some(keys),
            None if headers is None else some(headers),
            None if offsets is None else some(offsets),
            key_serde=self.key_serde,
            places=None if places is None else _SomePlaces(lambda: some(list(places))),
        )

    # ------------------------------------------------------------------------------------------- from rows to base rows

    def spread(self, kind: Any, values: list[Any]) -> Vector:
        """A column of the base rows from one of the rows; the others are null."""
        if self.picked is None:
            return Vector.of(kind, values)
        whole: list[Any] = [None] * self.base_length
        for row, value in zip(longs(self.picked), values, strict=True):
            whole[row] = value
        return Vector.of(kind, whole)

    def spread_spans(self, spans: RecordSpans) -> RecordSpans:
        """Spans of the base rows from spans of the rows; the others are null."""
        if self.picked is None:
            return spans
        starts = scattered(spans.offsets, self.picked, self.base_length)
        return RecordSpans(spans.buffer, starts, scattered(spans.lengths, self.picked, self.base_length, rest=-1))


class _SomePlaces(Sequence[int]):
    """Integers that are made when somebody asks for one."""

    def __init__(self, make: Callable[[], list[int]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> list[int]:
        return self._make()

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, at: Any) -> Any:
        return self._made[at]


def _taken_spans(spans: RecordSpans | None, rows: Buffer | None) -> RecordSpans | None:
    if spans is None or rows is None:
        return spans
    return RecordSpans(spans.buffer, take_longs(spans.offsets, rows), take_longs(spans.lengths, rows))


def _taken(values: Vector | Sequence[Any] | None, rows: Buffer | None) -> Any:
    if values is None or rows is None:
        return values
    return take(values, rows) if isinstance(values, Vector) else [values[row] for row in longs(rows)]


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
