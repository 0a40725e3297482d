"""Which step has held the loop, by a clock that only the user's functions move."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

import headgate as hg
from headgate.agents.measured import Clocks, Meter
from headgate.agents.operators.pipeline.step_clock import OF_SHORT, SHORT_NS
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.step_work import StepTotals

from .test_pipeline import IN, Rig

MS = 1_000_000


class Time:
    """A clock that stands still until somebody works."""

    def __init__(self) -> None:
        self.ns = 0

    def works(self, ns: int) -> Any:
        def fn(value: Any) -> Any:
            self.ns += ns
            return value

        return fn


def measured(app: hg.App, time: Time) -> tuple[Rig, StepTotals]:
    rig, totals = Rig(app), StepTotals()
    rig.pipeline.meter = Meter(Clocks(lambda: time.ns, lambda: time.ns, lambda: 0))
    rig.pipeline.measure(totals, lambda: time.ns)
    return rig, totals


def chunk(rows: int, base: int = 0) -> Chunk:
    return Chunk.of(IN, [orjson.dumps({"k": "a", "n": n}) for n in range(rows)], base=base)


def taken(totals: StepTotals) -> dict[str, tuple[int, int]]:
    return {step: (work.ns // MS, work.rows) for step, work in totals.items()}


def test_a_step_has_its_own_time_without_that_of_the_steps_behind_it() -> None:
    """They run inside of its push. Rows are those that reach a step."""
    time, app = Time(), hg.App("job")
    app.input("in").map(time.works(2 * MS)).filter(lambda row: row["n"] % 2 == 0).map(time.works(30 * MS)).to("out")
    rig, totals = measured(app, time)
    asyncio.run(rig.run(chunk(10)))
    assert taken(totals) == {"in": (0, 10), "map": (20, 10), "filter": (0, 10), "map-2": (150, 5), "to": (0, 5)}


def test_branches_do_not_pay_for_each_other() -> None:
    """Two steps behind one."""
    time, app = Time(), hg.App("job")
    rows = app.input("in").map(time.works(MS))
    rows.map(time.works(5 * MS)).to("out")
    rows.map(time.works(7 * MS)).to("other")
    rig, totals = measured(app, time)
    asyncio.run(rig.run(chunk(2)))
    found = taken(totals)
    assert [found[step] for step in ("map", "map-2", "map-3")] == [(2, 2), (10, 2), (14, 2)]


def test_what_is_awaited_counts_while_it_works_and_not_while_it_waits() -> None:
    """Of several rows at once, each in an asyncio task of its own."""
    time, app = Time(), hg.App("job")

    async def asks(row: Any) -> Any:
        time.ns += 3 * MS
        await asyncio.sleep(0.01)
        time.ns += 4 * MS
        return row

    async def others() -> None:
        """What else the loop does meanwhile."""
        await asyncio.sleep(0.005)
        time.ns += 1000 * MS

    app.input("in").map_async(asks).map(time.works(MS)).to("out")
    rig, totals = measured(app, time)

    async def both() -> None:
        await asyncio.gather(rig.run(chunk(3)), others())

    asyncio.run(both())
    found = taken(totals)
    assert (found["map-async"], found["map"]) == ((21, 3), (3, 3))


def test_the_time_of_rows_that_fail_counts_too() -> None:
    """A step that works long and then raises is as slow; and the clock is right afterwards."""
    time, app = Time(), hg.App("job")

    def fails(row: Any) -> Any:
        time.ns += 9 * MS
        if row["n"] == 1:
            raise ValueError("no")
        return row

    app.input("in").map(fails).to("out")
    rig, totals = measured(app, time)

    async def twice() -> None:
        with pytest.raises(Exception, match="no"):
            await rig.run(chunk(2))
        rig.pipeline.drop()
        time.ns += 1000 * MS
        await rig.run(chunk(1))

    asyncio.run(twice())
    assert taken(totals)["map"] == (27, 3)


def test_what_is_handed_over_at_a_commit_belongs_to_who_held_it_back() -> None:
    """An aggregate emits at the seal; the step behind it pays for what it does with that."""
    time, app = Time(), hg.App("job")
    app.input("in", key="k").agg(n=hg.count()).map(time.works(6 * MS)).to("out")
    rig, totals = measured(app, time)
    asyncio.run(rig.run(chunk(5)))
    rig.seal()
    assert taken(totals)["map"] == (6, 1)


def test_of_short_chunks_a_sample_stands_for_all() -> None:
    """Rows are all counted; time comes out right in the long run; and a chunk that has become long is measured each time."""
    time, app = Time(), hg.App("job")
    cost = [SHORT_NS // 10]

    def works(row: Any) -> Any:
        time.ns += cost[0]
        return row

    app.input("in").map(works).to("out")
    rig, totals = measured(app, time)

    async def run(chunks: int) -> None:
        for n in range(chunks):
            await rig.run(chunk(1, n))

    asyncio.run(run(1 + 10 * OF_SHORT))
    assert totals["map"].rows == 1 + 10 * OF_SHORT
    assert totals["map"].ns == (1 + 10 * OF_SHORT) * cost[0]
    before, cost[0] = totals["map"].ns, 5 * MS
    asyncio.run(run(2 * OF_SHORT))
    long = totals["map"].ns - before
    assert long == (OF_SHORT * 5 * MS) + OF_SHORT * 5 * MS, "one that stood for all the short ones, then each"
