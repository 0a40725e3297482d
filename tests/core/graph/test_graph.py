"""A graph is data: it answers what feeds what, and what a stage is called."""

from __future__ import annotations

from headgate.core.graph.checks import keys_of, validate
from headgate.core.graph.graph import Graph, Input, Stage, loose_name, plain

SALES = Graph(
    (
        Input("orders", out_of_order_ms=5000),
        Input("refunds", until=((0, 10), (1, 12))),
        Input("rates", key="currency", broadcast=True, bootstrap=True, until="newest"),
    ),
    (
        Stage("rates-table", "table", ("rates",), stateful=True),
        Stage("filter", "filter", ("orders",)),
        Stage("merge", "merge", ("filter", "refunds")),
        Stage("join-rates", "join", ("merge", "rates-table"), on=("currency", None)),
        Stage("by-country", "repartition", ("join-rates",), by="country", writes=("sales-1-by-country",)),
        Stage("minutes", "window", ("by-country",), stateful=True, arguments=(("size", "1m"),)),
        Stage("all", "gather", ("minutes",), writes=("sales-1-all",)),
        Stage("to", "to", ("all",), writes=("revenue",)),
        Stage("alerts", "agent", ("orders",), writes=("alerts",)),
        Stage("news", "broadcast", ("refunds",), writes=("sales-1-news",)),
    ),
)


def test_a_graph_says_what_its_streams_are():
    assert SALES.streams == ("orders", "rates", "refunds", "sales-1-all", "sales-1-by-country", "sales-1-news")
    assert SALES.intermediates == {"sales-1-all", "sales-1-by-country", "sales-1-news"}
    assert SALES.outputs == {"revenue", "alerts"}
    assert SALES.broadcast == {"rates", "sales-1-news"}
    assert SALES.bootstrap == {"rates"}
    assert SALES.stateful
    assert not Graph((Input("a"),)).stateful
    assert Input("a").name == "a"


def test_markers_follow_the_data_and_stop_at_shuffles_and_tables():
    assert SALES.upstreams("sales-1-by-country") == {"orders", "refunds"}
    assert SALES.upstreams("sales-1-all") == {"sales-1-by-country"}
    assert SALES.upstreams("sales-1-news") == {"refunds"}


def test_a_stage_reads_more_than_flows_out_of_it():
    assert SALES.sources("join-rates") == {"orders", "refunds", "rates"}
    assert SALES.flow("join-rates") == {"orders", "refunds"}
    assert SALES.sources("to") == {"sales-1-all"}
    assert SALES.sources("orders") == {"orders"}


def test_the_inputs_behind_a_stream_are_found_through_every_shuffle():
    assert SALES.origins("sales-1-all") == {"orders", "refunds"}
    assert SALES.origins("sales-1-news") == {"refunds"}


def test_an_input_is_ended_by_the_actors_that_alone_read_it():
    """Rows that reach anything else, a shuffle among it, go on without them."""
    both = (Stage("even", "filter", ("a",)), Stage("first", "actor", ("a",)), Stage("second", "actor", ("even",)))
    assert Graph((Input("a"), Input("b")), both).stopped_by("a") == ("first", "second")
    for other in (Stage("copy", "to", ("even",)), Stage("by", "repartition", ("even",), writes=("j-1-by",))):
        assert Graph((Input("a"),), (*both, other)).stopped_by("a") == ()
    behind = Stage("behind", "actor", ("by",))
    assert Graph((Input("a"),), (Stage("by", "repartition", ("a",), writes=("j-1-by",)), behind)).stopped_by("a") == ()
    assert Graph((Input("a"),)).stopped_by("a") == ()


def test_the_outputs_that_an_input_reaches_are_found_through_every_shuffle():
    """Not those of a table that its records only change, and no stream of frames."""
    assert {one.stream: SALES.made_of(one.stream) for one in SALES.inputs} == {
        "orders": {"revenue", "alerts"},
        "refunds": {"revenue"},
        "rates": frozenset(),
    }
    shares = Graph((Input("a"),), (Stage("s", "share", ("a",), writes=("shared",)),))
    assert shares.made_of("a") == frozenset()


