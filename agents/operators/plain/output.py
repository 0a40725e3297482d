"""The operator that writes to an output topic.

What it decides: the bytes of a record of columns. If its columns come from an input in JSON, none of them has been replaced, and the record
holds just declared fields, it is its original bytes with the added fields behind; otherwise it is written in full (`added_fields`). The
columns that a topic gets are used columns: all of them are decoded and judged, whether a step reads them or not. Headers that name schemas
are those of the output's serdes (`schema_headers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from ....core.columns.expressions import col
from ....core.columns.schema import INT, TEXT, ColumnSchema, ColumnSpec
from ....core.windows.results import START_FIELD, WINDOW_HEADER
from ...job.steps.columns import ColumnsStep
from ...job.steps.ends import ToStep
from ...job.types.windows import window_key
from ...records.columns.cut_fields import without_fields
from ...records.columns.decoder import HAS_WATCHED
from ...records.columns.encoder import Encoder, LogicalEncoder, NestedEncoder
from ...records.columns.expressions import Computation
from ...records.columns.records import Records
from ...records.columns.selecting import column_of
from ...records.columns.whole_values import writer_of
from ...records.kafka.spans import SpannedRecords
from ...records.kafka.writable import Unwritable
from ...records.logical.logical_columns import shown_maker
from ...records.memory.record_spans import RecordSpans, marked, packed
from ...records.memory.taking import spans_of
from ...records.memory.vectors import Vector, VectorBatch
from ...records.values.keys import MARK
from ...records.values.serdes import KEY, OUTPUT_KEY, for_outputs, is_json, writes_utf8
from ..base.addends import as_keys
from ..base.schema_headers import SchemaHeaders
from ..base.stateless import AS_THEY_ARE, BYTES, VALUES, Env, Operator, blaming, encode, encode_keys, failing

ColumnEncoder = Encoder | NestedEncoder | LogicalEncoder


class ToOp(Operator):
    """Writes to an output topic."""

    def __init__(self, step: ToStep, env: Env) -> None:
        super().__init__(step, env)
        self.to = step
        self.serde = for_outputs(step.serde)
        self.writes = self.serde, step.key_serde
        self.schemas = SchemaHeaders(*self.writes)
        self.columns = step.schema.names if step.schema is not None else ()
        added = added_fields(step)
        self.spliced = added is not None
        source, made = _made_above(step)
        self.keeps = source is not None and source.keeps
        self.made = frozenset(made)
        """The columns that steps have made."""
        self.replaces = source is not None and not self.made.isdisjoint(source.schema.names)
        self.encoder = (
            _encoder(step.schema, tuple(made) if self.keeps else added or ()) if is_json(step.serde) else None
        )
        self.writer: Any = writer_of(step.serde) if step.partition is None else None
        """Writes columns that are no JSON."""
        self.make = None if step.schema is None else shown_maker(None, step.schema)
        self.encoded_names: tuple[str, ...] = ()
        self.results = Encoder(())
        """Writes results with columns of these names."""
        self.digits = Computation(col("key").cast(str).node, ColumnSchema((ColumnSpec("key", INT, optional=True),)))
        self.by = START_FIELD if step.key is window_key else step.key
        self.key = column_of(self.by) if self.by is not None else None
        if step.partition is not None or step.key is window_key:
            self.wants_keys = VALUES
        elif step.key is None and step.key_serde.name != OUTPUT_KEY:
            self.wants_keys = BYTES

    def push(self, rows: Records) -> None:
        step, keyed = self.to, None
        if rows.vectors is not None and step.schema is not None:
            if self.encoder is not None:
                self._write_columns(rows, step.schema, self.encoder)
                return
            if self.writer is not None and self._write_foreign(rows, *rows.batch(step.schema), step.schema):
                return
            keyed = None if step.key is None else rows.listed(self._key_column(rows, step.schema))
            rows = rows.of_columns(self.columns, self.make)
        elif (results := rows.results) is not None and self._takes(results.names):
            if self.encoder is not None:
                self._write_results(rows, results)
                return
            if self._write_foreign(rows, results, None, None):
                return
        raw: list[Any] | None = None
        if self.key is not None:
            values = window_values(rows) if step.key is window_key else rows.values
            found = self.select(self.key, values, self.by) if keyed is None else keyed
            if step.key is window_key:
                found = list(zip(rows.shown_keys() or [None] * len(rows), found, strict=True))
            raw = encode_keys(step, step.key_serde, found, rows=rows)
        elif rows.keys is not None:
            raw = encode_keys(step, step.key_serde, rows.keys, rows.key_serde, rows)
        values = encode(step, self.serde, rows.values, rows)
        targets = self.column(step.partition, rows, records=True) if step.partition is not None else None
        headers = self.schemas.of_rows(raw, values, rows.headers)
        with blaming(step):  # the topic may not accept a row
            if targets is None:
                self.env.emit(step.topic, None, raw, values, rows.timestamps, headers)
            else:
                self._emit_to(targets, raw, values, rows.timestamps, headers)

    def _write_columns(self, chunk: Records, schema: ColumnSchema, encoder: ColumnEncoder) -> None:
        step = self.to
        keys = self._keys_of(chunk, None if step.key is None else self._key_column(chunk, schema))
        batch, picked = chunk.batch(schema)
        original: tuple[Any, ...] = (chunk.origin, chunk.others) if self.spliced else ()
        if self.keeps:
            original = (self._kept(chunk), None)
        headers = self.schemas.of_spans(keys, chunk.header_spans, len(batch))
        with blaming(step):  # a record that the topic does not accept
            values = encoder.encode(batch, picked, *original, aligned=True)
            records = SpannedRecords(values, chunk.times, 0, keys, None, headers)
            self.env.emit_spans(step.topic, None, records, picked)

    def _write_foreign(self, chunk: Records, batch: VectorBatch, picked: Any, schema: ColumnSchema | None) -> bool:
        """Write columns in a format that is no JSON, without rows; whether that can be."""
        step = self.to
        if (made := self.writer.encode(batch, schema, picked)) is None:
            return False
        if made.bad:
            raise failing(step, made.bad, chunk)
        column = None if step.key is None else self._key_column(chunk, schema) if schema else batch[str(step.key)]
        keys = self._keys_of(chunk, column)
        brought = None if schema is None else chunk.header_spans  # results have none
        headers = self.schemas.of_spans(keys, brought, len(batch))
        with blaming(step):  # a record that the topic does not accept
            records = SpannedRecords(made.spans, chunk.times, 0, keys, None, headers)
            self.env.emit_spans(step.topic, None, records, picked)
        return True

    def _kept(self, chunk: Records) -> RecordSpans | None:
        """The original records without the fields that steps have made, so that they can be added to all of them."""
        others, origin = chunk.others, chunk.origin
        if origin is None or (not self.replaces and others is None):
            return origin
        rows = chunk.indexes()
        if not self.replaces and others is not None:
            rows = [row for row in rows if others[row] & HAS_WATCHED]
        return without_fields(origin, rows, self.made)

    def _takes(self, names: Sequence[str]) -> bool:
        """Whether columns with these names are written as the dicts of their rows would be."""
        step = self.to
        plain = (self.encoder is not None and step.serde.type is None) or self.writer is not None
        plain = plain and step.partition is None
        return plain and (step.key is None or (isinstance(step.key, str) and step.key in names))

    def _write_results(self, rows: Records, results: VectorBatch) -> None:
        step = self.to
        if results.names != self.encoded_names:
            self.encoded_names, self.results = results.names, Encoder(results.names)
        keys = self._keys_of(rows, None if step.key is None else results[str(step.key)])
        headers = self.schemas.of_spans(keys, None, len(results))
        with blaming(step):  # a record that the topic does not accept
            values = self.results.encode(results)
            self.env.emit_spans(step.topic, None, SpannedRecords(values, rows.times, 0, keys, None, headers))

    def _key_column(self, chunk: Records, schema: ColumnSchema) -> Vector:
        name = str(self.to.key)
        return as_keys(chunk, name, schema[name].logical)

    def _keys_of(self, chunk: Records, column: Vector | None) -> RecordSpans | None:
        """The keys as the topic has them, of the base rows. `column`: the keys, if the step takes them from a column."""
        serde = self.to.key_serde
        found = chunk.key_values if column is None else column
        if column is None and chunk.key_spans is not None:
            if self._as_written(chunk, chunk.key_spans):
                return chunk.key_spans
        elif isinstance(found, Vector) and found.kind == TEXT and (serde.name == OUTPUT_KEY or writes_utf8(serde)):
            return spans_of(found)
        elif isinstance(found, Vector) and found.kind == INT and serde.name == OUTPUT_KEY:
            digits = Records.of_vectors({"key": found}, chunk.times, picked=chunk.picked)
            return spans_of(self.digits.vector(digits))
        keys = chunk.keys if column is None else chunk.listed(column)
        if keys is None:
            return None
        written = chunk.key_serde if column is None else None
        return chunk.spread_spans(packed(encode_keys(self.to, serde, keys, written, chunk)))

    def _as_written(self, chunk: Records, keys: RecordSpans) -> bool:
        """Whether these keys stand in the topic as their serde has written them: `encode_keys` would leave them as they are."""
        serde, written = self.to.key_serde, chunk.key_serde
        if written.name == serde.name and serde.type in (None, written.type):
            return True
        if serde.name != OUTPUT_KEY:
            return False
        return written.name in AS_THEY_ARE or (written.name == KEY and not marked(keys, chunk.picked, MARK))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return frozenset(self.columns)

    def _emit_to(
        self, targets: list[Any], raw: list[Any] | None, values: list[Any], times: Sequence[int], headers: Any
    ) -> None:
        """Write rows to the partitions that the user's function has chosen; for None the key decides."""
        wrong = next((i for i, one in enumerate(targets) if one is not None and type(one) is not int), None)
        if wrong is not None:
            raise Unwritable(
                wrong,
                f"partition= gave {targets[wrong]!r:.60} for a record to {self.to.topic}",
                remedy="return a partition number, or None to use the key's partition",
            )
        for target in dict.fromkeys(targets):
            at = [i for i, t in enumerate(targets) if t == target]
            self.env.emit(
                self.to.topic,
                target,
                None if raw is None else [raw[i] for i in at],
                [values[i] for i in at],
                [times[i] for i in at],
                None if headers is None else [headers[i] for i in at],
            )


