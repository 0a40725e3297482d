"""Expressions over vectors give what the plain way gives for lists, and refuse the same records."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.columns.expressions import Computation
from headgate.agents.records.columns.records import Records
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.vectors import Vector
from headgate.agents.records.native import chosen
from headgate.core.columns.evaluate import NotComputable
from headgate.core.columns.expressions import DEEPEST, Expression, coalesce, col, concat, when
from headgate.core.columns.schema import BOOL, INT, TEXT, ColumnSchema, ColumnSpec

from .. import trees

WAYS = ["compiled", "plain"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of computing."""
    if request.param == "plain":
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    elif chosen.COMPILED is None:
        pytest.skip("the compiled part is not built here")
    return request.param


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**63))
def test_the_compiled_way_agrees_with_the_plain_one(seed: int) -> None:
    """Values, nulls, the record that is refused and why; and the rows that a condition keeps."""
    chance = random.Random(seed)
    of = trees.chunk(chance)
    for type_ in trees.KINDS:
        node = trees.tree(chance, type_)
        computation = Computation(node, trees.SCHEMA)
        wanted = trees.plainly(node, of)
        assert trees.computed(computation, of) == wanted, str(node)
        if type_ == BOOL:
            rows = of.indexes()
            kept = wanted if isinstance(wanted, tuple) else [rows[i] for i, one in enumerate(wanted) if one == "True"]
            assert trees.kept(computation, of) == kept


def chunk_of(picked: list[int] | None = None, **given_: list[Any]) -> tuple[Records, ColumnSchema]:
    """A chunk of whole numbers and text."""
    specs = [ColumnSpec(name, TEXT if name[0] == "t" else INT, optional=True) for name in given_]
    vectors = {one.name: Vector.of(one.type, given_[one.name]) for one in specs}
    size = len(next(iter(given_.values())))
    made = Records.of_vectors(vectors, array("q", range(size)))
    return made if picked is None else made.kept(array("q", picked)), ColumnSchema(tuple(specs))


