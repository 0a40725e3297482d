"""Windows in a task: results once and complete, rows that come too late, what is stored, what a failure leaves."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal, TypedDict

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.steps.keyed import WindowStep
from headgate.agents.operators.windows import windowed
from headgate.agents.records.columns.records import Records
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError, HeadgateError

from ...forms import Form


class Row(TypedDict):
    k: str
    ts: int
    x: int


class Text(TypedDict):
    k: str
    ts: int
    x: str


class Optional(TypedDict):
    k: str
    ts: int
    x: int | None


def job(
    window: hg.Window, late: str | None = None, form: Form = Form.ROWS, kind: type = Row, **aggregates: hg.Aggregate
) -> hg.App:
    app = hg.App("job")
    rows = form.input(app, "in", kind, key="k", timestamp="ts")
    made = rows.window(window, late=late, name="w").agg(**(aggregates or {"n": hg.count(), "total": hg.sum("x")}))
    made.to("out")
    return app


def row(ts: int, k: str = "a", x: Any = 1) -> dict[str, Any]:
    return {"k": k, "ts": ts, "x": x}


def results(d: Driver) -> list[tuple[Any, ...]]:
    """Key, start, fields of the aggregates, what closed it; the timestamp is checked here."""
    found: list[tuple[Any, ...]] = []
    for one in d.read("out"):
        value = dict(one.value)
        start, end, by = (value.pop(name) for name in ("window_start", "window_end", "closed_by"))
        assert one.timestamp == end - 1
        found.append((one.key, start, *value.values(), by))
    return found


def stored(d: Driver, name: str = "w") -> dict[Any, Any]:
    """The rows of the table of a window as they are stored: blocks, and the floor with what belongs to it."""
    return dict(row for part in d.table(name)._parts.values() for row in part.range())


def passed(d: Driver, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Send rows in one chunk; what came of it when time has been told."""
    d.send_all("in", rows)
    d.advance("1s")
    return results(d)


def test_a_window_closes_when_end_and_grace_have_passed(form: Form) -> None:
    """Not a millisecond before; results stand in the order of ends, and then of the keys' bytes."""
    with Driver(job(hg.tumbling("10s", grace="2s"), form=form)) as d:
        assert passed(d, row(12_000, "b"), row(9_999, "b"), row(0, "a", 4), row(10_000, "a"), row(11_999)) == [
            ("a", 0, 1, 4, "watermark"),
            ("b", 0, 1, 1, "watermark"),
        ]
        assert passed(d, row(21_999)) == []
        assert passed(d, row(22_000, "a")) == [("a", 10_000, 2, 2, "watermark"), ("b", 10_000, 1, 1, "watermark")]


def test_times_before_1970_have_windows_like_any_other(form: Form) -> None:
    app = hg.App("job")
    made = (
        form.input(app, "in", Row, key="k", timestamp="ts", earliest=None).window(hg.tumbling("10s")).agg(n=hg.count())
    )
    made.map(lambda r: hg.Record(r.key, {**r.value, "ts": r.timestamp}, 0), with_record=True).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(-1), row(-10_000), row(-10_001), row(0)])
        d.advance("1s")
        found = [(one.value["n"], one.value["window_start"], one.value["ts"]) for one in d.read("out")]
        assert found == [(1, -20_000, -10_001), (2, -10_000, -1)]


def test_an_offset_shifts_where_windows_begin(form: Form) -> None:
    with Driver(job(hg.tumbling("1d", offset="6h"), form=form)) as d:
        six = 6 * 3_600_000
        assert passed(d, row(six - 1), row(six), row(six + 86_400_000)) == [
            ("a", six - 86_400_000, 1, 1, "watermark"),
            ("a", six, 1, 1, "watermark"),
        ]


def test_what_closes_stays_closed(form: Form) -> None:
    """A row behind its window is counted and goes unchanged to the topic that takes such rows; also behind a restart, and in the next
    run, whose time begins anew."""
    any_value: Any = {"any": "thing"} if form is Form.ROWS else 5
    with Driver(job(hg.tumbling("10s", grace="2s"), late="late", form=form)) as d:
        passed(d, row(5_000), row(12_000))
        assert passed(d, row(9_999, "a", 7)) == []
        d.restart()
        assert passed(d, row(1, "b", any_value)) == []
        assert [(one.key, one.value, one.timestamp) for one in d.read("late")] == [
            ("a", row(9_999, "a", 7), 9_999),
            ("b", row(1, "b", any_value), 1),
        ]
        d.drain()
        results(d)
        d.restart()
        assert passed(d, row(2)) == []
        assert len(d.read("late")) == 1
        assert d.counters["late_rows"] == 3


def test_a_window_that_was_open_at_a_restart_closes_complete(form: Form) -> None:
    """More keys than one block has, states of two commits, and a restart between them: nothing lost, nothing twice."""
    keys = [f"k{n}" for n in range(200)]
    with Driver(job(hg.tumbling("10s"), form=form)) as d:
        passed(d, *(row(1_000, k) for k in keys))
        d.restart()
        passed(d, *(row(2_000, k, 5) for k in keys[50:150]))
        d.restart()
        found = passed(d, row(10_000))
        assert found == [(k, 0, *((2, 6) if 50 <= int(k[1:]) < 150 else (1, 1)), "watermark") for k in sorted(keys)]
        assert len(stored(d)) == 3  # the floor with its grace, and the block of the window that is open


