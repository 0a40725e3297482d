"""Frames: what one Kafka record of an intermediate stream holds. Decodes bytes to frames, and encodes them.

    record value = type byte + body        the header `hg-type` repeats the type, for tools that filter

    0 user record     the stream's serde bytes
    1 watermark       msgpack map  v job run task tasks epoch ts [idle [away]]
    2 end of stream   msgpack map  v job run task tasks epoch [left]
    3 drain           msgpack map  v job run task tasks epoch id
    4 user batch      msgpack array  v, keys, timestamps, values, headers or nil, kind
    5 columns         an Arrow IPC stream that passes the checks of `arrow`; its metadata has v, kind and schema

`kind` is 0 if the values are rows, and `[1, digest]` if they are partial states of the aggregate plan with this digest. Elements of the
array after `kind` are ignored. In the metadata of columns, the kind is the text `0` or `1 digest`.

Promises:

- For any bytes, `decode` returns a frame or raises `FrameError` with a reason, and raises nothing else.
- Nothing is allocated that the size of the input does not justify: a body that is too long, is nested too deeply, or announces more than
  it holds is refused before anything is built from it.
- Unknown map keys are ignored, so that a later minor version may add some; a higher `v` is refused with an error that names it.
- Every field's type and range is checked; a bool is not a number, and text that is not UTF-8 is not text.
- `decode(encode(frame)) == frame`; equal frames have equal bytes. `encode` refuses what `decode` would refuse. Columns are
  written by `arrow_writer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from types import NoneType
from typing import Any, NamedTuple, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from ..errors import DataError
from .arrow import KIND_OF, SCHEMA_OF, VERSION_OF, ArrowField, ArrowPart, arrow_shape
from .shape import msgpack_flaw

HEADER = "hg-type"
"""The Kafka header that repeats the type, so that any Kafka tool can filter by it. Its value is `header_value(frame)`."""
TRACE_HEADER = "traceparent"
"""The Kafka header of a frame that names the span in which it was written, in the form of W3C's Trace Context."""
FROM_HEADER = "hg-from"
"""The Kafka header of a frame of rows that says which records they were made of, as `came_from.listed` gives them."""
MOST_FROM = 1_000
"""The most bytes of it that are believed: the longest topic and three numbers."""

USER, WATERMARK, END_OF_STREAM, DRAIN, BATCH, ARROW = range(6)
TYPE_NAMES = ("user", "watermark", "end-of-stream", "drain", "batch", "arrow")

ROWS, PARTIAL_STATES = 0, 1
"""Kinds of a batch: what its values represent."""

VERSION = 1
MAX_TIME = 2**63 - 1
"""As a watermark: time has reached its end."""
NO_TIME = -(2**63)
"""As a watermark: no time is known yet."""
MAX_CONTROL_BYTES = 4096
MAX_NESTING = 4
MAX_NAME_BYTES = 249
MAX_TASKS = 2**31 - 1
MAX_EPOCH = 2**63 - 1
MAX_BATCH_RECORDS = 65_536
MAX_DIGEST = 2**32 - 1


class FrameError(DataError):
    """These bytes are not a frame; `reason` says why, in a few words that can be used as the label of a counter."""

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        self.reason = reason
        super().__init__(f"not a frame: {reason}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class Watermark:
    """The producer will write nothing older than `ts`. If `idle`, it confirms that it has nothing to read: what it reads later was written
    after its last confirmation, so that readers may lift its time to where the others had come by then.

    `away`: it is idle only because the jobs that it reads are away, and goes on with their next run. It is left out only together with all
    other producers of its job: some of them hear of that run before others do.
    """

    job: str
    run: str
    task: str | None
    tasks: int
    epoch: int
    ts: int
    idle: bool = False
    away: bool = False


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The producer (all producers if `task` is None) has finished writing to this stream in this run.

    The time of its last watermark goes on counting until the other producers have ended, too, unless it has `left`.
    """

    job: str
    run: str
    task: str | None
    tasks: int
    epoch: int
    left: bool = False


@dataclass(frozen=True, slots=True)
class Drain:
    """The producer (all producers if `task` is None) has drained for the drain with this id, and writes nothing more in this run."""

    job: str
    run: str
    task: str | None
    tasks: int
    epoch: int
    id: str


@dataclass(frozen=True, slots=True)
class UserFrame:
    """One user record, encoded by the stream's serde."""

    body: bytes


@dataclass(frozen=True, slots=True)
class BatchFrame:
    """Many user records in columns of equal length. It is taken whole or not at all.

    `headers` is None if no record has any. `plan` is None if the values are rows; otherwise they are partial states of the aggregate plan
    with this digest.
    """

    keys: list[bytes | None]
    timestamps: list[int]
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]]] | None = None
    plan: int | None = None


