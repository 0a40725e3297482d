"""What cannot work is refused when it is declared, in the user's own names."""

from __future__ import annotations

import pytest

from headgate.core.errors import DeclarationError
from headgate.core.graph.checks import keys_of, validate
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.graph.updates import updates_of

A, B = Input("a", key="k"), Input("b", key="k")
TABLE = Stage("t", "table", ("b",), stateful=True)


def by(name, reads, field="x", **more):
    return Stage(name, "repartition", (reads,), by=field, writes=(f"j-1-{name}",), **more)


def to(*reads, topic="out", name="to"):
    return Stage(name, "to", reads, writes=(topic,))


def counts(name="n", *reads):
    return Stage(name, "agg", reads or ("a",), stateful=True, updates=True)


def join(*reads, on=(), name="j"):
    return Stage(name, "join", reads, on=on, stateful=True)


GOOD = {
    "one that copies": ((A,), (to("a"),)),
    "none yet": ((), ()),
    "a join by the key that both have": ((A, B), (join("a", "b", on=("k", "k")), to("j"))),
    "a join of fields with different names": ((A, Input("b", key="id")), (join("a", "b", on=("k", "id")),)),
    "a join by the records' own keys": ((Input("a"), Input("b")), (join("a", "b"),)),
    "a join where only one says its key": ((A, Input("b")), (join("a", "b"),)),
    "a join with a table": ((A, B), (TABLE, join("a", "t", on=("k", "k")))),
    "a join with a broadcast table needs no key": (
        (Input("a"), Input("b", broadcast=True)),
        (TABLE, Stage("rk", "rekey", ("a",)), join("rk", "t", on=("whatever", None))),
    ),
    "a join with two tables of one topic": (
        (Input("a"), Input("b", broadcast=True)),
        (
            TABLE,
            Stage("f", "filter", ("b",)),
            Stage("t2", "table", ("f",), stateful=True),
            join("a", "t", on=("z", None)),
            join("j", "t2", on=("z", None), name="j2"),
        ),
    ),
    "a join with a table of its own aggregate": (
        (A,),
        (counts(), Stage("m", "map", ("n",)), Stage("t", "table", ("m",), stateful=True), join("a", "t")),
    ),
    "a join of a shuffle with a table of its own windows": (
        (A,),
        (by("x", "a"), Stage("w", "window", ("x",), stateful=True), Stage("t", "table", ("w",), stateful=True), join("x", "t")),
    ),
    "a join behind a broadcast shuffle": ((A, B), (Stage("w", "broadcast", ("b",), writes=("j-1-w",)), join("a", "w", on=("z", None)))),
    "a join of a stream with itself through a shuffle": ((A,), (by("x", "a", "k"), join("a", "x", on=("k", "k")))),
    "a join of two shuffles": ((A, B), (by("x", "a"), by("y", "b"), join("x", "y", on=("x", "x")))),
    "a join behind a join": ((A, B, Input("c", key="k")), (join("a", "b"), join("j", "c", on=("k", "k"), name="j2"))),
    "a merge of equal keys": ((A, B), (Stage("m", "merge", ("a", "b")), Stage("w", "window", ("m",), stateful=True))),
    "a merge of different keys that nobody keeps state by": ((A, Input("b", key="z")), (Stage("m", "merge", ("a", "b")), to("m"))),
    "a rekey before an output": ((A,), (Stage("rk", "rekey", ("a",)), to("rk"))),
    "a rekey before a shuffle": ((A,), (Stage("rk", "rekey", ("a",)), by("x", "rk"), Stage("w", "window", ("x",), stateful=True))),
    "a rekey before a copy of a table": (
        (A, Input("b", broadcast=True, copied=True)),
        (Stage("rk", "rekey", ("b",)), Stage("t", "table", ("rk",), stateful=True), join("a", "t", on=("z", None))),
    ),
    "one window of everything": ((A,), (Stage("g", "gather", ("a",), writes=("j-1-g",)), Stage("w", "window", ("g",)))),
    "two outputs into one topic": ((A, B), (to("a"), to("b", name="to-2"))),
    "an output that another stage reads": ((A, Input("out")), (to("a"), Stage("x", "agent", ("out",)))),
    "stages in any order": ((A,), (to("f"), Stage("f", "filter", ("a",)))),
    "a diamond": ((A,), (Stage("f", "filter", ("a",)), Stage("g", "filter", ("a",)), Stage("m", "merge", ("f", "g")), to("m"))),
    "an agent on a broadcast stream": ((A, Input("b", broadcast=True)), (Stage("x", "agent", ("a", "b"), writes=("o",)),)),
    "updates that are mapped and written": ((A,), (counts(), Stage("m", "map", ("n",)), to("m"))),
    "updates that are shuffled and tabled": ((A,), (counts(), by("x", "n"), Stage("t", "table", ("x",), stateful=True))),
    "updates joined with a table": ((A, B), (counts(), TABLE, join("n", "t"))),
    "events joined with a table of updates": (
        (A, B),
        (counts("n", "b"), Stage("t", "table", ("n",), stateful=True), join("a", "t"), counts("of", "j")),
    ),
    "updates merged with updates": ((A, B), (counts(), counts("m", "b"), Stage("both", "merge", ("n", "m")), to("both"))),
    "updates for an actor, and what it makes of them": ((A,), (counts(), Stage("x", "actor", ("n", "a")), counts("of", "x"))),
    "updates that are to count as events": (
        (A,),
        (counts(), Stage("e", "as-events", ("n",)), counts("of", "e"), Stage("m", "merge", ("e", "a")), to("m")),
    ),
    "updates for a sink that replaces the row of their key": (
        (A,),
        (counts(), Stage("c", "batch", ("n",), stateful=True, takes_updates=True), Stage("s", "deliver", ("c",), meets=True)),
    ),
    "a merge of equal keys for such a sink": ((A, B), (Stage("m", "merge", ("a", "b")), Stage("s", "deliver", ("m",), meets=True))),
    "a merge of any keys for a sink that does not replace rows": (
        (A, Input("b", key="z")),
        (Stage("m", "merge", ("a", "b")), Stage("s", "deliver", ("m",))),
    ),
    "an input that ends with its producers": ((Input("a", until="producers", producers=("j",)),), ()),
}  # fmt: skip

