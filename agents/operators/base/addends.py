"""What chunks add to the states of aggregates and windows: rows, columns, or partial states, each with its keys.

What it decides: that nulls are refused, and whether keys have the bytes that a step needs already. Promise: nothing is made for each
record where columns hold numbers and keys have these bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ....core.columns.evaluate import NotComputable
from ....core.columns.logical import Logical
from ....core.columns.schema import PYTHON
from ....core.errors import DataError
from ...job.steps.keyed import AggregateStep, WindowStep
from ...job.types.aggregates import NEVER_NULL, NUMERIC, Aggregate, AggregatePlan
from ...records.columns.groups import KeyTable, null_among, numbers_in
from ...records.columns.records import Records
from ...records.columns.selecting import SeveralFields, names_in
from ...records.kafka.columns import pick
from ...records.layout import Buffer, bit, bits, both, longs
from ...records.logical.logical_columns import written
from ...records.memory.record_spans import RecordSpans
from ...records.memory.vectors import Vector, dicts_of
from ...records.values.serdes import KEY, writes_utf8
from .key_arrays import NULL_NUMBER, Addition, KeyArrays
from .state_cells import CellColumn, ObjectColumn
from .stateless import Operator, blaming, encode_keys, failing

Aggregating = AggregateStep | WindowStep


class Addend(Protocol):
    """What a chunk of a letter adds, each with its key."""

    @property
    def timestamps(self) -> list[int]:
        """The time of each row, or partial state."""
        ...

    def numbers(self, keys: KeyTable) -> Buffer:
        """The numbers of the keys."""
        ...

    def listed(self) -> list[bytes]:
        """The keys as bytes."""
        ...

    def addition(self, arrays: KeyArrays) -> Addition | None:
        """The same for arrays; None if something is no number of 64 bits."""
        ...

    def columns(self, plan: AggregatePlan) -> list[Any] | None:
        """The same as columns of numbers, to be added in place; None if something is no number."""
        ...

    def values(self) -> list[Any]:
        """The rows, or partial states as lists."""
        ...

    def picked(self, rows: Buffer | None) -> Addend:
        """Some of them; None: all."""
        ...


class Addends:
    """What rows, or partial states in lists, add. Keys are bytes, or text that is to be encoded."""

    def __init__(
        self,
        step: Aggregating,
        keys: list[Any],
        values: list[Any] | None,
        times: list[int],
        *,
        partial: bool = False,
        states: list[list[Any]] | None = None,
    ) -> None:
        """`values`: the rows, or partial states. `states`: the latter instead, as a column for each aggregate."""
        self.step = step
        self.keys = keys
        self.timestamps = times
        self.partial = partial or states is not None
        self._values = values
        self._states = states
        self._columns: list[Any] | None = None

    def blaming(self) -> blaming:
        """Errors in this block are the aggregate's; the message says which field a row lacks."""
        return blaming(self.step, None if self.partial else self.step.plan.lacking(self.values()))

    def numbers(self, keys: KeyTable) -> Buffer:
        return keys.numbers_listed(self.keys)

    def listed(self) -> list[bytes]:
        if set(map(type, self.keys)) == {bytes}:
            return self.keys
        return [key if type(key) is bytes else key.encode() for key in self.keys]

    def addition(self, arrays: KeyArrays) -> Addition | None:
        columns: Sequence[CellColumn | None] | None
        if self.partial:
            columns = arrays.vectors(self.values())
        else:
            found = self._numbers(arrays.plan)
            columns = None if found is None else arrays.columns(found.__getitem__)
        if columns is None:
            return None
        return Addition(self.numbers(arrays.keys), list(columns), None, array("q", self.timestamps), self)

    def _numbers(self, plan: AggregatePlan) -> list[Vector | None] | None:
        """A column for each aggregate, None for a count of all; None if something that counts is no number."""
        if not plan.numeric:
            return None
        rows, found = self.values(), list[Vector | None]()
        met = plan.met(rows)
        for select, number in zip(plan.select, plan.met_by, strict=True):
            if select is None and number is None:
                found.append(None)
                continue
            values: list[Any] = [1] * len(rows) if select is None else select(rows)
            counting = rows if number is None else [one for one in met[number] if one]
            if number is not None:
                values = [value if counts else None for value, counts in zip(values, met[number], strict=True)]
            column = numbers_in(values)
            if select is not None and (column is None or len(rows) - column.nulls != len(counting)):
                return None
            found.append(column)
        return found

    def columns(self, plan: AggregatePlan) -> list[Any] | None:
        if self._columns is None:
            if not self.partial:
                self._columns = plan.columns(self.values())
            else:
                self._columns = plan.partials(self._states or list(zip(*self.values(), strict=True)))
        return self._columns

    def values(self) -> list[Any]:
        if self._values is None:
            self._values = list(map(list, zip(*(self._states or ()), strict=True)))
        return self._values

    def picked(self, rows: Buffer | None) -> Addends:
        if rows is None:
            return self
        at = longs(rows).tolist()
        keys, times = pick(self.keys, at), pick(self.timestamps, at)
        if self._states is not None:
            made = Addends(self.step, keys, None, times, states=[pick(one, at) for one in self._states])
            made._columns = self._columns and made._states  # they are the same
            return made
        made = Addends(self.step, keys, pick(self.values(), at), times, partial=self.partial)
        if self._columns is not None:
            made._columns = [one if one is None else pick(one, at) for one in self._columns]
        return made


