"""Work J: its two inputs, what must come out, and what pairs say about progress.

J joins orders with payments by their key, 10 s apart at most, and gives each pair once. Every order has one payment: nine in ten come
within 9 s, in event time, and one in ten 12 s after it, which makes no pair. Both topics are in the order of event time, in four partitions
by the key's murmur2. Order `i` has the time `BASE_MS + i / PER_MS`, so 100,000 orders are within the distance of a payment.

Kafka Streams takes time from the newest record that a task has read of either topic. The grace must be longer than the distance between
what it has read of both, or it drops rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from .filling import Record, write
from .rig import PAD, loads, make_topic
from .tumbling import BASE_MS

DISTANCE_MS = 10_000
GRACE_MS = 30_000
PER_MS = 10
PAIRED = 0.9
"""The share of orders that find their payment."""


def payments_of(orders: str) -> str:
    """The topic of the payments."""
    return f"{orders}-payments"


def delay(i: int) -> int:
    """How long after its order a payment comes."""
    return DISTANCE_MS + 2000 if i % 10 == 0 else i * 7919 % 9001


def time_of(i: int) -> int:
    """The time of an order."""
    return BASE_MS + i // PER_MS


def fill(bootstrap: str, name: str, records: int) -> None:
    """Make and fill both topics; half of the records are orders."""
    count = records // 2
    _write(
        bootstrap,
        name,
        (b'{"id":"o%d","amount":%d,"ts":%d,"city":"Leuven","pad":"%s"}' % (i, i % 100, time_of(i), PAD.encode()) for i in range(count)),
        range(count),
    )  # fmt: skip
    by_time = sorted(range(count), key=lambda i: time_of(i) + delay(i))
    _write(
        bootstrap,
        payments_of(name),
        (
            b'{"id":"o%d","paid":%d,"ts":%d,"bank":"B-1","pad":"%s"}' % (i, i % 97, time_of(i) + delay(i), PAD.encode())
            for i in by_time
        ),
        by_time,
    )


def _write(bootstrap: str, topic: str, values: Iterable[bytes], numbers: Iterable[int]) -> None:
    make_topic(bootstrap, topic)
    records = (Record(value, key=b"o%d" % i) for i, value in zip(numbers, values, strict=True))
    write(bootstrap, topic, records, partitioner="murmur2")


def judged(messages: Iterable[Any], records: int) -> tuple[dict[int, int], int, str]:
    """How many pairs were appended at each time (ms), how many there are, and how they differ from what must come out (empty: not)."""
    count = records // 2
    seen = bytearray(count)
    stamps: dict[int, int] = {}
    outputs = bad = 0
    for message in messages:
        value = loads(message.value())
        i = int(value["id"][1:])
        bad += value != {"id": f"o{i}", "amount": i % 100, "paid": i % 97} or message.key() != b"o%d" % i
        seen[i] += seen[i] < 255
        outputs += 1
        stamp = message.timestamp()[1]
        stamps[stamp] = stamps.get(stamp, 0) + 1
    wanted = array("b", (i % 10 != 0 for i in range(count))).tobytes()
    lost = sum(1 for got, want in zip(seen, wanted, strict=True) if got < want)
    more = outputs + lost - sum(wanted)
    return stamps, outputs, f"{lost} lost, {more} too many, {bad} wrong" if lost or more or bad else ""