@dataclass(frozen=True, slots=True)
class ArrowFrame:
    """Many user records as an Arrow IPC stream that has passed the checks of `arrow`. They are written by `arrow_writer`.

    `plan` as in `BatchFrame`; `schema` is the writer's name for the schema of the values. `fields` and `batches` say where the columns
    lie in the body.
    """

    body: bytes
    records: int
    plan: int | None
    schema: str
    fields: tuple[ArrowField, ...] = field(default=(), compare=False)
    batches: tuple[tuple[ArrowPart, ...], ...] = field(default=(), compare=False)


ControlFrame = Watermark | EndOfStream | Drain
WrittenFrame = ControlFrame | UserFrame | BatchFrame
Frame = WrittenFrame | ArrowFrame

# -------------------------------------------------------------------------------------------------------------- decoding

# All bytes except those that could open a map or an array. There are at most as many containers as opening bytes: nearly always one.
_SCALAR_BYTES = bytes(b for b in range(256) if not (0x80 <= b <= 0x9F or 0xDC <= b <= 0xDF))
_library = cast("Any", msgpack)
_unpackb: Callable[..., Any] = _library.unpackb
_packb: Callable[..., bytes] = _library.packb
_Unpacker: Callable[..., Any] = _library.Unpacker
_NOT_MSGPACK = (ValueError, RecursionError, TypeError, _library.OutOfData)
"""What msgpack raises for bytes that are not msgpack."""
_KEY_TYPES = frozenset((bytes, NoneType))
_INT = frozenset((int,))
_STR = frozenset((str,))
_ARRAYS = frozenset((list, tuple))
_TWO = frozenset((2,))


def decode(data: bytes) -> Frame:
    """The frame in these bytes.

    >>> decode(encode(Drain("sales/1", "r1", "Partition 0", 2, 1, "d7"))).id
    'd7'
    """
    if not data:
        raise FrameError("empty", remedy="this stream holds records that headgate did not write")
    kind = data[0]
    if WATERMARK <= kind <= DRAIN:
        made = _plain_control(kind, data[1:])
        if made is not None:
            return made
    if kind > ARROW:
        raise FrameError(
            f"unknown type {kind}", remedy="a newer headgate wrote it, or headgate did not write this stream"
        )
    return _DECODERS[kind](data[1:])


def is_control(data: bytes) -> bool:
    """Whether this record can only be a control frame; a cheap test for cutting chunks. Decoding it may still fail."""
    return len(data) > 0 and 1 <= data[0] <= 3


# Making a frozen dataclass costs 100 ns per field. These classes have the same slots: an instance is filled, then its class is changed.
class _BlankWatermark:
    __slots__ = ("away", "epoch", "idle", "job", "run", "task", "tasks", "ts")


class _BlankEndOfStream:
    __slots__ = ("epoch", "job", "left", "run", "task", "tasks")


class _BlankDrain:
    __slots__ = ("epoch", "id", "job", "run", "task", "tasks")


