"""Two jobs around one stream: `pricing` prices orders and shares them, `revenue` sums them up by country and minute.

    headgate kafka up
    headgate run jobs_of_jobs:pricing --app-dir examples
    headgate run jobs_of_jobs:revenue --app-dir examples        # in another terminal, before or after

They read the topics `orders` and `rates` and write `revenue`, with the results, watermarks and end that one job would give. Each is
deployed, stopped and drained on its own: `headgate drain pricing` closes no window of `revenue`; with `--cascade` it drains both.
"""

from __future__ import annotations

from typing import Any

import headgate as hg

Row = dict[str, Any]


def priced(order: Row, rate: Row) -> Row:
    """What both jobs know of the shared stream: an order's country, and its total in euros."""
    return {"country": order["country"], "total": order["amount"] * rate["rate"]}


pricing = hg.App("pricing")
orders = pricing.input("orders", timestamp="ts", max_out_of_order="5s", start="oldest")
rates = pricing.input("rates", key="currency").table("rates", broadcast=True)
orders.join(rates, on="currency", into=priced).share("priced", key="country", partitions=2, retention="3d")

revenue = hg.App("revenue")
totals = revenue.input("priced", producers=["pricing"], start="oldest")
totals.window(hg.tumbling("1m")).agg(revenue=hg.sum("total"), orders=hg.count()).to("revenue")
