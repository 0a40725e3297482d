"""The records of a batch, read and written in Python alone, as Kafka's format says: as `columns.c`, `spans.c` and `leaving.c`.

aiokafka's parser reads no batch of this format. It refuses a whole batch for a header whose name is not UTF-8, although Kafka accepts it,
and takes the attributes of a record, which are one byte, for a number of variable length: from 0x80 on it shifts all that follows, so that
keys vanish, or the partition stands still. Brokers check neither.

Promises: `name_of` makes text of any name, in which no byte is lost: `b"caf\\xe9"` becomes `caf\\xe9` with a backslash. Damaged bytes raise
`ValueError`, before anything is allocated that their length does not justify.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...layout import Buffer, longs
from ...limits import NO_TIMESTAMP, TIME_LIMIT
from .spans import pieces

PlaceInBatch = tuple[int, int]
"""Where something begins, and its size; -1 is null."""
SpansOf = tuple[Buffer, Buffer, Buffer]
ESCAPED = "backslashreplace"
"""How the bytes of a name that are not UTF-8 become text; `columns.c` has it, too."""
_TORN = "the records end in the middle of one"


def name_of(data: bytes) -> str:
    """The name of a header.

    >>> name_of("ü".encode()), name_of(b"caf\\\\xe9")
    ('ü', 'caf\\\\\\\\xe9')
    """
    return data.decode(errors=ESCAPED)


class _Found(NamedTuple):
    """The places of the records of a batch, a column each."""

    keys: list[PlaceInBatch]
    values: list[PlaceInBatch]
    headers: list[PlaceInBatch]
    """From the number of headers on."""
    counts: list[int]
    """The numbers of headers."""
    times: list[int]
    offsets: list[int]


def read(data: Any, start: int, end: int, count: int, base: int, first_ms: int, append_ms: int | None) -> Any:
    """The records of a batch in columns: values, timestamps, the first offset, keys, offsets, headers."""
    found = _places(data, start, end, count, base, first_ms, append_ms)

    def of(places: list[PlaceInBatch]) -> list[bytes | None]:
        return [None if size < 0 else bytes(data[at : at + size]) for at, size in places]

    headers = [_headers(data, at) for at, _ in found.headers] if any(found.counts) else None
    first, offsets = _run_of(found, base)
    keys = of(found.keys) if any(size >= 0 for _, size in found.keys) else None
    return of(found.values), found.times, first, keys, offsets, headers


def read_spans(data: Any, start: int, end: int, count: int, base: int, first_ms: int, append_ms: int | None) -> Any:
    """Where the records of a batch lie: values, timestamps, the first offset, keys, offsets, headers."""
    found = _places(data, start, end, count, base, first_ms, append_ms)
    first, offsets = _run_of(found, base)

    def of(places: list[PlaceInBatch]) -> tuple[Buffer, Buffer]:
        return array("q", [at for at, _ in places]), array("q", [size for _, size in places])

    keys = of(found.keys) if any(size >= 0 for _, size in found.keys) else None
    headers = of(found.headers) if any(found.counts) else None
    return of(found.values), array("q", found.times), first, keys, offsets and array("q", offsets), headers


def read_run(data: Any, start: int) -> None:
    """Where the records of several small batches lie. None: each is read alone."""
    return


def crc32c(data: Any, start: int, end: int) -> int:
    """The checksum of a part of some bytes."""
    from aiokafka.record.util import calc_crc32c

    return calc_crc32c(bytes(data[start:end]))


def pick(column: list[Any], indexes: list[int]) -> list[Any]:
    """The items of a list at these indexes."""
    return [column[index] for index in indexes]


# ------------------------------------------------------------------------------------------------------------- writing


def measure(keys: Any, values: list[Any], stamps: Any, headers: Any, overhead: int) -> tuple[int, int]:
    """Whether these columns can be written, and how much they are: bytes of keys and values, and those of the largest record."""
    _check_columns(keys, values, stamps, headers)
    total = largest = 0
    for at, value in enumerate(values):
        stamp = stamps if isinstance(stamps, int) else stamps[at]
        if not isinstance(stamp, int) or isinstance(stamp, bool):
            raise TypeError("a time is a whole number")
        if not NO_TIMESTAMP <= stamp < TIME_LIMIT:
            raise ValueError("no time since 1970")
        own = len(_bytes(value) or b"") + len((_bytes(keys[at]) if keys is not None else None) or b"")
        total += own
        for name, content in _pairs(headers[at]) if headers is not None else ():
            own += 10 + len(name) + len(content or b"")
        largest = max(largest, own)
    return total, largest + overhead


def measure_spans(
    keys: SpansOf | None, values: SpansOf, times: Buffer, headers: SpansOf | None, rows: Buffer | None
) -> tuple[int, int, int, int, int, bool]:
    """How large records are, and when they are: bytes of keys and values, the largest record with its headers, least and greatest time,
    the least that is not -1, whether a record has no key."""
    stamps = longs(times)
    columns = [_column(one, len(stamps)) for one in (keys, values, headers)]
    size = largest = 0
    least = oldest = 2**63 - 1
    greatest = -(2**63)
    keyless = False
    for row in _rows(rows, len(stamps)):
        key, value, head = (column[row] for column in columns)
        own, time = len(key or b"") + len(value or b""), stamps[row]
        size += own
        keyless = keyless or key is None
        if head:
            own += len(head) + 10 * min(_Reader(head, 0, len(head)).varint(), len(head))
        largest, least, greatest = max(largest, own), min(least, time), max(greatest, time)
        if time != NO_TIMESTAMP:
            oldest = min(oldest, time)
    return size, largest, least, greatest, oldest, keyless


def write(
    keys: Any, values: list[Any], stamps: Any, headers: Any, start: int, count: int, first_ms: int, room: int
) -> tuple[bytes, int, int]:
    """Columns as records of a batch: their bytes, the index behind the last that fits, and the greatest time."""
    _check_columns(keys, values, stamps, headers)
    if not 0 <= start <= len(values):
        raise TypeError("columns are lists of one length")

    def of(at: int) -> tuple[Any, ...]:
        own = b"\0"
        if headers is not None:
            pairs = _pairs(headers[at])
            own = _varint(len(pairs)) + b"".join(_sized(name) + _sized(content) for name, content in pairs)
        stamp = stamps if isinstance(stamps, int) else stamps[at]
        if not isinstance(stamp, int):
            raise TypeError("a time is a whole number")
        return stamp, None if keys is None else _bytes(keys[at]), _bytes(values[at]), own

    return _written(of, start, len(values), count, first_ms, room)


def write_spans(
    keys: SpansOf | None,
    values: SpansOf,
    stamps: Any,
    headers: SpansOf | None,
    rows: Buffer | None,
    start: int,
    count: int,
    first_ms: int,
    room: int,
) -> tuple[bytes, int, int]:
    """Records that lie somewhere as records of a batch: as `write`."""
    length = len(longs(values[1]))
    times = [stamps] * length if isinstance(stamps, int) else longs(stamps)
    columns = [_column(one, length) for one in (keys, values, headers)]
    chosen = _rows(rows, length)
    if len(times) != length or not 0 <= start <= len(chosen):
        raise ValueError("columns have different lengths")

    def of(at: int) -> tuple[Any, ...]:
        row = chosen[at]
        key, value, own = (column[row] for column in columns)
        return times[row], key, value, b"\0" if own is None else own

    return _written(of, start, len(chosen), count, first_ms, room)


def _written(of: Any, start: int, end: int, count: int, first_ms: int, room: int) -> tuple[bytes, int, int]:
    made, total, greatest, at = list[bytes](), 0, -(2**63), start
    for at in range(start, end):
        ms, key, value, headers = of(at)
        body = b"".join(
            (b"\0", _varint(_long(ms - first_ms)), _varint(count + at - start), _sized(key), _sized(value), headers)
        )
        whole = _varint(len(body)) + body
        if total + len(whole) > room and count + at - start > 0:
            break
        total, greatest = total + len(whole), max(greatest, ms)
        made.append(whole)
    return b"".join(made), start + len(made), greatest


def _check_columns(keys: Any, values: Any, stamps: Any, headers: Any) -> None:
    columns = [values, *(one for one in (keys, headers) if one is not None)]
    columns += [] if isinstance(stamps, int) else [stamps]
    if not all(isinstance(one, list) and len(one) == len(values) for one in columns):
        raise TypeError("columns are lists of one length")


def _bytes(one: Any) -> bytes | None:
    if one is None or isinstance(one, bytes):
        return one
    raise TypeError(f"bytes are wanted, not {type(one).__name__}")


def _pairs(headers: Any) -> list[tuple[bytes, bytes | None]]:
    if not isinstance(headers, list):
        raise TypeError("headers are a list")
    found: list[tuple[bytes, bytes | None]] = []
    for one in headers:
        if not isinstance(one, tuple) or len(one) != 2 or not isinstance(one[0], str):
            raise TypeError("a header is a pair of name and value")
        found.append((one[0].encode(), _bytes(one[1])))
    return found


def _column(spans: SpansOf | None, length: int) -> Sequence[bytes | None]:
    found = [None] * length if spans is None else pieces(*spans)
    if len(found) != length:
        raise ValueError("columns have different lengths")
    return found


def _rows(rows: Buffer | None, length: int) -> Sequence[int]:
    found = range(length) if rows is None else longs(rows).tolist()
    if any(not 0 <= row < length for row in found):
        raise ValueError("a record lies outside of its buffer")
    return found


def _varint(value: int) -> bytes:
    left, made = (value << 1) ^ (value >> 63), bytearray()
    while left >= 0x80:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _sized(part: bytes | None) -> bytes:
    return b"\x01" if part is None else _varint(len(part)) + part


def _long(value: int) -> int:
    """As Java adds: a 64-bit integer that wraps around."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# ------------------------------------------------------------------------------------------------------------- reading


