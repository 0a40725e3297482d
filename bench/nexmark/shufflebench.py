"""The records and the rules of ShuffleBench (Henning et al., ICPE 2024; dynatrace-research/ShuffleBench), made again by a seed.

What it decides: with its default configuration a record is 1,024 random bytes without a key, and there are 1,000 rules, one of
each consumer, which match 0.02 % of the records each. A rule is a range of numbers, drawn anywhere, so a record matches none, one or
several. The number of a record is its first eight bytes without the sign. Published, it is a hash of the first sixteen, which are
as random.

The tail completes each consumer's last batch: its number of records is a multiple of `OUTPUT_RATE` then. So although it depends on the
order of the partitions which records a batch has, the sums of all batches of a consumer do not.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

from .generator import BASE_MS, PER_SECOND
from .source import Kind

RULES, SELECTIVITY = 1_000, 0.2
"""How many rules there are, and how many of them match a record on average."""
OUTPUT_RATE = 10
"""Each consumer sends an event for each so many records."""
SIZE = 1_024
SPAN = 1 << 63
WIDTH = int(SPAN * SELECTIVITY / RULES)


class Blob(NamedTuple):
    """A record."""

    data: bytes
    dateTime: int


@cache
def offsets() -> list[int]:
    """Where the ranges of the rules begin, in ascending order. Each range has numbers that no other one has."""
    drawn = random.Random("rules")
    found = sorted(drawn.randrange(SPAN - WIDTH) for _ in range(RULES))
    while hidden := [n for n in range(1, RULES - 1) if found[n + 1] - found[n - 1] <= WIDTH]:
        found[hidden[0]] = drawn.randrange(SPAN - WIDTH)
        found.sort()
    return found


def consumer(rule: int) -> str:
    """The name of the consumer of a rule."""
    return f"consumer_{rule}"


def long_of(data: bytes) -> int:
    """The first eight bytes of a record, as a signed number."""
    return int.from_bytes(data[:8], "big", signed=True)


def wrapped(total: int) -> int:
    """A sum in 64 bits, which may overflow."""
    return (total + SPAN) % (2 * SPAN) - SPAN


def matching(data: bytes) -> range:
    """The rules that match a record."""
    number = long_of(data) % SPAN
    return range(bisect_right(offsets(), number - WIDTH), bisect_right(offsets(), number))


@dataclass(frozen=True)
class Blobs:
    """All records of one seed, by their numbers."""

    kinds: ClassVar[tuple[Kind, ...]] = (Blob,)
    tables: ClassVar[tuple[Kind, ...]] = ()
    value_format: ClassVar[str] = "raw"
    declarations: ClassVar[str] = ""

    seed: int = 1
    base_ms: int = BASE_MS
    per_second: int = PER_SECOND

    def events(self, count: int, kinds: Collection[Kind] = kinds) -> Iterator[tuple[int, Blob]]:
        """The first `count` records with their numbers."""
        drawn = random.Random(f"blobs {self.seed}")
        for number in range(count if Blob in kinds else 0):
            yield number, Blob(drawn.randbytes(SIZE), self.time_of(number))

    def tail(self, count: int, partitions: int) -> list[Blob]:
        """Records that one rule each matches, until each consumer has got a multiple of `OUTPUT_RATE`."""
        got = Counter(rule for _, blob in self.events(count) for rule in matching(blob.data))
        made: list[Blob] = []
        for rule, offset in enumerate(offsets()):
            own = max(offset, offsets()[rule - 1] + WIDTH if rule else 0)
            data = own.to_bytes(8, "big") + bytes(SIZE - 8)
            made += [Blob(data, self.time_of(count))] * (-got[rule] % OUTPUT_RATE)
        return made

    def record(self, event: Blob) -> tuple[bytes | None, bytes]:
        """The bytes, without a key."""
        return None, event.data

    def side(self) -> Iterable[tuple[str, str]]:
        """The rules: consumers, and where their ranges begin and end."""
        return ((consumer(rule), f"{offset} {offset + WIDTH}") for rule, offset in enumerate(offsets()))

    def time_of(self, number: int) -> int:
        """The time of a record, in ms."""
        return self.base_ms + number * 1_000 // self.per_second
