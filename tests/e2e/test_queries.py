"""Tables are asked from outside, on a real broker: through any worker, while tasks move, and after a kill -9 of their owner."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import aiohttp
import msgpack
import orjson
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.process.reading import Follower, folded
from headgate.agents.web.door import PageDoor
from headgate.agents.web.service import Page
from headgate.core.coordination.metadata import ASSIGNMENTS, LOCALITY, stored
from headgate.core.task.stored.checkpoint import parse_log_key, parse_log_value

from .. import forked
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
USERS = [f"u{n}" for n in range(40)]


class Order(TypedDict):
    user: str
    n: int
    why: NotRequired[list[str]]


def spending(name: str, inp: str, out: str) -> hg.App:
    """A table of each kind: placed by a shuffle, by whoever writes, everywhere, and an aggregate."""
    app = hg.App(name)
    seen = app.table("seen", key=hg.key(), value=hg.json())

    def noted(order):
        seen[order["user"], order["n"]] = order
        return order

    orders = app.input(inp, serde=hg.json(Order)).repartition("user", partitions=4)
    orders.map(noted).agg(total=hg.sum("n"), mean=hg.mean("n"), name="spent").to(out)
    orders.table("latest", serde=hg.json(Order))
    return app


@contextlib.asynccontextmanager
async def paged(job: Any, app: hg.App, processor: str, token: str = "") -> AsyncIterator[tuple[Any, str]]:
    """A worker with its page."""
    page = Page(door=PageDoor("127.0.0.1", token))
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


async def test_the_token_opens_all_workers_or_none(job, topic, monkeypatch, tmp_path):
    """Workers ask each other with their own; who asks gives it, or learns nothing."""
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", job.bootstrap)
    inp, out = topic("in"), topic("out")
    app = spending(job.name, inp, out)
    async with paged(job, app, "w1", "secret") as (one, first), paged(job, app, "w2", "secret") as (two, _):
        await one.until(lambda: len(one.worker.actors) == 2 and set(one.states().values()) == {"running"})
        await two.until(lambda: len(two.worker.actors) == 2 and set(two.states().values()) == {"running"})
        await job.write(inp, [{"user": user, "n": n} for n, user in enumerate(USERS)])
        await job.values(out, len(USERS))
        async with hg.query(job.name, "spent", url=first, token="secret") as spent:
            assert [found.value["total"] for found in await spent.get_many(USERS)] == list(range(len(USERS)))
        with pytest.raises(hg.EnvironmentFault, match="rejects the token"):
            async with hg.query(job.name, "spent", bootstrap=job.bootstrap, token="another"):
                pass
        async with aiohttp.ClientSession() as session:
            for path in ("query/spent/u1", "query", "export/spent?task=Partition%200"):
                async with session.get(f"{first}/api/{path}") as answer:
                    assert answer.status == 401
                    assert "token" in await answer.text()
        monkeypatch.setenv("HEADGATE_WEB_TOKEN", "secret")
        assert (await exported(job, "spent", tmp_path / "out", "jsonl"))["rows"] == len(USERS)


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


async def test_an_export_is_the_fold_of_the_log_at_its_commits_while_the_job_runs(job, topic, tmp_path, monkeypatch):
    """Two workers, records coming in all the time, and a task that moves: each file has exactly what its task had committed up to the
    position that the export names, by what a plain consumer reads of the log; and every value is one that has come out."""
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", job.bootstrap)
    inp, out = topic("in"), topic("out")
    app = spending(job.name, inp, out)
    written = itertools.count()
    stop = asyncio.Event()

    async def write() -> None:
        while not stop.is_set():
            await job.write(inp, [{"user": USERS[n % 40], "n": n} for n in itertools.islice(written, 50)])

    async with paged(job, app, "w1") as (one, _):
        await one.until_running(4)
        writing = asyncio.get_running_loop().create_task(write())
        try:
            await job.values(out, 200, more_s=0)
            lines = await exported(job, "spent", tmp_path / "lines", "jsonl")
            async with paged(job, app, "w2") as (two, _):
                moving = await exported(job, "spent", tmp_path / "moving", "parquet")
                await two.until(lambda: len(two.worker.actors) == 2 and set(two.states().values()) == {"running"})
                both = await exported(job, "latest", tmp_path / "both", "parquet")
                assert {task["worker"] for task in both["tasks"]} == {"w1", "w2"}
                for file in (tmp_path / "both").glob("*.parquet"):
                    columns = {field.name: str(field.type) for field in pq.read_schema(file)}
                    assert columns == {
                        "__key": "string",
                        "user": "string",
                        "n": "int64",
                        "why": "string",
                    }  # as declared
                stop.set()
                await writing
                results = {(key, orjson.dumps(value)) for key, value in await keyed(job, out)}
                log = await folds(job, [lines, moving])
        finally:
            stop.set()
            await asyncio.gather(writing, return_exceptions=True)
    for export, rows in ((lines, lines_of(tmp_path / "lines")), (moving, parquet_of(tmp_path / "moving"))):
        assert export["rows"] == sum(map(len, rows.values())) > 0
        for task in export["tasks"]:
            found = rows[task["file"]]
            assert found == log[task["task"], task["commit"]], task
            assert all((key, orjson.dumps({**value})) in results for key, value in found.items())


SOURCE = """
import headgate as hg

