"""The page of a job on a real broker: any worker shows all of it, as the commands do. In a real Chromium: 1 and 64 tasks, failed tasks, and
a worker that dies while it is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

import headgate as hg
from headgate.agents.cli.options import Target
from headgate.agents.cli.see.status import read
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.process.requests import Request, ask
from headgate.agents.status.slow import top
from headgate.agents.web.door import PageDoor
from headgate.agents.web.service import Page

from ..chromium import browser, needs_chromium
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
PATIENCE_S = 120.0


@contextlib.asynccontextmanager
async def paged(job: Any, app: hg.App, processor: str, **more: Any) -> AsyncIterator[tuple[Any, str]]:
    """A worker with its page."""
    page = Page(door=PageDoor("127.0.0.1"))
    await page.bind()
    running = await job.start(app, processor, url=page.url, **more)
    await page.start(running.worker, configure(CommandLine(bootstrap=job.bootstrap)))
    try:
        yield running, page.url
    finally:
        await page.stop()


async def document(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/job") as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def until(url: str, true: Any) -> dict[str, Any]:
    """The document, once this is true of it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if true(found := await document(url)):
                return found
            await asyncio.sleep(0.2)


def counting(name: str, inp: str, out: str, width: int = 4) -> hg.App:
    app = hg.App(name)

    def fails(row):
        if row.get("bad"):
            raise ValueError("a row that no one can work on")
        return row

    app.input(inp).map(fails).repartition("user", partitions=width).agg(orders=hg.count(), name="spent").to(out)
    return app


def all_run(document: dict[str, Any]) -> bool:
    """Whether each of the four tasks runs, as far as the page knows."""
    return [one["state"] for one in document["status"]["tasks"]] == ["running"] * 4


async def test_any_worker_shows_the_whole_job_as_the_commands_do(job, topic):
    """Both pages have the tasks of both workers, and say what `headgate status` and `headgate top` say; a pause names who asked for it."""
    inp, out = topic("in", 4), topic("out")
    app = counting(job.name, inp, out)
    to = Target(job.topics.job, job.topics, configure(CommandLine(job.bootstrap), environ={}))
    async with paged(job, app, "w1") as (one, first), paged(job, app, "w2") as (two, second):
        await one.until(lambda: len(one.worker.actors) == 2 and set(one.states().values()) == {"running"})
        await two.until(lambda: len(two.worker.actors) == 2 and set(two.states().values()) == {"running"})
        await job.write(inp, [{"user": f"u{n % 50}", "n": n} for n in range(2000)])
        await job.values(out, 50)
        for url in (first, second):
            # Each worker says the states and lags of its tasks with its heartbeats, so what the two say is of two moments.
            found = await until(url, lambda d: any(d["recent"]["rows_s"]) and d["status"]["lag"] == 0 and all_run(d))
            assert wrong(found["status"], schema("status")) == []
            assert wrong(found["hurts"], schema("top")) == []
            assert {one["worker"] for one in found["status"]["tasks"]} == {"w1", "w2"}
            said = await read(to)
            assert list(said) == list(found["status"])
            assert [one["task"] for one in said["tasks"]] == [one["task"] for one in found["status"]["tasks"]]
            assert set(top(said)) == set(found["hurts"])
            stages = {one["step"]: (one["stage"], one["rank"]) for one in found["flow"]["nodes"]}
            assert (stages[inp], stages["map"], stages["by-user"], stages["to"]) == ((0, 0), (0, 0), (1, 1), (1, 1))
            [shuffle] = [one for one in found["flow"]["edges"] if one["to"] == "by-user"]
            assert (shuffle["from"], shuffle["through"], shuffle["lag"]) == (
                "map",
                job.topics.intermediate("by-user"),
                0,
            )
            kinds = {one["kind"] for one in found["history"]}
            assert {"run", "leader", "worker", "grant"} <= kinds
        await ask(to.client, to.topics, Request("pause"))
        found = await until(second, lambda d: any("paused" in one["what"] for one in d["standing"]))
        [paused] = [one for one in found["standing"] if "paused" in one["what"]]
        assert paused["who"].startswith("requested by ")
        assert paused["todo"] == f"headgate resume {job.name}"
        assert next(one["what"] for one in found["history"] if one["kind"] == "run") == "the job was paused"
        recent = (await until(first, lambda d: len(d["recent"]["lag"]) >= 2))["recent"]
        assert set(recent["workers"]) == {"w1", "w2"}


