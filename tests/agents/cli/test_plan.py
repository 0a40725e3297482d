"""What `headgate plan` says of the ends of inputs: whether their time counts afterwards."""

from __future__ import annotations

from headgate.agents.cli.plan import _end
from headgate.core.graph.graph import Graph, Input


def ends(*inputs: Input) -> dict[str, tuple[str, str]]:
    graph = Graph(inputs)
    found = [_end(graph, one) for one in graph.counted if one.until is not None]
    return {one["input"]: (one["at"], one["time"]) for one in found}


def test_where_all_inputs_end_each_keeps_its_time() -> None:
    found = ends(
        Input("a", until="newest"),
        Input("b", until=1000),
        Input("c", until=((0, 5),)),
        Input("table", bootstrap=True),
        Input("shared", until="producers", producers=("up/1",)),
    )
    kept = "counts until every part has ended"
    assert found == {
        "a": ("newest", kept),
        "b": ("1000 ms", kept),
        "c": ("offsets", kept),
        "shared": ("producers", "does not count: the run of its jobs is over"),
    }


def test_where_one_has_no_end_none_does() -> None:
    found = ends(Input("history", until="newest"), Input("live"))
    assert found == {"history": ("newest", "does not count: 'live' has no end")}
