"""The inputs of the works: their records, in four shapes, and what follows from them.

Record number `i` of partition `p` is number `i * partitions + p` of all. Its user and its amount follow from these numbers alone, so that
every program can be compared with a recount. One in ten amounts is below 10. All users are equally frequent, in a mixed order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

from . import avro_records
from .filling import Record, write
from .rig import PAD, PARTITIONS, USERS, make_topic

FIELDS = (
    b'"user":"user%(user)d"', b'"amount":%(amount)d', b'"p":%(p)d', b'"i":%(i)d', b'"city":"Leuven"', b'"pad":"%s"' % PAD.encode(),
)  # fmt: skip
NESTED = (
    b'{"id":"evt-%(i)012d","session":{"device":{"os":"ios","version":"17.2","screen":[1170,2532]},"geo":{"lat":50.8798,"lon":4.7005}},'
    b'"user":"user%(user)d","amount":%(amount)d,"currency":"EUR","items":[{"sku":"A-1001","qty":1,"price":9.95,"tags":["new","sale"]},'
    b'{"sku":"B-2002","qty":3,"price":4.5,"tags":[]}],"p":%(p)d,"i":%(i)d,"flags":{"test":false,"vip":null,"score":0.82},'
    b'"note":"leave it at the door, please"}'
)
SHAPES = {
    "as-is": "six fields, about 100 bytes",
    "shuffled": "the same fields in random order",
    "nested": "a nested record of about 400 bytes, of which four fields are used",
    "lz4": "as it is, compressed with lz4",
    "avro": "the same fields in Avro, in Confluent's frame, with a real registry: 55 bytes",
}
MIXED = 104_729
"""A prime, so that orders follow each other without a pattern."""


@cache
def _templates(shape: str) -> Sequence[bytes]:
    if shape == "nested":
        return (NESTED,)
    if shape == "shuffled":
        return tuple(b"{" + b",".join(order) + b"}" for order in permutations(FIELDS))
    return (b"{" + b",".join(FIELDS) + b"}",)


@dataclass(frozen=True)
class Input:
    """What is in a topic before a program starts."""

    records: int
    shape: str = "as-is"
    keys: int = USERS
    partitions: int = PARTITIONS

    def __str__(self) -> str:
        return f"{self.shape}, {self.records:,} records, {self.keys:,} keys, {self.partitions} partitions"

    def user(self, p: int, i: int) -> int:
        """The user of a record."""
        return ((i * self.partitions + p) * 7919) % self.keys

    @staticmethod
    def amount(p: int, i: int) -> int:
        """The amount of a record."""
        return (i * 37 + p * 11) % 100

    def maker(self, head: bytes = b"") -> Callable[[int, int], bytes]:
        """What makes record `i` of partition `p`. `head`: what stands in front of a record in Avro."""
        if self.shape == avro_records.SHAPE:
            return avro_records.maker(head, self.keys, self.partitions)
        templates, partitions, keys = _templates(self.shape), self.partitions, self.keys

        def make(p: int, i: int) -> bytes:
            number = i * partitions + p
            template = templates[number * MIXED % 1_000_003 % len(templates)]
            return template % {b"user": number * 7919 % keys, b"amount": (i * 37 + p * 11) % 100, b"p": p, b"i": i}

        return make

    def doubled(self, p: int, i: int) -> dict[str, str | int]:
        """What A makes of a record."""
        amount = self.amount(p, i)
        used: dict[str, str | int] = {
            "user": f"user{self.user(p, i)}",
            "amount": amount,
            "p": p,
            "i": i,
            "total": 2 * amount,
        }
        return used if self.shape == "nested" else {**used, "city": "Leuven", "pad": PAD}

    def total(self) -> int:
        """The sum of all amounts."""
        return sum(
            sum(self.amount(p, i) for i in range(self.records // self.partitions)) for p in range(self.partitions)
        )

    def fill(self, bootstrap: str, topic: str, timestamp: int = 0, head: bytes = b"") -> None:
        """Write it. `timestamp`: Kafka's, of all records; 0: the time of writing. `head`: see `maker`."""
        fill(
            bootstrap, topic, self.records, self.maker(head), partitions=self.partitions, timestamp=timestamp,
            compression="lz4" if self.shape == "lz4" else "none",
        )  # fmt: skip


def fill(
    bootstrap: str,
    topic: str,
    records: int,
    make: Callable[[int, int], bytes],
    *,
    partitions: int = PARTITIONS,
    timestamp: int = 0,
    compression: str = "none",
) -> None:
    """Make a topic, and write so many records to it, an equal part to each partition."""
    make_topic(bootstrap, topic, partitions=partitions)
    every = (Record(make(p, i), p) for i in range(records // partitions) for p in range(partitions))
    write(bootstrap, topic, every, timestamp=timestamp, compression_type=compression)


@cache
def recount(given: Input) -> tuple[array[int], array[int]]:
    """The count and the sum of each user."""
    counts, totals = array("q", bytes(8 * given.keys)), array("q", bytes(8 * given.keys))
    keys, partitions = given.keys, given.partitions
    for p in range(partitions):
        for i in range(given.records // partitions):
            user = (i * partitions + p) * 7919 % keys
            counts[user] += 1
            totals[user] += (i * 37 + p * 11) % 100
    return counts, totals
