"""What dies or hangs under a batch: the batch runs again, the others are unharmed, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from headgate.core.batching.batches import BatchInfo, SparkStage
from headgate.core.errors import causes
from headgate.spark_bridge.base.errors import (
    SparkAway,
    SparkDown,
    SparkError,
    SparkLost,
    SparkPlanError,
    SparkRowError,
    lost_session,
)
from headgate.spark_bridge.data.terms import Terms
from headgate.spark_bridge.process.jvm import Sessions
from headgate.spark_bridge.session import session as bridge_module
from headgate.spark_bridge.session.session import Spark

from ..spark_in_process import on_a_loop, sent_to_jvm
from .batches import INFO, PATIENCE_S, ROWS, contents, doubled, passed, rows_of

pytestmark = [pytest.mark.asyncio]


@pytest_asyncio.fixture
async def spark(warm: Sessions) -> AsyncIterator[Spark]:
    """A bridge on the warm session, which it must not stop."""
    bridge = Spark()
    bridge.sessions = warm
    yield bridge
    bridge._threads.close()
    bridge._orders.close()


@pytest.fixture
def on_the_wire(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every command that this process sends to the JVM from the thread of a loop."""
    return sent_to_jvm(monkeypatch, on_a_loop)


@pytest.mark.spark
async def test_nothing_is_sent_to_the_jvm_from_the_thread_of_the_loop(spark: Spark, on_the_wire: list[str]) -> None:
    """Neither for a batch, nor for one that fails, nor to cancel one, nor to print its error."""

    def fussy(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        return df.select(F.udf(lambda n: n // (n - 2), "long")("n").alias("n"))

    def slow(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        return df.select(F.udf(lambda n: time.sleep(600) or n, "long")("n").alias("n"))

    assert (await passed(spark, doubled, "n long")).rows == 3
    assert [place for place, *_ in (await passed(spark, fussy, "n long", keeps_going=True)).bad] == [1]
    with pytest.raises(SparkError) as found:
        await passed(spark, lambda df, batch: df.select("nothing"), "n long")
    assert "nothing" in "".join(map(str, causes(found.value)))
    assert all(type(one).__module__.partition(".")[0] not in ("py4j", "pyspark") for one in causes(found.value))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await passed(spark, slow, "n long")
    assert on_the_wire == []


@pytest.mark.spark
async def test_a_row_that_kills_its_python_worker_is_found(spark: Spark) -> None:
    """Each time it comes to one: it is to blame, as if it had raised."""

    def deadly(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        return df.select(F.udf(lambda n: os._exit(3) if n == 2 else n, "long")("n").alias("n"))

    outcome = await passed(spark, deadly, "n long", keeps_going=True)
    assert sorted(row["n"] for row in rows_of(spark, outcome)) == [1, 4]
    ((place, row, error),) = outcome.bad
    assert (place, row["n"]) == (1, 2)
    assert "lost 3 times" in str(error)


def raises_in_arrow(text: str) -> Any:
    """A function of record batches, which raises a text of its record."""

    def fn(df: Any, batch: Any) -> Any:
        def check(batches: Any) -> Any:
            for one in batches:
                if 2 in one.column("n").to_pylist():
                    raise ValueError(text)
                yield one

        return df.select("n").mapInArrow(check, "n long")

    return fn


def raises_in_sql(text: str) -> Any:
    """A query that raises a text of its record."""

    def fn(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        return df.select(
            F.when(F.col("n") == 2, F.raise_error(F.lit(text))).otherwise(F.col("n")).cast("long").alias("n")
        )

    return fn


def imports_in_arrow(df: Any, batch: Any) -> Any:
    """It imports what its record names."""

    def check(batches: Any) -> Any:
        import importlib

        for one in batches:
            for name in one.column("n").to_pylist():
                importlib.import_module("json" if name != 2 else "user_2")
            yield one

    return df.select("n").mapInArrow(check, "n long")


SCHEDULERS = "Job aborted due to stage failure: Total size of serialized results of 1"


def another_result_in_arrow(df: Any, batch: Any) -> Any:
    """It declares a column that it does not give."""
    return df.select("n").mapInArrow(lambda batches: batches, "n long, m long")


def no_number(df: Any, batch: Any) -> Any:
    """A cast of Spark's own."""
    from pyspark.sql import functions as F

    return df.select(F.col("country").cast("long").alias("n"))


def too_much(df: Any, batch: Any) -> Any:
    """More than `spark.driver.maxResultSize`."""
    from pyspark.sql import functions as F

    some = F.explode(F.sequence(F.lit(1), F.lit(200)))
    return df.select(some.alias("n"), F.expr("repeat(uuid(), 2000)").alias("text")).repartition(2)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("fn", "schema", "kind", "says"),
    [
        (raises_in_arrow("StatusCode.UNAVAILABLE"), "n long", SparkRowError, "ValueError: StatusCode.UNAVAILABLE"),
        (raises_in_sql(SCHEDULERS), "n long", SparkRowError, SCHEDULERS),
        (imports_in_arrow, "n long", SparkRowError, "No module named 'user_2'"),
        (no_number, "n long", SparkRowError, "CAST_INVALID_INPUT"),
        (another_result_in_arrow, "n long, m long", SparkPlanError, "fewer columns than its schema declares"),
        (too_much, "n long, text string", SparkPlanError, "make smaller batches"),
    ],
)
async def test_failures_of_rows_and_of_functions_are_told_apart(
    spark: Spark, warm: Sessions, fn: Any, schema: str, kind: type[SparkError], says: str
) -> None:
    """In Spark's words, in the first attempt, and the session lives on. Other texts: `base/test_errors.py`."""
    before = (await asyncio.to_thread(warm.get), warm.started)
    with pytest.raises(kind, match=says) as found:
        await passed(spark, fn, schema)
    assert found.value.retried.times == 0
    assert (await asyncio.to_thread(warm.get), warm.started) == before


@pytest.mark.spark
async def test_two_numbers_whose_sum_spark_refuses_cost_the_later_row_alone(spark: Spark) -> None:
    """Each of them is good alone: the task failed for ever. Without dead letters the batch fails with Spark's error."""

    def total(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        return df.groupBy("country").agg(F.sum("n").alias("n")).orderBy("country")

    most = 2**63 - 1
    rows = [
        {"country": country, "n": n} for country, n in (("DE", most), ("FR", 2), ("DE", 0), ("DE", most), ("FR", 3))
    ]
    outcome = await passed(spark, total, "country string, n long", rows, keeps_going=True)
    assert rows_of(spark, outcome) == [{"country": "DE", "n": most}, {"country": "FR", "n": 5}]
    ((place, row, error),) = outcome.bad
    assert (place, row) == (3, {"country": "DE", "n": most})
    assert type(error) is SparkRowError
    assert "ARITHMETIC_OVERFLOW" in str(error)
    with pytest.raises(SparkRowError, match="ARITHMETIC_OVERFLOW"):
        await passed(spark, total, "country string, n long", rows)


@pytest.mark.spark
async def test_a_python_worker_has_a_bound_of_memory(spark: Spark, warm: Sessions) -> None:
    """What needs more fails with the setting's name, and the session lives on."""

    def greedy(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        return df.select(F.udf(lambda n: len(bytearray(8 << 30)), "long")("n").alias("n"))

    before = (await asyncio.to_thread(warm.get), warm.started)
    with pytest.raises(SparkRowError, match=r"spark\.executor\.pyspark\.memory"):
        await passed(spark, greedy, "n long")
    assert (await asyncio.to_thread(warm.get), warm.started) == before


def shut_down(warm: Sessions) -> None:
    """The next batch has another session."""
    with warm._lock:
        if warm._session is not None:
            warm._session.stop()
        warm._forget()


@pytest.mark.spark
async def test_a_jvm_without_memory_and_one_that_hangs_are_replaced_and_others_are_unharmed(
    spark: Spark, warm: Sessions
) -> None:
    """Two batches at work; one needs more than there is, once. Both give their results, each in its second attempt at most. The next JVM
    keeps its connections and answers no one; the batch runs again on the one behind it. Nothing of it is left on the disk."""
    await asyncio.to_thread(warm.get)
    before, warm.terms = warm.started, Terms(probe_s=3.0)  # for sessions that begin from here on

    def hungry(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        if warm.started == before:
            return df.select(F.expr("length(repeat('x', 2000000000)) + n").alias("n"))
        return df.select("n")

    beside = spark.run(
        replace(INFO, task="Partition 1"),
        contents(spark, ROWS),
        [SparkStage("stage", doubled, "country string, n long")],
    )
    try:
        fed, (other,) = await asyncio.gather(passed(spark, hungry, "n long"), beside)
        assert (fed.rows, other.rows) == (3, 3)
        assert warm.started == before + 1
        assert (fed.retried.times, other.retried.times <= 1) == (1, True)
        assert fed.retried.longest_ms > 0

        process, home = warm._process, warm._home
        assert home is not None
        assert list(home.path.glob("blockmgr-*")), "Spark writes somewhere else"

        def stopped(df: Any, batch: BatchInfo) -> Any:
            if warm.started == before + 1:
                os.kill(process.pid, signal.SIGSTOP)
            return doubled(df, batch)

        outcome = await passed(spark, stopped, "country string, n long")
        assert [row["n"] for row in rows_of(spark, outcome)] == [2, 4, 8]
        assert outcome.retried.times == 1
        assert outcome.retried.why == "it has not answered for 3 s (spark.probe-timeout)"
        assert warm.started == before + 2
        assert process.poll() == -signal.SIGKILL
        assert not home.path.exists()
    finally:
        warm.terms = Terms()
        await asyncio.to_thread(shut_down, warm)  # a session keeps the patience that it began with


# ------------------------------------------------------------------------------------------------ the law of retries, without Spark


class Scripted:
    """A bridge whose attempts do as they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spark = Spark()
        self.attempts: list[tuple[str, int]] = []
        self.beside = 0
        self.least: dict[tuple[str, int], int] = {}
        self.told: dict[str, list[Any]] = {}
        monkeypatch.setattr(self.spark, "_work", self._work)
        monkeypatch.setattr(bridge_module, "AWAY_S", (0.01, 0.02))

    def _work(self, demand: Any, jobs: Any, watched: Any) -> Any:
        batch = demand.batch
        self.attempts.append((batch.stage, batch.attempt))
        answer = self.told[batch.stage].pop(0)
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def apply(self, stage: str, *told: Any) -> Any:
        self.told[stage] = list(told)
        batch = replace(INFO, stage=stage)
        import pyarrow as pa

        return await self.spark.apply(lambda df, batch: df, pa.table({"n": [1]}), batch, "n long")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    one = Scripted(monkeypatch)
    yield one
    one.spark._threads.close()


async def test_a_lost_batch_runs_again_and_each_run_has_its_number(scripted: Scripted) -> None:
    """So that nothing that one attempt leaves is taken for another's."""
    assert await scripted.apply("a", SparkLost("x"), SparkLost("y"), "done") == "done"
    assert scripted.attempts == [("a", 1), ("a", 2), ("a", 3)]


async def test_one_that_is_always_lost_is_to_blame(scripted: Scripted) -> None:
    """Its rows, if only a process of its own died; the whole batch, if the session did."""
    with pytest.raises(SparkRowError, match=r"was lost 3 times: x\. Remedy: .*spark\.executor\.pyspark\.memory"):
        await scripted.apply("a", *[SparkLost("x")] * 3)
    with pytest.raises(SparkLost, match="was lost 3 times, the last time with no other batch running: x"):
        await scripted.apply("b", *[lost_session("x")] * 3)


async def test_after_two_sessions_a_batch_runs_alone(scripted: Scripted) -> None:
    """The one beside it is not blamed for what the first one does."""
    other_runs, go_on = threading.Event(), threading.Event()

    def long() -> str:
        other_runs.set()
        assert go_on.wait(PATIENCE_S)
        return "other"

    other = asyncio.get_running_loop().create_task(scripted.apply("other", long))
    await asyncio.to_thread(other_runs.wait, PATIENCE_S)
    suspect = asyncio.get_running_loop().create_task(scripted.apply("a", *[lost_session("x")] * 2, "done"))
    while ("a", 2) not in scripted.attempts:  # noqa: ASYNC110 - a thread does it
        await asyncio.sleep(0.01)
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert ("a", 3) not in scripted.attempts
    go_on.set()
    assert await asyncio.gather(other, suspect) == ["other", "done"]


async def test_while_spark_is_away_a_batch_waits(scripted: Scripted) -> None:
    """As long as it is told to; then it says why. What can never be repaired is said at once."""
    assert await scripted.apply("a", *[SparkAway("away")] * 5, "done") == "done"
    scripted.spark.patience_s = 0.1
    with pytest.raises(SparkAway, match="away"):
        await scripted.apply("b", *[SparkAway("away")] * 100)
    with pytest.raises(SparkDown, match="no Java"):
        await scripted.apply("c", SparkDown("no Java"))
