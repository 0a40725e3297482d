"""Tables on the real broker: they survive a kill, a restart replays the difference, and a store that lies is noticed and rebuilt."""

from __future__ import annotations

import asyncio
import shutil

import orjson
import pytest

import headgate as hg
from headgate.agents.state.store import Owner

from .scenes import counting

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def rows(count, keys=50):
    return [{"user": f"u{n % keys}"} for n in range(count)]


async def counts(job, out, least):
    """The last update for each key."""
    return {r.key.decode(): orjson.loads(r.value)["n"] for r in await job.records(out, least)}


async def until_total(job, out, total):
    async with asyncio.timeout(240):
        while sum((await counts(job, out, 1)).values()) != total:
            assert sum((await counts(job, out, 1)).values()) <= total


def store_of(job):
    return job.directory / "state" / f"{job.name}-1" / "tasks" / "Partition-0"


async def test_a_restart_on_the_same_location_replays_nothing_or_the_difference(job, topic):
    """After a clean stop the store stands at the end of its log; after a kill only what came since the last write is replayed."""
    inp, out = topic("in", 1), topic("out", 1)
    await job.write(inp, rows(1000))
    first = await job.start(counting(job, inp, out))
    await until_total(job, out, 1000)
    await first.stop()
    second = await job.start(counting(job, inp, out))
    await second.until_running(1)
    assert second.worker.actors["Partition 0"].state.replayed == 0
    await job.write(inp, rows(500))
    await until_total(job, out, 1500)
    await second.crash()
    third = await job.start(counting(job, inp, out))
    await third.until_running(1)
    assert third.worker.actors["Partition 0"].state.replayed <= 120  # two commits at most, not the whole log
    await job.write(inp, rows(500))
    await until_total(job, out, 2000)
    assert set((await counts(job, out, 50)).values()) == {40}


def _damage(job):
    for file in (store_of(job) / "db").glob("MANIFEST*"):
        file.write_bytes(b"nonsense")


def _damage_a_block(job):
    """RocksDB opens it without a word, and fails when the block is read."""
    counts = max((store_of(job) / "db").glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(counts.read_bytes())
    data[20:120] = bytes(100)
    counts.write_bytes(data)


def _rewrite(job, **changes):
    import dataclasses

    from headgate.agents.state.rocks import RocksStore, StoreMemory, open_rocks

    store = open_rocks(store_of(job), StoreMemory(8 << 20), Owner(job.uuid, "Partition 0", 0))
    assert isinstance(store, RocksStore)
    store._meta = dataclasses.replace(store._meta, **changes)
    store.write({})
    store.close()


LIES = {
    "damaged": (_damage, "RocksDB cannot open it"),
    "damaged in a block": (_damage_a_block, "it could not be read"),
    "foreign": (lambda job: _rewrite(job, owner=Owner("another's", "Partition 0", 0)), "it belongs to the job"),
    "another task's": (lambda job: _rewrite(job, owner=Owner(job.uuid, "Partition 1", 1)), "it belongs to the task"),
    "newer": (lambda job: _rewrite(job, format=99), "a newer headgate wrote it"),
    "stale": (lambda job: _rewrite(job, followed_until_ms=1, position=1), "deleted keys could reappear"),
    "ahead": (lambda job: _rewrite(job, position=10_000_000), "log"),
}


async def test_a_store_that_cannot_be_trusted_is_rebuilt_and_the_log_says_why(job, topic, capsys):
    """Damaged, foreign, newer, stale, or ahead of its log: wiped, restored, right; one after the other."""
    inp, out = topic("in", 1), topic("out", 1)
    await job.write(inp, rows(total := 200))
    worker = await job.start(counting(job, inp, out))
    await until_total(job, out, total)
    await worker.stop()
    for lie, (tell_it, reason) in LIES.items():
        await asyncio.to_thread(tell_it, job)
        capsys.readouterr()
        worker = await job.start(counting(job, inp, out))
        await worker.until_running(1)
        await job.write(inp, rows(50))
        await until_total(job, out, total := total + 50)
        said = capsys.readouterr().err
        assert "local store is rebuilt" in said, lie
        assert reason in said, lie
        assert worker.worker.actors["Partition 0"].state.replayed >= 50, lie
        await worker.stop()


async def test_what_has_lived_its_time_is_deleted_in_the_log(job, topic):
    """A ttl is a logged delete: the key is gone from the table, and stays gone after a restore from nothing.

    There are 20,000 of them: whoever deletes one a second would keep them for hours.
    """
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    seen = app.table("seen", key=hg.text(), value=hg.json(), ttl="300ms")

    def mark(value):
        before = seen.get(value["k"])
        seen[value["k"]] = value
        return {"k": value["k"], "known": before is not None}

    app.input(inp).map(mark).to(out)
    await job.write(inp, [{"k": "a"}, {"k": "a"}, {"k": "b"}])  # before the start: they come in one chunk
    one = await job.start(app)
    assert [v["known"] for v in await job.values(out, 3)] == [False, True, False]
    store = one.worker.actors["Partition 0"].state.store
    await job.write(inp, [{"k": f"k{n}"} for n in range(20_000)])
    await one.until(
        lambda: sum(one.worker.actors["Partition 0"].contribution.durable.values()) == 20_003, "all is read"
    )
    await one.until(lambda: not list(store.range("seen")), "the keys are deleted")
    await one.until(lambda: not one.worker.actors["Partition 0"].state._checkpoints, "the delete is durable")
    await one.crash()
    shutil.rmtree(job.directory / "state")
    again = await job.start(app)
    await again.until_running(1)
    assert list(again.worker.actors["Partition 0"].state.store.range("seen")) == []


async def test_two_workers_share_a_job_and_one_takes_over(job, topic):
    """A second worker joins and takes its half; when one dies without a word the other has all of it, and counts go on."""
    inp, out = topic("in", 4), topic("out", 4)
    one = await job.start(counting(job, inp, out), "w1")
    await one.until_running(4)
    two = await job.start(counting(job, inp, out), "w2")
    await two.until_running(2)
    await one.until_running(2)
    await job.write(inp, [{"user": f"u{n}"} for n in range(400)])
    await until_total(job, out, 400)
    await one.crash()
    await two.until_running(4)
    await job.write(inp, [{"user": f"u{n}"} for n in range(400)])
    await until_total(job, out, 800)
    assert set((await counts(job, out, 400)).values()) == {2}
    await two.stop()