def test_a_part_is_plain_values_without_what_stands_at_its_default():
    """A fingerprint covers them: a field that a newer version adds leaves the fingerprints of graphs without it as they are."""
    assert plain(SALES.inputs[1]) == {"stream": "refunds", "until": [[0, 10], [1, 12]]}
    assert plain(SALES.stages[5]) == {
        "name": "minutes", "verb": "window", "reads": ["by-country"], "stateful": True, "arguments": [["size", "1m"]],
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- names


def test_a_stage_that_keeps_nothing_is_numbered():
    taken = []
    for _ in range(3):
        taken.append(loose_name("map", taken))
    assert taken == ["map", "map-2", "map-3"]


def test_a_shared_stream_is_fed_like_an_intermediate_one_and_read_by_no_one_here():
    """What another job reads takes markers, too; but the job itself neither reads nor trims it."""
    graph = Graph(
        (Input("a"), Input("b")),
        (
            Stage("x", "repartition", ("a",), writes=("j-1-x",)),
            Stage("m", "merge", ("x", "b")),
            Stage("s", "share", ("m",), writes=("clean",)),
        ),
    )
    assert dict(graph.fed) == {"j-1-x": {"a"}, "clean": {"j-1-x", "b"}}
    assert (set(graph.shared), graph.intermediates, graph.outputs) == ({"clean"}, {"j-1-x"}, set())
    assert "clean" not in graph.streams


def test_walks_over_a_graph_are_not_bounded_by_the_stack():
    """A job of a thousand chained stages overflowed it; and of forty diamonds one behind the other, every path was walked."""
    chain = tuple(Stage(f"m{n}", "map", (f"m{n - 1}" if n else "in",)) for n in range(5000))
    graph = Graph((Input("in", key="k"),), tuple(reversed(chain)))
    assert [one.name for one in graph.ordered] == [one.name for one in chain]
    assert graph.sources("m4999") == graph.flow("m4999") == {"in"}
    validate(graph)
    assert keys_of(graph, "m4999") == {"k"}
    diamonds = []
    for n in range(200):
        front = f"d{n - 1}" if n else "in"
        diamonds += [Stage(f"a{n}", "map", (front,)), Stage(f"b{n}", "map", (front,))]
        diamonds.append(Stage(f"d{n}", "merge", (f"a{n}", f"b{n}")))
    graph = Graph((Input("in", key="k"),), tuple(diamonds))
    validate(graph)
    assert keys_of(graph, "d199") == {"k"}


def test_streams_that_meet_in_a_join_of_two_streams_are_found_through_every_shuffle():
    """A join with a table keeps no rows of its own, so nobody waits for anybody there."""
    joined = Graph(
        (Input("orders"), Input("payments"), Input("other")),
        (
            Stage("by-id", "repartition", ("orders",), writes=("j-1-by-id",)),
            Stage("filter", "filter", ("by-id",)),
            Stage("join", "join", ("filter", "payments"), stateful=True),
            Stage("to", "to", ("other",), writes=("out",)),
        ),
    )
    assert joined.meeting == (frozenset({"orders", "payments", "j-1-by-id"}),)
    assert SALES.meeting == ()


def test_the_nearest_stages_and_streams_stand_in_the_same_task():
    among = frozenset({"merge", "minutes"})
    assert SALES.nearest("join-rates", among) == {"merge"}
    assert SALES.nearest("merge", among) == {"orders", "refunds"}
    assert SALES.nearest("all", among) == {"minutes"}
    assert SALES.nearest("to", among) == {"sales-1-all"}
    assert SALES.nearest("minutes", among) == {"sales-1-by-country"}


def test_a_shared_stream_is_framed_and_no_output():
    sharing = Graph((Input("orders"),), (Stage("share", "share", ("orders",), writes=("priced",)),))
    assert sharing.framed == {"priced"}
    assert sharing.outputs == set()
    assert sharing.fed_by("priced") == "share"
    assert sharing.upstreams("priced") == {"orders"}
