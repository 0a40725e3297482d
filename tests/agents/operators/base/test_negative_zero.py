"""-0.0 is one number with 0.0 and another text: rows, typed rows and columns, compiled or not, give the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import headgate as hg
from headgate.agents.records.native import chosen


class Row(msgspec.Struct):
    k: str
    a: float
    ts: int


def result(kind: str, values: list[str]) -> list[tuple[Any, ...]]:
    """Keys and values, floats as they are printed."""
    app = hg.App("j")
    typed = None if kind == "rows" else hg.json(Row)
    rows = app.input("in", timestamp="ts") if typed is None else app.input("in", serde=typed, timestamp="ts")
    if kind == "columns":
        rows = rows.columns()
    sums = {"s": hg.sum("a"), "lo": hg.min("a"), "hi": hg.max("a"), "m": hg.mean("a")}
    rows.repartition("k").window(hg.tumbling("1s")).agg(**sums).to("out")
    with hg.testing.Driver(app) as driver:
        for value in values:
            driver.send("in", b'{"k":"x","a":%b,"ts":1}' % value.encode())
        driver.drain()
        return [(one.key, repr(one.value)) for one in driver.read("out")]


@pytest.mark.parametrize("values", [["-0.0"], ["-0.0", "0.0"], ["0.0", "-0.0"], ["-0.0", "-0.0"], ["-0e3", "-1e-400"]])
def test_every_path_gives_the_same(values: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [result(kind, values) for kind in ("rows", "typed", "columns")]
    monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    found += [result(kind, values) for kind in ("rows", "typed", "columns")]
    assert len(found[0]) == 1
    assert found == [found[0]] * 6
