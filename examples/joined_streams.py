"""Which orders were paid in time: each order is joined with its payment within ten minutes, and one without a payment comes out alone.

    headgate kafka up
    headgate run joined_streams:app --app-dir examples

The job reads the topics `orders` and `payments`, and writes `paid`; orders and payments that are late go to `too-late`. `headgate status
shop` shows how many records wait for partners, and `headgate tables shop paid-in-time` which ones.
"""

from __future__ import annotations

import msgspec

import headgate as hg


class Order(msgspec.Struct, gc=False):
    """What the job needs of an order; other fields are skipped."""

    id: str
    amount: float
    ts: int


class Payment(msgspec.Struct, gc=False):
    """A payment of an order."""

    order: str
    amount: float
    ts: int


class Paid(msgspec.Struct, gc=False):
    """An order, and whether it was paid."""

    order: str
    amount: float
    paid: float | None


app = hg.App("shop")

orders = app.input("orders", serde=hg.json(Order), timestamp="ts", max_out_of_order="5s", start="oldest")
payments = app.input("payments", serde=hg.json(Payment), timestamp="ts", max_out_of_order="5s", start="oldest")


def paid(order: Order, payment: Payment | None) -> Paid:
    """An order with its payment; None if there was none in time."""
    return Paid(order.id, order.amount, None if payment is None else payment.amount)


(
    orders.repartition("id", name="orders-by-id")
    .join(
        payments.repartition("order", name="payments-by-order"),
        on=("id", "order"),
        within=("0s", "10m"),  # a payment is not older than its order, and at most ten minutes younger
        how="left",
        into=paid,
        late="too-late",
        name="paid-in-time",
    )
    .to("paid")
)
