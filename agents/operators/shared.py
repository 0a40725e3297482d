"""The operator that writes a stream for other jobs.

Promises: each record goes to the partition of its key, which a reader can rely on, whichever job wrote it; records without a key go
anywhere. Key, time and headers travel in the frame, so the topic's own timestamps may say when a frame was written: retention goes by them.
"""

from __future__ import annotations

from typing import Any

from ..job import steps as s
from ..records.record import Rows
from ..records.selecting import column_of
from .stateless import BYTES, Env, Operator, blaming, encode, encode_keys


class ShareOp(Operator):
    """Writes rows to a shared stream."""

    def __init__(self, step: s.ShareStep, env: Env) -> None:
        super().__init__(step, env)
        self.share_step = step
        self.key = column_of(step.key) if step.key is not None else None
        self.wants_keys = BYTES if step.key is None else ""

    def push(self, rows: Rows) -> None:
        step = self.share_step
        keys: list[Any] = [None] * len(rows.values)
        if self.key is not None:
            keys = encode_keys(step, step.key_serde, self.select(self.key, rows.values, step.key))
        elif rows.keys is not None:
            keys = encode_keys(step, step.key_serde, rows.keys, rows.key_serde)
        values = encode(step, step.serde, rows.values)
        with blaming(step):  # a value that no frame can hold
            self.env.share(step.topic, keys, rows.timestamps, values, rows.headers)
