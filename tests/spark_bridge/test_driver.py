"""The test driver with a session of the test's own: stages of Spark run for real, in virtual time, without Kafka."""

from __future__ import annotations

from typing import Any, TypedDict

import orjson
import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition

pytestmark = [pytest.mark.spark]
SCHEMA = "batch string, country string, n long, total long"


class Order(TypedDict):
    country: str
    n: int


@pytest.fixture
def session(warm: Any) -> Any:
    """As a user's own fixture would make it."""
    return warm.get()


def totals(df: Any, batch: Any) -> Any:
    """Rows and their sum by country, and why the batch was closed."""
    from pyspark.sql import functions as F

    found = df.groupBy("country").agg(F.count("*").alias("n"), F.sum("n").alias("total")).orderBy("country")
    return found.select(F.lit(f"{batch.id} {batch.closed_by}").alias("batch"), "country", "n", "total")


def orders(first: int, behind: int) -> list[dict[str, Any]]:
    return [{"country": ("DE", "FR")[n % 2], "n": n} for n in range(first, behind)]


def job(**bounds: Any) -> hg.App:
    app = hg.App("sales")
    app.input("orders").batch(name="lot", **bounds).spark(totals, rows=Order, schema=SCHEMA).to("totals", key="country")
    return app


def rows(driver: Driver) -> list[tuple[Any, ...]]:
    found = [(record.key, record.value) for record in driver.read("totals")]
    assert all(key == value["country"] for key, value in found)
    return [(v["batch"].removeprefix("Partition 0/"), v["country"], v["n"], v["total"]) for _, v in found]


def test_batches_are_closed_by_rows_age_and_drain_and_come_back_in_order(session: Any) -> None:
    """Every call returns when Spark has answered and its result is committed."""
    with Driver(job(max_rows=4, max_age="1m"), spark=session) as d:
        d.send_all("orders", orders(0, 9))
        assert rows(d) == [
            ("lot/1 rows", "DE", 2, 2),
            ("lot/1 rows", "FR", 2, 4),
            ("lot/2 rows", "DE", 2, 10),
            ("lot/2 rows", "FR", 2, 12),
        ]
        d.advance("59s")
        assert rows(d) == []
        d.advance("2s")
        assert rows(d) == [("lot/3 age", "DE", 1, 8)]
        d.send_all("orders", orders(9, 10))
        d.restart()
        d.drain()
        assert rows(d) == [("lot/4 drain", "FR", 1, 9)]


def test_a_function_finds_what_the_test_has_put_into_its_session(session: Any) -> None:
    """Settings and views; what the function itself puts there, the test does not find."""

    def rated(df: Any, batch: Any) -> Any:
        own = df.sparkSession
        df.createOrReplaceTempView("orders")
        own.conf.set("spark.sql.shuffle.partitions", "5")
        return own.sql("SELECT country, n * rate AS n FROM orders JOIN rates USING (country)")

    mine = session.newSession()
    mine.createDataFrame([("DE", 10), ("FR", 100)], "country string, rate long").createOrReplaceTempView("rates")
    mine.conf.set("spark.sql.shuffle.partitions", "3")
    app = hg.App("sales")
    app.input("orders").batch(max_rows=4).spark(rated, rows=Order, schema="country string, n long").to("out")
    with Driver(app, spark=mine) as d:
        d.send_all("orders", orders(0, 4))
        assert sorted(record.value["n"] for record in d.read("out")) == [0, 20, 100, 300]
    assert mine.conf.get("spark.sql.shuffle.partitions") == "3"
    assert [one.name for one in mine.catalog.listTables()] == ["rates"]


