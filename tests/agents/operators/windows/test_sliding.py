"""Sliding windows in a task: what comes out, compared with a plain reading of the rule over all rows; and what is stored."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.derive.named_fields import on_columns
from headgate.agents.job.steps.keyed import WindowStep
from headgate.agents.operators.windows import open_sliding, windowed
from headgate.agents.operators.windows.open_sliding import OpenSliding
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError, HeadgateError
from headgate.core.windows.sliding import end_of

from ...forms import Form

SIZE = 100
LONG_AGO = -(10**12)


class Row(TypedDict):
    k: str
    ts: int
    x: int


Rows = list[dict[str, Any]]


def job(
    window: hg.Window,
    form: Form = Form.ROWS,
    *,
    late: str | None = None,
    at_end: Any = None,
    on_error: Any = None,
    lag: str = "0s",
    **aggregates: Any,
) -> hg.App:
    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts", max_out_of_order=lag)
    made = rows.window(window, late=late, at_end=at_end, name="w")
    made.agg(on_error=on_error, **(aggregates or {"n": hg.count(), "s": hg.sum("x")})).to("out")
    return app


def row(ts: int, k: str = "a", x: Any = 1) -> dict[str, Any]:
    return {"k": k, "ts": ts, "x": x}


def results(d: Driver, size: int = SIZE) -> list[tuple[Any, ...]]:
    """Key, time, fields of the aggregates, what closed it; the window is checked here."""
    found: list[tuple[Any, ...]] = []
    for one in d.read("out"):
        value = dict(one.value)
        start, end, by = (value.pop(name) for name in ("window_start", "window_end", "closed_by"))
        assert (start, end) == (one.timestamp - size + 1, one.timestamp + 1)
        found.append((one.key, one.timestamp, *value.values(), by))
    return found


def passed(d: Driver, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Send rows in one chunk; what came of it when time has been told."""
    d.send_all("in", rows)
    d.advance("1s")
    return results(d)


def in_windows(rows: Rows, size: int = SIZE) -> Iterator[tuple[dict[str, Any], Rows]]:
    """Each row, in the order of results, with those of its key in the time before it, in order."""
    in_order = sorted(rows, key=lambda one: (one["ts"], one["k"].encode()))
    for one in in_order:
        yield one, [two for two in in_order if two["k"] == one["k"] and one["ts"] - size < two["ts"] <= one["ts"]]


def counted(rows: Rows, size: int = SIZE) -> list[tuple[Any, ...]]:
    return [(one["k"], one["ts"], len(some), sum(two["x"] for two in some)) for one, some in in_windows(rows, size)]


def stored(d: Driver) -> dict[Any, Any]:
    """The rows of the table as they are stored."""
    return dict(found for part in d.table("w")._parts.values() for found in part.range())


def rows_kept(d: Driver) -> int:
    """How many rows the table holds."""
    return sum(len(block[2]) for slot, block in stored(d).items() if isinstance(slot, int))


def operator(d: Driver) -> windowed.WindowOp:
    [task] = d.tasks.values()
    [found] = [op for op in task.site.pipeline.operators if isinstance(op, windowed.WindowOp)]
    return found


# --------------------------------------------------------------------------------------------------------------- results


def test_each_row_has_the_time_before_it(form: Form) -> None:
    """Itself, those of its time, and none that is just the size away."""
    with Driver(job(hg.sliding("100ms"), form)) as d:
        some = [row(1000, x=1), row(1050, x=2), row(1099, x=4), row(1100, x=8), row(1100, x=16), row(5000, "b")]
        assert passed(d, *some) == [
            ("a", 1000, 1, 1, "watermark"),
            ("a", 1050, 2, 3, "watermark"),
            ("a", 1099, 3, 7, "watermark"),
            ("a", 1100, 4, 30, "watermark"),
            ("a", 1100, 4, 30, "watermark"),
        ]
        d.drain()
        assert results(d) == [("b", 5000, 1, 1, "drain")]