@pytest.mark.parametrize("cause", ["end", "drain"])
def test_an_end_closes_all_and_the_next_run_may_open_them_again(cause: str, form: Form) -> None:
    """What closed a window is said; its rows of the next run make another result, from nothing."""
    with Driver(job(hg.tumbling("10s"), late="late", form=form)) as d:
        passed(d, row(1_000), row(10_000))
        d.drain() if cause == "drain" else d.end()
        assert results(d) == [("a", 10_000, 1, 1, cause)]
        d.restart()
        d.send_all("in", [row(11_000, "a", 3), row(9_000)])
        d.drain()
        assert results(d) == [("a", 10_000, 1, 3, "drain")]
        assert [one.value["ts"] for one in d.read("late")] == [9_000]


def test_a_large_window_closes_in_steps_and_a_crash_between_them_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch, form: Form
) -> None:
    """Each step is its own transaction: what it gave is not given again."""
    monkeypatch.setattr(windowed, "STEP_RESULTS", 70)
    keys = sorted(f"k{n}" for n in range(200))
    seen: list[str] = []

    def fails(value: Any) -> Any:
        if value["window_end"] == 10_000 and len(seen) == 150:
            seen.append("!")
            raise ValueError("once")
        seen.append("")
        return value

    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts").window(hg.tumbling("10s"), name="w").agg(n=hg.count())
    rows.map(fails).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(3, k) for k in keys])
        with pytest.raises(HeadgateError, match="once"):
            passed(d, row(10_000, "z"))
        first = results(d)
        assert [one[0] for one in first] == keys[:140]
        d.restart()
        d.advance("1s")
        assert [one[0] for one in results(d)] == keys[140:]
        assert len(stored(d)) == 3


@pytest.mark.parametrize("at_end", ["close", "keep"])
def test_what_time_has_closed_is_not_closed_by_a_drain(at_end: Literal["close", "keep"], form: Form) -> None:
    """A crash in the middle of a closing leaves a window behind the floor. If a drain comes next, it is closed as time has closed it."""
    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts").window(hg.tumbling("10s"), name="w", at_end=at_end)
    rows.agg(n=hg.count()).to("out")
    with Driver(app) as d:
        assert passed(d, row(3), row(9_000)) == []
        [task] = d.tasks.values()
        [op] = [op for op in task.site.pipeline.operators if isinstance(op, windowed.WindowOp)]
        op.floor = replace(op.floor, at=10_000)
        d.drain()
        assert results(d) == [("a", 0, 2, "watermark")]


def test_a_window_behind_a_window_misses_nothing(form: Form) -> None:
    """The results of ten seconds are rows of a minute: they come with the letter that closes the minute, too."""
    app = hg.App("job")
    tens = form.input(app, "in", Row, key="k", timestamp="ts").window(hg.tumbling("10s", grace="5s")).agg(n=hg.count())
    tens.window(hg.tumbling("30s")).agg(n=hg.count(), rows=hg.sum("n")).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(n * 1_000) for n in range(65)])
        d.advance("1s")
        assert results(d) == [("a", 0, 3, 30, "watermark")]
        d.send_all("in", [row(65_000)])
        d.advance("1s")
        assert results(d) == [("a", 30_000, 3, 30, "watermark")]
        d.drain()
        assert results(d) == [("a", 60_000, 1, 6, "drain")]
        assert d.counters["late_rows"] == 0


def test_a_record_that_fails_leaves_no_trace_in_any_window(form: Form) -> None:
    """It becomes a dead letter, and the other rows of its chunk count once."""
    app = hg.App("job", on_error="dead_letter", on_bad_data="dead_letter")
    rows = form.input(app, "in", Optional, key="k", timestamp="ts")
    rows.window(hg.tumbling("10s"), name="w").agg(n=hg.count(), total=hg.sum("x")).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(1, "a", 1), row(2, "b", 2), row(3, "a", "three"), row(4, "a", 4), row(11_000, "a", None)])
        assert passed(d, row(20_000)) == [("a", 0, 2, 5, "watermark"), ("b", 0, 1, 2, "watermark")]
        assert len(d.dead_letters()) == 2


def test_states_that_are_no_numbers_survive() -> None:
    """Lists, text and a state of one's own, over chunks and a restart."""
    longest = hg.aggregate(str, lambda state, value: max(state, value["x"], key=len), max)
    app = job(hg.tumbling("10s"), all=hg.collect("x"), one=hg.first("x"), other=hg.last("x"), long=longest)
    with Driver(app) as d:
        passed(d, row(1, "a", "x"), row(2, "a", "xyz"))
        d.restart()
        passed(d, row(3, "a", "xy"))
        assert passed(d, row(10_000, "a", "")) == [("a", 0, ["x", "xyz", "xy"], "x", "xy", "xyz", "watermark")]