class PartialAddends:
    """What partial states in columns add. `lists` makes them lists, for states that are not in arrays."""

    def __init__(
        self,
        step: Aggregating,
        chunk: Records,
        states: Sequence[Vector],
        lists: Callable[[], list[Any]],
    ) -> None:
        self.step = step
        self.chunk = chunk
        self.states = states
        self.lists = lists

    @property
    def timestamps(self) -> list[int]:
        return self.chunk.timestamps

    def blaming(self) -> blaming:
        """Errors in this block are the aggregate's."""
        return blaming(self.step)

    def numbers(self, keys: KeyTable) -> Buffer:
        assert self.chunk.key_spans is not None, "each state has a key"
        return keys.numbers_of(self.chunk.key_spans, self.chunk.picked)

    def listed(self) -> list[Any]:
        return self.chunk.keys or []

    def addition(self, arrays: KeyArrays) -> Addition:
        return Addition(self.numbers(arrays.keys), list(self.states), self.chunk.picked, self.chunk.times, self)

    def columns(self, plan: AggregatePlan) -> list[Any] | None:
        return plan.partials(list(zip(*self.values(), strict=True)))

    def values(self) -> list[Any]:
        picked = self.chunk.picked
        return self.lists() if picked is None else pick(self.lists(), longs(picked).tolist())

    def picked(self, rows: Buffer | None) -> PartialAddends:
        return self if rows is None else PartialAddends(self.step, self.chunk.kept(rows), self.states, self.lists)


class ColumnAddends:
    """What a chunk of columns adds. Rows are made only for states that are not in arrays."""

    def __init__(
        self,
        step: Aggregating,
        chunk: Records,
        keys_of: Callable[[Records], ChunkKeys],
        conditions: Conditions | None = None,
    ) -> None:
        self.step = step
        self.chunk = chunk
        self.keys_of = keys_of
        self.keys = keys_of(chunk)
        self.conditions = conditions or Conditions(step, chunk)

    @property
    def timestamps(self) -> list[int]:
        return self.chunk.timestamps

    def blaming(self) -> blaming:
        """Errors in this block are the aggregate's."""
        return blaming(self.step)

    def numbers(self, keys: KeyTable) -> Buffer:
        return self.keys.numbers(keys)

    def listed(self) -> list[bytes]:
        return [key if type(key) is bytes else key.encode() for key in self.keys.listed()]

    def addition(self, arrays: KeyArrays) -> Addition | None:
        refuse_nulls(self.step, self.chunk, self.conditions)
        chunk, parts = self.chunk, arrays.plan.parts
        of_numbers = [str(part.of) for part in parts if part.name in NUMERIC and part.of is not None]
        if any(chunk.vector(name).kind not in ("int64", "float64") for name in of_numbers):
            return None
        columns = arrays.columns(lambda at: self._column(parts[at]))
        return Addition(self.numbers(arrays.keys), columns, chunk.picked, chunk.times, self)

    def _column(self, part: Aggregate) -> CellColumn | None:
        """What a part is of; rows that do not count are null there, or are left out."""
        met = self.conditions.met(part, self.chunk)
        if part.name not in NUMERIC:
            return self._objects(part, met)
        if part.of is None:
            return None if met is None else Vector("bool", self.chunk.base_length, met, None, met)
        column = self.chunk.vector(str(part.of))
        return column if met is None else column.only(met)

    def _objects(self, part: Aggregate, met: Buffer | None) -> ObjectColumn:
        """What a part is of, where states are objects."""
        names = names_in(part.of)
        values = self.chunk[names[0]]
        if isinstance(part.of, SeveralFields):
            values = dicts_of(names, len(self.chunk), [self.chunk[name] for name in names])
        if part.by is not None:
            values = list(zip(values, self.chunk[str(part.by)], strict=True))
        if met is None:
            return ObjectColumn(values)
        flags = bits(met, self.chunk.base_length)
        places = [place for place, row in enumerate(self.chunk.indexes()) if flags[row]]
        return ObjectColumn(pick(values, places), places)

    def columns(self, plan: AggregatePlan) -> list[Any] | None:
        return plan.columns(self.values())

    def values(self) -> list[Any]:
        refuse_nulls(self.step, self.chunk, self.conditions)
        return self.chunk.of_columns(sorted(self.step.plan.reads)).values

    def picked(self, rows: Buffer | None) -> ColumnAddends:
        return self if rows is None else ColumnAddends(self.step, self.chunk.kept(rows), self.keys_of, self.conditions)