def _plain_control(kind: int, body: bytes) -> ControlFrame | None:
    """The fast path for the control frames that nearly every body holds; None for all others, which `_DECODERS` check field by field.

    A text of at most 62 characters is short enough in any case, so its UTF-8 length need not be computed.
    """
    if len(body) > MAX_CONTROL_BYTES or len(body.translate(None, _SCALAR_BYTES)) > MAX_NESTING:
        return None
    try:
        fields: Any = _unpackb(body)
        job, run, tasks, epoch = fields["job"], fields["run"], fields["tasks"], fields["epoch"]
        task = fields["task"] if "task" in fields else None  # noqa: SIM401 - twice as fast as get
        if not (
            fields["v"] == 1
            and type(fields["v"]) is type(tasks) is type(epoch) is int
            and type(job) is type(run) is str
            and 0 < len(job) <= 62
            and 0 < len(run) <= 62
            and (task is None or (type(task) is str and 0 < len(task) <= 62))
            and 0 < tasks <= MAX_TASKS
            and 0 <= epoch <= MAX_EPOCH
        ):
            return None
        made: Any
        if kind == WATERMARK:
            ts = fields["ts"]
            idle = "idle" in fields
            if type(ts) is not int or ts > MAX_TIME or (idle and fields["idle"] is not True) or "away" in fields:
                return None
            made = _BlankWatermark()
            made.ts, made.idle, made.away = ts, idle, False
        elif kind == DRAIN:
            drain_id = fields["id"]
            if type(drain_id) is not str or not 0 < len(drain_id) <= 62:
                return None
            made = _BlankDrain()
            made.id = drain_id
        elif "left" in fields:
            return None
        else:
            made = _BlankEndOfStream()
            made.left = False
    except (*_NOT_MSGPACK, KeyError):
        return None
    made.job, made.run, made.task, made.tasks, made.epoch = job, run, task, tasks, epoch
    made.__class__ = _CONTROL[kind]
    return made


def _control_map(body: bytes) -> dict[Any, Any]:
    if len(body) > MAX_CONTROL_BYTES:
        raise FrameError("control body too long")
    if len(body.translate(None, _SCALAR_BYTES)) > MAX_NESTING:
        wrong = msgpack_flaw(body, MAX_NESTING)
        if wrong:
            raise FrameError(f"control body {wrong}")
    try:
        fields: dict[Any, Any] = _unpackb(body)
    except _NOT_MSGPACK as error:
        raise FrameError("control body is not msgpack") from error
    if type(fields) is not dict:
        raise FrameError("control body is not a map")
    version = fields.get("v")
    if version != 1 or type(version) is not int:
        raise _wrong_version(version)
    return fields


def _wrong_version(version: object) -> FrameError:
    if type(version) is int and version > VERSION:
        return FrameError(
            f"format version {version} is newer than {VERSION}", remedy="upgrade the headgate that reads it"
        )
    return FrameError("no format version")


def _name(fields: dict[Any, Any], key: str) -> str:
    text = fields.get(key)
    if type(text) is not str:
        raise FrameError(f"{key} is not text")
    if not text or len(text) > MAX_NAME_BYTES or (not text.isascii() and len(text.encode()) > MAX_NAME_BYTES):
        raise FrameError(f"{key} is empty or longer than {MAX_NAME_BYTES} bytes")
    return text


def _common(fields: dict[Any, Any]) -> tuple[str, str, str | None, int, int]:
    job, run = _name(fields, "job"), _name(fields, "run")
    task = _name(fields, "task") if fields.get("task") is not None else None
    tasks, epoch = fields.get("tasks"), fields.get("epoch")
    if type(tasks) is not int or not 0 < tasks <= MAX_TASKS:
        raise FrameError("tasks is not a number of producers")
    if type(epoch) is not int or not 0 <= epoch <= MAX_EPOCH:
        raise FrameError("epoch is not a number from 0")
    return job, run, task, tasks, epoch


def _watermark(body: bytes) -> Watermark:
    fields = _control_map(body)
    job, run, task, tasks, epoch = _common(fields)
    ts = fields.get("ts")
    if type(ts) is not int or ts > MAX_TIME:
        raise FrameError("ts is not a signed 64 bit number")
    idle = fields.get("idle", False)
    if idle is not True and idle is not False:
        raise FrameError("idle is neither true nor false")
    away = fields.get("away", False)
    if away is not True and away is not False:
        raise FrameError("away is neither true nor false")
    if away and not idle:
        raise FrameError("away, but not idle")
    return Watermark(job, run, task, tasks, epoch, ts, idle, away)


def _end_of_stream(body: bytes) -> EndOfStream:
    fields = _control_map(body)
    left = fields.get("left", False)
    if left is not True and left is not False:
        raise FrameError("left is neither true nor false")
    return EndOfStream(*_common(fields), left)


def _drain(body: bytes) -> Drain:
    fields = _control_map(body)
    job, run, task, tasks, epoch = _common(fields)
    return Drain(job, run, task, tasks, epoch, _name(fields, "id"))


