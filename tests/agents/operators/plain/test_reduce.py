"""`hg.reduce` begins with the first value and keeps the order of rows: in rows, columns and windows, behind a shuffle, over a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError


class Row(TypedDict):
    k: str
    v: str
    ts: int


def put_together(a: str, b: str) -> str:
    return f"({a}{b})"


BY: dict[str, Callable[[Any], Any]] = {
    "by key": lambda rows: rows.agg(x=hg.reduce("v", put_together)),
    "behind a shuffle": lambda rows: rows.repartition("k").agg(n=hg.count(), x=hg.reduce("v", put_together)),
    "in windows": lambda rows: rows.window(hg.tumbling("1s")).agg(x=hg.reduce("v", put_together)),
}


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("by", BY)
def test_values_are_put_together_in_their_order(by: str, columns: bool) -> None:
    app = hg.App("job")
    rows: Any = app.input("in", serde=hg.json(Row), timestamp="ts")
    BY[by](rows.columns() if columns else rows).to("out")
    with Driver(app) as d:
        for at, v in enumerate("abcd"):
            d.send("in", {"k": "k", "v": v, "ts": at}, key="k")
            if v == "b":
                d.restart()
        d.drain()
        assert d.read("out")[-1].value["x"] == "(((ab)c)d)"


def test_sessions_that_become_one_are_put_together_the_earlier_one_first() -> None:
    app = hg.App("job")
    app.input("in", timestamp="ts").window(hg.session("10s", grace="1m")).agg(x=hg.reduce("v", put_together)).to("out")
    with Driver(app) as d:
        for ts, v in ((0, "a"), (16_000, "b"), (8_000, "c")):
            d.send("in", {"v": v, "ts": ts}, key="k")
        d.drain()
        (one,) = d.read("out")
        assert sorted(one.value["x"].replace("(", "").replace(")", "")) == ["a", "b", "c"]


def test_a_row_whose_values_cannot_be_put_together_is_bad_and_the_others_count() -> None:
    app = hg.App("job", on_error="dead_letter")
    app.input("in").agg(total=hg.reduce("n", lambda a, b: a + b)).to("out")
    with Driver(app) as d:
        d.send_all("in", [hg.Record("k", {"n": n}) for n in (1, "x", 2)])
        assert [one.value for one in d.read("out")] == [{"total": 3}]
        assert [one.offset for one in d.dead_letters()] == [1]


def test_what_is_no_function_of_two_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DeclarationError, match=r"hg\.reduce"):
        hg.reduce("n", lambda a: a)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
