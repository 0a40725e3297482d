"""The operator that writes to an output topic."""

from __future__ import annotations

from typing import Any

import orjson

from ...core.windows.results import START_FIELD, WINDOW_HEADER
from ..job import steps as s
from ..job.windows import window_key
from ..records.column_chunk import ColumnChunk, records_of
from ..records.encoder import Encoder
from ..records.record import Rows
from ..records.selecting import column_of
from ..records.serdes import OUTPUT_KEY, is_json
from ..records.writable import Unwritable
from .stateless import BYTES, VALUES, Env, Operator, blaming, encode, encode_keys


class ToOp(Operator):
    """Writes to an output topic."""

    def __init__(self, step: s.ToStep, env: Env) -> None:
        super().__init__(step, env)
        self.to = step
        self.columns = step.schema.names if step.schema is not None else ()
        self.encoder = Encoder(self.columns) if is_json(step.serde) else None
        self.by = START_FIELD if step.key is window_key else step.key
        self.key = column_of(self.by) if self.by is not None else None
        if step.partition is not None or step.key is window_key:
            self.wants_keys = VALUES
        elif step.key is None and step.key_serde.name != OUTPUT_KEY:
            self.wants_keys = BYTES

    def push(self, rows: Rows) -> None:
        step = self.to
        raw: list[Any] | None = None
        if self.key is not None:
            values = told_windows(rows) if step.key is window_key else rows.values
            found = self.select(self.key, values, self.by)
            if step.key is window_key:
                found = list(zip(rows.key_values() or [None] * len(rows), found, strict=True))
            raw = encode_keys(step, step.key_serde, found)
        elif rows.keys is not None:
            raw = encode_keys(step, step.key_serde, rows.keys, rows.key_serde)
        values = encode(step, step.serde, rows.values)
        targets = self.column(step.partition, rows, records=True) if step.partition is not None else None
        with blaming(step):  # the topic may not accept a row
            if targets is None:
                self.env.emit(step.topic, None, raw, values, rows.timestamps, rows.headers)
            else:
                self._emit_to(targets, raw, values, rows)

    def push_columns(self, chunk: ColumnChunk) -> None:
        step = self.to
        assert step.schema is not None
        if self.encoder is None:
            self.push(chunk.rows(self.columns))
            return
        raw: list[Any] | None = None
        if step.key is not None:
            raw = encode_keys(step, step.key_serde, chunk[str(step.key)])
        elif chunk.keys is not None:
            raw = encode_keys(step, step.key_serde, chunk.keys, chunk.key_serde)
        with blaming(step):  # text that is no UTF-8; a record that the topic does not accept
            values = records_of(self.encoder, chunk, step.schema)
            self.env.emit(step.topic, None, raw, values, chunk.timestamps, chunk.headers)

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return frozenset(self.columns)

    def _emit_to(self, targets: list[Any], raw: list[Any] | None, values: list[Any], rows: Rows) -> None:
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
                [rows.timestamps[i] for i in at],
                None if rows.headers is None else [rows.headers[i] for i in at],
            )


def told_windows(rows: Rows) -> list[Any]:
    """Values that say of which window they are: where a header says it, what it says."""
    if rows.headers is None:
        return rows.values
    found = [next((data for name, data in headers if name == WINDOW_HEADER), None) for headers in rows.headers]
    return [value if data is None else orjson.loads(data) for value, data in zip(rows.values, found, strict=True)]
