"""A worker with very little memory for state: it drops and reads again, says so, and gives what any other gives."""

from __future__ import annotations

import orjson
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
KEYS, TURNS, BASE = 1_000, 4, 1_700_000_000_000


async def test_states_and_kept_rows_are_evicted_and_results_are_equal(job, topic):
    """256 KiB, of which a quarter is for decoded rows: states of running aggregates, in arrays and in lists, and the rows of a join. The
    rule that evicts runs on a real worker, and its metric says so."""
    inp, paid, counts, lists, pairs = (topic(name, 2) for name in ("in", "paid", "counts", "lists", "pairs"))
    app = hg.App(job.name)
    rows = app.input(inp, timestamp="ts", max_out_of_order="1h").repartition("k", name="orders")
    other = app.input(paid, timestamp="ts", max_out_of_order="1h").repartition("k", name="payments")
    rows.agg(n=hg.count(), total=hg.sum("n")).to(counts)
    rows.agg(seen=hg.aggregate(list, lambda state, value: [*state, value["n"]]), name="seen").to(lists)
    rows.join(other, within="10s", into=lambda one, two: [one["n"], two["n"]], name="pairs").to(pairs)
    one = await job.start(app, state_memory=256 << 10)
    for turn in range(TURNS):
        some = [
            {"k": f"k{n}", "n": turn * KEYS + n, "ts": BASE + turn * 1000 + n, "pad": "x" * 100} for n in range(KEYS)
        ]
        await job.write(inp, some)
        await job.write(paid, some[:: TURNS - turn])
        await job.values(pairs, sum(len(range(0, KEYS, TURNS - t)) * (turn + 1) for t in range(turn + 1)), more_s=0)
    assert one.worker.memory.decoded.limit == 64 << 10
    assert one.worker.memory.decoded.evicted > 64 << 10
    expected = []
    for t in range(TURNS):
        expected += [[at * KEYS + n, t * KEYS + n] for n in range(0, KEYS, TURNS - t) for at in range(TURNS)]
    assert sorted(await job.values(pairs, len(expected))) == sorted(expected)
    newest = {}
    for record in await job.records(counts, 1):
        newest[record.key] = orjson.loads(record.value)
    assert newest == {b"k%d" % n: {"n": TURNS, "total": sum(t * KEYS + n for t in range(TURNS))} for n in range(KEYS)}
    seen = {}
    for record in await job.records(lists, 1):
        seen[record.key] = sorted(orjson.loads(record.value)["seen"])
    assert seen == {b"k%d" % n: [t * KEYS + n for t in range(TURNS)] for n in range(KEYS)}
