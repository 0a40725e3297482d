"""The contents of a task's log: its checkpoints, and the changes of its tables.

A checkpoint is all that a restart needs in addition to the tables: the position of each partition, the run, how far a drain or an end has
come, and what was carried out once and must not be repeated. It is written in the transaction of the outputs that it belongs to, so it is
never ahead of them or behind.

Promises:

- Equal checkpoints have equal bytes, in whatever order they were built; `decode` returns what was encoded.
- Bytes that are no checkpoint, or one of a newer format, raise a `CheckpointError` that names the version and the remedy.
- The last `MAX_APPLIED` applied requests are remembered. A request expires, and the leader answers a task's requests one at a time, so a
  request that has been forgotten does not come again.
- Keys of the log never mix: each begins with its namespace and, for tables, the length and the name of the table. After that prefix, a
  table's keys keep their own order. Names that begin with `__` are headgate's own; the control table is one of these.
- A value of a table contains its expiry time, if any; the reader's clock decides whether it has expired. It contains the number of the
  schema under which it was written (`core.graph.schema`); the first one, 0, takes no space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from ...errors import CheckpointError, DeclarationError
from ...names import StreamPartition
from ...orders import TaskState

VERSION = 1
MAX_APPLIED = 256
MAX_TABLE_NAME = 249
PHASES = (TaskState.RUNNING, TaskState.DRAINING, TaskState.DRAINED, TaskState.ENDED)

CHECKPOINT_KEY = b"\x01checkpoint"
"""The key of every checkpoint in a task's partition of the log: the last one counts."""
CONTROL_TABLE = "__control"
"""The table with the reconciliation state of control messages."""

_TABLE = 2
_library = cast("Any", msgpack)
_packb: Callable[..., bytes] = _library.packb
_unpackb: Callable[..., Any] = _library.unpackb

Positions = Mapping[StreamPartition, int]
TopicIds = Mapping[StreamPartition, str]
_NOWHERE: Positions = MappingProxyType({})
_NO_IDS: TopicIds = MappingProxyType({})
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint of one task.

    >>> Checkpoint("sales/1", "u", "r1", until={StreamPartition("orders", 0): 7}).for_run("r2").until
    mappingproxy({})
    """

    job: str
    job_uuid: str
    run: str
    epoch: int = 0
    """The newest epoch of a producer set on which this task has acted."""
    positions: Positions = field(default_factory=lambda: _NOWHERE)
    """By stream partition: the next offset to read."""
    topics: TopicIds = field(default_factory=lambda: _NO_IDS)
    """By stream partition: the id of the topic that the position belongs to. One that is missing is unknown, and equals any."""
    adopted: Mapping[str, str] = field(default_factory=lambda: _NONE)
    """By the id of a topic, that of the one which an operator has declared to hold the same records (empty: not known yet), newest last."""
    until: Positions = field(default_factory=lambda: _NOWHERE)
    """By stream partition: the offset at which a bounded input ends in this run."""
    phase: TaskState = TaskState.RUNNING
    """How far the task is in this run: one of `PHASES`."""
    drain_id: str = ""
    hooks: frozenset[str] = frozenset()
    """What has run once in this run (`on_end_of_stream`, `on_drain` …), in the transaction of its outputs."""
    applied: tuple[str, ...] = ()
    """The uuids of applied requests, newest last."""
    processor: str = ""
    incarnation: str = ""
    grant: int = 0
    """Who wrote it."""

    def for_run(self, run: str) -> Checkpoint:
        """The start of another run: the same positions, with nothing ended, drained or bounded. For the same run it is unchanged."""
        if run == self.run:
            return self
        return replace(self, run=run, phase=TaskState.RUNNING, drain_id="", hooks=frozenset(), until=_NOWHERE)


# ------------------------------------------------------------------------------------------------------------- encoding


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The value; the key is `CHECKPOINT_KEY`."""
    c = checkpoint
    fields: dict[str, object] = {
        "v": VERSION,
        "job": c.job,
        "uuid": c.job_uuid,
        "run": c.run,
        "epoch": c.epoch,
        "positions": _columns(c.positions),
        "until": _columns(c.until),
        "phase": c.phase,
        "drain": c.drain_id,
        "hooks": sorted(c.hooks),
        "applied": list(c.applied),
        "processor": c.processor,
        "incarnation": c.incarnation,
        "grant": c.grant,
    }
    if c.topics:
        fields["topics"] = _identities(c.topics)
    if c.adopted:
        fields["adopted"] = [list(one) for one in c.adopted.items()]
    value = _packb(fields)
    decode_checkpoint(value)  # what this version cannot read, it must not write
    return value