async def test_the_death_of_a_worker_stands_in_the_history_of_those_who_live(job, topic):
    """And who has its tasks since."""
    inp, out = topic("in", 4), topic("out")
    source = SOURCE.replace("IN", inp).replace("OUT", out)
    one = await job.process(source, "w1")
    two = await job.process(source, "w2")
    url = await address(two)
    await until(url, lambda d: {t["worker"] for t in d["status"]["tasks"] if t["state"] == "running"} == {"w1", "w2"})
    one.kill()
    found = await until(url, lambda d: [t["worker"] for t in d["status"]["tasks"]] == ["w2"] * 4)
    events = {event["what"] for event in found["history"]}
    assert "w1 was fenced" in events
    assert any(what.endswith(("to w2", "to w2, after a death")) for what in events)


SOURCE = """
import headgate as hg
app = hg.App("JOB")
app.input("IN").to("OUT")
"""


async def address(one: Any) -> str:
    """Where the page of a process is, once it answers."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            assert one.process.returncode is None, one.text()[-3000:]
            if found := re.search(r"http://127\.0\.0\.1:\d+(?=\D)", one.text()):
                with contextlib.suppress(aiohttp.ClientError):
                    await document(found[0])
                    return found[0]
            await asyncio.sleep(0.1)


@needs_chromium
async def test_a_browser_shows_one_task_and_one_that_has_failed(job, topic, tmp_path):
    """The failed task stands above everything, with its reason and what to do; nothing of it is markup, and no script fails."""
    inp, out = topic("in", 1), topic("out")
    async with paged(job, counting(job.name, inp, out, 1), "w1") as (one, url), browser(tmp_path) as page:
        await one.until_running(1)
        await page.open(url)
        await page.until("document.querySelectorAll('#tasks tr').length === 2")
        assert await page.text("#job") == f"{job.name}/1"
        assert await page.text("#verdict") == "nothing is slow"
        await page.until("document.querySelectorAll('.stage').length === 2")
        await page.until("document.querySelectorAll('#links path').length === 1")
        await job.write(inp, [{"user": "<b>u</b>", "bad": True}])
        await page.until("document.querySelector('#failed .note')")
        failed = await page.text("#failed")
        assert "a row that no one can work on" in failed
        assert f'headgate status {job.name}/1 --why "Partition 0"' in failed
        await page.until("document.querySelectorAll('#errors tr').length === 2")
        assert "ValueError" in await page.text("#errors")
        top_of = "document.querySelector('#failed').getBoundingClientRect().top"
        assert await page.value(f"{top_of} < document.querySelector('#cards').getBoundingClientRect().top")
        assert await page.value("document.title") == f"{job.name}/1 · 1 failed"
        assert page.errors == []


@needs_chromium
async def test_a_browser_shows_64_tasks_also_on_a_phone_and_in_the_dark(job, topic, tmp_path):
    """Nothing is wider than the window, and the text can be read on its ground."""
    inp, out = topic("in", 64), topic("out")
    app = hg.App(job.name)
    app.input(inp).filter(lambda row: True).to(out)
    async with paged(job, app, "w1") as (one, url), browser(tmp_path) as page:
        await one.until_running(64)
        for wide, dark in ((1280, False), (390, True)):
            await page.open(url, wide=wide, dark=dark)
            await page.until("document.querySelectorAll('#tasks tr').length === 65")
            await page.until("document.querySelectorAll('#map i.good').length === 64")
            assert await page.value("document.documentElement.scrollWidth") <= wide
            ground, ink = await page.value(
                "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
            )
            assert (lightness(ground) < lightness(ink)) == dark
        assert page.errors == []


def lightness(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


@needs_chromium
async def test_a_worker_that_dies_while_it_is_looked_at(job, topic, tmp_path):
    """The page says so, keeps what it has shown, and leads to those that live."""
    inp, out = topic("in", 4), topic("out")
    source = SOURCE.replace("IN", inp).replace("OUT", out)
    one, two = await job.process(source, "w1"), await job.process(source, "w2")
    first, second = await address(one), await address(two)
    await until(first, lambda d: {t["worker"] for t in d["status"]["tasks"]} == {"w1", "w2"})
    async with browser(tmp_path) as page:
        await page.open(first)
        await page.until("document.querySelectorAll('#tasks tr').length === 5")
        one.kill()
        await page.until("!document.querySelector('#lost').hidden")
        lost = await page.text("#lost")
        assert lost.startswith("This worker does not answer")
        assert await page.value("document.querySelector('#lost a').href") == f"{second}/"
        assert await page.value("document.querySelectorAll('#tasks tr').length") == 5
        await page.value("document.querySelector('#lost a').click()")
        await page.until("document.querySelector('#who')?.textContent.startsWith('seen from w2')")
        await page.until("document.querySelectorAll('#tasks tr').length >= 5")
        await page.until("document.querySelector('#history').innerText.includes('w1 was fenced')")
        assert page.errors == []
