"""A steady stream of records, and how long it takes until an output shows each of them: for the benches of latency and of low load.

Record number `i` has the user `i * 7919 % keys`, so every user is equally frequent, and record `n` of a user has a known number. Work A's
output names its record by `i`. An output of B names a user and its count `n`, so it shows all records of the user up to the nth.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from .rig import PAD, PARTITIONS, loads

STRIDE = 7919
BEHIND_S = 1.0
"""A producer that is later than this has no steady rate."""


class Heard(NamedTuple):
    """A record as a reader got it."""

    at: float
    key: bytes | None
    value: bytes


class Paced:
    """Writes records at a rate, and remembers when each was given to the producer."""

    def __init__(self, bootstrap: str, topic: str, keys: int) -> None:
        self.topic = topic
        self.keys = keys
        self.times: list[float] = []
        self.behind_s = 0.0
        """How late a record was at most."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "acks": "1",
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )

    def at_once(self, records: int) -> None:
        """Write so many records as fast as possible."""
        for _ in range(records):
            self._write()
            if not len(self.times) % 1000:
                self._producer.poll(0)
        self.flush()

    def steadily(self, seconds: float, per_second: int) -> None:
        """Write at a rate, in steps of a few milliseconds."""
        began, made, self.behind_s = time.time(), 0, 0.0
        while (now := time.time()) - began < seconds:
            while made < (due := (now - began) * per_second):
                self.behind_s = max(self.behind_s, (due - made) / per_second)
                self._write()
                made += 1
            self._producer.poll(0.002)
        self.flush()

    def _write(self) -> None:
        i = len(self.times)
        value = b'{"user":"user%d","amount":%d,"p":%d,"i":%d,"city":"Leuven","pad":"%s"}' % (
            i * STRIDE % self.keys, 10 + i % 90, i % PARTITIONS, i, PAD.encode(),
        )  # fmt: skip
        self.times.append(time.time())
        while True:
            try:
                return self._producer.produce(self.topic, value, partition=i % PARTITIONS)
            except BufferError:
                self._producer.poll(0.05)

    def flush(self) -> None:
        """Wait until everything is written."""
        if left := self._producer.flush(60):
            raise AssertionError(f"{left} records of the input were not written")


class Reader(threading.Thread):
    """Reads each record of a topic as it arrives, read committed, and notes the time.

    It waits for one record at a time, because a call that waits for several would add its own wait to every figure, and takes with it
    what is there already.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.heard: list[Heard] = []
        self.ended = threading.Event()
        self.reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"latency-{uuid.uuid4().hex[:6]}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 1,
                "log_level": 0,
            }
        )
        self.reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])

    def run(self) -> None:
        """Read until told to end."""
        while not self.ended.is_set():
            first = self.reader.poll(0.1)
            if first is None:
                continue
            messages = [first, *self.reader.consume(10_000, timeout=0)]
            now = time.time()
            self.heard += [Heard(now, one.key(), one.value()) for one in messages if one.error() is None]
        self.reader.close()


class Shown:
    """Which records the outputs of A or B have shown so far, and when each was shown first."""

    def __init__(self, reader: Reader, work: str, keys: int) -> None:
        self.reader = reader
        self.at: dict[int, float] = {}
        """When each record was shown, by its number."""
        self.wrong = 0
        """Outputs that show nothing new: of A, a record that was shown; of B, a count that is none."""
        self._read = 0
        self._counts: dict[int, int] = {}
        self._keys = keys
        self._inverse = pow(STRIDE, -1, keys)
        self._take: Callable[[Heard], Iterable[int]] = self._of_b if work == "B" else self._of_a

    def look(self) -> int:
        """Take in what has arrived. Returns how many records were shown."""
        heard = self.reader.heard[self._read :]
        self._read += len(heard)
        for one in heard:
            fresh = 0
            for i in self._take(one):
                fresh += i not in self.at
                self.at.setdefault(i, one.at)
            self.wrong += not fresh
        return len(self.at)

    def _of_a(self, one: Heard) -> Iterable[int]:
        return (loads(one.value)["i"],)

    def _of_b(self, one: Heard) -> Iterable[int]:
        user = int((one.key or b"").strip(b'"').removeprefix(b"user"))
        before, n = self._counts.get(user, 0), loads(one.value)["n"]
        self._counts[user] = n
        first = user * self._inverse % self._keys
        return (first + k * self._keys for k in range(before, n))

    def until(self, records: int, seconds: float) -> bool:
        """Wait until so many records were shown."""
        deadline = time.monotonic() + seconds
        while self.look() < records:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def delays_ms(self, times: list[float], first: int) -> list[float]:
        """Ms from producing to arrival, of the records from number `first` on, in ascending order."""
        return sorted((at - times[i]) * 1000 for i, at in self.at.items() if i >= first)


def percentile(ordered: list[float], percent: int) -> float:
    """The smallest value that so many percent do not exceed; NaN for an empty list."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
