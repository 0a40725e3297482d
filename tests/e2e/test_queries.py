"""Tables are asked from outside, on a real broker: through any worker, while tasks move, and after a kill -9 of their owner."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

import headgate as hg
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.web.service import Page

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
USERS = [f"u{n}" for n in range(40)]


def spending(name: str, inp: str, out: str) -> hg.App:
    """A table of each kind: placed by a shuffle, by whoever writes, everywhere, and an aggregate."""
    app = hg.App(name)
    seen = app.table("seen", key=hg.key(), value=hg.json())

    def noted(order):
        seen[order["user"], order["n"]] = order
        return order

    orders = app.input(inp).repartition("user", partitions=4)
    orders.map(noted).agg(total=hg.sum("n"), mean=hg.mean("n"), name="spent").to(out)
    orders.table("latest")
    return app


@contextlib.asynccontextmanager
async def paged(job: Any, app: hg.App, processor: str) -> AsyncIterator[tuple[Any, str]]:
    """A worker with its page."""
    page = Page()
    await page.bind()
    running = await job.start(app, processor, url=page.url)
    await page.start(running.worker, configure(CommandLine(bootstrap=job.bootstrap)))
    try:
        yield running, page.url
    finally:
        await page.stop()


async def test_any_worker_answers_for_all(job, topic):
    """Half of the tasks are with the other worker: which one is asked makes no difference."""
    inp, out = topic("in"), topic("out")
    app = spending(job.name, inp, out)
    async with paged(job, app, "w1") as (one, first), paged(job, app, "w2") as (two, second):
        await one.until(lambda: len(one.worker.actors) == 2 and set(one.states().values()) == {"running"})
        await two.until(lambda: len(two.worker.actors) == 2 and set(two.states().values()) == {"running"})
        await job.write(inp, [{"user": user, "n": n} for n, user in enumerate(USERS)])
        await job.values(out, len(USERS))
        async with aiohttp.ClientSession() as session:
            for url in (first, second):
                for n, user in enumerate(USERS):
                    async with session.get(f"{url}/api/query/spent/{user}") as answer:
                        found = await answer.json()
                    assert (answer.status, found["value"]) == (200, {"total": n, "mean": float(n)})
                    assert found["commit"] > 0
                async with session.post(f"{url}/api/query/latest", json={"keys": [*USERS, "zoe"]}) as answer:
                    found = await answer.json()
                assert found["values"] == [*({"user": user, "n": n} for n, user in enumerate(USERS)), None]
                assert {one["worker"] for one in found["commits"]} == {"w1", "w2"}
                async with session.post(f"{url}/api/query/seen", json={"keys": [["u7", 7], ["u7", 8]]}) as answer:
                    found = await answer.json()
                assert found["values"] == [{"user": "u7", "n": 7}, None]
                rows, after = [], None
                while True:
                    asked = {"scan": {"limit": 7, **({"after": after} if after else {})}}
                    async with session.post(f"{url}/api/query/latest", json=asked) as answer:
                        found = await answer.json()
                    rows += found["rows"]
                    if (after := found["next"]) is None:
                        break
                assert sorted(key for key, _ in rows) == sorted(USERS)


async def test_a_program_asks_while_tasks_move_and_owners_die(job, topic):
    """Every answer is the committed value, whoever has the task: none is empty because of a move, and after a kill -9 the next owner
    answers."""
    inp, out = topic("in"), topic("out")
    app = spending(job.name, inp, out)
    async with paged(job, app, "w1") as (one, _):
        await one.until_running(4)
        await job.write(inp, [{"user": user, "n": n} for n, user in enumerate(USERS)])
        await job.values(out, len(USERS))
        async with hg.query(job.name, "spent", bootstrap=job.bootstrap, timeout="60s") as spent:
            expected = [{"total": n, "mean": float(n)} for n in range(len(USERS))]
            assert [found.value for found in await spent.get_many(USERS)] == expected
            absent = await spent.get("zoe")
            assert (absent.found, absent.value, absent.task != "") == (False, None, True)
            async with paged(job, app, "w2") as (two, _):
                while len(two.worker.actors) < 2 or set(two.states().values()) != {"running"}:
                    assert [found.value for found in await spent.get_many(USERS)] == expected
                await one.crash()
                assert [found.value for found in await spent.get_many(USERS)] == expected
                assert {found.task for found in await spent.get_many(USERS)} == {f"Partition {n}" for n in range(4)}
                rows = [row async for row in spent.scan(prefix="u1")]
                assert sorted(row.key for row in rows) == sorted(user for user in USERS if user.startswith("u1"))
            with pytest.raises(hg.HeadgateError, match=r"no worker|does not answer"):
                async with hg.query(job.name, "spent", bootstrap=job.bootstrap, timeout="1s"):
                    pass


async def test_what_cannot_be_asked_is_said(job, topic):
    """An unknown table, a key of another type, a window: an error with its remedy, and never an empty answer."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name)
    app.table("by-number", key=hg.key(int))
    orders = app.input(inp, key="user")
    orders.window(hg.tumbling("1m"), name="minutes").agg(n=hg.count()).to(out)
    async with paged(job, app, "w1") as (one, url):
        await one.until_running(1)
        for table, said in {
            "nothing": "no table 'nothing'",
            "minutes": "keeps it in blocks",
            "__checkpoint": "own",
        }.items():
            with pytest.raises(hg.HeadgateError, match=said):
                async with hg.query(job.name, table, url=url):
                    pass
        async with hg.query(job.name, "by-number", url=url) as numbers:
            with pytest.raises(hg.DataError, match="no key of it"):
                await numbers.get("seven")
            assert (await numbers.get(7)).found is False
