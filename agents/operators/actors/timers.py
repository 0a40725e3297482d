"""The timers of one actor: rows of an internal table, and an index over them that finds the earliest.

Promises: the table is the source of truth; the index is built from it once and follows its changes. Finding the earliest timer, dropping
a letter and setting one aside do not cost more when there are more timers.
"""

from __future__ import annotations

import heapq
from typing import Any

from ..base.letter import LetterPart

EVENT = "event"
PROCESSING = "processing"


class Timers(LetterPart):
    """Timers by name; each is due at an event time or at a processing time (ms)."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._rows: dict[str, tuple[str, int]] | None = None
        self._heaps: dict[str, list[tuple[int, str]]] = {}
        self._before: dict[str, tuple[str, int] | None] = {}
        """The former values of the timers that this letter has changed; None: there was no such timer."""

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
        """Set a timer. It replaces an earlier one of the same name."""
        self._change(name, (kind, at))
        self._table.update({name: (kind, at)})

    def cancel(self, name: str) -> None:
        """Cancel a timer, if there is one."""
        if name in self._known():
            self._change(name, None)
            self._table.delete_many([name])

    def _change(self, name: str, timer: tuple[str, int] | None) -> None:
        self._before.setdefault(name, self._known().get(name))
        self._put(name, timer)

    def _put(self, name: str, timer: tuple[str, int] | None) -> None:
        rows = self._known()
        if timer is None:
            rows.pop(name, None)
            return
        kind, at = timer
        rows[name] = timer
        heap = self._heaps[kind]
        heapq.heappush(heap, (at, name))
        if (
            len(heap) > 2 * len(rows) + 64
        ):  # most entries were cancelled or replaced, and are too far in the future to reach the top
            heap[:] = [(at, name) for name, (of, at) in rows.items() if of == kind]
            heapq.heapify(heap)

    def get(self, name: str) -> tuple[str, int] | None:
        """The kind and time of a timer; None if there is none."""
        return self._known().get(name)

    def first(self, kind: str) -> tuple[int, str] | None:
        """The earliest timer of a kind, as (time, name)."""
        rows, heap = self._known(), self._heaps[kind]
        while heap and rows.get(heap[0][1]) != (kind, heap[0][0]):
            heapq.heappop(heap)  # cancelled or replaced since
        return heap[0] if heap else None

    def rest(self) -> list[tuple[int, str]]:
        """All remaining timers, those in event time first."""
        found = sorted((kind != EVENT, at, name) for name, (kind, at) in self._known().items())
        return [(at, name) for _, at, name in found]

    def complete(self) -> None:
        """The letter is complete."""
        self._before.clear()

    def drop(self) -> None:
        """The letter failed: undo its changes."""
        before, self._before = self._before, {}
        for name, timer in before.items():
            self._put(name, timer)

    def suspend(self) -> dict[str, tuple[str, int] | None]:
        """Set aside what the letter has changed so far."""
        aside = {name: self._known().get(name) for name in self._before}
        self.drop()
        return aside

    def resume(self, aside: dict[str, tuple[str, int] | None]) -> None:
        """Resume the letter that was set aside."""
        for name, timer in aside.items():
            self._change(name, timer)
