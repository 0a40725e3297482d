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
from headgate.spark_bridge.jvm import Sessions

from .scenes import why
from .test_spark_line import PATIENCE_S, Line, counted, lend, orders, totals

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


class Transactional(Line):
    """A job whose input is written in transactions."""

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
async def line(job: Any, warm: Sessions, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Transactional]:
    lend(warm, monkeypatch)
    yield Transactional(job, warm)


def declared(line: Transactional, source: str, **options: Any) -> Any:
    app = hg.App(line.job.name, serde=hg.json())
    return app, app.input(source, serde=hg.json(Order), timestamp="ts", max_out_of_order="1s", **options)


async def test_committed_records_of_every_codec_are_counted_once(line: Transactional, topic: Topic) -> None:
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


async def test_time_passes_with_the_results_and_a_drain_flushes_the_rest(line: Transactional, topic: Topic) -> None:
    """A window behind the results closes by what executors saw, while the stream is open; the drain closes the last range."""
    source, target = topic("orders"), topic("windows")

    def copied(df: Any, batch: Any) -> Any:
        return df.select("country", "n")

    app, stream = declared(line, source)
    copies = (
        stream.columns().batch(max_rows=100, name="lot", by="reference").spark(copied, schema="country string, n long")
    )
    sums = copies.repartition("country").window(hg.tumbling("10s")).agg(n=hg.count(), total=hg.sum("n"))
    sums.to(target)
    await line.job.write(source, [{**order, "ts": 1_000_000 + 1000 * order["n"]} for order in orders(250)])
    running = await line.start(app)
    rows = await line.job.values(target, 3, within_s=PATIENCE_S)
    assert {(row["window_start"], row["closed_by"]) for row in rows} == {(1_090_000, "watermark")}
    assert counted(rows) == (100, sum(range(100)))
    await line.job.ask("drain", timeout_s=PATIENCE_S)
    assert await running.ended(PATIENCE_S) == 0
    rows = await line.job.values(target, 9)
    assert counted(rows) == (250, sum(range(250)))
    assert {(row["window_start"], row["closed_by"]) for row in rows[3:]} == {(1_190_000, "drain"), (1_240_000, "drain")}


async def test_bad_records_follow_the_policy_of_their_input(line: Transactional, topic: Topic) -> None:
    """Dead letters name the record and the batch. By default the task fails, and says which record it is."""
    source, target = topic("orders"), topic("totals")
    values: list[Any] = [{**order, "ts": order["n"]} for order in orders(20)]
    values[7], values[13] = b"{torn", {"country": "DE", "n": "13", "ts": 13}
    await line.job.write(source, [*values, None], key=b"k")
    app, stream = declared(line, source, until="newest", on_bad_data="dead_letter")
    stream.batch(max_rows=50, name="lot", by="reference").spark(totals, schema=SCHEMA, name="totals").to(target)
    running = await line.start(app)
    assert await running.ended(PATIENCE_S) == 0
    assert counted(await line.job.values(target, 3)) == (18, sum(range(20)) - 20)
    dead = await line.job.records(line.job.topics.dead_letters, 2)
    assert [one.value for one in dead] == [b"{torn", orjson.dumps(values[13])]
    for one, offset in zip(dead, (b"7", b"13"), strict=True):
        headers = dict(one.headers)
        assert (headers["hg-topic"], headers["hg-partition"], headers["hg-offset"]) == (source.encode(), b"0", offset)
        assert headers["hg-batch"] == b"Partition 0/lot/1"


async def test_a_record_that_cannot_be_read_fails_the_task(line: Transactional, topic: Topic) -> None:
    source = topic("orders")
    await line.job.write(source, [{"country": "DE", "n": 1, "ts": 1}, b"{torn"])
    app, stream = declared(line, source)
    stream.batch(max_rows=2, name="lot", by="reference").spark(totals, schema=SCHEMA, name="totals").to(topic("totals"))
    running = await line.start(app)
    await running.until(lambda: running.worker.actors and why(running), "the task fails", within_s=PATIENCE_S)
    assert f"{source}[0] offset 1: not json" in why(running)