GOOD["a join of text with headgate's own keys"] = (
    (Input("a", key="k", key_serde="text"), B),
    (by("x", "b", "k", key_serde="key"), join("a", "x")),
)
GOOD["a join with a broadcast stream of other keys"] = (
    (Input("a", key_serde="long"), Input("b", broadcast=True, key_serde="key")),
    (join("a", "b"),),
)


@pytest.mark.parametrize("name", GOOD)
def test_what_can_work_is_let_through(name):
    graph = Graph(*GOOD[name])
    validate(graph)


BAD = {
    "'j' (join) combines streams whose keys differ in their bytes: 'a' (long) and 'j-1-x' (key); "
    "equal keys would not meet": (
        (Input("a", key_serde="long"), B),
        (by("x", "b", None, key_serde="key"), join("a", "x")),
    ),
    "'t' (table) combines streams whose keys differ in their bytes: 'a' (long) and 'b' (key); equal keys would not meet": (
        (Input("a", key_serde="long"), Input("b", key_serde="key")),
        (Stage("m", "merge", ("a", "b")), Stage("t", "table", ("m",), stateful=True)),
    ),
    "'s' (deliver) reads a merge of streams with different keys: 'k', 'z'": (
        (A, Input("b", key="z")),
        (Stage("m", "merge", ("a", "b")), Stage("s", "deliver", ("m",), meets=True)),
    ),
    "'s' (deliver) replaces rows by a key that rekey changed without a shuffle": (
        (A,),
        (Stage("rk", "rekey", ("a",)), Stage("s", "deliver", ("rk",), meets=True)),
    ),
    "two inputs read 'a'": ((A, A), ()),
    "two stages are called 'x'": ((A,), (Stage("x", "map", ("a",)), Stage("x", "map", ("a",)))),
    "two stages write the intermediate stream 'j-1-x'": (
        (A,),
        (by("x", "a"), Stage("y", "gather", ("a",), writes=("j-1-x",))),
    ),
    "'a' is the name of an input and of a stage": ((A,), (Stage("a", "map", ("a",)),)),
    "stage 'x' (map) reads nothing": ((A,), (Stage("x", "map", ()),)),
    "stage '' (map) has no name": ((A,), (Stage("", "map", ("a",)),)),
    "'x' (gather) writes 0 streams": ((A,), (Stage("x", "gather", ("a",)),)),
    "'x' is to have 0 partitions": ((A,), (by("x", "a", width=0),)),
    "'x' (map) reads 'oders', which is neither an input nor a stage": ((A,), (Stage("x", "map", ("oders",)),)),
    "the job has a cycle: x → y → x": ((A,), (Stage("x", "merge", ("a", "y")), Stage("y", "map", ("x",)))),
    "the job has a cycle: x → x": ((A,), (Stage("x", "merge", ("a", "x")),)),
    "the job has a cycle: a → f → to → a": ((A,), (Stage("f", "filter", ("a",)), to("f", topic="a"))),
    "'to' writes 'j-1-x', which is the job's own stream after 'x'": ((A,), (by("x", "a"), to("a", topic="j-1-x"))),
    "the input 'j-1-x' is the job's own stream after 'x'": (
        (A, Input("j-1-x")),
        (by("x", "a"), to("j-1-x", name="z")),
    ),
    "the input 'a' is to end with its producers, but names none": ((Input("a", until="producers"),), ()),
    "'to' (to) reads only broadcast streams ('b')": ((A, Input("b", broadcast=True)), (to("b"),)),
    "'x' (repartition) reads only broadcast streams ('b')": ((Input("b", broadcast=True),), (by("x", "b"),)),
    "'w' (window) reads only broadcast streams ('j-1-n')": (
        (A,),
        (Stage("n", "broadcast", ("a",), writes=("j-1-n",)), Stage("w", "window", ("n",))),
    ),
    "'w' (agg) reads a merge of streams with different keys: 'k', 'z'": (
        (A, Input("b", key="z")),
        (Stage("m", "merge", ("a", "b")), Stage("w", "agg", ("m",), stateful=True)),
    ),
    "'w' (agg) reads only broadcast streams ('b')": ((Input("b", broadcast=True),), (Stage("w", "agg", ("b",)),)),
    "'to' (to) reads only tables ('t')": ((B,), (TABLE, to("t"))),
    "the join 'j' has 1 sides": ((A,), (join("a"),)),
    "the join 'j' joins 'a' with itself": ((A,), (Stage("f", "filter", ("a",)), join("a", "f"))),
    "the join 'j' joins 'j-1-x' with itself": ((A,), (by("x", "a"), Stage("f", "filter", ("x",)), join("x", "f"))),
    "the join 'j' joins 'b' with itself": ((B,), (TABLE, join("b", "t"))),
    "the join 'j' joins 'c' with itself": (
        (Input("c", key="k"),),
        (
            Stage("n", "window", ("c",), stateful=True),
            Stage("m", "merge", ("n", "c")),
            Stage("t", "table", ("m",), stateful=True),
            join("c", "t"),
        ),
    ),
    "the join 'j' has 1 fields for its 2 sides": ((A, B), (join("a", "b", on=("k",)),)),
    "the join 'j' is on 'z', but 'b' is keyed by 'k'": ((Input("a", key="z"), B), (join("a", "b", on=("z", "z")),)),
    "the join 'j' is on 'k', but 'b' is not known to be keyed by it": (
        (A, Input("b")),
        (join("a", "b", on=("k", "k")),),
    ),
    "the join 'j' joins 'a', keyed by 'k', with 'b', keyed by 'z'": ((A, Input("b", key="z")), (join("a", "b"),)),
    "'of' (agg) would take each update of 'n' (agg) for one more row": (
        (A,),
        (counts(), Stage("m", "map", ("n",)), by("x", "m"), counts("of", "x")),
    ),
    "'w' (window) would take each update of 'n' (agg) for one more row": (
        (A,),
        (counts(), Stage("w", "window", ("n",))),
    ),
    "'w' (agg) would take each update of 'early' (window) for one more row": (
        (A,),
        (Stage("early", "window", ("a",), updates=True), counts("w", "early")),
    ),
    "'c' (batch) would take each update of 'm' (agg), 'n' (agg) for one more row": (
        (A, B),
        (counts(), counts("m", "b"), Stage("both", "merge", ("n", "m")), Stage("c", "batch", ("both",))),
    ),
    "'j' (join) would take each update of 'n' (agg) for one more row": (
        (A, B),
        (counts("n", "b"), join("a", "n")),
    ),
    "'m' (merge) mixes the events of 'b' with updates of 'n' (agg)": (
        (A, B),
        (counts(), Stage("m", "merge", ("n", "b"))),
    ),
    "'w' (window) keeps state by a key that rekey changed without a shuffle": (
        (A,),
        (Stage("rk", "rekey", ("a",)), Stage("m", "map", ("rk",)), Stage("w", "window", ("m",))),
    ),
    "'w' (window) reads a merge of streams with different keys: 'k', 'the record's own key'": (
        (A, Input("b")),
        (Stage("m", "merge", ("a", "b")), Stage("w", "window", ("m",))),
    ),
}


