"""How many records a second of one partition a service is asked about that takes 20 ms: `lookup`, with no cache, one question a call.

    python -m bench lookups [--quick] [--records 60000] [--ms 20] [--rounds 3]

- `sleeps`: the function only sleeps, so what is measured is the lookup. `http`: an aiohttp client asks a server in a process of its own,
  and pays for itself.
- `cached`: as `sleeps`, with `cache="5m"` and 1,000 different questions; ten times as many records.
- One worker, one task. The input is in the topic before it starts, the first tenth does not count. The rate is that of the broker's append
  times of committed outputs. Each key must come out complete and in its order.

Prints a line for each; writes `bench/out/lookups.json`. At least 2,000 records a second are wanted of the first two.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

import orjson
from aiohttp import web
from confluent_kafka import Producer

from headgate.agents.broker.broker import Broker

from . import report
from .rig import KEPT, Program, drop_topics, make_topic, read_all, scratch

WANTED = 2_000
KEYS = 100
PATIENCE_S = 240.0
CASES = {"sleeps": "item", "http": "item", "cached": "kind"}
JOB = """
import asyncio, os
import aiohttp
import headgate as hg

app = hg.App(os.environ["BENCH_JOB"])
case, url, pause_s = os.environ["BENCH_CASE"], os.environ["BENCH_URL"], float(os.environ["BENCH_PAUSE_S"])
sessions = []

async def asked(item):
    if case != "http":
        await asyncio.sleep(pause_s)
        return len(item)
    if not sessions:
        sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    async with sessions[0].get(f"{url}/{item}") as answer:
        return int(await answer.read())

orders = app.input(os.environ["BENCH_SOURCE"])
cache = "5m" if case == "cached" else None
orders.lookup(
    asked, on=os.environ["BENCH_ON"], cache=cache, into=lambda order, answer: {**order, "answer": answer}
).to(os.environ["BENCH_TARGET"], key="user")
"""


def fill(bootstrap: str, topic: str, records: int) -> None:
    """The input: `n` grows, and so it does for each user."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    for n in range(records):
        value = {"n": n, "user": f"u{n % KEYS}", "item": f"item-{n}", "kind": f"kind-{n * 7919 % 1000}"}
        producer.produce(topic, orjson.dumps(value), partition=0)
        if n % 10_000 == 0:
            producer.poll(0)
    producer.flush(60)


def measure(broker: Broker, directory: Path, case: str, records: int, url: str, pause_s: float) -> dict[str, Any]:
    """One program, from an empty output to a full one."""
    job = f"lookups-{case}-{uuid.uuid4().hex[:6]}"
    source, target = f"{job}-in", f"{job}-out"
    make_topic(broker.bootstrap, source, partitions=1)
    make_topic(broker.bootstrap, target, {"message.timestamp.type": "LogAppendTime"}, partitions=1)
    fill(broker.bootstrap, source, records)
    state = directory / job
    state.mkdir()
    (state / "lookup_job.py").write_text(JOB)
    env = {
        "BENCH_JOB": job, "BENCH_SOURCE": source, "BENCH_TARGET": target, "BENCH_CASE": case, "BENCH_URL": url,
        "BENCH_PAUSE_S": str(pause_s), "BENCH_ON": CASES[case],
    }  # fmt: skip
    words = [sys.executable, "-m", "headgate.agents.cli", "run", "lookup_job:app", "--app-dir", str(state), "--bounded"]
    words += ["-b", broker.bootstrap, "--state-dir", str(state / "state"), "--log-format", "json"]
    running = Program(words, env, directory / f"{job}.log").start()
    try:
        found = finished(running, broker.bootstrap, target, records)
    finally:
        running.stop()
        drop_topics(broker.bootstrap, source, target)
    numbers = [value["n"] for _, value in found]
    if numbers != list(range(records)):
        raise AssertionError(f"{case}: {len(numbers):,} outputs of {records:,} records, or not in their order")
    begin, end = found[records // 10][0], found[-1][0]
    rate = (records - records // 10) / max(0.001, (end - begin) / 1000)
    cpu = running.cpu_between(begin / 1000, end / 1000) / max(0.001, (end - begin) / 1000)
    return {"case": case, "records_per_s": rate, "cpu": cpu, "records": records, "load": os.getloadavg()[0]}


def finished(running: Program, bootstrap: str, target: str, records: int) -> list[tuple[int, Any]]:
    """All outputs, with their append times, when the program has ended."""
    try:
        running.popen.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it has not ended:\n{running.told()}") from None
    if running.popen.returncode:
        raise AssertionError(f"it ended with {running.popen.returncode}:\n{running.told()}")
    return [
        (one.timestamp()[1], orjson.loads(one.value()))
        for one in itertools.islice(read_all(bootstrap, target), 2 * records)
    ]


def serve(port_file: Path, pause_s: float) -> None:
    """The service: answers after a while."""

    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(pause_s)
        return web.Response(text="1")

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/{item}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        draft = port_file.with_suffix(".draft")
        draft.write_text(str(runner.addresses[0][1]))
        draft.replace(port_file)
        await asyncio.Event().wait()

    asyncio.run(run())


def started(directory: Path, pause_s: float) -> tuple[subprocess.Popen[bytes], str]:
    """The service in a process of its own, and its address."""
    port_file = directory / "port"
    words = [sys.executable, "-m", "bench.lookups", "--serve", str(port_file), "--ms", str(pause_s * 1000)]
    process = subprocess.Popen(words, env=KEPT, cwd=Path(__file__).resolve().parent.parent)
    give_up = time.monotonic() + 30
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > give_up:
            raise AssertionError("the service did not start")
        time.sleep(0.05)
    return process, f"http://127.0.0.1:{port_file.read_text()}"


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench lookups", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="20,000 records, one round")
    words.add_argument("--cases", default=",".join(CASES))
    words.add_argument("--records", type=int, default=0, help="60,000, or 20,000 in a quick run")
    words.add_argument("--ms", type=float, default=20.0, help="how long the service takes")
    words.add_argument("--rounds", type=int, default=0, help="3, or 1 in a quick run")
    words.add_argument("--serve", metavar="FILE", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.serve:
        serve(Path(given.serve), given.ms / 1000)
        return 0
    cases = given.cases.split(",")
    if unknown := [case for case in cases if case not in CASES]:
        words.error(f"unknown: {', '.join(unknown)}; cases: {', '.join(CASES)}")
    records = given.records or (20_000 if given.quick else 60_000)
    rows: list[dict[str, Any]] = []
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        service, url = started(directory, given.ms / 1000)
        try:
            for case in [case for _ in range(given.rounds or (1 if given.quick else 3)) for case in cases]:
                row = measure(broker, directory, case, records * (10 if case == "cached" else 1), url, given.ms / 1000)
                rows.append(row)
                print(
                    f"{case:8} {row['records_per_s']:10,.0f} records/s  cpu {row['cpu']:.2f}  load {row['load']:.1f}",
                    flush=True,
                )
        finally:
            service.terminate()
            service.wait(10)
    slow = 0
    for case in cases:
        found = median(row["records_per_s"] for row in rows if row["case"] == case)
        slow += found < WANTED
        print(
            f"{case}: {found:,.0f} records/s in the median, wanted {WANTED:,}: {'ok' if found >= WANTED else 'TOO SLOW'}"
        )
    report.keep("lookups", {"quick": given.quick, "ms": given.ms, "rows": rows})
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
