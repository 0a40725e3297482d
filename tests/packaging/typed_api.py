"""What a type checker infers of a declared job. Checked by pyright; it is never run."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec

import headgate as hg
from headgate import Batch, Batches, Context, Record, Stream, Table, TableView


@dataclass
class Order:
    country: str
    currency: str
    amount: float


class Rate(TypedDict):
    currency: str
    rate: float


class Priced(msgspec.Struct):
    country: str
    total: float


app = hg.App("sales", "1", serde=hg.json(), key_serde=hg.text(), on_error="dead_letter")

# inputs: from their serdes
orders = app.input(
    "orders", serde=hg.json(Order), key_serde=hg.text(), timestamp="ts", max_out_of_order="5s", start="oldest"
)
assert_type(orders, Stream[str, Order])
rates = app.input("rates", serde=hg.json(Rate), key="currency").table("rates", broadcast=True)
assert_type(rates, TableView[Any, Rate])
assert_type(app.input("plain"), Stream[Any, Any])
assert_type(app.input("keys", key_serde=hg.raw()), Stream[bytes, Any])
assert_type(app.input("priced", serde=hg.msgpack(Priced)), Stream[Any, Priced])
app.input("wrong", until="newest", on_lost="oldest", priority=1)
app.input("wrong-2", start=b"latest")  # pyright: ignore[reportArgumentType]
app.input("wrong-3", partition=3)  # pyright: ignore[reportCallIssue]

# values
assert_type(orders.filter(lambda order: order.amount > 0), Stream[str, Order])
assert_type(orders.filter(hg.col("amount") > 0), Stream[str, Order])
orders.filter(hg.col("amount") > 0, with_record=True)  # pyright: ignore[reportArgumentType, reportCallIssue]
orders.filter("amount > 0")  # pyright: ignore[reportArgumentType, reportCallIssue]
assert_type(orders.map(lambda order: order.amount), Stream[str, float])
assert_type(orders.flat_map(lambda order: [order.country, order.currency]), Stream[str, str])
orders.map(lambda order: order.price)  # pyright: ignore[reportAttributeAccessIssue]


def keyed(record: Record[str, Order]) -> Record[int, float]:
    return Record(len(record.key), record.value.amount, record.timestamp)


assert_type(orders.map(keyed, with_record=True), Stream[int, float])
assert_type(orders.map(lambda record: record.timestamp, with_record=True), Stream[str, int])
assert_type(orders.filter(lambda record: record.key != "", with_record=True), Stream[str, Order])


async def looked_up(order: Order) -> Priced:
    return Priced(order.country, order.amount)


assert_type(orders.map_async(looked_up, concurrency=4), Stream[str, Priced])
orders.map_async(lambda order: order.amount)  # pyright: ignore[reportArgumentType]


async def rate_of(currency: str) -> float:
    return float(len(currency))


async def rates_of(currencies: list[str]) -> list[float]:
    return [float(len(one)) for one in currencies]


def at_rate(order: Order, rate: float) -> Priced:
    return Priced(order.country, order.amount * rate)


assert_type(orders.lookup(rate_of, on="currency", cache="5m", into=at_rate), Stream[str, Priced])
assert_type(orders.lookup(rates_of, on="currency", batch=50, rate="10/s", into=at_rate), Stream[str, Priced])
assert_type(orders.lookup(rate_of, on="currency"), Stream[str, float])
assert_type(orders.lookup(rates_of, on="currency", batch=50), Stream[str, float])
orders.lookup(rate_of, on="currency", into=lambda order, rate: order.price)  # pyright: ignore[reportAttributeAccessIssue]


# columns
in_columns = app.input("rated", serde=hg.json(Rate)).columns()
assert_type(in_columns, hg.ColumnStream[Any, Rate])
assert_type(in_columns.filter((hg.col("rate") >= 1.5) & ~hg.col("currency").is_in(["EUR"])).rows(), Stream[Any, Rate])
assert_type(in_columns.with_columns(twice=hg.col("rate") * 2).rows(), Stream[Any, dict[str, Any]])
assert_type(hg.col("rate") == 1, hg.Expression)
assert_type(in_columns.frame(lambda frame: frame, like="pyarrow", schema=Order), hg.ColumnStream[Any, Order])
if hg.col("amount") > 1 and hg.col("amount") < 2:  # pyright: ignore[reportGeneralTypeIssues]
    raise AssertionError
in_columns.frame(lambda frame: frame, like="polras", schema=Order)  # pyright: ignore[reportArgumentType, reportCallIssue]
assert_type(orders.columns(), hg.ColumnStream[str, Order])
assert_type(orders.map(keyed, with_record=True).columns(Order), hg.ColumnStream[int, Order])
assert_type(in_columns.repartition("currency").agg(n=hg.count()), Stream[Any, dict[str, Any]])


def take_over(batch: hg.ColumnBatch) -> None:
    assert_type(batch["rate"].values(), list[Any])


in_columns.sink(take_over)
in_columns.filter(lambda rate: rate["rate"] > 1)  # pyright: ignore[reportArgumentType]
in_columns.with_columns(x=[1])  # pyright: ignore[reportArgumentType]
in_columns.map(str)  # pyright: ignore[reportAttributeAccessIssue]
hg.col("rate").cast(list)  # pyright: ignore[reportArgumentType]


# joins
def priced(order: Order, rate: Rate) -> Priced:
    return Priced(order.country, order.amount * rate["rate"])


def maybe_priced(order: Order, rate: Rate | None) -> Priced | None:
    return None if rate is None else priced(order, rate)


totals = orders.join(rates, on="currency", into=priced)
assert_type(totals, Stream[str, Priced])
assert_type(orders.join(rates, on="currency", into=maybe_priced, how="left"), Stream[str, Priced | None])
orders.join(rates, on="currency", into=priced, how="left")  # pyright: ignore[reportArgumentType, reportCallIssue]

# keys
assert_type(totals.repartition("country"), Stream[Any, Priced])
assert_type(totals.repartition("country", key_serde=hg.text()), Stream[str, Priced])
assert_type(totals.repartition(lambda one: round(one.total), name="total"), Stream[int, Priced])
assert_type(totals.repartition(name="own"), Stream[str, Priced])
assert_type(totals.rekey(lambda one: one.country), Stream[str, Priced])
assert_type(totals.broadcast("everywhere"), Stream[str, Priced])
assert_type(totals.merge(totals.filter(bool)), Stream[str, Priced])
assert_type(
    totals.repartition("country", key_serde=hg.text(), name="land").agg(n=hg.count(), total=hg.sum("total")),
    Stream[str, dict[str, Any]],
)
totals.agg(n=3)  # pyright: ignore[reportArgumentType]

# tables
counts = app.table("counts", key=hg.text(), value=hg.json(Priced), ttl="1d")
assert_type(counts, Table[str, Priced])
assert_type(counts["DE"], Priced)
assert_type(counts.get("DE"), Priced | None)
assert_type(counts.get("DE", 0), Priced | int)
assert_type(counts.get_many(["DE"]), list[Priced | None])
counts["DE"] = 3  # pyright: ignore[reportArgumentType]
numbered = app.table("numbered", key=hg.key(int), value=hg.json(Priced))
assert_type(numbered[7], Priced)
numbered["7"]  # pyright: ignore[reportArgumentType]
placed = app.input("placed", key_serde=hg.key(tuple[str, int]))
assert_type(placed, Stream[tuple[str, int], Any])
assert_type(placed.repartition(name="placed"), Stream[tuple[str, int], Any])
assert_type(totals.repartition("land", name="by-own", key_serde=hg.key(uuid.UUID)), Stream[uuid.UUID, Priced])
assert_type(app.table("any", key=hg.key()), Table[Any, Any])

# ends
totals.to("totals", key="country", partition=lambda record: hash(record.key) % 2)
totals.to("totals").map(str)  # pyright: ignore[reportAttributeAccessIssue]


def write(batch: Batch[str, Priced]) -> None:
    assert_type(batch.values, list[Priced])
    for record in batch:
        assert_type(record, Record[str, Priced])


totals.sink(write)


@app.agent(totals, sink="alerts")
async def alert(batches: Batches[str, Priced]) -> AsyncIterator[list[Record[str, Priced]]]:
    async for batch in batches:
        assert_type(batch, Batch[str, Priced])
        yield [record for record in batch if record.value.total > 10_000]


@app.actor(totals, app.input("more"))
class Totals(hg.Actor):
    def on_batch(self, ctx: Context, batch: Batch[Any, Any]) -> None:
        ctx.emit("out", len(batch), key=batch.stream)
        ctx.timer("flush", after="5s")
        assert_type(ctx.watermark, int | None)

    async def on_drain(self, ctx: Context) -> None:
        ctx.commit()


paid_lately = orders.window(hg.sliding("10m", grace="1s"), late="late").agg(n=hg.count(), own=hg.last("id"))
assert_type(paid_lately, Stream[str, dict[str, Any]])
in_minutes = orders.window(hg.tumbling("1m")).process(Totals, name="totals-of-minutes")
assert_type(in_minutes, Stream[str, Any])

with hg.testing.Driver(app, partitions={"orders": 4}) as driver:
    driver.send("orders", Order("DE", "EUR", 3.0), key="a", at=5, headers={"h": b"1"})
    assert_type(driver.read("totals"), list[Record[Any, Any]])
    assert_type(driver.metadata.all("config"), dict[str, Any])
    assert_type(driver.metadata.get("config", "commit.interval"), Any | None)


def over(job: str) -> None:
    metadata = hg.metadata(job, timeout="1m")
    metadata.put("requests", "over", {"verb": "drain"})
    metadata.remove("config")  # pyright: ignore[reportCallIssue]
