"""The encoding of the coordinator stream: messages to keys and values, and any bytes to an entry.

Promises:

- The same message always has the same bytes (the tests contain golden bytes).
- `read` never raises: unreadable bytes become an `Entry` with a `problem` that gives the reason, and with the key if it was readable.
- A key in another than the canonical encoding is a problem, not a second spelling of the same key. Otherwise compaction, which compares
  bytes, and the fold, which compares keys, would disagree about what replaces what.
- A newer version is reported as such. Unknown fields of a value are ignored; a missing field takes its default or is a problem.
- A deletion that the law of keys forbids is a problem, too.
- Whatever is read can be acted on and written again: states exist, numbers leave room for larger ones, values are plain, and the fields of
  a message do not contradict each other. So no record of the stream can make a machine raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from ..errors import DataError, DeclarationError
from ..graph.model import from_value, to_value
from ..names import incarnation_order
from ..orders import NO_POSITION, REPORTED, UNPARKS, TaskState
from .messages import (
    KEYS,
    MAX_COUNT,
    MAX_KEY,
    MAX_SETTING,
    MAX_VALUE,
    VERSION,
    AnswerState,
    Change,
    Entry,
    Key,
    LetterMark,
    Message,
    ProcessorState,
    Reason,
    RunState,
    SeekRequest,
    SetAnswer,
    SetChangelog,
    SetConfig,
    SetFence,
    SetGrant,
    SetJobModel,
    SetLeader,
    SetLetters,
    SetMember,
    SetProcessor,
    SetRequest,
    SetRun,
    SetTaskState,
    Stamp,
    UnparkRequest,
    key_of,
    unlawful,
)

_pack = cast("Callable[[Any], bytes]", msgpack.packb)  # pyright: ignore[reportUnknownMemberType]
_unpack = cast("Callable[..., Any]", msgpack.unpackb)  # pyright: ignore[reportUnknownMemberType]
_FAULTS = (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, DeclarationError)
_SINGLE = {"set-run": "run", "set-leader": "leader", "set-job-model": "model"}
"""Types that have a single key, and how that is written."""

FieldReader = Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not a string")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r:.80} is not a whole number")
    return value


def _count(value: Any) -> int:
    if not 0 <= _number(value) < MAX_COUNT:
        raise ValueError(f"{value} is negative or too large")
    return value


def _seen(value: Any) -> int:
    return value if value == NO_POSITION else _count(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.80} is neither true nor false")
    return value


def _incarnation(value: Any) -> str:
    _count(incarnation_order(_text(value))[0])
    return value


def _maybe(reader: FieldReader) -> FieldReader:
    return lambda value: None if value is None else reader(value)


def _list(reader: FieldReader) -> FieldReader:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise TypeError(f"{value!r:.80} is not a list")
        return tuple(reader(item) for item in cast("list[Any]", value))

    return read


def _map(reader: FieldReader) -> FieldReader:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TypeError(f"{value!r:.80} is not a map")
        return {_text(key): reader(item) for key, item in cast("dict[Any, Any]", value).items()}

    return read


def _one_of(states: type[StrEnum], *some: StrEnum) -> FieldReader:
    """A state by its text: any of these, or one of `some`."""
    allowed = some or tuple(states)

    def read(value: Any) -> StrEnum:
        if value not in allowed:
            raise ValueError(f"{value!r:.80} is none of {', '.join(allowed)}")
        return states(value)

    return read


def _anything(value: Any) -> Any:
    return value


def _fact(value: Any) -> Any:
    """A value that JSON can express: people see it, and it is written again when the message changes."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            _fact(item)
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            _text(key)
            _fact(item)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a number")
    elif value is not None and not isinstance(value, str | int):
        raise TypeError(f"{value!r:.80} is not a plain value")
    return cast("Any", value)


def _setting(value: Any) -> Any:
    if isinstance(value, list | dict) or (isinstance(value, str) and len(value) > MAX_SETTING):
        raise TypeError(f"{value!r:.80} is not a value of a setting")
    return _fact(value)


def _change(value: Any) -> Change:
    setting, by, at_ms = _list(_anything)(value)
    return Change(_setting(setting), _text(by), _number(at_ms))


def _seek(value: Any) -> SeekRequest:
    id_, request, stream, partition, to, expected = _list(_anything)(value)
    if isinstance(to, list):
        kind, *numbers = cast("list[Any]", to)
        to = (_text(kind), *map(_number, numbers))
    elif not isinstance(to, str):
        _count(to)
    return SeekRequest(
        _text(id_), _text(request), _text(stream), _count(partition), cast("Any", to), _maybe(_seen)(expected)
    )


def _unpark(value: Any) -> UnparkRequest:
    id_, request, task, what, number, upto = _list(_anything)(value)
    if what not in UNPARKS:
        raise ValueError(f"{what!r:.80} is none of {', '.join(UNPARKS)}")
    return UnparkRequest(_text(id_), _text(request), _text(task), what, _maybe(_count)(number), _maybe(_count)(upto))