def _encoder(schema: ColumnSchema | None, added: tuple[str, ...]) -> ColumnEncoder:
    if schema is None:
        return Encoder((), added=added)
    nested = schema.nested
    encoder = NestedEncoder(schema.columns, added=added) if nested else Encoder(schema.names, added=added)
    return LogicalEncoder(schema.columns, encoder, added) if schema.logical else encoder


def added_fields(step: ToStep) -> tuple[str, ...] | None:
    """The fields that a column stream writes behind those of its input, if a record can be written as its original bytes and these fields:
    it comes from an input in JSON, and no declared column has been replaced. None if records are written in full.

    A single record is written in full, too, if it has a field that is not declared, or one that is added.
    """
    above, made = _made_above(step)
    if (
        above is None
        or above.fetched is None
        or not is_json(above.fetched.serde)
        or not made.keys().isdisjoint(above.schema.names)
    ):
        return None
    return tuple(made)


def _made_above(step: ToStep) -> tuple[ColumnsStep | None, dict[str, None]]:
    """Where rows became columns, if expressions alone have worked on them since, and the columns that were made behind it, in order."""
    made: dict[str, None] = {}
    above = step.parents[0] if step.parents else None
    while above is not None and above.computed is not None:
        made = {**dict.fromkeys(above.computed), **made}
        above = above.parents[0]
    return above if isinstance(above, ColumnsStep) else None, made


def window_values(rows: Records) -> list[Any]:
    """Values that say of which window they are: where a header says it, what it says."""
    if rows.headers is None:
        return rows.values
    found = [next((data for name, data in headers if name == WINDOW_HEADER), None) for headers in rows.headers]
    return [value if data is None else orjson.loads(data) for value, data in zip(rows.values, found, strict=True)]
