"""What executors report of the parts of a batch by reference, as bytes: they travel through Spark, and nothing in them is ever executed.

    part   msgpack [topic, partition, first, behind, topic id]
    note   msgpack [1, part, rows, tombstones, greatest time or nil, bad records]
    bad    msgpack [topic, partition, offset, timestamp, key, value, [[name, value], …], why]

Promises: the same note always has the same bytes (golden bytes in the tests). Any other bytes are a `DataError`; that of a newer version
names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from ..errors import DataError
from .ranges import Range, RangeRead, UndecodedRecord

VERSION = 1
_pack = cast("Callable[[Any], bytes]", msgpack.packb)  # pyright: ignore[reportUnknownMemberType]
_unpack = cast("Callable[..., Any]", msgpack.unpackb)  # pyright: ignore[reportUnknownMemberType]
_FORM: tuple[type | tuple[type, ...], ...] = (str, int, int, int, (bytes, type(None)), (bytes, type(None)), list, str)
"""The types of the fields of a bad record."""


def key_of(attempt: str, part: Range) -> bytes:
    """By what notes are told apart: a part that was read twice in one attempt counts once.

    >>> key_of("a", Range("t", 0, 5, 9)).hex()
    '92a16195a174000509a0'
    """
    return _pack([attempt, _listed(part)])


def attempt_of(key: bytes) -> str:
    """The attempt of a key."""
    found = _read(key, "key")
    if not (isinstance(found, list) and found and isinstance(found[0], str)):
        raise DataError("a key of an executor's report names no attempt", remedy=_REMEDY)
    return found[0]


def encode(seen: RangeRead) -> bytes:
    """A note.

    >>> decode(encode(RangeRead(Range("t", 0, 5, 9), 3, 1, 17))).rows
    3
    """
    bad = [[*one[:6], [[name, content] for name, content in one.headers], one.why] for one in seen.bad]
    return _pack([VERSION, _listed(seen.part), seen.rows, seen.tombstones, seen.greatest_ms, bad])


def decode(data: bytes) -> RangeRead:
    """The note. Raises `DataError` for anything else."""
    whole = _read(data, "note")
    try:
        version, part, rows, tombstones, greatest_ms, bad = whole
        if version != VERSION:
            raise DataError(
                f"an executor's report has version {version!r:.20}; this headgate reads {VERSION}", remedy=_REMEDY
            )
        topic, partition, first, behind, topic_id = part
        _check((topic, topic_id), str)
        _check((partition, first, behind, rows, tombstones), int)
        _check((greatest_ms,), (int, type(None)))
        found = tuple(_bad(one) for one in bad)
    except (TypeError, ValueError) as error:
        raise DataError(f"an executor's report cannot be read: {error}", remedy=_REMEDY) from error
    return RangeRead(Range(topic, partition, first, behind, topic_id), rows, tombstones, greatest_ms, found)


_REMEDY = "run the same version of headgate on workers and executors"


def _listed(part: Range) -> list[Any]:
    return [part.topic, part.partition, part.first, part.behind, part.topic_id]


def _read(data: bytes, what: str) -> Any:
    try:
        return _unpack(data, max_ext_len=0)
    except Exception as error:
        raise DataError(f"a {what} of an executor's report is not msgpack: {error}", remedy=_REMEDY) from error


def _check(values: tuple[Any, ...], kind: type | tuple[type, ...]) -> None:
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{value!r:.40} is not what it should be")


def _bad(one: Any) -> UndecodedRecord:
    topic, partition, offset, timestamp, key, value, headers, why = one
    for field, kind in zip(one, _FORM, strict=True):
        _check((field,), kind)
    named: list[tuple[str, bytes | None]] = []
    for name, content in headers:
        _check((name,), str)
        _check((content,), (bytes, type(None)))
        named.append((name, content))
    return UndecodedRecord(topic, partition, offset, timestamp, key, value, tuple(named), why)
