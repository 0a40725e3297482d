"""Rows on their way into the open batches of a step: packed into blocks of bounded size, each with the origins and times of its rows.

For a row behind `map`, `filter`, `flat_map`, `rekey`, `join` or `map_async` the origin is its record. For a row that a step made from
several (an aggregate, an actor's `forward`) it is the first and last record of the chunk. For a row made at a watermark or by a timer only
the streams that lead here are known.

Promises:

- A batch has its rows in the order in which they came. It is closed as soon as it is full.
- A row that cannot be stored with the others of its batch is refused when it comes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core import origins
from ...core.batches import BLOCK_BYTES, BLOCK_ROWS, BYTES, ROWS, Bridge, Limits, WindowBounds
from .batch_rows import BatchRows, StoredBlock, row_key

TAIL_ROWS = 1_000
"""A last block with fewer rows takes in more, so that a slow stream does not make one block per row."""


class Incoming(NamedTuple):
    """Rows for one open batch."""

    table: Any
    runs: list[origins.Run]
    """Where they came from."""
    times: Sequence[int]


class Collector:
    """Adds rows to the open batches of a step."""

    def __init__(self, rows: BatchRows, limits: Limits) -> None:
        self.rows = rows
        self.limits = limits
        self._kinds: dict[int, Any] = {}
        """By the number of an open batch, the kind of table that holds its rows."""

    def add(self, bridge: Bridge, window: WindowBounds | None, incoming: Incoming, now_ms: int) -> None:
        """Add these rows to the open batch of this window; whenever it is full, close it and open the next one."""
        left: Incoming | None = incoming
        while left is not None:
            left = self._block(bridge, window, left, now_ms)

    def _block(self, bridge: Bridge, window: WindowBounds | None, incoming: Incoming, now_ms: int) -> Incoming | None:
        """Add as many rows as fit into one block. Returns the rest."""
        book, store = self.rows.book, self.rows
        one = book.opened(window)
        if one.blocks and one.number not in self._kinds:
            self._kinds[one.number] = bridge.kind_of([block.rows for block in store.blocks(one)])
        kind = bridge.fits(self._kinds.get(one.number), incoming.table)
        room, size = book.room(self.limits, window)
        if room is not None and room <= 0:  # the limit has been lowered since
            self.close(ROWS, (window,))
            return incoming
        within = BLOCK_BYTES if size is None else min(size, BLOCK_BYTES)
        head, count, nbytes, rest = bridge.split(incoming.table, min(room or BLOCK_ROWS, BLOCK_ROWS), within)
        if size is not None and nbytes > size and one.rows:
            self.close(BYTES, (window,))
            return incoming
        came, later = origins.cut(incoming.runs, count)
        stamps = struct.pack(f"<{count}q", *incoming.times[:count])
        tail = store.last_block(one) if 0 < one.tail < TAIL_ROWS else None
        if tail is not None and len(tail.rows) + nbytes > BLOCK_BYTES:
            tail = None
        block = StoredBlock(bridge.encode(head, *([] if tail is None else [tail.rows])), origins.pack(came), stamps)
        if tail is not None:
            block = block.follows(tail, block.rows)
        store.must_fit(block.size, "a row")
        times = (min(incoming.times[:count]), max(incoming.times[:count]))
        grown = book.with_block(window, count, nbytes, into_tail=tail is not None, now_ms=now_ms, times=times)
        key = row_key(one.number, one.blocks - (1 if tail is not None else 0))
        self._kinds[one.number] = kind
        store.write(grown.when_full(self.limits, window), {key: list(block)})
        self._forget()
        return None if rest is None else Incoming(rest, later, incoming.times[count:])

    def close(self, why: str, windows: Sequence[WindowBounds | None]) -> bool:
        """Close the open batches of these windows. Returns whether there are any."""
        closed = self.rows.book.close(why, windows)
        if closed is self.rows.book:
            return False
        self.rows.write(closed)
        self._forget()
        return True

    def _forget(self) -> None:
        """Forget the kinds of batches that are not open any more."""
        if len(self._kinds) > len(self.rows.book.open):
            still = {one.number for one in self.rows.book.open.values()}
            self._kinds = {number: kind for number, kind in self._kinds.items() if number in still}

    def dropped(self) -> None:
        """The letter failed: the rows that it added are gone, and what they were does not count."""
        self._kinds = {}
