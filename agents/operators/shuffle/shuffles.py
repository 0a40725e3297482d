"""The sending side of a shuffle, which may combine what it sends.

Promises: a chunk changes only copies until it is complete, so a failed chunk leaves no trace. Partial states that are combined before a
shuffle give the same result as the rows would. `seal` sends everything that was held back for the commit.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, cast

from ....core.columns.schema import ColumnSchema
from ....core.errors import DataError
from ...job.steps.keyed import AggregateStep
from ...job.steps.sources import ShuffleStep
from ...records.columns.encoder import Encoder
from ...records.columns.records import Records
from ...records.columns.selecting import all_mappings, column_of
from ...records.frames.arrow_frames import FrameWriter
from ...records.layout import Buffer, longs
from ...records.memory.record_spans import RecordSpans, packed, pieces
from ...records.memory.taking import spans_of
from ...records.memory.vectors import Vector
from ...records.values.serdes import stored, writes_utf8
from ..base.addends import (
    Addends,
    ChunkKeys,
    ColumnAddends,
    as_keys,
    column_keys,
    greatest_times,
    later_times,
)
from ..base.key_arrays import Addition, KeyArrays, has_arrays
from ..base.state_cells import CellColumn
from ..base.stateless import BYTES, Env, Operator, blaming, encode, encode_keys, failing

PARTIAL = stored()
"""The serde of partial states between two stages, whatever the serde of the stream."""


class ShuffleOp(Operator):
    """The sending side of a shuffle: writes rows to an intermediate stream."""

    names_origins = True

    def __init__(self, step: ShuffleStep, env: Env) -> None:
        super().__init__(step, env)
        self.shuffle_step = step
        self.by = column_of(step.by) if step.by is not None else None
        self.wants_keys = BYTES if step.by is None else ""
        schema = step.schema or step.columns or ColumnSchema(())
        by_name = isinstance(step.by, str) and step.by in schema.names
        self.kind = schema[str(step.by)].logical if by_name else None
        """The logical type of the column of keys."""
        self.schema = schema
        self.columns = schema.names
        self.writer = FrameWriter(self.columns, Encoder(self.columns).encode, schema=str(schema))

    def keys_of(self, rows: Records) -> list[Any]:
        """The key of each row, in bytes. A record that is broadcast needs none."""
        if self.by is not None:
            return self.encoded(rows, self.select(self.by, rows.values, self.shuffle_step.by))
        return self.encoded(rows, [None] * len(rows.values) if rows.keys is None else rows.keys, rows.key_serde)

    def encoded(self, rows: Records, keys: list[Any], written: Any = None) -> list[Any]:
        """Encode these keys of rows; raise if one is missing, unless the step broadcasts."""
        step = self.shuffle_step
        keys = encode_keys(step, step.key_serde, keys, written, rows)
        if step.by_key and None in keys:
            remedy = "drop such records with .filter(…) before this step, or give them a key"
            error = DataError("the key is None, and equal keys meet", remedy=remedy)
            raise failing(step, [(place, error) for place, key in enumerate(keys) if key is None], rows)
        return keys

    def push(self, rows: Records) -> None:
        step = self.shuffle_step
        if rows.vectors is not None:
            self._push_columns(rows)
            return
        keys = self.keys_of(rows)
        values = encode(step, step.serde, rows.values, rows)
        with blaming(step):  # a value that no frame can hold
            self.env.shuffle(
                step.name, step.everyone, keys, rows.timestamps, values, rows.headers, offsets=rows.offsets
            )

    def _push_columns(self, chunk: Records) -> None:
        step = self.shuffle_step
        keyed = chunk.with_key_spans(self._key_spans(chunk))
        with blaming(step):  # a value that no frame can hold
            self.env.shuffle_columns(step.name, step.everyone, self.writer, keyed)

    def _own_key_spans(self, chunk: Records) -> RecordSpans | None:
        """The keys that the rows have."""
        own, written = self.shuffle_step.key_serde, chunk.key_serde
        if chunk.key_spans is not None and written is not None and written.name == own.name:
            return chunk.key_spans
        keys = chunk.keys
        if keys is None:
            return None
        return chunk.spread_spans(packed(self.encoded(chunk, keys, written)))

    def _key_spans(self, chunk: Records) -> RecordSpans | None:
        """The keys of the base rows, in bytes; None if rows need none and have none. Raises if a selected row has none and needs one."""
        if self.by is None:
            return self._own_key_spans(chunk)
        vector = self.key_column(chunk)
        if vector.kind == "text" and vector.validity is None and writes_utf8(self.shuffle_step.key_serde):
            return spans_of(vector)  # the text itself is the key
        return chunk.spread_spans(packed(self.encoded(chunk, chunk.listed(vector))))

    def key_column(self, chunk: Records) -> Vector:
        """The keys of the base rows, as user code sees them."""
        return as_keys(chunk, str(self.shuffle_step.by), self.kind)

    def keys_of_columns(self, chunk: Records) -> list[Any]:
        """The key of each row of columns, in bytes."""
        return self.encoded(chunk, chunk.listed(self.key_column(chunk)))

    def chunk_keys(self, chunk: Records) -> ChunkKeys:
        """The keys of a chunk of columns."""
        column = self.key_column(chunk)
        return column_keys(column, self.shuffle_step.key_serde, chunk, lambda: self.keys_of_columns(chunk))

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

    names_origins = False
    of_letter = ("fresh", "fresh_ts", "pending")

    def __init__(self, step: ShuffleStep, env: Env) -> None:
        super().__init__(step, env)
        self.aggregate: AggregateStep = cast("AggregateStep", step.combine)
        self.plan = self.aggregate.plan
        self.arrays = KeyArrays(self.plan) if has_arrays(self.plan, step.parents[0].columns_given) else None
        self.pending: list[Addition] = []
        self.suspended: list[Addition] = []
        """What a chunk adds that is set aside while a transaction is sealed."""
        self.partials: FrameWriter | None = None
        if self.arrays is not None and not self.arrays.has_objects:
            self.partials = FrameWriter(self.arrays.fields, self.arrays.pack_batch, plan=self.plan.digest)
        self.settled: dict[Any, list[Any]] = {}
        self.fresh: dict[Any, list[Any]] = {}
        self.settled_ts: dict[Any, int] = {}
        self.fresh_ts: dict[Any, int] = {}
        self.merged: dict[Any, list[Any]] = {}

    def keys_of(self, rows: Records) -> list[Any]:
        step = self.shuffle_step
        if self.by is None or not writes_utf8(step.key_serde):
            return super().keys_of(rows)
        return self._as_text(rows, self.select(self.by, rows.values, step.by))

    def keys_of_columns(self, chunk: Records) -> list[Any]:
        step = self.shuffle_step
        if not writes_utf8(step.key_serde):
            return super().keys_of_columns(chunk)
        return self._as_text(chunk, chunk.listed(self.key_column(chunk)))

    def _as_text(self, rows: Records, keys: list[Any]) -> list[Any]:
        """Keys that are all text stay so, if they can be encoded: text that cannot must fail with its record, not at the commit."""
        is_text = set(map(type, keys)) == {str} and all(map(str.isascii, keys))
        return keys if is_text else self.encoded(rows, keys)

    def push(self, rows: Records) -> None:
        if rows.vectors is not None:
            self._combine(ColumnAddends(self.aggregate, rows, self.chunk_keys))
        else:
            self._combine(Addends(self.aggregate, self.keys_of(rows), rows.values, rows.timestamps))

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
        return states

    def prepare(self) -> None:
        """Merge what does not fit into arrays into copies: `merge` may be a user function, and may raise for any key."""
        arrays = self.arrays
        for one in self.pending if arrays is not None else ():
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
        return super().suspend()

    def resume(self, aside: Any) -> None:
        super().resume(aside)
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

    def _send_arrays(self, keys: RecordSpans, states: Sequence[CellColumn], times: Buffer) -> None:
        arrays, writer, step = self.arrays, self.partials, self.shuffle_step
        assert arrays is not None
        if writer is None:
            listed = pieces(keys)
            self._send(
                dict(zip(listed, arrays.lists(states), strict=True)), dict(zip(listed, longs(times), strict=True))
            )
            return
        with blaming(step):
            of = Records.of_vectors(arrays.named(states), times, key_spans=keys)
            self.env.shuffle_columns(step.name, step.everyone, writer, of)

    def _send(self, states: dict[Any, list[Any]], times: dict[Any, int]) -> None:
        step = self.shuffle_step
        keys = [key if type(key) is bytes else key.encode() for key in states]
        values = encode(step, PARTIAL, list(states.values()))
        with blaming(step):
            self.env.shuffle(
                step.name, step.everyone, keys, [times[key] for key in states], values, plan=self.plan.digest
            )
