"""An event time that its topic does not accept as a timestamp goes from job to job in the header `hg-time`, and through dead letters."""

from __future__ import annotations

import time

import orjson
import pytest

import headgate as hg

from .conftest import Jobs
from .test_poison_records import HOUR_MS, altered
from .test_skipped_records import command

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def test_what_one_job_writes_with_another_timestamp_the_next_one_reads_with_its_event_time(job, topic):
    """The first job writes times that lie further ahead than the topic in between accepts. The second one takes them for what they are,
    also for a record that fails, becomes a dead letter and is replayed when the topic accepts even less."""
    inp, between, out = (
        topic("in"),
        topic("between", config={"message.timestamp.after.max.ms": str(HOUR_MS)}),
        topic("out"),
    )
    now = int(time.time() * 1000)
    ahead = (now // HOUR_MS + 5) * HOUR_MS + HOUR_MS // 60
    app = hg.App(job.name)
    app.input(inp, timestamp="ts", max_future="1d").map(lambda row: {"n": row["n"]}).to(between)
    first = await job.start(app)
    await first.until_running(1)
    await job.write(inp, [{"n": 1, "ts": now}, {"n": 2, "ts": ahead}, {"n": 3, "ts": ahead + 1}])
    plain, *clamped = await job.records(between, 3)
    assert (plain.timestamp, plain.headers) == (now, ())
    assert [one.headers for one in clamped] == [(("hg-time", b"%d" % (ahead + n)),) for n in (0, 1)]
    assert max(one.timestamp for one in clamped) <= now + 2 * HOUR_MS
    await first.stop()

    second = Jobs(job.bootstrap, job.directory / "second")
    broken = True

    def passed(row):
        if broken and row["n"] == 3:
            raise ValueError("not yet")
        return {**row, "k": "k"}

    try:
        app = hg.App(second.name, on_error="dead_letter")
        rows = app.input(between, max_future="1d").map(passed).repartition("k")
        rows.window(hg.tumbling("1h"), name="hours").agg(n=hg.count()).to(out)
        worker = await second.start(app)
        await worker.until_running(1)
        (letter,) = await second.records(second.topics.dead_letters, 1)
        assert dict(letter.headers)["hg-event-time"] == b"%d" % (ahead + 1)
        broken = False
        await altered(job, between, **{"message.timestamp.after.max.ms": str(HOUR_MS // 4)})
        said, code = await command(second, "dead-letters", "replay", second.name, "--all", "--yes")
        assert (code, "1 replayed" in said) == (0, True), said
        replayed = (await second.records(between, 4))[-1]
        assert replayed.headers == (("hg-time", b"%d" % (ahead + 1)),)
        assert replayed.timestamp <= int(time.time() * 1000) + HOUR_MS // 4
        await second.ask("drain")
        found = [orjson.loads(one.value) for one in await second.records(out, 2)]
        starts = {one["window_start"]: one["n"] for one in found}
        assert starts == {now // HOUR_MS * HOUR_MS: 1, ahead // HOUR_MS * HOUR_MS: 2}
    finally:
        await second.close()
