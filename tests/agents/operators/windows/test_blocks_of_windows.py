"""Rows times windows are bounded inside of the window operator: also for rows that a function has multiplied, and for long frames."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.job.types.aggregates import AggregatePlan
from headgate.agents.operators.base.addends import Addends
from headgate.agents.operators.pipeline import letter_bounds
from headgate.agents.operators.windows.closed_windows import listed
from headgate.agents.operators.windows.open_windows import OpenWindows
from headgate.agents.records.columns.window_rows import rows_of_times
from headgate.agents.testing.driver import Driver
from headgate.core.windows import spans
from headgate.core.windows.spans import Spans

NUMBERS = {
    "n": hg.count(),
    "total": hg.sum("amount"),
    "low": hg.min("size"),
    "mean": hg.mean("size"),
}
MOST_PAIRS = 40
WINDOW = hg.hopping("1s", every="100ms", grace="50ms")
WINDOWS: dict[str, Callable[[Any], Any]] = {
    "numbers": lambda of: of.window(WINDOW).agg(**NUMBERS),
    "in order": lambda of: of.window(WINDOW).agg(**NUMBERS, one=hg.first("size"), every=hg.collect("amount")),
    "partial states": lambda of: of.repartition("user", name="by").window(WINDOW).agg(**NUMBERS),
    "behind a shuffle": lambda of: of.repartition("user", name="by").window(WINDOW, late="late").agg(**NUMBERS),
    "early": lambda of: of.window(WINDOW, emit=7).agg(**NUMBERS),
    "late rows": lambda of: of.window(WINDOW, late="late").agg(**NUMBERS),
    "large sums": lambda of: of.window(WINDOW).agg(large=hg.sum("large"), **NUMBERS),
    "kept open": lambda of: of.window(WINDOW, at_end="keep").agg(**NUMBERS),
}


class Order(TypedDict):
    user: str
    amount: float
    size: int
    large: int
    ts: int


def orders(count: int = 160) -> list[hg.Record[Any, Any]]:
    """Their times rise, with some far behind. A sum of few of the large numbers has more than 64 bits."""
    chance = random.Random(1)
    made: list[hg.Record[Any, Any]] = []
    for number in range(count):
        order: Order = {
            "user": chance.choice(["a", "b", "ü", f"c{number}"]),
            "amount": chance.choice([1, 9.5, 10, 0.1]),
            "size": chance.randrange(4),
            "large": chance.choice([2**62, 2**62, 1]),
            "ts": 1_700_000_000_000 + number * 40 - chance.choice([0, 0, 7, 200, 3_000]),
        }
        made.append(hg.Record(order["user"], order, number))
    return made


def outcome(windowed: Callable[[Any], Any], columns: bool, restarted: bool) -> dict[str, Any]:
    """All that a job does with these orders, in letters of half of them."""
    app = hg.App("job")
    read: Any = app.input("orders", serde=hg.json(Order), key_serde=hg.text(), timestamp="ts")
    windowed(read.columns() if columns else read.filter(lambda o: o is not None)).to("out")
    sent = orders()
    with Driver(app) as d:
        d.send_all("orders", sent[:80])
        if restarted:
            d.restart()
        d.send_all("orders", sent[80:])
        open_windows = dict(d.table(next(step.name for step in d.declared.steps if hasattr(step, "window"))).items())
        d.drain()
        return {
            **{topic: d.read(topic) for topic in sorted(d.declared.graph.outputs)},
            "open": open_windows,
            "counters": dict(d.counters),
        }


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pairs of a row and a window stood at once, each time when some were taken. Letters are not cut for them."""
    monkeypatch.setattr(letter_bounds, "most_rows", lambda windows: 10**9)
    found: list[int] = []
    take = OpenWindows.take

    def seen(self: OpenWindows, *words: Any) -> None:
        take(self, *words)
        if self.table is not None:
            found.append(sum(len(part.of.timestamps) for part in self.taken))

    monkeypatch.setattr(OpenWindows, "take", seen)
    return found


@pytest.mark.parametrize(("columns", "restarted"), [(False, True), (True, False)], ids=["rows", "columns"])
@pytest.mark.parametrize("name", WINDOWS)
def test_what_is_taken_in_blocks_is_what_is_taken_at_once(
    name: str, columns: bool, restarted: bool, pairs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results, late rows, early results, what is stored, and counters."""
    wanted = outcome(WINDOWS[name], columns, restarted)
    at_once = max(pairs)
    pairs.clear()
    monkeypatch.setattr(spans, "MOST_PAIRS", MOST_PAIRS)
    found = outcome(WINDOWS[name], columns, restarted)
    assert found == wanted
    assert wanted["out"] or name == "kept open"
    assert max(pairs) <= MOST_PAIRS < at_once


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("arrays", [False, True])
def test_a_commit_in_the_middle_of_a_letter_and_a_letter_that_fails(
    arrays: bool, failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken in blocks is set aside, the windows change meanwhile, and it is taken again; dropped, it leaves no trace."""
    plan = AggregatePlan({"n": hg.count(), "total": hg.sum("v")})
    rows = [[{"v": n * factor} for n in range(30)] for factor in (1, 1000)]
    times = array("q", range(100, 130))

    def states(most: int, *, aside: bool) -> Any:
        monkeypatch.setattr(spans, "MOST_PAIRS", most)
        kept = OpenWindows(Spans(10, 1), plan, None, arrays=arrays)
        step: Any = SimpleNamespace(plan=plan)

        def takes(values: list[Any]) -> None:
            keys = [b"k%d" % (row["v"] % 4) for row in values]
            of = Addends(step, keys, values, times.tolist())
            kept.take_blocks(lambda some: rows_of_times(kept.spans, times, some, 0), of, None, len(values))

        def whole(values: list[Any]) -> None:
            takes(values)
            kept.prepare()
            kept.complete()

        whole(rows[0])
        takes(rows[1])
        assert bool(kept.folding) == (most == MOST_PAIRS)
        if aside:
            set_aside = kept.suspend()
            whole(rows[0])
            kept.resume(set_aside)
        if failed:
            kept.drop()
        else:
            kept.prepare()
            kept.complete()
        assert (kept.taken, kept.folded, kept.fresh, kept.blocks) == ([], {}, {}, [])
        found: Any = {end: kept.open.get(end) for end in kept.open.ends}
        closed = {end: one.results(0, one.count) for end, one in found.items()}
        return {end: sorted(zip(keys, listed(states), strict=True)) for end, (keys, states) in closed.items()}

    for aside in (False, True):
        assert states(MOST_PAIRS, aside=aside) == states(10**9, aside=aside)


def test_a_function_that_multiplies_rows_multiplies_no_pairs(pairs: list[int]) -> None:
    """One record became 4,000 rows, each of them in 1,440 windows: all names of rows stood at once."""
    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts").flat_map(lambda row: [row] * 600)
    rows.window(hg.hopping("1d", every="1m"), name="w").agg(n=hg.count()).to("out")
    with Driver(app) as d:
        d.send("in", {"k": "a", "ts": 3_600_000})
        d.end()
        found = d.read("out")
    assert max(pairs) <= spans.MOST_PAIRS
    assert [one.value["n"] for one in found] == [600] * 1_440
