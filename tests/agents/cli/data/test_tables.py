"""`headgate tables` and the workers that it asks: one that does not have the key is no answer, and no error either."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace as Bag
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import headgate as hg
from headgate.agents.cli.data.tables import _ask, merged
from headgate.agents.testing.driver import Driver
from headgate.agents.web import tables
from headgate.agents.web.service import TablesPage
from headgate.core.errors import NotFound


def worker(name: str, d: Driver, task: str) -> Any:
    """One that runs only this task of a test driver."""
    actor = d.tasks[task]
    options = Bag(processor=name)
    return Bag(options=options, actors={task: actor}, declared=actor.state.declared, coordination=None)


def served(one: Any, asked: list[int]) -> TestServer:
    """The pages of its tables."""

    def answer(body: bytes, content_type: str, status: int) -> web.Response:
        asked.append(status)
        return web.Response(body=body, content_type=content_type, status=status)

    driver: Any = Bag(bytes=answer)
    view = TablesPage(Bag(), driver)  # type: ignore[arg-type]
    view.page = Bag(worker=one)  # type: ignore[assignment]

    async def get(request: web.Request) -> Any:
        return await view.get(request, **request.match_info)

    app = web.Application()
    app.router.add_get("/api/tables", get)
    app.router.add_get("/api/tables/{table}", get)
    return TestServer(app)


async def answered(*workers: Any) -> tuple[list[int], list[dict[str, Any] | None]]:
    """What each of these says to the command about the key `a`, the first one also about a table that is not there, with the statuses."""
    said, answers = list[int](), list[dict[str, Any] | None]()
    to: Any = Bag(configuration=Bag(value={"web.token": ""}.__getitem__))
    for one in workers:
        async with served(one, said) as server:
            url = str(server.make_url("")).rstrip("/")
            found = {"processor": one.options.processor, "url": url}
            answers.append(await _ask(to, found, "rows", "a", "", 10))
            if one is workers[0]:
                with pytest.raises(NotFound, match="rosw"):
                    await _ask(to, found, "rosw", "a", "", 10)
    return said, answers


def test_a_worker_that_has_not_the_key_says_421_and_the_others_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said 200 and no rows, and whoever asked one worker took that for an answer about the job."""
    app = hg.App("job")
    app.input("in", key="k").table("rows")
    with Driver(app, partitions={"in": 2}) as d:
        d.send("in", {"k": "a"}, key="a", partition=1)
        d.advance("1s")
        one, two = worker("w1", d, "Partition 0"), worker("w2", d, "Partition 1")
        others = {"w1": ["Partition 1"], "w2": ["Partition 0"]}

        def elsewhere(asked: Any, task: str = "") -> list[dict[str, Any]]:
            name = asked.options.processor
            return [{"worker": "w" + "21"[name == "w2"], "url": "", "tasks": others[name]}]

        monkeypatch.setattr(tables, "elsewhere", elsewhere)
        said, answers = asyncio.run(answered(one, two))
    assert said == [421, 404, 200]
    assert [one and one["tasks"] for one in answers] == [["Partition 0"], ["Partition 1"]]
    heard = [one for one in answers if one is not None]
    assert [(row["task"], row["key"]) for row in merged(heard, "rows", 10)["rows"]] == [("Partition 1", "a")]
