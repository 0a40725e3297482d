"""Column streams as they are declared: what a verb refuses at its line, and what of it a running job compares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa
import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.derive.plans import parts


class Order(TypedDict):
    user: str
    amount: float
    ts: int
    paid: bool
    country: str | None


@dataclass
class Deep:
    items: set[int]


def orders(**options: Any) -> hg.ColumnStream[Any, Order]:
    return hg.App("job").input("orders", serde=hg.json(Order), **options).columns()


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (lambda: orders().filter(hg.col("amuont") > 1), "no column 'amuont'.*did you mean 'amount'"),
        (lambda: orders().filter(hg.col("amount")), r"filter\(amount\) is float64, not a condition"),
        (lambda: orders().filter(lambda o: o["amount"] > 1), r"is not an expression.*\.rows\(\)"),
        (lambda: orders().with_columns(x=hg.col("user") * 2), r"\* takes numbers, and user is text"),
        (lambda: orders().with_columns(), "at least one column"),
        (lambda: orders().with_columns(x=[1]), r"with_columns\(x=…\) is \[1\], which is neither"),
        (lambda: orders().with_columns(x=1).filter(hg.col("y") > 1), "no column 'y'"),
        (lambda: orders().repartition("usr"), "no column 'usr'.*did you mean 'user'"),
        (lambda: orders().repartition("amount"), "float64 makes no key.*cast"),
        (lambda: orders().repartition(lambda o: o), r"does not name a column.*with_columns\(key=…\)"),
        (lambda: orders().repartition("user", partitions=0), "at least one partition"),
        (lambda: orders().agg(n=hg.sum("usr")), "no column 'usr'"),
        (lambda: orders().agg(n=hg.sum("user")), "needs numbers, and 'user' is text"),
        (lambda: orders().agg(n=hg.mean("paid")), "needs numbers, and 'paid' is bool"),
        (lambda: orders().agg(n=hg.max(lambda o: o["ts"])), "has a function of a value, which needs rows"),
        (lambda: orders().agg(n=hg.aggregate(int, lambda s, _: s)), "has a function of a value"),
        (lambda: orders().to("out", key="usr"), "no column 'usr'"),
        (lambda: orders().to("out", key="paid"), "bool makes no key"),
        (lambda: orders().to("out", serde=hg.json), "is not a serde"),
        (lambda: orders().map(len), r"\.map\(\) needs rows.*\.rows\(\)\.map"),
        (lambda: orders().with_colums(x=1), r"has no \.with_colums\(\).*did you mean 'with_columns'.*\.frame\(…\)"),
        (lambda: orders().cube("user"), r"a stream of columns has no \.cube\(\).*'with_columns'; what they cannot"),
        (lambda: orders().with_column(x=1), r"has no 'with_column', which Spark, pandas have.*\.with_columns\(total="),
        (lambda: orders().rows().frame(len), r"\.frame\(\) needs columns.*\.columns\(\)\.frame\(…\)"),
        (lambda: orders().rows().fitler(len), r"a stream of rows has no \.fitler\(\).*did you mean 'filter'"),
        (lambda: hg.App("job").input("orders").columns(), "does not know the columns"),
        (lambda: hg.App("job").input("orders").map(len).columns(), "does not know the columns"),
        (lambda: hg.App("job").input("orders", serde=hg.json(Deep)).columns(), "field 'items' of Deep is set"),
        (lambda: orders(timestamp=lambda o: o["ts"]), "timestamp= of the input 'orders' is a function"),
        (lambda: orders(key=lambda o: o["user"]), "key= of the input 'orders' is a function"),
        (lambda: orders(key="amount"), "key= of the input 'orders' names the column amount: float64.*makes no key"),
        (lambda: orders(timestamp="tz"), "no field 'tz'.*did you mean 'ts'"),
        (lambda: orders(timestamp="user"), "timestamp=.user.: Order declares it as text"),
        (lambda: orders(timestamp=hg.field("ts", unit="iso")), "timestamp=.ts.: Order declares it as int64"),
        (lambda: hg.App("job").input("orders").filter(hg.col("amount") > 1), r"have no declared type"),
        (lambda: hg.App("job").input("orders").map(hg.col("amount") > 1), r"\.columns\(\)"),  # type: ignore[call-overload]
    ],
)
def test_what_cannot_work_is_refused_at_its_line(declare: Callable[[], Any], told: str) -> None:
    """With what to write instead."""
    with pytest.raises(hg.DeclarationError, match=told):
        declare()


def test_each_verb_knows_its_columns() -> None:
    """A stream is a value: verbs change nothing that was declared before."""
    one = orders()
    two = one.with_columns(total=hg.col("amount") * 2, amount=1)
    assert str(one.schema) == "user: text, amount: float64, ts: int64, paid: bool, country: text | null"
    assert (
        str(two.filter(hg.col("total") > 1).schema) == str(one.schema).replace("float64", "int64") + ", total: float64"
    )
    assert repr(one).startswith("<ColumnStream of job: user: text")
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    assert str(hg.App("job").input("a", serde=hg.json(schema)).columns().schema) == "n: int64"
    assert str(hg.App("job").input("a").columns(schema).schema) == "n: int64"


def test_columns_are_decoded_directly_behind_an_input_of_json() -> None:
    """Otherwise they are made of the rows that the step before gives."""

    def direct(stream: hg.Stream[Any, Any], kind: Any = None) -> bool:
        stream.columns(kind).to("out")
        return next(step.direct for step in stream.app.steps if hasattr(step, "direct"))

    assert direct(hg.App("job").input("a", serde=hg.json(Order)))
    assert direct(hg.App("job").input("a", serde=hg.json(Order)), Order)
    assert direct(hg.App("job").input("a"), Order)
    assert not direct(hg.App("job").input("a", serde=hg.msgpack(Order)))
    assert not direct(hg.App("job").input("a", serde=hg.json(Deep)), Order)
    assert not direct(hg.App("job").input("a").map(dict), Order)


def fingerprint(make: Callable[[hg.ColumnStream[Any, Any]], Any]) -> dict[str, str]:
    app = hg.App("job")
    make(app.input("orders", serde=hg.json(Order)).columns())
    return parts(Declared(app), {})


def test_expressions_stay_out_of_the_fingerprint_unless_they_make_a_key() -> None:
    """As functions do: correcting one is no other job. What decides where a record goes is."""
    one = fingerprint(lambda c: c.filter(hg.col("ts") > 1).with_columns(k=hg.col("ts") // 10).to("out"))
    two = fingerprint(lambda c: c.filter(hg.col("ts") > 2).with_columns(k=hg.col("ts") // 20).to("out"))
    assert one == two

    def keyed(by: int) -> dict[str, str]:
        return fingerprint(
            lambda c: (
                c.with_columns(a=hg.col("ts") + by)
                .with_columns(k=hg.col("a") // 10)
                .repartition("k")
                .agg(n=hg.count())
                .to("o")
            )
        )

    assert keyed(1) == keyed(1)
    assert {part for part, text in keyed(1).items() if keyed(2)[part] != text} == {"stage:by-k"}
    assert "((ts + 1) // 10)" in keyed(1)["stage:by-k"]

    def doubled(steps: int) -> dict[str, str]:
        def make(columns: hg.ColumnStream[Any, Any]) -> Any:
            for _ in range(steps):
                columns = columns.with_columns(ts=hg.col("ts") % 7 + hg.col("ts") % 9)
            return columns.repartition("ts").agg(n=hg.count()).to("o")

        return fingerprint(make)

    long = doubled(40)["stage:by-ts"]  # in full, it would have 2^40 parts
    assert len(long) < 5_000
    assert long == doubled(40)["stage:by-ts"]
    assert long != doubled(41)["stage:by-ts"]
