"""Windows in a task: results once and complete, rows that come too late, what is stored, what a failure leaves."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.declaration import Declared
from headgate.agents.operators import windowed
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError, HeadgateError


def job(window: hg.Window, late: str | None = None, **aggregates: hg.Aggregate) -> hg.App:
    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts")
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


def passed(d: Driver, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Send rows in one chunk; what came of it when time has been told."""
    d.send_all("in", rows)
    d.advance("1s")
    return results(d)


def test_a_window_closes_when_end_and_grace_have_passed() -> None:
    """Not a millisecond before; results stand in the order of ends, and then of the keys' bytes."""
    with Driver(job(hg.tumbling("10s", grace="2s"))) as d:
        assert passed(d, row(12_000, "b"), row(9_999, "b"), row(0, "a", 4), row(10_000, "a"), row(11_999)) == [
            ("a", 0, 1, 4, "watermark"),
            ("b", 0, 1, 1, "watermark"),
        ]
        assert passed(d, row(21_999)) == []
        assert passed(d, row(22_000, "a")) == [("a", 10_000, 2, 2, "watermark"), ("b", 10_000, 1, 1, "watermark")]


def test_times_before_1970_have_windows_like_any_other() -> None:
    app = hg.App("job")
    made = app.input("in", key="k", timestamp="ts").window(hg.tumbling("10s")).agg(n=hg.count())
    made.map(lambda r: hg.Record(r.key, {**r.value, "ts": r.timestamp}, 0), with_record=True).to("out")
    with Driver(app) as d:
        d.send_all("in", [row(-1), row(-10_000), row(-10_001), row(0)])
        d.advance("1s")
        found = [(one.value["n"], one.value["window_start"], one.value["ts"]) for one in d.read("out")]
        assert found == [(1, -20_000, -10_001), (2, -10_000, -1)]


def test_an_offset_shifts_where_windows_begin() -> None:
    with Driver(job(hg.tumbling("1d", offset="6h"))) as d:
        six = 6 * 3_600_000
        assert passed(d, row(six - 1), row(six), row(six + 86_400_000)) == [
            ("a", six - 86_400_000, 1, 1, "watermark"),
            ("a", six, 1, 1, "watermark"),
        ]


def test_what_closes_stays_closed() -> None:
    """A row behind its window is counted and goes unchanged to the topic that takes such rows; also behind a restart, and in the next
    run, whose time begins anew."""
    with Driver(job(hg.tumbling("10s", grace="2s"), late="late")) as d:
        passed(d, row(5_000), row(12_000))
        assert passed(d, row(9_999, "a", 7)) == []
        d.restart()
        assert passed(d, row(1, "b", {"any": "thing"})) == []
        assert [(one.key, one.value, one.timestamp) for one in d.read("late")] == [
            ("a", row(9_999, "a", 7), 9_999),
            ("b", row(1, "b", {"any": "thing"}), 1),
        ]
        d.drain()
        results(d)
        d.restart()
        assert passed(d, row(2)) == []
        assert len(d.read("late")) == 1
        assert d.counters["late_rows"] == 3


def test_a_window_that_was_open_at_a_restart_closes_complete() -> None:
    """More keys than one block has, states of two commits, and a restart between them: nothing lost, nothing twice."""
    keys = [f"k{n}" for n in range(200)]
    with Driver(job(hg.tumbling("10s"))) as d:
        passed(d, *(row(1_000, k) for k in keys))
        d.restart()
        passed(d, *(row(2_000, k, 5) for k in keys[50:150]))
        d.restart()
        found = passed(d, row(10_000))
        assert found == [(k, 0, *((2, 6) if 50 <= int(k[1:]) < 150 else (1, 1)), "watermark") for k in sorted(keys)]
        assert len(d.table("w")) == 2  # the floor, and the block of the window that is open


@pytest.mark.parametrize("cause", ["end", "drain"])
def test_an_end_closes_all_and_the_next_run_may_open_them_again(cause: str) -> None:
    """What closed a window is said; its rows of the next run make another result, from nothing."""
    with Driver(job(hg.tumbling("10s"), late="late")) as d:
        passed(d, row(1_000), row(10_000))
        d.drain() if cause == "drain" else d.end()
        assert results(d) == [("a", 10_000, 1, 1, cause)]
        d.restart()
        d.send_all("in", [row(11_000, "a", 3), row(9_000)])
        d.drain()
        assert results(d) == [("a", 10_000, 1, 3, "drain")]
        assert [one.value["ts"] for one in d.read("late")] == [9_000]


