"""What a record may be made of, checked where user code gives it: a transaction of all tasks is no place to find out.

Promises: what passes can be built into a batch and never raises there; what does not is refused with the index of its record, and with
what was expected. Keys and values are bytes or None; a timestamp is a whole number of milliseconds since 1970 (in columns that came
through operators also before it: those travel inside of frames); a header is a pair of text and bytes or None.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from ..core.errors import DataError

Bytes = bytes | None
Header = tuple[str, Bytes]

TIME_LIMIT = 1 << 62
"""Event times lie strictly between minus this and this: so a lag can be taken off, and nothing is taken for "no more time"."""
NO_TIMESTAMP = -1
"""Kafka's own word for a record without one: it may be read, and written on."""
RAW = frozenset((bytes, type(None)))
INT = frozenset((int,))


class Unwritable(DataError):
    """A record that no topic takes. `index`: which of those emitted."""

    def __init__(self, index: int, what: str, *, remedy: str = "") -> None:
        self.index = index
        super().__init__(what, remedy=remedy)


def raw_column(topic: str, what: str, column: Any) -> list[Bytes]:
    listed: list[Any] = column if type(column) is list else list(column)
    if RAW.issuperset(map(type, listed)):
        return listed
    return [as_bytes(one, lambda index=index: f"{what} for {topic}", index) for index, one in enumerate(listed)]


def as_bytes(one: Any, what: Any, index: int = 0) -> Bytes:
    """Bytes, of whatever holds some; `what()` names it where it holds none."""
    if one is None or type(one) is bytes:
        return one
    if isinstance(one, bytes | bytearray | memoryview):
        return bytes(one)
    raise Unwritable(
        index, f"a {what()} is {type(one).__name__} ({one!r:.60}), not bytes", remedy="a serde's dumps() gives bytes"
    )


def stamps_column(topic: str, column: Any) -> list[int] | int:
    if isinstance(column, int):
        return whole_ms(column, f"timestamp for {topic}", 0, least=NO_TIMESTAMP)
    listed: list[Any] = column if type(column) is list else list(column)
    if INT.issuperset(map(type, listed)) and (not listed or (min(listed) >= NO_TIMESTAMP and max(listed) < TIME_LIMIT)):
        return listed
    return [whole_ms(one, f"timestamp for {topic}", index, least=NO_TIMESTAMP) for index, one in enumerate(listed)]


def whole_ms(one: Any, what: str, index: int = 0, *, least: int = 1 - TIME_LIMIT) -> int:
    """A time as a whole number; an `Unwritable` for anything else.

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
            index, f"a {what} is {one!r:.60}, which is no whole number of milliseconds", remedy=remedy
        ) from None
    if not least <= found < TIME_LIMIT:
        before = "before 1970, and Kafka takes none such" if found < 0 else "outside of what 64 bits hold"
        raise Unwritable(index, f"a {what} is {found}: {before}", remedy="give milliseconds since 1970")
    return found


def check_times(times: list[Any], what: str) -> list[int]:
    """Event times of rows; an `Unwritable` with the first that is none."""
    if INT.issuperset(map(type, times)) and (not times or (min(times) > -TIME_LIMIT and max(times) < TIME_LIMIT)):
        return times
    return [whole_ms(one, what, index) for index, one in enumerate(times)]


def check_headers(headers: Iterable[Any], what: str) -> list[list[Header]]:
    """The headers of each row, as lists of pairs; an `Unwritable` with the first that are none."""
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
        raise Unwritable(index, f"a header of {what} has a name that is no text: {error}") from None
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
    """A partition that the topic has; an `Unwritable` for anything else."""
    if isinstance(partition, bool) or not isinstance(partition, int):
        raise Unwritable(
            0,
            f"partition {partition!r:.60} of {topic} is no number",
            remedy=f"give one from 0 to {width - 1}, or None for the one that the key says",
        )
    if not 0 <= partition < width:
        raise Unwritable(
            0,
            f"{topic} has {width} partitions, and no partition {partition}",
            remedy=f"give one from 0 to {width - 1}, or None for the one that the key says",
        )
    return partition