def test_numbers_and_others_in_one_chunk_and_one_window() -> None:
    """Adding columns of numbers gives way to copies where a chunk or a window has something else."""
    with Driver(job(hg.tumbling("10s"), n=hg.count(), low=hg.min("x"))) as d:
        passed(d, row(1, "a", 5), row(2, "b", "text"))
        assert passed(d, row(3, "a", 4), row(4, "b", "more"), row(10_000, "a", 1)) == [
            ("a", 0, 2, 4, "watermark"),
            ("b", 0, 2, "more", "watermark"),
        ]
        assert passed(d, row(30_000)) == [("a", 10_000, 1, 1, "watermark")]


def test_a_field_more_finds_the_open_window_of_the_old_code() -> None:
    """Fields are compared by name: blocks of the old code are read, and what is new begins with nothing; windows of another length
    are refused."""
    store = MemoryStore()
    before = open_tables(store, Declared(job(hg.tumbling("10s"), n=hg.count())), clock=lambda: 0).tables
    before.table("w").update({3: [10_000, 0, [b"a", b"b"], [[1], [2]]], "floor": 7})
    before.complete()
    before.seal()
    before.applied(1)
    more = job(hg.tumbling("10s", grace="5s"), total=hg.sum("x"), n=hg.count())
    after = open_tables(store, Declared(more), clock=lambda: 0).tables.table("w")
    assert dict(after.range()) == {3: [10_000, 0, [b"a", b"b"], [[0, 1], [0, 2]]], "floor": 7}
    with pytest.raises(DeclarationError, match="tumbling-10s, not to a window tumbling-20s"):
        open_tables(store, Declared(job(hg.tumbling("20s"), n=hg.count())), clock=lambda: 0)


@pytest.mark.parametrize("window", [hg.tumbling("20s"), hg.session("5s")], ids=str)
def test_windows_of_another_kind_begin_where_none_is_open(window: hg.Window) -> None:
    """A floor is a time, whatever windows it has closed: rows before it are late for the others, too."""
    store = MemoryStore()
    for fields in ({"n": hg.count()}, {"x": hg.sum("x"), "n": hg.count()}):
        before = open_tables(store, Declared(job(hg.tumbling("10s"), **fields)), clock=lambda: 0).tables
        before.table("w").update({"floor": 7_000})
        before.complete()
        before.seal()
        before.applied(1)
    after = open_tables(store, Declared(job(window, n=hg.count())), clock=lambda: 0).tables.table("w")
    assert dict(after.range()) == {"floor": 7_000}


def test_windows_with_other_keys_begin_where_none_is_open() -> None:
    def keyed_by(serde: Any) -> Declared:
        app = hg.App("job", key_serde=serde)
        app.input("in", key="k", timestamp="ts").window(hg.tumbling("10s"), name="w").agg(n=hg.count()).to("out")
        return Declared(app)

    store = MemoryStore()
    for keys, rows in ((hg.text(), {"floor": 7_000}), (hg.json(), {0: [20_000, 0, [b'"a"'], [[1]]]})):
        before = open_tables(store, keyed_by(keys), clock=lambda: 0).tables
        before.table("w").update(rows)
        before.complete()
        before.seal()
        before.applied(1)
    with pytest.raises(DeclarationError, match="its keys are json, and would become text"):
        open_tables(store, keyed_by(hg.text()), clock=lambda: 0)


@pytest.mark.parametrize(("window", "closed"), [(hg.tumbling, 12_000), (hg.session, 11_999), (hg.sliding, 12_000)])
@pytest.mark.parametrize(("before", "after"), [("0s", "5s"), ("5s", "0s")])
def test_another_grace_reopens_no_window(window: Any, closed: int, before: str, after: str) -> None:
    """However long the new one is: the window was closed by the old one, and its result is out. A row at the end of a session joins it."""
    store = MemoryStore()
    tables = open_tables(store, Declared(job(window("10s", grace=before))), clock=lambda: 0).tables
    grace = window("10s", grace=before).grace_ms
    tables.table("w").update({"floor": 12_000, "grace": grace})
    env: Any = SimpleNamespace(table=tables.table, now_ms=lambda: 0)
    op = windowed.WindowOp(_step(job(window("10s", grace=after))), env)
    assert op.floor.closed == closed - min(grace, op.floor.grace)


def _step(app: hg.App) -> Any:
    return next(step for step in app.steps if isinstance(step, WindowStep))


def test_a_row_is_in_all_hopping_windows_that_hold_it(form: Form) -> None:
    """Where some of its windows are closed it counts in the others, and that is counted; where all are, it is late."""
    with Driver(job(hg.hopping("10s", every="5s"), late="late", form=form)) as d:
        assert passed(d, row(7_000, "a", 2)) == []
        assert passed(d, row(10_000)) == [("a", 0, 1, 2, "watermark")]
        assert passed(d, row(6_000, "a", 3), row(4_999)) == []
        assert d.counters["late_for_some_windows"] == 1
        assert [one.value["ts"] for one in d.read("late")] == [4_999]
        assert passed(d, row(15_000)) == [("a", 5_000, 3, 6, "watermark")]


