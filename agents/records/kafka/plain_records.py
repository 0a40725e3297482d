"""Reads a record batch in Python alone, as Kafka's format says: the way of this process where there is no compiled part.

aiokafka's parser reads no batch of this format. It refuses a whole batch for a header whose name is not UTF-8, although Kafka accepts it,
and takes the attributes of a record, which are one byte, for a number of variable length: from 0x80 on it shifts all that follows, so that
keys vanish, or the partition stands still. Brokers check neither.

Promises: `name_of` makes text of any name, in which no byte is lost: `b"caf\xe9"` becomes `caf\xe9` with a backslash. All ways to read
a batch use the same rule. Damaged bytes raise `ValueError`, before anything is allocated that their length does not justify.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from ..memory.limits import MOST_BYTES
from ..native import compiled_part
from .columns import HEAD, LOG_APPEND_TIME, Header, Raw, read_batch, read_by

ESCAPED = "backslashreplace"
"""How the bytes of a name that are not UTF-8 become text; `columns.c` has it, too."""


class PlainRecord(NamedTuple):
    """A record as aiokafka's parser gives it."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    checksum: None = None


def name_of(data: bytes) -> str:
    """The name of a header.

    >>> name_of("ü".encode()), name_of(b"caf\\xe9")
    ('ü', 'caf\\\\xe9')
    """
    return data.decode(errors=ESCAPED)


def records_of(raw: Raw, start: int, end: int) -> Iterator[PlainRecord]:
    """The records of the version 2 batch at `start`, an object each, for aiokafka's own consumers."""
    if compiled_part.compiled is None:
        yield from records_plainly(raw, start, end)
        return
    found = read_batch(raw, start, end)
    kind = int(HEAD.unpack_from(raw, start)[5] & LOG_APPEND_TIME > 0)
    keys, headers = found.keys or repeat(None), found.headers or repeat(())
    for offset, ms, key, value, own in zip(
        found.offset_column(), found.timestamps, keys, found.values, headers, strict=False
    ):
        yield PlainRecord(offset, ms, kind, key, value, list(own))


def records_plainly(raw: Raw, start: int, end: int, most: int = MOST_BYTES) -> list[PlainRecord]:
    """The records of the version 2 batch at `start` of these bytes. Raises `DamagedBatch`."""
    return read_by(_records, raw, start, end, most)[1]


def _records(
    data: Raw, start: int, end: int, count: int, base: int, first_ms: int, append_ms: int | None
) -> list[PlainRecord]:
    if count < 0 or count > (end - start) // 7:
        raise ValueError("more records are announced than there can be")
    reader = _Reader(data, start, end)
    kind = 0 if append_ms is None else 1
    found: list[PlainRecord] = []
    for _ in range(count):
        ms, offset, key, value, headers = reader.record()
        at_ms = _long(first_ms + ms) if append_ms is None else append_ms
        found.append(PlainRecord(_long(base + offset), at_ms, kind, key, value, headers))
    if reader.at != end:
        raise ValueError("bytes are left behind the last record")
    return found


class _Reader:
    """Reads one field after the other."""

    def __init__(self, data: Raw, at: int, end: int) -> None:
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
        raise ValueError("the records end in the middle of one")

    def sized(self) -> bytes | None:
        """Length and bytes; a negative length is null."""
        size = self.varint()
        if size > self.end - self.at:
            raise ValueError("the records end in the middle of one")
        self.at += max(size, 0)
        return None if size < 0 else bytes(self.data[self.at - size : self.at])

    def record(self) -> tuple[int, int, bytes | None, bytes | None, list[Header]]:
        """Time and offset from those of the batch, key, value, headers."""
        length = self.varint()
        begun = self.at
        if length < 1 or length > self.end - begun:
            raise ValueError("the records end in the middle of one")
        self.at += 1  # attributes: unused
        ms, offset = self.varint(), self.varint()
        key, value = self.sized(), self.sized()
        count = self.varint()
        if count < 0 or count > self.end - self.at:
            raise ValueError("the records end in the middle of one")
        headers = list(self.headers(count))
        if self.at != begun + length:
            raise ValueError("a record has another length than it says")
        return ms, offset, key, value, headers

    def headers(self, count: int) -> Iterator[Header]:
        for _ in range(count):
            if (name := self.sized()) is None:
                raise ValueError("a header has no name")
            yield name_of(name), self.sized()


def _long(value: int) -> int:
    """As Java adds: whoever wrote it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
