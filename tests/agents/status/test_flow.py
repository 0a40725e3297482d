"""The graph of steps: what calls what, what goes through a topic, and how much lies there."""

from __future__ import annotations

from typing import Any

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.status.flow import flow, stages_of

BY_USER = "sales-1-by-user"


def joined() -> hg.App:
    app = hg.App("sales")
    rates = app.input("rates").table("rates", broadcast=True)
    orders = app.input("orders").filter(lambda row: True)
    orders.join(rates, on="currency", into=lambda order, rate: order).repartition("user").agg(
        n=hg.count(), name="spent"
    ).to("revenue")
    orders.to("copies")
    return app


def status(**rows: int) -> dict[str, Any]:
    steps = [{"step": step.replace("_", "-"), "rows_s": n, "busy": 0.1, "share": 0.2} for step, n in rows.items()]
    times = [{"place": "orders", "kind": "stream", "lag_s": 7.0, "held_by": [{"who": "orders:1", "why": "behind"}]}]
    return {
        "steps": steps,
        "streams": [{"stream": "orders", "lag": 900}, {"stream": BY_USER, "lag": 4}],
        "times": times,
    }


def test_steps_that_call_each_other_are_one_stage() -> None:
    """A table belongs to the stage whose rows look it up; what is behind a shuffle is another stage, one rank farther."""
    declared = Declared(joined())
    stages = {declared.name(step): stages_of(declared)[id(step)] for step in declared.steps}
    first = {stages[name] for name in ("rates", "table:rates", "orders", "filter", "join", "to-2")}
    assert first == {(0, 0)}
    assert {stages[name] for name in ("by-user", "spent", "to")} == {(1, 1)}


def test_an_edge_through_a_topic_has_lag_and_pressure_and_a_call_has_none() -> None:
    """The rate of a shuffle counts both of its sides: what lies in it is judged by what is read."""
    found = flow(Declared(joined()), status(orders=30, filter=30, by_user=50, spent=10))
    edges = {(one["from"], one["to"]): one for one in found["edges"]}
    source = edges[None, "orders"]
    assert (source["through"], source["lag"], source["work_s"], source["pressure"]) == ("orders", 900, 30.0, "high")
    assert (source["watermark_delay_s"], source["held_by"]) == (7.0, ["orders:1"])
    shuffle = edges["join", "by-user"]
    assert (shuffle["through"], shuffle["rows_s"], shuffle["work_s"], shuffle["pressure"]) == (BY_USER, 10, 0.4, "none")
    call = edges["orders", "filter"]
    assert (call["through"], call["rows_s"], call["lag"], call["pressure"]) == (None, 30, None, None)
    assert edges[None, "rates"]["lag"] is None
    nodes = {one["step"]: one for one in found["nodes"]}
    assert nodes["to"]["writes"] == ["revenue"]
    assert (nodes["by-user"]["rows_s"], nodes["join"]["rows_s"], nodes["join"]["share"]) == (10, None, None)