class Conditions:
    """What `where=` of a step says of a chunk of columns: each condition is computed once, for all of its windows."""

    def __init__(self, step: Aggregating, chunk: Records) -> None:
        self.step = step
        self.chunk = chunk
        self._met: dict[int, Buffer] = {}

    def met(self, part: Aggregate, of: Records) -> Buffer | None:
        """A bit for each base row: whether it counts for this part; None if all do. It is asked for these rows of the chunk, and only
        their bits have a meaning. A row for which the condition has no value is an error."""
        if part.where is None:
            return None
        number = self.step.plan.conditions.index(part.where)
        if number in self._met:
            return self._met[number]
        condition = self.step.plan.computations[number]
        try:
            met = self._met[number] = _true_bits(condition.vector(self.chunk))
        except NotComputable as all_rows:
            try:  # a row that is late has no value, perhaps, and does not count
                met = _true_bits(condition.vector(of))
            except NotComputable as error:
                raise failing(self.step, list({error.index: error, **error.all}.items()), of) from all_rows
        return met


def _true_bits(condition: Vector) -> Buffer:
    """Where a boolean is true: neither false nor null."""
    size = (condition.length + 7) // 8
    if condition.validity is None:
        return bytes(memoryview(condition.data).cast("B")[:size])
    return both(condition.data, condition.validity, size)


def refuse_nulls(step: Aggregating, chunk: Records, conditions: Conditions) -> None:
    """Refuse a null in a column of which numbers are aggregated, or by which rows are chosen, in rows that count."""
    for part in step.plan.parts:
        name = part.by if part.by is not None else part.of if part.name in NEVER_NULL else None
        if name is None or null_among(chunk.vector(str(name)), chunk.picked) is None:
            continue
        met = conditions.met(part, chunk)
        error = DataError(f"'{name}' is null", remedy=f'filter before: .filter(~hg.col("{name}").is_null())')
        counting = [met is None or bit(met, row) for row in chunk.indexes()]
        values = zip(chunk[str(name)], counting, strict=True)
        bad = [(place, error) for place, (one, counts) in enumerate(values) if one is None and counts]
        if bad:
            raise failing(step, bad, chunk)


def vectors_of(arrays: KeyArrays, states: Records) -> list[Vector] | None:
    """Partial states as a vector for each cell; None if they are not in columns, or no numbers."""
    columns = states.vectors
    found = [columns[name] for name in arrays.columns_of_partials if name in columns] if columns is not None else []
    return found if columns is not None and arrays.takes(found) else None


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


def firsts(numbers: Buffer, wanted: Iterable[int]) -> list[int]:
    """Where each of these numbers comes first. They are new: a KeyTable gives numbers in the order in which keys come first.

    >>> firsts(array("q", [0, 3, 4, 3, 5, 4]), [3, 5])
    [1, 4]
    """
    listed, at, found = longs(numbers).tolist(), 0, list[int]()
    for number in wanted:
        at = listed.index(number, at)
        found.append(at)
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


def has_these_bytes(serde: Any, column: Vector) -> bool:
    """Whether keys that this serde writes have the bytes that `KeyTable` gives a column."""
    if column.kind == "text":
        return writes_utf8(serde)
    return column.kind in ("int64", "bool") and serde.name == KEY and serde.type in (None, PYTHON[column.kind])


def same_keys(serde: Any, written: Any) -> bool:
    """Whether keys that one serde has written are as the other writes them."""
    return written is not None and written.name == serde.name and serde.type in (None, written.type)


def chunk_keys(operator: Operator, chunk: Records, serde: Any) -> ChunkKeys:
    """The keys of a chunk of columns, as this serde encodes them."""
    written, values = chunk.key_serde, chunk.key_values
    column = values if isinstance(values, Vector) and has_these_bytes(serde, values) else None
    return ChunkKeys(
        column,
        chunk.key_spans if same_keys(serde, written) else None,
        chunk.picked,
        lambda: keyed(operator, chunk, serde),
    )


def as_keys(chunk: Records, name: str, kind: Logical | None) -> Vector:
    """A column of the base rows as keys: of a time, a date or a decimal, the text that an output has of it."""
    return chunk.vector(name) if kind is None else written(chunk.vector(name), kind, chunk.picked)


def column_keys(column: Vector, serde: Any, chunk: Records, listing: Callable[[], list[Any]]) -> ChunkKeys:
    """The keys of a chunk that stand in one of its columns. `listing` encodes them with this serde."""
    return ChunkKeys(column if has_these_bytes(serde, column) else None, None, chunk.picked, listing)


def keyed(operator: Operator, rows: Records, serde: Any) -> list[bytes]:
    """The keys of rows, as bytes of this serde; raises if a row has no key."""
    if rows.keys is None or None in rows.keys:
        kind = operator.step.verb
        remedy = f'put .repartition("field") before {kind}, or declare the key of the input: key="field", key_serde='
        error = DataError("a record has no key", remedy=remedy)
        keys = rows.keys or [None] * len(rows)
        raise failing(operator.step, [(place, error) for place, key in enumerate(keys) if key is None], rows)
    return encode_keys(operator.step, serde, rows.keys, rows.key_serde, rows)