def decode_checkpoint(value: bytes) -> Checkpoint:
    """The checkpoint of these bytes. Unknown fields are ignored; a newer version is an error."""
    try:
        fields: Any = _unpackb(value)
    except (ValueError, RecursionError, TypeError) as error:
        raise _damaged("it is not msgpack") from error
    if not isinstance(fields, dict):
        raise _damaged("it is not a map")
    known = cast("dict[Any, Any]", fields)
    version = known.get("v")
    if type(version) is not int or version < 1:
        raise _damaged("it has no format version")
    if version > VERSION:
        raise CheckpointError(
            f"a checkpoint has format version {version}; this headgate reads up to {VERSION}",
            remedy="run the version of headgate that wrote it, or a newer one",
        )
    phase = _text(known, "phase")
    if phase not in PHASES:
        raise _damaged(f"the phase {phase[:40]!r} is unknown")
    return Checkpoint(
        job=_text(known, "job"),
        job_uuid=_text(known, "uuid"),
        run=_text(known, "run"),
        epoch=_number(known.get("epoch"), "epoch"),
        positions=_positions(known, "positions"),
        until=_positions(known, "until"),
        topics=_topics(known),
        adopted=_adopted(known),
        phase=TaskState(phase),
        drain_id=_text(known, "drain"),
        hooks=frozenset(_texts(known, "hooks")),
        applied=_texts(known, "applied"),
        processor=_text(known, "processor"),
        incarnation=_text(known, "incarnation"),
        grant=_number(known.get("grant"), "grant"),
    )


def _columns(positions: Positions) -> list[list[object]]:
    """`[stream, partition, offset, partition, offset …]` for each stream, in order."""
    rows: dict[str, list[object]] = {}
    for (stream, partition), offset in sorted(positions.items()):
        rows.setdefault(stream, [stream]).extend((partition, offset))
    return list(rows.values())


def _identities(topics: TopicIds) -> list[list[object]]:
    """`[stream, id, partition, partition …]` for each stream and id, in order."""
    rows: dict[tuple[str, str], list[object]] = {}
    for (stream, partition), identity in sorted(topics.items()):
        rows.setdefault((stream, identity), [stream, identity]).append(partition)
    return [rows[key] for key in sorted(rows)]


def _topics(fields: dict[Any, Any]) -> TopicIds:
    topics: dict[StreamPartition, str] = {}
    rows = fields.get("topics", [])
    if type(rows) is not list:
        raise _damaged("topics is not a list")
    for item in cast("list[Any]", rows):
        row = cast("list[Any]", item) if type(item) is list else []
        if len(row) < 2 or type(row[0]) is not str or type(row[1]) is not str:
            raise _damaged("topics does not name streams, ids and partitions")
        for partition in row[2:]:
            topics[StreamPartition(row[0], _number(partition, "topics"))] = row[1]
    return MappingProxyType(topics)


def _damaged(what: str) -> CheckpointError:
    return CheckpointError(
        f"a checkpoint of format version up to {VERSION} cannot be read: {what}",
        remedy="the task log is damaged or is not headgate's; restore it, or `headgate reset` the job",
    )


def _text(fields: dict[Any, Any], key: str) -> str:
    text = fields.get(key)
    if type(text) is not str:
        raise _damaged(f"{key} is not text")
    return text


def _adopted(fields: dict[Any, Any]) -> Mapping[str, str]:
    rows = fields.get("adopted", [])
    if type(rows) is not list:
        raise _damaged("adopted is not a list")
    found: dict[str, str] = {}
    for row in cast("list[Any]", rows):
        if type(row) is str:  # its successor was not stored
            found[row] = ""
            continue
        pair = cast("list[Any]", row) if type(row) is list else []
        if [type(one) for one in pair] != [str, str]:
            raise _damaged("adopted does not name pairs of topics")
        found[pair[0]] = pair[1]
    return MappingProxyType(found)


def _texts(fields: dict[Any, Any], key: str) -> tuple[str, ...]:
    texts = fields.get(key)
    if type(texts) is not list or any(type(text) is not str for text in cast("list[Any]", texts)):
        raise _damaged(f"{key} is not a list of strings")
    return tuple(cast("list[str]", texts))


