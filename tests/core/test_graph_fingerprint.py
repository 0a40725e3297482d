"""Equal deployments have equal fingerprints; a difference can be read."""

from __future__ import annotations

import subprocess
import sys

import msgpack

from headgate.core.graph import Graph, Input, Stage
from headgate.core.graph_fingerprint import covered, differences, digest, fingerprint, parts

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
    assert differences(covered(turned, settings), covered(GRAPH, SETTINGS)) == []


def test_the_fingerprint_outlives_storage_and_process():
    stored = msgpack.unpackb(msgpack.packb(covered(GRAPH, SETTINGS)))
    assert digest(stored) == fingerprint(GRAPH, SETTINGS) == "8e25a1673e6bbae1"
    assert differences(stored, covered(GRAPH, SETTINGS)) == []
    code = (
        "from headgate.core.graph import Graph, Input; from headgate.core.graph_fingerprint import fingerprint; "
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
    assert differences(covered(GRAPH, SETTINGS), covered(now, settings)) == [
        "input 'a': until was [[0, 5]], is 'newest'",
        "input 'b' is gone",
        "input 'c' is new",
        "stage 'f' is new",
        "stage 'm': reads was ['w', 'b'], is ['w', 'c']",
        "stage 'w': grace was '10s', is not set",
        "stage 'w': size was '1m', is '2m'",
        "setting 'grouper' was 'partition', is 'all'",
        "setting 'more' is gone",
        "setting 'width' is new: 3",
    ]


def test_the_sides_of_a_join_are_no_set():
    one, two = (Graph((Input("a"), Input("b")), (Stage("j", "join", sides),)) for sides in (("a", "b"), ("b", "a")))
    assert fingerprint(one, {}) != fingerprint(two, {})


def test_the_parts_can_be_compared_one_by_one():
    assert parts(GRAPH, SETTINGS) == {
        "input:a": "until=[[0, 5]]",
        "input:b": "",
        "stage:m": "reads=['w', 'b'] verb='merge'",
        "stage:w": "grace='10s' reads=['a'] size='1m' stateful=True verb='window'",
        "setting:grouper": "partition",
        "setting:more": "{'x': [3], 'y': [1, 2]}",
        "setting:tasks": "4",
    }
