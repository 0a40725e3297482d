"""Windows on the real broker: every window once and complete over kill -9. What they compute is told on the test driver."""

from __future__ import annotations

import orjson
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def found_in(records):
    """By key and start of the window: number, sum, and what closed it. A window that came twice would be found out."""
    values = [(r.key.decode(), r.timestamp, orjson.loads(r.value)) for r in records]
    assert all(at == v["window_end"] - 1 for _, at, v in values)
    found = {(k, v["window_start"]): (v["n"], v["total"], v["closed_by"]) for k, _, v in values}
    assert len(found) == len(values)
    return found


SOURCE = """
import headgate as hg

app = hg.App("JOB", settings={"watermark.idle-timeout": "1h"})
rows = app.input("IN", timestamp="ts", max_out_of_order="1s")
by = rows.repartition("k")
by.window(hg.session("3s", grace="1s")).agg(n=hg.count(), total=hg.sum("x")).to("SESSIONS")
rows.repartition("k", name="apart").window(hg.hopping("10s", every="5s")).agg(n=hg.count(), total=hg.sum("x")).to("HOPS")
rows.repartition("k", name="again").window(hg.tumbling("10s")).agg(n=hg.count(), total=hg.sum("x")).to("TENS")
"""


ROWS_SOURCE = """
import headgate as hg

class Middle(hg.Actor):
    failed = False

    def on_batch(self, ctx, batch):
        if not Middle.failed and batch.rows.keys[0] == "k3":
            Middle.failed = True
            ctx.forward({"n": 0, "total": 0, "middle": None})
            raise ValueError("once in each process")
        xs = [value["x"] for value in batch.values]
        assert [record.timestamp for record in batch] == sorted(value["ts"] for value in batch.values)
        ctx.forward({"n": len(xs), "total": sum(xs), "middle": sorted(xs)[len(xs) // 2]})

class Count(hg.Actor):
    def on_batch(self, ctx, batch):
        ctx.forward(len(batch))

app = hg.App("JOB", settings={"watermark.idle-timeout": "1h"})
by = app.input("IN", timestamp="ts", max_out_of_order="1s").repartition("k")
by.window(hg.tumbling("10s", grace="1s"), name="tens").process(Middle).to("TENS")
by.window(hg.session("3s"), name="sessions", at_end="close").process(Count).to("SESSIONS", key=hg.window_key)
"""


