"""The operators that work by key: shuffles, aggregates, tables, joins.

Promises: a chunk changes only copies until it is complete, so a failed chunk leaves no trace. Partial states that are combined before a
shuffle give the same result as the rows would. `seal` emits everything that was held back for the commit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import compress, islice
from typing import Any

from ...core.columns.schema import PYTHON, ColumnSchema
from ...core.errors import DataError
from ..job import steps as s
from ..job.aggregates import NUMERIC
from ..records.arrow_columns import ArrivedColumns
from ..records.arrow_frames import FrameWriter
from ..records.column_chunk import ColumnChunk
from ..records.decoder import RecordSpans
from ..records.encoder import Encoder
from ..records.groups import KeyTable, null_among, numbers_in
from ..records.record import Rows
from ..records.selecting import all_mappings, column_of
from ..records.serdes import KEY, msgpack, writes_utf8
from ..records.spans import packed, pieces
from ..records.taking import spans_of
from ..records.vectors import Buffer, Vector, longs
from .key_arrays import NULL_NUMBER, Addition, KeyArrays, has_arrays
from .stateless import BYTES, Env, Operator, UserCodeError, blaming, encode, encode_keys, select_rows

PARTIAL = msgpack()
"""The serde of partial states between two stages, whatever the serde of the stream."""


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


class ShuffleOp(Operator):
    """The sending side of a shuffle: writes rows to an intermediate stream."""

    def __init__(self, step: s.ShuffleStep, env: Env) -> None:
        super().__init__(step, env)
        self.shuffle_step = step
        self.by = column_of(step.by) if step.by is not None else None
        self.wants_keys = BYTES if step.by is None else ""
        schema = step.schema if step.schema is not None else ColumnSchema(())
        self.columns = schema.names
        self.writer = FrameWriter(self.columns, Encoder(self.columns).encode, schema=str(schema))

    def keys_of(self, rows: Rows) -> list[Any]:
        """The key of each row, in bytes. A record that is broadcast needs none."""
        if self.by is not None:
            return self.encoded(self.select(self.by, rows.values, self.shuffle_step.by))
        return self.encoded([None] * len(rows.values) if rows.keys is None else rows.keys, rows.key_serde)

    def encoded(self, keys: list[Any], written: Any = None) -> list[Any]:
        """Encode these keys; raise if one is missing, unless the step broadcasts."""
        step = self.shuffle_step
        keys = encode_keys(step, step.key_serde, keys, written)
        if not step.everyone and None in keys:
            remedy = "drop such records with .filter(…) before this step, or give them a key"
            raise UserCodeError(
                step, DataError("the key is None, and equal keys meet", remedy=remedy), keys.index(None)
            )
        return keys

    def push(self, rows: Rows) -> None:
        step = self.shuffle_step
        keys = self.keys_of(rows)
        values = encode(step, step.serde, rows.values)
        with blaming(step):  # a value that no frame can hold
            self.env.shuffle(step.name, step.everyone, keys, rows.timestamps, values, rows.headers)

    def push_columns(self, chunk: ColumnChunk) -> None:
        step = self.shuffle_step
        assert step.schema is not None
        keys = self._key_spans(chunk)
        batch, rows = chunk.batch(step.schema)
        with blaming(step):  # a value that no frame can hold
            self.env.shuffle_columns(
                step.name, step.everyone, self.writer, keys, chunk.times, batch, rows=rows, headers=chunk.header_spans
            )

    def _key_spans(self, chunk: ColumnChunk) -> RecordSpans:
        """The keys of the base rows, in bytes; raises if a selected row has none."""
        vector = chunk.vector(str(self.shuffle_step.by))
        if vector.kind == "text" and vector.validity is None and writes_utf8(self.shuffle_step.key_serde):
            return spans_of(vector)  # the text itself is the key
        keys: list[bytes | None] = [None] * chunk.base_length
        for row, key in zip(chunk.indexes(), self.encoded(chunk[str(self.shuffle_step.by)]), strict=True):
            keys[row] = key
        return packed(keys)

    def keys_of_columns(self, chunk: ColumnChunk) -> list[Any]:
        """The key of each row of columns, in bytes."""
        return self.encoded(chunk[str(self.shuffle_step.by)])

    def chunk_keys(self, chunk: ColumnChunk) -> ChunkKeys:
        """The keys of a chunk of columns."""
        column = chunk.vector(str(self.shuffle_step.by))
        same = has_these_bytes(self.shuffle_step.key_serde, column)
        return ChunkKeys(column if same else None, None, chunk.picked, lambda: self.keys_of_columns(chunk))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return frozenset(self.columns)


class CombineOp(ShuffleOp):
    """The sending side of a shuffle that combines rows for the aggregate behind it: each commit sends one partial state per key.

    Keys are distinguished by their bytes, here and in all later steps: 1 and True are two keys.

    Numbers of 64 bits are added in `arrays`: what the running chunk adds there waits as `pending`, which changes nothing. All other
    partial states are lists: `settled` holds those of completed chunks of the open transaction, `fresh` those of the running chunk.
    `prepare` merges the states of keys in both, with the user's `merge`, into `merged`. A key is in `arrays` or in `settled`. The time of
    a partial state is the greatest of its rows.
    """

    def __init__(self, step: s.ShuffleStep, env: Env) -> None:
        super().__init__(step, env)
        assert isinstance(step.combine, s.AggregateStep)
        self.aggregate = step.combine
        self.plan = step.combine.plan
        self.arrays = KeyArrays(self.plan) if has_arrays(self.plan) else None
        self.pending: list[Addition] = []
        self.suspended: list[Addition] = []
        """What a chunk adds that is set aside while a transaction is sealed."""
        self.partials: FrameWriter | None = None
        if self.arrays is not None:
            self.partials = FrameWriter(self.arrays.fields, self.arrays.pack_batch, plan=self.plan.digest)
        self.settled: dict[Any, list[Any]] = {}
        self.fresh: dict[Any, list[Any]] = {}
        self.settled_ts: dict[Any, int] = {}
        self.fresh_ts: dict[Any, int] = {}
        self.merged: dict[Any, list[Any]] = {}
        self.careful = False
        """A commit has failed on what was held back: partial states are now sent with each chunk, so that a failure belongs to a record."""

    def keys_of(self, rows: Rows) -> list[Any]:
        step = self.shuffle_step
        if self.by is None or not writes_utf8(step.key_serde):
            return super().keys_of(rows)
        return self._as_text(self.select(self.by, rows.values, step.by))

    def keys_of_columns(self, chunk: ColumnChunk) -> list[Any]:
        step = self.shuffle_step
        if not writes_utf8(step.key_serde):
            return super().keys_of_columns(chunk)
        return self._as_text(chunk[str(step.by)])

    def _as_text(self, keys: list[Any]) -> list[Any]:
        """Keys that are all text stay so, if they can be encoded: text that cannot must fail with its record, not at the commit."""
        is_text = set(map(type, keys)) == {str} and all(map(str.isascii, keys))
        return keys if is_text else self.encoded(keys)

    def push(self, rows: Rows) -> None:
        self._combine(Addends(self.aggregate, self.keys_of(rows), rows))

    def push_columns(self, chunk: ColumnChunk) -> None:
        self._combine(ColumnAddends(self.aggregate, chunk, self.chunk_keys(chunk)))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return self.plan.reads | {str(self.shuffle_step.by)}

    def _combine(self, of: Addends | ColumnAddends) -> None:
        if self.careful:
            keys = of.listed()
            times = greatest_times(keys, of.timestamps)
            self._send(self._added(keys, of, {key: self.plan.start() for key in times}), times)
            return
        arrays = self.arrays
        if arrays is not None and not self.fresh and not self.pending:
            with of.blaming():
                addition = of.addition(arrays)
            if addition is not None:
                self.pending = [addition]
                if of.limited:
                    refuse_large(self.aggregate, arrays, addition)
                return
        self._to_copies()
        self._add_to_copies(of)

    def _to_copies(self) -> None:
        """Add what waits for the arrays to copies, like the rest of the chunk."""
        waiting, self.pending = self.pending, []
        for one in waiting:
            self._add_to_copies(one.source)

    def _add_to_copies(self, of: Addends | ColumnAddends) -> None:
        keys = of.listed()
        times = greatest_times(keys, of.timestamps)
        fresh, start = self.fresh, self.plan.start
        for key in times:
            if key not in fresh:
                fresh[key] = start()
        self._added(keys, of, fresh)
        later_times(self.fresh_ts, times)

    def _added(
        self, keys: list[Any], of: Addends | ColumnAddends, states: dict[Any, list[Any]]
    ) -> dict[Any, list[Any]]:
        with of.blaming():
            values = of.values()
            self.plan.add(keys, values, states, items=all_mappings(values))
            if of.limited:
                check_sums(self.aggregate, states)
        return states

    def prepare(self) -> None:
        """Refuse a sum of columns that is too large. Merge into copies: `merge` may be a user function, and may raise for any key."""
        arrays = self.arrays
        for one in self.pending if arrays is not None else ():
            if arrays is not None and one.source.limited:
                refuse_large(self.aggregate, arrays, one)
            refused = arrays.refused(one) if arrays is not None else []
            if refused or (arrays is not None and arrays.meets_odd(one)):
                self._to_copies()
        if self.fresh:
            self._settle_apart()
            both = [key for key in self.fresh if key in self.settled]
            with blaming(self.aggregate):
                merged = {key: self.plan.copy(self.settled[key]) for key in both}
                self.plan.merge(both, [self.fresh[key] for key in both], merged)
            self.merged = merged

    def _settle_apart(self) -> None:
        """From now on, the keys of the running chunk have no states in arrays."""
        arrays = self.arrays
        if arrays is None:
            return
        keys = list(self.fresh)
        numbers = arrays.keys.numbers_listed(keys)
        held = set(longs(arrays.changed()))
        there = [at for at, number in enumerate(longs(numbers)) if number in held]
        found = array("q", [longs(numbers)[at] for at in there])
        vectors, times = arrays.cells.take(found) if there else ([], array("q"))
        for at, state, time in zip(there, arrays.lists(vectors) if there else [], longs(times), strict=True):
            self.settled[keys[at]], self.settled_ts[keys[at]] = state, time
        arrays.odd.update(longs(numbers))

    def complete(self) -> None:
        self.settled.update(self.fresh)
        self.settled.update(self.merged)
        for one in self.pending if self.arrays is not None else ():
            assert self.arrays is not None
            self.arrays.add(one)
        later_times(self.settled_ts, self.fresh_ts)
        self.drop()

    def drop(self) -> None:
        self.fresh, self.fresh_ts, self.pending, self.merged = {}, {}, [], {}

    def suspend(self) -> Any:
        self.suspended = self.pending
        aside = self.fresh, self.fresh_ts, self.pending
        self.drop()
        return aside

    def resume(self, aside: Any) -> None:
        self.fresh, self.fresh_ts, self.pending = aside
        self.suspended = []

    def seal(self) -> None:
        arrays = self.arrays
        if arrays is not None and len(arrays.keys):
            changed = arrays.changed()
            keys, (states, times) = arrays.keys.keys(changed)[0], arrays.cells.take(changed)
            arrays.clear()
            arrays.number(self.suspended)
            if len(changed):
                self._send_arrays(keys, states, times)
        if self.settled:
            states, self.settled = self.settled, {}
            times, self.settled_ts = self.settled_ts, {}
            self._send(states, times)

    def _send_arrays(self, keys: RecordSpans, states: list[Vector], times: Buffer) -> None:
        arrays, writer, step = self.arrays, self.partials, self.shuffle_step
        assert arrays is not None
        assert writer is not None
        with blaming(step):
            self.env.shuffle_columns(step.name, step.everyone, writer, keys, times, arrays.batch(states))

    def _send(self, states: dict[Any, list[Any]], times: dict[Any, int]) -> None:
        step = self.shuffle_step
        keys = [key if type(key) is bytes else key.encode() for key in states]
        values = encode(step, PARTIAL, list(states.values()))
        with blaming(step):
            self.env.shuffle(
                step.name, step.everyone, keys, [times[key] for key in states], values, plan=self.plan.digest
            )


class AggregateOp(Operator):
    """A running aggregate for each key. Its states are a table; each commit passes updates on. Keys are in bytes.

    Between commits the states are kept here. Numbers of 64 bits are in `arrays`: what the running chunk adds there waits as `pending`,
    which changes nothing. All other states are lists: `fresh` holds those of the running chunk (copies, so that a failed chunk leaves no
    trace), `states` those of completed chunks. Each commit writes the changed keys to the table. Unchanged states count as cached rows of
    the table and can be dropped at any time, because the store has them. The time of an update is the greatest of its rows.
    """

    gives_keys = True

    def __init__(self, step: s.AggregateStep, env: Env) -> None:
        super().__init__(step, env)
        self.aggregate = step
        self.plan = step.plan
        self.key_serde = step.key_serde
        self.table = env.table(step.name)
        self.wants_keys = BYTES
        self.partial = any(isinstance(parent, s.ShuffleStep) and parent.combine for parent in step.parents)
        self.arrays: KeyArrays | None = None
        if has_arrays(self.plan):
            self.arrays = KeyArrays(self.plan, partial=self.partial, head=self.table.head)
        self.pending: list[Addition] = []
        self.suspended: list[Addition] = []
        """What a chunk adds that is set aside while a transaction is sealed."""
        self.states: dict[Any, list[Any]] = {}
        self.held = self.table.keep(self.states, self._give_back, self._reserved)
        self.dirty: dict[Any, int] = {}
        """The times of the keys in `states` that have changed."""
        self.fresh: dict[Any, list[Any]] = {}
        self.fresh_ts: dict[Any, int] = {}
        self.loading = False
        """States are being loaded: their numbers must stay what they are."""
        self.at_once = False
        """Updates are passed on with each chunk instead of each commit: a later step awaits, which `seal` cannot do, or a failure in a
        later step is to cost a record."""
        self.careful = False
        """A commit has failed on what was held back: the table is now written with each chunk, too."""

    def push(self, rows: Rows) -> None:
        keys = keyed(self, rows, self.key_serde)
        of = Addends(self.aggregate, keys, rows, partial=self.partial)
        if self.partial and rows.plan != self.plan.digest:
            with of.blaming():
                of.rows = replace(rows, values=self._of_former_code(rows.plan, rows.values))
        self._aggregate(of)

    def push_columns(self, chunk: ColumnChunk) -> None:
        self._aggregate(ColumnAddends(self.aggregate, chunk, chunk_keys(self, chunk, self.key_serde)))

    @property
    def merges_columns(self) -> bool:
        return self.arrays is not None

    def push_partials(self, columns: ArrivedColumns, written: Any) -> bool:
        arrays = self.arrays
        if arrays is None or not same_keys(self.key_serde, written) or columns.plan != self.plan.digest:
            return False
        of = PartialAddends(self.aggregate, columns)
        with of.blaming():
            addition = None if self.fresh or self.pending or self.at_once else of.addition(arrays)
            if addition is None:
                return False
            self.pending = [addition]
            self._look_up(arrays)
        return True

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return self.plan.reads

    def _aggregate(self, of: Addends | ColumnAddends) -> None:
        arrays = self.arrays
        with of.blaming():
            if arrays is not None and not self.fresh and not self.pending and not self.at_once:
                addition = of.addition(arrays)
                if addition is not None:
                    self.pending = [addition]
                    self._look_up(arrays)
                    if of.limited and not arrays.meets_odd(addition):
                        refuse_large(self.aggregate, arrays, addition)
                    return
            self._to_copies()
            times = self._add_to_copies(of)
        if self.careful:
            self._write(times, self.fresh)
        if self.at_once:
            self._give_on(times, self.fresh)

    def _of_former_code(self, plan: int | None, values: list[Any]) -> list[Any]:
        """Convert partial states that were in flight when the code was changed to the form of this code."""
        layout = self.table.layout
        schema = layout.of_partials(plan)
        return [layout.adapt(schema, value) for value in values]

    # ---------------------------------------------------------------------------------------------------------- copies

    def _to_copies(self) -> None:
        """Add what waits for the arrays to copies, like the rest of the chunk."""
        waiting, self.pending = self.pending, []
        for one in waiting:
            self._add_to_copies(one.source)

    def _add_to_copies(self, of: Addends | ColumnAddends | PartialAddends) -> dict[Any, int]:
        """Returns the times of the keys that it adds to."""
        fresh, keys = self.fresh, of.listed()
        times = greatest_times(keys, of.timestamps)
        self._fetch([key for key in times if key not in fresh])
        values = of.values()
        if self.partial:
            self.plan.merge(keys, values, fresh)
        else:
            self.plan.add(keys, values, fresh, items=all_mappings(values))
        if of.limited:
            check_sums(self.aggregate, fresh)
        later_times(self.fresh_ts, times)
        return times

    def _fetch(self, keys: list[Any]) -> None:
        """Copy the states of these keys into `fresh`, for the running chunk."""
        fresh, states, copy = self.fresh, self.states, self.plan.copy
        known = [key for key in keys if key in states]
        fresh.update((key, copy(states[key])) for key in known)
        unknown = [key for key in keys if key not in states] if len(known) < len(keys) else []
        if self.arrays is None:
            found = self.table.fetch(unknown) if unknown else []
            fresh.update(
                (key, self.plan.start() if one is None else list(one)) for key, one in zip(unknown, found, strict=True)
            )
        elif unknown:
            numbers = self.arrays.keys.numbers_listed(unknown)
            self._look_up(self.arrays)
            fresh.update(zip(unknown, self.arrays.states(numbers), strict=True))
            fresh.update((key, copy(states[key])) for key in unknown if key in states)

    def _look_up(self, arrays: KeyArrays) -> None:
        """Load the committed states of new keys."""
        numbers, keys = arrays.unknown()
        if not keys:
            return
        arrays.reserve()
        self.loading = True
        try:
            rows = self.table.newest(keys)
            stored = [at for at, row in enumerate(rows) if row is not None]
            if stored:
                vectors, odd = arrays.unpack(packed([rows[at] for at in stored]))
                there = array("q", [numbers[at] for at in stored])
                arrays.cells.put(len(arrays.keys), there, vectors)
                others = {keys[stored[at]]: rows[stored[at]] for at in odd}
                found = {key: self.table.read(row) for key, row in others.items()}
                found = {key: list(state) for key, state in found.items() if state is not None}
                self._keep(found, None)
                self.held.add(list(others), list(others.values()))
            arrays.known = len(arrays.keys)
        finally:
            self.loading = False
            if arrays.known < len(arrays.keys):
                self.pending = []
                arrays.forget_unknown()

    def _keep(self, states: dict[Any, list[Any]], times: dict[Any, int] | None) -> None:
        """Take over states: into arrays what fits. With times they have changed."""
        arrays = self.arrays
        apart = states
        if arrays is not None and states:
            vectors = arrays.vectors(list(states.values()))
            apart = {} if vectors is not None else {k: one for k, one in states.items() if not arrays.vectors([one])}
            fits = {key: one for key, one in states.items() if key not in apart} if apart else states
            if fits:
                for key in fits.keys() & self.states.keys():
                    del self.states[key]
                    if times is not None:
                        times[key] = max(times[key], self.dirty.pop(key, times[key]))
                vectors = vectors or arrays.vectors(list(fits.values()))
                assert vectors is not None
                arrays.put(list(fits), vectors, None if times is None else [times[key] for key in fits])
            if apart:
                arrays.odd.update(longs(arrays.known_numbers(list(apart))))
        self.states.update(apart)
        if times is not None:
            later_times(self.dirty, {key: times[key] for key in apart})

    # -------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        """Refuse a sum of columns that is too large. Use copies for what does not fit into arrays: a commit in the middle of the chunk may
        have changed states, too."""
        arrays = self.arrays
        for one in self.pending if arrays is not None else ():
            assert arrays is not None
            odd = arrays.meets_odd(one)
            if one.source.limited and not odd:
                refuse_large(self.aggregate, arrays, one)
            if odd or arrays.refused(one):
                with blaming(self.step):
                    self._to_copies()

    def complete(self) -> None:
        if self.fresh:
            self._keep(self.fresh, self.fresh_ts)
        for one in self.pending:
            assert self.arrays is not None
            self.arrays.add(one)
        self.drop()
        self.held.count()

    def _reserved(self) -> int:
        return 0 if self.arrays is None else self.arrays.memory()

    def _give_back(self) -> None:
        """Evict states that neither a commit nor the running chunk needs: all of them from the arrays, half of the lists, oldest first."""
        if self.loading:
            return
        states = self.states
        additions = [*self.pending, *self.suspended]
        needed = {*self.dirty, *self.fresh_ts, *(key for one in additions if states for key in one.source.listed())}
        half = islice(states, (len(states) + 1) // 2)
        gone = [k for k in half if k not in needed] or [k for k in states if k not in needed]
        for key in gone:
            del states[key]
        if self.arrays is not None and len(self.arrays.keys):
            self.arrays.retain(additions)
            self.arrays.set_odd(list(states))
        gone += [key for key in self.held.large if key not in states and key not in needed]
        self.held.forget(gone)

    def drop(self) -> None:
        self.fresh, self.fresh_ts, self.pending = {}, {}, []

    def seal(self) -> None:
        if self.arrays is not None:
            self._seal_arrays(self.arrays)
        if not self.dirty:
            return
        dirty, self.dirty = self.dirty, {}
        states = self.states
        if not self.careful:
            self._write(dirty, states)
        if not self.at_once:
            self._give_on(dirty, states)

    def _seal_arrays(self, arrays: KeyArrays) -> None:
        changed = arrays.changed()
        if not len(changed):
            return
        keys, logged = arrays.keys.keys(changed, self.table.prefix)
        states, times = arrays.cells.take(changed)
        arrays.cells.settle()
        if not self.careful:
            self.table.put_packed(keys, logged, arrays.pack(states))
        if self.at_once:
            return
        if any(child.takes_updates() for child in self.children):
            results = dict(zip(self.plan.names, arrays.results(states), strict=True))
            chunk = ColumnChunk(results, times, key_spans=keys, key_serde=self.key_serde)
            for child in self.children:
                if child.takes_updates():
                    child.push_updates(chunk)
        others = [child for child in self.children if not child.takes_updates()]
        if others:
            with blaming(self.step):
                results = self.plan.results(arrays.lists(states))
            found: Any = pieces(keys)
            for child in others:
                child.push(Rows(results, longs(times).tolist(), found, key_serde=self.key_serde))

    def _write(self, dirty: dict[Any, int], states: dict[Any, list[Any]]) -> None:
        copy = self.plan.copy  # later rows must not change what the table keeps
        self.table.put({key: copy(states[key]) for key in dirty})

    def _give_on(self, dirty: dict[Any, int], states: dict[Any, list[Any]]) -> None:
        if not self.children:
            return
        with blaming(self.step):
            results = self.plan.results([states[key] for key in dirty])
        self.forward(Rows(results, list(dirty.values()), list(dirty), key_serde=self.key_serde))

    def suspend(self) -> Any:
        self.suspended = self.pending
        aside = self.fresh, self.fresh_ts, self.pending
        self.drop()
        return aside

    def resume(self, aside: Any) -> None:
        self.fresh, self.fresh_ts, self.pending = aside
        self.suspended = []


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


class TableOp(Operator):
    """Keeps the last value of each key; a null value deletes the key."""

    wants_keys = BYTES

    def __init__(self, step: s.TableStep, env: Env) -> None:
        super().__init__(step, env)
        self.table = env.table(step.name)
        self.key_serde = step.key_serde

    def push(self, rows: Rows) -> None:
        last = dict(zip(keyed(self, rows, self.key_serde), rows.values, strict=True))
        gone = [key for key, value in last.items() if value is None]
        for key in gone:
            del last[key]
        with blaming(self.step):
            self.table.put(last)
        self.table.remove(gone)
        self.forward(rows)


class JoinTableOp(Operator):
    """Joins each row with its row of a table."""

    def __init__(self, step: s.JoinTableStep, env: Env) -> None:
        super().__init__(step, env)
        self.join = step
        self.on = column_of(step.on) if step.on is not None else None
        self.table = env.table(step.table.name)
        self.wants_keys = BYTES if step.on is None else ""

    def push(self, rows: Rows) -> None:
        values = rows.values
        serde = self.join.table.key_serde
        if self.on is not None:
            keys = encode_keys(self.step, serde, self.select(self.on, values, self.join.on))
        else:
            keys = keyed(self, rows, serde)
        distinct = [key for key in dict.fromkeys(keys) if key is not None]
        with blaming(self.step):
            found: dict[Any, Any] = dict(zip(distinct, self.table.fetch(distinct), strict=True))
        found[None] = None
        into = self.join.into
        if self.join.how == "inner":
            keep = [found[key] is not None for key in keys]
            if not all(keep):
                self.env.count("join_misses", keep.count(False))
                rows = select_rows(rows, keep)
                keys = list(compress(keys, keep))
        with blaming(self.step):
            joined = [into(value, found[key]) for value, key in zip(rows.values, keys, strict=True)]
        self.forward(rows.with_values(joined))
