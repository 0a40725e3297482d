"""Sliding windows in a task: what comes out, compared with a plain reading of the rule over all rows."""

from __future__ import annotations

import random
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver

from ...forms import Form

SIZE = 100


class Row(TypedDict):
    k: str
    ts: int
    x: int


def job(window: hg.Window, form: Form = Form.ROWS, late: str | None = None, at_end: Any = None, **aggs: Any) -> hg.App:
    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts", earliest=None)
    made = rows.window(window, late=late, at_end=at_end, name="w").agg(**(aggs or {"n": hg.count(), "s": hg.sum("x")}))
    made.to("out")
    return app


def row(ts: int, k: str = "a", x: int = 1) -> dict[str, Any]:
    return {"k": k, "ts": ts, "x": x}


def results(d: Driver) -> list[tuple[Any, ...]]:
    """Key, time, fields of the aggregates, what closed it; the window is checked here."""
    found: list[tuple[Any, ...]] = []
    for one in d.read("out"):
        value = dict(one.value)
        start, end, by = (value.pop(name) for name in ("window_start", "window_end", "closed_by"))
        assert (start, end) == (one.timestamp - SIZE + 1, one.timestamp + 1)
        found.append((one.key, one.timestamp, *value.values(), by))
    return found


def expected(rows: list[dict[str, Any]], size: int = SIZE) -> list[tuple[Any, ...]]:
    """Each row with those of its key in the time before it."""
    found: list[tuple[Any, ...]] = []
    for one in sorted(rows, key=lambda one: (one["ts"], one["k"].encode())):
        inside = [two["x"] for two in rows if two["k"] == one["k"] and one["ts"] - size < two["ts"] <= one["ts"]]
        found.append((one["k"], one["ts"], len(inside), sum(inside)))
    return found


def test_each_row_has_the_time_before_it(form: Form) -> None:
    """Itself, those of its time, and none that is just the size away."""
    with Driver(job(hg.sliding("100ms"), form)) as d:
        d.send_all(
            "in", [row(1000, x=1), row(1050, x=2), row(1099, x=4), row(1100, x=8), row(1100, x=16), row(5000, "b")]
        )
        d.advance("1s")
        assert results(d) == [
            ("a", 1000, 1, 1, "watermark"),
            ("a", 1050, 2, 3, "watermark"),
            ("a", 1099, 3, 7, "watermark"),
            ("a", 1100, 4, 30, "watermark"),
            ("a", 1100, 4, 30, "watermark"),
        ]
        d.drain()
        assert results(d) == [("b", 5000, 1, 1, "drain")]


@pytest.mark.parametrize("seed", range(6))
def test_random_rows_have_what_the_plain_reading_gives(form: Form, seed: int) -> None:
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    with Driver(job(hg.sliding("100ms", grace="300ms"), form)) as d:
        for number in range(12):
            some = [
                row(1000 + number * 97 - chance.randrange(300), chance.choice(["a", "b", "ü"]), chance.randrange(100))
                for _ in range(chance.randrange(60))
            ]
            rows += some
            d.send_all("in", some)
            d.advance("1s")
            if chance.random() < 0.4:
                d.restart()
        d.drain()
        assert [one[:-1] for one in results(d)] == expected(rows)
        assert d.counters.get("late_rows", 0) == 0
