"""The memory for decoded rows and states that tasks cache: one limit in bytes for all caches of a worker.

It decides which cache must release memory, and when. Promises:

- A row weighs a fixed amount for the objects around its value. A value that is not small also weighs twice its encoded size when it was
  last read or written, because its objects take more than its bytes. So a chunk of small rows needs only one look at its largest row, and
  large rows do not disappear in an average.
- While all caches together exceed the limit, the largest one drops half of its rows. So an idle task cannot withhold unused memory from a
  busy one. Only rows that a running chunk or an open transaction has changed stay.
- States in arrays weigh the bytes that are reserved for them.
- A closed cache does not count.
- What was released because of the limit is counted, so that everyone sees when a worker has too little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Sized
from heapq import heapify, heappop, heapreplace
from itertools import repeat
from typing import Any

SMALL = 128
"""The size in bytes up to which a value is not weighed separately."""
ROW_BYTES = 384
"""The weight of a row: its key, its dictionary entries, a small value."""
DECODED = 2
"""A larger value weighs this many times its encoded size."""


class CacheMemory:
    """The limit for the caches of one worker. For one thread."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self.limit = limit
        self.used = 0
        self.evicted = 0
        """The bytes that caches have released because they exceeded the limit."""
        self._held: dict[Held, None] = {}
        self._asks_at = limit

    def hold(self, rows: Sized, give_back: Callable[[], None], arrays: Callable[[], int] = lambda: 0) -> Held:
        """Add a cache that contains `rows`, and the bytes that `arrays` says.

        `give_back` drops about half of what the cache can drop. It may be called whenever something is counted.
        """
        made = Held(self, rows, give_back, arrays)
        self._held[made] = None
        return made

    def count(self, change: int) -> None:
        """Note that one cache has grown or shrunk."""
        self.used += change
        if self.used > self._asks_at:
            self.settle()

    def settle(self) -> None:
        """Make caches over the limit release memory. Called when no rows are being changed."""
        if self.used > self.limit:
            self._shrink()
        # rows being changed cannot be dropped: do not ask again for every new row
        self._asks_at = self.limit if self.used <= self.limit else self.used + self.limit // 16

    def _shrink(self) -> None:
        self._asks_at = 1 << 62  # releasing memory is counted too
        # a heap: with hundreds of tasks whose rows cannot be dropped yet, looking for the largest each time would be quadratic
        able = [(-held.bytes, place, held) for place, held in enumerate(self._held) if held.bytes > 0]
        heapify(able)
        while able and self.used > self.limit:
            _, place, most = able[0]
            before = most.bytes
            most.give_back()
            if most.bytes < before:
                self.evicted += before - most.bytes
                heapreplace(able, (-most.bytes, place, most))
            else:
                heappop(able)

    def forgotten(self, held: Held) -> None:
        """Remove a closed cache."""
        if self._held.pop(held, self) is None:
            self.count(-held.bytes)


class Held:
    """The weight of one cache. Made by `CacheMemory.hold`."""

    def __init__(
        self, memory: CacheMemory, rows: Sized, give_back: Callable[[], None], arrays: Callable[[], int]
    ) -> None:
        self.give_back = give_back
        self._arrays = arrays
        self.large: dict[Any, int] = {}
        """The encoded size of each value that is not small, by key."""
        self.bytes = 0
        """The total weight."""
        self._rows = rows
        self._memory = memory
        self._encoded = 0

    def add(self, keys: Collection[Any], encoded: Sequence[bytes | None]) -> None:
        """Count rows that were read or written, given their encoded values."""
        large = self.large
        if max(map(len, filter(None, encoded)), default=0) > SMALL or (large and not large.keys().isdisjoint(keys)):
            for key, data in zip(keys, encoded, strict=True):
                self._encoded -= large.pop(key, 0)
                if (size := len(data or b"")) > SMALL:
                    large[key] = size
                    self._encoded += size
        self.count()

    def forget(self, keys: Iterable[Any]) -> None:
        """Count rows that are no longer cached."""
        if self.large:
            self._encoded -= sum(map(self.large.pop, keys, repeat(0)))
        self.count()

    def count(self) -> None:
        """Recalculate the weight after rows were added or removed."""
        weight = len(self._rows) * ROW_BYTES + self._encoded * DECODED + self._arrays()
        change, self.bytes = weight - self.bytes, weight
        self._memory.count(change)

    def close(self) -> None:
        """Release the cache's share of the memory."""
        self._memory.forgotten(self)
        self.large.clear()
        self._rows, self._encoded, self.bytes = (), 0, 0