@pytest.mark.parametrize(
    ("expression", "given_", "wanted"),
    [
        (col("a") * 2, {"a": [1, None, 3]}, [2, None, 6]),
        (col("a").cast(str), {"a": [-(2**63), None, 0]}, ["-9223372036854775808", None, "0"]),
        (col("a").cast(float).cast(str), {"a": [1, None, 3]}, ["1.0", None, "3.0"]),
        (col("t").cast(float) + 1, {"t": ["1e1", None, "0.5"]}, [11.0, None, 1.5]),
        ((col("a") > 1) & (col("t") == "x"), {"a": [1, None, 3], "t": ["x", "y", "x"]}, [False, False, True]),
        (col("t").is_in(["b", "ä", ""]), {"t": ["", None, "ab"]}, [True, None, False]),
        ((col("a") == 1).is_in([True, False]), {"a": [1, None, 3]}, [True, None, True]),
        (col("t").contains("aab"), {"t": ["aaab", None, "aa"]}, [True, None, False]),
        (when(col("a") > 1).then(6 // (col("a") - 1)).otherwise(0), {"a": [1, None, 3]}, [0, 0, 3]),
        (when(col("t") != "x").then(col("t").cast(float)), {"t": ["x", None, "2"]}, [None, None, 2.0]),
        (when(col("t") == "x").then(0.5).otherwise(col("t").cast(float)), {"t": ["x", None, "2"]}, [0.5, None, 2.0]),
        (
            col("t").strptime("%Y%m%d").strftime("%d/%m"),
            {"t": ["20240229", None, "19700101"]},
            ["29/02", None, "01/01"],
        ),
        (coalesce(col("a"), col("t").cast(float)), {"a": [1, None, 3], "t": ["x", "2", "y"]}, [1.0, 2.0, 3.0]),
    ],
)
@pytest.mark.usefixtures("way")
def test_what_an_expression_gives(expression: Expression, given_: dict[str, list[Any]], wanted: list[Any]) -> None:
    """For all rows, and for some of them."""
    whole, schema = chunk_of(**given_)
    some, _ = chunk_of([0, 2], **given_)
    computation = Computation(expression.node, schema)
    assert computation.vector(whole).values() == wanted
    found = computation.vector(some).values()
    assert [found[0], found[2]] == [wanted[0], wanted[2]]


@pytest.mark.usefixtures("way")
def test_rows_that_are_not_selected_are_never_an_error() -> None:
    """They were filtered out so that nothing is computed of them."""
    some, schema = chunk_of([0, 2], a=[4, 0, 2])
    assert longs(Computation((8 // col("a") > 2).node, schema).picked(some)).tolist() == [2]


@pytest.mark.parametrize(
    ("expression", "index", "told"),
    [
        (col("a") * 2**62, 2, r"\(a \* 4611686018427387904\) has more than 64 bits: 1383"),
        (100 // (col("a") - 3), 2, r"\(100 // \(a - 3\)\): 100 is divided by zero"),
        (col("t").cast(int), 1, "'x' is no int64"),
        ((col("a") // 0) + col("t").cast(float), 0, "1 is divided by zero"),
        (when(col("a") < 3).then(col("t").cast(float)), 1, "'x' is no float64"),
        (when(col("a") < 1).then(0).otherwise(8 // (col("a") - 3)), 2, "8 is divided by zero"),
    ],
)
@pytest.mark.usefixtures("way")
def test_an_error_is_of_the_first_selected_record(expression: Expression, index: int, told: str) -> None:
    """The index counts selected rows, and the part that is computed first is told first."""
    some, schema = chunk_of([0, 2, 3], a=[1, 7, 0, 3], t=["1", "?", "x", "y"])
    with pytest.raises(NotComputable, match=told) as found:
        Computation(expression.node, schema).vector(some)
    assert found.value.index == index


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.usefixtures("way")
def test_the_deepest_expression_is_computed(left: bool) -> None:
    """Whatever walks its tree has room for it, on the left and on the right."""
    some, schema = chunk_of(None, a=[0, 198, 199, 200])

    def longer(one: Expression, n: int) -> Expression:
        return one | (col("a") == n) if left else (col("a") == n) | one

    deep = reduce(longer, range(1, DEEPEST), col("a") == 0)
    assert longs(Computation(deep.node, schema).picked(some)).tolist() == [0, 1, 2]


def test_what_does_not_fit_is_refused() -> None:
    """Nothing outside of a buffer is read, whoever calls."""
    built = chosen.COMPILED
    if built is None:
        pytest.skip("the compiled part is not built here")
    load, add = (0, 0, 0, 0.0, None), (6, 0, 0, 0.0, None)
    refused: list[Callable[[], Any]] = [
        lambda: built.program([add], 0),
        lambda: built.program([load], 0),
        lambda: built.program([load, load], 1),
        lambda: built.program([(99, 0, 0, 0.0, None)], 1),
        lambda: built.compute(built.program([load], 1), [(0, bytes(8), None, None)], 2, None, False),
        lambda: built.compute(built.program([load], 1), [(1, bytes(16), None, None)], 2, None, False),
        lambda: built.compute(built.program([load], 1), [(0, bytes(16), None, None)], 2, array("q", [1, 0]), False),
        lambda: built.compute(built.program([load], 1), [(0, bytes(16), None, None)], 2, array("q", [2]), False),
        lambda: built.compute(built.program([load], 1), [(0, bytes(16), None, None)], 2, None, True),
    ]
    for one in refused:
        with pytest.raises(ValueError, match=r"program|rows|shorter|columns|column"):
            one()


@pytest.mark.parametrize("count", [1, 700])
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    ("expression", "first"),
    [
        (col("t").cast(int) + 8 // col("a"), "x"),
        (concat(col("t"), (8 // col("a")).cast(str)).cast(float), "zero"),
    ],
)
def test_all_rows_without_a_value_are_named(
    expression: Expression, first: str, count: int, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of rows, of the selected ones alone, each with its own reason."""
    if plain:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    schema = ColumnSchema((ColumnSpec("a", "int64"), ColumnSpec("t", "text")))
    numbers, texts = [n % 3 for n in range(count)], [("7", "x")[n % 5 == 1] for n in range(count)]
    vectors = {"a": Vector.of("int64", numbers), "t": Vector.of("text", texts)}
    some = array("q", [n for n in range(count) if n % 4 != 2])
    chunk = Records.of_vectors(vectors, array("q", range(count)), picked=some)
    computation = Computation(expression.node, schema)
    with pytest.raises(NotComputable) as found:
        computation.vector(chunk)
    wanted = {
        place: "x" if texts[row] == "x" and (first == "x" or numbers[row]) else "zero"
        for place, row in enumerate(some)
        if texts[row] == "x" or not numbers[row]
    }
    assert list(found.value.all) == list(wanted)
    assert all(wanted[place] in str(one) for place, one in found.value.all.items())
    assert {place: one.index for place, one in found.value.all.items()} == {place: place for place in wanted}
