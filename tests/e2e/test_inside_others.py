"""Workers inside of somebody else's event loop, on a real broker."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

import headgate as hg

from .conftest import QUICK

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
