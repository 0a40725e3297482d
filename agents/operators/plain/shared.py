"""The operator that writes a stream for other jobs: rows as batch frames, columns as Arrow frames if there are enough of them.

Promises: each record goes to the partition of its key, which a reader can rely on, whichever job wrote it; records without a key go
anywhere. Key, time and headers travel in the frame, so the topic's own timestamps may say when a frame was written: retention goes by them.
"""

from __future__ import annotations

from typing import Any

from ....core.columns.schema import ColumnSchema
from ...job.steps.ends import ShareStep
from ...records.columns.encoder import Encoder
from ...records.columns.records import Records
from ...records.columns.selecting import column_of
from ...records.frames.arrow_frames import FrameWriter
from ...records.memory.record_spans import RecordSpans, packed
from ...records.memory.taking import spans_of
from ...records.values.serdes import writes_utf8
from ..base.stateless import BYTES, Env, Operator, blaming, encode, encode_keys


class ShareOp(Operator):
    """Writes rows or columns to a shared stream."""

    names_origins = True

    def __init__(self, step: ShareStep, env: Env) -> None:
        super().__init__(step, env)
        self.share_step = step
        self.key = column_of(step.key) if step.key is not None else None
        self.wants_keys = BYTES if step.key is None else ""
        schema = step.schema if step.schema is not None else ColumnSchema(())
        self.columns = schema.names
        self.writer = FrameWriter(self.columns, Encoder(self.columns).encode, schema=str(schema))

    def push(self, rows: Records) -> None:
        step = self.share_step
        if step.schema is not None and rows.vectors is not None:
            keyed = rows.with_key_spans(self._key_spans(rows))
            with blaming(step):  # a value that no frame can hold
                self.env.share_columns(step.topic, self.writer, keyed)
            return
        keys: list[Any] = [None] * len(rows)
        if self.key is not None:
            keys = encode_keys(step, step.key_serde, self.select(self.key, rows.values, step.key), rows=rows)
        elif rows.keys is not None:
            keys = encode_keys(step, step.key_serde, rows.keys, rows.key_serde, rows)
        values = encode(step, step.serde, rows.values, rows)
        with blaming(step):  # a value that no frame can hold
            self.env.share(step.topic, keys, rows.timestamps, values, rows.headers, rows.offsets)

    def _key_spans(self, chunk: Records) -> RecordSpans | None:
        """The keys of the base rows, in bytes; None if no record has one."""
        step = self.share_step
        if step.key is None:
            keys, written = chunk.keys, chunk.key_serde
        else:
            vector = chunk.vector(str(step.key))
            if vector.kind == "text" and vector.validity is None and writes_utf8(step.key_serde):
                return spans_of(vector)  # the text itself is the key
            keys, written = chunk[str(step.key)], None
        if keys is None:
            return None
        return chunk.spread_spans(packed(encode_keys(step, step.key_serde, keys, written, chunk)))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return frozenset(self.columns) if self.share_step.schema is not None else behind
