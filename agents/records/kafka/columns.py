"""Records in columns: record batches are read into them and written from them, without an object per record.

What it decides: nothing; where the compiled part is not used, its twin does the same work, more slowly. Promises:

- Both ways give the same columns, the same bytes and the same partitions; every test of them runs both.
- A column without content is None: no record has a key, no record has headers, or the offsets are consecutive.
- Damaged bytes always raise `DamagedBatch`; nothing is allocated beyond what their length justifies. A compressed batch is never
  decompressed beyond a bound: a larger one raises `OversizedBatch`.
"""

from __future__ import annotations

import gc
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from ....core.errors import DataError, EnvironmentFault
from ....core.names import StreamPartition
from ..limits import LIMIT, MOST_BYTES
from ..native import chosen

Bytes = bytes | None
Raw = bytes | memoryview
"""Bytes as they were received."""
Header = tuple[str, Bytes]

HEAD = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and max timestamp, producer id and epoch, sequence,
count."""
CHECKED_FROM = 21
"""The CRC covers a batch from its attributes on."""
LOG_APPEND_TIME = 8


class DamagedBatch(EnvironmentFault):
    """A record batch that cannot be decoded, however often it is fetched."""


class OversizedBatch(DamagedBatch):
    """A batch that is larger, once it is decompressed, than this reader may hold."""

    def __init__(self, base: int, packed: bytes, head: tuple[Any, ...], most: int) -> None:
        super().__init__(f"the batch at offset {base} cannot be read: {_larger(len(packed), most)}", remedy=_MORE)
        self.base = base
        self.following = base + head[6] + 1
        self.packed = packed
        """The batch as it was received."""
        self.most = most
        self.at: StreamPartition | None = None
        """Where it stands, if whoever read it knows."""
        self.greatest_ms: int = head[8]

    def as_data(self, at: str, first: int) -> OversizedData:
        """The error for those who judge it as data; records below `first` are not wanted."""
        where = f"the records at {at} offsets {first} to {self.following - 1}"
        what = f"{where} are one batch of {_larger(len(self.packed), self.most)}"
        return OversizedData(what, self.following - 1, remedy=_MORE)


class OversizedData(DataError):
    """Such a batch as bad data, up to the offset `last`."""

    def __init__(self, what: str, last: int, *, remedy: str = "") -> None:
        super().__init__(what, remedy=remedy)
        self.last = last


_MORE = f"raise {LIMIT}, if the worker has the memory, or leave the batch out: on_bad_data='skip' or 'dead_letter' on the input"


def _larger(packed: int, most: int) -> str:
    return f"{packed} bytes, which are more than {most} ({LIMIT}) once they are decompressed"


@dataclass(slots=True)
class Columns:
    """Records in the order of their offsets. `base` is the first one's offset."""

    values: list[Bytes]
    timestamps: list[int]
    base: int
    keys: list[Bytes] | None = None
    offsets: list[int] | None = None
    """None if they are consecutive from `base` on; a compacted topic has gaps."""
    headers: list[list[Header]] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def has_keys(self) -> bool:
        """Whether any record has a key."""
        return self.keys is not None

    @property
    def has_headers(self) -> bool:
        """Whether any record has headers."""
        return self.headers is not None

    def value(self, index: int) -> Bytes:
        """The value of one record."""
        return self.values[index]

    def offset(self, index: int) -> int:
        """The offset of one record."""
        return self.base + index if self.offsets is None else self.offsets[index]

    def offset_column(self) -> Sequence[int]:
        """All offsets, without making an integer for each."""
        return range(self.base, self.base + len(self.values)) if self.offsets is None else self.offsets

    def every_offset(self) -> list[int]:
        """All offsets, as a list."""
        return list(self.offset_column())

    def index_from(self, offset: int) -> int:
        """The index of the first record at or behind this offset."""
        if self.offsets is None:
            return max(0, min(offset - self.base, len(self.values)))
        return bisect_left(self.offsets, offset)

    def cut(self, first: int, behind: int) -> Columns:
        """The records from index `first` up to, but not including, `behind`."""
        part = slice(first, behind)
        return Columns(
            self.values[part],
            self.timestamps[part],
            self.offset(first) if first < len(self.values) else self.base,
            None if self.keys is None else self.keys[part],
            None if self.offsets is None else self.offsets[part],
            None if self.headers is None else self.headers[part],
        )


