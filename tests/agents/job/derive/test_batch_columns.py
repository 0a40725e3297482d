"""Where the columns of a batch are known, and what is refused where they are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NotRequired, TypedDict

import msgspec
import pyarrow as pa
import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.steps.batches import BatchStep
from headgate.core.errors import DeclarationError


class Order(TypedDict):
    country: str
    amount: float
    ts: NotRequired[int | None]


@dataclasses.dataclass
class Priced:
    country: str
    total: float = 0.0


class Renamed(msgspec.Struct, rename={"total": "sum"}):
    country: str
    total: int | None = None


class Nested(TypedDict):
    country: str
    parts: set[int]


class Alike(TypedDict):
    country: str
    Country: str


class Passing(hg.Actor):
    def on_batch(self, ctx: Any, batch: Any) -> None:
        raise NotImplementedError


def priced(order: Any) -> Priced | None:
    return None


async def fetched(order: Any) -> Renamed:
    raise NotImplementedError


def split(order: Any) -> Iterator[Order]:
    yield order


def renamed(order: Any) -> Renamed:
    raise NotImplementedError


def joined(order: Any, rate: Any) -> Priced:
    raise NotImplementedError


def nested(order: Any) -> Nested:
    raise NotImplementedError


def either(order: Any) -> Priced | Renamed:
    raise NotImplementedError


def unknown(order: Any) -> Missing:  # pyright: ignore[reportUndefinedVariable]  # noqa: F821
    raise NotImplementedError


def untold(order: Any):
    return order


def twos(df: Any, batch: Any) -> Any:
    return df


ORDER = "country: text, amount: float64, ts: int64 | null"
PRICED = "country: text, total: float64"


def made(build: Any, **more: Any) -> str:
    """The columns of the batch that is made of an input."""
    app = hg.App("sales")
    build(app).batch(max_rows=1).spark(twos, schema="a int", **more).to("out")
    (step,) = [one for one in Declared(app).steps if isinstance(one, BatchStep)]
    return str(step.rows)


def typed(app: hg.App, name: str = "orders") -> Any:
    return app.input(name, serde=hg.json(Order))


def with_rates(app: hg.App) -> Any:
    return typed(app).join(app.input("rates").table("rates", broadcast=True), on="country", into=joined)


@pytest.mark.parametrize(
    ("build", "columns"),
    [
        (typed, ORDER),
        (lambda a: typed(a).filter(lambda order: True).rekey(by="country"), ORDER),
        (lambda a: typed(a).filter(hg.col("amount") > 1).repartition("country"), ORDER),
        (lambda a: typed(a).merge(typed(a, "more")), ORDER),
        (lambda a: typed(a).map(priced), PRICED),
        (lambda a: a.input("orders").map(priced).repartition("country"), PRICED),
        (lambda a: a.input("orders").map_async(fetched), "country: text, total: int64 | null"),
        (lambda a: a.input("orders").map(renamed).repartition("country"), "country: text, sum: int64 | null"),
        (lambda a: a.input("orders").map(renamed).gather(), "country: text, sum: int64 | null"),
        (lambda a: a.input("orders").flat_map(split), ORDER),
        (with_rates, PRICED),
        (lambda a: with_rates(a).repartition("country"), PRICED),
        (lambda a: typed(a).repartition("country", serde=hg.json()), ORDER),
        (lambda a: a.input("orders", serde=hg.json(Alike)).columns(Order).filter(hg.col("amount") > 1).rows(), ORDER),
        (
            lambda a: typed(a).repartition("country").agg(n=hg.count(), m=hg.mean("amount"), x=hg.max("ts")).as_events(),
            "n: int64, m: float64 | null, x: int64 | null",
        ),
        (
            lambda a: typed(a).repartition("country").window(hg.tumbling("1m")).agg(total=hg.sum("amount")),
            "total: float64 | null, window_start: int64, window_end: int64, closed_by: text",
        ),
        (
            lambda a: typed(a).batch(max_rows=1).spark(twos, schema="c string, n smallint, r float, b boolean"),
            "c: text | null, n: int64 | null, r: float64 | null, b: bool | null",
        ),
    ],
)  # fmt: skip
def test_columns_are_known_where_something_declares_them(build: Any, columns: str) -> None:
    """An input's type, the annotation of a function, fields of an aggregate, the schema of a stage."""
    app = hg.App("sales")
    build(app).batch(max_rows=1, name="last").spark(twos, schema="a int", name="end").to("out")
    (step,) = [one for one in Declared(app).steps if isinstance(one, BatchStep) and one.name == "last"]
    assert str(step.rows) == columns


@pytest.mark.parametrize("rows", [Priced, pa.schema([("country", pa.string(), False), ("total", pa.float64(), False)])])
def test_rows_declares_what_is_not_known(rows: Any) -> None:
    """A class or Arrow's own schema; also where something else is known, of which only some fields are wanted."""
    assert made(lambda app: app.input("orders"), rows=rows) == PRICED
    assert made(typed, rows=rows) == PRICED


def other_rows(app: hg.App) -> None:
    lots = app.input("orders").batch(max_rows=1)
    lots.spark(twos, rows=Priced, schema="a int", name="one").to("one")
    lots.spark(twos, rows=Order, schema="a int", name="two").to("two")


def batched(build: Any, **more: Any) -> Any:
    return lambda app: build(app).batch(max_rows=1, **more.pop("batch", {})).spark(twos, schema="a int", **more)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (batched(lambda a: a.input("orders")), "the input 'orders' has no type.*rows=Order"),
        (batched(lambda a: typed(a).map(untold)), "untold of map .*is not annotated"),
        (batched(lambda a: typed(a).map(unknown)), "unknown of map .*is not annotated"),
        (batched(lambda a: typed(a).map(either)), "either of map .*returns one of several types"),
        (batched(lambda a: typed(a).map(nested)), r"the field 'parts' of Nested is set\[int\]"),
        (batched(lambda a: typed(a).map(lambda order: {"n": 1})), "a lambda of map"),
        (batched(lambda a: typed(a).map(len)), "len of map"),
        (batched(lambda a: typed(a).merge(a.input("p").map(priced))), "have different fields"),
        (batched(lambda a: typed(a).repartition("country", serde=hg.msgpack())), "carries msgpack"),
        (batched(lambda a: typed(a).repartition("country").agg(x=hg.collect("ts")).as_events()), "the type of 'x' of agg"),
        (batched(lambda a: typed(a).repartition("country").agg(x=hg.max("parts")).as_events()), "no field 'parts'|the type of 'parts'"),
        (batched(lambda a: typed(a).process(Passing)), "passes on whatever its code gives"),
        (
            batched(lambda a: typed(a).batch(max_rows=1, name="first").spark(twos, schema="day date", name="days")),
            "the column 'day' of the result of spark .*is date",
        ),
        (batched(lambda a: a.input("orders", serde=hg.json(Alike))), "'country' and 'Country', which is one name for Spark"),
        (batched(lambda a: a.input("orders"), rows=Nested), r"rows=Nested: the field 'parts'.*leave the field out"),
        (batched(lambda a: a.input("orders"), rows=int), "rows=int: int has no fields"),
        (batched(lambda a: typed(a).columns(), rows=Order), "rows= of a batch that has the columns"),
        (batched(typed, batch={"by": "reference"}, rows=Order), "rows= of a batch that has the columns"),
        (other_rows, "an earlier one declares country: text, total: float64"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_where_it_is_declared(declare: Any, words: str) -> None:
    """With why, and with what to declare."""
    with pytest.raises(DeclarationError, match=f"(?s){words}"):
        declare(hg.App("sales"))