def test_a_result_comes_when_no_row_of_its_time_is_expected_any_more(form: Form) -> None:
    """Not a millisecond before; results stand in the order of times, then of the keys' bytes, then of arrival."""
    with Driver(job(hg.sliding("100ms", grace="20ms"), form)) as d:
        assert passed(d, row(1005, "b"), row(1005, "a"), row(1025)) == []
        assert passed(d, row(1006, "b", 5), row(1005, "b", 3)) == []
        assert passed(d, row(1026)) == [
            ("a", 1005, 1, 1, "watermark"),
            ("b", 1005, 2, 4, "watermark"),
            ("b", 1005, 2, 4, "watermark"),
        ]
        assert passed(d, row(1027)) == [("b", 1006, 3, 9, "watermark")]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_any_chunks_any_restarts(seed: int, monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    """Against a plain recount: a row counts unless its own window was closed when it came. In small steps, over panes and slices."""
    monkeypatch.setattr(windowed, "STEP_RESULTS", 5)
    monkeypatch.setattr(open_sliding, "STEP_SLICES", 2)
    chance = random.Random(seed)
    size, grace = chance.choice([1_000, 7_000]), chance.choice([0, 500, 3_000])
    app = job(hg.sliding(size / 1000, grace=grace / 1000), form, late="late", lag="2s")
    taken: Rows = []
    late: list[int] = []
    heard, time = LONG_AGO, 20_000
    with Driver(app) as d:
        for number in range(60):
            time += chance.choice([0, 3, 300, 900, 900, 4_000])
            chunk = [
                row(time - chance.choice([0, 0, 1, 100, 1_999, 2_000, 5_000, 9_000]), chance.choice("abc"), number * n)
                for n in range(chance.randint(1, 9))
            ]
            for one in chunk:
                is_late = end_of(one["ts"]) + grace <= heard
                (late.append(one["ts"]) if is_late else taken.append(one))
            d.send_all("in", chunk)
            d.advance("1s")
            heard = max(heard, max(one["ts"] for one in chunk) - 2_000)
            if chance.random() < 0.2:
                d.restart()
        d.drain()
        assert [one[:-1] for one in results(d, size)] == counted(taken, size)
        assert [one.value["ts"] for one in d.read("late")] == late
        assert late
        assert d.counters["late_for_some_windows"] == 0


def joined(a: list[int], b: list[int]) -> list[int]:
    """As a user may write it: it changes what it gets."""
    a.extend(b)
    return a


AGGREGATES: dict[str, tuple[Callable[[], hg.Aggregate], Callable[[Rows], Any]]] = {
    "count": (hg.count, len),
    "sum": (lambda: hg.sum("x"), lambda rows: sum(one["x"] for one in rows)),
    "min": (lambda: hg.min("x"), lambda rows: min(one["x"] for one in rows)),
    "max": (lambda: hg.max("x"), lambda rows: max(one["x"] for one in rows)),
    "mean": (lambda: hg.mean("x"), lambda rows: sum(one["x"] for one in rows) / len(rows)),
    "first": (lambda: hg.first("x"), lambda rows: rows[0]["x"]),
    "collect": (lambda: hg.collect("x"), lambda rows: [one["x"] for one in rows]),
    "best": (
        lambda: hg.arg_max("ts", by="x"),
        lambda rows: min(one["ts"] for one in rows if one["x"] == max(two["x"] for two in rows)),
    ),
    "top": (lambda: hg.top(3, "x", by="x"), lambda rows: sorted((one["x"] for one in rows), reverse=True)[:3]),
    "distinct": (lambda: hg.count_distinct("x"), lambda rows: len({one["x"] for one in rows})),
    "median": (
        lambda: hg.quantile("x", 0.5),
        lambda rows: pytest.approx(sorted(one["x"] for one in rows)[(len(rows) - 1) // 2], rel=0.02),
    ),
    "reduce": (
        lambda: hg.reduce(lambda one: [one["x"]], list.__add__),
        lambda rows: [one["x"] for one in rows],
    ),
    "own": (
        lambda: hg.aggregate(list, lambda state, one: [*state, one["x"]], joined, result=len),
        len,
    ),
    "few": (lambda: hg.count(where=lambda one: one["x"] > 5), lambda rows: sum(one["x"] > 5 for one in rows)),
    "few_sum": (
        lambda: hg.sum("x", where=lambda one: one["x"] > 5),
        lambda rows: sum(one["x"] for one in rows if one["x"] > 5),
    ),
    "few_last": (
        lambda: hg.last("x", where=lambda one: one["x"] > 5),
        lambda rows: next((one["x"] for one in reversed(rows) if one["x"] > 5), None),
    ),
    "few_own": (
        lambda: hg.aggregate(
            list, lambda state, one: [*state, one["x"]], joined, result=len, where=lambda one: one["x"] > 5
        ),
        lambda rows: sum(one["x"] > 5 for one in rows),
    ),
}


@pytest.mark.parametrize("name", AGGREGATES)
def test_all_aggregates_are_those_of_the_rows_in_the_window(name: str) -> None:
    """In the order of time, and of arrival where times are equal; over restarts, which store and load states."""
    aggregate, plainly = AGGREGATES[name]
    chance = random.Random(name)
    rows = [row(1000 + chance.randrange(1500), chance.choice("ab"), chance.randrange(10)) for _ in range(300)]
    with Driver(job(hg.sliding("100ms", grace="2s"), it=aggregate(), n=hg.count())) as d:
        for start in range(0, 300, 60):
            d.send_all("in", rows[start : start + 60])
            d.advance("1s")
            d.restart()
        d.drain()
        wanted = [(one["k"], one["ts"], plainly(some), len(some), "drain") for one, some in in_windows(rows)]
        assert results(d) == wanted


def test_the_last_of_a_window_is_the_row_itself(form: Form) -> None:
    """Also where others have its time: so results say which row they are of."""
    with Driver(job(hg.sliding("100ms"), form, n=hg.count(), own=hg.last(["x", "ts"]))) as d:
        assert passed(d, row(1000, x=7), row(1000, x=8), row(1010, x=9), row(1200)) == [
            ("a", 1000, 2, {"x": 7, "ts": 1000}, "watermark"),
            ("a", 1000, 2, {"x": 8, "ts": 1000}, "watermark"),
            ("a", 1010, 3, {"x": 9, "ts": 1010}, "watermark"),
        ]


def test_conditions_of_columns_are_those_of_rows() -> None:
    some = hg.col("x") > 5
    aggregates = {"n": hg.count(where=some), "s": hg.sum("x", where=some), "m": hg.mean("x"), "l": hg.last("x")}
    chance = random.Random(5)
    rows = [row(1000 + chance.randrange(900), chance.choice("ab"), chance.randrange(10)) for _ in range(200)]
    found: list[Any] = []
    for form in (Form.TYPED, Form.COLUMNS):
        with Driver(job(hg.sliding("100ms", grace="2s"), form, **aggregates)) as d:
            d.send_all("in", rows)
            d.advance("1s")
            d.drain()
            found.append(results(d))
    assert found[0] == found[1]
    assert [one[2] for one in found[0]] == [sum(two["x"] > 5 for two in some) for _, some in in_windows(rows)]


def test_results_go_on_as_columns() -> None:
    """The fields of the window are columns as well."""
    app = hg.App("job")
    rows: Any = app.input("in", serde=hg.json(Row), key="k", timestamp="ts").columns()
    made = rows.repartition("k").window(hg.sliding("100ms")).agg(n=hg.count(), s=hg.sum("x")).columns()
    made.filter(hg.col("n") > 1).with_columns(long=hg.col("window_end") - hg.col("window_start")).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(1000), row(1050, x=4), row(1060, "b")])
        d.drain()
        assert [one.value for one in d.read("out")] == [
            {"n": 2, "s": 5, "window_start": 951, "window_end": 1051, "closed_by": "watermark", "long": 100}
        ]


def test_a_plan_says_that_columns_become_rows() -> None:
    declared = Declared(job(hg.sliding("100ms"), Form.COLUMNS))
    assert {step.why_rows() for step, takes in on_columns(declared.steps) if takes} >= {"a sliding window is of rows"}


def test_a_window_behind_sliding_windows_misses_nothing(form: Form) -> None:
    """Results are events of the time of their rows, and none is late behind them."""
    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts")
    made = rows.window(hg.sliding("100ms", grace="50ms")).agg(n=hg.count())
    made.window(hg.tumbling("1s"), name="w").agg(rows=hg.count(), most=hg.max("n")).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(n * 10) for n in range(300)])
        d.advance("1s")
        found = [(one.value["window_start"], one.value["rows"], one.value["most"]) for one in d.read("out")]
        assert found == [(0, 100, 10), (1000, 100, 10)]
        d.drain()
        assert [one.value["rows"] for one in d.read("out")] == [100]
        assert d.counters["late_rows"] == 0


