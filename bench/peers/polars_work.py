"""Works A and C as a bare loop over librdkafka and polars: at least once, commits each 200 ms. B would need a framework."""

from __future__ import annotations

import os
import time

import polars as pl
from confluent_kafka import Consumer, KafkaException, Producer

WORK, SOURCE, TARGET = os.environ["BENCH_WORK"], os.environ["BENCH_SOURCE"], os.environ["BENCH_TARGET"]
BOOTSTRAP, COMMIT_S = os.environ["BENCH_BOOTSTRAP"], int(os.environ["BENCH_COMMIT_MS"]) / 1000
TYPES = {"user": pl.String, "amount": pl.Int64, "p": pl.Int64, "i": pl.Int64, "city": pl.String, "pad": pl.String}
USED = {"A": list(TYPES)[: 4 if os.environ["BENCH_SHAPE"] == "nested" else 6], "C": ["amount"]}[WORK]
SCHEMA = {name: TYPES[name] for name in USED}
RECORDS = 20_000


def main() -> None:
    """Run until killed."""
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": os.environ["BENCH_JOB"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 1 << 17,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([SOURCE])
    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "linger.ms": 5,
            "batch.size": 1 << 18,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    seen, total, committed = 0, 0, time.monotonic()
    while True:
        messages = consumer.consume(RECORDS, timeout=0.05)
        for one in messages:
            if one.error() is not None:
                raise KafkaException(one.error())
        if messages:
            frame = pl.read_ndjson(b"\n".join([one.value() for one in messages]), schema=SCHEMA)
            if WORK == "C":
                total += frame["amount"].sum()
                seen += len(frame)
                print(f"MARK {time.time()} {seen} {total}", flush=True)
            else:
                made = frame.filter(pl.col("amount") >= 10).with_columns(total=pl.col("amount") * 2)
                for line in made.write_ndjson().encode().splitlines():
                    produce(producer, line)
                producer.poll(0)
        if messages and time.monotonic() - committed > COMMIT_S:
            producer.flush()
            consumer.commit(asynchronous=False)
            committed = time.monotonic()


def produce(producer: Producer, value: bytes) -> None:
    """Hand a record to the producer, which may be full."""
    while True:
        try:
            return producer.produce(TARGET, value)
        except BufferError:
            producer.poll(0.05)


if __name__ == "__main__":
    main()
