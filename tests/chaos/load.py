"""The load: numbered records by librdkafka's idempotent producer, which is not our code, at a steady rate, through any outage."""

from __future__ import annotations

import threading
import time

import orjson
from confluent_kafka import Producer

from .outputs import LEAVES

KEYS = 400
GROUPS = 37
PARTITIONS = 4


def record(key: int, seq: int) -> bytes:
    """The record number `seq` of a key; its amount can be told from the two."""
    return orjson.dumps(
        {
            "key": f"k{key:04d}",
            "group": f"g{(key * 7 + seq) % GROUPS}",
            "seq": seq,
            "amount": (key * 31 + seq * 17) % 1000,
        }
    )


class Load(threading.Thread):
    """Writes until `end()`, or until `limit` records. A key has one source partition, so that its records have an order."""

    def __init__(self, bootstrap: str, topic: str, *, per_second: int, limit: int = 1 << 60) -> None:
        super().__init__(name="load", daemon=True)
        self.topic = topic
        self.per_second = per_second
        self.limit = limit
        self.made = 0
        self.leaving = 0
        """The records of keys that leave by more ways."""
        self.lost: list[str] = []
        """Records that librdkafka gave up: the scene itself has failed then."""
        self._ended = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 600_000,
                "queue.buffering.max.messages": 1_000_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        """Write in small steps, so that the rate is steady."""
        seqs = [0] * KEYS
        began = time.monotonic()
        while not self._ended.is_set() and self.made < self.limit:
            due = min(self.limit, int((time.monotonic() - began) * self.per_second))
            while self.made < due:
                # a stride that shares no factor with the number of keys visits all of them, in a mixed order
                key = (self.made * 7919) % KEYS
                value = record(key, seqs[key])
                self.producer.produce(self.topic, value, partition=key % PARTITIONS, on_delivery=self._delivered)
                seqs[key] += 1
                self.made += 1
                self.leaving += key % LEAVES == 0
            self.producer.poll(0)
            self._ended.wait(0.01)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.lost.append(str(error))

    def end(self) -> int:
        """Stop, wait until all is written, and say how many records that is."""
        self._ended.set()
        self.join(120)
        left = self.producer.flush(120)
        if left or self.lost:
            raise AssertionError(f"the load itself failed: {left} records not written, {self.lost[:3]}")
        return self.made
