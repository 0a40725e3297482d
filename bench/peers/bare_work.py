"""Works A and C as a bare loop over aiokafka's public API and orjson: at least once, 256 KiB batches. B would need a framework."""

from __future__ import annotations

import asyncio
import os
import time

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

USED = ("user", "amount", "p", "i") if os.environ["BENCH_SHAPE"] == "nested" else ()
"""The fields of a nested record that A writes."""
WORK, SOURCE, TARGET = os.environ["BENCH_WORK"], os.environ["BENCH_SOURCE"], os.environ["BENCH_TARGET"]
BOOTSTRAP = os.environ["BENCH_BOOTSTRAP"]


async def main() -> None:
    """Run until killed."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=BOOTSTRAP,
        enable_auto_commit=False,
        max_partition_fetch_bytes=4 << 20,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    consumer.assign([TopicPartition(SOURCE, p) for p in range(4)])
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks=1, max_batch_size=256 << 10)
    await producer.start()
    seen = total = 0
    while True:
        for at, records in (await consumer.getmany(timeout_ms=200, max_records=5000)).items():
            rows = [orjson.loads(record.value) for record in records]
            if WORK == "C":
                total += sum([row["amount"] for row in rows])
                seen += len(rows)
                print(f"MARK {time.time()} {seen} {total}", flush=True)
                continue
            batch = producer.create_batch()
            for row in rows:
                if row["amount"] >= 10:
                    if USED:
                        row = {name: row[name] for name in USED}
                    row["total"] = row["amount"] * 2
                    value = orjson.dumps(row)
                    if batch.append(key=None, value=value, timestamp=None) is None:
                        await producer.send_batch(batch, TARGET, partition=at.partition)
                        batch = producer.create_batch()
                        batch.append(key=None, value=value, timestamp=None)
            await producer.send_batch(batch, TARGET, partition=at.partition)


if __name__ == "__main__":
    asyncio.run(main())