def _number(value: object, key: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise _damaged(f"{key} is not a number from 0")
    return value


def _positions(fields: dict[Any, Any], key: str) -> Positions:
    positions: dict[StreamPartition, int] = {}
    rows = fields.get(key)
    if type(rows) is not list:
        raise _damaged(f"{key} is not a list")
    for item in cast("list[Any]", rows):
        row = cast("list[Any]", item) if type(item) is list else []
        if len(row) % 2 == 0 or type(row[0]) is not str:
            raise _damaged(f"{key} does not name streams, partitions and offsets")
        numbers = [_number(number, key) for number in row[1:]]
        for partition, offset in zip(numbers[::2], numbers[1::2], strict=True):
            positions[StreamPartition(row[0], partition)] = offset
    return MappingProxyType(positions)


# --------------------------------------------------------------------------------------------------- entries of the log


class LogKey(NamedTuple):
    """A key of the task log. `table` is None for a checkpoint."""

    table: str | None
    key: bytes


def table_prefix(table: str) -> bytes:
    """The prefix of every key of this table, in the log and in a store. Raises `DeclarationError` if the name is too short or too long."""
    text = table.encode()
    if not 0 < len(text) <= MAX_TABLE_NAME:
        raise DeclarationError(
            f"table name {table[:40]!r} has {len(text)} bytes", remedy=f"give it a name of 1 to {MAX_TABLE_NAME} bytes"
        )
    return bytes((_TABLE, len(text))) + text


def parse_log_key(key: bytes) -> LogKey:
    """The table and the key of an entry.

    >>> parse_log_key(table_prefix("counts") + b"DE")
    LogKey(table='counts', key=b'DE')
    """
    if key == CHECKPOINT_KEY:
        return LogKey(None, b"")
    if len(key) >= 3 and key[0] == _TABLE and 0 < key[1] <= len(key) - 2:
        end = 2 + key[1]
        try:
            return LogKey(key[2:end].decode(), key[end:])
        except UnicodeDecodeError as error:
            raise _unknown_key(key) from error
    raise _unknown_key(key)


def _unknown_key(key: bytes) -> CheckpointError:
    return CheckpointError(
        f"the key {key[:40]!r} of a task log is unknown to format version {VERSION}",
        remedy="run the version of headgate that wrote it; if there is none, the topic is not headgate's",
    )


class LogValue(NamedTuple):
    """A value of a table: its bytes, its expiry time, and the number of the schema under which it was written."""

    body: bytes
    expires_ms: int | None = None
    schema: int = 0


_EXPIRES, _SCHEMA = 1, 2
"""The bits of a value's first byte: what follows it."""


def log_value(value: bytes, expires_ms: int | None = None, schema: int = 0) -> bytes:
    """The encoded value of a table's entry. `expires_ms` is the wall-clock time at which it expires.

    >>> parse_log_value(log_value(b"x", 5)).expires_ms, parse_log_value(log_value(b"x", schema=7))
    (5, LogValue(body=b'x', expires_ms=None, schema=7))
    """
    return log_head(expires_ms, schema) + value


def log_head(expires_ms: int | None, schema: int) -> bytes:
    """What precedes the bytes of a value."""
    flags = (_EXPIRES if expires_ms is not None else 0) | (_SCHEMA if schema else 0)
    head = bytes((flags,))
    if expires_ms is not None:
        head += expires_ms.to_bytes(8, "big", signed=True)
    return head + schema.to_bytes(2, "big") if schema else head


def expiry_bytes(data: bytes) -> bytes | None:
    """The eight bytes of a value's expiry time, which sort as the times do; None if it never expires."""
    return data[1:9] if data and data[0] & _EXPIRES else None


def expiring_heads(at: bytes) -> tuple[bytes, ...]:
    """The possible prefixes of a value that expires at this time, given as its eight bytes; for checking many values.

    >>> log_value(b"x", 5).startswith(expiring_heads((5).to_bytes(8, "big")))
    True
    """
    return bytes((_EXPIRES,)) + at, bytes((_EXPIRES | _SCHEMA,)) + at


def parse_log_value(data: bytes) -> LogValue:
    """The value, its expiry time, and its schema."""
    flags = data[0] if data else 255
    at, expires, schema = 1, None, 0
    if flags & _EXPIRES:
        expires, at = int.from_bytes(data[1:9], "big", signed=True), 9
    if flags & _SCHEMA:
        schema, at = int.from_bytes(data[at : at + 2], "big"), at + 2
    if flags > _EXPIRES | _SCHEMA or len(data) < at:
        raise CheckpointError(
            f"a value of a task log begins with {data[:1]!r}, which format version {VERSION} does not know",
            remedy="run the version of headgate that wrote it, or a newer one",
        )
    return LogValue(data[at:], expires, schema)