def _batch(body: bytes) -> BatchFrame:
    if len(body) > 1 and 0x90 < body[0] <= 0x9F and VERSION < body[1] <= 0x7F:
        raise _wrong_version(body[1])  # before the limits of this version are applied to another one
    try:
        # Skipping builds nothing; after it, every element that an array announces is known to exist.
        walk = _Unpacker(max_buffer_size=max(len(body), 1))
        walk.feed(body)
        walk.skip()
        if walk.tell() != len(body):
            raise FrameError("batch has trailing bytes")
        parts = _unpackb(body, max_map_len=0, max_ext_len=0, max_array_len=MAX_BATCH_RECORDS)
    except _NOT_MSGPACK as error:
        raise FrameError("batch is not msgpack, or too long") from error
    if type(parts) is not list or not parts:
        raise FrameError("batch is not an array")
    parts = cast("list[Any]", parts)
    if parts[0] != VERSION or type(parts[0]) is not int:
        raise _wrong_version(parts[0])
    if len(parts) < 6:
        raise FrameError(f"batch has {len(parts)} parts, not 6")
    keys, timestamps, values, headers, kind = parts[1:6]
    if not type(keys) is type(timestamps) is type(values) is list:
        raise FrameError("batch does not have three columns")
    plan = _plan(kind)
    _check_columns(keys, timestamps, values)
    made: Any = None
    if headers is not None:
        _check_headers(headers, len(keys))
        made = [list(map(tuple, row)) for row in headers]  # pyright: ignore[reportUnknownArgumentType] - pairs, as was checked
    return BatchFrame(keys, timestamps, values, made, plan)


def _plan(kind: Any) -> int | None:
    """The digest of the aggregate plan whose partial states the values are; None for rows."""
    if type(kind) is int and kind == ROWS:
        return None
    parts = cast("list[Any]", kind or [None]) if type(kind) is list else [kind]
    number: Any = parts[0]
    if type(number) is not int:
        raise FrameError("kind is not a number")
    if number != PARTIAL_STATES:
        raise FrameError(
            f"unknown kind {number}", remedy="a newer headgate wrote it, or headgate did not write this stream"
        )
    digest: Any = parts[1] if len(parts) == 2 else None
    if type(digest) is not int or not 0 <= digest <= MAX_DIGEST:
        raise FrameError("partial states without the digest of their plan")
    return digest


def _arrow(body: bytes) -> ArrowFrame:
    shape = arrow_shape(body, MAX_BATCH_RECORDS, str(VERSION))
    if isinstance(shape, str):
        raise FrameError(f"Arrow stream {shape}")
    version = shape.metadata.get(VERSION_OF, "")
    if version != str(VERSION):
        raise _wrong_version(_numbers(version)[0])
    kind = _numbers(shape.metadata.get(KIND_OF, ""))
    plan = _plan(kind if len(kind) > 1 else kind[0])
    return ArrowFrame(body, shape.records, plan, shape.metadata.get(SCHEMA_OF, ""), shape.fields, shape.batches)


def _numbers(text: str) -> list[int | None]:
    """Integers separated by single spaces; None for a word that is not one."""
    words = text.split(" ")
    return [int(one) if one.isascii() and one.isdecimal() and len(one) <= 19 else None for one in words]


def _check_columns(keys: list[Any], timestamps: list[Any], values: list[Any]) -> None:
    if not len(keys) == len(timestamps) == len(values):
        raise FrameError("columns differ in length")
    if len(keys) > MAX_BATCH_RECORDS:
        raise FrameError("batch has too many records")
    if not _KEY_TYPES.issuperset(map(type, keys)) or not _KEY_TYPES.issuperset(map(type, values)):
        raise FrameError("a key or value is not bytes")
    if not _INT.issuperset(map(type, timestamps)):
        raise FrameError("a timestamp is not a number")
    if timestamps and (max(timestamps) > MAX_TIME or min(timestamps) < NO_TIME):
        raise FrameError("a timestamp is not a signed 64 bit number")


def _check_headers(headers: Any, records: int) -> None:
    """Check a column of arrays of pairs: a text, and bytes or nil."""
    if type(headers) is not list or not _ARRAYS.issuperset(map(type, cast("list[Any]", headers))):
        raise FrameError("headers are not an array for each record")
    if len(cast("list[Any]", headers)) != records:
        raise FrameError("columns differ in length")
    pairs: list[Any] = list(chain.from_iterable(cast("list[Any]", headers)))
    if pairs:
        if not _ARRAYS.issuperset(map(type, pairs)) or not _TWO.issuperset(map(len, pairs)):
            raise FrameError("a header is not a pair")
        names, values = zip(*pairs, strict=True)
        if not _STR.issuperset(map(type, names)) or not _KEY_TYPES.issuperset(map(type, values)):
            raise FrameError("a header is not a string with bytes or nil")


