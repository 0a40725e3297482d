"""Batches by reference on a real broker and a real Spark: the task cuts ranges of offsets, and executors read Kafka themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypedDict

import orjson
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic, RecordsToDelete
from click.testing import CliRunner

import headgate as hg
from headgate.agents.cli.group import main
from headgate.core.names import StreamPartition
from headgate.spark_bridge.process.jvm import Sessions

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


async def test_a_topic_made_again_during_an_attempt_gives_no_row_to_the_batch(
    line: Transactional, topic: Topic
) -> None:
    """The ids agree when the attempt begins; when executors read, the name has other records at the same offsets. The batch fails, and
    `on_lost` decides about the position: the new topic is read from its beginning, under the ids of other batches."""
    source, target = topic("orders"), topic("totals")
    begun, gate, attempts = asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def held(df: Any, batch: Any) -> Any:
        attempts.append(batch.id)
        if len(attempts) == 1:
            loop.call_soon_threadsafe(begun.set)
            assert gate.wait(PATIENCE_S)
        return totals(df, batch)

    app, stream = declared(line, source, on_lost="oldest")
    stream.batch(max_rows=40, name="lot", by="reference").spark(held, schema=SCHEMA, name="totals").to(target)
    await line.job.write(source, [{**order, "ts": order["n"]} for order in orders(40)])
    running = await line.start(app)
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
    async with line.job.admin() as admin:
        await admin.delete_topics([source])
        while (await admin.create_topics([NewTopic(source, 1, 1)])).topic_errors[0][1]:
            pass  # the deletion is under way
    await line.job.write(source, [{**order, "ts": order["n"]} for order in orders(40, start=1000)])
    gate.set()
    await running.until(lambda: why(running), "the task fails", within_s=PATIENCE_S)
    first = "Partition 0/lot/1"
    assert f"batch {first}: {source}[0]: the topic was deleted and re-created before Spark had read" in why(running)
    assert f"`headgate topics adopt JOB {source}` accepts it" in why(running)
    assert attempts.count(first) == 1, "no further attempt can read them"
    assert await running.stop() == 0
    assert await line.job.records(target, 0) == []
    for verb in (f"tables clear {line.job.name}/1 lot", f"seek {line.job.name}/1 {source} --to oldest"):
        done = await asyncio.to_thread(CliRunner().invoke, main, f"{verb} --yes -b {line.job.bootstrap}".split())
        assert done.exit_code == 0, done.output
    again = await line.start(app)
    rows = await line.job.values(target, 3, within_s=PATIENCE_S)
    assert counted(rows) == (40, sum(range(1000, 1040)))
    assert await again.stop() == 0


async def test_a_compacted_topic_is_refused(line: Transactional, topic: Topic) -> None:
    source = topic("orders", config={"cleanup.policy": "compact"})
    app, stream = declared(line, source)
    stream.batch(max_rows=40, name="lot", by="reference").spark(totals, schema=SCHEMA, name="totals").to(
        topic("totals")
    )
    running = await line.start(app)
    with pytest.raises(hg.EnvironmentFault, match="is compacted, and batch 'lot'"):
        await running.task


def framed(line: Transactional, source: str, **options: Any) -> Any:
    app = hg.App(line.job.name, serde=hg.json(), **options)
    columns = app.input(source, serde=hg.json(Order), timestamp="ts", max_out_of_order="1s").columns()
    return app, columns.filter(hg.col("n") >= 0).repartition("country", partitions=2)


def batch_step(running: Any, task: str = "Partition 0") -> Any:
    operators = running.worker.actors[task].site.pipeline.operators
    return next(one for one in operators if type(one).__name__ == "BatchOp")


def hold(running: Any) -> asyncio.Event:
    """No batch runs before this is set."""
    real, gate = running.worker.runtime.spark.run, asyncio.Event()

    async def held(*arguments: Any) -> Any:
        await gate.wait()
        return await real(*arguments)

    running.worker.runtime.spark.run = held
    return gate


async def starts(line: Transactional, *parts: StreamPartition) -> dict[StreamPartition, int]:
    """Where these logs start."""
    consumer = AIOKafkaConsumer(bootstrap_servers=line.job.bootstrap)
    await consumer.start()
    try:
        found = await consumer.beginning_offsets([TopicPartition(*at) for at in parts])
    finally:
        await consumer.stop()
    return {at: found[TopicPartition(*at)] for at in parts}


async def test_frames_of_a_repartition_are_read_by_executors_and_trimmed_behind_them(
    line: Transactional, topic: Topic
) -> None:
    """Frames of columns and of a few rows, among control messages and markers of transactions. While the batches wait for Spark, nothing of
    them is trimmed; time passes with the results, and a window behind them closes; the drain flushes the rest."""
    source, target, windows = topic("orders"), topic("totals"), topic("windows")
    app, columns = framed(line, source)
    lots = columns.batch(max_rows=500, name="lot", by="reference").spark(totals, schema=SCHEMA, name="totals")
    lots.to(target)
    lots.repartition("country", name="windows").window(hg.tumbling("10s")).agg(rows=hg.sum("n")).to(windows)
    numbered = [{**order, "ts": 1_000_000 + 10 * order["n"]} for order in orders(3000)]
    running = await line.start(app)
    await running.until_running(2)
    gate = hold(running)
    await line.job.write(source, numbered[:2990])
    stream = line.job.topics.intermediate("by-country")
    parts = {StreamPartition(stream, n): running.worker.actors[f"Partition {n}"].contribution for n in range(2)}
    await running.until(lambda: all(one.durable.get(at, 0) > one.done[at] for at, one in parts.items()), "batches wait")
    needed = {at: one.done[at] for at, one in parts.items()}
    await running.worker.upkeep.turn(list(running.worker.actors.values()), trim=True)
    assert await starts(line, *parts) == needed
    gate.set()
    await line.job.write(source, numbered[2990:])
    await running.until(lambda: all(one.done[at] > needed[at] for at, one in parts.items()), "some are done")
    needed = {at: one.done[at] for at, one in parts.items()}
    await running.worker.upkeep.turn(list(running.worker.actors.values()), trim=True)
    begin = await starts(line, *parts)
    assert all(begin[at] >= needed[at] for at in parts)
    rows = await line.job.values(target, 3, within_s=PATIENCE_S)
    await line.job.ask("drain", timeout_s=PATIENCE_S)
    assert await running.ended(PATIENCE_S) == 0
    rows = await line.job.values(target, 3)
    assert counted(rows) == (3000, sum(range(3000)))
    by_batch: dict[str, int] = {}
    for row in rows:
        by_batch[row["batch"]] = by_batch.get(row["batch"], 0) + row["n"]
    assert max(by_batch.values()) <= 2000, "a batch has a frame too many"
    assert sum(row["rows"] for row in await line.job.values(windows, 3)) == 3000
    logged = await line.job.records(line.job.topics.log, 1)
    assert not any(b"DE" in (one.value or b"") for one in logged if b"lot" in (one.key or b""))


async def test_a_row_of_a_frame_that_makes_spark_fail_is_a_dead_letter(line: Transactional, topic: Topic) -> None:
    """The frame is found, and the row in it; the other rows of the frame go through."""
    source, target = topic("orders"), topic("copies")

    def fussy(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        def check(n: int) -> int:
            if n == 5:
                raise ValueError("five")
            return n

        return df.select(F.udf(check, "long")("n").alias("n"))

    app, columns = framed(line, source, on_error="dead_letter")
    columns.batch(max_age="1s", name="lot", by="reference").spark(fussy, schema="n long", name="fussy").to(target)
    await line.job.write(source, [{**order, "ts": order["n"]} for order in orders(300)])
    running = await line.start(app)
    rows = await line.job.values(target, 299, within_s=PATIENCE_S)
    assert sorted(row["n"] for row in rows) == [n for n in range(300) if n != 5]
    (dead,) = await line.job.records(line.job.topics.dead_letters, 1)
    headers = dict(dead.headers)
    assert b'"n":5' in dead.value
    assert b"five" in headers["hg-exception"]
    assert headers["hg-topic"] == line.job.topics.intermediate("by-country").encode()
    assert headers["hg-batch"].startswith(b"Partition ")
    assert await running.stop() == 0


async def test_frames_that_someone_removed_are_an_error_and_the_remedy_goes_on(
    line: Transactional, topic: Topic
) -> None:
    """Never a smaller result. Once the unfinished batches are forgotten, what comes next goes through."""
    source, target = topic("orders"), topic("totals")
    app, columns = framed(line, source)
    columns.batch(max_rows=30, name="lot", by="reference").spark(totals, schema=SCHEMA, name="totals").to(target)
    running = await line.start(app, **{"error.retries": 0})
    await running.until_running(2)
    gate = hold(running)
    await line.job.write(source, [{"country": "DE", "n": n, "ts": n} for n in range(40)])
    await running.until(
        lambda: any(batch_step(running, f"Partition {n}").rows.kept.closed for n in range(2)), "a closed batch"
    )
    task = next(f"Partition {n}" for n in range(2) if batch_step(running, f"Partition {n}").rows.kept.closed)
    (at, first), *_ = batch_step(running, task).needed().items()
    async with line.job.admin() as admin:
        await admin.delete_records({TopicPartition(*at): RecordsToDelete(before_offset=first + 1)})
    gate.set()
    await running.until(lambda: why(running, task), "the task fails", within_s=PATIENCE_S)
    told = why(running, task)
    assert (
        f"{at.stream}[{at.partition}]: the records from offset {first} on were removed before Spark had read them"
        in told
    )
    remedy = f"headgate tables clear {line.job.name}/1 lot"
    assert remedy in told
    assert await running.stop() == 0
    assert await line.job.records(target, 0) == []
    words = [*remedy.split()[1:], "--yes", "-b", line.job.bootstrap]
    done = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert done.exit_code == 0, done.output
    again = await line.start(app)
    await line.job.write(source, [{"country": "DE", "n": n, "ts": n} for n in range(40, 80)])
    assert counted(await line.job.values(target, 1, within_s=PATIENCE_S)) == (40, sum(range(40, 80)))
    assert await again.stop() == 0


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

    flag = f"FLAG-{batch.stage}"
    if not os.path.exists(flag):
        open(flag, "w").close()
        time.sleep(600)
    found = df.groupBy("country").agg(F.count("*").alias("n"), F.sum("n").alias("total"))
    return found.select(F.lit(f"{batch.id} {batch.closed_by}").alias("batch"), "country", "n", "total")


app = hg.App("JOB", serde=hg.json())
SCHEMA = "batch string, country string, n long, total long"
first, second, third = (app.input(f"SOURCE{n}", serde=hg.json(Order), timestamp="ts") for n in range(3))
first.batch(max_rows=1000, name="lot", by="reference").spark(totals, schema=SCHEMA, name="first").to("TARGET")
frames = second.columns().repartition("country", partitions=1).batch(max_rows=1000, max_age="1s", name="framed", by="reference")
frames.spark(totals, schema=SCHEMA, name="second").to("FRAMES")
third.batch(max_rows=1000, name="files", by="reference").spark(totals, schema=SCHEMA, name="third").write("OUT", format="json")
"""