def test_the_clock_closes_windows_of_processing_time(form: Form) -> None:
    """Whatever the rows' own times are: a row counts when it is processed, and its result comes when the clock goes on."""
    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts", max_future=None)
    rows.window(hg.sliding("10s", time="processing"), name="w").agg(n=hg.count()).to("out")
    with Driver(app, now=1_000_000) as d:
        d.send_all("in", [row(5), row(99_000_000), row(7, "b")])
        d.advance("3s")
        assert results(d, 10_000) == [("a", 1_000_000, 2, "clock")] * 2 + [("b", 1_000_000, 1, "clock")]
        d.restart()
        d.send("in", row(1))
        d.advance("6s")
        assert [one[2:] for one in results(d, 10_000)] == [(3, "clock")]
        d.advance("10s")
        d.send("in", row(1))
        d.drain()
        assert [one[2] for one in results(d, 10_000)] == [1]
        assert d.counters["late_rows"] == 0


def test_the_policy_decides_about_a_row_whose_state_cannot_be_stored() -> None:
    """It fails when it comes, with its record."""
    custom = hg.aggregate(list, lambda s, one: {1} if one["x"] == 7 else [*s, one["x"]], list.__add__, result=len)
    with Driver(job(hg.sliding("1s"), on_error="dead_letter", n=custom)) as d:
        d.send_all("in", [row(1, "a", 1), row(2, "b", 7), row(3, "a", 2)])
        d.drain()
        assert [(one.key, one.value["n"]) for one in d.read("out")] == [("a", 1), ("a", 2)]
        (dead,) = d.dead_letters()
        assert (dead.offset, dead.step) == (1, "w")
        assert "keep states in plain values" in dead.exception


