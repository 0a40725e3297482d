"""What `headgate plan` says of the ends of inputs, whether their time counts afterwards, and of the topics of patterns."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import headgate as hg
from headgate.agents.cli.start.plan import _end, _patterns
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.process.launch import bound_inputs
from headgate.core.coordination.messages import RunState, SetRun
from headgate.core.graph.graph import Graph, Input
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition

KEPT = "counts until every part has ended"


def said(graph: Graph) -> dict[str, tuple[str, str]]:
    found = [_end(graph, one) for one in graph.counted if one.until is not None]
    return {one["input"]: (one["at"], one["time"]) for one in found}


def ends(*inputs: Input) -> dict[str, tuple[str, str]]:
    return said(Graph(inputs))


def patterns(run: SetRun | None = None, *, before: bool = True, deleted: Collection[str] = ()) -> list[dict[str, Any]]:
    """The job knows a, b and gone; now there are a, b and new."""
    app = hg.App("job")
    app.input(pattern="orders-[a-z]+").to("out")
    app.input("rates").to("rates-out")
    declared = Declared(app, found=("orders-a", "orders-b", "orders-new", "rates"))
    tasks = {
        f"Partition {n}": tuple(
            StreamPartition(one, n)
            for one, width in (("orders-a", 1), ("orders-b", 2), ("orders-gone", 2), ("orders-late", 1), ("rates", 2))
            if n < width
        )
        for n in range(2)
    }
    now = {"orders-a": 1, "orders-b": 3, "orders-new": 1, "rates": 4}
    return _patterns(declared, JobModel(tasks=tasks) if before else None, run, now, deleted)


def test_what_joins_and_leaves_a_pattern_and_what_has_another_width() -> None:
    """A topic that has joined the run that goes on is read by it, and does not leave; one that was deleted meanwhile does. An input of its
    own is no matter of a pattern.
    """
    whole = {
        "pattern": "orders-[a-z]+",
        "topics": ["orders-a", "orders-b", "orders-new"],
        "joins": ["orders-new"],
        "leaves": ["orders-gone", "orders-late"],
        "widths": [{"topic": "orders-b", "was": 2, "now": 3}],
    }
    assert patterns() == [whole]
    assert patterns(SetRun("r", "d", RunState.DRAINED, "u", joined=("orders-late",))) == [whole]
    topics = ["orders-a", "orders-b", "orders-late", "orders-new"]
    running = SetRun("r", "d", RunState.RUNNING, "u", joined=("orders-late",))
    assert patterns(running) == [{**whole, "topics": topics, "leaves": ["orders-gone"]}]
    gone = ["orders-a", "orders-late"]
    left = {**whole, "topics": ["orders-b", "orders-new"], "leaves": ["orders-a", "orders-gone", "orders-late"]}
    assert patterns(running, deleted=gone) == [left]


def test_nothing_joins_a_job_that_never_ran() -> None:
    """All is new."""
    [found] = patterns(before=False)
    assert (found["joins"], found["leaves"], found["widths"]) == ([], [], [])


def test_where_all_inputs_end_each_keeps_its_time() -> None:
    found = ends(
        Input("a", until="newest"),
        Input("b", until=1000),
        Input("c", until=((0, 5),)),
        Input("table", bootstrap=True),
        Input("shared", until="producers", producers=("up/1",)),
    )
    assert found == {
        "a": ("newest", KEPT),
        "b": ("1000 ms", KEPT),
        "c": ("offsets", KEPT),
        "shared": ("producers", "does not count: the run of its jobs is over"),
    }


def test_where_one_has_no_end_none_does() -> None:
    found = ends(Input("history", until="newest"), Input("live"))
    assert found == {"history": ("newest", "does not count: 'live' has no end")}


def job() -> hg.App:
    """Inputs of every kind: plain ones, one that an actor alone reads, a table, and a stream of another job."""
    app = hg.App("job")

    class Totals(hg.Actor):
        def on_batch(self, ctx: Any, batch: Any) -> None:
            ctx.stop()

    live, history = app.input("live"), app.input("history", until="newest")
    rates = app.input("rates", bootstrap=True, broadcast=True).table("rates")
    shared = app.input("shared", producers=["up"], until="producers")
    live.merge(history, shared).join(rates, on="k", into=lambda row, rate: row).to("out")
    app.actor(app.input("asked").filter(bool), name="totals")(Totals)
    return app


def test_a_bounded_run_is_planned_as_it_would_run() -> None:
    """`plan --bounded` names what a bounded run ends, and which end leaves the time to the others: that of a foreign job, and that of an
    input whose only reader stops."""
    app = job()
    assert said(app.graph()) == {
        "history": ("newest", "does not count: 'live' has no end"),
        "shared": ("producers", "does not count: the run of its jobs is over"),
    }
    bound_inputs(app)
    assert said(app.graph()) == {
        "live": ("newest", KEPT),
        "history": ("newest", KEPT),
        "shared": ("producers", "does not count: the run of its jobs is over"),
        "asked": ("newest", f"{KEPT}, unless 'totals' stops reading it"),
    }
