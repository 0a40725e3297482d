"""Spans, and what is chosen by their bytes: as `spans.c`, `leaving.c` and `latest.c`. A length of -1 is null."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ...layout import Buffer, longs

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
REMEMBERED = 1 << 17
_HASHES: dict[bytes, int] = {}
"""Of keys that were there before: a repeated key costs one look-up."""


def pieces(buffer: Buffer, offsets: Buffer, lengths: Buffer) -> list[bytes | None]:
    """The bytes of spans."""
    data = memoryview(buffer).cast("B")
    found: list[bytes | None] = []
    for start, size in zip(longs(offsets), longs(lengths), strict=True):
        if size != -1 and (start < 0 or size < 0 or start + size > len(data)):
            raise ValueError("a record lies outside of its buffer")
        found.append(None if size == -1 else bytes(data[start : start + size]))
    return found


def spans_of_parts(parts: Sequence[Any]) -> tuple[Buffer, Buffer, Buffer]:
    """Bytes, one behind the other."""
    starts, end = array("q"), 0
    for part in parts:
        starts.append(end)
        end += len(part or b"")
    sizes = array("q", [-1 if part is None else len(part) for part in parts])
    return b"".join(filter(None, parts)), starts, sizes


def is_text(buffer: Buffer, offsets: Buffer, lengths: Buffer) -> bool:
    """Whether spans are UTF-8."""
    try:
        for one in pieces(buffer, offsets, lengths):
            (one or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def marked(spans: tuple[Buffer, Buffer, Buffer], rows: Buffer | None, mark: bytes) -> bool:
    """Whether a span begins with a byte."""
    listed = pieces(*spans)
    return any(
        (one or b"").startswith(mark) for one in (listed if rows is None else map(listed.__getitem__, longs(rows)))
    )


def among(spans: tuple[Buffer, Buffer, Buffer], keys: AbstractSet[bytes]) -> list[int]:
    """The numbers of the spans that are one of these keys."""
    if not isinstance(keys, set | frozenset) or not all(isinstance(key, bytes) for key in keys):
        raise TypeError("a set of bytes is wanted")
    return [row for row, one in enumerate(pieces(*spans)) if one in keys]


def latest(buffer: Buffer, offsets: Buffer, lengths: Buffer) -> Buffer:
    """The last record of each key, in the order of the keys."""
    found = {key or b"": row for row, key in enumerate(pieces(buffer, offsets, lengths))}
    return array("q", [found[key] for key in sorted(found)])


def murmur2(key: bytes) -> int:
    """Kafka's murmur2, as an unsigned 32-bit number.

    >>> murmur2(b"21") - 2**32
    -973932308
    """
    length = len(key)
    h = _SEED ^ length
    words = length >> 2
    for k in struct.unpack_from(f"<{words}I", key):
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> 24)) * _M) & _MASK)
    tail = length & 3
    if tail:
        h ^= int.from_bytes(key[words << 2 :], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def split(keys: Sequence[bytes | None], partitions: int, turn: int) -> tuple[list[list[int]], bool]:
    """The indexes of keys by the partition that Java's client would choose."""
    parts: list[list[int]] = [[] for _ in range(partitions)]
    for index, key in enumerate(keys):
        if key is None:
            parts[turn].append(index)
            continue
        found = _HASHES.get(key)
        if found is None:
            if len(_HASHES) >= REMEMBERED:
                _HASHES.clear()
            found = _HASHES[key] = murmur2(key) & 0x7FFFFFFF
        parts[found % partitions].append(index)
    return parts, None in keys


def split_spans(
    buffer: Buffer, offsets: Buffer, lengths: Buffer, rows: Buffer | None, partitions: int, turn: int
) -> tuple[list[Buffer], bool]:
    """The rows of keys by the partition that Java's client would choose."""
    found = pieces(buffer, offsets, lengths)
    wanted = range(len(found)) if rows is None else longs(rows).tolist()
    if any(not 0 <= row < len(found) for row in wanted):
        raise ValueError("a row lies outside of its column")
    parts, some_null = split([found[row] for row in wanted], partitions, turn)
    return [array("q", [wanted[at] for at in part]) for part in parts], some_null