def written(out: Path) -> list[dict[str, Any]]:
    """The rows of whole batches in files."""
    return [
        orjson.loads(row)
        for name in (hg.published(out) if out.exists() else ())
        for row in Path(name).read_text().splitlines()
    ]


async def test_a_killed_worker_s_batches_run_again_with_the_same_ranges(
    line: Transactional, topic: Topic, tmp_path: Any
) -> None:
    """kill -9 while Spark has the first batch of an input, one of frames, and one that it writes itself: the next process reads the same
    offsets under the same ids, and each row is there once."""
    source, target, frames = topic("orders"), topic("totals"), topic("frames")
    sources = [f"{source}{n}" for n in range(3)]
    flags, out = [tmp_path / f"begun-{name}" for name in ("lot", "framed", "files")], tmp_path / "out"
    async with line.job.admin() as admin:
        await admin.create_topics([NewTopic(one, 1, 1) for one in sources])
    for one in sources:
        await line.job.write(one, [{**order, "ts": order["n"]} for order in orders(3000)])
    text = SLOW.replace("FLAG", str(tmp_path / "begun")).replace("SOURCE", source)
    text = text.replace("TARGET", target).replace("FRAMES", frames).replace("OUT", str(out))
    first = await line.job.process(text, "w1")
    async with asyncio.timeout(PATIENCE_S):
        while not all(flag.exists() for flag in flags):
            assert first.process.returncode is None, first.text()[-3000:]
            await asyncio.sleep(0.05)
    first.kill()
    await first.ended()
    second = await line.job.process(text, "w1")
    rows = await line.job.values(target, 9, within_s=PATIENCE_S)
    assert counted(rows) == (3000, sum(range(3000)))
    by_batch: dict[str, int] = {}
    for row in rows:
        by_batch[row["batch"]] = by_batch.get(row["batch"], 0) + row["n"]
    assert by_batch == {f"Partition 0/lot/{number} rows": 1000 for number in (1, 2, 3)}
    await line.job.ask("drain", timeout_s=PATIENCE_S)
    assert await second.ended(PATIENCE_S) == 0
    rows = await line.job.values(frames, 3)
    assert counted(rows) == (3000, sum(range(3000)))
    assert len({(row["batch"], row["country"]) for row in rows}) == len(rows)
    assert counted(written(out)) == (3000, sum(range(3000)))


