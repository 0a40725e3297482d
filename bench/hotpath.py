"""The hot path, stage by stage, compared with a bare aiokafka loop, in one run on one broker.

    python bench/hotpath.py -b HOST:PORT [--records 400000]     (without -b an embedded broker is started)

Prints one line for each stage: thousands of records per second of wall time, and of this process's CPU time (without the broker's). Work
"A" is: parse 96-byte JSON, keep nine of ten, add a field, write; every record counts once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import TASK_LOG, TopicsAdmin, TopicSpec
from headgate.agents.port.errors import OutboxError
from headgate.agents.records.values import serdes as serde
from headgate.agents.runtime.reading.intake import Intake, PartitionSource
from headgate.agents.runtime.store.log import log_write, restore
from headgate.agents.runtime.writing.buffer import LogWrite
from headgate.agents.runtime.writing.outbox import Outbox
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import MemoryStore, Owner
from headgate.agents.state.tables import TaskTables
from headgate.core.names import StreamPartition

PARTITIONS = 4
CHUNK = 2000
COMMIT_S = 0.2


async def committed(outbox: Outbox, writes: Iterable[LogWrite] = ()) -> dict[StreamPartition, int]:
    """Commit what is complete, and these writes. Returns the position after the last record of each target."""
    outbox.divide(writes)
    positions = await outbox.flush()
    await outbox.commit()
    return positions


class Bench:
    """The stages, and their figures."""

    def __init__(self, bootstrap: str, records: int) -> None:
        self.client = ClientSettings(bootstrap)
        self.records = records
        self.topic = f"bench-{uuid.uuid4().hex[:6]}"
        self.parts = [StreamPartition(self.topic, n) for n in range(PARTITIONS)]
        self.rows: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def measured(self, stage: str, records: int) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        row = {"stage": stage, "k_per_s": round(records / wall / 1e3), "k_per_cpu_s": round(records / cpu / 1e3)}
        self.rows.append(row)
        print(f"{stage:<58}{row['k_per_s']:>8} k/s{row['k_per_cpu_s']:>8} k per CPU-s", flush=True)

    def values(self) -> list[bytes]:
        """One chunk of records of about 96 bytes."""
        made = ({"id": i, "user": f"u{i * 7919 % 10_000}", "amount": i % 100, "pad": "x" * 42} for i in range(CHUNK))
        return [orjson.dumps(one) for one in made]

    @contextlib.asynccontextmanager
    async def outbox(self, *topics: str, compression: str | None = None) -> Any:
        outbox = Outbox(KafkaPort(self.client), f"bench-{uuid.uuid4().hex[:6]}", compression=compression)
        for name in topics:
            outbox.know(name, PARTITIONS)
        await outbox.start()

        async def owner() -> None:
            with contextlib.suppress(OutboxError):
                await outbox.run()

        async with asyncio.TaskGroup() as group:
            group.create_task(owner())
            yield outbox, group
            await outbox.stop()

    async def write(self) -> None:
        values = self.values()
        async with self.outbox(self.topic) as (outbox, _):
            buffer = outbox.buffer("bench")
            with self.measured("columns → batches → committed (200 ms)", self.records):
                last = time.perf_counter()
                for n in range(self.records // CHUNK):
                    buffer.emit(self.topic, n % PARTITIONS, None, values, 1_000_000)
                    buffer.complete()
                    await outbox.room()
                    await asyncio.sleep(0)
                    if time.perf_counter() - last > COMMIT_S:
                        await committed(outbox)
                        last = time.perf_counter()
                await committed(outbox)

    async def read(self, stage: str, *, raw: bool, parse: bool) -> None:
        intake = Intake(KafkaPort(self.client), [PartitionSource(at, 0) for at in self.parts], name="bench", raw=raw)
        await intake.start()
        seen, loads = 0, serde.json().loads_many
        with self.measured(stage, self.records):
            while seen < self.records:
                await intake.fill(1.0)
                for at in self.parts:
                    while (chunk := intake.take(at, CHUNK)) is not None:
                        values = chunk.values
                        if parse:
                            loads(values)
                        seen += len(values)
        await intake.stop()

    async def bare_read(self, *, parse: bool) -> None:
        consumer = AIOKafkaConsumer(
            **self.client.consumer(
                isolation_level="read_committed", enable_auto_commit=False, max_partition_fetch_bytes=1 << 20
            )
        )
        await consumer.start()
        consumer.assign([TopicPartition(*at) for at in self.parts])
        await consumer.seek_to_beginning()
        seen = 0
        with self.measured(f"bare aiokafka: getmany{' and orjson' if parse else ''}", self.records):
            while seen < self.records:
                for records in (await consumer.getmany(timeout_ms=200, max_records=5000)).values():
                    if parse:
                        for record in records:
                            orjson.loads(record.value)
                    seen += len(records)
        await consumer.stop()

    async def work_a(self, *, compression: str | None = None) -> None:
        out = self.topic + "-out"
        intake = Intake(KafkaPort(self.client), [PartitionSource(at, 0) for at in self.parts], name="bench")
        await intake.start()
        json_ = serde.json()
        seen = 0
        async with self.outbox(out, compression=compression) as (outbox, group):
            buffers = {at: outbox.buffer(str(at)) for at in self.parts}
            commit: asyncio.Task[Any] | None = None
            with self.measured(f"A, exactly once{', ' + compression if compression else ''}", self.records):
                last = time.perf_counter()
                while seen < self.records:
                    await intake.fill(1.0)
                    for at in self.parts:
                        while (chunk := intake.take(at, CHUNK)) is not None:
                            rows = [row for row in json_.loads_many(chunk.values).values if row["amount"] >= 10]
                            made = json_.dumps_many([{**row, "total": row["amount"] * 1.2} for row in rows])
                            buffers[at].emit(out, at.partition, None, made.values, 1_000_000)
                            buffers[at].complete()
                            seen += len(chunk)
                    await outbox.room()
                    if time.perf_counter() - last > COMMIT_S and (commit is None or commit.done()):
                        commit, last = group.create_task(committed(outbox)), time.perf_counter()
                if commit is not None:
                    await commit
                await committed(outbox)
        await intake.stop()

    async def bare_a(self) -> None:
        consumer = AIOKafkaConsumer(**self.client.consumer(isolation_level="read_committed", enable_auto_commit=False))
        producer = AIOKafkaProducer(
            **self.client.producer(transactional_id=self.topic + "-bare", linger_ms=20, max_batch_size=1 << 18)
        )
        await consumer.start()
        await producer.start()
        consumer.assign([TopicPartition(*at) for at in self.parts])
        await consumer.seek_to_beginning()
        seen, last = 0, time.perf_counter()
        pending: list[asyncio.Future[Any]] = []
        with self.measured("bare aiokafka: A, exactly once, send()", self.records):
            await producer.begin_transaction()
            while seen < self.records:
                for tp, records in (await consumer.getmany(timeout_ms=200, max_records=5000)).items():
                    for record in records:
                        row = orjson.loads(record.value)
                        if row["amount"] >= 10:
                            row["total"] = row["amount"] * 1.2
                            pending.append(
                                await producer.send(self.topic + "-out", orjson.dumps(row), partition=tp.partition)
                            )
                    seen += len(records)
                if time.perf_counter() - last > COMMIT_S:
                    await asyncio.gather(*pending)
                    pending.clear()
                    await producer.commit_transaction()
                    await producer.begin_transaction()
                    last = time.perf_counter()
            await asyncio.gather(*pending)
            await producer.commit_transaction()
        await producer.stop()
        await consumer.stop()

    async def tables(self, directory: Path) -> None:
        """Count and sum by key in a logged table, then restore the log into a new store."""
        log = StreamPartition(self.topic + "-log", 0)
        memory = StoreMemory(256 << 20)
        store = open_rocks(directory / "written", memory, Owner("bench"))
        tables = TaskTables(store)
        counts: Any = tables.declare("counts", serde.text(), serde.msgpack())
        logged = 0
        async with self.outbox(log.stream) as (outbox, _):
            end = 0
            with self.measured("keyed count and sum (10,000 keys), logged and applied", self.records):
                for n in range(self.records // CHUNK):
                    keys = [f"u{(n * CHUNK + i) * 7919 % 10_000}" for i in range(CHUNK)]
                    known = dict(zip(keys, counts.get_many(keys), strict=True))
                    for key in keys:
                        count, total = known[key] or (0, 0)
                        known[key] = (count + 1, total + 5)
                    counts.update(known)
                    tables.complete()
                    if n % 25 == 24 or n == self.records // CHUNK - 1:
                        write = log_write("t", log, tables.seal(), b"checkpoint", now_ms=1)
                        logged += len(write.values)
                        end = (await committed(outbox, [write]))[log]
                        tables.applied(end, checkpoint=b"checkpoint")
            big = outbox.buffer("t")
            for start in range(0, self.records, CHUNK):
                rows = {b"k%010d" % n: b"\x00" + b"v" * 40 for n in range(start, start + CHUNK)}
                write = log_write("t", log, {"big": rows}, None, now_ms=1)
                big.emit(log.stream, 0, write.keys, write.values, 1)
                big.complete()
                await outbox.room()
            end = (await committed(outbox))[log]
        for name, target in (
            ("memory", MemoryStore(Owner("bench"))),
            ("RocksDB", open_rocks(directory / "restored", memory, Owner("bench"))),
        ):
            with self.measured(f"task log → {name} ({logged + self.records} records)", logged + self.records):
                done = await restore(KafkaPort(self.client), log, target, start=0, end=end)
            assert done.records == logged + self.records, done
            target.close()
        keys = [b"k%010d" % n for n in range(self.records)]
        with self.measured("RocksDB: put, in batches of 10,000", self.records):
            for start in range(0, self.records, 10_000):
                store.write({"big": dict.fromkeys(keys[start : start + 10_000], b"v" * 40)}, position=start)
        with self.measured("RocksDB: get_many, 1,000 at a time", self.records):
            for start in range(0, self.records, 1000):
                store.get_many("big", keys[start : start + 1000])
        store.close()

    async def run(self) -> None:
        topics = TopicsAdmin(self.client)
        await topics.start()
        names = [
            TopicSpec(self.topic, PARTITIONS),
            TopicSpec(self.topic + "-out", PARTITIONS),
            TopicSpec(self.topic + "-log", 1, TASK_LOG),
        ]
        await topics.ensure(names)
        await topics.stop()
        directory = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
        try:
            await self.write()
            await self.bare_read(parse=False)
            await self.read("fetched → chunks of values", raw=True, parse=False)
            await self.read("the same without aiokafka's private side", raw=False, parse=False)
            await self.bare_read(parse=True)
            await self.read("fetched → chunks → parsed", raw=True, parse=True)
            await self.bare_a()
            await self.work_a()
            await self.work_a(compression="lz4")
            await self.tables(directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("-b", "--bootstrap-server")
    arguments.add_argument("--records", type=int, default=400_000)
    arguments.add_argument("--json", type=Path, help="write the table there, too")
    given = arguments.parse_args()
    with contextlib.ExitStack() as stack:
        bootstrap = given.bootstrap_server
        if bootstrap is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-"))
            bootstrap = stack.enter_context(Broker.start(directory)).bootstrap
        bench = Bench(bootstrap, given.records)
        asyncio.run(bench.run())
    if given.json:
        given.json.write_text(json.dumps(bench.rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
