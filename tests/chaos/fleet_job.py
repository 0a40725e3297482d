"""The job of `fleet`: orders and payments behind a shuffle each; the orders counted by key and in windows, and joined with the payments.

Nothing may be late: the time of a record is when its broker has appended it, so what comes later is never older.
"""

from __future__ import annotations

import os
from typing import Any

from outputs import declared

import headgate as hg


def both(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any]:
    """A pair, or a row without a partner."""
    key = (left or right or {})["key"]
    return {"key": key, "left": left and left["seq"], "right": right and right["seq"]}


app = hg.App(os.environ["CHAOS_JOB"])
written = app.input(os.environ["CHAOS_ORDERS"])
orders = written.repartition("key", name="orders-by-key")
payments = app.input(os.environ["CHAOS_PAYMENTS"]).repartition("key", name="payments-by-key")
declared(written)
orders.agg(n=hg.count(), total=hg.sum("amount"), name="counts").to(os.environ["CHAOS_COUNTS"])
windows = orders.window(hg.tumbling("2s"), late=os.environ["CHAOS_LATE"], name="windows")
windows.agg(n=hg.count(), total=hg.sum("amount")).to(os.environ["CHAOS_WINDOWS"])
orders.join(
    payments,
    within=("200ms", "400ms"),
    how="outer",
    into=both,
    late=os.environ["CHAOS_LATE_ROWS"],
    name="pairs",
).to(os.environ["CHAOS_PAIRS"])