def test_a_row_that_makes_spark_fail_becomes_a_dead_letter(session: Any) -> None:
    """The others of its batch go through."""

    def fussy(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        def check(n: int) -> int:
            if n == 2:
                raise ValueError("two")
            return n

        return df.select(F.udf(check, "long")("n").alias("n"))

    app = hg.App("sales", on_error="dead_letter")
    app.input("orders").batch(max_rows=4).spark(fussy, rows=Order, schema="n long").to("out")
    with Driver(app, spark=session) as d:
        for n, order in enumerate(orders(0, 4)):
            d.send("orders", order, at=1000 * (n + 1))
        assert sorted(record.value["n"] for record in d.read("out")) == [0, 1, 3]
        (letter,) = d.dead_letters()
        (raw,) = d.topics.records(StreamPartition("sales-1-dead-letters", 0))
        assert dict(raw.headers)["hg-timestamp"] == b"3000"  # its own, and not the last one of its batch
        assert "two" in letter.exception
        assert (letter.step, letter.value) == ("spark-fussy", b'{"country":"DE","n":2}')


def test_a_wrong_plan_is_told_to_the_test(session: Any) -> None:
    """With the words of Spark."""
    app = hg.App("sales")
    app.input("orders").batch(max_rows=2).spark(
        lambda df, batch: df.select("nothing"), rows=Order, schema="nothing string", name="wrong"
    ).to("out")
    with Driver(app, spark=session) as d:
        with pytest.raises(hg.HeadgateError, match="nothing"):
            d.send_all("orders", orders(0, 2))
        assert d.states == {"Partition 0": "failed"}


class Hears(hg.Actor):
    """Says in which order results and times come."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        for record in batch:
            ctx.emit("order", ["row", record.timestamp])

    def on_watermark(self, ctx: Any, timestamp: int) -> None:
        ctx.emit("order", ["heard", timestamp])


def test_a_result_is_as_old_as_its_batch_and_the_time_behind_it_waits_for_it(session: Any) -> None:
    """It was moved forward to the time that had passed meanwhile: a window behind it would have counted it in the wrong place."""
    app = hg.App("sales")
    counted = app.input("orders", serde=hg.json(Order), timestamp="n", earliest=None).filter(
        lambda order: order["country"] != ""
    )
    counted.batch(name="lot", max_rows=2).spark(totals, schema=SCHEMA).process(Hears)
    with Driver(app, spark=session) as d:
        d.advance("1h")
        d.send("orders", {"country": "DE", "n": -9_000})
        d.send("orders", {"country": "DE", "n": -5_000})
        d.send("orders", {"country": "FR", "n": 3_000})
        d.send("orders", {"country": "", "n": 9_000})
        d.advance("1s")
        assert [record.value for record in d.read("order")][-2:] == [["row", -5_000], ["heard", 3_000]]
        d.restart()
        d.send("orders", {"country": "", "n": 10_000})
        d.advance("1s")
        assert d.read("order") == []
        d.send("orders", {"country": "FR", "n": 7_000})
        d.advance("1s")
        assert [record.value for record in d.read("order")] == [["heard", 7_000], ["row", 7_000], ["heard", 10_000]]


def in_all(df: Any, batch: Any) -> Any:
    """How many rows all results of a window count together."""
    from pyspark.sql import functions as F

    return df.groupBy("window_start").agg(F.sum("n").alias("n"))


def test_results_of_windows_go_to_spark_and_what_comes_back_into_windows(session: Any) -> None:
    """Each once and in its own time: the window behind Spark waits for what Spark still owes, also over a restart."""
    app = hg.App("sales")
    tens = (
        app.input("orders", serde=hg.json(Order), timestamp="n")
        .repartition("country")
        .window(hg.tumbling("10s"))
        .agg(n=hg.count())
    )
    back = tens.batch(name="lot", max_rows=3, max_age="1m").spark(in_all, schema="window_start long, n long")
    halves = back.repartition(lambda row: "all", name="all").window(hg.tumbling("30s"))
    halves.agg(n=hg.sum("n"), parts=hg.count()).to("halves")

    def found() -> list[tuple[int, int, int, str]]:
        values = [one.value for one in d.read("halves")]
        return [(one["window_start"], one["n"], one["parts"], one["closed_by"]) for one in values]

    with Driver(app, spark=session) as d:
        times = (1_000, 2_000, 12_000, 13_000, 14_000, 45_000)
        d.send_all("orders", [{"country": ("DE", "FR")[n % 2], "n": ts} for n, ts in enumerate(times)])
        d.advance("1s")
        assert found() == []  # four results, and three are a batch: the fourth one waits
        d.restart()
        d.advance("1m")
        assert found() == [(0, 5, 3, "watermark")]
        d.drain()
        assert found() == [(30_000, 1, 1, "drain")]


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_columns_form_the_same_batches_as_rows(session: Any, columns: bool) -> None:
    """Filtered, extended, with an undeclared field and null values between; bad data and a poisoned row name their records."""

    def fussy(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        def check(n: int) -> int:
            if n == 14:
                raise ValueError("fourteen")
            return n

        return totals(df.select("country", F.udf(check, "long")("n").alias("n")), batch)

    app = hg.App("sales", on_bad_data="dead_letter", on_error="dead_letter")
    given = app.input("orders", serde=hg.json(Order))
    if columns:
        batches = (
            given.columns().filter(hg.col("n") != 3).with_columns(n=hg.col("n") + 10).batch(max_rows=4, name="lot")
        )
    else:
        kept = given.filter(lambda o: o is not None and o["n"] != 3)
        batches = kept.map(lambda o: {"country": o["country"], "n": o["n"] + 10}).batch(max_rows=4, name="lot")
    batches.spark(fussy, rows=None if columns else Order, schema=SCHEMA).to("totals", key="country")
    with Driver(app, spark=session) as d:
        d.send_all("orders", [*orders(0, 3), {"country": "DE"}, None, *({**o, "x": [1]} for o in orders(3, 7))])
        d.drain()
        assert rows(d) == [
            ("lot/1 rows", "DE", 2, 22),
            ("lot/1 rows", "FR", 1, 11),
            ("lot/2 drain", "DE", 1, 16),
            ("lot/2 drain", "FR", 1, 15),
        ]
        assert [(one.offset, orjson.loads(one.value or b"")) for one in d.dead_letters()] == [
            (3, {"country": "DE"}),
            (6, {"country": "DE", "n": 14}),
        ]


def test_windows_of_all_tasks_go_to_spark_and_their_results_into_windows_of_a_second_stage(session: Any) -> None:
    """A test of a job with several stages needs no Kafka; the facts of a batch are those that a worker would give."""

    def by_country(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        assert (batch.task, batch.attempt, batch.window_end - batch.window_start) == ("Partition 1", 1, 1_000)
        return df.groupBy("country").agg(F.count("*").alias("n")).withColumn("start", F.lit(batch.window_start))

    app = hg.App("sales")
    gathered = app.input("orders", serde=hg.json(Order), timestamp="n").columns().gather(name="all")
    counts = gathered.window(hg.tumbling("1s"), name="seconds").spark(
        by_country, schema="country string, n long, start long"
    )
    again = counts.repartition("country", partitions=2).window(hg.tumbling("3s"), name="threes")
    again.spark(
        lambda df, batch: df.groupBy("country").sum("n").withColumnRenamed("sum(n)", "n"),
        schema="country string, n long",
        name="sums",
    ).to("sums", key="country")
    with Driver(app, partitions={"orders": 2}, spark=session) as d:
        for partition in (0, 1):
            d.send_all(
                "orders", [{"country": ("DE", "FR")[n % 2], "n": 250 * n} for n in range(16)], partition=partition
            )
        d.advance("1s")
        found = {record.key: record.value["n"] for record in d.read("sums")}
        assert found == {"DE": 12, "FR": 12}
        d.drain()
        assert sorted(record.value["n"] for record in d.read("sums")) == [4, 4]
