"""The memory of decoded rows and states that tasks keep at hand: one limit in bytes for all caches of a worker.

What it decides: which cache gives back, and when. Promises:

- A row weighs a fixed amount for the objects around its value; a value that is not small weighs what it took when it was last read
  or written, twice, because its objects take more than its bytes. So a batch of small rows costs one look at its greatest, and
  large rows are not lost in a mean with small ones.
- While all caches together are over the limit, the one that holds most gives back half, until they are not: an idle task cannot
  keep from a busy one what it does not use. Only what a running chunk or an open transaction has changed stays.
- A closed cache counts no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Sized
from itertools import repeat
from typing import Any

SMALL = 128
"""Bytes of a value that is not counted for itself."""
ROW_BYTES = 384
"""What a row takes: its key, its places in dictionaries, a small value."""
DECODED = 2
"""So many times its bytes a larger value takes."""


class CacheMemory:
    """What the caches of a worker may hold. Of one thread."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self.limit = limit
        self.used = 0
        self._held: dict[Held, None] = {}
        self._asks_at = limit

    def hold(self, rows: Sized, give_back: Callable[[], None]) -> Held:
        """A cache more: `rows` are those that it has.

        `give_back` forgets about half of what it can, at any moment in which something is counted.
        """
        made = Held(self, rows, give_back)
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
    """What one cache holds. Made by `CacheMemory.hold`."""

    def __init__(self, memory: CacheMemory, rows: Sized, give_back: Callable[[], None]) -> None:
        self.give_back = give_back
        self.large: dict[Any, int] = {}
        """How many bytes the values took that are not small, by key."""
        self.bytes = 0
        """The weight of all of it."""
        self._rows = rows
        self._memory = memory
        self._encoded = 0

    def add(self, keys: Collection[Any], encoded: Sequence[bytes | None]) -> None:
        """Rows that were read or written, with the bytes of their values."""
        large = self.large
        if max(map(len, filter(None, encoded)), default=0) > SMALL or (large and not large.keys().isdisjoint(keys)):
            for key, data in zip(keys, encoded, strict=True):
                self._encoded -= large.pop(key, 0)
                if (size := len(data or b"")) > SMALL:
                    large[key] = size
                    self._encoded += size
        self.count()

    def forget(self, keys: Iterable[Any]) -> None:
        """Rows that are no longer at hand, if they were."""
        if self.large:
            self._encoded -= sum(map(self.large.pop, keys, repeat(0)))
        self.count()

    def count(self) -> None:
        """There are more rows, or fewer."""
        weight = len(self._rows) * ROW_BYTES + self._encoded * DECODED
        change, self.bytes = weight - self.bytes, weight
        self._memory.count(change)

    def close(self) -> None:
        """It gives its share back, and is asked no more."""
        self._memory.forgotten(self)
        self.large.clear()
        self._rows, self._encoded, self.bytes = (), 0, 0


def _weight(held: Held) -> int:
    return held.bytes
