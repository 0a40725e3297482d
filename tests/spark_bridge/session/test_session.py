"""Batches through a real Spark: results, errors, cancelling, and a JVM that is killed."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio

from headgate.core.batching.batches import BatchInfo, Inline, SparkStage
from headgate.core.errors import causes
from headgate.spark_bridge.base.errors import SparkFunctionError, SparkPlanError, SparkRowError
from headgate.spark_bridge.process.jvm import Sessions
from headgate.spark_bridge.session.session import Spark

pytestmark = [pytest.mark.spark, pytest.mark.asyncio]

PATIENCE_S = 240.0
INFO = BatchInfo("Partition 0", "daily", 1, 3, "rows")
ROWS = [{"country": "DE", "n": 1}, {"country": "FR", "n": 2}, {"country": "DE", "n": 4}]


@pytest_asyncio.fixture
async def spark(warm: Sessions) -> AsyncIterator[Spark]:
    """A bridge on the warm session, which it must not stop."""
    bridge = Spark()
    bridge.sessions = warm
    yield bridge
    bridge._threads.close()
    bridge._orders.close()


def blocks(spark: Spark, rows: list[dict[str, Any]]) -> list[bytes]:
    """Rows as they wait in a task's store: in two blocks."""
    middle = len(rows) // 2
    return [spark.encode([pa.Table.from_pylist(part)]) for part in (rows[:middle], rows[middle:]) if part]


def totals(df: Any, batch: BatchInfo) -> Any:
    """What a user writes."""
    from pyspark.sql import functions as F

    return df.groupBy("country").agg(F.sum("n").alias("n"), F.lit(batch.id).alias("batch"))


def fussy(df: Any, batch: BatchInfo) -> Any:
    """Fails on one row, in a Python worker."""
    from pyspark.sql import functions as F

    def check(n: int) -> int:
        if n == 2:
            raise ValueError("two is bad")
        return n

    return df.select("country", F.udf(check, "long")("n").alias("n"))


async def test_a_batch_goes_in_and_its_result_comes_back(spark: Spark) -> None:
    """Two stages of one batch: each gives its rows, of the declared schema, in its order."""
    stages = [
        SparkStage("totals", totals, "country string, n long, batch string"),
        SparkStage("ordered", lambda df, batch: df.orderBy("n", ascending=False), "n int"),
    ]
    first, second = await spark.run(INFO, Inline(blocks(spark, ROWS)), stages)
    rows = [row for block in first.blocks for row in spark.decode(block)]
    assert sorted(rows, key=lambda row: row["country"]) == [
        {"country": "DE", "n": 5, "batch": "Partition 0/daily/1"},
        {"country": "FR", "n": 2, "batch": "Partition 0/daily/1"},
    ]
    assert [spark.decode(block) for block in second.blocks] == [[{"n": 4}, {"n": 2}, {"n": 1}]]


async def test_what_a_function_leaves_in_its_session_no_other_batch_sees(spark: Spark, warm: Sessions) -> None:
    """Two batches at the same time, with views, settings and functions of the same names: each read the rows of whoever came last."""
    both = threading.Barrier(2)

    def named(df: Any, batch: BatchInfo) -> Any:
        own = df.sparkSession
        assert own.conf.get("spark.sql.shuffle.partitions") == "2"
        own.conf.set("spark.sql.shuffle.partitions", str(batch.number + 2))
        own.udf.register("which", lambda: batch.number, "int")
        df.createTempView("orders")
        both.wait(PATIENCE_S)
        found = own.sql("SELECT country, which() AS which, count(*) OVER () AS n FROM orders")
        assert own.catalog.tableExists("orders")
        assert own.conf.get("spark.sql.shuffle.partitions") == str(batch.number + 2)
        return found

    async def ran(number: int) -> list[dict[str, Any]]:
        rows = [{"country": f"{number}", "n": n} for n in range(number)]
        stage = SparkStage("named", named, "country string, which int, n long")
        (found,) = await spark.run(
            BatchInfo("Partition 0", "daily", number, number, "rows"), Inline(blocks(spark, rows)), [stage]
        )
        return [row for block in found.blocks for row in spark.decode(block)]

    for _ in range(2):
        two, three = await asyncio.gather(ran(2), ran(3))
        assert two == [{"country": "2", "which": 2, "n": 2}] * 2
        assert three == [{"country": "3", "which": 3, "n": 3}] * 3
    assert not await asyncio.to_thread(lambda: warm.get().catalog.tableExists("orders"))


