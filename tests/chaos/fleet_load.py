"""What flows through the fleet: the load of both inputs, some partitions of which are quiet, and a follower of what comes out."""

from __future__ import annotations

import threading
import time

import orjson
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from .fleet_account import Progress
from .load import record
from .outputs import LEAVES
from .reader import consumer

PARTITIONS = 6
KEYS = 200
BURST_S, REST_S = 4.0, 11.0


class Flow(threading.Thread):
    """Writes numbered records of each key, at a steady rate. Of the partitions the last ones are quiet, and the one before has bursts."""

    def __init__(self, bootstrap: str, topic: str, per_second: int, quiet: int) -> None:
        super().__init__(name=f"load of {topic}", daemon=True)
        self.topic, self.per_second = topic, per_second
        self.speaking = PARTITIONS - quiet
        self.made = 0
        self.leaving = 0
        """The records of keys that leave by more ways."""
        self._lost: list[str] = []
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        """Write until `end()`."""
        seqs, due, began = [0] * KEYS, 0.0, time.monotonic()
        while not self._ended.wait(0.01):
            passed = time.monotonic() - began
            bursts = passed % (BURST_S + REST_S) < BURST_S
            while due < passed:
                due += 1.0 / self.per_second
                key = (int(due * self.per_second) * 7919) % KEYS
                partition = key % self.speaking
                if partition == self.speaking - 1 and not bursts:
                    continue
                value = record(key, seqs[key])
                self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                seqs[key] += 1
                self.made += 1
                self.leaving += key % LEAVES == 0
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._lost.append(str(error))

    def end(self) -> int:
        """Stop, wait until all is written, and say how many records that is."""
        self._ended.set()
        self.join(120)
        left = self._producer.flush(120)
        if left or self._lost:
            raise AssertionError(f"the load itself failed: {left} records not written, {self._lost[:3]}")
        return self.made


class Results(threading.Thread):
    """Follows the results: how far each task has closed windows, and ended the wait of rows without a partner."""

    def __init__(self, bootstrap: str, windows: str, pairs: str) -> None:
        super().__init__(name="results", daemon=True)
        self.progress = Progress(PARTITIONS)
        self._pairs = pairs
        self._ended = threading.Event()
        self._reader = consumer(bootstrap)
        topics = (windows, pairs)
        self._reader.assign([TopicPartition(name, p, OFFSET_BEGINNING) for name in topics for p in range(PARTITIONS)])

    def run(self) -> None:
        """Read until `end()`."""
        while not self._ended.is_set():
            for one in self._reader.consume(5000, timeout=0.1):
                if one.error() is not None:
                    continue
                at, value, now_ms = one.partition() or 0, orjson.loads(one.value() or b""), int(time.time() * 1000)
                if one.topic() != self._pairs:
                    self.progress.window(at, value["window_end"], now_ms)
                elif None in (value["left"], value["right"]):
                    self.progress.alone(at, one.timestamp()[1], now_ms, left=value["right"] is None)

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self.join(60)
        self._reader.close()
