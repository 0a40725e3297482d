"""The records of a batch as objects, for aiokafka's own consumers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from .columns import HEAD, LOG_APPEND_TIME, Header, Raw, read_batch


class PlainRecord(NamedTuple):
    """A record as aiokafka's parser gives it."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    checksum: None = None


def records_of(raw: Raw, start: int, end: int) -> Iterator[PlainRecord]:
    """The records of the version 2 batch at `start`, an object each."""
    found = read_batch(raw, start, end)
    kind = int(HEAD.unpack_from(raw, start)[5] & LOG_APPEND_TIME > 0)
    keys, headers = found.keys or repeat(None), found.headers or repeat(())
    for offset, ms, key, value, own in zip(
        found.offset_column(), found.timestamps, keys, found.values, headers, strict=False
    ):
        yield PlainRecord(offset, ms, kind, key, value, list(own))
