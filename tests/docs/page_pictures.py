"""Takes the pictures of the page for docs: `make pictures`. A real Chromium takes them, in light and dark, of a job that is made for it.

    python -m tests.docs.page_pictures                    a broker, the job with two workers, what it reads; and its pictures
    python -m tests.docs.page_pictures URL [DIRECTORY]    pictures of a job that runs

What it decides: what the pictures show. The job has two stages, a table, a window, a step that takes the time, and a task that has failed;
it is a little behind. Promises: pictures are taken when the page shows all of this, and not after some time; nothing is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from headgate.agents.broker.broker import Broker
from tests.chromium import PROGRAM, browser

from .pages import ROOT

WIDE = 1100
HERE = ROOT / "docs/pictures"
PARTITIONS = 6
BEFORE, BURST, EACH_S = 400, 3600, 200
"""Orders before the bad one and behind it, which are there at first, and those that come each second."""
MOST_BEHIND = 5000
"""No more orders come while the job is so far behind: on a machine that is busy, too, the pictures show one that could catch up."""
SAMPLES = 10
"""Points of the lines: one comes every five seconds."""
PATIENCE_S = 600.0
INPUTS, OUTPUTS = ("orders", "rates"), ("alerts", "revenue")
SHOWN = "/srv/shop/shop.py"
"""Where the job stands, as it says itself: pictures show no directory of the machine that has taken them."""
JOB = """\
import time

import headgate as hg

app = hg.App("shop", settings={"error.retries": 0})
orders = app.input("orders", timestamp="ts", max_out_of_order="5s")
rates = app.input("rates", key="currency").table("rates", broadcast=True)


def scored(order):
    time.sleep(0.004)  # stands for a model
    return order | {"score": len(order["user"]) * order["amount"] % 100}


def priced(order, rate):
    return order | {"total": order["amount"] * rate["rate"]}


checked = orders.map(scored)
checked.filter(lambda order: order["score"] > 98).to("alerts")
per_user = checked.join(rates, on="currency", into=priced).repartition("user")
per_user.window(hg.tumbling("1m"), name="per-minute").agg(total=hg.sum("total")).to("revenue")
"""
LOADER = """\
import linecache
from pathlib import Path

source = Path(__file__).with_name("shop.txt").read_text()
linecache.cache["SHOWN"] = (len(source), None, source.splitlines(True), "SHOWN")
exec(compile(source, "SHOWN", "exec"), globals())
"""


async def take(url: str, directory: Path, wide: int = WIDE) -> None:
    """Write both pictures."""
    with tempfile.TemporaryDirectory() as profile:
        async with browser(Path(profile)) as page:
            for scheme in ("light", "dark"):
                await page.open(url, wide=wide, dark=scheme == "dark")
                await page.until("document.querySelectorAll('#tasks tr').length > 1")
                (directory / f"page-{scheme}.png").write_bytes(await page.picture())


# ------------------------------------------------------------------------------------------------------------------- the job


@contextlib.asynccontextmanager
async def shop(bootstrap: str, home: Path, *, suffix: str = "", samples: int = SAMPLES) -> AsyncIterator[str]:
    """The job on two workers, as soon as its page shows what the pictures shall show. `suffix`: behind the names of job and topics."""
    job = JOB.replace('App("shop"', f'App("shop{suffix}"')
    for name in (*INPUTS, *OUTPUTS):
        job = job.replace(f'input("{name}"', f'input("{name}{suffix}"').replace(f'to("{name}"', f'to("{name}{suffix}"')
    (home / "shop.txt").write_text(job, encoding="utf-8")
    (home / "shop.py").write_text(LOADER.replace("SHOWN", SHOWN), encoding="utf-8")
    await topics(bootstrap, suffix)
    async with contextlib.AsyncExitStack() as running:
        keeps_up = asyncio.Event()
        feeding = asyncio.get_running_loop().create_task(feed(bootstrap, suffix, keeps_up), name="orders")
        running.push_async_callback(ended, feeding)
        workers = [await running.enter_async_context(worker(bootstrap, home, number)) for number in (1, 2)]
        urls = {f"w{number}": await address(home / f"w{number}.log") for number in (1, 2)}
        async with asyncio.timeout(PATIENCE_S):
            while not shows(page := await document(urls["w1"]), samples):
                if page and (page["status"]["lag"] or 0) < MOST_BEHIND:
                    keeps_up.set()
                else:
                    keeps_up.clear()
                for number, one in enumerate(workers, 1):
                    assert one.returncode is None, said(home / f"w{number}.log")[-3000:]
                if feeding.done():
                    feeding.result()
                await asyncio.sleep(0.5)
        failed = next(one["worker"] for one in page["status"]["tasks"] if one["state"] == "failed")
        yield next(
            url for name, url in urls.items() if name != failed
        )  # the other one is not ready, and says why at length


async def topics(bootstrap: str, suffix: str) -> None:
    """Make the topics."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        made = [NewTopic(f"{name}{suffix}", 1 if name == "rates" else PARTITIONS, 1) for name in (*INPUTS, *OUTPUTS)]
        await admin.create_topics(made)
    finally:
        await admin.close()