def test_a_session_grows_as_long_as_rows_come_within_the_gap(form: Form) -> None:
    """Exactly the gap still joins; a row between two sessions makes one of them, over a commit and a restart."""
    with Driver(job(hg.session("10s"), form=form)) as d:
        assert passed(d, row(0), row(10_000), row(30_000, "b"), row(20_000, "a")) == []
        assert passed(d, row(30_001)) == [("a", 0, 3, 3, "watermark")]
        d.restart()
        assert passed(d, row(30_001, "a", 5), row(35_000, "c")) == []
        assert passed(d, row(50_000, "c")) == [
            ("b", 30_000, 1, 1, "watermark"),
            ("a", 30_001, 2, 6, "watermark"),
            ("c", 35_000, 1, 1, "watermark"),
        ]
        d.drain()
        assert results(d) == [("c", 50_000, 1, 1, "drain")]


def test_a_row_between_two_sessions_makes_one_of_them(form: Form) -> None:
    """What was stored of both is one row then; lists keep the earlier session's rows in front."""
    app = job(
        hg.session("10s", grace="30s"),
        form=form,
        kind=Text,
        n=hg.count(),
        all=hg.collect("x"),
        one=hg.first("x"),
        other=hg.last("x"),
    )
    with Driver(app) as d:
        passed(d, row(40_000, "a", "late"), row(22_000, "a", "early"))
        d.restart()
        assert len(stored(d)) == 4
        passed(d, row(31_000, "a", "between"))
        assert len(stored(d)) == 3
        d.drain()
        assert results(d) == [("a", 22_000, 3, ["early", "late", "between"], "early", "between", "drain")]


def test_an_old_row_that_joins_an_open_session_is_not_late(form: Form) -> None:
    with Driver(job(hg.session("10s"), late="late", form=form)) as d:
        passed(d, row(20_000), row(25_000, "b"))
        passed(d, row(12_000), row(12_000, "c"))
        assert [one.key for one in d.read("late")] == ["c"]
        assert passed(d, row(60_000, "d")) == [("a", 12_000, 2, 2, "watermark"), ("b", 25_000, 1, 1, "watermark")]


@pytest.mark.parametrize(
    "window", [hg.tumbling("10s", time="processing"), hg.session("10s", time="processing")], ids=["tumbling", "session"]
)
def test_the_clock_closes_windows_of_processing_time(window: hg.Window, form: Form) -> None:
    """Whatever the rows' own times are, and though no further record comes; also behind a restart. A drain says that it was it."""
    app = hg.App("job")
    form.input(app, "in", Row, key="k", timestamp="ts", max_future=None).window(window).agg(n=hg.count()).to("out")
    with Driver(app, now=1_000_000) as d:
        d.send_all("in", [row(5), row(99_000_000), row(7, "b")])
        d.advance("3s")
        d.restart()
        d.send("in", row(1))
        d.advance("6s")
        assert results(d) == []
        d.advance("5s")
        expected = [("a", 1_000_000, 3, "clock"), ("b", 1_000_000, 1, "clock")]
        # sessions: b's ends first, for a's goes on with its row at three seconds
        assert results(d) == (expected if window.spans is not None else expected[::-1])
        d.send("in", row(1, "c"))
        d.drain()
        assert results(d)[-1][2:] == (1, "drain")
        assert d.counters["late_rows"] == 0


def test_early_results_come_by_the_clock_for_windows_that_have_changed(form: Form) -> None:
    """Each is the state so far, with the time of its newest row; what has not changed is not said again; the last word is the final one."""
    app = hg.App("job")
    form.input(app, "in", Row, key="k", timestamp="ts").window(hg.tumbling("10s"), emit="5s").agg(n=hg.count()).to(
        "out"
    )
    with Driver(app) as d:
        d.send_all("in", [row(1_000), row(3_000), row(2_000, "b"), row(2_500)])
        assert d.read("out") == []
        d.advance("5s")
        found = [(one.key, one.value["n"], one.value["closed_by"], one.timestamp) for one in d.read("out")]
        assert found == [("a", 3, "early", 3_000), ("b", 1, "early", 2_000)]
        d.send("in", row(4_000, "b"))
        d.advance("5s")
        found = [(one.key, one.value["n"], one.value["closed_by"], one.timestamp) for one in d.read("out")]
        assert found == [("b", 2, "early", 4_000)]
        d.advance("20s")
        assert d.read("out") == []
        d.send("in", row(10_000, "b"))
        d.advance("1s")
        found = [(one.key, one.value["n"], one.value["closed_by"], one.timestamp) for one in d.read("out")]
        assert found == [("a", 3, "watermark", 9_999), ("b", 2, "watermark", 9_999), ("b", 1, "early", 10_000)]