# ----------------------------------------------------------------------------------------------------- what is kept, and ends


def test_a_row_is_kept_as_long_as_a_window_may_hold_it(form: Form) -> None:
    """In the table up to an eighth of a window longer, since it goes with its slice; a key without rows takes nothing."""
    with Driver(job(hg.sliding("8s"), form)) as d:
        d.send_all("in", [row(1000 + 100 * n, f"k{n}") for n in range(80)])
        d.advance("1s")
        kept = operator(d).kept
        assert isinstance(kept, OpenSliding)
        assert (rows_kept(d), len(kept.out), kept.counts()) == (80, 79, (1, 80, 8901))
        d.send("in", row(14_000))
        d.advance("1s")
        assert (rows_kept(d), len(kept.out), kept.weight) == (31, 29, 31 * open_sliding.ROW_BYTES)
        d.send("in", row(99_990))
        d.advance("1s")
        assert (rows_kept(d), len(kept.out), kept.counts()) == (1, 0, (1, 1, 99_991))
        d.restart()
        assert operator(d).kept.counts() == (1, 1, 99_991)
        d.drain()
        assert set(stored(d)) == {"floor", "grace"}


@pytest.mark.parametrize("cause", ["end", "drain"])
def test_an_end_gives_all_results_and_the_next_run_begins_with_nothing(cause: str, form: Form) -> None:
    with Driver(job(hg.sliding("100ms"), form, late="late")) as d:
        assert passed(d, row(1000), row(1050)) == [("a", 1000, 1, 1, "watermark")]
        d.drain() if cause == "drain" else d.end()
        assert results(d) == [("a", 1050, 2, 2, cause)]
        d.restart()
        assert passed(d, row(1049), row(1060, x=5)) == []
        d.restart()
        d.drain()
        assert results(d) == [("a", 1060, 1, 5, "drain")]
        assert [one.value["ts"] for one in d.read("late")] == [1049]


