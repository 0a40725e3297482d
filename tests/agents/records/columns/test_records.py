"""Rows are the same rows whether they came as objects or in columns, in whatever order their lists and buffers are asked for."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.columns.records import Records
from headgate.agents.records.kafka.spans import packed_headers
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import packed
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.agents.records.values.record import Record
from headgate.agents.records.values.serdes import text

Row = tuple[dict[str, Any], int, bytes | None, list[tuple[str, bytes | None]], int, int]
"""Value, time, key, headers, offset and place."""
ROWS = st.lists(
    st.tuples(
        st.fixed_dictionaries({"n": st.one_of(st.none(), st.integers(-9, 9)), "s": st.text("ab", max_size=2)}),
        st.integers(0, 99),
        st.one_of(st.none(), st.sampled_from([b"k", b"l"])),
        st.lists(st.tuples(st.sampled_from("xy"), st.one_of(st.none(), st.binary(max_size=1))), max_size=2),
    ),
    max_size=6,
)


def numbered(rows: list[Any]) -> list[Row]:
    return [(*row, 100 + 2 * at, at) for at, row in enumerate(rows)]


def of_objects(rows: list[Row], keys: bool, headers: bool, offsets: bool) -> Records:
    return Records(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows] if keys else None,
        [row[3] for row in rows] if headers else None,
        [row[4] for row in rows] if offsets else None,
        key_serde=text(),
        places=[row[5] for row in rows],
    )


def of_vectors(rows: list[Row], keys: bool, headers: bool, offsets: bool) -> Records:
    return Records.of_vectors(
        {
            "n": Vector.of("int64", [row[0]["n"] for row in rows]),
            "s": Vector.of("text", [row[0]["s"] for row in rows]),
        },
        array("q", [row[1] for row in rows]),
        key_spans=packed([row[2] for row in rows]) if keys else None,
        key_serde=text(),
        header_spans=packed_headers([row[3] for row in rows]) if headers else None,
        positions=[row[4] for row in rows] if offsets else None,
        places=[row[5] for row in rows],
    )


def in_columns(rows: Records, _: list[bool]) -> Records:
    values = rows.values
    kinds = {"n": "int64", "s": "text"}
    return rows.with_vectors({name: Vector.of(kind, [one[name] for one in values]) for name, kind in kinds.items()})


def selected(rows: Records, keep: list[bool]) -> Records:
    if rows.vectors is None:
        return rows.filtered(keep)
    return rows.kept(array("q", [row for row, kept in zip(rows.indexes(), keep, strict=True) if kept]))


def twice(rows: list[Row], keep: list[bool]) -> list[Row]:
    return [row for row, kept in zip(rows, keep, strict=True) for _ in range(1 + kept)]


Step = tuple[Callable[[Records, list[bool]], Records], Callable[[list[Row], list[bool]], list[Row]]]
STEPS: dict[str, Step] = {
    "filtered": (lambda r, k: r.filtered(k), lambda m, k: [row for row, kept in zip(m, k, strict=True) if kept]),
    "selected": (selected, lambda m, k: [row for row, kept in zip(m, k, strict=True) if kept]),
    "at": (lambda r, k: r.at([len(k) - 1, 0] if k else []), lambda m, k: [m[-1], m[0]] if k else []),
    "repeated": (lambda r, k: r.repeated([1 + one for one in k]), twice),
    "columns": (in_columns, lambda m, _: m),
    "objects": (lambda r, _: r.of_columns(["n", "s"]), lambda m, _: m),
    "values": (lambda r, _: r.with_values(r.values), lambda m, _: m),
}  # fmt: skip
ASPECTS: dict[str, Callable[[Records], Any]] = {
    "values": lambda r: r.values,
    "timestamps": lambda r: r.timestamps,
    "keys": lambda r: r.keys,
    "headers": lambda r: None if r.headers is None else [list(one) for one in r.headers],
    "offsets": lambda r: None if r.offsets is None else list(r.offsets),
    "places": lambda r: None if r.places is None else list(r.places),
    "times": lambda r: longs(r.selected_times()).tolist(),
}


@settings(deadline=None, max_examples=120)
@given(
    rows=ROWS,
    form=st.sampled_from([of_objects, of_vectors]),
    has=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2**12), st.sampled_from(sorted(ASPECTS)))),
)
def test_rows_of_either_form(rows: list[Any], form: Any, has: Any, steps: list[tuple[str, int, str]]) -> None:
    """Every step and every look in between, beside lists of rows."""
    wanted = numbered(rows)
    found = form(wanted, *has)
    for name, bits, look in steps:
        keep = [bool(bits >> at & 1) for at in range(len(wanted))]
        ASPECTS[look](found)  # what has been looked at may have been made, and must not outlive the step
        act, model = STEPS[name]
        before = {aspect: of(found) for aspect, of in ASPECTS.items()}
        made = act(found, keep)
        assert {aspect: of(found) for aspect, of in ASPECTS.items()} == before
        found, wanted = made, model(wanted, keep)[:50]
        found = found.at(list(range(len(wanted)))) if len(found) > 50 else found
    assert len(found) == len(wanted)
    for at, name in enumerate(["values", "timestamps", "keys", "headers", "offsets", "places"]):
        known = (True, True, *has, True)[at]
        assert ASPECTS[name](found) == ([row[at] for row in wanted] if known else None)
    assert ASPECTS["times"](found) == [row[1] for row in wanted]


def test_values_and_results_are_made_when_they_are_asked_for_and_values_once() -> None:
    made: list[str] = []

    def objects() -> list[Any]:
        made.append("objects")
        return [{"n": 1}]

    rows = Records.of_vectors(
        None, array("q", [5]), results=lambda: VectorBatch(("n",), (Vector.of("int64", [1]),), 1), make=objects
    )
    assert (len(rows), rows.results and rows.results.rows(), made) == (1, [{"n": 1}], [])
    assert (rows.values, rows.values, made) == ([{"n": 1}], [{"n": 1}], ["objects"])
    assert rows.with_values([7]).results is None
    some = Records.of_vectors({}, array("q", [1, 2, 3]), make=lambda: ["a", "b", "c"]).kept(array("q", [0, 2]))
    assert (some.values, some.timestamps) == (["a", "c"], [1, 3])


def test_a_column_hides_another_with_its_name_and_values_follow() -> None:
    rows = of_vectors(numbered([({"n": 1, "s": "a"}, 1, None, [])]), False, False, False)
    assert rows.values == [{"n": 1, "s": "a"}]
    assert rows["n"] == [1]
    more = rows.extended({"n": Vector.of("int64", [2]), "m": Vector.of("bool", [True])})
    assert (more["n"], more.values, rows.values) == ([2], [{"n": 2, "s": "a", "m": True}], [{"n": 1, "s": "a"}])


def test_other_columns_are_the_values_whatever_made_the_former_ones() -> None:
    """What would have made the values as objects, or the results for an output, made them without what is new."""
    of_one = Vector.of("int64", [1])
    rows = Records.of_vectors(
        {"n": of_one},
        array("q", [5]),
        results=lambda: VectorBatch(("n",), (of_one,), 1),
        make=lambda: [{"n": 1, "made": True}],
    )
    assert rows.values == [{"n": 1, "made": True}]
    for found, values in (
        (rows.extended({"m": of_one}), [{"n": 1, "m": 1}]),
        (rows.only({"m": of_one}), [{"m": 1}]),
    ):
        assert (found.values, found.results) == (values, None)


def test_records_have_keys_as_user_code_sees_them() -> None:
    rows = of_objects(numbered([({"n": 1, "s": ""}, 7, b"k", [("h", b"v")])]), True, True, True)
    assert list(rows.records()) == [Record("k", {"n": 1, "s": ""}, 7, [("h", b"v")])]
    assert next(rows.with_keys([3]).records()).key == 3
    assert list(Records([1], [2]).records()) == [Record(None, 1, 2, ())]
    assert Records.of(list(rows.records())).keys == ["k"]
    assert rows.without_places().filtered([True]).places is None
    with pytest.raises(Exception, match="text"):
        Records([1], [1], [b"\xff"], key_serde=text()).shown_keys()
    assert repr(rows) == "Records(1 rows of objects)"
    assert repr(of_vectors([], False, False, False)) == "Records(0 rows of columns n, s)"
