"""Workers inside of somebody else's event loop, on a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

import headgate as hg
from headgate.agents.queries.here import NotOpenHere
from headgate.agents.worker.job_topics import JobTopics

from .conftest import QUICK

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def given(job: Any) -> dict[str, Any]:
    return {"bootstrap": job.bootstrap, "settings": QUICK, "state_dir": job.directory / "state"}


def counting(name: str, inp: str, out: str) -> hg.App:
    app = hg.App(name)
    app.input(inp, key="k").agg(n=hg.count(), name="counts").to(out)
    return app


async def test_a_worker_runs_while_a_block_does_and_goes_on_in_the_next(job, topic):
    """What was committed when the block was left is what the next one begins with; signals stay the host's."""
    inp, out = topic("in"), topic("out")
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for turn in (1, 2):
        async with hg.running(counting(job.name, inp, out), **given(job)) as worker:
            await job.write(inp, [{"k": "a"}])
            await job.records(out, turn, more_s=0)
            assert worker.tasks == {"Partition 0": "running"}
            assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert [one["n"] for one in await job.values(out, 2)] == [1, 2]


async def test_two_jobs_and_two_workers_of_one_run_in_one_loop(make, topic):
    """Each has its own id; both take part, and all of it ends with the blocks."""
    one, two = make(), make()
    inp, out, other, last = topic("in", 2), topic("out"), topic("other"), topic("last")
    async with (
        hg.running(counting(one.name, inp, out), **given(one)) as first,
        hg.running(counting(one.name, inp, out), **given(one)) as second,
        hg.running(counting(two.name, other, last), **given(two)),
    ):
        await one.write(inp, [{"k": "a"}], partition=0)
        await one.write(inp, [{"k": "b"}], partition=1)
        await two.write(other, [{"k": "c"}])
        assert len(await one.values(out, 2)) == 2
        assert len(await two.values(last, 1)) == 1
        assert first.processor != second.processor
        assert {*first.tasks, *second.tasks} == {"Partition 0", "Partition 1"}
    assert not [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("worker ")]


async def test_run_ends_with_its_run_and_leaves_when_it_is_cancelled(job, topic):
    """A cancelled worker has committed and released: its successor has nothing to wait for."""
    inp, out = topic("in"), topic("out")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(hg.run(counting(job.name, inp, out), **given(job)))
        await job.write(inp, [{"k": "a"}])
        await job.records(out, 1, more_s=0)
        running.cancel()
    assert running.cancelled()
    async with asyncio.TaskGroup() as group:
        group.create_task(hg.run(counting(job.name, inp, out), **given(job)))
        await job.write(inp, [{"k": "a"}])
        await job.records(out, 2, more_s=0)
        await job.ask("drain")
    assert [one["n"] for one in await job.values(out, 2)] == [1, 2]


async def test_an_error_of_the_worker_ends_the_block_and_surfaces_there(job, topic):
    """The block would wait for ever. An input that does not exist is found after the start."""
    app = hg.App(job.name)
    app.input(topic("in"), key="k").to("out-" + job.name)
    app.input("absent-" + job.name).to("out-" + job.name)
    with pytest.raises(hg.HeadgateError, match="absent-"):
        async with hg.running(app, **given(job)):
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    with pytest.raises(hg.HeadgateError, match="absent-"):
        await hg.run(app, **given(job))


async def test_an_error_of_the_block_passes_and_the_worker_has_left(job, topic):
    """The next block gets the tasks at once."""
    inp, out = topic("in"), topic("out")
    worker = hg.running(counting(job.name, inp, out), **given(job))

    async def fails() -> None:
        async with worker:
            await job.write(inp, [{"k": "a"}])
            await job.records(out, 1, more_s=0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert worker.tasks == {}


async def until(true: Callable[[], bool]) -> None:
    """Wait until this is so."""
    give_up = time.monotonic() + 200
    while not true():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.02)


async def answered(session: aiohttp.ClientSession, url: str, good: Any) -> tuple[int, Any]:
    """The first answer that is wanted: rows are there after their commit."""
    async with asyncio.timeout(200):
        while True:
            async with session.get(url) as answer:
                found = answer.status, await answer.json()
            if good(*found):
                return found
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def serving(api: Any) -> AsyncIterator[str]:
    """The service on a free port."""
    server = uvicorn.Server(uvicorn.Config(api, port=0, log_level="warning"))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.serve())
        try:
            await until(lambda: server.started or running.done())
            yield f"http://localhost:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True


async def test_a_web_service_answers_from_the_table_of_its_worker(job, topic, monkeypatch):
    """The example, in FastAPI: rows are there after their commit, who is unknown is told from what cannot be known, a restart keeps all,
    and a service whose worker has left says so."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("served_table")
    inp = topic("in", 2)
    total = {"customer": "ann", "total": 5}
    for turn in (1, 2):
        api = example.service(hg.running(example.job(job.name, inp), **given(job)))
        async with serving(api) as url, aiohttp.ClientSession() as session:
            url += "/totals/"
            if turn == 1:
                await job.write(inp, [{"customer": "ann", "amount": 2}, {"customer": "ann", "amount": 3}])
            status, found = await answered(session, url + "ann", lambda status, found: found == total)
            assert (status, found) == (200, total)
            status, found = await answered(session, url + "bob", lambda status, _: status != 503)
            assert (status, found) == (404, {"detail": "bob has bought nothing"})
    with pytest.raises(hg.EnvironmentFault, match="does not run"):
        api.state.worker.get("totals", "ann")


async def test_a_worker_says_nothing_of_rows_that_another_may_have(job, topic):
    """That there is no row is said where all tasks are; a table that does not exist, and a wrong key, are other errors."""
    inp = topic("in", 2)

    def there(worker: hg.HostedWorker) -> bool:
        try:
            return worker.get("rows", "a") == {"v": 1}
        except NotOpenHere:
            return False

    def kept() -> hg.App:
        app = hg.App(job.name, key_serde=hg.text())
        app.input(inp).table("rows")
        return app

    async with hg.running(kept(), **given(job)) as one, hg.running(kept(), **given(job)) as two:
        await until(lambda: list(one.tasks.values()) == list(two.tasks.values()) == ["running"])
        await job.write(inp, [{"v": 1}], partition=0, key=b"a")
        (has, lacks) = (one, two) if "Partition 0" in one.tasks else (two, one)
        await until(lambda: there(has))
        with pytest.raises(NotOpenHere, match="Partition 0 is not open in this worker"):
            lacks.get("rows", "a")
        with pytest.raises(hg.HeadgateError, match=r"no table 'row'.*rows"):
            has.get("row", "a")
        with pytest.raises(hg.DeclarationError, match="the key"):
            has.get("rows", 7)


async def test_a_block_that_is_left_during_the_start_ends_also_if_a_library_drops_the_cancellation(
    job, topic, monkeypatch
):
    """As `asyncio.wait_for` does before Python 3.12, in clients: the worker would go on to work, and nothing would end it."""
    waiting, dropped = asyncio.Event(), asyncio.Event()
    start = JobTopics.start

    async def deaf(self: JobTopics) -> None:
        await start(self)
        waiting.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        dropped.set()

    monkeypatch.setattr(JobTopics, "start", deaf)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(hg.run(counting(job.name, topic("in"), topic("out")), **given(job)))
        await waiting.wait()
        running.cancel()
        _, alive = await asyncio.wait([running], timeout=60)
        assert not alive
    assert running.cancelled()
    assert dropped.is_set()