async def feed(bootstrap: str, suffix: str, keeps_up: asyncio.Event) -> None:
    """Write what the job reads, as long as it lasts and `keeps_up`. An order that no step can work on comes behind the first ones."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for currency, rate in (("EUR", 1.0), ("USD", 0.9)):
            body = orjson.dumps({"currency": currency, "rate": rate})
            await producer.send_and_wait(f"rates{suffix}", body, currency.encode())
        written = orders()
        await write(producer, f"orders{suffix}", list(itertools.islice(written, BEFORE)))
        bad = orjson.dumps({"amount": 5, "currency": "EUR", "ts": round(time.time() * 1000)})
        await producer.send_and_wait(f"orders{suffix}", bad, partition=3)
        await write(producer, f"orders{suffix}", list(itertools.islice(written, BURST)))
        while True:
            await keeps_up.wait()
            await write(producer, f"orders{suffix}", list(itertools.islice(written, EACH_S // 4)))
            await asyncio.sleep(0.25)  # the pace of the orders


def orders() -> Iterator[tuple[int, bytes]]:
    """Orders, each with its partition; one partition has more than the others."""
    for number in itertools.count():
        user, at = f"u{number * 7 % 400}", 5 if number % 5 == 0 else number % PARTITIONS
        order = {"user": user, "amount": number % 97 + 1, "currency": ("EUR", "USD")[number % 2]}
        yield at, orjson.dumps(order | {"ts": round(time.time() * 1000)})


async def write(producer: Any, topic: str, written: list[tuple[int, bytes]]) -> None:
    """Write these, each to its partition."""
    await asyncio.gather(*[await producer.send(topic, body, partition=at) for at, body in written])


@contextlib.asynccontextmanager
async def worker(bootstrap: str, home: Path, number: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker, for as long as it is needed."""
    words = ["run", "shop:app", "-b", bootstrap, "--app-dir", str(home), "--processor-id", f"w{number}"]
    words += ["--state-dir", str(home / f"state-{number}"), "--set", "location.provider=env:RACK"]
    with (home / f"w{number}.log").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headgate",
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, "RACK": f"rack-{number}"},
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 60)
        except TimeoutError:
            process.kill()
            await process.wait()


async def ended(work: asyncio.Task[None]) -> None:
    """Cancel it, and wait for its end."""
    work.cancel()
    await asyncio.wait([work])


async def address(log: Path) -> str:
    """Where the page is."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if found := re.search(r"http://127\.0\.0\.1:\d+(?=\D)", said(log)):
                return found[0]
            await asyncio.sleep(0.1)


def said(log: Path) -> str:
    """What a worker has logged."""
    return log.read_text(errors="replace")


async def document(url: str) -> dict[str, Any]:
    """What the page shows; empty while it does not answer."""
    with contextlib.suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session, session.get(f"{url}/api/job") as answer:
            if answer.status == 200:
                return await answer.json()
    return {}


def shows(page: dict[str, Any], samples: int) -> bool:
    """Whether the page shows what the pictures shall show: a failed task among others that work on two workers, a lag, and lines."""
    if not page:
        return False
    tasks, recent = page["status"]["tasks"], page["recent"]
    return (
        sorted({one["state"] for one in tasks}) == ["failed", "running"]
        and {one["worker"] for one in tasks} == {"w1", "w2"}
        and bool(page["status"]["lag"])
        and sum(1 for one in recent["rows_s"] if one) >= samples
    )


async def main(words: list[str]) -> None:
    """See above."""
    if PROGRAM is None:
        sys.exit("Chromium is not installed here: apt install chromium")
    if words:
        await take(words[0], Path(words[1]) if len(words) > 1 else HERE)
        return
    await make(HERE)
    print(f"wrote {HERE.relative_to(ROOT)}/page-light.png and page-dark.png")


async def make(directory: Path) -> None:
    """Take the pictures of a job that lives only for them."""
    with tempfile.TemporaryDirectory(prefix="headgate-pictures-") as found:
        home = Path(found)
        with await asyncio.to_thread(Broker.start, home / "kafka") as broker:
            async with shop(broker.bootstrap, home) as url:
                await take(url, directory)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
