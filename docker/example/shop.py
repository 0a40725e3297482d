"""The job of compose.yaml: large orders go to a topic of their own."""

from __future__ import annotations

from typing import Any

import headgate as hg

app = hg.App("shop", serde=hg.json())


def is_large(order: dict[str, Any]) -> bool:
    """An order that somebody should look at."""
    return order["amount"] >= 1000


app.input("orders", start="oldest").filter(is_large).to("large-orders")