def test_early_results_come_after_so_many_rows(monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    """In steps, where there are many of them."""
    monkeypatch.setattr(windowed, "STEP_RESULTS", 2)
    app = hg.App("job")
    form.input(app, "in", Row, key="k", timestamp="ts").window(hg.tumbling("10s"), emit=5).agg(n=hg.count()).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(1, k) for k in "abcd"])
        assert d.read("out") == []
        d.send("in", row(2, "a"))
        assert [(one.key, one.value["n"]) for one in d.read("out")] == [("a", 2), ("b", 1), ("c", 1), ("d", 1)]
        d.send_all("in", [row(3, "a")] * 4)
        assert d.read("out") == []
        d.drain()
        assert [one[0] for one in results(d)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("window", [hg.tumbling("10s"), hg.session("10s")])
@pytest.mark.parametrize("over", ["end", "drain"])
def test_what_an_end_is_to_leave_open_goes_on_in_the_next_run(window: hg.Window, over: str, form: Form) -> None:
    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts")
    rows.window(window, at_end="keep").agg(n=hg.count(), total=hg.sum("x")).to("out")
    with Driver(app) as d:
        passed(d, row(1_000, "a", 5))
        d.drain() if over == "drain" else d.end()
        d.restart()
        assert results(d) == []
        assert passed(d, row(2_000), row(15_000, "b")) == [
            ("a", 1_000 if window.spans is None else 0, 2, 6, "watermark")
        ]


class Sessions:
    """A plain account of sessions: every row that was taken, by key, regrouped each time."""

    def __init__(self, gap: int, grace: int) -> None:
        self.gap, self.grace = gap, grace
        self.rows: dict[str, list[tuple[int, int]]] = {}
        self.done: Counter[tuple[str, int]] = Counter()

    def sessions(self, key: str, more: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = []
        for time, x in sorted([*self.rows.get(key, []), *more]):
            if found and time - found[-1][-1][0] <= self.gap:
                found[-1].append((time, x))
            else:
                found.append([(time, x)])
        return found

    def takes(self, key: str, time: int, x: int, heard: int) -> bool:
        mine = next(one for one in self.sessions(key, [(time, x)]) if (time, x) in one)
        if mine[-1][0] + self.gap + self.grace < heard:
            return False
        self.rows.setdefault(key, []).append((time, x))
        return True

    def pass_(self, heard: int) -> None:
        for key in self.rows:
            for one in self.sessions(key, []):
                if one[-1][0] + self.gap + self.grace < heard:
                    self.done[key, one[0][0]] += sum(x + 1000 for _, x in one)
                    self.rows[key] = [row for row in self.rows[key] if row not in one]


def shuffled(form: Form, window: hg.Window, **more: Any) -> hg.App:
    app = hg.App("job")
    rows = form.input(app, "in", Row, timestamp="ts").repartition("k").window(window, name="w", **more)
    rows.agg(n=hg.count(), total=hg.sum("x"), mean=hg.mean("x"), low=hg.min("x")).to("out")
    return app


def combined(app: hg.App) -> bool:
    return any(getattr(step, "combine", None) is not None for step in Declared(app).steps)


def test_partial_states_travel_where_nothing_asks_for_a_row(form: Form) -> None:
    """And rows travel for a topic of late rows, emission by count, sessions, windows that share no pane worth the name, and lists."""
    assert combined(shuffled(form, hg.tumbling("10s")))
    assert combined(shuffled(form, hg.tumbling("10s"), emit="1s"))
    assert not combined(shuffled(form, hg.tumbling("10s"), late="late"))
    assert not combined(shuffled(form, hg.tumbling("10s"), emit=10))
    assert not combined(shuffled(form, hg.tumbling("10s", time="processing")))
    assert not combined(shuffled(form, hg.session("10s")))
    assert combined(shuffled(form, hg.hopping("10s", every="5s")))
    assert combined(shuffled(form, hg.hopping("10s", every="4s")))
    assert not combined(shuffled(form, hg.hopping("10s", every="9s")))
    app = hg.App("job")
    form.input(app, "in", Row, timestamp="ts").repartition("k").window(hg.tumbling("10s")).agg(all=hg.collect("x")).to(
        "out"
    )
    assert not combined(app)


def test_a_partial_state_is_late_as_a_whole_and_counts_its_rows(form: Form) -> None:
    """Lateness is judged where the window lives, not where its rows were put together."""
    with Driver(shuffled(form, hg.tumbling("10s", grace="1s")), partitions={"in": 2}) as d:
        chunk = [row(1_000, "a", 4), row(2_000, "a", 2), row(3_000, "b", 7), row(12_000, "a", 1)]
        d.send_all("in", chunk, partition=0)
        d.send_all("in", [*chunk, row(20_000, "c", 1)], partition=1)
        d.advance("1s")
        assert results(d) == [("a", 0, 4, 12, 3.0, 2, "watermark"), ("b", 0, 2, 14, 7.0, 7, "watermark")]
        d.send_all("in", [row(5_000, "a"), row(6_000, "a"), row(13_000, "a")], partition=0)
        assert d.counters["late_rows"] == 2
        d.restart()
        d.drain()
        assert results(d) == [("a", 10_000, 3, 3, 1.0, 1, "drain"), ("c", 20_000, 1, 1, 1.0, 1, "drain")]


def test_partial_states_with_what_is_no_number() -> None:
    """Text and numbers of one's own go in copies; a record that fails becomes a dead letter, and no partial state has it."""
    app = hg.App("job", on_error="dead_letter")
    longest = hg.aggregate(str, lambda state, value: max(state, value["x"], key=len), lambda a, b: max(a, b, key=len))
    rows = app.input("in", timestamp="ts").repartition("k").window(hg.tumbling("10s"))
    rows.agg(n=hg.count(), long=longest).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(1, "a", "x"), row(2, "a", 3), row(3, "a", "xyz"), row(4, "b", "y")])
        d.send_all("in", [row(5, "a", "xy"), row(10_000, "z", "")])
        d.advance("1s")
        assert results(d) == [("a", 0, 3, "xyz", "watermark"), ("b", 0, 1, "y", "watermark")]
        assert len(d.dead_letters()) == 1