def _run_of(found: _Found, base: int) -> tuple[int, list[int] | None]:
    """The first offset, and all of them if they do not follow each other."""
    first = found.offsets[0] if found.offsets else base
    return first, None if found.offsets == list(range(first, first + len(found.offsets))) else found.offsets


def _places(data: Any, start: int, end: int, count: int, base: int, first_ms: int, append_ms: int | None) -> _Found:
    if not 0 <= start <= end <= len(data) or count < 0 or count > (end - start) // 7:
        raise ValueError("more records are announced than there can be")
    reader = _Reader(data, start, end)
    found = _Found([], [], [], [], [], [])
    for _ in range(count):
        reader.record(found)
    if reader.at != end:
        raise ValueError("bytes are left behind the last record")
    times = [_long(first_ms + one) if append_ms is None else append_ms for one in found.times]
    return found._replace(times=times, offsets=[_long(base + one) for one in found.offsets])


def _headers(data: Any, at: int) -> list[tuple[str, bytes | None]]:
    reader = _Reader(data, at, len(data))
    made: list[tuple[str, bytes | None]] = []
    for _ in range(reader.varint()):
        (name, size), (value, held) = reader.sized(), reader.sized()
        made.append((name_of(bytes(data[name : name + size])), None if held < 0 else bytes(data[value : value + held])))
    return made