def _letter(value: Any) -> LetterMark:
    stream, partition, first, upto, row, deaths, what, topic, *rows = _list(_anything)(value)
    numbers = _count(partition), _count(first), _count(upto), _number(row), _count(deaths)
    one = (_text(stream), *numbers, _text(what), _text(topic))
    return (*one, _count(rows[0])) if rows else one


_offsets = _map(_list(_count))
_texts = _map(_text)
_facts = _map(_fact)

FORMS: Mapping[type[Any], Mapping[str, FieldReader]] = {
    SetConfig: {"setting": _text, "value": _setting, "changes": _list(_change)},
    SetChangelog: {"task": _text, "partition": _count},
    SetRun: {
        "run_id": _text, "deployment": _text, "state": _one_of(RunState), "job_uuid": _text,
        "drain": _maybe(_text), "closing": _flag, "paused_job": _flag,
        "paused_streams": lambda v: frozenset(_list(_text)(v)), "seeks": _list(_seek),
        "starts": _offsets, "untils": _offsets, "settings": _facts, "fingerprint": _texts,
        "past_runs": _list(_text), "past_deployments": _list(_text), "drain_upto": _offsets,
        "reads": _map(_list(_text)), "goes_on": _flag, "reopens": _flag, "drain_by": _text, "failed": _text,
        "overrides": _facts, "unparks": _list(_unpark), "joined": _list(_text), "unjoined": _texts,
        "ungrown": _texts,
    },
    SetProcessor: {
        "processor": _text, "incarnation": _incarnation, "process": _text, "location": _text, "state": _one_of(ProcessorState),
        "deployment": _text, "run_id": _text, "url": _text, "pid": _count, "version": _text, "fingerprint": _texts,
        "bounded": _flag, "since_ms": _count, "follows": _flag, "prepared": _map(_count), "widens": _flag,
        "retires": _flag,
    },
    SetMember: {"processor": _text, "incarnation": _incarnation, "location": _text, "dismissed": _text, "prepare_ms": _count},
    SetLeader: {"term": _count, "processor": _text, "process": _text, "job": _text},
    SetGrant: {
        "task": _text, "grant": _count, "processor": _text, "incarnation": _incarnation, "last_location": _text,
        "died": _flag,
    },
    SetFence: {"processor": _text, "incarnation": _incarnation},
    SetTaskState: {
        "task": _text, "grant": _count, "state": _one_of(TaskState, *REPORTED, TaskState.RELEASING), "why": _text,
        "applied": _list(_text), "refused": _texts, "still": _flag,
        "unproven": _flag,
    },
    SetLetters: {"task": _text, "grant": _count, "marks": _list(_letter)},
    SetRequest: {
        "uuid": _text, "verb": _text, "run_id": _text, "arguments": _facts, "not_after": _maybe(_number),
        "requested_by": _text,
    },
    SetAnswer: {
        "uuid": _text, "state": _one_of(AnswerState), "why": _text, "progress": _facts, "reason": _maybe(_one_of(Reason)), "remedy": _text,
    },
}  # fmt: skip
"""How each field of each message is decoded."""

_CLASSES = {kind: cls for cls, (kind, _) in KEYS.items()}
_DEFAULTS = {
    cls: {f.name for f in fields(cls) if f.default is not MISSING or f.default_factory is not MISSING} for cls in FORMS
}
_LEFT_OUT = frozenset(
    {
        "reason", "remedy", "refused", "drain_upto", "reads", "goes_on", "reopens", "failed", "bounded", "still", "drain_by",
        "overrides", "since_ms", "died", "unproven", "follows", "prepared", "unparks",
        "joined", "unjoined", "ungrown", "widens", "retires", "prepare_ms",
    }
)  # fmt: skip
"""Fields that are not written while they are empty, so a message that does not need them is encoded without them."""
_VALUES = {cls: tuple(name for name in form if name not in KEYS[cls][1]) for cls, form in FORMS.items()}


def encode(message: Message, stamp: Stamp = Stamp()) -> tuple[bytes, bytes]:  # noqa: B008 - frozen
    """Key and value. Raises `DataError` if they are too large or contain something that msgpack cannot express."""
    if isinstance(message, SetJobModel):
        values: dict[str, Any] = {"term": message.model.term, **to_value(message.model)}
    else:
        named = ((name, getattr(message, name)) for name in _VALUES[type(message)])
        values = {name: _plain(value) for name, value in named if value or name not in _LEFT_OUT}
    whole = {
        "host": stamp.host,
        "username": stamp.username,
        "source": stamp.source,
        "timestamp": stamp.timestamp,
        "values": values,
    }
    try:
        key, value = encode_key(key_of(message)), _pack(whole)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{KEYS[type(message)][0]} cannot be written: {error}", remedy="use plain strings, numbers, lists and maps"
        ) from error
    if len(key) > MAX_KEY or len(value) > MAX_VALUE:
        raise DataError(
            f"{KEYS[type(message)][0]} has {len(key)} bytes of key and {len(value)} of value; "
            f"the coordinator stream takes {MAX_KEY} and {MAX_VALUE}",
            remedy="shorten names, or make fewer tasks",
        )
    return key, value


