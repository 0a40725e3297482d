"""An index of when the rows of a table expire, stored alongside the rows in blocks of keys, and the search in it.

It decides how the index is stored, and where a search continues. Promises:

- One entry stands for up to `BLOCK` keys that were written with the same expiry time: its key is that time and a digest of the keys, its
  value is the keys. So a chunk costs one entry, which is written, read and removed as a whole.
- An entry is a hint. A row that was set again has a later time and another entry, so a reader must check the row itself.
- The index is local and not logged. A restore rebuilds it from the rows, in other blocks with the same meaning.
- A search continues where the last one ended, because RocksDB would otherwise step over all removed entries again. It never passes a time
  at which something may expire that is not in the store yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgpack as _msgpack

from ...core.task.stored.checkpoint import expiry_bytes
from .packed_rows import PackedRows
from .store import Changes, Store

IndexRows = dict[bytes, bytes | None]

TTL_TABLE = "__ttl."
"""The prefix of an index's table name; the name of the indexed table follows."""
TIME_BYTES = 8
BLOCK = 1_000
"""The most keys in one entry."""
EXPIRED_UNCOMMITTED = 100_000
"""The most keys that may be found without a commit. If commits fail, expiry waits too."""


class Block(NamedTuple):
    """An entry that is due, with its keys."""

    entry: bytes
    keys: list[bytes]

    @property
    def at(self) -> bytes:
        """When the keys expire, unless they were set again."""
        return self.entry[:TIME_BYTES]


class DueKeys(NamedTuple):
    """The result of a search: the blocks, the number of keys, where the next search begins, and whether it may find more at once."""

    blocks: list[Block]
    keys: int
    searched: bytes
    more: bool


class _Sealed(NamedTuple):
    rows: IndexRows
    found: int
    first: int | None


class ExpiryIndex:
    """The index of one table."""

    def __init__(self, table: str, store: Store) -> None:
        self._name = TTL_TABLE + table
        self._store = store
        self._rows: IndexRows = {}
        """What the next commit writes into the index: new blocks, and deletions of spent ones."""
        self._found = 0
        self._first: int | None = None
        """The first expiry time among the rows of the next commit. Each seal has its own."""
        self._sealed: deque[_Sealed] = deque()
        self._searched: bytes | None = None
        """Everything before this position is spent."""

    @property
    def changed(self) -> bool:
        """Whether a commit would change the index."""
        return bool(self._rows)

    def written(self, expires_ms: int, keys: list[bytes]) -> None:
        """Index rows that were written with this expiry time. If the clock has gone back, the search goes back with it."""
        if not keys:
            return
        at = _time(expires_ms)
        self._first = expires_ms if self._first is None else min(self._first, expires_ms)
        if self._searched is not None and at < self._searched:
            self._searched = at
        self._rows.update(_blocks(at, keys))

    def ends(self, now_ms: int) -> bytes | None:
        """How far a search may go now; None if it has been there already."""
        underway = [first for first in (self._first, *(one.first for one in self._sealed)) if first is not None]
        end = _time(min([now_ms + 1, *underway]))
        return None if self._searched is not None and self._searched >= end else end

    def full(self) -> bool:
        """Whether a commit must come before another search."""
        return self._found + sum(one.found for one in self._sealed) >= EXPIRED_UNCOMMITTED

    def due(self, end: bytes, most: int) -> DueKeys:
        """The blocks before `end`, until they contain `most` keys."""
        unpack: Any = _msgpack.unpackb
        blocks: list[Block] = []
        found = 0
        for entry, packed in self._store.range(self._name, self._searched, end):
            blocks.append(Block(entry, unpack(packed)))
            found += len(blocks[-1].keys)
            if found >= most:
                return DueKeys(blocks, found, entry + b"\x00", more=True)
        return DueKeys(blocks, found, end, more=False)

    def spend(self, due: DueKeys) -> None:
        """Mark the blocks as handled, with the next commit."""
        self._rows.update((block.entry, None) for block in due.blocks)
        self._found += due.keys
        self._searched = due.searched

    def seal(self) -> None:
        """Assign the changes so far to the commit that begins now."""
        self._sealed.append(_Sealed(self._rows, self._found, self._first))
        self._rows, self._found, self._first = {}, 0, None

    def to_apply(self) -> dict[str, IndexRows]:
        """The changes of the oldest seal, to be written together with its rows."""
        return {self._name: self._sealed[0].rows} if self._sealed and self._sealed[0].rows else {}

    def applied(self) -> None:
        """Drop the oldest seal: it is in the store."""
        self._sealed.popleft()


def indexed(changes: Mapping[str, PackedRows]) -> Changes:
    """Rows of a task log, together with their index entries, for one write."""
    out: dict[str, Mapping[bytes, bytes | None]] = dict(changes)
    for table, rows in changes.items():
        if not rows.may_expire():
            continue
        times: dict[bytes, list[bytes]] = {}
        for key, data in rows.items():
            if data is not None and (at := expiry_bytes(data)) is not None:
                times.setdefault(at, []).append(key)
        if times:
            out[TTL_TABLE + table] = dict(block for at, keys in times.items() for block in _blocks(at, keys))
    return out


def _time(expires_ms: int) -> bytes:
    return expires_ms.to_bytes(TIME_BYTES, "big", signed=True)


def _blocks(at: bytes, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    pack: Any = _msgpack.packb
    for start in range(0, len(keys), BLOCK):
        packed: bytes = pack(keys[start : start + BLOCK])
        yield at + blake2b(packed, digest_size=8).digest(), packed
