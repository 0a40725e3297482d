"""Jobs that ask a real service over HTTP, on a real broker: a worker is killed in the middle; the service is away, and comes back."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio
from aiohttp import web

import headgate as hg
from headgate.agents.worker.load.health import letter_load

from .schemas import schema, wrong
from .test_page_of_the_job import paged, until
from .test_what_is_slow import command

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

RECORDS = 4000
SOURCE = """
import aiohttp
import headgate as hg

app = hg.App("JOB")
session = None

async def price(item):
    global session
    if session is None:
        session = aiohttp.ClientSession()
    async with session.get("URL/" + item) as answer:
        return await answer.json()

orders = app.input("IN")
orders.lookup(price, on="item", concurrency=20, into=lambda order, price: {**order, "price": price}).to("OUT", key="user")
"""


class Prices:
    """The service: it answers after 20 ms, and can go away and come back under its address."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{item}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        item = request.match_info["item"]
        self.asked[item] += 1
        await asyncio.sleep(0.02)
        return web.json_response(len(item))


@pytest_asyncio.fixture
async def service() -> AsyncIterator[Prices]:
    prices = Prices()
    await prices.start()
    yield prices
    await prices.stop()


def app_of(name: str, inp: str, out: str, url: str, **given: Any) -> hg.App:
    """A job whose records need an answer; `kept` is its client."""
    app = hg.App(name, settings={"error.retries": 0})
    kept: list[aiohttp.ClientSession] = []

    async def price(item: str) -> Any:
        if not kept:
            kept.append(aiohttp.ClientSession())
        async with kept[0].get(f"{url}/{item}") as answer:
            return await answer.json()

    def joined(order: Any, price: Any) -> Any:
        return {**order, "price": price}

    app.input(inp).lookup(price, on="item", into=joined, away=aiohttp.ClientError, **given).to(out)
    app.sessions = kept  # type: ignore[attr-defined]
    return app


async def closed(app: hg.App) -> None:
    for session in app.sessions:  # type: ignore[attr-defined]
        await session.close()


def waits(running: Any) -> Callable[[], bool]:
    """Whether a heartbeat says that the circuit is open."""
    return lambda: any("the circuit of" in one for one in letter_load(running.worker.actors.values(), 0, 0.0))


async def test_a_worker_that_is_killed_amid_its_calls_loses_and_doubles_nothing(job, topic, service):
    """Answers belong to the letter's transaction: its successor asks again for what was not committed; each key keeps its order."""
    inp, out = topic("in", 2), topic("out", 2)
    source = SOURCE.replace("IN", inp).replace("OUT", out).replace("URL", service.url)
    await job.write(inp, [{"n": n, "user": f"u{n % 2}-{n // 2 % 20}", "item": f"i{n}"} for n in range(RECORDS)])
    one = await job.process(source)
    await job.records(out, RECORDS // 8, more_s=0)
    one.kill()
    await one.ended()
    before = sum(service.asked.values())
    await job.process(source, "w2")
    found = [orjson.loads(r.value) for r in await job.records(out, RECORDS)]
    numbers = sorted(one["n"] for one in found)
    assert numbers == list(range(RECORDS))
    assert all(one["price"] == len(one["item"]) for one in found)
    by_user: dict[str, list[int]] = {}
    for one in found:
        by_user.setdefault(one["user"], []).append(one["n"])
    assert [user for user, seen in by_user.items() if seen != sorted(seen)] == []
    assert before < RECORDS


async def test_a_service_that_is_away_is_waited_for_and_shown_and_nothing_is_lost(job, topic, service):
    """The policy would leave failed records out, but no record is to blame; once it is back, the circuit closes by itself. Meanwhile
    `headgate status` and the page of the job say that it is open, of what, and why."""
    inp, out = topic("in"), topic("out")
    app = app_of(job.name, inp, out, service.url, on_error="skip")
    async with paged(job, app, "w1") as (running, url):
        await _outage(job, service, running, url, inp, out)
        assert await running.stop() == 0
    await closed(app)


async def _outage(job, service, running, url, inp, out):
    await job.write(inp, [{"n": n, "item": f"i{n}"} for n in range(50)])
    assert len(await job.values(out, 50)) == 50
    await service.stop()
    await job.write(inp, [{"n": n, "item": f"i{n}"} for n in range(50, 100)])
    await running.until(waits(running), "a letter that says that the circuit is open")
    assert set(running.states().values()) == {"running"}

    def shown(document: Any) -> bool:
        return any("the circuit of" in (one["letter"] or {"what": ""})["what"] for one in document["tasks"])

    page = await until(url, lambda found: shown(found["status"]))
    assert wrong(page["status"], schema("status")) == []
    [letter] = [one["letter"] for one in page["status"]["tasks"]]
    assert re.search(
        r"the circuit of .*price is open, \d+ calls in a row have failed, the last one with Client", letter["what"]
    )
    said = await command(job, "status", job.name)
    assert "is open, " in said
    assert "price" in said
    assert shown(json.loads(await command(job, "status", job.name, "-o", "json")))
    await service.start()
    found = await job.values(out, 100)
    assert [one["n"] for one in found] == list(range(100))
    await running.until(lambda: not waits(running)(), "a circuit that has closed")
    await until(url, lambda found: not shown(found["status"]))


async def test_a_worker_that_waits_for_a_service_leaves_when_it_is_told_to(job, topic, service):
    """It is away for good, and the job can be stopped all the same; a drain of the next life waits for it, and then ends."""
    inp, out = topic("in"), topic("out")
    await job.write(inp, [{"n": n, "item": f"i{n}"} for n in range(10)])
    await service.stop()
    app = app_of(job.name, inp, out, service.url)
    first = await job.start(app)
    await first.until(waits(first), "a circuit that is open")
    assert await first.stop() == 0
    await closed(app)
    again = app_of(job.name, inp, out, service.url)
    second = await job.start(again)
    await second.until(waits(second), "a circuit that is open")
    async with asyncio.TaskGroup() as group:
        group.create_task(job.ask("drain"))
        await second.until(lambda: "draining" in second.states().values(), "a drain that waits")
        await service.start()
    assert [one["n"] for one in await job.values(out, 10)] == list(range(10))
    await closed(again)
