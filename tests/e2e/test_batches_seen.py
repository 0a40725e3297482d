"""Batches of a running job as operators see them: through the verb, the status, the metrics and the page of a worker with a real Spark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import aiohttp
import pytest

import headgate as hg
from headgate.agents.cli.options import Target
from headgate.agents.cli.see import batches as verb
from headgate.agents.cli.see.status import read as read_status
from headgate.agents.cli.see.status import show as show_status
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.web.service import Page
from headgate.core.names import JobName

from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio]
Topic = Callable[..., str]
PATIENCE_S = 240.0
BAD = 33


class Order(TypedDict):
    n: int


def waiting(flag: Path) -> Callable[[Any, Any], Any]:
    """A function of four tasks behind a shuffle, each of which waits for a file; one row of them makes it fail."""
    path = str(flag)

    def wait(n: int) -> int:
        import time
        from pathlib import Path

        give_up = time.monotonic() + PATIENCE_S
        while not Path(path).exists():
            if time.monotonic() > give_up:
                raise TimeoutError(path)
            time.sleep(0.05)
        if n == BAD:
            raise ValueError("thirty-three")
        return n

    def fn(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        return df.repartition(4).select(F.udf(wait, "long")("n").alias("n"))

    return fn


def plan_error(df: Any, batch: Any) -> Any:
    """No such column is declared."""
    return df


class Sight:
    """A job, and what its operators are told."""

    def __init__(self, job: Any) -> None:
        self.to = Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))

    async def batches(self) -> dict[str, Any]:
        found = await verb.read(self.to, "", "", 10)
        assert wrong(found, schema("batches")) == []
        return found

    async def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        give_up = time.monotonic() + PATIENCE_S
        while not true(found := await self.batches()):
            assert time.monotonic() < give_up, found
            await asyncio.sleep(0.1)
        return found


def taken_by(found: dict[str, Any]) -> dict[str, Any]:
    """The memory of the one session, by process."""
    return {one["process"]: one for one in found["spark"][0]["taken"]}


async def text_of(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        return await response.text()


async def test_batches_are_seen_from_their_first_row_to_their_commit(
    job: Any, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One runs and says how far it is, one waits and says for what, one is open; then all are done, and the row that failed is counted."""
    source, wrong_ones, target, flag = topic("orders"), topic("wrong"), topic("copies"), tmp_path / "go"
    app = hg.App(job.name, serde=hg.json(), on_error="dead_letter")
    app.input(source).batch(max_rows=10, name="ten").spark(waiting(flag), rows=Order, schema="n long", name="copy").to(
        target
    )
    app.input(wrong_ones).batch(max_rows=2, name="two").spark(
        plan_error, rows=Order, schema="m long", on_error="fail"
    ).to(target)
    sight, page = Sight(job), Page()
    await page.bind()
    settings = {"spark.in-flight": 1, "spark.master": "local[2]", "spark.ui.enabled": "true"}
    running = await job.start(app, settings=settings, url=page.url)
    await page.start(running.worker, sight.to.configuration)
    try:
        await running.until_running(1)
        await job.write(source, [{"n": n} for n in range(25)])
        found = await sight.until(
            lambda one: (
                any(b["progress"] and b["progress"]["tasks"] for b in one["batches"])
                and sum(b["rows"] for b in one["batches"]) == 25
            )
        )
        first, second, third = found["batches"]
        assert [one["state"] for one in found["batches"]] == ["running", "closed", "open"]
        assert [one["rows"] for one in found["batches"]] == [10, 10, 5]
        assert (first["batch"], first["stage"], first["attempt"]) == ("Partition 0/ten/1", "copy", 1)
        assert first["progress"]["told"].startswith("stage ")
        assert first["bytes"] > 0
        assert second["why"] == "1 of 1 in flight (spark.in-flight)"
        assert third["why"] == "collects rows: 5 of 10"
        (spark,) = found["spark"]
        assert (spark["worker"], spark["state"], spark["where"], spark["sessions"]) == ("w1", "ready", "local[2]", 1)
        assert "spark.driver.memory" in spark["memory"]
        (spark,) = (await sight.until(lambda one: (python := taken_by(one).get("python")) and python["count"]))["spark"]
        taken = taken_by({"spark": [spark]})
        assert 0 < taken["heap"]["bytes"] <= taken["heap"]["limit"] <= 1 << 30
        assert taken["jvm"]["bytes"] > 100 << 20
        assert taken["python"]["limit"] == 2 << 30
        assert "Spark" in await text_of(spark["ui"])
        await look_everywhere(sight, page, spark["ui"])
        assert "python " in capsys.readouterr().out  # what its Python workers take of memory
        flag.touch()
        await job.write(source, [{"n": n} for n in range(25, 40)])
        found = await sight.until(lambda one: len(one["done"]) == 4)
        step, _ = found["steps"]
        assert (step["done"], step["rows"], step["results"], step["closed"]) == (4, 40, 39, {"rows": 4})
        assert (step["poisoned"], step["retried"], found["batches"]) == (1, 0, [])
        assert [(one["number"], one["poisoned"]) for one in found["done"]] == [(4, 1), (3, 0), (2, 0), (1, 0)]
        assert all(one["spark_s"] <= one["took_s"] and one["attempts"] == 1 for one in found["done"])
        assert len(await job.values(target, 39)) == 39
        verb.show(found, job.name)
        assert "Partition 0/ten/4" in capsys.readouterr().out
        await job.write(wrong_ones, [{"n": 1}, {"n": 2}])
        found = await sight.until(lambda one: any(b["why"] == "its task has failed" for b in one["batches"]))
        (failed,) = found["batches"]
        assert (failed["batch"], failed["state"], failed["stage"]) == (
            "Partition 0/two/1",
            "closed",
            "spark-plan-error",
        )
        assert "no column 'm'" in failed["error"]
        assert await running.stop() == 0
    finally:
        await page.stop()
    found = await sight.batches()
    assert (found["steps"], found["unseen"]) == (
        [],
        [{"task": "Partition 0", "worker": None, "why": "no worker runs it"}],
    )
    verb.show(found, job.name)
    assert f"headgate status {job.name}" in capsys.readouterr().err


async def look_everywhere(sight: Sight, page: Page, ui: str) -> None:
    """The status has the sums, as soon as heartbeats have told them; metrics and the page have the same."""
    metrics = await text_of(f"{page.url}/metrics")
    common = f'job="{sight.to.job}",state="{{}}",step="ten",worker="w1"'
    for state in ("open", "closed", "running"):
        assert f"headgate_batches{{{common.format(state)}}} 1.0" in metrics
    assert ui in await text_of(f"{page.url}/api/batches")
    give_up = time.monotonic() + PATIENCE_S
    while True:
        status = await read_status(sight.to)
        assert wrong(status, schema("status")) == []
        memory = [one["process"] for one in status["workers"][0]["spark_memory"]]
        if status["batches"] and memory == ["heap", "jvm", "python"]:
            step = status["batches"][0]
            told = (step["step"], step["open"], step["closed"], step["rows"], step["done"])
            if step["running"] and told == ("ten", 1, 1, 25, 0):
                break
        assert time.monotonic() < give_up, (status["batches"], memory)
    assert len(status["batches"]) == 2
    assert [one["spark"] for one in status["workers"]] == ["ready"]
    show_status(status)
    for process in ("jvm", "heap", "python"):
        assert f'process="{process}"' in metrics