async def test_a_view_that_is_looked_for_elsewhere_says_where_it_is(spark: Spark) -> None:
    """`SparkSession.builder.getOrCreate()` gives the session of the worker."""

    def elsewhere(df: Any, batch: BatchInfo) -> Any:
        from pyspark.sql import SparkSession

        df.createOrReplaceTempView("mine")
        session: Any = SparkSession.builder
        return session.getOrCreate().sql("SELECT n FROM mine")

    with pytest.raises(SparkPlanError, match=r"df\.sparkSession\.sql"):
        await spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("elsewhere", elsewhere, "n long")])


async def test_no_call_into_spark_runs_on_the_loop(spark: Spark) -> None:
    """The function itself is called in a thread of the pool."""
    seen: list[str] = []

    def where(df: Any, batch: BatchInfo) -> Any:
        seen.append(threading.current_thread().name)
        return df

    await spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("where", where, "n long")])
    assert [name.partition("_")[0] for name in seen] == ["spark"]


async def test_a_function_that_raises_on_the_driver_is_called_again(spark: Spark) -> None:
    """A service that it asks was away: it was final at the first call. What goes on raising is the policy's."""
    calls: list[int] = []

    def asks(df: Any, batch: Any) -> Any:
        calls.append(batch.attempt)
        if len(calls) < 3:
            raise RuntimeError("503")
        return df

    (outcome,) = await spark.run(
        INFO, Inline(blocks(spark, ROWS)), [SparkStage("asks", asks, "country string, n long")]
    )
    assert (outcome.rows, len(calls)) == (len(ROWS), 3)
    with pytest.raises(SparkFunctionError, match="ZeroDivisionError") as found:
        await spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("wrong", lambda df, batch: 1 / 0, "n long")])
    assert not found.value.final


@pytest.mark.parametrize(
    ("fn", "schema", "says"),
    [
        (lambda df, batch: df.select("contry"), "country string", "contry"),
        (lambda df, batch: df, "nowhere string", r"has no column 'nowhere'; it has 'country', 'n'"),
        (lambda df, batch: df, "m long", r"has no column 'm'.* Remedy: .*'n'"),
        (
            lambda df, batch: df,
            "country int",
            r"does not match the schema struct<country:int>; it is country string, n bigint",
        ),
        (
            lambda df, batch: None,
            "n long",
            r"<lambda>\(\) returned None, not a DataFrame.* return the result that the function",
        ),
        (lambda df, batch: df.toArrow(), "n long", "returned a pyarrow Table, not a DataFrame"),
        (lambda df, batch: 7, "n long", "returned a builtins int"),
    ],
    ids=["unknown column", "another schema", "misspelt", "another type", "nothing", "arrow", "a number"],
)
async def test_a_wrong_plan_is_said_with_spark_s_words(spark: Spark, fn: Any, schema: str, says: str) -> None:
    """Nothing is run again for it: no rows will make it right."""
    with pytest.raises(SparkPlanError, match=says) as found:
        await spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("wrong", fn, schema)])
    assert found.value.final
    assert found.value not in list(causes(found.value))[1:]
    assert (
        found.value.__cause__ is not found.value
    )  # whoever walked that chain never came back, and neither did the worker
    assert found.value.stage == "wrong"


async def test_a_bad_row_fails_the_batch_or_is_left_out(spark: Spark) -> None:
    """As the policy wants it: with the row's own exception, or without the row."""
    with pytest.raises(SparkRowError, match="ValueError: two is bad"):
        await spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("fussy", fussy, "country string, n long")])
    (outcome,) = await spark.run(
        INFO, Inline(blocks(spark, ROWS)), [SparkStage("fussy", fussy, "country string, n long", keeps_going=True)]
    )
    assert [row["n"] for block in outcome.blocks for row in spark.decode(block)] == [1, 4]
    ((place, row, error),) = outcome.bad
    assert (place, row) == (ROWS.index(row), {"country": "FR", "n": 2})
    assert "two is bad" in str(error)


