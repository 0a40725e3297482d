"""The first line to Spark, on a real broker: a batch, a function of PySpark, its result in Kafka, and every row counted once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
import pytest_asyncio

import headgate as hg
from headgate.agents.coordinator.coordinator_stream import fence
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.status.batches import batches as batches_of
from headgate.core.names import JobName
from headgate.spark_bridge.process.jvm import Sessions
from headgate.spark_bridge.session import session

from ..spark_in_process import on_a_loop, sent_to_jvm
from .scenes import life, why

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]

PATIENCE_S = 240.0
"""A session of Spark begins in seconds on an idle machine, and in a minute on a busy one."""
SCHEMA = "batch string, country string, n long, total long"


class Order(TypedDict):
    country: str
    n: int


class Text(TypedDict):
    n: int
    text: str


def totals(df: Any, batch: Any) -> Any:
    """Rows and their sum by country, with the batch that they were in."""
    from pyspark.sql import functions as F

    found = df.groupBy("country").agg(F.count("*").alias("n"), F.sum("n").alias("total"))
    return found.select(F.lit(f"{batch.id} {batch.closed_by}").alias("batch"), "country", "n", "total")


def orders(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Numbered orders of three countries."""
    return [{"country": ("DE", "FR", "IT")[n % 3], "n": n} for n in range(start, start + count)]


class Line:
    """A job whose workers in this process have the warm session."""

    def __init__(self, job: Any, warm: Sessions) -> None:
        self.job = job
        self.warm = warm

    async def start(self, app: Any, processor: str = "w1", **settings: Any) -> Any:
        return await self.job.start(app, processor, settings=settings)


class Lent:
    """The module's sessions, which outlive a worker. Each attempt has one of its own, as in production."""

    lent = False

    def __init__(self, warm: Sessions) -> None:
        self.warm = warm

    def get(self) -> Any:
        return self.warm.get()

    def is_alive(self, session: Any) -> bool:
        return self.warm.is_alive(session)

    def complaint(self, session: Any) -> str:
        return self.warm.complaint(session)

    def stop(self) -> None:
        pass


