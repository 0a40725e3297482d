"""The test driver itself: what tests may call, what it refuses, and that it is the real thing without the waiting."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.agents.testing.state import DriverError


def counting() -> hg.App:
    app = hg.App("sales")
    orders = app.input("orders", timestamp="ts", max_out_of_order="5s")
    orders.repartition("country").agg(name="counts", n=hg.count()).to("revenue")
    return app


def order(country: str, ts: int = 0) -> dict[str, Any]:
    return {"country": country, "ts": ts}


def test_the_example_of_the_first_page() -> None:
    """Send, advance, read, look into a table, end."""
    with hg.testing.Driver(counting()) as d:
        d.send("orders", order("DE"))
        d.advance("1m")
        assert d.read("revenue") == [hg.Record("DE", {"n": 1}, 0)]
        assert d.read("revenue") == []
        assert d.table("counts")["DE"] == {"n": 1}
        d.end("orders")
        assert d.states == {"Partition 0": "ended"}


def test_several_partitions_are_several_tasks_in_one_process() -> None:
    """And a marker goes through the shuffle only when every one of them has said it."""
    with Driver(counting(), partitions={"orders": 4}) as d:
        assert list(d.tasks) == [f"Partition {n}" for n in range(4)]
        for partition in range(3):
            d.send("orders", order("DE", 10_000 * (partition + 1)), partition=partition)
        assert all("sales-1-by-country" not in known for known in d.watermarks.values())
        d.send("orders", order("DE", 40_000), partition=3)
        assert {known["sales-1-by-country"] for known in d.watermarks.values()} == {5000}


def test_a_source_that_is_silent_for_long_enough_holds_no_one_up() -> None:
    """Idleness is a matter of the clock, which moves when it is told to. Each confirmation lifts it to where the others had come before."""
    with Driver(counting(), partitions={"orders": 2}) as d:
        d.send("orders", order("DE", 60_000), partition=0)
        d.advance("10s")
        assert all("sales-1-by-country" not in known for known in d.watermarks.values())
        d.advance("2m")
        d.send("orders", order("DE", 61_000), partition=0)
        d.advance("3s")
        assert d.watermarks["Partition 0"]["sales-1-by-country"] == 56_000


def test_ends_and_drains_go_through_shuffles_behind_their_data() -> None:
    """Two stages of aggregates: nothing is held back when the run is over."""
    for over in (Driver.end, Driver.drain):
        app = hg.App("job")
        counts = app.input("in").repartition("k").agg(n=hg.count())
        counts.as_events().repartition(lambda v: "all", name="all").agg(name="sum", total=hg.last("n")).to("out")
        with Driver(app, partitions={"in": 2}) as d:
            d.send_all("in", [{"k": "a"}] * 10, partition=1)
            over(d)
            assert d.table("sum")["all"] == {"total": 10}
            assert set(d.states.values()) == {"ended" if over is Driver.end else "drained"}


def test_a_restart_goes_on_where_it_was_committed() -> None:
    """Positions, tables, watermarks; and after a drain a new run begins at the same positions."""
    with Driver(counting(), partitions={"orders": 2}) as d:
        d.send("orders", order("DE", 9000), partition=1)
        d.restart()
        d.send("orders", order("DE", 10_000), partition=1)
        d.drain()
        d.restart()
        d.send("orders", order("DE", 11_000), partition=1)
        assert [r.value["n"] for r in d.read("revenue")] == [1, 2, 3]


def test_the_same_calls_give_the_same_results() -> None:
    """Byte for byte, with everything in it."""

    def run() -> list[Any]:
        with Driver(counting(), partitions={"orders": 3}) as d:
            for n in range(50):
                d.send("orders", order("DEFR"[n % 4], n * 1000), partition=n % 3)
                d.advance("100ms")
            d.drain()
            stored = {at: d.topics.records(at) for at in d.topics._logs}
            return [d.read("revenue"), stored, d.watermarks]

    assert run() == run()


def test_time_is_virtual_on_every_clock() -> None:
    """A sleep in user code takes none, and the job's clocks do not notice it."""

    async def slowly(value: int) -> int:
        await asyncio.wait_for(asyncio.sleep(3600), 7200)
        return value

    app = hg.App("job")
    app.input("in").map_async(slowly).to("out")
    began = time.perf_counter()
    with Driver(app, now=1_700_000_000_000) as d:
        d.send("in", 1)
        d.advance("10d")
        d.send("in", 2)
        assert [r.timestamp for r in d.read("out")] == [1_700_000_000_000, 1_700_000_000_000 + 864_000_000]
    assert time.perf_counter() - began < 60


