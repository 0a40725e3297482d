"""Batches by reference on a real broker and a real Spark: the task cuts ranges of offsets, and executors read Kafka themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypedDict

import orjson
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

import headgate as hg
from headgate.agents.broker.java import find_java
from headgate.agents.kafka.range_client import RANGE_CLIENT
from headgate.spark_bridge.jvm import Sessions
from headgate.spark_bridge.session import Spark

from .scenes import why
from .test_spark_line import PATIENCE_S, Lent, counted, orders, totals

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]
SCHEMA = "batch string, country string, n long, total long"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


class Order(TypedDict):
    country: str
    n: int
    ts: int


@pytest.fixture(scope="module")
def warm() -> Any:
    """One session for all workers of this module that live in this process."""
    sessions = Sessions("local[2]", {}, java_home=lambda: str(find_java().home))
    sessions.get()
    yield sessions
    sessions.stop()


class Line:
    """A job on the warm session, whose executors know the broker."""

    def __init__(self, job: Any, warm: Sessions) -> None:
        self.job = job
        self.warm = warm

    async def start(self, app: Any, processor: str = "w1", **settings: Any) -> Any:
        running = await self.job.start(app, processor, settings=settings)
        bridge = Spark(kafka=(RANGE_CLIENT, self.job.client.plain()))
        bridge.sessions = Lent(self.warm)  # type: ignore[assignment]
        running.worker.runtime.spark = bridge
        return running

    async def transactions(self, topic: str, *, each: int, partitions: int) -> list[int]:
        """Transactions of every codec, committed and aborted in turn, among plain records. Returns the numbers that are committed."""
        number, committed = 0, list[int]()
        for codec in CODECS:
            plain = AIOKafkaProducer(bootstrap_servers=self.job.bootstrap, compression_type=codec)
            in_parts = AIOKafkaProducer(
                bootstrap_servers=self.job.bootstrap,
                compression_type=codec,
                transactional_id=f"{self.job.name}-{codec}",
            )
            await plain.start()
            await in_parts.start()
            try:
                for abort in (False, True, False, True):
                    await in_parts.begin_transaction()
                    for producer, counts in ((in_parts, not abort), (plain, True)):
                        futures = []
                        for n in range(number, number + each):
                            value = orjson.dumps({"country": ("DE", "FR", "IT")[n % 3], "n": n, "ts": 1_000_000 + n})
                            futures.append(await producer.send(topic, value, partition=n % partitions))
                        await producer.flush()
                        await asyncio.gather(*futures)
                        committed += range(number, number + each) if counts else ()
                        number += each
                    await (in_parts.abort_transaction() if abort else in_parts.commit_transaction())
            finally:
                await in_parts.stop()
                await plain.stop()
        return committed


@pytest_asyncio.fixture
async def line(job: Any, warm: Sessions) -> AsyncIterator[Line]:
    yield Line(job, warm)


def declared(line: Line, source: str, **options: Any) -> Any:
    app = hg.App(line.job.name, serde=hg.json())
    return app, app.input(source, serde=hg.json(Order), timestamp="ts", max_out_of_order="1s", **options)


async def test_committed_records_of_every_codec_are_counted_once(line: Line, topic: Topic) -> None:
    """Of two partitions and up to the end, with aborted transactions and their markers between. Nothing of a record is in the task log."""
    source, target = topic("orders", partitions=2), topic("totals")
    committed = await line.transactions(source, each=100, partitions=2)
    app, stream = declared(line, source, until="newest")
    stream.batch(max_rows=700, name="lot", by="reference").spark(totals, schema=SCHEMA, name="totals").to(target)
    running = await line.start(app)
    assert await running.ended(PATIENCE_S) == 0
    records = await line.job.records(target, 1)
    rows = [orjson.loads(one.value) for one in records]
    assert counted(rows) == (len(committed), sum(committed))
    assert {row["batch"].partition(" ")[2].partition(" ")[2] for row in rows} == {"rows", "end"}
    assert {one.timestamp for one in records} <= {1_000_000 + n for n in committed}
    logged = await line.job.records(line.job.topics.log, 1)
    assert not any(b"country" in (one.value or b"") for one in logged)
