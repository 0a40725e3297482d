"""`hg.metadata(JOB)`: one contract, over the coordinator stream of a job that runs and in the memory of a test driver."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headgate as hg
from headgate.core.coordination.metadata import MetadataStore
from headgate.core.errors import DataError, HeadgateError, SettingError

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def copies(name: str, inp: str, out: str) -> hg.App:
    app = hg.App(name, settings={"chunk.max-records": 50})
    app.input(inp).to(out)
    return app


def keeps_the_contract(store: MetadataStore, processor: str, takes: Any) -> None:
    """`takes` waits until the worker goes by this number of records a chunk."""
    assert store.all("config") == {}
    store.put("config", "chunk.max-records", 7)
    assert store.get("config", "chunk.max-records") == 7
    takes(7)
    before = store.all("config")
    store.put("config", "chunk.max-records", 8)
    store.remove("config", "chunk.max-records")
    assert store.get("config", "chunk.max-records") is None
    assert before == {"chunk.max-records": 7}
    store.remove("config", "chunk.max-records")  # no matter that it is not there
    takes(50)

    worker = store.all("locality")[processor]
    tasks = store.all("assignments")
    assert worker["tasks"] == list(tasks) == ["Partition 0"]
    task = tasks["Partition 0"]
    assert (task["worker"], task["wanted"], task["said"]) == (processor, processor, "running")
    assert task["location"] == worker["location"] != ""

    pause = {"verb": "pause"}
    store.put("requests", "by-night", pause)
    store.put("requests", "by-night", pause)
    assert store.get("requests", "by-night")["state"] == "done"
    store.put("requests", "by-day", {"verb": "resume"})
    mine = [one for one in store.all("requests") if one.startswith("by-")]
    assert mine == ["by-night", "by-day"]

    with pytest.raises(DataError, match="written only by the leader") as told:
        store.put("assignments", "Partition 0", "w9")
    assert "headgate move JOB TASK --to P" in told.value.remedy
    with pytest.raises(DataError, match="written only by a worker"):
        store.remove("locality", processor)
    with pytest.raises(DataError, match="no namespace 'tables'"):
        store.all("tables")
    with pytest.raises(SettingError, match=r"chunk\.max-record"):
        store.put("config", "chunk.max-record", 7)
    with pytest.raises(HeadgateError, match="immutable"):
        store.put("config", "grouper", "all")
    with pytest.raises(HeadgateError, match="there is no pending request by-night"):
        store.remove("requests", "by-night")
    assert store.all("config") == {}


def most(worker: Any) -> set[int]:
    """How many records its tasks take at once at most."""
    return {one.reading.intake.chooser.limit for one in worker.actors.values() if one.reading.intake is not None}


async def test_over_the_coordinator_stream_of_a_running_job(job, topic):
    inp, out = topic("in"), topic("out")
    running = await job.start(copies(job.name, inp, out))
    await running.until_running(1)
    await running.until(lambda: running.worker.coordination.member.job.says("Partition 0") == "running", "it is said")
    loop = asyncio.get_running_loop()

    def takes(records: int) -> None:
        applied = running.until(lambda: most(running.worker) == {records}, f"{records} a chunk")
        asyncio.run_coroutine_threadsafe(applied, loop).result()

    store = hg.metadata(job.name, bootstrap=job.bootstrap)
    await asyncio.to_thread(keeps_the_contract, store, "w1", takes)
    await job.write(inp, [{"n": 1}])
    assert await job.values(out, 1) == [{"n": 1}]
    await asyncio.to_thread(store.put, "requests", "over", {"verb": "drain"})
    assert await running.ended() == 0
    await asyncio.to_thread(store.put, "requests", "over", {"verb": "drain"})  # a scheduler that asks again
    over = await asyncio.to_thread(store.get, "requests", "over")
    assert over["state"] == "done"


async def test_in_the_memory_of_a_test_driver():
    def all_of_it() -> None:
        with hg.testing.Driver(copies("sales", "orders", "copies")) as driver:

            def takes(records: int) -> None:
                assert {one.reading.intake.chooser.limit for one in driver.tasks.values()} == {records}

            keeps_the_contract(driver.metadata, "driver", takes)
            driver.send("orders", {"n": 1})
            assert [one.value for one in driver.read("copies")] == [{"n": 1}]

    await asyncio.to_thread(all_of_it)  # a driver has a loop of its own


async def test_a_job_that_is_not_there(kafka):
    with pytest.raises(HeadgateError, match="there is no job 'nowhere'"):
        await asyncio.to_thread(hg.metadata("nowhere", bootstrap=kafka.bootstrap).all, "config")
