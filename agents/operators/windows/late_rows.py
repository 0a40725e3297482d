"""Rows whose windows are closed, on their way to the topic for late rows."""

from __future__ import annotations

from typing import Any

from ...records.columns.records import Records
from ..base.stateless import Operator, blaming, encode, encode_keys


def write_late(operator: Operator, rows: Records, topic: str, serde: Any) -> None:
    """Write these rows, unchanged, to the topic that the user has named for late rows."""
    step, env = operator.step, operator.env
    values = encode(step, serde, rows.values)
    keys = [None] * len(values) if rows.keys is None else rows.keys
    keys = encode_keys(step, env.app.output_key_serde, keys, rows.key_serde)
    with blaming(step):  # the topic may not accept a row
        env.emit(topic, None, keys, values, rows.timestamps, rows.headers)
