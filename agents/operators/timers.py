"""The timers of one actor: rows of an internal table, and an index over them that knows the earliest.

Promises: what the table says is what counts, the index is made from it once, and follows it; asking for the earliest, dropping a letter
and putting one aside cost the same however many there are.
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
        self._before: dict[str, tuple[str, int] | None] = {}
        """What the timers were that this letter has changed; None: there was none."""

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
        self._change(name, (kind, at))
        self._table.update({name: (kind, at)})

    def cancel(self, name: str) -> None:
        """Forget a timer, if there is one."""
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
        ):  # most of it was cancelled or replaced, and stands too far in the future to be seen
            heap[:] = [(at, name) for name, (of, at) in rows.items() if of == kind]
            heapq.heapify(heap)

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

    def complete(self) -> None:
        """The letter counts."""
        self._before.clear()

    def forget(self) -> None:
        """The letter failed: what it changed never was."""
        before, self._before = self._before, {}
        for name, timer in before.items():
            self._put(name, timer)

    def suspend(self) -> dict[str, tuple[str, int] | None]:
        """Put aside what the letter has changed so far."""
        aside = {name: self._known().get(name) for name in self._before}
        self.forget()
        return aside

    def resume(self, aside: dict[str, tuple[str, int] | None]) -> None:
        """Go on with the letter that was put aside."""
        for name, timer in aside.items():
            self._change(name, timer)
