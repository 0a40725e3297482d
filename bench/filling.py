"""Fills a topic: many records, as fast as the client takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Producer

POLL_EVERY = 5000


class Record(NamedTuple):
    """A record to be written. Without a partition, it goes where its key belongs."""

    value: bytes
    partition: int = -1
    key: bytes | None = None


def write(
    bootstrap: str,
    topic: str,
    records: Iterable[Record],
    *,
    timestamp: int = 0,
    patience_s: float = 120,
    **settings: Any,
) -> None:
    """Write these records, and wait until the broker has them. `timestamp`: Kafka's, of all records; 0: the time of writing. `settings`:
    those of the client, with `_` for `.`."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "linger.ms": 50,
            "batch.size": 1 << 18,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "acks": "1",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    for number, (value, partition, key) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key=key, partition=partition, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.05)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    if left := producer.flush(patience_s):
        raise AssertionError(f"{left} records of {topic} were not written")