def test_a_test_sees_the_open_windows_by_key_and_start() -> None:
    """And not how they are stored: with the fields of a result, each key of its own."""
    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts")
    rows.window(hg.hopping("20s", every="10s"), name="hops").agg(n=hg.count(), mean=hg.mean("x")).to("out")
    rows.window(hg.session("5s"), name="visits").agg(n=hg.count()).to("visited")
    with Driver(app, partitions={"in": 2}) as d:
        d.send_all("in", [row(12_000, 1, 4), row(14_000, 1, 5)], partition=0)  # type: ignore[arg-type]
        d.send_all("in", [row(21_000, "1", 7)], partition=1)
        hops = d.table("hops")
        assert dict(hops) == {
            (1, 0): {"window_start": 0, "window_end": 20_000, "n": 2, "mean": 4.5},
            (1, 10_000): {"window_start": 10_000, "window_end": 30_000, "n": 2, "mean": 4.5},
            ("1", 10_000): {"window_start": 10_000, "window_end": 30_000, "n": 1, "mean": 7.0},
            ("1", 20_000): {"window_start": 20_000, "window_end": 40_000, "n": 1, "mean": 7.0},
        }
        assert hops["1", 20_000]["n"] == 1
        assert (True, 0) not in hops
        assert list(hops.task("Partition 1")) == [("1", 10_000), ("1", 20_000)]
        assert repr(d.table("visits").task("Partition 1")) == (
            "<windows visits: {('1', 21000): {'window_start': 21000, 'window_end': 26000, 'n': 1}}>"
        )
        assert d.table("visits")[1, 12_000] == {"window_start": 12_000, "window_end": 19_000, "n": 2}
        d.drain()
        assert len(hops) == len(d.table("visits")) == 0