def test_a_large_window_closes_in_steps_and_a_crash_between_them_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch,
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
    rows = app.input("in", key="k", timestamp="ts").window(hg.tumbling("10s"), name="w").agg(n=hg.count())
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
        assert len(d.table("w")) == 2


def test_a_window_behind_a_window_misses_nothing() -> None:
    """The results of ten seconds are rows of a minute: they come with the letter that closes the minute, too."""
    app = hg.App("job")
    tens = app.input("in", key="k", timestamp="ts").window(hg.tumbling("10s", grace="5s")).agg(n=hg.count())
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


def test_a_record_that_fails_leaves_no_trace_in_any_window() -> None:
    """It becomes a dead letter, and the other rows of its chunk count once."""
    app = hg.App("job", on_error="dead_letter")
    rows = app.input("in", key="k", timestamp="ts")
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
    store = MemoryStore("u")
    before = open_tables(store, Declared(job(hg.tumbling("10s"), n=hg.count())), clock=lambda: 0).tables
    before.table("w").update({(10_000, 0): [[b"a", b"b"], [[1], [2]]], "floor": 7})
    before.complete()
    before.seal()
    before.applied(1)
    more = job(hg.tumbling("10s", grace="5s"), total=hg.sum("x"), n=hg.count())
    after = open_tables(store, Declared(more), clock=lambda: 0).tables.table("w")
    assert dict(after.range()) == {(10_000, 0): [[b"a", b"b"], [[0, 1], [0, 2]]], "floor": 7}
    with pytest.raises(DeclarationError, match="tumbling-10s, not to a window tumbling-20s"):
        open_tables(store, Declared(job(hg.tumbling("20s"), n=hg.count())), clock=lambda: 0)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_any_chunks_any_restarts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a plain recount: a row counts in its window unless that was closed when it came."""
    monkeypatch.setattr(windowed, "STEP_RESULTS", 5)
    chance = random.Random(seed)
    size, grace = chance.choice([1_000, 7_000]), chance.choice([0, 500, 3_000])
    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts", max_out_of_order="2s")
    rows.window(hg.tumbling(size / 1000, grace=grace / 1000), late="late").agg(n=hg.count(), x=hg.sum("x")).to("out")
    expected: Counter[tuple[str, int]] = Counter()
    late: list[int] = []
    heard = -(2**60)
    with Driver(app) as d:
        time = 20_000
        for number in range(60):
            time += chance.randint(0, 900)
            chunk = [
                row(time - chance.choice([0, 1, 100, 1_999, 2_000, 5_000, 9_000]), chance.choice("abcdefg"), number)
                for _ in range(chance.randint(1, 5))
            ]
            for one in chunk:
                end = one["ts"] // size * size + size
                if end + grace <= heard:
                    late.append(one["ts"])
                else:
                    expected[one["k"], end - size] += one["x"] + 1000
            d.send_all("in", chunk)
            d.advance("1s")
            heard = max(heard, max(one["ts"] for one in chunk) - 2_000)
            if chance.random() < 0.2:
                d.restart()
        d.drain()
        found: Counter[tuple[str, int]] = Counter()
        ends: list[tuple[int, str]] = []
        for key, start, n, x, _ in results(d):
            assert (key, start) not in found
            found[key, start] = x + 1000 * n
            ends.append((start, key))
        assert found == expected
        assert ends == sorted(ends)
        assert [one.value["ts"] for one in d.read("late")] == late


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda rows: rows.window("10s"), "takes a window"),
        (lambda rows: rows.window(hg.tumbling(0)), "no time at all"),
        (lambda rows: rows.window(hg.tumbling("1m", offset="1m")), "offset"),
        (lambda rows: rows.window(hg.tumbling("1m")).agg(closed_by=hg.count()), "closed_by"),
        (lambda rows: rows.window(hg.tumbling("1m")).agg(), "at least one aggregate"),
        (lambda rows: rows.window(hg.tumbling("1m")).to("out"), "a window is not a record"),
        (lambda rows: rows.rekey("x").window(hg.tumbling("1m")).agg(n=hg.count()), "rekey"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_its_own_line(declare: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        declare(hg.App("job").input("in", key="k"))
