"""The memory of decoded rows and states that tasks keep at hand: one limit in bytes for all caches of a worker.

What it decides: which cache gives back, and when. Promises:

- A row weighs what its value took when it was last read or written, twice, and a fixed amount for the objects around it: the
  objects of a decoded value take more than its bytes. The weight is exact for each row, also where large and small ones are mixed.
- While all caches together are over the limit, the one that holds most gives back half, until they are not: an idle task cannot
  keep from a busy one what it does not use. Only what a running chunk or an open transaction has changed stays.
- A closed cache counts no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

ROW_BYTES = 256
"""What a row takes beside its value: its key, its places in dictionaries, its size."""
DECODED = 2
"""So many times its bytes a value takes."""


class CacheMemory:
    """What the caches of a worker may hold. Of one thread."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self.limit = limit
        self.used = 0
        self._held: dict[Held, None] = {}
        self._asks_at = limit

    def hold(self, give_back: Callable[[], None]) -> Held:
        """A cache more. `give_back` forgets about half of what it can, at any moment in which something is counted."""
        made = Held(self, give_back)
        self._held[made] = None
        return made

    def count(self, change: int) -> None:
        """One cache holds more, or less."""
        self.used += change
        if self.used > self._asks_at:
            self.settle()

    def settle(self) -> None:
        """Nothing is being changed any more: whoever is over gives back."""
        if self.used > self.limit:
            self._shrink()
        # what is being changed cannot be given back: nobody is asked again for each row that comes
        self._asks_at = self.limit if self.used <= self.limit else self.used + self.limit // 16

    def _shrink(self) -> None:
        self._asks_at = 1 << 62  # giving back counts, too
        able = list(self._held)
        while able and self.used > self.limit:
            most = max(able, key=_weight)
            before = most.bytes
            most.give_back()
            if most.bytes >= before:
                able.remove(most)

    def forgotten(self, held: Held) -> None:
        """It is closed."""
        if self._held.pop(held, self) is None:
            self.count(-held.bytes)


class Held:
    """What one cache holds, by key. Made by `CacheMemory.hold`."""

    def __init__(self, memory: CacheMemory, give_back: Callable[[], None]) -> None:
        self.give_back = give_back
        self.sizes: dict[Any, int] = {}
        """What the value of each row took, in bytes."""
        self.bytes = 0
        """The weight of all of it."""
        self._memory = memory

    def add(self, fresh: Mapping[Any, int]) -> None:
        """Rows that were read or written: how many bytes each took."""
        sizes = self.sizes
        rows = len(sizes)
        encoded = sum(fresh.values()) - sum(map(sizes.get, fresh, repeat(0)))
        sizes.update(fresh)
        self._count(len(sizes) - rows, encoded)

    def forget(self, keys: Sequence[Any]) -> None:
        """Rows that are no longer at hand, if they were."""
        sizes = self.sizes
        rows = len(sizes)
        encoded = sum(map(sizes.pop, keys, repeat(0)))
        self._count(len(sizes) - rows, -encoded)

    def clear(self) -> None:
        """Nothing is at hand."""
        self.sizes.clear()
        gone, self.bytes = self.bytes, 0
        self._memory.count(-gone)

    def close(self) -> None:
        """It gives its share back, and is asked no more."""
        self._memory.forgotten(self)
        self.sizes.clear()
        self.bytes = 0

    def _count(self, rows: int, encoded: int) -> None:
        change = rows * ROW_BYTES + encoded * DECODED
        self.bytes += change
        self._memory.count(change)


def _weight(held: Held) -> int:
    return held.bytes