_CONTROL = (UserFrame, Watermark, EndOfStream, Drain)
_DECODERS: tuple[Callable[[bytes], Frame], ...] = (UserFrame, _watermark, _end_of_stream, _drain, _batch, _arrow)


# -------------------------------------------------------------------------------------------------------------- encoding


def said_of(value: bytes | None) -> str:
    """What a header `hg-from` says; empty if it cannot be one.

    >>> said_of(b"orders[3] offset 7"), said_of(b"\\x1b[31m"), said_of(None)
    ('orders[3] offset 7', '', '')
    """
    if value is None or len(value) > MOST_FROM or not value.isascii():
        return ""
    text = value.decode()
    return text if text.isprintable() else ""


def header_value(frame: WrittenFrame) -> bytes:
    """The value of the header `hg-type`: the type's name, readable in any Kafka tool."""
    return TYPE_NAMES[_TYPES[type(frame)]].encode()


def encode(frame: WrittenFrame) -> bytes:
    """The bytes of a frame. Map keys have a fixed order; absent fields are left out."""
    if isinstance(frame, UserFrame):
        return b"\x00" + frame.body
    if isinstance(frame, BatchFrame):
        return _encode_batch(frame)
    fields: dict[str, object] = {"v": VERSION, "job": frame.job, "run": frame.run}
    if frame.task is not None:
        fields["task"] = frame.task
    fields["tasks"] = frame.tasks
    fields["epoch"] = frame.epoch
    if isinstance(frame, Watermark):
        fields["ts"] = frame.ts
        if frame.idle:
            fields["idle"] = True
        if frame.away:
            fields["away"] = True
    elif isinstance(frame, Drain):
        fields["id"] = frame.id
    elif frame.left:
        fields["left"] = True
    try:
        data = bytes((_TYPES[type(frame)],)) + _packb(fields)
    except (ValueError, OverflowError, TypeError) as error:
        raise FrameError("a field cannot be written") from error
    decode(data)  # never write what `decode` would refuse
    return data


def batch_ends(plan: int | None) -> tuple[bytes, bytes]:
    """What stands before and behind the keys, times and values of a batch without headers: rows, or partial states of a plan."""
    return b"\x04\x96" + _packb(VERSION), _packb(None) + _packb(ROWS if plan is None else [PARTIAL_STATES, plan])


MOST_BEHIND = 16
"""More bytes than stand behind the rows of a batch without headers."""


class Behind(NamedTuple):
    """What stands behind the rows of a batch without headers."""

    plan: int | None


def behind_rows(tail: bytes) -> Behind | None:
    """The meaning of these bytes behind the rows of a batch; None if its rows have headers, or these bytes are not its end.

    >>> behind_rows(batch_ends(7)[1]), behind_rows(batch_ends(None)[1]), behind_rows(b"")
    (Behind(plan=7), Behind(plan=None), None)
    """
    return _behind_rows(tail) if len(tail) <= MOST_BEHIND else None


@lru_cache(256)
def _behind_rows(tail: bytes) -> Behind | None:
    try:
        headers, kind = _unpackb(b"\x92" + tail, max_map_len=0, max_ext_len=0)
        return Behind(_plan(kind)) if headers is None else None
    except (*_NOT_MSGPACK, FrameError):
        return None


def _encode_batch(frame: BatchFrame) -> bytes:
    _check_columns(frame.keys, frame.timestamps, frame.values)
    if frame.headers is not None:
        _check_headers(frame.headers, len(frame.keys))
    kind = ROWS if frame.plan is None else [PARTIAL_STATES, frame.plan]
    _plan(kind)
    try:
        return b"\x04" + _packb([VERSION, frame.keys, frame.timestamps, frame.values, frame.headers, kind])
    except ValueError as error:
        raise FrameError("a header's name is not text") from error


_TYPES: dict[type, int] = {
    UserFrame: USER,
    Watermark: WATERMARK,
    EndOfStream: END_OF_STREAM,
    Drain: DRAIN,
    BatchFrame: BATCH,
}
