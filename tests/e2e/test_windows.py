"""Windows on the real broker, through the public API: every window once and complete, also over a restart."""

from __future__ import annotations

import orjson
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def app_of(job, inp, out, late):
    app = hg.App(job.name)
    (
        app.input(inp, timestamp="ts", max_out_of_order="1s")
        .repartition("k")
        .window(hg.tumbling("10s", grace="2s"), late=late, name="tens")
        .agg(n=hg.count(), total=hg.sum("x"))
        .to(out)
    )
    return app


def found_in(records):
    """By key and start of the window: number, sum, and what closed it. A window that came twice would be found out."""
    values = [(r.key.decode(), r.timestamp, orjson.loads(r.value)) for r in records]
    assert all(at == v["window_end"] - 1 for _, at, v in values)
    found = {(k, v["window_start"]): (v["n"], v["total"], v["closed_by"]) for k, _, v in values}
    assert len(found) == len(values)
    return found


async def test_windows_close_once_and_complete_over_a_restart_and_a_drain(job, topic):
    """A window that is open when the worker stops goes on behind the restart; one that has closed stays closed; a drain closes what is
    left."""
    inp, out, late = topic("in", 2), topic("out", 2), topic("late", 1)
    base = 1_700_000_000_000
    rows = [{"k": f"k{n % 5}", "ts": base + n * 100, "x": n} for n in range(300)]
    await job.write(inp, rows[:150], partition=0)
    await job.write(inp, [rows[149]], partition=1)
    worker = await job.start(app_of(job, inp, out, late))
    first = found_in(await job.records(out, 5))
    assert {start for _, start in first} == {base}
    await worker.stop()
    worker = await job.start(app_of(job, inp, out, late))
    await job.write(inp, rows[150:], partition=0)
    await job.write(inp, [rows[299]], partition=1)
    assert {start for _, start in found_in(await job.records(out, 10))} == {base, base + 10_000}
    await job.write(inp, [{"k": "k1", "ts": base + 1, "x": 0}], partition=0)
    assert await job.values(late, 1) == [{"k": "k1", "ts": base + 1, "x": 0}]
    await job.ask("drain")
    assert await worker.ended() == 0
    expected: dict[tuple[str, int], list[int]] = {}
    for row in [*rows, rows[149], rows[299]]:
        expected.setdefault((row["k"], row["ts"] // 10_000 * 10_000), []).append(row["x"])
    assert found_in(await job.records(out, 15)) == {
        (k, start): (len(xs), sum(xs), "drain" if start == base + 20_000 else "watermark")
        for (k, start), xs in expected.items()
    }