@pytest.mark.parametrize("why", BAD)
def test_what_cannot_work_is_refused_in_the_users_names(why):
    with pytest.raises(DeclarationError) as caught:
        validate(Graph(*BAD[why]))
    assert caught.value.what.startswith(why)
    assert caught.value.remedy


def test_a_long_chain_is_no_circle():
    stages = [Stage(f"s{n}", "map", (f"s{n - 1}" if n else "a",)) for n in range(300)]
    validate(Graph((A,), tuple(stages)))


def test_what_a_stage_is_keyed_by():
    graph = Graph(
        (A, Input("b", broadcast=True)),
        (
            by("x", "a", "country"),
            Stage("m", "map", ("x",)),
            Stage("g", "gather", ("m",), writes=("j-1-g",)),
            Stage("n", "broadcast", ("m",), writes=("j-1-n",)),
            join("a", "b"),
        ),
    )
    found = {name: keys_of(graph, name) for name in ("a", "b", "x", "m", "g", "n", "j")}
    assert found == {
        "a": {"k"}, "b": set(), "x": {"country"}, "m": {"country"}, "g": {None}, "n": set(), "j": {"k"},
    }  # fmt: skip


def test_a_shared_stream_has_one_writer_in_a_job():
    """Plain records between frames, or two senders for one task, would break whoever reads it."""
    share = Stage("s", "share", ("a",), writes=("clean",))
    for other in (Stage("t", "to", ("a",), writes=("clean",)), Stage("s2", "share", ("a",), writes=("clean",))):
        with pytest.raises(DeclarationError, match="shares with other jobs"):
            validate(Graph((Input("a"),), (share, other)))
    validate(Graph((Input("a"),), (share,)))


def test_a_job_does_not_read_the_stream_that_it_shares():
    graph = Graph(
        (Input("a"), Input("clean", producers=("other/1",))), (Stage("s", "share", ("a",), writes=("clean",)),)
    )
    with pytest.raises(DeclarationError, match="which it shares itself"):
        validate(graph)


def test_whose_updates_come_out_of_a_stage():
    graph = Graph(
        (A,),
        (counts(), Stage("m", "map", ("n",)), counts("of", "m"), Stage("e", "as-events", ("of",)), Stage("t", "table", ("n",))),
    )  # fmt: skip
    found = {name: updates_of(graph, name) for name in ("a", "n", "m", "of", "e", "t")}
    assert found == {"a": set(), "n": {"n"}, "m": {"n"}, "of": {"of"}, "e": set(), "t": set()}


def test_only_what_the_clock_calls_reads_nothing() -> None:
    """It belongs to a task by its name, and no record reaches it."""
    timer = Stage("timer-report", "timer", (), stateful=True)
    graph = Graph((A,), (timer, Stage("out", "to", ("a",), writes=("copy",))))
    validate(graph)
    assert (graph.flow("timer-report"), graph.stateful) == (frozenset(), True)