async def test_removed_records_are_an_error_and_never_a_smaller_result(line: Transactional, topic: Topic) -> None:
    """The range is committed, and retention removes records of it before Spark has read them."""
    source, target = topic("orders"), topic("totals")
    gate = asyncio.Event()
    app, stream = declared(line, source)
    stream.batch(max_rows=40, name="lot", by="reference").spark(totals, schema=SCHEMA, name="totals").to(target)
    await line.job.write(source, [{**order, "ts": order["n"]} for order in orders(40)])
    running = await line.start(app)
    real = running.worker.runtime.spark.run

    async def held(*arguments: Any) -> Any:
        await gate.wait()
        return await real(*arguments)

    running.worker.runtime.spark.run = held
    await running.until_running(1)
    actor = running.worker.actors["Partition 0"]
    batch = next(one for one in actor.site.pipeline.operators if type(one).__name__ == "BatchOp")
    await running.until(lambda: batch.rows.kept.closed, "a closed batch")
    async with line.job.admin() as admin:
        await admin.delete_records({TopicPartition(source, 0): RecordsToDelete(before_offset=10)})
    gate.set()
    await running.until(lambda: why(running), "the task fails", within_s=PATIENCE_S)
    assert f"{source}[0]: the records from offset 0 on were removed before Spark had read them" in why(running)
    assert "the log starts at 10" in why(running)
    assert "headgate tables clear" in why(running)
    assert await line.job.records(target, 0) == []


async def test_a_compacted_topic_is_refused(line: Transactional, topic: Topic) -> None:
    source = topic("orders", config={"cleanup.policy": "compact"})
    app, stream = declared(line, source)
    stream.batch(max_rows=40, name="lot", by="reference").spark(totals, schema=SCHEMA, name="totals").to(
        topic("totals")
    )
    running = await line.start(app)
    with pytest.raises(hg.EnvironmentFault, match="is compacted, and batch 'lot'"):
        await running.task


SLOW = """
import os, time
from typing import TypedDict
import headgate as hg


class Order(TypedDict):
    country: str
    n: int
    ts: int


def totals(df, batch):
    from pyspark.sql import functions as F

    if not os.path.exists("FLAG"):
        open("FLAG", "w").write(batch.id)
        time.sleep(600)
    found = df.groupBy("country").agg(F.count("*").alias("n"), F.sum("n").alias("total"))
    return found.select(F.lit(f"{batch.id} {batch.closed_by}").alias("batch"), "country", "n", "total")


app = hg.App("JOB", serde=hg.json())
stream = app.input("SOURCE", serde=hg.json(Order), timestamp="ts")
batches = stream.batch(max_rows=1000, name="lot", by="reference")
batches.spark(totals, schema="batch string, country string, n long, total long").to("TARGET")
"""


async def test_a_killed_worker_s_batch_runs_again_with_the_same_range(
    line: Transactional, topic: Topic, tmp_path: Any
) -> None:
    """kill -9 while Spark has the first batch: the next process reads the same offsets under the same id."""
    source, target = topic("orders"), topic("totals")
    flag = tmp_path / "begun"
    await line.job.write(source, [{**order, "ts": order["n"]} for order in orders(3000)])
    text = SLOW.replace("FLAG", str(flag)).replace("SOURCE", source).replace("TARGET", target)
    first = await line.job.process(text, "w1")
    async with asyncio.timeout(PATIENCE_S):
        while not flag.exists() or not flag.read_text():
            assert first.process.returncode is None, first.text()[-3000:]
            await asyncio.sleep(0.05)
    first.kill()
    await first.ended()
    await line.job.process(text, "w1")
    rows = await line.job.values(target, 9, within_s=PATIENCE_S)
    assert counted(rows) == (3000, sum(range(3000)))
    by_batch: dict[str, int] = {}
    for row in rows:
        by_batch[row["batch"]] = by_batch.get(row["batch"], 0) + row["n"]
    assert by_batch == {f"Partition 0/lot/{number} rows": 1000 for number in (1, 2, 3)}