def encode_key(key: Key) -> bytes:
    """The canonical encoding of a key, which is also the key of a tombstone.

    >>> encode_key(("set-grant", ("Partition 3",))).hex()
    '9301a97365742d6772616e74ab506172746974696f6e2033'
    """
    kind, parts = key
    if kind in _SINGLE:
        written: Any = _SINGLE[kind]
    else:
        written = parts[0] if len(parts) == 1 else list(parts)
    return _pack([VERSION, kind, written])


def read(
    offset: int, key: bytes | None, value: bytes | None, append_ms: int = 0, *, transactional: bool = True
) -> Entry:
    """Decode one record of the stream. Never raises: `problem` says what is wrong. `transactional`: whether it was written in a
    transaction. Only the leader deletes, and it writes everything in transactions: a deletion outside of one does not count.
    """
    if key is None or len(key) > MAX_KEY:
        return Entry(offset, None, None, append_ms, "no key" if key is None else f"oversized key: {len(key)} bytes")
    try:
        named = _read_key(key)
    except _FAULTS as fault:
        return Entry(offset, None, None, append_ms, f"corrupt key: {fault}")
    if isinstance(named, str):
        return Entry(offset, None, None, append_ms, named)
    if value is None:
        return Entry(offset, named, None, append_ms, unlawful(named, transactional=transactional))
    if len(value) > MAX_VALUE:
        return Entry(offset, named, None, append_ms, f"oversized value: {len(value)} bytes")
    try:
        message, stamp = _read_value(named, value)
    except _FAULTS as fault:
        return Entry(offset, named, None, append_ms, f"corrupt value: {fault}")
    return Entry(offset, named, message, append_ms, "", stamp)


def _read_key(key: bytes) -> Key | str:
    version, kind, written = _list(_anything)(_unpack(key, max_ext_len=0))
    if _count(version) > VERSION:
        return f"version {version}: written by a newer headgate; this one reads up to {VERSION}"
    cls = _CLASSES.get(_text(kind))
    if cls is None:
        return f"unknown type {kind!r:.80}"
    names = KEYS[cls][1]
    parts: list[Any] = [] if kind in _SINGLE else [written] if len(names) == 1 else written
    found = tuple(FORMS[cls][name](part) for name, part in zip(names, parts, strict=True))
    if encode_key((kind, found)) != key:
        raise ValueError("not in canonical form")
    return kind, found


def _read_value(key: Key, value: bytes) -> tuple[Message, Stamp]:
    whole = _map(_anything)(_unpack(value, max_ext_len=0))
    stamp = Stamp(
        _text(whole.get("host", "")), _text(whole.get("username", "")), _text(whole.get("source", "")),
        _number(whole.get("timestamp", 0)),
    )  # fmt: skip
    values = _map(_anything)(whole["values"])
    cls = _CLASSES[key[0]]
    if cls is SetJobModel:
        model = from_value(_count(values["term"]), values)
        for number in (model.version, *(found.epoch for found in model.producers.values())):
            _count(number)
        if model.wanted.keys() != model.tasks.keys() or not set(model.wanted.values()) <= set(model.processors):
            raise ValueError("a model places each of its tasks, and no other, on a processor that it names")
        ahead = model.preparing
        followed = {*ahead, *model.standby}
        following = {*(one.processor for one in ahead.values()), *model.standby.values()}
        if not followed <= model.tasks.keys() or not following <= set(model.processors):
            raise ValueError("a model prepares only tasks of its own, on processors that it names")
        for one in ahead.values():
            _count(one.grant)
        return SetJobModel(model), stamp
    form, defaults = FORMS[cls], _DEFAULTS[cls]
    given: dict[str, Any] = dict(zip(KEYS[cls][1], key[1], strict=True))
    for name in _VALUES[cls]:
        if name in values or name not in defaults:
            given[name] = form[name](values[name])
    message = cls(**given)
    if cls is SetRun:
        _sane(message)
    return message, stamp


def _sane(run: SetRun) -> None:
    """Raise unless the fields of the run agree: only a draining or ending run closes, and a draining run has a request for it."""
    if run.closing and run.state not in (RunState.DRAINING, RunState.ENDING):
        raise ValueError(f"a run that is {run.state} cannot be closing")
    if run.drain is None and run.state == RunState.DRAINING:
        raise ValueError("a run that drains names the request for it")
    if run.drain is not None and run.state not in (
        RunState.DRAINING,
        RunState.DRAINED,
        RunState.STOPPING,
        RunState.STOPPED,
    ):
        raise ValueError(f"a run that is {run.state} does not drain")


def _plain(value: Any) -> Any:
    """Tuples become lists, sets become sorted lists, maps are sorted, changes and seeks become lists of their fields."""
    if isinstance(value, Change | SeekRequest | UnparkRequest):
        return [_plain(getattr(value, f.name)) for f in fields(value)]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value)
        return {key: _plain(pairs[key]) for key in sorted(pairs)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, frozenset):
        return sorted(cast("frozenset[str]", value))
    return value
