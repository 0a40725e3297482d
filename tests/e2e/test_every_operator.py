"""What only a broker shows of operators: commits beside what awaits, tables that are read first and everywhere, agents as Faust runs them.

What operators compute is told on the test driver (`tests/agents/operators`, `tests/agents/job`).
"""

from __future__ import annotations

import asyncio

import orjson
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def test_what_awaits_holds_up_no_commit_of_other_tasks(job, topic):
    """One task hangs in a call; its neighbour's results are committed all the same."""
    inp, out = topic("in", 2), topic("out", 2)
    go = asyncio.Event()

    async def call(value):
        if value["n"] == 0:
            await go.wait()
        return value

    app = hg.App(job.name)
    app.input(inp).map_async(call).to(out)
    worker = await job.start(app)
    await worker.until_running(2)
    await job.write(inp, [{"n": 0}], partition=0)
    await job.write(inp, [{"n": 1}, {"n": 2}], partition=1)
    assert [v["n"] for v in await job.values(out, 2)] == [1, 2]
    go.set()
    assert sorted(v["n"] for v in await job.values(out, 3)) == [0, 1, 2]


async def test_a_join_finds_each_row_in_a_table_that_is_read_first(job, topic):
    """The table's input is read to its end before an order is; inner drops what has no row, left keeps it; a null value deletes."""
    orders, rates, inner, left = topic("orders", 2), topic("rates", 2), topic("inner", 2), topic("left", 2)
    app = hg.App(job.name)
    table = app.input(rates, key="currency").table("rates")
    stream = app.input(orders, key="currency")
    into = lambda order, rate: {"n": order["n"], "rate": rate and rate["rate"]}  # noqa: E731 - one for both joins
    stream.join(table, on="currency", into=into).to(inner)
    stream.join(table, on="currency", into=into, how="left").to(left)
    for currency, value in (
        ("EUR", {"currency": "EUR", "rate": 2}),
        ("GBP", {"currency": "GBP", "rate": 3}),
        ("GBP", None),
    ):
        await job.write(rates, [value], partition=keyed(currency, 2), key=currency.encode())
    for n, currency in enumerate(("EUR", "GBP", "CHF", "EUR")):
        await job.write(orders, [{"n": n, "currency": currency}], partition=keyed(currency, 2), key=currency.encode())
    worker = await job.start(app)
    assert sorted((v["n"], v["rate"]) for v in await job.values(inner, 2)) == [(0, 2), (3, 2)]
    found = sorted((v["n"], v["rate"]) for v in await job.values(left, 4))
    assert found == [(0, 2), (1, None), (2, None), (3, 2)]
    misses = sum(counts["join_misses"] for counts in worker.worker.counters.values())
    assert misses >= 2
    await job.write(rates, [{"currency": "CHF", "rate": 4}], partition=keyed("CHF", 2), key=b"CHF")
    await worker.until(lambda: rows_of(worker, "rates", "CHF"), "the new rate is in the table")
    await job.write(orders, [{"n": 9, "currency": "CHF"}], partition=keyed("CHF", 2), key=b"CHF")
    assert (9, 4) in [(v["n"], v["rate"]) for v in await job.values(inner, 3)]


def keyed(key, width):
    from headgate.agents.records.kafka.partitioner import partition_of

    return partition_of(key.encode(), width)


def rows_of(worker, table, key):
    """The tasks whose table holds this key."""
    found = []
    for name, actor in worker.worker.actors.items():
        tables = actor.state.tables
        if tables is not None and tables.table(table).get(key) is not None:
            found.append(name)
    return found


async def test_broadcast_brings_every_row_to_every_task(job, topic):
    """A stream of three rows, two tasks: each task has seen all three."""
    inp, side, out = topic("in", 2), topic("side", 2), topic("out", 2)
    app = hg.App(job.name, key_serde=hg.text())
    known = app.input(side, key="k").broadcast("everyone").table("known", broadcast=True)
    app.input(inp).join(known, on="k", into=lambda v, row: {**v, **row}).to(out)
    worker = await job.start(app)
    await worker.until_running(2)
    await job.write(side, [{"k": f"k{n}", "x": n} for n in range(3)])
    for n in range(3):
        await worker.until(lambda n=n: len(rows_of(worker, "known", f"k{n}")) == 2, "both tasks know it")
    await job.write(inp, [{"k": f"k{n % 3}", "n": n} for n in range(6)])
    assert sorted((v["n"], v["x"]) for v in await job.values(out, 6)) == [(n, n % 3) for n in range(6)]


async def test_an_agent_yields_records_and_uses_tables(job, topic):
    """Each task has an agent of its own, with its own part of the table; what it yields is committed with the chunk."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name, key_serde=hg.text())
    counts = app.table("counts", value=hg.json())

    @app.agent(app.input(inp), sink=out)
    async def count(batches: hg.Batches):
        async for batch in batches:
            counts["n"] = counts.get("n", 0) + len(batch)
            yield [hg.Record(batches.task, {"n": counts["n"]})]

    await job.write(inp, [{"n": n} for n in range(30)])
    worker = await job.start(app)
    await worker.until_running(2)
    async with asyncio.timeout(240):
        last = {}
        while last != {"Partition 0": 15, "Partition 1": 15}:
            last = {r.key.decode(): orjson.loads(r.value)["n"] for r in await job.records(out, 2)}
