"""Every operator on the real broker, through the public API: what comes out at a reader that is none of our code."""

from __future__ import annotations

import asyncio
from collections import Counter

import orjson
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def test_rows_are_mapped_flattened_filtered_merged_and_rekeyed(job, topic):
    """A row gives any number of rows; two streams become one; a new key moves nobody and decides the partition of the output."""
    left, right, out = topic("left", 2), topic("right", 2), topic("out", 4)
    app = hg.App(job.name)
    words = app.input(left).flat_map(lambda v: [{"w": w} for w in v["text"].split()]).filter(lambda v: v["w"] != "the")
    more = app.input(right).map(lambda v: {"w": v["word"]})
    words.merge(more).rekey("w").to(out)
    await job.write(left, [{"text": "the quick fox"}, {"text": ""}, {"text": "fox"}])
    await job.write(right, [{"word": "quick"}])
    await job.start(app)
    found = await job.records(out, 4)
    assert Counter(r.key.decode() for r in found) == {"quick": 2, "fox": 2}
    assert all(orjson.loads(r.value)["w"] == r.key.decode() for r in found)
    assert all(len({r.partition for r in found if r.key == key}) == 1 for key in (b"quick", b"fox"))


async def test_a_partition_function_and_a_key_of_the_output_decide_where_a_record_goes(job, topic):
    """`partition(record)` wins over the key."""
    inp, out = topic("in"), topic("out", 4)
    app = hg.App(job.name)
    app.input(inp).to(out, key="k", partition=lambda record: record.value["p"])
    await job.write(inp, [{"k": "same", "p": n % 4} for n in range(8)])
    await job.start(app)
    found = await job.records(out, 8)
    assert {(r.key, r.partition) for r in found} == {(b"same", n) for n in range(4)}
    assert all(orjson.loads(r.value)["p"] == r.partition for r in found)


async def test_awaited_calls_are_bounded_and_their_results_stand_in_the_order_of_the_input(job, topic):
    """The first call is the slowest; no more than four run at once; none waits for the one before it."""
    inp, out = topic("in"), topic("out")
    going, most, four, over = 0, 0, asyncio.Event(), asyncio.Event()

    async def call(value):
        nonlocal going, most
        going += 1
        most = max(most, going)
        if going == 4:
            four.set()
        await four.wait()
        if value["n"] == 0:
            await over.wait()  # until others have come and gone
        elif value["n"] == 3:
            over.set()
        going -= 1
        return {"n": value["n"]}

    app = hg.App(job.name)
    app.input(inp).map_async(call, concurrency=4).to(out)
    await job.write(inp, [{"n": n} for n in range(50)])
    await job.start(app)
    assert [v["n"] for v in await job.values(out, 50)] == list(range(50))
    assert most == 4


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


async def test_every_aggregate_by_key_behind_a_shuffle(job, topic):
    """All aggregates at once: the last update of each key is what a plain loop counts."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name)
    longest = hg.aggregate(lambda: "", lambda a, v: max(a, v["s"], key=len), lambda a, b: max(a, b, key=len))
    app.input(inp, until="newest").repartition("k").agg(
        n=hg.count(), total=hg.sum("v"), low=hg.min("v"), high=hg.max("v"), mean=hg.mean("v"), first=hg.first("v"),
        last=hg.last("v"), all=hg.collect("v"), longest=longest,
    ).to(out)  # fmt: skip
    rows = [{"k": f"k{n % 3}", "v": n, "s": "x" * (n % 7)} for n in range(60)]
    await job.write(inp, rows, partition=0)
    worker = await job.start(app)
    assert await worker.ended() == 0
    found = {r.key.decode(): orjson.loads(r.value) for r in await job.records(out, 3)}
    for k in range(3):
        own = [row["v"] for row in rows if row["k"] == f"k{k}"]
        got = found[f"k{k}"]
        assert (got["n"], got["total"], got["low"], got["high"]) == (len(own), sum(own), own[0], own[-1])
        assert (got["mean"], got["first"], got["last"]) == (sum(own) / len(own), own[0], own[-1])
        assert (got["all"], len(got["longest"])) == (own, 6)


@pytest.mark.parametrize("broadcast", [True, False])
async def test_a_join_finds_each_row_in_a_table_that_is_read_first(job, topic, broadcast):
    """The table's input is read to its end before an order is; inner drops what has no row, left keeps it; a null value deletes."""
    orders, rates, inner, left = topic("orders", 2), topic("rates", 2), topic("inner", 2), topic("left", 2)
    app = hg.App(job.name)
    table = app.input(rates, key="currency").table("rates", broadcast=broadcast)
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
    knowing = 2 if broadcast else 1
    await worker.until(lambda: len(rows_of(worker, "rates", "CHF")) == knowing, "the new rate is in each table")
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


async def test_a_sink_gets_every_row_with_the_id_of_its_batch_and_an_actor_in_the_middle_passes_on(job, topic):
    """`sink` at least once, ids that never overlap; `process` with its arguments."""
    inp, out = topic("in"), topic("out")
    got = []

    async def keep(batch):
        got.append((batch.meta["id"], [v["n"] for v in batch.values]))

    class Every(hg.Actor):
        def __init__(self, step):
            self.step = step

        def on_batch(self, ctx, batch):
            for record in batch:
                if record.value["n"] % self.step == 0:
                    ctx.forward(record.value, key=f"k{record.value['n']}", timestamp=record.timestamp)

    app = hg.App(job.name)
    stream = app.input(inp)
    stream.sink(keep)
    stream.process(Every, step=5).map(lambda v: {"n": v["n"] * 10}).to(out)
    await job.write(inp, [{"n": n} for n in range(20)])
    await job.start(app)
    found = await job.records(out, 4)
    assert [(r.key, orjson.loads(r.value)["n"]) for r in found] == [(f"k{n}".encode(), n * 10) for n in (0, 5, 10, 15)]
    assert [n for _, numbers in got for n in numbers] == list(range(20))
    assert len({name for name, _ in got}) == len(got)


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
    async with asyncio.timeout(60):
        last = {}
        while last != {"Partition 0": 15, "Partition 1": 15}:
            last = {r.key.decode(): orjson.loads(r.value)["n"] for r in await job.records(out, 2)}
