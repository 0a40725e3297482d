"""Examples of the page about controlling a job from a program: each function is one, and its first line says of what.

They run against the job `sales`, which has a live run with one worker, at the broker `bootstrap`.
"""

from __future__ import annotations

import asyncio
import tempfile

import headgate as hg


def metadata(bootstrap: str) -> None:
    """metadata"""
    sales = hg.metadata("sales", bootstrap=bootstrap)
    sales.put("config", "commit.interval", "500ms")
    assert sales.get("config", "commit.interval") == "500ms"
    assert sales.get("assignments", "Partition 0") is not None


def query(bootstrap: str) -> None:
    """query, QueriedTable, QueriedTable.get, QueriedTable.get_many, QueriedTable.scan, CommittedValue, CommittedValue.found"""

    async def program() -> None:
        async with hg.query("sales", "agg-n", bootstrap=bootstrap) as counts:
            found = await counts.get("a")
            assert found.value == {"n": 1}
            assert found.task == "Partition 0"
            assert found.commit is not None
            assert found.age_s >= 0
            assert [one.found for one in await counts.get_many(["a", "zoe"])] == [True, False]
            assert [row.key async for row in counts.scan(prefix="a", limit=10)] == ["a"]

    asyncio.run(program())


def pause_and_resume(bootstrap: str) -> None:
    """pause, resume"""
    assert hg.pause("sales", stream="orders", bootstrap=bootstrap).state == "done"
    assert hg.resume("sales", stream="orders", bootstrap=bootstrap).state == "done"


def scale(bootstrap: str) -> None:
    """scale"""
    try:
        hg.scale("sales", 3, bootstrap=bootstrap)
    except hg.HeadgateError as refused:  # its one worker was started without `--workers`
        assert "headgate run --workers" in str(refused)


def grow(bootstrap: str) -> None:
    """grow"""
    assert hg.grow("sales", bootstrap=bootstrap, timeout="1m").progress["inputs"] == []


def stop_and_start(bootstrap: str) -> None:
    """stop, start"""
    assert hg.stop("sales", bootstrap=bootstrap, timeout="1m").run_state == "stopped"
    assert hg.start("sales", bootstrap=bootstrap, timeout="1m").run_state == "running"


def drain(bootstrap: str) -> None:
    """drain, drains"""
    assert hg.drains("sales", bootstrap=bootstrap) == []
    assert hg.drain("sales", bootstrap=bootstrap, timeout="1m").run_state == "drained"


def withdraw(bootstrap: str) -> None:
    """withdraw"""
    later = hg.drain("sales", run_id="of-tomorrow", wait=False, bootstrap=bootstrap)
    outcome = hg.withdraw("sales", later.uuid, bootstrap=bootstrap)
    assert outcome.state in ("done", "written")  # written: no worker runs, and the next one carries it out


def output_schema() -> None:
    """output_schema"""
    schema = hg.output_schema("status")
    assert "tasks" in schema["properties"]
    assert hg.output_schema("drain") == hg.output_schema("pause")  # the leader's answer


def inside(bootstrap: str) -> None:
    """run, running, HostedWorker, HostedWorker.processor, HostedWorker.tasks, HostedWorker.ended"""
    seen: list[object] = []
    app = hg.App("sales", id="seen")
    app.input("orders").sink(lambda batch: seen.extend(batch.values))

    async def program() -> None:
        with tempfile.TemporaryDirectory() as state:
            async with hg.running(app, bootstrap=bootstrap, state_dir=state, bounded=True) as worker:
                assert worker.processor
                assert set(worker.tasks.values()) <= {"waiting", "restoring", "running"}
                await worker.ended()
            async with asyncio.timeout(60):
                await hg.run(app, bootstrap=bootstrap, state_dir=state, bounded=True)  # from where the last one was

    asyncio.run(program())
    assert seen


def read_inside(bootstrap: str) -> None:
    """HostedWorker.get"""
    app = hg.App("sales", id="kept")
    app.input("orders", key_serde=hg.text()).table("kept")

    async def program() -> object:
        with tempfile.TemporaryDirectory() as state:
            async with hg.running(app, bootstrap=bootstrap, state_dir=state) as worker, asyncio.timeout(60):
                while True:
                    try:
                        return worker.get("kept", "no such order")
                    except hg.EnvironmentFault:  # its task is not restored yet
                        await asyncio.sleep(0.1)

    assert asyncio.run(program()) is None
