"""The operators that work by key: shuffles, aggregates, tables, joins.

Promises: a chunk changes only copies until it is complete, so a failed chunk leaves no trace. Partial states that are combined before a
shuffle give the same result as the rows would. `seal` emits everything that was held back for the commit.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import compress, islice
from typing import Any

from ...core.columns.schema import ColumnSchema
from ...core.errors import DataError
from ..job import steps as s
from ..job.aggregates import NUMERIC, ValueColumns
from ..records.arrow_frames import FrameWriter
from ..records.column_chunk import ColumnChunk
from ..records.decoder import RecordSpans
from ..records.encoder import Encoder
from ..records.record import Rows
from ..records.selecting import all_mappings, column_of
from ..records.serdes import msgpack, writes_utf8
from ..records.spans import packed
from ..records.taking import spans_of
from .stateless import BYTES, Env, Operator, UserCodeError, blaming, encode, encode_keys, select_rows

PARTIAL = msgpack()
"""The serde of partial states between two stages, whatever the serde of the stream."""


class Addends:
    """What a chunk of rows, or of partial states, adds to the states of an aggregate."""

    def __init__(self, step: s.AggregateStep, rows: Rows, *, partial: bool = False) -> None:
        self.step = step
        self.rows = rows
        self.partial = partial

    def blaming(self) -> blaming:
        """Errors in this block are the aggregate's; the message says which field a row lacks."""
        return blaming(self.step, None if self.partial else self.step.plan.lacking(self.rows.values))

    def columns(self) -> ValueColumns | None:
        """The columns of numbers for `AggregatePlan.add_columns`; None if they are not all numbers."""
        return self.step.plan.columns(self.rows.values, partial=self.partial)

    def values(self) -> list[Any]:
        """The rows."""
        return self.rows.values


