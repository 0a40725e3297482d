"""`.branch(…)`: each record goes to the first stream whose condition holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import headgate as hg


class Order(msgspec.Struct, gc=False):
    """An order, of which the amount may be missing."""

    amount: int | None


ORDERS = [{"amount": 5}, {"amount": 100}, {"amount": 50}, {"amount": None}]


def read(app: hg.App, *topics: str) -> list[list[Any]]:
    """The amounts that came into each topic."""
    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", ORDERS)
        return [[one.value["amount"] for one in driver.read(topic)] for topic in topics]


def test_a_record_goes_to_the_first_stream_whose_condition_holds() -> None:
    """Whoever knows Kafka Streams expects this, and not a record in two streams, because two conditions hold."""
    app = hg.App("shop")
    orders = app.input("orders", on_error="skip")
    large, middle, none = orders.branch(
        lambda order: (order["amount"] or 0) >= 100, lambda order: (order["amount"] or 0) >= 10, lambda order: order["amount"] is None
    )  # fmt: skip
    large.to("large")
    middle.to("middle")
    none.to("none")
    assert read(app, "large", "middle", "none") == [[100], [50], [None]]


def test_a_condition_may_ask_for_the_record() -> None:
    """By key, by header: as in a filter."""
    app = hg.App("shop")
    german, others = app.input("orders").branch(lambda one: one.key == "DE", lambda one: True, with_record=True)
    german.to("german")
    others.to("others")
    with hg.testing.Driver(app) as driver:
        driver.send("orders", 1, key="DE")
        driver.send("orders", 2, key="FR")
        assert [[one.value for one in driver.read(topic)] for topic in ("german", "others")] == [[1], [2]]


@pytest.mark.parametrize("columns", [False, True])
def test_expressions_branch_too_and_null_is_not_true(columns: bool) -> None:
    """A null amount is not large: it goes to whoever takes it."""
    app = hg.App("shop")
    orders: Any = app.input("orders", serde=hg.json(Order))
    orders = orders.columns() if columns else orders
    amount = hg.col("amount")
    large, middle, none = orders.branch(amount >= 100, amount >= 10, amount.is_null())
    large.to("large")
    middle.to("middle")
    none.to("none")
    assert read(app, "large", "middle", "none") == [[100], [50], [None]]


def test_conditions_that_cannot_ask_each_other_are_refused() -> None:
    """At the line of the user, as all declarations."""
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(Order))
    with pytest.raises(hg.DeclarationError, match="without a condition"):
        orders.branch()
    with pytest.raises(hg.DeclarationError, match="expressions and functions"):
        orders.branch(hg.col("amount") > 1, lambda order: True)
    with pytest.raises(hg.DeclarationError, match="needs expressions"):
        orders.columns().branch(lambda order: True)

    async def waits(order: Order) -> bool:
        return bool(order)

    with pytest.raises(hg.DeclarationError, match=r"branch\(\).*async function"):
        orders.branch(lambda order: True, waits)