async def test_an_actor_gets_the_rows_of_each_window_once_and_complete_over_kill_9(job, topic):
    """A process dies in the middle, twice, with rows of open windows in the task log; and in each the actor fails once."""
    inp, tens, sessions = topic("in", 2), topic("tens", 2), topic("sessions", 2)
    base = 1_700_000_000_000
    rows = [{"k": f"k{n % 7}", "ts": base + n * 40 + (n // 500) * 20_000, "x": n} for n in range(1500)]
    source = ROWS_SOURCE.replace("IN", inp).replace("TENS", tens).replace("SESSIONS", sessions)
    for turn in range(3):
        part = rows[turn * 500 : turn * 500 + 500]
        one = await job.process(source)
        await job.write(inp, part[::2], partition=0)
        await job.write(inp, part[1::2], partition=1)
        await job.records(tens, (7, 21, 35)[turn], more_s=0)
        if turn < 2:
            one.kill()
            await one.ended()
    await job.ask("drain")
    assert await one.ended() == 0
    expected: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        expected.setdefault((row["k"], row["ts"] // 10_000 * 10_000), []).append(row["x"])
    found = await job.records(tens, len(expected))
    assert {(r.key.decode(), (v := orjson.loads(r.value))["window_start"]): v["middle"] for r in found} == {
        at: sorted(xs)[len(xs) // 2] for at, xs in expected.items()
    }
    assert {at: one[:2] for at, one in found_in(found).items()} == {
        at: (len(xs), sum(xs)) for at, xs in expected.items()
    }
    grown = {
        hg.key().dumps((f"k{k}", min(row["ts"] for row in mine))): len(mine)
        for k in range(7)
        for part in range(3)
        for mine in [[row for row in rows[part * 500 : part * 500 + 500] if row["k"] == f"k{k}"]]
    }
    counted = await job.records(sessions, len(grown))
    assert {r.key: orjson.loads(r.value) for r in counted} == grown
    assert len(counted) == len(grown)
    for record in counted:
        window = orjson.loads(dict(record.headers)["hg-window"])
        assert hg.key().loads(record.key)[1] == window["window_start"]
        assert record.timestamp == window["window_end"] - 1


async def test_every_kind_of_window_is_exact_over_kill_9(job, topic):
    """A process dies in the middle, twice; partial states, sessions and hopping windows are what a plain count says, each once."""
    inp, tens, hops, sessions = topic("in", 2), topic("tens", 2), topic("hops", 2), topic("sessions", 2)
    base = 1_700_000_000_000
    rows = [{"k": f"k{n % 7}", "ts": base + n * 40 + (n // 500) * 20_000, "x": n} for n in range(1500)]
    source = SOURCE.replace("IN", inp).replace("TENS", tens).replace("HOPS", hops).replace("SESSIONS", sessions)
    for turn in range(3):
        part = rows[turn * 500 : turn * 500 + 500]
        one = await job.process(source)
        if turn == 2:  # behind these rows everything else has closed
            part += [{"k": "k0", "ts": base + 300_000, "x": 0}] * 2
            rows += part[-2:]
        await job.write(inp, part[::2], partition=0)
        await job.write(inp, part[1::2], partition=1)
        await job.records(hops, 7 * (3 + turn * 5 if turn < 2 else 15), more_s=0)
        if turn < 2:
            one.kill()
            await one.ended()
    await job.ask("drain")
    assert await one.ended() == 0
    expected: dict[str, dict[tuple[str, int], list[int]]] = {"tens": {}, "hops": {}, "sessions": {}}
    last: dict[str, tuple[int, int]] = {}
    for row in rows:
        k, ts, x = row["k"], row["ts"], row["x"]
        expected["tens"].setdefault((k, ts // 10_000 * 10_000), []).append(x)
        for start in (ts // 5_000 * 5_000, ts // 5_000 * 5_000 - 5_000):
            expected["hops"].setdefault((k, start), []).append(x)
        start, before = last.get(k, (ts, ts))
        start = start if ts - before <= 3_000 else ts
        last[k] = start, ts
        expected["sessions"].setdefault((k, start), []).append(x)
    for name, out in (("tens", tens), ("hops", hops), ("sessions", sessions)):
        found = found_in(await job.records(out, len(expected[name])))
        assert {at: one[:2] for at, one in found.items()} == {
            at: (len(xs), sum(xs)) for at, xs in expected[name].items()
        }


SLIDING_SOURCE = """
from typing import TypedDict

import headgate as hg

class Row(TypedDict):
    k: str
    ts: int
    x: int

app = hg.App("JOB", settings={"watermark.idle-timeout": "1h"})
rows = app.input("IN", serde=hg.json(Row), timestamp="ts", max_out_of_order="1s")
made = {"n": hg.count(), "total": hg.sum("x"), "least": hg.min("x"), "own": hg.last("x")}
rows.repartition("k").window(hg.sliding("3s", grace="500ms"), late="LATE").agg(**made).to("ROWS")
rows.columns().repartition("k", name="apart").window(hg.sliding("3s"), name="columns").agg(**made).to("COLUMNS")
"""


async def test_each_row_has_its_sliding_window_once_and_complete_over_kill_9(job, topic):
    """A process dies in the middle, twice: rows that wait, and rows whose results are out, are in the task log. Rows come out of order, and
    several at a time."""
    inp, late, of_rows, of_columns = topic("in", 2), topic("late", 1), topic("rows", 2), topic("columns", 2)
    base = 1_700_000_000_000
    times = [base + (n - n % 2) * 40 - n % 5 * 150 + n // 500 * 1_500 for n in range(1500)]
    rows = [{"k": f"k{n % 3}", "ts": ts, "x": n} for n, ts in enumerate(times)]
    source = SLIDING_SOURCE.replace("IN", inp).replace("LATE", late)
    source = source.replace("ROWS", of_rows).replace("COLUMNS", of_columns)
    for turn in range(3):
        one = await job.process(source)
        part = rows[turn * 500 : turn * 500 + 500]
        await job.write(inp, part[::2], partition=0)
        await job.write(inp, part[1::2], partition=1)
        for out in (of_rows, of_columns):
            await job.records(out, 430 + 500 * turn, more_s=0)
        if turn < 2:
            one.kill()
            await one.ended()
    await job.ask("drain")
    assert await one.ended() == 0
    expected: dict[int, tuple[str, int, int, int, int]] = {}
    for row in rows:
        mine = [r["x"] for r in rows if r["k"] == row["k"] and row["ts"] - 3_000 < r["ts"] <= row["ts"]]
        expected[row["x"]] = row["k"], row["ts"], len(mine), sum(mine), min(mine)
    for out in (of_rows, of_columns):
        found = [(r.key.decode(), r.timestamp, orjson.loads(r.value)) for r in await job.records(out, 1500)]
        assert {v["own"]: (k, at, v["n"], v["total"], v["least"]) for k, at, v in found} == expected
        assert len(found) == 1500
        assert all((v["window_start"], v["window_end"]) == (at - 2_999, at + 1) for _, at, v in found)
        assert {v["closed_by"] for _, _, v in found} == {"watermark", "drain"}
