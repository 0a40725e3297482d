"""What a worker says of its windows: what is open, the oldest, what was late; through heartbeats, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.agents.worker.load.step_facts import load_of_steps, steps_of_load, summed
from headgate.agents.worker.load.window_load import StepWindows, windows_of


def row(ts: int, k: str) -> dict[str, Any]:
    return {"ts": ts, "k": k}


def test_what_is_open_and_what_was_late_is_counted_by_step() -> None:
    """Also over several tasks, and only by letters that were completed."""
    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts")
    rows.window(hg.hopping("20s", every="10s"), name="hops").agg(n=hg.count()).to("out")
    rows.window(hg.session("5s"), name="visits").agg(n=hg.count()).to("visited")
    with Driver(app, partitions={"in": 2}) as d:
        d.send_all("in", [row(1_000, "a"), row(11_000, "a"), row(12_000, "b")], partition=0)
        d.send_all("in", [row(12_000, "c")], partition=1)
        d.advance("1s")
        hops, visits = windows_of(d.tasks.values())
        assert hops == StepWindows("hops", 4, 6, 20_000)
        assert visits == StepWindows("visits", 3, 3, 16_000)
        d.send_all("in", [row(2_000, "a"), row(100, "b"), row(13_000, "b")], partition=0)
        d.advance("1s")
        hops, visits = windows_of(d.tasks.values())
        assert hops == StepWindows("hops", 4, 6, 20_000, 0, 2)
        assert visits == StepWindows("visits", 3, 3, 16_000, 2, 0)
        for partition in (0, 1):
            d.send("in", row(50_000, "d"), partition=partition)
        d.advance("1s")
        assert windows_of(d.tasks.values()) == [
            StepWindows("hops", 4, 4, 60_000, 0, 2),
            StepWindows("visits", 2, 2, 55_000, 2, 0),
        ]


def test_rows_of_a_chunk_that_failed_were_not_late() -> None:
    """It comes again, and its rows are counted then."""
    failures = iter([True])

    def fails_once(value: Any) -> Any:
        if value["ts"] == 1 and next(failures, False):
            raise ValueError("not now")
        return value

    app = hg.App("job", settings={"error.retries": 2})
    rows = app.input("in", key="k", timestamp="ts")
    rows.window(hg.tumbling("10s"), name="tens").agg(n=hg.count()).to("out")
    rows.map(fails_once).to("copy")
    with Driver(app) as d:
        d.send("in", row(30_000, "a"))
        d.advance("1s")
        d.send("in", row(1, "a"))
        d.advance("10s")
        assert [one.late for one in windows_of(d.tasks.values())] == [1]
        assert d.counters["late_rows"] == 1
        assert len(d.read("copy")) == 2


@pytest.mark.parametrize("most", [0, 100, 10_000])
def test_no_more_than_fits_is_said(most: int) -> None:
    """However many steps there are: a heartbeat has its limit."""
    some = [StepWindows(f"w{n}", n, 2 * n, None if n % 2 else -n, 3, 4) for n in range(20)]
    load = load_of_steps(some, most)
    assert steps_of_load(StepWindows, load) == some[: len(load) // 4]
    assert sum(len(name) + 12 for name in load) <= most
    assert StepWindows("w3", 6, 12, None, 6, 8) in summed([*some, *some])
