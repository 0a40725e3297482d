"""Checks what a record is made of when user code emits it: a bad record must not be found only in the transaction of all tasks.

Promises: a record that passes can be built into a batch without an error. A record that does not pass is refused with its index and with
what was expected. Keys and values are bytes or None; a timestamp is an integer, in milliseconds since 1970 (event times of operators may
lie before 1970, because they travel inside frames); a header is a pair of text and either bytes or None.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ....core.errors import DataError
from ..layout import Buffer
from ..limits import NO_TIMESTAMP
from ..memory.event_time import FIRST_TIME, are_times, is_time
from ..native import chosen
from ..values.record import Headers
from .columns import HEAD, Header
from .spans import SpannedRecords

Bytes = bytes | None
BATCH_OVERHEAD = HEAD.size
"""The bytes of a version 2 batch header."""

RAW = frozenset((bytes, type(None)))
INT = frozenset((int,))


class Unwritable(DataError):
    """A record that no topic would accept. `index`: its index among the emitted records."""

    def __init__(self, index: int, what: str, *, remedy: str = "") -> None:
        self.index = index
        super().__init__(what, remedy=remedy)


def raw_column(topic: str, what: str, column: Any) -> list[Bytes]:
    listed: list[Any] = column if type(column) is list else list(column)
    if RAW.issuperset(map(type, listed)):
        return listed
    return [as_bytes(one, lambda index=index: f"{what} for {topic}", index) for index, one in enumerate(listed)]


def as_bytes(one: Any, what: Any, index: int = 0) -> Bytes:
    """The value as bytes; raises `Unwritable` if it is not bytes-like or None. `what()` names it for the message."""
    if one is None or type(one) is bytes:
        return one
    if isinstance(one, bytes | bytearray | memoryview):
        return bytes(one)
    raise Unwritable(
        index,
        f"a {what()} is {type(one).__name__} ({one!r:.60}), not bytes",
        remedy="dumps() of a serde must return bytes",
    )


def stamps_column(topic: str, column: Any) -> list[int] | int:
    if isinstance(column, int):
        return whole_ms(column, f"timestamp for {topic}", 0, least=NO_TIMESTAMP)
    listed: list[Any] = column if type(column) is list else list(column)
    if INT.issuperset(map(type, listed)) and are_times(listed, NO_TIMESTAMP):
        return listed
    return [whole_ms(one, f"timestamp for {topic}", index, least=NO_TIMESTAMP) for index, one in enumerate(listed)]


def whole_ms(one: Any, what: str, index: int = 0, *, least: int = FIRST_TIME) -> int:
    """A time as an integer; raises `Unwritable` for anything else.

    >>> whole_ms(1700000000000, "timestamp")
    1700000000000
    """
    try:
        if isinstance(one, bool):
            raise TypeError
        found = operator.index(one)
    except TypeError:
        remedy = "round it: int(…)" if isinstance(one, float) else "give milliseconds since 1970, as an int"
        raise Unwritable(
            index, f"a {what} is {one!r:.60}, which is not a whole number of milliseconds", remedy=remedy
        ) from None
    if not is_time(found, least):
        before = "before 1970, which Kafka does not accept" if found < 0 else "out of the 64-bit range"
        raise Unwritable(index, f"a {what} is {found}: {before}", remedy="give milliseconds since 1970")
    return found


def check_times(times: list[Any], what: str) -> list[int]:
    """The event times of rows; raises `Unwritable` for the first invalid one."""
    if INT.issuperset(map(type, times)) and are_times(times):
        return times
    return [whole_ms(one, what, index) for index, one in enumerate(times)]


def check_headers(headers: Iterable[Any], what: str) -> list[list[Header]]:
    """The headers of each row as lists of pairs; raises `Unwritable` for the first invalid ones."""
    return [_headers(what, index, one) for index, one in enumerate(headers)]


def _headers(what: str, index: int, headers: Any) -> list[Header]:
    """The headers of one record."""
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise _no_headers(what, index, headers)
    return [_header(what, index, one) for one in headers]


def _header(what: str, index: int, one: Any) -> Header:
    try:
        name, value = one
    except (TypeError, ValueError):
        raise _no_headers(what, index, one) from None
    if isinstance(one, str) or not isinstance(name, str):
        raise _no_headers(what, index, one)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise Unwritable(index, f"a header of {what} has a name that is not text: {error}") from None
    if value is not None and type(value) is not bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            remedy = "encode it: (name, text.encode())" if isinstance(value, str) else "give bytes or None"
            raise Unwritable(
                index,
                f"the header {name!r} of {what} is {type(value).__name__} ({value!r:.60}), not bytes",
                remedy=remedy,
            )
        value = bytes(value)
    return (str(name), value)


def _no_headers(what: str, index: int, found: Any) -> Unwritable:
    return Unwritable(
        index, f"headers of {what} are {found!r:.60}", remedy='a list of pairs: [("trace", b"abc"), ("none", None)]'
    )


def check_partition(topic: str, partition: Any, width: int) -> int:
    """The partition if the topic has it; raises `Unwritable` for anything else."""
    if isinstance(partition, bool) or not isinstance(partition, int):
        raise Unwritable(
            0,
            f"partition {partition!r:.60} of {topic} is not a number",
            remedy=f"use a number from 0 to {width - 1}, or None to use the key's partition",
        )
    if not 0 <= partition < width:
        raise Unwritable(
            0,
            f"{topic} has {width} partitions, but no partition {partition}",
            remedy=f"use a number from 0 to {width - 1}, or None to use the key's partition",
        )
    return partition


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of the bytes of one record in a batch of its own, including the batch header, before compression."""
    size = BATCH_OVERHEAD + 36 + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + len(name.encode()) + len(content or b"")
    return size