def test_what_really_happens_outside_is_really_waited_for() -> None:
    """A thread is not virtual, even beside a time-out that is."""

    async def in_a_thread(value: int) -> int:
        return await asyncio.wait_for(asyncio.to_thread(lambda: value + 1), 3600)

    app = hg.App("job")
    app.input("in").map_async(in_a_thread).to("out")
    with Driver(app) as d:
        d.send("in", 1)
        assert [r.value for r in d.read("out")] == [2]


def test_offsets_that_an_input_was_declared_with_end_it() -> None:
    """`until` by offset stands; every other bound is where the test says `end`."""
    app = hg.App("job")
    app.input("in", until={0: 2}).to("out")
    with Driver(app) as d:
        d.send_all("in", [1, 2, 3])
        assert [r.value for r in d.read("out")] == [1, 2]
        assert d.states == {"Partition 0": "ended"}


def test_offsets_that_leave_out_a_partition_are_refused() -> None:
    """As in a worker: the partition that was forgotten would never end, or never be read."""
    app = hg.App("job")
    app.input("in", until={0: 2}).to("out")
    with pytest.raises(hg.DeclarationError, match=r"gives no end for partition 1; the topic has 2 partitions"):
        Driver(app, partitions={"in": 2})


def test_a_record_goes_where_its_key_belongs() -> None:
    """By the given key, or by the field that the input is keyed by."""
    app = hg.App("job")
    app.input("in", key="k").to("out")
    with Driver(app, partitions={"in": 4, "out": 4}) as d:
        d.send("in", {"k": "21"})
        (found,) = d.topics.records(next(at for at in d.topics._logs if at.stream == "in" and d.topics.records(at)))
        assert (found.key, found.partition) == (b"21", 0)


@pytest.mark.parametrize(
    ("do", "says"),
    [
        (lambda d: d.send("order", 1), "is not an input"),
        (lambda d: d.send("orders", order("DE"), partition=7), "no partition 7"),
        (lambda d: d.table("count"), "no table 'count'. Remedy: it has counts"),
        (lambda d: d.read("sales-1-by-country"), "an internal stream of the job"),
        (lambda d: (d.end("orders"), d.send("orders", order("DE"))), "has ended"),
        (lambda d: (d.close(), d.send("orders", order("DE"))), "is closed"),
        (lambda d: Driver(counting(), partitions={"order": 2}), "no such topic"),
    ],
)
def test_what_the_driver_refuses(do: Any, says: str) -> None:
    """A misspelt name must not look like an empty result."""
    with Driver(counting()) as d, pytest.raises(DriverError) as refused:
        do(d)
    assert says in str(refused.value)


def test_the_fixture_closes_what_it_made(driver: Any) -> None:
    """`driver(app, partitions=…)` in any test."""
    d = driver(counting(), partitions={"orders": 2})
    d.send("orders", order("DE"), partition=1)
    assert len(d.read("revenue")) == 1


@pytest.mark.asyncio
async def test_a_driver_works_where_an_event_loop_runs() -> None:
    """In a cell of a notebook and in an async test, one runs always. The job's own awaits are the driver's, and take no time."""
    app = hg.App("naps")

    async def nap(value: int) -> int:
        await asyncio.sleep(3600)
        if value < 0:
            raise ValueError(value)
        return value + 1

    app.input("numbers").map_async(nap, concurrency=1).to("more")
    mine = asyncio.get_running_loop()
    with Driver(app) as d:
        d.send("numbers", 1)
        assert [one.value for one in d.read("more")] == [2]
        with pytest.raises(hg.UserCodeError, match="ValueError"):
            d.send("numbers", -1)
    assert asyncio.get_running_loop() is mine
    assert await asyncio.sleep(0, "still running") == "still running"


def test_a_driver_that_its_own_job_calls_says_so() -> None:
    """It would wait for itself for ever."""
    app = hg.App("loop")
    drivers: list[Driver] = []

    async def again(value: int) -> int:
        drivers[0].send("numbers", value)
        return value

    app.input("numbers").map_async(again, concurrency=1).to("more")
    with Driver(app) as d:
        drivers.append(d)
        with pytest.raises(hg.UserCodeError, match="called by the code of the job"):
            d.send("numbers", 1)
