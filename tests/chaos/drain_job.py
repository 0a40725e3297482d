"""The job that is drained and stopped again and again: orders and payments, each record copied behind a shuffle; the orders counted in
windows, and joined with the payments. Each record says the run that has read it."""

from __future__ import annotations

import os
from typing import Any

import headgate as hg

RUN = os.environ["CHAOS_RUN"]


def read_in_this_run(value: dict[str, Any]) -> dict[str, Any]:
    """A record, with its run."""
    return {**value, "run": RUN}


def both(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any]:
    """A pair, or a row without a partner."""
    key = (left or right or {})["key"]
    return {"key": key, "left": left and left["seq"], "right": right and right["seq"]}


app = hg.App(os.environ["CHAOS_JOB"])
orders = app.input(os.environ["CHAOS_ORDERS"]).map(read_in_this_run).repartition("key", name="orders-by-key")
payments = app.input(os.environ["CHAOS_PAYMENTS"]).map(read_in_this_run).repartition("key", name="payments-by-key")
orders.to(os.environ["CHAOS_ORDERS_READ"])
payments.to(os.environ["CHAOS_PAYMENTS_READ"])
windows = orders.window(hg.tumbling("2s", grace="1s"), late=os.environ["CHAOS_LATE"], name="windows")
windows.agg(n=hg.count(), total=hg.sum("amount")).to(os.environ["CHAOS_WINDOWS"])
orders.join(
    payments.map(lambda value: {**value, "payment": True}),
    within=("200ms", "400ms"),
    how="outer",
    grace="1s",
    into=both,
    late=os.environ["CHAOS_LATE_ROWS"],
    name="pairs",
).to(os.environ["CHAOS_PAIRS"])
