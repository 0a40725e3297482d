"""Readers that are not our code: librdkafka, read committed."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.open_transactions import explained

PATIENCE_S = 120.0


def consumer(bootstrap: str, *, committed: bool = True) -> Consumer:
    """A consumer that belongs to no group and stores nothing."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"account-{uuid.uuid4().hex[:8]}",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


def read_all(bootstrap: str, topic: str, *, committed: bool = True) -> Iterator[Message]:
    """Every record of a topic, from its beginning to the end that it has now, in the order of each partition."""
    reader = consumer(bootstrap, committed=committed)
    try:
        partitions = list(reader.list_topics(topic, timeout=240).topics[topic].partitions)
        ends = {p: reader.get_watermark_offsets(TopicPartition(topic, p), timeout=240)[1] for p in partitions}
        left = {p for p in partitions if ends[p] > 0}
        reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        patience = time.monotonic() + PATIENCE_S
        while left:
            for message in reader.consume(
                5000, timeout=0.05
            ):  # it waits so long for as many, also at the end of a topic
                error = message.error()
                if error is None:
                    yield message
                    patience = time.monotonic() + PATIENCE_S
                    if message.offset() + 1 >= ends[message.partition()]:
                        left.discard(message.partition())
                elif error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= ends[message.partition()]:
                        left.discard(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
            if time.monotonic() > patience:
                raise AssertionError(f"{topic} cannot be read up to {ends}: {sorted(left)} hang (an open transaction?)")
    finally:
        reader.close()


class Watch(threading.Thread):
    """Follows the counts as they come: how many records they speak for, and how long nothing came."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name="watch", daemon=True)
        self.seen: dict[str, int] = {}
        self.updates = 0
        self.newest_ms = 0
        """When the broker took the newest update that was read (its own clock, which is this machine's)."""
        self.last = time.monotonic()
        self.gaps: list[tuple[float, float]] = []
        """(when it ended, how long it was), of silences of a second and more."""
        self._ended = threading.Event()
        self._broker_at, self._topic, self._places = bootstrap, topic, range(partitions)
        self._reader = consumer(bootstrap)
        self._reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])

    @property
    def counted(self) -> int:
        """Records that the counts speak for by now."""
        return sum(list(self.seen.values()))

    def run(self) -> None:
        """Read until `end()`."""
        while not self._ended.is_set():
            for message in self._reader.consume(2000, timeout=0.2):
                if message.error() is not None:
                    continue
                now = time.monotonic()
                if now - self.last >= 1.0:
                    self.gaps.append((now, now - self.last))
                self.last = now
                self.updates += 1
                self.newest_ms = message.timestamp()[1]
                self.seen[message.key()] = orjson.loads(message.value())["n"]

    def open(self) -> str:
        """In which partitions an open transaction keeps a reader from the end."""
        ends: list[dict[int, int]] = []
        for committed in (True, False):
            reader = consumer(self._broker_at, committed=committed)
            ends.append({p: reader.get_watermark_offsets(TopicPartition(self._topic, p), 240)[1] for p in self._places})
            reader.close()
        held = [
            f"partition {p} at {ends[0][p]} of {ends[1][p]} ({explained(self._broker_at, self._topic, p)})"
            for p in self._places
            if ends[0][p] < ends[1][p]
        ]
        return f"open transactions in {', '.join(held)}" if held else "no transaction is open"

    def longest(self) -> float:
        """The longest silence so far, the present one included."""
        return max([time.monotonic() - self.last, *(length for _, length in self.gaps)])

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self.join(60)
        self._reader.close()