@pytest.mark.parametrize("emit", ["final", "3s"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("every", ["10s", "5s", "4s"])
def test_partial_states_give_the_results_of_their_rows(every: str, seed: int, emit: str, form: Form) -> None:
    """Early ones included: the same values, keys and timestamps in the same order, and the same late rows, with and without combining.
    Hopping windows share the states of their panes."""
    draw = random.Random(seed)
    window = hg.hopping("10s", every=every, grace="2s", offset="1s")
    apps = [shuffled(form, window, emit=emit, late=late) for late in (None, "late")]
    assert [combined(app) for app in apps] == [True, False]
    time, found = 20_000, 0
    with Driver(apps[0], partitions={"in": 2}) as one, Driver(apps[1], partitions={"in": 2}) as other:
        for _ in range(12):
            time += draw.randrange(6_000)
            rows = [row(time + draw.randrange(-9_000, 3_000), draw.choice("abc"), n) for n in range(draw.randrange(9))]
            pause, partition = draw.choice([1, 4]), draw.randrange(2)
            for d in (one, other):
                d.send_all("in", rows, partition=partition)
                d.advance(pause)
            results = one.read("out")
            assert results == other.read("out")
            for late in ("late_rows", "late_for_some_windows"):
                assert one.counters[late] == other.counters[late]
            found += len(results)
        for d in (one, other):
            d.drain()
        assert one.read("out") == other.read("out")
        assert found


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "uneven", "session"])
@pytest.mark.parametrize("seed", range(2))
def test_any_order_any_chunks_any_restarts(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    """Against a plain recount: a row counts in its windows unless they were closed when it came."""
    monkeypatch.setattr(windowed, "STEP_RESULTS", 5)
    chance = random.Random(f"{kind} {seed}")
    size, grace = chance.choice([1_000, 7_000]), chance.choice([0, 500, 3_000])
    every = {"hopping": size // 2, "uneven": size * 3 // 7}.get(kind, size)
    window = {
        "session": lambda: hg.session(size / 1000, grace=grace / 1000),
        "tumbling": lambda: hg.tumbling(size / 1000, grace=grace / 1000),
    }.get(kind, lambda: hg.hopping(size / 1000, every=every / 1000, grace=grace / 1000))()
    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts", max_out_of_order="2s")
    rows.window(window, late="late").agg(n=hg.count(), x=hg.sum("x")).to("out")
    expected: Counter[tuple[str, int]] = Counter()
    plain = Sessions(size, grace)
    late: list[int] = []
    heard, time = -(2**60), 20_000
    with Driver(app) as d:
        for number in range(60):
            time += chance.randint(0, 900)
            chunk = [
                row(
                    time - chance.choice([0, 1, 100, 1_999, 2_000, 5_000, 9_000]),
                    chance.choice("abcdefg"),
                    7 * number + n,
                )
                for n in range(chance.randint(1, 5))
            ]
            for one in chunk:
                ts, key, x = one["ts"], one["k"], one["x"]
                if kind == "session":
                    taken = plain.takes(key, ts, x, heard)
                else:
                    ends = [
                        end for end in range(ts + 1, ts + size + 1) if (end - size) % every == 0 and end + grace > heard
                    ]
                    for end in ends:
                        expected[key, end - size] += x + 1000
                    taken = bool(ends)
                if not taken:
                    late.append(ts)
            d.send_all("in", chunk)
            d.advance("1s")
            heard = max(heard, max(one["ts"] for one in chunk) - 2_000)
            plain.pass_(heard)
            if chance.random() < 0.2:
                d.restart()
        d.drain()
        found: Counter[tuple[str, int]] = Counter()
        for key, start, n, x, _ in results(d):
            assert (key, start) not in found
            found[key, start] = x + 1000 * n
        plain.pass_(2**60)
        assert found == expected + plain.done
        assert [one.value["ts"] for one in d.read("late")] == late


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda rows: rows.window("10s"), "takes a window"),
        (lambda rows: rows.window(hg.tumbling(0)), "no time at all"),
        (lambda rows: rows.window(hg.tumbling("1m", offset="1m")), "offset"),
        (lambda rows: rows.window(hg.hopping("1m", every="2m")), "in none"),
        (lambda rows: rows.window(hg.session("1m"), at_end="open"), "at_end"),
        (lambda rows: rows.window(hg.session("1m"), emit="1s"), "final result only"),
        (lambda rows: rows.window(hg.tumbling("1m"), emit=0), "after how many rows"),
        (lambda rows: rows.window(hg.tumbling("1m"), emit="often"), "emit"),
        (lambda rows: rows.window(hg.tumbling("1m", time="wall")), "'event' or 'processing'"),
        (lambda rows: rows.window(hg.tumbling("1m", grace=1, time="processing")), "omit grace="),
        (lambda rows: rows.window(hg.tumbling("1m", time="processing"), late="x"), "omit late="),
        (lambda rows: rows.window(hg.session("1m")).agg(x=hg.aggregate(int, max)), "tell how two states"),
        (lambda rows: rows.window(hg.tumbling("1m")).agg(closed_by=hg.count()), "closed_by"),
        (lambda rows: rows.window(hg.tumbling("1m")).agg(name="x", n=hg.count()), "the window has the name"),
        (lambda rows: rows.window(hg.tumbling("1m")).agg(), "at least one aggregate"),
        (lambda rows: rows.window(hg.tumbling("1m")).to("out"), "a window is not a record"),
        (lambda rows: rows.rekey("x").window(hg.tumbling("1m")).agg(n=hg.count()), "rekey"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_its_own_line(declare: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        declare(hg.App("job").input("in", key="k"))


def test_a_compacted_topic_keeps_a_result_for_each_key_and_window(form: Form) -> None:
    """By the row's key alone it would keep the last window only. The bytes are those of a tuple, whatever the key is."""
    app = hg.App("job")
    rows = form.input(app, "in", Row, timestamp="ts").repartition("k")
    minutes = rows.window(hg.tumbling("10s"), name="w", at_end="close").agg(n=hg.count())
    minutes.filter(lambda result: result["n"]).to("out", key=hg.window_key)
    named = hg.custom(bytes.decode, lambda key: f"{key[0]}@{key[1]}".encode(), name="named")
    minutes.to("named", key=hg.window_key, key_serde=named)
    last: Any = 7 if form is Form.ROWS else "7"
    with Driver(app) as d:
        d.send_all("in", [{**row(ts), "k": k} for ts, k in [(1, "a"), (12_000, "a"), (30_000, last)]])
        d.advance("1s")
        written = [one.key for one in d.topics.drain("out")]
        assert written == [hg.key().dumps(key) for key in (("a", 0), ("a", 10_000))]
        assert [one.key for one in d.read("named")] == ["a@0", "a@10000"]
        d.end("in")
        assert [one.key for one in d.read("out")] == [(last, 30_000)]


def test_a_value_that_has_lost_its_window_has_no_window_key() -> None:
    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts")
    made = rows.window(hg.tumbling("10s"), name="w", at_end="keep").agg(n=hg.count())
    made.map(lambda result: {"n": result["n"]}).to("out", key=hg.window_key)
    with Driver(app) as d, pytest.raises(HeadgateError, match="no field 'window_start'"):
        passed(d, row(1, "a"), row(12_000, "a"))
    other = app.input("other")
    with pytest.raises(DeclarationError, match="no window stands before it"):
        other.to("out", key=hg.window_key)


@pytest.mark.parametrize(("at_end", "last"), [("close", 10), ("keep", 13)])
def test_a_result_that_is_overwritten_by_its_window_must_be_meant(form: Form, at_end: Any, last: int) -> None:
    """A drain closed a window with 3 rows; the next run opened it again, and its result of 10 rows replaced the first one: 13 were sent."""
    refused, app = hg.App("job"), hg.App("job")
    rows = form.input(refused, "in", Row, timestamp="ts").repartition("k")
    made = rows.window(hg.tumbling("10s"), name="w").agg(n=hg.count()).map(dict)
    with pytest.raises(DeclarationError, match=r"closes what is open in 'w' .*overwrites") as error:
        made.to("out", key=hg.window_key)
    assert 'at_end="keep"' in error.value.remedy
    assert 'at_end="close"' in error.value.remedy
    rows = form.input(app, "in", Row, timestamp="ts").repartition("k")
    rows.window(hg.tumbling("10s"), name="w", at_end=at_end).agg(n=hg.count()).to("out", key=hg.window_key)
    with Driver(app) as d:
        d.send_all("in", [{**row(ts), "k": "a"} for ts in (1, 2, 3)])
        d.drain()
        d.restart()
        d.send_all("in", [{**row(ts), "k": "a"} for ts in (*range(4, 14), 20_000)])
        d.advance("1s")
        kept = {one.key: one.value["n"] for one in d.read("out")}
    assert kept == {("a", 0): last}


@pytest.mark.parametrize("size", ["1500s", 1_500.0])
def test_a_row_may_be_in_many_windows_but_not_in_any_number(size: Any) -> None:
    """86 million windows for one row were accepted, and its worker never came back from it."""
    assert str(hg.hopping(size, every="1s")) == "hopping-25m-every-1s"
    for more, every in (("1d", "1ms"), ("1d", "1s"), ("1501s", "1s")):
        with pytest.raises(DeclarationError, match=r"each row would be in .* windows") as error:
            hg.hopping(more, every=every)
        assert "a larger every=" in error.value.remedy


@pytest.mark.parametrize(
    ("window", "first", "second"),
    [
        (hg.tumbling("10s", grace="2s"), 9_999, 19_999),
        (hg.session("10s", grace="2s"), 12_999, 28_999),
        (hg.sliding("10s", grace="2s"), 3_000, 19_000),
    ],
)
def test_a_step_with_an_open_window_is_not_idle(window: hg.Window, first: int, second: int) -> None:
    """What stands behind it would be told a time without it, and its result would be late there."""
    d = Declared(job(window))
    tables = open_tables(MemoryStore(), d, clock=lambda: 0).tables
    (step,) = (one for one in d.steps if isinstance(one, WindowStep))
    op = windowed.WindowOp(
        step, SimpleNamespace(table=tables.table, count=lambda *_: None, app=d.app, now_ms=lambda: 0)
    )  # type: ignore[arg-type]
    op.forward = lambda rows: None  # type: ignore[method-assign]
    owed = [op.owed_ms()]
    op.push(Records([row(3_000), row(19_000)], [3_000, 19_000], ["a", "b"]))
    op.complete()
    owed.append(op.owed_ms())
    asyncio.run(op.on_watermark(20_000))
    op.prepare()
    op.complete()
    owed.append(op.owed_ms())
    assert owed == [None, first, second]


@pytest.mark.parametrize("window", [None, hg.tumbling("1s"), hg.session("1s")], ids=["running", "tumbling", "session"])
def test_the_policy_of_the_step_decides_about_a_row_whose_state_cannot_be_stored(window: hg.Window | None) -> None:
    """It fails when the states are encoded, behind all of the user's functions; yet it is this step's failure."""
    app = hg.App("job")
    rows: Any = app.input("in", key="k", timestamp="ts")
    if window is not None:
        rows = rows.window(window, name="w")
    custom = hg.aggregate(
        list, lambda state, row: {1} if row["x"] == 7 else [*state, row["x"]], list.__add__, result=len
    )
    rows.agg(on_error="dead_letter", n=custom, **({} if window else {"name": "w"})).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(1, "a", 1), row(2, "b", 7), row(3, "a", 2)])
        d.advance("1s")
        d.drain()
        assert [(one.key, one.value["n"]) for one in d.read("out")] == [("a", 2)]
        (dead,) = d.dead_letters()
        assert (dead.offset, dead.step) == (1, "w")
        assert "keep states in plain values" in dead.exception


def test_a_row_of_windows_that_the_task_log_does_not_accept_is_called_what_it_is() -> None:
    """Its key is a slot, which says nothing to a user."""
    tables = open_tables(MemoryStore(), Declared(job(hg.tumbling("10s"))), clock=lambda: 0, most_bytes=50).tables
    tables.table("w").update({3: [10_000, 0, [b"a" * 50], [[1, 1]]]})
    with pytest.raises(HeadgateError, match=r"table w: a row with open windows takes \d+ bytes, but .* only 50"):
        tables.prepare()