async def test_a_large_result_comes_in_blocks(spark: Spark) -> None:
    """So that a step of a letter sends a bounded number of rows."""
    rows = [{"n": n} for n in range(12_000)]
    (outcome,) = await spark.run(
        INFO, Inline(blocks(spark, rows)), [SparkStage("same", lambda df, batch: df, "n long")]
    )
    assert outcome.rows == 12_000
    assert [len(spark.decode(block)) for block in outcome.blocks] == [5000, 5000, 2000]
    rows = [{"text": "x" * 5_000} for _ in range(2_000)]
    (outcome,) = await spark.run(
        INFO, Inline(blocks(spark, rows)), [SparkStage("same", lambda df, batch: df, "text string")]
    )
    assert sum(len(spark.decode(block)) for block in outcome.blocks) == 2_000
    assert max(len(block) for block in outcome.blocks) < 1.1 * (1 << 20)


async def test_a_function_that_hangs_outside_of_spark_is_left_behind(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can end its thread; so whoever calls the batch off comes back all the same, and the others have as many threads as before."""
    monkeypatch.setattr("headgate.spark_bridge.session.session.CANCEL_S", 0.3)
    never, begun = threading.Event(), threading.Event()

    def hangs(df: Any, batch: Any) -> Any:
        begun.set()
        never.wait()
        return df

    hung = [
        asyncio.get_running_loop().create_task(
            spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("hangs", hangs, "n long")])
        )
        for _ in range(4)
    ]
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    for one in hung:
        one.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait(hung)
        (outcome,) = await spark.run(
            INFO, Inline(blocks(spark, ROWS)), [SparkStage("same", lambda df, batch: df, "n long")]
        )
    never.set()
    assert outcome.rows == 3


async def test_cancelling_takes_the_jobs_with_it(spark: Spark, warm: Sessions) -> None:
    """A task that goes must not leave Spark at work; the next batch runs at once."""
    begun = threading.Event()

    def slow(df: Any, batch: BatchInfo) -> Any:
        from pyspark.sql import functions as F

        begun.set()
        return df.select(F.udf(lambda n: time.sleep(600) or n, "long")("n").alias("n"))

    work = spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("slow", slow, "n long")])
    run = asyncio.get_running_loop().create_task(work)
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    run.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert time.monotonic() - began < 120
    tracker = await asyncio.to_thread(lambda: warm.get().sparkContext.statusTracker())
    async with asyncio.timeout(PATIENCE_S):  # Spark tells whoever waits for a job first, and its tracker a moment later
        while await asyncio.to_thread(tracker.getActiveJobsIds):  # noqa: ASYNC110 - Spark says nothing
            await asyncio.sleep(0.05)


async def test_a_killed_jvm_loses_no_batch_and_blames_no_plan(
    spark: Spark, warm: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 in the middle of a batch, while another one is at work on its plan when PySpark has let go of the session and has no new one
    yet. Whatever PySpark says then, both run again on a new session in the same process: the same rows, the same result.
    """
    session = await asyncio.to_thread(warm.get)
    before, process = warm.started, session.sparkContext._gateway.proc
    updates = session.sparkContext._accumulatorServer
    kept: list[Any] = []
    inside, gone, tried = threading.Event(), threading.Event(), threading.Event()
    begin = warm._new

    def held() -> Any:
        gone.set()
        assert tried.wait(PATIENCE_S)
        return begin()

    monkeypatch.setattr(warm, "_new", held)

    def caught(df: Any, batch: BatchInfo) -> Any:
        if warm.started == before and not gone.is_set():
            inside.set()
            assert gone.wait(PATIENCE_S)
        try:
            return totals(df, batch)
        finally:
            tried.set()

    def killed(df: Any, batch: BatchInfo) -> Any:
        if warm.started == before:
            kept.append(df.sparkSession.range(3).withColumnRenamed("id", "n"))
            assert inside.wait(PATIENCE_S)
            os.kill(process.pid, signal.SIGKILL)
        return df

    (first,), (second,) = await asyncio.gather(
        spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("caught", caught, "country string, n long")]),
        spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("killed", killed, "country string, n long")]),
    )
    assert first.rows == 2
    assert [row for block in second.blocks for row in spark.decode(block)] == ROWS
    assert warm.started == before + 1
    assert process.poll() is not None
    assert updates.server_shutdown  # it has a thread of its own, which would be left behind for every JVM that dies
    # the next JVM counts its objects from zero, so that an old one was taken for any of its own
    for fn in (lambda df, batch: df.join(kept[0], "n"), lambda df, batch: kept[0].join(df, "n")):
        with pytest.raises(SparkPlanError, match=r"belongs to a session that is over.*again with df\.sparkSession"):
            await spark.run(INFO, Inline(blocks(spark, ROWS)), [SparkStage("kept", fn, "n long")])
    assert warm.started == before + 1


