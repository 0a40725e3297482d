"""Which batches may be by reference; all others are refused, with the remedy."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.steps.batches import BatchStep, ByReference


class Order(TypedDict):
    user: str
    amount: float | None
    ts: int


def same(df: Any, batch: Any) -> Any:
    return df


def out(batches: Any, name: str = "same") -> None:
    batches.spark(same, schema="user string", name=name).to("out")


def found(app: hg.App, **options: Any) -> ByReference | None:
    steps = Declared(app, **options).steps
    return next(step for step in steps if isinstance(step, BatchStep)).reference


COLUMNS = (("user", "text", False), ("amount", "float64", True), ("ts", "int64", False))


def test_an_input_with_declared_columns() -> None:
    app = hg.App("job", on_bad_data="skip")
    out(app.input("orders", serde=hg.json(Order), timestamp="ts").batch(max_rows=9, by="reference"))
    assert found(app) == ByReference(COLUMNS, "ts", "skip", earliest_ms=0, max_future_ms=3_600_000)
    assert found(app, fetches_all=True) is None


def test_its_columns() -> None:
    app = hg.App("job", on_bad_data="skip")
    orders = app.input("orders", timestamp=hg.field("ts", unit="s"), on_bad_data="dead_letter")
    out(orders.columns(Order).batch(max_age="1m", by="reference"))
    assert found(app) == ByReference(
        COLUMNS, hg.field("ts", unit="s"), "dead_letter", earliest_ms=0, max_future_ms=3_600_000
    )


def test_inline_is_the_default() -> None:
    app = hg.App("job")
    out(app.input("orders", serde=hg.json(Order)).batch(max_rows=9))
    assert found(app) is None


@pytest.mark.parametrize(("rows", "referenced"), [(1_000_000, False), (1_000_001, True), (None, False)])
def test_large_batches_by_size(rows: int | None, referenced: bool) -> None:
    app = hg.App("job")
    out(app.input("orders", serde=hg.json(Order)).batch(max_rows=rows, max_age="1m", by="size"))
    assert (found(app) is not None) == referenced


@pytest.mark.parametrize(
    ("declare", "match"),
    [
        (lambda app: app.input("in").batch(max_rows=1, by="hand"), "by='inline', by='reference' or by='size'"),
        (lambda app: app.input("in").batch(max_rows=1, by="reference"), "does not know the columns of 'in'"),
        (
            lambda app: app.input("in", serde=hg.json(Order)).batch(max_bytes=1, by="reference"),
            "does not know their size",
        ),
        (
            lambda app: app.input("in", serde=hg.json(Order)).map(dict).batch(max_rows=1, by="reference"),
            "behind map: executors read",
        ),
        (
            lambda app: (
                app.input("in", serde=hg.json(Order))
                .columns()
                .filter(hg.col("ts") > 1)
                .batch(max_rows=1, by="reference")
            ),
            "behind filter",
        ),
        (
            lambda app: app.input("in", serde=hg.json(Order)).repartition("user").batch(max_rows=1, by="reference"),
            "behind repartition",
        ),
        (
            lambda app: app.input("in", serde=hg.json(Order), producers=["other"]).batch(max_rows=1, by="reference"),
            "its retention does not wait",
        ),
        (
            lambda app: app.input("in", serde=hg.json(Order), timestamp=len).batch(max_rows=1, by="reference"),
            "is a function of a value",
        ),
        (
            lambda app: app.input("in", serde=hg.json(Order), timestamp="user").batch(max_rows=1, by="reference"),
            "declares it as text",
        ),
        (
            lambda app: app.input("in", serde=hg.json(Order), on_bad_data=lambda r, e: "skip").batch(
                max_rows=1, by="reference"
            ),
            "is a function, which executors cannot call",
        ),
    ],
)
def test_what_cannot_be_by_reference_is_refused(declare: Any, match: str) -> None:
    with pytest.raises(hg.DeclarationError, match=match):
        declare(hg.App("job"))


def test_columns_behind_a_repartition() -> None:
    """The frames of the intermediate stream, whatever happened before it."""
    app = hg.App("job")
    columns = app.input("orders", serde=hg.json(Order)).columns().filter(hg.col("ts") > 1)
    out(columns.with_columns(big=hg.col("amount") > 9).repartition("user").batch(max_rows=9, by="reference"))
    assert found(app) == ByReference((*COLUMNS, ("big", "bool", True)), None, "fail", framed=True)
    assert found(app, fetches_all=True) is None


def test_a_repartition_whose_frames_executors_read_has_no_other_reader() -> None:
    """A row that another step leaves out would be missing in a batch that reads frames."""
    app = hg.App("job", on_bad_data="dead_letter")
    columns = app.input("orders", serde=hg.json(Order)).columns().repartition("user")
    out(columns.batch(max_rows=9, by="reference"))
    out(columns.batch(max_rows=9, by="reference", name="more"), "other")
    assert found(app) == ByReference(COLUMNS, None, "skip", framed=True)
    columns.to("copy")
    with pytest.raises(hg.DeclarationError, match=r"read the records of 'by-user', but to \(.*\) reads it, too"):
        Declared(app)


def test_an_input_that_is_not_fetched_has_no_other_reader() -> None:
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(Order))
    out(orders.batch(max_rows=9, by="reference"))
    out(orders.columns().batch(max_rows=9, by="reference", name="more"), "other")
    assert found(app) is not None
    orders.to("copy")
    with pytest.raises(hg.DeclarationError, match=r"read the records of 'orders', but to \(.*\) reads it, too"):
        Declared(app)


def test_an_input_that_is_read_first_is_fetched() -> None:
    app = hg.App("job")
    out(app.input("orders", serde=hg.json(Order), bootstrap=True).batch(max_rows=9, by="reference"))
    with pytest.raises(hg.DeclarationError, match="has bootstrap=True"):
        Declared(app)