app = hg.App("JOB")
orders = app.input("IN").repartition("user", partitions=4)
orders.agg(total=hg.sum("n"), mean=hg.mean("n"), name="spent").to("OUT")
"""


async def test_many_questions_wait_for_one_look_at_the_stream(job, topic, monkeypatch):
    """Two hundred coroutines ask for keys of a worker that dies. None waits for the looks of the others, so none lasts much longer than
    the next owner needs."""
    looks, looked, more = 0, asyncio.Event(), Follower.more

    async def counted(follower: Follower) -> bool:
        nonlocal looks
        looks += 1
        looked.set()
        return await more(follower)

    monkeypatch.setattr(Follower, "more", counted)
    inp, out = topic("in"), topic("out")
    app = spending(job.name, inp, out)
    async with paged(job, app, "w1") as (one, _):
        await one.until_running(4)
        await job.write(inp, [{"user": user, "n": n} for n, user in enumerate(USERS)])
        await job.values(out, len(USERS))
        async with hg.query(job.name, "spent", bootstrap=job.bootstrap, timeout="120s") as spent:
            await one.crash()
            asking = asyncio.gather(*(spent.get(USERS[n % 40]) for n in range(200)))
            async with asyncio.timeout(60):
                await looked.wait()
            async with paged(job, app, "w2"):
                assert [found.value["total"] for found in await asking] == [n % 40 for n in range(200)]
    assert looks < 150


async def test_a_standby_answers_for_an_owner_that_is_away_where_an_older_answer_is_allowed(job, topic):
    """Two processes at two locations, each the standby of the other. One answers nothing, and is killed; its session lasts. Who allows it
    gets the rows of its tasks at once, as old as the copy is; who does not, waits; and a copy that is too old answers no one."""
    inp, out = topic("in"), topic("out")
    source = SOURCE.replace("IN", inp).replace("OUT", out)
    places = ("--set", "location.provider=env:RACK", "--set", "session.timeout=120s")
    first, second = [
        await job.process(source, name, *places, "--state-dir", str(job.directory / name), RACK=name)
        for name in ("w1", "w2")
    ]
    await job.write(inp, [{"user": user, "n": n} for n, user in enumerate(USERS)])
    await job.values(out, len(USERS))
    expected = [{"total": n, "mean": float(n)} for n in range(len(USERS))]
    async with asyncio.timeout(240):
        while len(await owners_of(job)) < 2:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        assert (await job.ask("set-config", setting="standby", value="1")).state == "done"
        while second.text().count("a task log is followed") < 2:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    tasks = stored(await folded(job.client, job.topics), ASSIGNMENTS)
    lost = {task for task, one in tasks.items() if one["worker"] == "w1"}
    first.process.send_signal(signal.SIGSTOP)
    async with hg.query(job.name, "spent", bootstrap=job.bootstrap, timeout="60s", stale="10m") as spent:
        assert [one.value for one in await spent.get_many(USERS)] == expected
    first.kill()
    async with hg.query(job.name, "spent", bootstrap=job.bootstrap, timeout="60s", stale="10m") as spent:
        found = await spent.get_many(USERS)
        assert [one.value for one in found] == expected
        assert {one.task for one in found if one.standby} == lost
        assert all(one.standby == (one.task in lost) for one in found)
        rows = [one async for one in spent.scan()]
        assert sorted(one.key for one in rows) == sorted(USERS)
        assert {one.task for one in rows if one.standby} == lost
        nobody = await spent.get_many([f"nobody-{n}" for n in range(20)])
        assert not any(one.found for one in nobody)
    user = next(one for one in found if one.standby).key
    url = stored(await folded(job.client, job.topics), LOCALITY)["w2"]["url"]
    for stale, says in ((None, "its worker w1"), ("1ms", "the copy of its standby w2 is")):
        async with hg.query(job.name, "spent", url=url, timeout="4s", stale=stale) as spent:
            with pytest.raises(hg.EnvironmentFault, match=says):
                await spent.get(user)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/api/query/spent/{user}?stale=10m") as answer:
            told = await answer.json()
            assert (answer.status, told["standby"], told["worker"]) == (200, True, "w2")
        async with session.get(f"{url}/api/query/spent/{user}") as answer:
            assert answer.status == 503
        async with session.get(f"{url}/api/query/spent/{user}?stale=soon") as answer:
            assert (answer.status, "no duration" in (await answer.json())["error"]) == (400, True)


async def owners_of(job: Any) -> set[str]:
    return {one["worker"] for one in stored(await folded(job.client, job.topics), ASSIGNMENTS).values()}


async def exported(job: Any, table: str, to: Path, form: str) -> dict[str, Any]:
    """What the command says."""
    words = ["state", "export", job.name, table, "--to", str(to), "--format", form, "-o", "json"]
    ran = await asyncio.to_thread(forked.run, words)
    assert ran.returncode == 0, ran.stderr
    document = orjson.loads(ran.stdout)
    assert wrong(document, schema("state-export")) == []
    manifest = orjson.loads((to / "_export.json").read_bytes())
    assert manifest == {name: value for name, value in document.items() if name != "directory"}
    return document


def lines_of(directory: Path) -> dict[str, dict[str, Any]]:
    return {
        file.name: {row["key"]: row["value"] for row in map(orjson.loads, file.read_bytes().splitlines())}
        for file in directory.glob("*.jsonl")
    }


def parquet_of(directory: Path) -> dict[str, dict[str, Any]]:
    return {
        file.name: {row.pop("__key"): row for row in pq.read_table(file).to_pylist()}
        for file in directory.glob("*.parquet")
    }


async def keyed(job: Any, out: str) -> list[tuple[str, Any]]:
    return [(one.key.decode(), orjson.loads(one.value)) for one in await job.records(out, 1)]


async def folds(job: Any, exports: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """For each task and commit, the table of the sums as the log has it up to there."""
    records = await job.records(job.topics.log, 1)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for task in (task for one in exports for task in one["tasks"]):
        at = found[task["task"], task["commit"]] = {}
        partition = int(task["task"].split()[1])
        for record in records:
            entry = parse_log_key(record.key)
            if (record.partition, entry.table) == (partition, "spent") and record.offset < task["commit"]:
                total, (count, summed) = msgpack.unpackb(parse_log_value(record.value).body)
                at[entry.key.decode()] = {"total": total, "mean": summed / count}
    return found