class RecordLists(Protocol):
    """Records as lists, whoever makes them; the lists are those of `Columns`. A type checker takes a cached property for no property that
    gives a list."""

    base: int

    @property
    def values(self) -> Any: ...

    @property
    def timestamps(self) -> Any: ...

    @property
    def keys(self) -> Any: ...

    @property
    def offsets(self) -> Any: ...

    @property
    def headers(self) -> Any: ...


def joined(parts: Sequence[Columns]) -> Columns:
    """Several runs of records of one partition as one.

    >>> joined([Columns([b"a"], [1], 5), Columns([b"b"], [2], 6)]).every_offset()
    [5, 6]
    """
    if len(parts) == 1:
        return parts[0]
    values: list[Bytes] = []
    stamps: list[int] = []
    keys: list[Bytes] | None = [] if any(part.keys is not None for part in parts) else None
    headers: list[list[Header]] | None = [] if any(part.headers is not None for part in parts) else None
    follow = all(part.offsets is None for part in parts) and all(
        before.base + len(before) == after.base for before, after in pairwise(parts)
    )
    offsets: list[int] | None = None if follow else []
    for part in parts:
        values += part.values
        stamps += part.timestamps
        if keys is not None:
            keys += part.keys if part.keys is not None else [None] * len(part)
        if headers is not None:
            headers += part.headers if part.headers is not None else [[] for _ in part.values]
        if offsets is not None:
            offsets += part.every_offset()
    return Columns(values, stamps, parts[0].base if parts else 0, keys, offsets, headers)


# ------------------------------------------------------------------------------------------------------------- reading


def columns_of(records: Iterable[Any]) -> Columns:
    """Columns from objects with `offset`, `timestamp`, `key`, `value` and `headers`: a batch parsed by aiokafka, or plain records."""
    # this makes thousands of objects that stay alive: a garbage collection meanwhile costs three times as much as making them
    collecting = gc.isenabled()
    gc.disable()
    try:
        rows = list(records)
        keys = [row.key for row in rows]
        headers = [list(row.headers) for row in rows]
        offsets = [row.offset for row in rows]
        base = offsets[0] if offsets else 0
        return Columns(
            [row.value for row in rows],
            [row.timestamp for row in rows],
            base,
            None if keys.count(None) == len(keys) else keys,
            None if offsets == list(range(base, base + len(rows))) else offsets,
            headers if any(headers) else None,
        )
    finally:
        if collecting:
            gc.enable()


def read_batch(raw: Raw, start: int, end: int, most: int = MOST_BYTES) -> Columns:
    """The records of the version 2 batch at `start` of these bytes. Raises `OversizedBatch` for more than `most` bytes."""
    return Columns(*read_by(chosen.part.read, raw, start, end, most)[1])


def read_by(read: Any, raw: Raw, start: int, end: int, most: int = MOST_BYTES) -> tuple[Raw, Any]:
    """What a function of the compiled part reads of the version 2 batch at `start`, behind the bytes that it has read, uncompressed.

    Raises `OversizedBatch` if these are more than `most`.
    """
    head = HEAD.unpack_from(raw, start)
    base, _, _, _, _, attributes, _, first_ms, max_ms, _, _, _, count = head
    data: Raw = raw
    at, stop = start + HEAD.size, end
    try:
        if attributes & 7:
            from .codecs import DECODERS, BeyondBound

            try:
                data = DECODERS[attributes & 7](raw[at:end], most)
            except BeyondBound:
                raise OversizedBatch(base, bytes(raw[start:end]), head, most) from None
            at, stop = 0, len(data)
        return data, read(data, at, stop, count, base, first_ms, max_ms if attributes & LOG_APPEND_TIME else None)
    except OversizedBatch:
        raise
    except Exception as error:
        raise DamagedBatch(f"the batch at offset {base} cannot be read: {error}") from error


def crc32c(data: Raw | bytearray, start: int, end: int) -> int:
    """The CRC-32C of a part of these bytes.

    >>> hex(crc32c(b"-123456789-", 1, 10))
    '0xe3069283'
    """
    return chosen.part.crc32c(data, start, end)


# ------------------------------------------------------------------------------------------------------------- picking


def pick(column: Sequence[Any], indexes: list[int]) -> list[Any]:
    """The items of a column at these indexes.

    >>> pick(["a", "b", "c"], [2, 0])
    ['c', 'a']
    """
    return chosen.part.pick(column if type(column) is list else list(column), indexes)
