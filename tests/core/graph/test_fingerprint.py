"""Equal deployments have equal fingerprints; a difference can be read."""

from __future__ import annotations

import subprocess
import sys

import msgpack

from headgate.core.graph.fingerprint import MOST, covered, describe, differences, digest, fingerprint, parts
from headgate.core.graph.graph import Graph, Input, Stage

GRAPH = Graph(
    (Input("a", until=((0, 5),)), Input("b")),
    (
        Stage("w", "window", ("a",), stateful=True, arguments=(("size", "1m"), ("grace", "10s"))),
        Stage("m", "merge", ("w", "b")),
    ),
)
SETTINGS = {"grouper": "partition", "tasks": 4, "more": {"y": [1, 2], "x": (3,)}}


def test_the_order_of_independent_parts_does_not_matter():
    turned = Graph(GRAPH.inputs[::-1], GRAPH.stages[::-1])
    settings = {"more": {"x": [3], "y": (1, 2)}, "tasks": 4, "grouper": "partition"}
    assert fingerprint(turned, settings) == fingerprint(GRAPH, SETTINGS)
    assert parts(turned, settings) == parts(GRAPH, SETTINGS)


def test_the_fingerprint_outlives_storage_and_process():
    stored = msgpack.unpackb(msgpack.packb(covered(GRAPH, SETTINGS)))
    assert digest(stored) == fingerprint(GRAPH, SETTINGS) == "8e25a1673e6bbae1"
    code = (
        "from headgate.core.graph.graph import Graph, Input; from headgate.core.graph.fingerprint import fingerprint; "
        "print(fingerprint(Graph((Input('a'),)), {'b': 1, 'a': 2}))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert other.stdout.strip() == fingerprint(Graph((Input("a"),)), {"a": 2, "b": 1})


def test_every_change_changes_it_and_can_be_read():
    now = Graph(
        (Input("a", until="newest"), Input("c")),
        (
            Stage("w", "window", ("a",), stateful=True, arguments=(("size", "2m"),)),
            Stage("m", "merge", ("w", "c")),
            Stage("f", "filter", ("m",)),
        ),
    )
    settings = {"grouper": "all", "tasks": 4, "width": 3}
    assert fingerprint(now, settings) != fingerprint(GRAPH, SETTINGS)
    assert differences(parts(GRAPH, SETTINGS), parts(now, settings)) == [
        "input 'a': until was [[0, 5]], is 'newest'",
        "input 'b' was removed",
        "input 'c' is new",
        "setting:grouper: was 'partition', is 'all'",
        "setting:more: was \"{'x': [3], 'y': [1, 2]}\", is not set",
        "setting:width: was not set, is '3'",
        "stage 'f' is new",
        "stage 'm': reads was ['w', 'b'], is ['w', 'c']",
        "stage 'w': grace was '10s', is not set",
        "stage 'w': size was '1m', is '2m'",
    ]


def test_the_sides_of_a_join_are_no_set():
    one, two = (Graph((Input("a"), Input("b")), (Stage("j", "join", sides),)) for sides in (("a", "b"), ("b", "a")))
    assert fingerprint(one, {}) != fingerprint(two, {})


def test_the_parts_can_be_compared_one_by_one():
    assert parts(GRAPH, SETTINGS) == {
        "input:a": '{"until":[[0,5]]}',
        "input:b": "{}",
        "stage:m": '{"reads":["w","b"],"verb":"merge"}',
        "stage:w": '{"grace":"10s","reads":["a"],"size":"1m","stateful":true,"verb":"window"}',
        "setting:grouper": "partition",
        "setting:more": "{'x': [3], 'y': [1, 2]}",
        "setting:tasks": "4",
    }


def test_what_is_long_is_stored_short_and_still_told_apart():
    """A field of its own, a stage of many fields, a setting: equal beginnings do not make equal texts."""

    def of(long: str, many: str) -> dict[str, str]:
        stages = (
            Stage("one", "agg", ("a",), arguments=(("by", long),)),
            Stage("many", "agg", ("a",), arguments=tuple((f"column-{n}", many) for n in range(200))),
        )
        return parts(Graph((Input("a"),), stages), {"grouper": long * 10})

    before, now = of("x" * 500, "m"), of("x" * 499 + "y", "n")
    assert max(map(len, before.values())) <= MOST
    assert {part for part in before if before[part] != now[part]} == {"stage:one", "stage:many", "setting:grouper"}
    assert of("x" * 500, "m") == before
    (line,) = differences({"stage:one": before["stage:one"]}, {"stage:one": now["stage:one"]})
    assert line.startswith("stage 'one': by was '\"xxxx")
    (line,) = differences({"stage:many": before["stage:many"]}, {"stage:many": now["stage:many"]})
    assert line.startswith("stage 'many': digest was ")


def test_a_part_that_is_no_fields_is_shown_as_it_is():
    """A setting, and what an older headgate has stored."""
    assert describe("stage:a", "8fa3c1", '{"verb":"map"}') == ["stage:a: was '8fa3c1', is '{\"verb\":\"map\"}'"]
    assert describe("setting:grouper", None, "all") == ["setting:grouper: was not set, is 'all'"]
    assert describe("setting:grouper", "4", None) == ["setting:grouper: was '4', is not set"]


def test_differences_are_lines_for_people():
    assert differences({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == [
        "a: was '1', is not there",
        "b: was '2', is '3'",
        "c: was not there, is '4'",
    ]
    assert differences({"a": "1"}, {"a": "1"}) == []
    assert differences({"stage:a": "1"}, {"stage:a": "2"}, "setting:") == []


def test_who_follows_a_topic_for_copies_is_no_part_of_it():
    """Versions that read it in each task take part in the same runs."""
    with_copies = Graph((Input("a"), Input("r", broadcast=True, bootstrap=True, copied=True)))
    without = Graph((Input("a"), Input("r", broadcast=True, bootstrap=True)))
    assert fingerprint(with_copies, {}) == fingerprint(without, {})
    assert parts(with_copies, {}) == parts(without, {})
    assert (with_copies.copied, without.copied) == ({"r"}, frozenset())
