"""Sinks that are slow or away, on a real broker: they pause the inputs that lead to them, say so, and stop nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import aiohttp
import pyarrow.dataset as ds
import pytest

import headgate as hg
from headgate.agents.cli.options import Target
from headgate.agents.cli.see import batches as verb
from headgate.agents.cli.see.status import read as read_status
from headgate.agents.cli.see.status import show
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.status.draining import progress_lines
from headgate.agents.status.slow import top
from headgate.agents.web.service import Page
from headgate.core.names import JobName, StreamPartition
from headgate.spark_bridge.data.publish import Publisher

from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]
PATIENCE_S = 120.0

ROWS, MANY = 50, 2_000
"""Rows of a batch, and of a partition: far more than a task takes of one whose sink takes nothing."""
IN_FLIGHT = 4
"""The default of `spark.in-flight`."""
SLOW = "Partition 0"
"""The task whose sink takes nothing."""


class Order(TypedDict):
    n: int
    text: str


class Gate(hg.Sink):
    """Waits with the batches of one task until the test opens it. What it has not written counts for nothing."""

    def __init__(self, gate: threading.Event, into: list[Any]) -> None:
        self.gate, self.into = gate, into
        self.task = ""

    def open(self, owner: Any) -> None:
        self.task = owner.task

    def write(self, rows: Any, batch: Any) -> None:
        self.pass_gate()
        self.into += [(self.task, batch.number, n) for n in rows.column("n").to_pylist()]

    def pass_gate(self) -> None:
        if self.task == SLOW:
            self.gate.wait()


class Away(Gate):
    """Fails until the test opens it, as a target does that is away."""

    def pass_gate(self) -> None:
        if self.task == SLOW and not self.gate.is_set():
            raise hg.TargetDown("it is away")


class Kept(hg.Sink):
    """Another sink of the same tasks."""

    def __init__(self, into: list[Any]) -> None:
        self.into = into

    def write(self, rows: Any, batch: Any) -> None:
        self.into += rows.column("n").to_pylist()


class Scene:
    """A job whose tasks read two topics: one into a gate, the other into a sink and a topic."""

    def __init__(self, job: Any, topic: Topic, sink: type[hg.Sink]) -> None:
        self.job = job
        self.orders, self.others, self.out = topic("orders", 2), topic("others", 2), topic("out")
        self.gate, self.written, self.kept = threading.Event(), list[Any](), list[int]()
        settings = {"chunk.max-records": ROWS, "buffer.bytes": "16KiB", "error.retries": 0}
        self.app = hg.App(job.name, serde=hg.json(), settings=settings)
        orders = self.app.input(self.orders, serde=hg.json(Order))
        orders.to_sink(sink, name="gate", gate=self.gate, into=self.written, max_rows=ROWS, max_age="1h")
        others = self.app.input(self.others, serde=hg.json(Order))
        others.to_sink(Kept, into=self.kept, max_rows=1)
        others.to(self.out)
        self.to = Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        self.page = Page()
        await self.page.bind()
        self.worker = await self.job.start(self.app, url=self.page.url)
        await self.page.start(self.worker.worker, self.to.configuration)
        try:
            await self.worker.until_running(2)
            for at in (0, 1):
                rows = [{"n": at * MANY + n, "text": "x" * 1000} for n in range(MANY)]
                await self.job.write(self.orders, rows, partition=at)
            yield
        finally:
            self.gate.set()
            await self.page.stop()

    @property
    def actor(self) -> Any:
        return self.worker.worker.actors[SLOW]

    def reached(self) -> tuple[int, int]:
        """How far the slow task has taken its partition, and how far it has fetched it."""
        intake, at = self.actor.reading.intake.intake, StreamPartition(self.orders, 0)
        return intake.positions()[at], intake.drains_to(at)

    async def goes_on(self, rounds: int, at: int) -> None:
        """Write into the other topic, and wait each time until both ends have it: the task fetches, takes and commits."""
        for n in range(rounds):
            await self.job.write(self.others, [{"n": n, "text": ""}], partition=at)
            sent = len(self.kept) + 1
            await self.worker.until(lambda: len(self.kept) >= sent, "the other sink has it")  # noqa: B023
        await self.job.records(self.out, len(self.kept), more_s=0)

    async def told(self, true: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The step of the gate in `headgate status`, as soon as heartbeats say this of it."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            status = await read_status(self.to)
            assert wrong(status, schema("status")) == []
            step = next((one for one in status["batches"] if one["step"] == "gate-batches"), None)
            if step and true(step):
                show(status)
                self.top = top(status)
                assert wrong(self.top, schema("top")) == []
                return step
            assert time.monotonic() < give_up, status["batches"]
            await asyncio.sleep(0.1)

    async def asked(self, path: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(f"{self.page.url}/api/{path}") as response:
            return await response.json()

    async def all_is_written_once(self) -> None:
        self.gate.set()
        full = 2 * MANY
        await self.worker.until(lambda: len(self.written) >= full, "everything is written")
        assert sorted(n for _, _, n in self.written) == list(range(full))
        slow = [n for task, _, n in self.written if task == SLOW]
        assert slow == sorted(slow)
        assert set(Counter((task, batch) for task, batch, _ in self.written).values()) == {ROWS}
        await self.told(lambda step: not step["held"] and not step["told"])
        assert self.top["held"] == []
        assert await self.worker.stop() == 0


async def test_a_slow_sink_pauses_the_input_that_leads_to_it_and_nothing_else(
    job: Any, topic: Topic, capsys: pytest.CaptureFixture[str]
) -> None:
    """One task takes as many batches as `spark.in-flight` and one more, and fetches no further than its buffer. It says what it waits for.
    Its other input goes on, as does the same step in another task. Then every row is written once, in its order.
    """
    scene = Scene(job, topic, Gate)
    async with scene.runs():
        await scene.worker.until(lambda: len(scene.written) == MANY, "the other task has written all of its rows")
        await scene.worker.until(lambda: scene.actor.site.pipeline.held() == {scene.orders}, "it takes no more")
        await scene.goes_on(3, at=0)
        taken, fetched = scene.reached()
        await scene.goes_on(6, at=0)
        assert scene.reached() == (taken, fetched)
        assert (IN_FLIGHT + 1) * ROWS <= taken < (IN_FLIGHT + 2) * ROWS
        assert fetched < MANY
        assert {task for task, _, _ in scene.written} == {"Partition 1"}

        # the other task forgets its last batches with its next commit
        step = await scene.told(lambda step: step["held"] and (step["closed"], step["running"]) == (IN_FLIGHT, 1))
        counts = (step["closed"], step["running"], step["failing"], step["held"], step["to_sink"])
        assert counts == (IN_FLIGHT, 1, 0, 1, True)
        waits = f"{IN_FLIGHT + 1} batches of 'gate-batches' wait for its sink"
        assert step["told"].startswith(f"1 task takes no more records: {waits}, the oldest for ")
        assert scene.top["held"] == [{"step": "gate-batches", "tasks": 1, "told": step["told"]}]
        assert f"{step['told']}: headgate batches {job.name}/1 shows why" in capsys.readouterr().out
        found = await verb.read(scene.to, SLOW, "gate-batches", 0)
        assert wrong(found, schema("batches")) == []
        first, *others = [one for one in found["batches"] if one["state"] != "open"]
        assert (first["state"], first["stage"], first["attempt"], first["error"]) == ("running", "gate", 1, "")
        assert {one["why"] for one in others} == {
            f"waits for batch {first['number']}, which goes to the sink before it"
        }
        page = await scene.asked("job")
        assert waits in page["hurts"]["held"][0]["told"]
        [why] = [one["why"] for one in (await scene.asked("status"))["worker"]["tasks"] if one["task"] == SLOW]
        assert why == f"{scene.orders}: {waits}"
        await scene.all_is_written_once()


async def test_a_sink_that_is_away_holds_up_its_input_and_is_tried_again(job: Any, topic: Topic) -> None:
    """The first batch is tried again for as long as it takes, whatever `error.retries` says. The task takes no more than behind a slow one,
    and the status has the error.
    """
    scene = Scene(job, topic, Away)
    async with scene.runs():
        await scene.worker.until(lambda: len(scene.written) == MANY, "the other task has written all of its rows")
        await scene.worker.until(lambda: scene.actor.site.pipeline.held() == {scene.orders}, "it takes no more")
        step = await scene.told(lambda step: step["held"] and step["failing"])
        assert step["told"].endswith("; the last attempt of 1 failed")
        await scene.goes_on(5, at=0)
        taken, fetched = scene.reached()
        assert (IN_FLIGHT + 1) * ROWS <= taken < (IN_FLIGHT + 2) * ROWS
        found = await verb.read(scene.to, SLOW, "gate-batches", 0)
        first = found["batches"][0]
        assert first["error"] == "it is away"
        await scene.goes_on(5, at=0)
        assert scene.reached() == (taken, fetched)
        await scene.all_is_written_once()


async def test_a_drain_waits_for_a_sink_that_is_away(job: Any, topic: Topic) -> None:
    """What it has taken must be written before it is over. The drain says what is not done, and for whom it waits."""
    source, gate, written = topic("orders"), threading.Event(), list[Any]()
    app = hg.App(job.name, serde=hg.json(), settings={"error.retries": 0})
    app.input(source, serde=hg.json(Order)).to_sink(Away, name="gate", gate=gate, into=written, max_age="1h")
    worker = await job.start(app)
    try:
        await worker.until_running(1)
        await job.write(source, [{"n": n, "text": ""} for n in range(ROWS)])
        actor = worker.worker.actors[SLOW]
        [step] = [op for op in actor.site.pipeline.operators if type(op).__name__ == "BatchOp"]
        await worker.until(lambda: step.rows.kept.opened().rows == ROWS, "the rows wait for more")
        await job.ask("drain", wait=False)
        await worker.until(lambda: any(one.error == "it is away" for one in step.batches().batches), "it is tried")
        to = Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))
        give_up, status = time.monotonic() + PATIENCE_S, await read_status(to)
        while not any(one["failing"] for one in status["batches"]):
            assert time.monotonic() < give_up, status["batches"]
            status = await read_status(to)
        lines = progress_lines(status["drain"], status["tasks"], status["batches"])
        assert "the last attempt of 1 failed" in lines[-1]
        assert lines[-1].startswith("gate-batches: 1 batch is not done: 1 ")
        assert written == []
        gate.set()
        assert await worker.ended() == 0
    finally:
        gate.set()
    assert [n for _, _, n in written] == list(range(ROWS))


async def test_files_whose_store_is_away_are_written_later(
    job: Any, topic: Topic, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an attempt is written, and when it was named and is to be published. Each row is in one file."""
    source, out = topic("orders"), tmp_path / "out"
    back = {step: threading.Event() for step in ("seal", "publish")}
    tries: Counter[str] = Counter()

    def away(step: str) -> Any:
        real = getattr(Publisher, step)

        def fails(*arguments: Any) -> Any:
            tries[step] += 1
            if not back[step].is_set():
                raise OSError("the store is away")
            return real(*arguments)

        return fails

    for step in back:
        monkeypatch.setattr(Publisher, step, away(step))
    app = hg.App(job.name, serde=hg.json(), settings={"error.retries": 0})
    app.input(source, serde=hg.json(Order)).to_files(out, max_rows=ROWS)
    worker = await job.start(app)
    await worker.until_running(1)
    await job.write(source, [{"n": n, "text": ""} for n in range(3 * ROWS)])
    [op] = [op for op in worker.worker.actors[SLOW].site.pipeline.operators if type(op).__name__ == "BatchOp"]

    def waits() -> bool:
        first = op.batches().batches[0]  # between two tries; during one it says something else
        return "the store is away" in first.error and first.why.startswith("its sink is away; it is tried again in ")

    for step, event in back.items():
        await worker.until(lambda: tries[step] >= 3, "it is tried again")  # noqa: B023
        await worker.until(waits, "it says why it waits")
        event.set()

    def there() -> list[int]:
        return ds.dataset(files).to_table()["n"].to_pylist() if out.exists() and (files := hg.published(out)) else []

    await worker.until(lambda: len(there()) >= 3 * ROWS, "all are published")
    assert sorted(there()) == list(range(3 * ROWS))
    assert await worker.stop() == 0
