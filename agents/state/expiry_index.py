"""What of a table expires when: an index beside its rows, in blocks of keys, and the search in it.

What it decides: how the index lies in the store, and where a search goes on. Promises:

- One entry stands for up to `BLOCK` keys that were written at one time: its key is their time and a digest of them, its value the keys.
  So a chunk costs one entry, which is written, read and removed as one.
- An entry is a hint. A row that was set again has another time, and an entry of its own: whoever finds a key here asks the row.
- The index is local and not logged: a restore makes it anew from the rows, in other blocks, and means the same.
- A search goes on where the last one ended, because RocksDB would step over every removed entry again. It never passes a time at which
  something may expire that is not in the store yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgpack as _msgpack

from ...core.task.checkpoint import expiry_bytes
from .store import Store

IndexRows = dict[bytes, bytes | None]

TTL_TABLE = "__ttl."
"""The index of a table has its name behind this."""
TIME_BYTES = 8
BLOCK = 1_000
"""Keys in one entry, at most."""
EXPIRED_UNCOMMITTED = 100_000
"""Keys that were found and wait for a commit, at most: when no broker takes one, expiry waits, too."""


class Block(NamedTuple):
    """An entry whose time has come, and the keys that it stands for."""

    entry: bytes
    keys: list[bytes]

    @property
    def at(self) -> bytes:
        """When they expire, unless they were set again."""
        return self.entry[:TIME_BYTES]


class DueKeys(NamedTuple):
    """What a search has found: so many keys; where the next search begins, and whether it may find more at once."""

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
        """What the next commit writes into the index: new blocks, and those that are spent."""
        self._found = 0
        self._first: int | None = None
        """The first time at which something of the next commit expires; the same of each seal."""
        self._sealed: deque[_Sealed] = deque()
        self._searched: bytes | None = None
        """Up to here everything is spent."""

    @property
    def changed(self) -> bool:
        """Whether a commit would change the index."""
        return bool(self._rows)

    def written(self, expires_ms: int, keys: list[bytes]) -> None:
        """These rows were written with this time; even if the clock has gone back, the search must not be further."""
        if not keys:
            return
        at = _time(expires_ms)
        self._first = expires_ms if self._first is None else min(self._first, expires_ms)
        if self._searched is not None and at < self._searched:
            self._searched = at
        self._rows.update(_blocks(at, keys))

    def ends(self, now_ms: int) -> bytes | None:
        """Up to where a search may go now; None if it has been there."""
        underway = [first for first in (self._first, *(one.first for one in self._sealed)) if first is not None]
        end = _time(min([now_ms + 1, *underway]))
        return None if self._searched is not None and self._searched >= end else end

    def full(self) -> bool:
        """Whether a commit must come first."""
        return self._found + sum(one.found for one in self._sealed) >= EXPIRED_UNCOMMITTED

    def due(self, end: bytes, most: int) -> DueKeys:
        """What stands before `end`, until it has `most` keys."""
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
        """What was due is worked off, with the next commit."""
        self._rows.update((block.entry, None) for block in due.blocks)
        self._found += due.keys
        self._searched = due.searched

    def seal(self) -> None:
        """The commit takes what is there."""
        self._sealed.append(_Sealed(self._rows, self._found, self._first))
        self._rows, self._found, self._first = {}, 0, None

    def to_apply(self) -> dict[str, IndexRows]:
        """What the oldest seal writes, in one write with its rows."""
        return {self._name: self._sealed[0].rows} if self._sealed and self._sealed[0].rows else {}

    def applied(self) -> None:
        """It is in the store."""
        self._sealed.popleft()


def indexed(changes: Mapping[str, IndexRows]) -> dict[str, IndexRows]:
    """Rows of a task log, and the index that goes with them in one write."""
    out: dict[str, IndexRows] = dict(changes)
    for table, rows in changes.items():
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