def held_by(session: Any) -> dict[str, Any]:
    """What Spark holds for functions: files of broadcast variables, accumulators, global views, what is cached."""
    from pyspark import accumulators

    context, shared = session.sparkContext, session._jsparkSession.sharedState()
    return {
        "files": len(os.listdir(context._temp_dir)),
        "accumulators": len(accumulators._accumulatorRegistry),
        "views": shared.globalTempViewManager().listViewNames("*").size(),
        "cached": context._jsc.getPersistentRDDs().size(),
    }


async def test_what_a_dozen_batches_leave_is_nothing(spark: Spark, warm: Sessions) -> None:
    """Every broadcast variable kept its file, every accumulator an entry for ever, every global view the rows of its batch, and sixty
    batches left sixty cached DataFrames. What is cached of other data stays, for the batches to come."""
    from pyspark.sql import functions as F

    session = await asyncio.to_thread(warm.get)
    kept: list[Any] = []
    cached: list[Any] = []

    def leaving(df: Any, batch: BatchInfo) -> Any:
        own = df.sparkSession
        if not kept:
            kept.extend((own.sparkContext.broadcast({"DE": 1, "FR": 2}), own.sparkContext.accumulator(0)))
            own.range(3).createOrReplaceGlobalTempView("kept")
            cached.append(own.range(3).cache())
            assert cached[0].count() == 3
        names, always, seen = own.sparkContext.broadcast({"DE": "de", "FR": "fr"}), *kept
        calls = own.sparkContext.accumulator(0)

        def named(country: str) -> str:
            calls.add(1)
            seen.add(1)
            return f"{names.value[country]}{always.value[country]}"

        df.createOrReplaceTempView("rows")
        df.cache().createGlobalTempView(f"rows_{batch.number}")
        own.sql(f"CREATE GLOBAL TEMPORARY VIEW sums_{batch.number} AS SELECT sum(n) AS n FROM rows")
        own.catalog.cacheTable("rows")
        found = df.select(F.udf(named, "string")("country").alias("name"))
        if batch.number == 11:
            gc.collect()  # the error of batch 6 refers to what its function had
            assert own.table("global_temp.kept").count() == 3
        if batch.number == 6:
            raise ValueError("after it has left all that")
        return found

    stage = SparkStage("stage", leaving, "name string")
    before = await asyncio.to_thread(held_by, session)
    for number in range(1, 13):
        run = spark.run(replace(INFO, number=number), Inline(blocks(spark, ROWS)), [stage])
        if number == 6:
            with pytest.raises(SparkRowError, match="after it has left all that"):
                await run
        else:
            (outcome,) = await run
            assert outcome.rows == 3
    after = await asyncio.to_thread(held_by, session)
    stay = {
        "files": 2,
        "accumulators": 1,
        "views": 1,
        "cached": 1,
    }  # the names of the first batch: what is cached may need them
    assert after == {name: number + stay[name] for name, number in before.items()}
    assert kept[1].value == 11 * 3
    del kept[:]
    await asyncio.to_thread(cached[0].unpersist)
    session.catalog.dropGlobalTempView("kept")


async def test_a_dataframe_that_is_kept_keeps_what_it_needs(spark: Spark, warm: Sessions) -> None:
    """It was made with a broadcast variable to which nothing but its plan refers."""
    from pyspark.sql import functions as F

    kept: list[Any] = []

    def keeping(df: Any, batch: BatchInfo) -> Any:
        if not kept:
            names = df.sparkSession.sparkContext.broadcast(["a", "b", "c"])
            kept.append(df.sparkSession.range(3).select(F.udf(lambda n: names.value[n], "string")("id").alias("name")))
        return kept[0]

    for number in (1, 2, 3):
        stage = SparkStage("stage", keeping, "name string")
        (outcome,) = await spark.run(replace(INFO, number=number), Inline(blocks(spark, ROWS)), [stage])
        assert outcome.rows == 3
