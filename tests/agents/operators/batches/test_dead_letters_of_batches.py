"""A row that Spark has left out is a dead letter that says which record it was. What stands for Spark leaves rows out at once."""

from __future__ import annotations

from typing import Any, TypedDict

import orjson
import pytest

import headgate as hg
from headgate.agents.testing import driver
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import BatchFrame, decode

from ...without_spark import Rows, WithoutSpark


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark fails on every tenth order."""
    bridge = WithoutSpark()
    bridge.poison = lambda row: row["n"] % 10 == 7
    monkeypatch.setattr(driver, "_spark", lambda declared, session: bridge)


class Order(TypedDict):
    country: str
    n: int


class Number(TypedDict):
    n: int


def same(rows: Rows, batch: Any) -> Rows:
    return rows


def orders(first: int, behind: int) -> list[dict[str, Any]]:
    return [{"country": ("DE", "FR")[n % 2], "n": n} for n in range(first, behind)]


def places(driver: Driver) -> list[tuple[int, str, int, int]]:
    """Of each dead letter: which order, and where it says that it came from."""
    return sorted(
        (orjson.loads(one.value or b"")["n"], one.topic, one.partition, one.offset) for one in driver.dead_letters()
    )


def test_it_says_which_record_it_was() -> None:
    """Behind steps that leave out, multiply and change rows, in a batch of many chunks and two lives; otherwise nobody finds the record."""
    app = hg.App("sales", on_error="dead_letter")
    kept = app.input("orders").filter(lambda order: order["n"] % 3 > 0)
    made = kept.flat_map(lambda order: [order, {"n": order["n"] + 1000}]).map(lambda order: {"n": order["n"]})
    made.rekey(by="n").batch(max_rows=24, name="lot").spark(same, rows=Number, schema="n long").to("out")
    with Driver(app, partitions={"orders": 2}) as d:
        d.send_all("orders", [{"n": 0}] * 5, partition=1)
        d.send_all("orders", orders(0, 6), partition=1)
        for order in orders(6, 12):
            d.send("orders", order, partition=1)
        d.restart()
        d.send_all("orders", orders(12, 18), partition=1)
        assert places(d) == [(n, "orders", 1, 5 + n % 1000) for n in (7, 17, 1007, 1017)]


def test_behind_a_shuffle_it_says_which_frame_it_was_in() -> None:
    """It is a record of the intermediate stream that this step has read."""
    app = hg.App("sales", on_error="dead_letter")
    spread = app.input("orders").repartition(by="country", partitions=2, name="spread")
    spread.batch(max_age="1m").spark(same, rows=Order, schema="n long").to("out")
    with Driver(app) as d:
        for first in (0, 10, 20):
            d.send_all("orders", orders(first, first + 10))
        d.drain()
        found = places(d)
        assert [(n, topic) for n, topic, _, _ in found] == [(n, "sales-1-spread") for n in (7, 17, 27)]
        for n, topic, partition, offset in found:
            records = d.topics.records(StreamPartition(topic, partition))
            frame = decode(next(one.value for one in records if one.offset == offset) or b"")
            assert isinstance(frame, BatchFrame)
            assert n in [orjson.loads(value)["n"] for value in frame.values]


class Again(hg.Actor):
    """Makes rows of the records of a chunk, and one at the end."""

    async def on_batch(self, ctx: Any, batch: Any) -> None:
        for value in batch.values:
            ctx.forward({"n": value["n"]})

    async def on_drain(self, ctx: Any) -> None:
        ctx.forward({"n": 107})


def test_of_a_row_that_a_step_has_made_it_says_of_which_records() -> None:
    """The first one of the chunk; a row that was made at the end, of nothing that was read, names the input alone."""
    app = hg.App("sales", on_error="dead_letter")
    lot = app.input("orders").process(Again).batch(max_rows=40, name="lot")
    lot.spark(same, rows=Number, schema="n long").to("out")
    with Driver(app) as d:
        d.send_all("orders", orders(0, 5))
        d.send_all("orders", orders(5, 10))
        d.drain()
        assert places(d) == [(7, "orders", 0, 5), (107, "orders", -1, -1)]
