"""The partition of a key: the same as that of Kafka's Java client, without hashing in Python for every record.

What it decides: `(murmur2(key) & 0x7fffffff) % partitions`, like Java's default partitioner. Promises:

- The result equals Java's for every key (golden vectors in the tests).
- A repeated key costs one dict lookup; the number of remembered keys is bounded.
- Records without a key go to one partition within a call; successive calls use the partitions in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..layout import Buffer
from ..memory.record_spans import RecordSpans
from ..native import chosen

REMEMBERED = 1 << 17


def partition_of(key: bytes, partitions: int) -> int:
    """Where Java's default partitioner sends this key.

    >>> partition_of(b"21", 4)
    0
    """
    return (chosen.part.murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """The partitions of one topic."""

    __slots__ = ("_seen", "_turn", "partitions")

    def __init__(self, partitions: int) -> None:
        if partitions <= 0:
            raise ValueError(f"a topic has at least one partition, not {partitions}")
        self.partitions = partitions
        self._seen: dict[bytes, int] = {}
        self._turn = 0

    def next(self) -> int:
        """The partition for a run of records without keys."""
        self._turn = (self._turn + 1) % self.partitions
        return self._turn

    def one(self, key: bytes | None) -> int:
        """The partition of one key."""
        if key is None:
            return self.next()
        found = self._seen.get(key)
        return self._learn((key,))[key] if found is None else found

    def many(self, keys: Sequence[bytes | None]) -> list[int]:
        """The partition of each key; those without a key go to one partition together."""
        if self.partitions == 1:
            return [0] * len(keys)
        get = self._seen.get
        out: list[int | None] = [get(key) for key in keys]  # pyright: ignore[reportArgumentType] - None is never found
        if None in out:
            missing = {key for key, found in zip(keys, out, strict=True) if found is None}
            turn = self.next() if None in missing else 0
            learned = self._learn(tuple(key for key in missing if key is not None))
            out = [
                (turn if key is None else learned[key]) if found is None else found
                for key, found in zip(keys, out, strict=True)
            ]
        return out  # pyright: ignore[reportReturnType] - no None is left

    def split(self, keys: Sequence[bytes | None]) -> list[list[int]]:
        """For each partition, the indexes of its records in order."""
        if self.partitions == 1:
            return [list(range(len(keys)))]
        turn = (self._turn + 1) % self.partitions
        parts, some_none = chosen.part.split(keys if type(keys) is list else list(keys), self.partitions, turn)
        if some_none:
            self._turn = turn
        return parts

    def spread(
        self,
        keys: list[bytes | None],
        times: list[int],
        values: list[bytes | None],
        offsets: Buffer | None,
        most: tuple[int, int],
        ends: tuple[bytes, bytes],
    ) -> list[tuple[int, int, bytes, Buffer | None]]:
        """Rows as batch frames of at most so many rows and bytes of rows, in the order of partitions: of each frame its partition, the time
        of its first row, its bytes, and the offsets of its rows, if those are given. `ends`: see `frames.batch_ends`.
        """
        turn = (self._turn + 1) % self.partitions
        found, some_none = chosen.part.spread(keys, times, values, offsets, self.partitions, turn, *most, *ends)
        if some_none:
            self._turn = turn
        return found

    def split_spans(self, keys: RecordSpans, rows: Buffer | None = None) -> list[Buffer]:
        """For each partition, which of these rows (of all, for None) have their keys there: a buffer of row numbers, in order.

        >>> from .spans import packed
        >>> [list(longs(one)) for one in Partitioner(4).split_spans(packed([b"21", b"abc", b"21"]))]
        [[0, 2], [], [], [1]]
        """
        turn = (self._turn + 1) % self.partitions
        parts, some_null = chosen.part.split_spans(*keys, rows, self.partitions, turn)
        if some_null:
            self._turn = turn
        return parts

    def _learn(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        learned = {key: partition_of(key, self.partitions) for key in keys}
        if len(self._seen) + len(learned) > REMEMBERED:
            self._seen = {}
        self._seen.update(learned)
        return learned
