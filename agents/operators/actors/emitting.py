"""What user code writes to a topic by name, in whatever it was called for."""

from __future__ import annotations

from typing import Any

from ...job.declare.checks import check_target
from ...records.values.record import Headers
from ..base.stateless import Operator, encode, encode_keys


def emit_record(
    op: Operator, verb: str, topic: str, value: Any, key: Any, time: int, headers: Headers, partition: int | None
) -> None:
    """Write one record, as part of the running letter. `verb`: what the user has called."""
    app = op.env.app
    check_target(topic, verb, app.topics, op.env.graph)
    keys = None if key is None else encode_keys(op.step, app.output_key_serde, [key])
    values = encode(op.step, app.serde, [value])
    op.env.emit(topic, partition, keys, values, [time], [headers] if headers else None)
