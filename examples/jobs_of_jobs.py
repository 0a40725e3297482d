"""Two jobs around one stream: `pricing` prices orders and shares them, `revenue` sums them up by country and minute.

    headgate kafka up
    headgate run jobs_of_jobs:pricing --app-dir examples
    headgate run jobs_of_jobs:revenue --app-dir examples        # in another terminal, before or after

They read the topics `orders` and `rates` and write `revenue`, with the results, watermarks and end that one job would give. Each is
deployed, stopped and drained on its own: `headgate drain pricing` closes no window of `revenue`; with `--cascade` it drains both.
"""

from __future__ import annotations

import msgspec

import headgate as hg


class Order(msgspec.Struct, gc=False):
    """What `pricing` needs of an order; other fields are skipped."""

    country: str
    currency: str
    amount: float
    ts: int


class Rate(msgspec.Struct, gc=False):
    """How many euros one unit of a currency is worth."""

    currency: str
    rate: float


class Priced(msgspec.Struct, gc=False):
    """What both jobs know of the shared stream: an order's country, and its total in euros."""

    country: str
    total: float


def priced(order: Order, rate: Rate) -> Priced:
    """The total of an order in euros."""
    return Priced(order.country, order.amount * rate.rate)


pricing = hg.App("pricing")
orders = pricing.input("orders", serde=hg.json(Order), timestamp="ts", max_out_of_order="5s", start="oldest")
rates = pricing.input("rates", serde=hg.json(Rate), key="currency").table("rates", broadcast=True)
orders.join(rates, on="currency", into=priced).share("priced", key="country", partitions=2, retention="3d")

revenue = hg.App("revenue")
totals = revenue.input("priced", serde=hg.json(Priced), producers=["pricing"], start="oldest")
totals.window(hg.tumbling("1m")).agg(revenue=hg.sum("total"), orders=hg.count()).to("revenue")
