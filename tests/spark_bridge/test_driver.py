"""The test driver with a session of the test's own: stages of Spark run for real, in virtual time, without Kafka."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing import Driver

pytestmark = [pytest.mark.spark]
SCHEMA = "batch string, country string, n long, total long"


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
    app.input("orders").batch(name="lot", **bounds).spark(totals, schema=SCHEMA).to("totals", key="country")
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
    app.input("orders").batch(max_rows=4).spark(fussy, schema="n long").to("out")
    with Driver(app, spark=session) as d:
        d.send_all("orders", orders(0, 4))
        assert sorted(record.value["n"] for record in d.read("out")) == [0, 1, 3]
        (letter,) = d.dead_letters()
        assert "two" in letter.exception
        assert (letter.step, letter.value) == ("spark-fussy", b'{"country":"DE","n":2}')


def test_a_wrong_plan_is_told_to_the_test(session: Any) -> None:
    """With the words of Spark."""
    app = hg.App("sales")
    app.input("orders").batch(max_rows=2).spark(
        lambda df, batch: df.select("nothing"), schema="nothing string", name="wrong"
    ).to("out")
    with Driver(app, spark=session) as d:
        with pytest.raises(hg.HeadgateError, match="nothing"):
            d.send_all("orders", orders(0, 2))
        assert d.states == {"Partition 0": "failed"}
