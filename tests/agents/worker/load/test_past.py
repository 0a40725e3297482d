"""What tasks have counted stays in the sums of the worker when they leave."""

from __future__ import annotations

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.agents.worker.load.join_load import joins_of
from headgate.agents.worker.load.window_load import windows_of


def test_sums_over_tasks_do_not_fall_when_tasks_leave() -> None:
    app = hg.App("job")
    orders = app.input("orders", timestamp="ts", key="k")
    orders.window(hg.tumbling("10s"), name="windows").agg(n=hg.count()).to("totals")
    payments = app.input("payments", timestamp="ts", key="k")
    orders.join(payments, within="1s", grace="0s", how="left", name="pairs", into=lambda one, other: one).to("pairs")
    with Driver(app) as d:

        def late() -> tuple[list[int], list[tuple[str, int, int]]]:
            past = d._runtime.past
            joins = joins_of(d.tasks.values(), past)
            windows = [one.late for one in windows_of(d.tasks.values(), past) if one.step == "windows"]
            return windows, [(one.side, one.late, one.alone) for one in joins]

        for ts in (1_000, 30_000, 2_000):
            d.send_all("payments", [{"k": "b", "ts": ts}])
            d.send_all("orders", [{"k": "a", "ts": ts}])
            d.advance("1s")
        before = late()
        assert before == ([1], [("left", 1, 1), ("right", 1, 0)])
        d.restart()
        assert late() == before
        d.send_all("orders", [{"k": "a", "ts": 3_000}])
        d.advance("1s")
        assert late() == ([2], [("left", 2, 1), ("right", 1, 0)])
