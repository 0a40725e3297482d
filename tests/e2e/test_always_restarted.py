"""A stop and a drain under a supervisor that starts each worker again at once, whatever it ended with.

That is what systemd does with `Restart=always`, and a Kubernetes Deployment with the containers of its pods. Neither knows of runs, so the
worker itself must neither undo a stop nor begin another run: it waits, not ready, says why and what goes on, and takes no processor time.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from headgate.agents.cli.options import Target
from headgate.agents.cli.see.status import read
from headgate.agents.process.configuration import CommandLine, configure
from headgate.core.names import JobName

from ..docs.api import examples_of
from .conftest import Jobs, Process

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(900)]

SOURCE = """
import orjson

import headgate as hg

def dumps(value):
    return b"MARK" + orjson.dumps(value)

def loads(raw):
    assert raw[:1] == b"MARK", "of another version"
    return orjson.loads(raw[1:])

app = hg.App("JOB")
app.input("IN").repartition("k", serde=hg.custom(loads, dumps, name="NAME")).to("OUT")
"""
"""The format between the stages is that of its version; nobody else can read it."""
PATIENCE_S = 240.0
"""A process that begins on a busy machine takes long."""
BUSY = 0.5
"""More than this share of a core is no waiting. A worker that waits takes a hundredth of it."""


@dataclass
class Kept:
    """One worker under such a supervisor."""

    job: Jobs
    name: str
    source: str
    lives: list[Process] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    async def keep(self) -> None:
        """Until it is cancelled."""
        while True:
            self.lives.append(await self.job.process(self.source, self.name))
            self.codes.append(await self.lives[-1].process.wait())

    async def until_said(self, text: str, life: int) -> str:
        """Wait until this life of the worker says this. Returns all that it has said."""
        give_up = time.monotonic() + PATIENCE_S
        while len(self.lives) < life or text not in self.lives[life - 1].text():
            assert time.monotonic() < give_up, f"{self.codes}: {self.lives[-1].text()[-4000:]}"
            await asyncio.sleep(0.05)
        return self.lives[life - 1].text()

    async def until_ended(self, lives: int) -> None:
        """Wait until so many lives of the worker have ended."""
        give_up = time.monotonic() + PATIENCE_S
        while len(self.codes) < lives:
            assert time.monotonic() < give_up, f"{self.codes}: {self.lives[-1].text()[-4000:]}"
            await asyncio.sleep(0.05)

    def terminate(self) -> None:
        """As the supervisor does for a new version."""
        self.lives[-1].process.send_signal(signal.SIGTERM)

    @property
    def busy_s(self) -> float:
        used = psutil.Process(self.lives[-1].process.pid).cpu_times()
        return used.user + used.system


@contextlib.asynccontextmanager
async def kept(job: Jobs, source: str, *names: str) -> Any:
    """Workers of these names."""
    workers = [Kept(job, name, source) for name in names]
    tasks = [asyncio.get_running_loop().create_task(one.keep(), name=one.name) for one in workers]
    try:
        yield workers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def status(job: Jobs) -> Any:
    return await read(Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap))))


async def wait_for_somebody(job: Jobs, workers: list[Kept], life: int, run: str, state: str, helps: str) -> None:
    """Each worker has been started again, has read that its run is closed, and does nothing but say so."""
    for one in workers:
        said = await one.until_said("To continue:", life)
        assert f"Waiting: run {run} is {state}.\nTo continue: {helps}" in said
    give_up = time.monotonic() + PATIENCE_S
    while True:  # they have joined: the next status shows them
        found = await status(job)
        if len(found["workers"]) == len(workers) and all(one["alive"] for one in found["workers"]):
            break
        assert time.monotonic() < give_up, found["workers"]
    busy = dict[str, float]()
    while max(busy.values(), default=1.0) >= BUSY:  # the start may not be over in all of it
        assert time.monotonic() < give_up, busy
        before_s = {one.name: one.busy_s for one in workers}
        began_s = time.monotonic()
        await asyncio.sleep(0.5)
        busy = {one.name: (one.busy_s - before_s[one.name]) / (time.monotonic() - began_s) for one in workers}
    for one in workers:
        assert (len(one.lives), one.codes) == (life, [0] * (life - 1))
    assert (found["run"]["id"], found["run"]["state"]) == (run, state)
    assert not any(one["ready"] for one in found["workers"])


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_stop_and_a_drain_stay_until_someone_goes_on(job, topic, workers):
    """The same processes resume the stopped run when they are told to. After the drain a version that cannot read the former's frames takes
    over, one worker after the other, and begins at the next record: over all lives nothing is lost or doubled.

    A version that cannot be told from the former is told to begin (one worker); one that has another graph begins by itself (two).
    """
    inp, out = topic("in", 2), topic("out")

    def version(mark: str, name: str) -> str:
        filled = SOURCE.replace("MARK", mark).replace("NAME", name)
        return filled.replace("IN", inp).replace("OUT", out)

    written = 0

    async def write_and_read(*, read: bool = True) -> None:
        nonlocal written
        await job.write(inp, [{"k": f"k{n % 7}", "v": n} for n in range(written, written + 100)])
        written += 100
        if read:
            assert sorted(one["v"] for one in await job.values(out, written, within_s=PATIENCE_S)) == list(
                range(written)
            )

    async with kept(job, version("1", "first"), *[f"w{n}" for n in range(workers)]) as them:
        await write_and_read()
        assert (await job.ask("stop", timeout_s=PATIENCE_S)).run_state == "stopped"
        await write_and_read(read=False)
        run = (await status(job))["run"]["id"]
        await wait_for_somebody(job, them, 2, run, "stopped", f"`headgate start {job.name}` resumes it")
        assert len(await job.values(out, written - 100)) == written - 100
        assert (await job.ask("start", timeout_s=PATIENCE_S)).run_state == "running"
        await write_and_read()
        assert (await job.ask("drain", timeout_s=PATIENCE_S)).run_state == "drained"
        await write_and_read(read=False)
        await wait_for_somebody(job, them, 3, run, "drained", f"`headgate start {job.name}` begins the next run")
        assert len(await job.values(out, written - 100)) == written - 100

        for one in them:
            one.source = version("2", "first" if workers == 1 else "second")
        them[0].terminate()
        if workers == 1:
            await them[0].until_said(f"Waiting: run {run} is drained", 4)
            assert (await job.ask("start", timeout_s=PATIENCE_S)).run_state == "running"
        else:  # the one that still has the old code sees a run that is not for it, says so, and is replaced
            assert "this code differs" in await them[1].until_said("To do: run the code that the run began with", 3)
        await write_and_read()
        after = (await status(job))["run"]
        assert after["id"] != run
        assert after["state"] == "running"
        for one in them:
            await one.until_ended(3)  # the other worker has done all, perhaps, while this one still ends
        assert {code for one in them for code in one.codes} == ({0} if workers == 1 else {0, 1})


async def test_the_examples_of_the_reference_control_a_job(job: Jobs, topic: Any) -> None:
    """Each does what its page says, one after the other, with a worker whose supervisor always starts it again."""
    source = 'import headgate as hg\napp = hg.App("JOB")\napp.input("IN", key="k").agg(n=hg.count()).to("OUT")\n'
    inp, out = topic("in", 1), topic("out", 1)
    async with kept(job, source.replace("IN", inp).replace("OUT", out), "w1"):
        await job.write(inp, [{"k": "a"}])
        await job.values(out, 1, within_s=PATIENCE_S)
        for example in examples_of("controlling"):
            code = example.body.replace('"sales"', f'"{job.name}"').replace('"orders"', f'"{inp}"')
            shown = compile(
                f"import asyncio, tempfile\nimport headgate as hg\n{code}",
                f"{example.part}: {example.run.__name__}",
                "exec",
            )
            await asyncio.to_thread(exec, shown, {"bootstrap": job.bootstrap})