_OVERHEAD = record_size(None, None, ())


class Writable(NamedTuple):
    """Columns that can be written. `size`: bytes of keys and values; `largest`: an upper bound of any record's bytes in a batch of its
    own."""

    keys: list[Bytes] | None
    values: list[Bytes]
    timestamps: list[int] | int
    headers: list[list[Header]] | None
    size: int
    largest: int


def writable(
    topic: str,
    keys: Sequence[Any] | None,
    values: Sequence[Any],
    timestamps: Sequence[Any] | int,
    headers: Sequence[Any] | None,
) -> Writable:
    """The columns in the form that a batch needs; raises `Unwritable` for the first record that cannot be written."""
    try:
        size, largest = chosen.part.measure(keys, values, timestamps, headers, _OVERHEAD)
    except (TypeError, ValueError, OverflowError):
        pass  # the slow path below says which record it is, and accepts bytes-like values
    else:
        return Writable(keys, values, timestamps, headers, size, largest)  # type: ignore[arg-type]  # lists, or `measure` would have raised
    return _slowly(topic, keys, values, timestamps, headers)


class Extent(NamedTuple):
    """What is to be known of records that lie in buffers before they are written. `size`: bytes of keys and values; `largest`: as in
    `Writable`; `earliest`, `newest`: the least and the greatest timestamp; `oldest`: the least that is not `NO_TIMESTAMP`, or None."""

    size: int
    largest: int
    earliest: int
    newest: int
    oldest: int | None
    keyless: bool


def extent_of(records: SpannedRecords, rows: Buffer | None) -> Extent:
    """Measure these rows, of which there is at least one, in one pass."""
    size, largest, earliest, newest, oldest, keyless = chosen.part.measure_spans(
        records.keys, records.values, records.timestamps, records.headers, rows
    )
    return Extent(size, largest + _OVERHEAD, earliest, newest, None if oldest > newest else oldest, keyless)


def _slowly(topic: str, keys: Any, values: Any, timestamps: Any, headers: Any) -> Writable:
    raw_values = raw_column(topic, "value", values)
    raw_keys = None if keys is None else raw_column(topic, "key", keys)
    stamps = stamps_column(topic, timestamps)
    listed = None if headers is None else check_headers(headers, topic)
    for column in (raw_keys, stamps, listed):
        if isinstance(column, list) and len(column) != len(raw_values):
            raise ValueError(f"a column for {topic} has {len(column)} items, and there are {len(raw_values)} records")
    lengths = [[0 if one is None else len(one) for one in column] for column in (raw_values, raw_keys or [None])]
    largest = _OVERHEAD + sum(map(max, lengths)) if raw_values else 0
    if listed is not None and raw_values:
        largest += max(record_size(None, None, one) for one in listed)
    return Writable(raw_keys, raw_values, stamps, listed, sum(map(sum, lengths)), largest)
