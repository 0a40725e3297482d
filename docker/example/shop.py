"""The job that compose.yaml runs: it copies large orders to a topic of their own."""

from __future__ import annotations

from typing import Any

import headgate as hg

app = hg.App("shop", serde=hg.json())


def is_large(order: dict[str, Any]) -> bool:
    """Whether somebody should look at the order."""
    return order["amount"] >= 1000


app.input("orders", start="oldest").filter(is_large).to("large-orders")
