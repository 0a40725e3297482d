"""The timers of one actor: rows of an internal table, and an index over them that knows the earliest.

Promises: what the table says is what counts, the index is made from it; asking for the earliest costs the same however many there are.
"""

from __future__ import annotations

import heapq
from typing import Any

EVENT = "event"
PROCESSING = "processing"


class Timers:
    """Timers by name; each is due at an event time or at a processing time (ms)."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._rows: dict[str, tuple[str, int]] | None = None
        self._heaps: dict[str, list[tuple[int, str]]] = {}

    def _known(self) -> dict[str, tuple[str, int]]:
        if self._rows is None:
            self._rows = {name: (kind, at) for name, (kind, at) in self._table.range()}
            self._heaps = {EVENT: [], PROCESSING: []}
            for name, (kind, at) in self._rows.items():
                self._heaps[kind].append((at, name))
            for heap in self._heaps.values():
                heapq.heapify(heap)
        return self._rows

    def set(self, name: str, kind: str, at: int) -> None:
        """Set a timer; an earlier one of this name is forgotten."""
        self._known()[name] = (kind, at)
        heapq.heappush(self._heaps[kind], (at, name))
        self._table.update({name: (kind, at)})

    def cancel(self, name: str) -> None:
        """Forget a timer, if there is one."""
        if self._known().pop(name, None) is not None:
            self._table.delete_many([name])

    def get(self, name: str) -> tuple[str, int] | None:
        """What a timer is set to."""
        return self._known().get(name)

    def first(self, kind: str) -> tuple[int, str] | None:
        """The earliest of a kind, as (time, name)."""
        rows, heap = self._known(), self._heaps[kind]
        while heap and rows.get(heap[0][1]) != (kind, heap[0][0]):
            heapq.heappop(heap)  # cancelled or replaced since
        return heap[0] if heap else None

    def rest(self) -> list[tuple[int, str]]:
        """All that are left, event time first."""
        found = sorted((kind != EVENT, at, name) for name, (kind, at) in self._known().items())
        return [(at, name) for _, at, name in found]

    def forget(self) -> None:
        """The letter failed: read the table anew."""
        self._rows = None