class Customer(TypedDict):
    country: str
    city: str | None


class Priced(TypedDict):
    at: datetime
    price: Annotated[Decimal, hg.Digits(12, 2)]
    tags: list[str] | None
    customer: Customer | None
    n: int


async def test_times_decimals_lists_and_objects_have_their_types(line: Transactional, topic: Topic) -> None:
    """Of the records of an input, and of the frames of a repartition. A record with a bad value is left out."""
    sources, targets = (topic("orders"), topic("others")), (topic("lots"), topic("framed"))

    def by_day(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        kinds = ", ".join(kind for _, kind in df.dtypes)
        assert kinds == "timestamp, decimal(12,2), array<string>, struct<country:string,city:string>, bigint"
        tagged = F.sum(F.when(F.array_contains("tags", "x"), 1).otherwise(0)).alias("tagged")
        days = df.groupBy(F.date_format("at", "yyyy-MM-dd HH").alias("day"), "customer.country")
        total, there = F.sum("price").cast("string").alias("total"), F.count("customer").alias("there")
        return days.agg(total, F.sum("n").alias("n"), tagged, there)

    values = [
        {
            "at": f"2026-01-0{n % 2 + 1}T01:00:00+01:00",
            "price": "0.10",
            "tags": ["x"] if n % 4 else None,
            "customer": {"country": "DE"} if n % 3 else None,
            "n": n,
        }
        for n in range(200)
    ]
    app = hg.App(line.job.name, serde=hg.json(), on_bad_data="skip")
    streams: list[Any] = []
    for source in sources:
        await line.job.write(source, [*values, {**values[0], "price": "0.105"}])
        streams.append(app.input(source, serde=hg.json(Priced), timestamp="at", until="newest").columns())
    first, second = streams
    schema = "day string, country string, total string, n long, tagged long, there long"
    for one, name, target in zip((first, second.repartition("n")), ("lot", "framed"), targets, strict=True):
        one.batch(max_rows=1_000, name=name, by="reference").spark(by_day, schema=schema, name=f"of-{name}").to(target)
    running = await line.start(app)
    assert await running.ended(PATIENCE_S) == 0
    for target in targets:
        rows = await line.job.values(target, 4)
        assert sum(row["n"] for row in rows) == sum(range(200))
        assert sum(Decimal(row["total"]) for row in rows) == Decimal("20.00")
        assert sum(row["tagged"] for row in rows) == 150
        assert {row["day"] for row in rows} == {"2026-01-01 00", "2026-01-02 00"}
        assert sum(row["there"] for row in rows if row["country"] == "DE") == 133
        assert sum(row["there"] for row in rows if row["country"] is None) == 0