class ColumnAddends:
    """What a chunk of columns adds to the states of an aggregate. Rows are made only if its states are not all numbers."""

    def __init__(self, step: s.AggregateStep, chunk: ColumnChunk) -> None:
        self.step = step
        self.chunk = chunk

    def blaming(self) -> blaming:
        """Errors in this block are the aggregate's."""
        return blaming(self.step)

    def columns(self) -> ValueColumns | None:
        """The columns of numbers for `AggregatePlan.add_columns`; None if they are not all numbers."""
        self._no_nulls()
        return self.step.plan.columns_of(self.chunk)

    def values(self) -> list[Any]:
        """The columns as rows."""
        self._no_nulls()
        return self.chunk.rows(sorted(self.step.plan.reads)).values

    def _no_nulls(self) -> None:
        for part in self.step.plan.parts:
            column = self.chunk[str(part.of)] if part.name in NUMERIC and part.of is not None else ()
            if None in column:
                raise UserCodeError(
                    self.step,
                    DataError(f"'{part.of}' is null", remedy=f'filter before: .filter(~hg.col("{part.of}").is_null())'),
                    column.index(None),
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
        self.writer = FrameWriter(
            [(one.name, one.type) for one in schema.columns], Encoder(self.columns).encode, schema=str(schema)
        )

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

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return frozenset(self.columns)


class CombineOp(ShuffleOp):
    """The sending side of a shuffle that combines rows for the aggregate behind it: each commit sends one partial state per key.

    Keys are distinguished by their bytes, here and in all later steps: 1 and True are two keys. If the selected keys of a chunk are all
    text, the text itself is the key: it equals no other key's bytes, and is encoded once per commit.

    `settled` holds the partial states of completed chunks of the open transaction, `fresh` those of the running chunk. `settled_ts` and
    `fresh_ts` hold the time of each key's last row. `prepare` merges the states of keys in both, with the user's `merge`, into `merged`.
    """

    def __init__(self, step: s.ShuffleStep, env: Env) -> None:
        super().__init__(step, env)
        assert isinstance(step.combine, s.AggregateStep)
        self.aggregate = step.combine
        self.plan = step.combine.plan
        self.settled: dict[Any, list[Any]] = {}
        self.fresh: dict[Any, list[Any]] = {}
        self.settled_ts: dict[Any, int] = {}
        self.fresh_ts: dict[Any, int] = {}
        self.merged: dict[Any, list[Any]] = {}
        self.numbers: list[tuple[list[Any], Any]] = []
        """Columns of numbers of the running chunk. Adding them cannot fail, so they wait for `complete` and need no copies."""
        self.odd = False
        """Some settled state may not be a number, so columns are not added."""
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
        return keys if set(map(type, keys)) == {str} else self.encoded(keys)

    def push(self, rows: Rows) -> None:
        self._combine(self.keys_of(rows), rows.timestamps, Addends(self.aggregate, rows))

    def push_columns(self, chunk: ColumnChunk) -> None:
        self._combine(self.keys_of_columns(chunk), chunk.timestamps, ColumnAddends(self.aggregate, chunk))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return self.plan.reads | {str(self.shuffle_step.by)}

    def _combine(self, keys: list[Any], timestamps: list[int], of: Addends | ColumnAddends) -> None:
        times = dict(zip(keys, timestamps, strict=True))
        if not all(type(key) is bytes or key.isascii() for key in times if key not in self.settled):
            self.encoded(keys)  # text that cannot be encoded as UTF-8 must fail with its record, not at the commit
        if self.careful:
            self._send(self._added(keys, of, {key: self.plan.start() for key in times}), times)
            return
        with of.blaming():
            columns = None if self.fresh or self.odd else of.columns()
        if columns is not None:
            self.numbers.append((keys, columns))
            self.fresh_ts.update(times)
            return
        fresh, start = self.fresh, self.plan.start
        waiting, self.numbers = self.numbers, []
        for earlier, columns in waiting:  # from here on, the whole chunk goes into copies
            self.plan.add_columns(earlier, columns, fresh, partial=False)
        for key in times:
            if key not in fresh:
                fresh[key] = start()
        self._added(keys, of, fresh)
        self.fresh_ts.update(times)

    def _added(
        self, keys: list[Any], of: Addends | ColumnAddends, states: dict[Any, list[Any]]
    ) -> dict[Any, list[Any]]:
        with of.blaming():
            values = of.values()
            self.plan.add(keys, values, states, items=all_mappings(values))
        return states

    def prepare(self) -> None:
        """Merge into copies, because `merge` may be a user function and may raise for any key."""
        settled, fresh = self.settled, self.fresh
        both = [key for key in fresh if key in settled]
        if both:
            with blaming(self.aggregate):
                merged = {key: self.plan.copy(settled[key]) for key in both}
                self.plan.merge(both, [fresh[key] for key in both], merged)
            self.merged = merged

    def complete(self) -> None:
        if self.fresh:
            self.settled.update(self.fresh)
            self.settled.update(self.merged)
            self.odd = True
        for keys, columns in self.numbers:
            self.plan.add_columns(keys, columns, self.settled, partial=False)
        self.settled_ts.update(self.fresh_ts)
        self.drop()

    def drop(self) -> None:
        self.fresh, self.fresh_ts, self.numbers, self.merged = {}, {}, [], {}

    def suspend(self) -> Any:
        aside = self.fresh, self.fresh_ts, self.numbers
        self.drop()
        return aside

    def resume(self, aside: Any) -> None:
        self.fresh, self.fresh_ts, self.numbers = aside

    def seal(self) -> None:
        if self.settled:
            states, self.settled = self.settled, {}
            times, self.settled_ts = self.settled_ts, {}
            self.odd = False
            self._send(states, times)

    def _send(self, states: dict[Any, list[Any]], times: dict[Any, int]) -> None:
        step = self.shuffle_step
        keys = [key if type(key) is bytes else key.encode() for key in states]
        values = encode(step, PARTIAL, list(states.values()))
        with blaming(step):
            self.env.shuffle(
                step.name, step.everyone, keys, [times[key] for key in states], values, plan=self.plan.digest
            )


class AggregateOp(Operator):
    """A running aggregate for each key. Its states are a table; each commit passes updates on.

    Between commits the decoded states are kept here: `fresh` holds those of the running chunk (copies, so that a failed chunk leaves no
    trace), `states` those of completed chunks. Each commit writes the changed keys to the table. Unchanged states count as cached rows of
    the table and can be dropped at any time, because the store has them. Keys are in bytes.
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
        self.states: dict[Any, list[Any]] = {}
        self.held = self.table.keep(self.states, self._give_back)
        self.gave_back = False
        """States that the running chunk has loaded may have been evicted since."""
        self.dirty: dict[Any, int] = {}
        self.fresh: dict[Any, list[Any]] = {}
        self.fresh_ts: dict[Any, int] = {}
        self.numbers: list[tuple[list[Any], Any]] = []
        """Columns of numbers of the running chunk. Adding them cannot fail, so they wait for `complete` and need no copies."""
        self.odd: set[Any] = set()
        """Keys whose states may not be numbers: columns are not added to them."""
        self.at_once = False
        """Updates are passed on with each chunk instead of each commit: a later step awaits, which `seal` cannot do, or a failure in a
        later step is to cost a record."""
        self.careful = False
        """A commit has failed on what was held back: the table is now written with each chunk, too."""

    def push(self, rows: Rows) -> None:
        keys = keyed(self, rows, self.key_serde)
        of = Addends(self.aggregate, rows, partial=self.partial)
        if self.partial and rows.plan != self.plan.digest:
            with of.blaming():
                of.rows = replace(rows, values=self._of_former_code(rows.plan, rows.values))
        self._aggregate(keys, rows.timestamps, of)

    def push_columns(self, chunk: ColumnChunk) -> None:
        self._aggregate(keyed(self, chunk, self.key_serde), chunk.timestamps, ColumnAddends(self.aggregate, chunk))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return self.plan.reads

    def _aggregate(self, keys: list[Any], timestamps: list[int], of: Addends | ColumnAddends) -> None:
        with of.blaming():
            times = dict(zip(keys, timestamps, strict=True))
            columns = None if self.fresh or self.at_once else of.columns()
            if columns is not None:
                self._know([key for key in times if key not in self.states])
                if self.odd.isdisjoint(times):
                    self.numbers.append((keys, columns))
                    self.fresh_ts.update(times)
                    return
            fresh = self.fresh
            self._to_copies()
            self._fetch([key for key in times if key not in fresh])
            values = of.values()
            if self.partial:
                self.plan.merge(keys, values, fresh)
            else:
                self.plan.add(keys, values, fresh, items=all_mappings(values))
        if self.careful:
            self._write(times, fresh)
        if self.at_once:
            self._give_on(times, fresh)
        self.fresh_ts.update(times)

    def _of_former_code(self, plan: int | None, values: list[Any]) -> list[Any]:
        """Convert partial states that were in flight when the code was changed to the form of this code."""
        layout = self.table.layout
        schema = layout.of_partials(plan)
        return [layout.adapt(schema, value) for value in values]

    def _to_copies(self) -> None:
        """Add the columns that were held back to copies, like the rest of the chunk."""
        fresh = self.fresh
        waiting, self.numbers = self.numbers, []
        for keys, columns in waiting:
            self._fetch([key for key in dict.fromkeys(keys) if key not in fresh])
            self.plan.add_columns(keys, columns, fresh, partial=self.partial)

    def _fetch(self, keys: list[Any]) -> None:
        """Copy the states of these keys into `fresh`, for the running chunk."""
        fresh, states, start, copy = self.fresh, self.states, self.plan.start, self.plan.copy
        unknown: list[Any] = []
        for key in keys:
            known = states.get(key)
            if known is None:
                unknown.append(key)
            else:
                fresh[key] = copy(known)
        if unknown:
            for key, found in zip(unknown, self.table.fetch(unknown), strict=True):
                fresh[key] = start() if found is None else list(found)

    def _know(self, unknown: list[Any]) -> None:
        """Load the committed states of these keys into `states`."""
        if unknown:
            states = self.states
            for key, found in zip(unknown, self.table.fetch(unknown), strict=True):
                if found is not None:
                    states[key] = list(found)
                    if not self.plan.plain(found):
                        self.odd.add(key)

    def prepare(self) -> None:
        """Use copies if a commit in the middle of the chunk has changed states that were plain when its columns were taken. Load states
        again that were evicted meanwhile."""
        if self.numbers and self.gave_back:
            with blaming(self.step):
                self._know([key for key in self.fresh_ts if key not in self.states])
            self.gave_back = False
        if self.numbers and not self.odd.isdisjoint(self.fresh_ts):
            with blaming(self.step):
                self._to_copies()

    def complete(self) -> None:
        states = self.states
        states.update(self.fresh)
        if self.plan.numeric and not self.plan.all_plain(self.fresh.values()):
            plain = self.plan.plain
            self.odd.update(key for key, state in self.fresh.items() if not plain(state))
        for keys, columns in self.numbers:
            self.plan.add_columns(keys, columns, states, partial=self.partial)
        self.dirty.update(self.fresh_ts)
        self.drop()
        self.held.count()

    def _give_back(self) -> None:
        """Evict half of the states, oldest first, but none that a commit or the running chunk needs."""
        states, dirty, chunk = self.states, self.dirty, self.fresh_ts
        gone: list[Any] = []
        if len(states) > len(dirty):
            half = islice(states, (len(states) + 1) // 2)
            gone = [k for k in half if k not in dirty and k not in chunk]
            gone = gone or [k for k in states if k not in dirty and k not in chunk]
            for key in gone:
                del states[key]
            self.odd.difference_update(gone)
            self.gave_back = True
        gone += [key for key in self.held.large if key not in states and key not in chunk]
        self.held.forget(gone)

    def drop(self) -> None:
        self.fresh, self.fresh_ts, self.numbers = {}, {}, []

    def seal(self) -> None:
        if not self.dirty:
            return
        dirty, self.dirty = self.dirty, {}
        states = self.states
        if not self.careful:
            self._write(dirty, states)
        if not self.at_once:
            self._give_on(dirty, states)

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
        aside = self.fresh, self.fresh_ts, self.numbers
        self.drop()
        return aside

    def resume(self, aside: Any) -> None:
        self.fresh, self.fresh_ts, self.numbers = aside
        self.gave_back = True  # what ran meanwhile may have evicted states


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