def lend(warm: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this process get the warm session before they start: PySpark knows only one JVM a process."""
    monkeypatch.setattr(session, "Sessions", lambda *_, **__: Lent(warm))


@pytest.fixture(autouse=True)
def _nothing_from_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In none of these tests a command goes to the JVM from the thread of a loop, whatever happens to the workers and their batches."""
    sent = sent_to_jvm(monkeypatch, on_a_loop)
    yield
    assert sent == []


@pytest_asyncio.fixture
async def line(job: Any, warm: Sessions, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Line]:
    lend(warm, monkeypatch)
    yield Line(job, warm)


def counted(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """How many orders the results speak of, and their sum."""
    return sum(row["n"] for row in rows), sum(row["total"] for row in rows)


async def test_full_batches_go_through_and_a_drain_flushes_the_rest(line: Line, topic: Topic) -> None:
    """250 orders in batches of 100: two are closed by rows, the rest by the drain, and nothing is behind it."""
    source, target = topic("orders"), topic("totals")
    app = hg.App(line.job.name, serde=hg.json())
    app.input(source).batch(max_rows=100, name="hundred").spark(totals, rows=Order, schema=SCHEMA).to(target)
    await line.job.write(source, orders(250))
    running = await line.start(app)
    rows = await line.job.values(target, 6, within_s=PATIENCE_S)
    assert counted(rows) == (200, sum(range(200)))
    await line.job.ask("drain")
    assert await running.ended() == 0
    rows = await line.job.values(target, 9)
    assert counted(rows) == (250, sum(range(250)))
    assert list(dict.fromkeys(row["batch"] for row in rows)) == [
        "Partition 0/hundred/1 rows",
        "Partition 0/hundred/2 rows",
        "Partition 0/hundred/3 drain",
    ]


async def test_the_end_of_the_stream_flushes_too(line: Line, topic: Topic) -> None:
    """A bounded input ends; every task waits for its last result before the run is ended."""
    source, target = topic("orders", partitions=3), topic("totals")
    app = hg.App(line.job.name, serde=hg.json())
    app.input(source, until="newest").batch(max_rows=1000, name="all").spark(totals, rows=Order, schema=SCHEMA).to(
        target
    )
    await line.job.write(source, orders(300))
    running = await line.start(app)
    assert await running.ended(PATIENCE_S) == 0
    rows = await line.job.values(target, 3, within_s=PATIENCE_S)
    assert counted(rows) == (300, sum(range(300)))
    assert {row["batch"].partition(" ")[2].partition(" ")[2] for row in rows} == {"end"}


async def test_a_stop_in_the_middle_of_a_batch_calls_it_off(line: Line, topic: Topic, tmp_path: Path) -> None:
    """The task does not wait a minute for Spark; the next worker runs the same batch under the same id."""
    source, target = topic("orders"), topic("totals")
    flag = tmp_path / "quick"

    def slow(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        where = str(flag)

        def wait(n: int) -> int:
            import time

            time.sleep(0 if os.path.exists(where) else 60)
            return n

        return totals(df.select("country", F.udf(wait, "long")("n").alias("n")), batch)

    app = hg.App(line.job.name, serde=hg.json())
    app.input(source).batch(max_rows=30).spark(slow, rows=Order, schema=SCHEMA).to(target)
    await line.job.write(source, orders(30))
    running = await line.start(app)
    tracker = await asyncio.to_thread(lambda: line.warm.get().sparkContext.statusTracker())
    await at_work(tracker)
    assert await running.stop() == 0
    await called_off(tracker)
    flag.touch()
    again = await line.start(app)
    rows = await line.job.values(target, 3, within_s=PATIENCE_S)
    assert counted(rows) == (30, sum(range(30)))
    assert await again.stop() == 0


async def test_rows_of_many_bytes_fit_the_task_log(line: Line, topic: Topic) -> None:
    """2,000 rows of 5 kB are one batch, and their result is stored before it is sent: blocks are cut by bytes, too. A row that is
    larger than a record of the log may be is that record's error, and names where it came from."""
    source, target = topic("orders"), topic("texts")
    app = hg.App(line.job.name, serde=hg.json(), on_error="dead_letter")
    wide = app.input(source).map(lambda order: {"n": order["n"], "text": "x" * (9 << 20 if order["n"] == 7 else 5_000)})
    wide.batch(max_rows=1_999, name="wide").spark(
        lambda df, batch: df, rows=Text, schema="n long, text string", name="same"
    ).to(target)
    await line.job.write(source, orders(2_000))
    running = await line.start(app)
    rows = await line.job.values(target, 1_999, within_s=PATIENCE_S)
    assert sorted(row["n"] for row in rows) == [n for n in range(2_000) if n != 7]
    [dead] = await line.job.records(line.job.topics.dead_letters, 1)
    headers = dict(dead.headers)
    assert headers["hg-offset"] == b"7"
    assert b"a row needs a block of 9" in headers["hg-exception"]
    assert await running.stop() == 0


async def test_a_batch_that_takes_too_long_is_called_off(line: Line, topic: Topic) -> None:
    """A hung job of Spark does not hold its task for ever: it is cancelled, tried again, and then the task says why it failed."""
    source = topic("orders")

    def slow(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        def wait(n: int) -> int:
            import time

            time.sleep(600)
            return n

        return df.select(F.udf(wait, "long")("n").alias("n"))

    app = hg.App(line.job.name, serde=hg.json())
    app.input(source).batch(max_rows=30, name="slowly").spark(slow, rows=Order, schema="n long", name="waits").to(
        topic("totals")
    )
    await line.job.write(source, orders(30))
    running = await line.start(app, **{"spark.batch-timeout": "2s", "error.retries": 1})
    tracker = await asyncio.to_thread(lambda: line.warm.get().sparkContext.statusTracker())
    await running.until_running(1)
    await running.until(lambda: why(running), "the task gives up", within_s=PATIENCE_S)
    said = why(running)
    assert "spark 'waits'" in said
    assert (
        "batch Partition 0/slowly/1 was cancelled: Spark took longer for its 30 rows than spark.batch-timeout, 2 s"
        in said
    )
    await called_off(tracker)
    assert await running.stop() == 0


async def test_intake_waits_while_batches_wait(line: Line, topic: Topic) -> None:
    """Spark hangs, and the task does not swallow the topic: a bounded number of batches is closed."""
    source, target = topic("orders"), topic("totals")
    gate = asyncio.Event()
    app = hg.App(line.job.name, serde=hg.json(), settings={"chooser.batch-size": 50})
    app.input(source).batch(max_rows=50, name="fifty").spark(totals, rows=Order, schema=SCHEMA).to(target)
    await line.job.write(source, orders(2000))
    running = await line.start(app)
    real = running.worker.spark.run

    async def held(*arguments: Any) -> Any:
        await gate.wait()
        return await real(*arguments)

    running.worker.spark.run = held
    await running.until_running(1)
    actor = running.worker.actors["Partition 0"]
    await running.until(actor.site.pipeline.held, "a full batch step")
    batch = next(one for one in actor.site.pipeline.operators if type(one).__name__ == "BatchOp")
    most = -1
    while most < (now := len(batch.rows.kept.closed)):  # what it had taken before it was full is still put into batches
        assert now < 20
        most, turns = now, running.worker.upkeep._turns
        await running.until(
            lambda least=turns + 2: running.worker.upkeep._turns >= least, "the worker has turned twice"
        )
    assert now == most
    gate.set()
    await line.job.ask("drain", timeout_s=PATIENCE_S)
    assert await running.ended(PATIENCE_S) == 0
    rows = await line.job.values(target, 120)
    assert counted(rows) == (2000, sum(range(2000)))


async def called_off(tracker: Any) -> None:
    """Spark ends its jobs a moment after it was told to."""
    async with asyncio.timeout(240):
        while await asyncio.to_thread(tracker.getActiveJobsIds):  # noqa: ASYNC110 - Spark says nothing
            await asyncio.sleep(0.05)


async def at_work(tracker: Any) -> None:
    """Spark has a job."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(tracker.getActiveJobsIds):  # noqa: ASYNC110 - Spark says nothing
            await asyncio.sleep(0.05)


class Slow:
    """A function whose jobs wait in Spark until a flag is there."""

    def __init__(self, directory: Path, warm: Sessions) -> None:
        self.flag = directory / "go on"
        self.tracker = warm.get().sparkContext.statusTracker()

    def __call__(self, df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        where = str(self.flag)

        def wait(n: int) -> int:
            import time

            give_up = time.monotonic() + PATIENCE_S
            while not os.path.exists(where) and time.monotonic() < give_up:
                time.sleep(0.02)
            return n

        return totals(df.select("country", F.udf(wait, "long")("n").alias("n")), batch)

    async def jobs(self) -> list[int]:
        """The jobs that Spark works on."""
        return await asyncio.to_thread(lambda: list(self.tracker.getActiveJobsIds()))

    async def at_work(self, *but: int) -> list[int]:
        """There is a job, besides these."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := [one for one in await self.jobs() if one not in but]):  # noqa: ASYNC110 - Spark says nothing
                await asyncio.sleep(0.05)
        return found

    async def called_off(self, jobs: list[int]) -> None:
        """Spark has ended these jobs, and they have not succeeded."""
        async with asyncio.timeout(PATIENCE_S):
            while {*jobs} & {*await self.jobs()}:  # noqa: ASYNC110 - Spark says nothing
                await asyncio.sleep(0.05)
        ended = await asyncio.to_thread(lambda: {self.tracker.getJobInfo(one).status for one in jobs})
        assert ended == {"FAILED"}


async def test_a_session_that_starts_holds_up_no_one(line: Line, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is begun before the worker has any task, and while it starts the tasks restore, take in, close batches and commit them."""
    source, target = topic("orders"), topic("totals")
    ready, tasks = threading.Event(), list[int]()

    class Late(Lent):
        def get(self) -> Any:
            tasks.append(sum(len(one.worker.actors) for one in line.job.workers))
            assert ready.wait(PATIENCE_S)
            return super().get()

    monkeypatch.setattr(session, "Sessions", lambda *_, **__: Late(line.warm))
    app = hg.App(line.job.name, serde=hg.json())
    app.input(source).batch(max_rows=10, name="ten").spark(totals, rows=Order, schema=SCHEMA).to(target)
    await line.job.write(source, orders(30))
    running = await line.start(app)
    await running.until_running(1)
    assert tasks[0] == 0
    steps = running.worker.actors["Partition 0"].site.pipeline.operators
    batch = next(one for one in steps if type(one).__name__ == "BatchOp")
    await running.until(lambda: batch._durable == 3, "three batches are closed, and committed")
    assert await line.job.records(target, 0, more_s=0) == []
    ready.set()
    assert counted(await line.job.values(target, 9, within_s=PATIENCE_S)) == (30, sum(range(30)))
    assert await running.stop() == 0


async def test_a_batch_moves_with_its_task_and_a_drain_waits_for_it(line: Line, topic: Topic, tmp_path: Path) -> None:
    """The first owner's jobs are called off, the next one runs the same rows under the same id. Then a drain comes while they run."""
    source, target = topic("orders", partitions=2), topic("totals")
    slow = await asyncio.to_thread(Slow, tmp_path, line.warm)
    app = hg.App(line.job.name, serde=hg.json())
    app.input(source).batch(max_rows=30, name="thirty").spark(slow, rows=Order, schema=SCHEMA, name="slowly").to(target)
    await line.job.write(source, orders(30), partition=0)
    first = await line.start(app)
    jobs = await slow.at_work()
    second = await line.start(app, "w2")
    await second.until(lambda: "running" in second.states().values(), "it has a task")
    if second.state("Partition 0") != "running":
        await line.job.ask("move", task="Partition 0", to="w2")
    again = await slow.at_work(*jobs)
    await slow.called_off(jobs)
    assert second.state("Partition 0") == "running"
    await line.job.ask("drain", wait=False)
    await second.until(lambda: second.state("Partition 0") == "draining", "it drains")
    assert await slow.jobs() == again
    slow.flag.touch()
    assert (await first.ended(PATIENCE_S), await second.ended(PATIENCE_S)) == (0, 0)
    rows = await line.job.values(target, 3)
    assert counted(rows) == (30, sum(range(30)))
    assert {row["batch"] for row in rows} == {"Partition 0/thirty/1 rows"}


async def test_the_batch_of_a_fenced_owner_is_called_off(line: Line, topic: Topic, tmp_path: Path) -> None:
    """Somebody has taken its transactional id away: it hears that at its next commit, and its next life runs the batch again."""
    source, target = topic("orders"), topic("totals")
    slow = await asyncio.to_thread(Slow, tmp_path, line.warm)
    app = hg.App(line.job.name, serde=hg.json())
    app.input(source).batch(max_rows=30, name="thirty").spark(slow, rows=Order, schema=SCHEMA, name="slowly").to(target)
    await line.job.write(source, orders(30))
    running = await line.start(app)
    jobs = await slow.at_work()
    before = life(running)
    await fence(KafkaPort(line.job.client), JobName(line.job.name), "w1", running.worker.incarnation)
    await line.job.write(source, orders(1, 30))
    await running.until(lambda: life(running) > before, "another life")
    again = await slow.at_work(*jobs)
    await slow.called_off(jobs)
    assert await slow.jobs() == again
    slow.flag.touch()
    rows = await line.job.values(target, 3, within_s=PATIENCE_S)
    assert counted(rows) == (30, sum(range(30)))
    assert await running.stop() == 0


async def test_why_and_when_a_batch_ran_again_is_seen(line: Line, topic: Topic, tmp_path: Path) -> None:
    """A Python worker dies under it, once: the batch that is done tells it, and so do the sums of its step."""
    source, target, flag = topic("orders"), topic("totals"), str(tmp_path / "died")

    def dies_once(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        def die(n: int) -> int:
            if n == 7 and not os.path.exists(flag):
                with open(flag, "w"):
                    os._exit(3)
            return n

        return totals(df.select("country", F.udf(die, "long")("n").alias("n")), batch)

    app = hg.App(line.job.name, serde=hg.json())
    app.input(source).batch(max_rows=10, name="ten").spark(dies_once, rows=Order, schema=SCHEMA).to(target)
    await line.job.write(source, orders(20))
    running = await line.start(app)
    rows = await line.job.values(target, 6, within_s=PATIENCE_S)
    assert counted(rows) == (20, sum(range(20)))

    def all_done() -> dict[str, Any]:
        return {one["batch"]: one for one in batches_of(running.worker)["done"]}

    await running.until(lambda: len(all_done()) == 2, "both are told of as done")
    found, done = batches_of(running.worker), all_done()
    first, second = done["Partition 0/ten/1"], done["Partition 0/ten/2"]
    assert (first["attempts"], second["attempts"], second["retry_s"], second["error"]) == (2, 1, None, "")
    assert "Python worker exited unexpectedly" in first["error"]
    (step,) = found["steps"]
    assert (step["retried"], step["retry_s"]) == (1, first["retry_s"])
    assert await running.stop() == 0