class _Reader:
    """Reads one field after the other."""

    def __init__(self, data: Any, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            if self.at >= self.end:
                break
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= (1 << 64) - 1
                return (value >> 1) ^ -(value & 1)
        raise ValueError(_TORN)

    def sized(self) -> PlaceInBatch:
        """Where bytes lie behind their length; a negative length is null."""
        size = self.varint()
        if size > self.end - self.at:
            raise ValueError(_TORN)
        at = self.at
        self.at += max(size, 0)
        return at, max(size, -1)

    def record(self, to: _Found) -> None:
        """Time and offset from those of the batch, key, value, headers."""
        length = self.varint()
        begun = self.at
        if length < 1 or length > self.end - begun:
            raise ValueError(_TORN)
        self.at += 1  # attributes: unused
        to.times.append(self.varint())
        to.offsets.append(self.varint())
        to.keys.append(self.sized())
        to.values.append(self.sized())
        headers = self.at
        count = self.varint()
        if count < 0 or count > self.end - self.at:
            raise ValueError(_TORN)
        for _ in range(count):
            if self.sized()[1] < 0:
                raise ValueError("a header has no name")
            self.sized()
        to.headers.append((headers, self.at - headers))
        to.counts.append(count)
        if self.at != begun + length:
            raise ValueError("a record has another length than it says")