@pytest.mark.parametrize("over", ["end", "drain"])
def test_what_an_end_leaves_open_goes_on_in_the_next_run(over: str, form: Form) -> None:
    """Rows whose results are out are in the windows of the next run, too."""
    with Driver(job(hg.sliding("100ms"), form, at_end="keep")) as d:
        assert passed(d, row(1000, x=2), row(1050, x=3)) == [("a", 1000, 1, 2, "watermark")]
        d.drain() if over == "drain" else d.end()
        d.restart()
        assert results(d) == []
        assert passed(d, row(1099, x=7), row(1200)) == [("a", 1050, 2, 5, "watermark"), ("a", 1099, 3, 12, "watermark")]


def test_a_crash_in_the_middle_of_a_closing_repeats_nothing(monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    """Each step is its own transaction: what it gave is not given again, and what it holds is what it was."""
    monkeypatch.setattr(windowed, "STEP_RESULTS", 7)
    seen: list[int] = []

    def fails(value: Any) -> Any:
        if len(seen) == 40:
            seen.append(0)
            raise ValueError("once")
        seen.append(0)
        return value

    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts").window(hg.sliding("100ms"), name="w")
    rows.agg(n=hg.count(), s=hg.sum("x")).map(fails).to("out")
    some = [row(1000 + 3 * (n // 2), "ab"[n % 3 % 2], n) for n in range(120)]
    with Driver(app) as d:
        with pytest.raises(HeadgateError, match="once"):
            passed(d, *some, row(2000))
        first = results(d)
        assert 0 < len(first) <= 40
        d.restart()
        d.advance("1s")
        assert [one[:-1] for one in first + results(d)] == counted(some)


def test_a_drain_that_a_crash_interrupts_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose results are out are still in the windows of the others, though no watermark has come."""
    monkeypatch.setattr(windowed, "STEP_RESULTS", 3)
    table = tables().table("w")
    kept = OpenSliding(step(), table, floored=False)
    kept.take([b"a"] * 9, [*range(9)], [{"x": 1}] * 9, LONG_AGO)
    letter(kept, table)
    found = kept.close(None, 3)
    assert (found.states, found.more) == ([[1, 1], [2, 2], [3, 3]], True)
    letter(kept, table)
    again = OpenSliding(step(), table, floored=False)
    assert again.counts() == (6, 9, 4)
    found = again.close(None, 10)
    assert (found.states, found.more) == ([[n, n] for n in range(4, 10)], False)
    letter(again, table)
    assert dict(table.range()) == {}


# ----------------------------------------------------------------------------------------------------- letters and failures


def tables(**aggregates: Any) -> Any:
    return open_tables(MemoryStore(), Declared(job(hg.sliding("100ms"), **aggregates)), clock=lambda: 0).tables


def step(**aggregates: Any) -> WindowStep:
    return next(one for one in job(hg.sliding("100ms"), **aggregates).steps if isinstance(one, WindowStep))


def letter(kept: OpenSliding, table: Any, *, commits: bool = True) -> None:
    kept.prepare()
    kept.complete()
    if commits:
        kept.seal()
    table.complete()


def test_a_commit_in_the_middle_of_a_letter_sees_nothing_of_it() -> None:
    """What it has taken, and given out, counts once it is complete, whatever comes meanwhile; or is forgotten if it fails."""
    table = tables().table("w")
    kept = OpenSliding(step(), table, floored=False)
    kept.take([b"a", b"a"], [10, 20], [{"x": 1}, {"x": 2}], LONG_AGO)
    letter(kept, table)
    assert kept.close(21, 10).states == [[1, 1], [2, 3]]
    kept.take([b"a"], [30], [{"x": 4}], 21)
    aside = kept.suspend()
    assert kept.counts().windows == 2
    kept.take([b"a"], [40], [{"x": 8}], 21)
    letter(kept, table)
    kept.resume(aside)
    assert kept.awaits(31)
    letter(kept, table)
    assert kept.counts() == (2, 4, 31)
    assert kept.close(None, 10).states == [[3, 7], [4, 15]]
    kept.drop()
    assert kept.counts() == (2, 4, 31)
    assert kept.close(None, 10).states == [[3, 7], [4, 15]]


def test_a_careful_task_stores_the_same_with_each_letter() -> None:
    found: list[Any] = []
    for careful in (False, True):
        all_tables = tables()
        table = all_tables.table("w")
        kept = OpenSliding(step(), table, floored=False)
        kept.careful = careful
        for time in range(0, 4000, 7):
            kept.take([b"a", b"b"], [time, time], [{"x": 1}, {"x": 2}], LONG_AGO)
            letter(kept, table)
            kept.close(time + 1, 100)
            letter(kept, table)
            all_tables.complete()
            all_tables.seal()
            all_tables.applied(time)
        found.append(sorted(map(repr, dict(table.range()).values())))
    assert found[0] == found[1]
    assert len(found[0]) == 3  # two blocks of a slice, and how far results are out


@pytest.mark.parametrize("careful", [False, True])
def test_records_that_are_read_again_between_two_runs_give_their_results_again(careful: bool) -> None:
    """A seek back takes the floor away. What had no result yet is kept, and counts; the rest is forgotten, over restarts, too."""
    table = tables().table("w")
    kept = OpenSliding(step(), table, floored=True)
    kept.take([b"a"] * 5, [1000, 1020, 1021, 1040, 1200], [{"x": n} for n in (1, 2, 4, 8, 16)], LONG_AGO)
    letter(kept, table)
    assert kept.close(1022, 10).states == [[1, 1], [2, 3], [3, 7]]
    letter(kept, table)
    kept = OpenSliding(step(), table, floored=False)
    kept.careful = careful
    assert kept.counts() == (2, 2, 1041)
    kept.take([b"a"], [1005], [{"x": 32}], LONG_AGO)
    letter(kept, table)
    assert sorted(one for block in dict(table.range()).values() for one in block[2]) == [
        [b"a", time] for time in (1005, 1040, 1200)
    ]
    kept = OpenSliding(step(), table, floored=False)
    assert kept.close(1041, 10).states == [[1, 32], [2, 40]]
    letter(kept, table)
    kept = OpenSliding(step(), table, floored=True)
    kept.take([b"a"], [1104], [{"x": 64}], 1041)
    letter(kept, table)
    assert kept.close(None, 10).states == [[3, 104], [2, 80]]


def test_what_closes_before_the_first_commit_of_records_that_are_read_again_is_given_once() -> None:
    """The same commit drops what was stored before and stores how far results are out since."""
    table = tables().table("w")
    kept = OpenSliding(step(), table, floored=True)
    kept.take([b"a"] * 2, [1000, 1200], [{"x": 1}, {"x": 2}], LONG_AGO)
    letter(kept, table)
    kept.close(1001, 10)
    letter(kept, table)
    kept = OpenSliding(step(), table, floored=False)
    kept.take([b"a"] * 2, [1150, 1160], [{"x": 4}, {"x": 8}], LONG_AGO)
    letter(kept, table, commits=False)
    assert kept.close(1161, 10).states == [[1, 4], [2, 12]]
    letter(kept, table)
    kept = OpenSliding(step(), table, floored=True)
    assert kept.counts() == (1, 3, 1201)
    assert kept.close(None, 10).states == [[3, 14]]


def test_of_rows_that_are_read_again_nothing_may_be_left() -> None:
    table = tables().table("w")
    kept = OpenSliding(step(), table, floored=True)
    kept.take([b"a"], [1000], [{"x": 1}], LONG_AGO)
    letter(kept, table)
    kept.close(1001, 10)
    letter(kept, table)
    kept = OpenSliding(step(), table, floored=False)
    assert kept.counts() == (0, 0, None)
    letter(kept, table)
    assert dict(table.range()) == {}
    assert kept.slices == {}


def test_a_row_that_fails_leaves_no_trace(form: Form) -> None:
    """It becomes a dead letter, and the other rows of its chunk count once."""
    with Driver(job(hg.sliding("100ms"), Form.ROWS, on_error="dead_letter")) as d:
        assert passed(d, row(1000, x=1), row(1010, x="three"), row(1020, x=4), row(2000)) == [
            ("a", 1000, 1, 1, "watermark"),
            ("a", 1020, 2, 5, "watermark"),
        ]
        (dead,) = d.dead_letters()
        assert (dead.offset, dead.step) == (1, "w")


def test_states_that_do_not_go_together_have_no_result() -> None:
    """The policy decides about it, as about any result; what stands beside it is not touched, over a restart, either."""
    app = job(hg.sliding("100ms"), on_error="dead_letter", n=hg.count(), low=hg.min("x"))
    with Driver(app) as d:
        assert passed(d, row(1000, x=3), row(1010, x="two"), row(1010, "b", "two"), row(1011)) == [
            ("a", 1000, 1, 3, "watermark"),
            ("b", 1010, 1, "two", "watermark"),
        ]
        d.restart()
        assert passed(d, row(1020, x=1), row(1030, x=9), row(2000)) == [
            ("a", 1011, 2, 1, "watermark"),
            ("a", 1020, 3, 1, "watermark"),
            ("a", 1030, 4, 1, "watermark"),
        ]
        (dead,) = d.dead_letters()
        assert dead.step == "w"
        assert b'"window_end":1011' in (dead.value or b"")


def test_rows_that_do_not_go_together_take_none_of_those_before_them_away() -> None:
    """Though they begin a pane, and their letter has nothing else of their key."""
    app = job(hg.sliding("100ms"), on_error="skip", n=hg.count(), low=hg.min("x"))
    with Driver(app) as d:
        some = [row(1080, x=3), row(1110, x="two"), row(1110, x=1), row(1111, "b", x=1)]
        assert passed(d, *some) == [("a", 1080, 1, 3, "watermark")]
        assert passed(d, row(1120, x=9), row(2000)) == [("b", 1111, 1, 1, "watermark"), ("a", 1120, 2, 3, "watermark")]


def test_states_that_do_not_go_together_fail_a_task_that_leaves_nothing_out() -> None:
    with (
        Driver(job(hg.sliding("100ms"), low=hg.min("x"))) as d,
        pytest.raises(HeadgateError, match="window that ends at 1011"),
    ):
        passed(d, row(1000, x=3), row(1010, x="two"), row(2000))


def test_a_result_that_fails_is_left_out() -> None:
    """The states stay what they are."""
    failing = hg.aggregate(int, lambda s, one: s + one["x"], int.__add__, result=lambda s: 10 // (s - 3))
    with Driver(job(hg.sliding("100ms"), on_error="skip", it=failing)) as d:
        some = [row(1000, x=1), row(1010, x=2), row(1020, x=2), row(2000)]
        assert passed(d, *some) == [("a", 1000, -5, "watermark"), ("a", 1020, 5, "watermark")]


# ------------------------------------------------------------------------------------------------------------ what is stored


def test_golden_bytes_of_stored_rows() -> None:
    """A block of a slice: its end, its number, keys with times, states; and how far results are out."""
    with Driver(job(hg.sliding("8s"))) as d:
        d.send_all("in", [row(1000, x=5), row(1999, "b", 6), row(2000, x=7), row(1001, "b")])
        d.advance("1s")
        assert stored(d) == {
            0: [2000, 0, [[b"a", 1000], [b"b", 1999], [b"b", 1001]], [[1, 5], [1, 6], [1, 1]]],
            1: [3000, 0, [[b"a", 2000]], [[1, 7]]],
            "closing": {"end": 2000, "key": b"b", "by_time": True},
            "floor": 2000,
            "grace": 0,
        }


def test_only_the_last_block_of_a_slice_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks have 256 rows; restarts go on with the last one."""
    with Driver(job(hg.sliding("800ms", grace="1s"))) as d:
        for _ in range(3):
            d.send_all("in", [row(1000 + n % 100) for n in range(200)])
            d.restart()
        assert sorted(
            (block[0], block[1], len(block[2])) for block in stored(d).values() if isinstance(block, list)
        ) == [
            (2000, 0, 256),
            (2000, 1, 256),
            (2000, 2, 88),
        ]
        d.send("in", row(3000))
        d.advance("1s")
        assert len(results(d, 800)) == 600


def test_other_aggregates_find_the_rows_of_the_old_code() -> None:
    """Fields are compared by name: what is new begins with nothing; windows of another size are refused."""
    store = MemoryStore()
    before = open_tables(store, Declared(job(hg.sliding("10s"), n=hg.count())), clock=lambda: 0).tables
    before.table("w").update({3: [10_000, 0, [[b"a", 9000], [b"b", 9100]], [[1], [1]]], "floor": 7})
    before.complete()
    before.seal()
    before.applied(1)
    more = job(hg.sliding("10s", grace="5s"), total=hg.sum("x"), n=hg.count())
    after = open_tables(store, Declared(more), clock=lambda: 0).tables.table("w")
    assert dict(after.range()) == {3: [10_000, 0, [[b"a", 9000], [b"b", 9100]], [[0, 1], [0, 1]]], "floor": 7}
    for other in (hg.sliding("20s"), hg.session("10s"), hg.tumbling("10s")):
        with pytest.raises(DeclarationError, match="sliding-10s, not to a window"):
            open_tables(store, Declared(job(other, n=hg.count())), clock=lambda: 0)


def test_a_test_sees_what_each_row_adds() -> None:
    """By key and the start of the row's own window; rows of one time together."""
    with Driver(job(hg.sliding("100ms"))) as d:
        passed(d, row(1000, x=5), row(1000, x=6), row(1050, "b"))
        assert dict(d.table("w")) == {
            ("a", 901): {"window_start": 901, "window_end": 1001, "n": 2, "s": 11},
            ("b", 951): {"window_start": 951, "window_end": 1051, "n": 1, "s": 1},
        }


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda rows: rows.window(hg.sliding(0)), "sliding.size.=0 is no time at all"),
        (lambda rows: rows.window(hg.sliding("soon")), "sliding.size."),
        (lambda rows: rows.window(hg.sliding("1m", grace=1, time="processing")), "omit grace="),
        (lambda rows: rows.window(hg.sliding("1m", time="wall")), "'event' or 'processing'"),
        (lambda rows: rows.window(hg.sliding("1m"), emit="1s"), "a sliding window gives its final result only"),
        (lambda rows: rows.window(hg.sliding("1m")).agg(x=hg.aggregate(int, max)), "put together from parts"),
        (lambda rows: rows.window(hg.sliding("1m")).agg(window_end=hg.count()), "window_end"),
        (lambda rows: rows.window(hg.sliding("1m")).process(hg.Actor), "each row has a window of its own"),
        (lambda rows: rows.window(hg.sliding("1m")).spark(print, schema="a int"), "each row has a window of its own"),
        (lambda rows: rows.rekey("x").window(hg.sliding("1m")).agg(n=hg.count()), "rekey"),
        (lambda rows: rows.agg(n=hg.count()).window(hg.sliding("1m")).agg(n=hg.count()), "as_events"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_its_own_line(declare: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        declare(hg.App("job").input("in", key="k"))
