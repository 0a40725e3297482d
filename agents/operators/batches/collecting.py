"""Rows on their way into the open batches of a step: cut where a batch is full, and gathered until they are written as blocks.

For a row behind `map`, `filter`, `flat_map`, `rekey`, `join` or `map_async` the origin is its record. For a row that a step made from
several (an aggregate, an actor's `forward`) it is the first and last record of the chunk. For a row made at a watermark or by a timer only
the streams that lead here are known.

Promises:

- A batch has its rows in the order in which they came. It is closed as soon as it is full.
- A row that cannot be stored is refused when it comes.
- No object is made of a row that came in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....core.batching import origins
from ....core.batching.batches import BYTES, ROWS, Bridge, Limits, WindowBounds
from ...records.layout import Buffer
from ...records.memory.longs import extremes
from .batch_blocks import NewRows
from .batch_rows import BatchRows


class Incoming(NamedTuple):
    """Rows for one open batch."""

    table: Any
    came_from: Sequence[origins.Origin]
    times: Buffer
    """64-bit integers."""


class Collector:
    """Adds rows to the open batches of a step."""

    def __init__(self, rows: BatchRows, limits: Callable[[], Limits]) -> None:
        self.rows = rows
        self._limits = limits

    def add(self, bridge: Bridge, window: WindowBounds | None, incoming: Incoming, now_ms: int) -> None:
        """Add these rows to the open batch of this window; whenever it is full, close it and open the next one."""
        count = incoming.table.num_rows
        left: NewRows | None = NewRows(
            0, incoming.table, count, incoming.table.nbytes, incoming.came_from, incoming.times
        )
        while left is not None:
            left = self._some(bridge, window, left, now_ms)

    def _some(self, bridge: Bridge, window: WindowBounds | None, piece: NewRows, now_ms: int) -> NewRows | None:
        """Add as many rows as fit into the open batch. Returns the rest."""
        book, store = self.rows.book, self.rows
        one = book.opened(window)
        room, size = book.room(self._limits(), window)
        if room is not None and room <= 0:  # the limit has been lowered since
            self.close(ROWS, (window,))
            return piece
        head, rest = piece, None
        if (room is not None and piece.rows > room) or (size is not None and piece.size > size):
            head, rest = piece.cut(bridge, room, size)
        if size is not None and head.size > size and one.rows:
            self.close(BYTES, (window,))
            return piece
        grown = book.with_rows(window, head.rows, head.size, now_ms=now_ms, times=extremes(head.stamps))
        store.blocks.add(bridge, head._replace(number=one.number))
        store.write(grown.when_full(self._limits(), window))
        return rest

    def close(self, why: str, windows: Sequence[WindowBounds | None]) -> bool:
        """Close the open batches of these windows. Returns whether there are any."""
        closed = self.rows.book.close(why, windows)
        if closed is self.rows.book:
            return False
        self.rows.write(closed)
        return True
