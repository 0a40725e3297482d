"""What questions about a table cost a worker that is fully loaded: single gets and batches over HTTP, in turn with the worker not asked.

    python -m bench queries [--quick] [--seconds 0.25] [--rounds 120] [--gets 1000] [--keys 20000] [--batch 500]

- One worker, four tasks: rows are re-keyed, given to a function, counted and summed by key; 100,000 keys. Its input is in the topic before
  it starts, so it works as fast as it can all the time.
- `gets`: so many requests for one key each second, over 32 connections. `batches`: so many keys each second, in requests of so many.
  Who asks is one process, and goes on all the time: in turn it asks the worker, and a stand-in, which answers as many bytes and looks
  nothing up. Who asks the worker of a job is on another machine, and does not take its processor from it.
- What questions cost is the worker's CPU time that its records do not explain: they take as much of it each as in the turns before and
  behind, where it is not asked. By so much of a core is a worker slower that has one core for itself. It has one, where the machine has
  several and `taskset` is there: all others share the rest. How fast a core is depends on the neighbours on the machine, too, and changes
  within seconds: so turns are short and many, and the median counts. Its 95 % interval says how far it can be trusted.

Prints a line for each turn; writes `bench/out/queries.json`. Wanted: all questions answered at their rate, for at most 10 % of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import orjson
from confluent_kafka import Producer

from headgate.agents.broker.broker import Broker

from . import report
from .rig import KEPT, Program, make_topic, scratch

USERS = 100_000
CONNECTIONS = 32
HERE = Path(__file__).resolve().parent.parent
ITSELF = (sys.executable, "-m", "bench.queries")
MOST = 0.10
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") and shutil.which("taskset") else []
OWN_CORE = ("taskset", "-c", str(CORES[0])) if len(CORES) > 1 else ()
"""How the worker gets a core for itself."""
JOB = """
import os
import headgate as hg

app = hg.App(os.environ["BENCH_JOB"])

def priced(order):
    order["amount"] = order["n"] * 2
    return order

orders = app.input(os.environ["BENCH_SOURCE"]).repartition("user", partitions=4)
orders.map(priced).agg(n=hg.count(), total=hg.sum("amount"), name="spent")
"""


def fill(bootstrap: str, topic: str, records: int) -> None:
    """The input."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.num.messages": 10_000, "log_level": 0})
    draw = random.Random(7)
    for n in range(records):
        value = b'{"user":"u%d","n":%d,"note":"%040d"}' % (draw.randrange(USERS), n % 1000, n)
        while True:
            try:
                producer.produce(topic, value, partition=n // 1000 % 4)
                break
            except BufferError:
                producer.poll(0.1)
        if n % 10_000 == 0:
            producer.poll(0)
    producer.flush(120)


# ------------------------------------------------------------------------------------------------------------- who asks


@dataclass
class Turn:
    """The questions of one turn."""

    due: float
    """When the next one is asked."""
    end: float
    took: list[float] = field(default_factory=list[float])
    bad: int = 0

    def told(self, lasted: float, each: int) -> dict[str, float]:
        """How they were answered."""
        took = sorted(self.took)
        p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
        return {"per_s": len(took) * each / lasted, "bad": self.bad, "p50_ms": p50 * 1000, "p99_ms": p99 * 1000}


async def asked(ports: tuple[int, int], case: str, rate: float, batch: int, turns: int, seconds: float) -> None:
    """Ask both in turn at a steady rate, over connections that each wait for their answer. Prints a line behind each turn."""
    draw = random.Random(time.time())
    opened = {port: [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)] for port in ports}

    def request() -> bytes:
        if case == "gets":
            return b"GET /api/query/spent/u%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % draw.randrange(USERS)
        keys = ",".join(f'"u{draw.randrange(USERS)}"' for _ in range(batch))
        body = f'{{"keys":[{keys}]}}'.encode()
        return b"POST /api/query/spent HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def one(turn: Turn, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (at := turn.due) < turn.end:
            turn.due += 1 / rate
            if (left := at - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            asked_s = time.perf_counter()
            writer.write(request())
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            turn.took.append(time.perf_counter() - asked_s)
            turn.bad += not head.startswith(b"HTTP/1.1 200") or b'"value' not in body

    for number in range(turns):
        began = time.perf_counter()
        turn = Turn(began, began + seconds)
        await asyncio.gather(*(one(turn, *pair) for pair in opened[ports[number % 2]]))
        print(
            orjson.dumps(turn.told(time.perf_counter() - began, batch if case == "batches" else 1)).decode(), flush=True
        )
    for pairs in opened.values():
        for _, writer in pairs:
            writer.close()


async def answering(body: bytes) -> None:
    """Be the stand-in: say the port, and answer this to everything, until the input ends."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if length := re.search(rb"Content-Length: (\d+)", head):
                    await reader.readexactly(int(length[1]))
                writer.write(answer)

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    server.close()


@contextlib.contextmanager
def stand_in(body: bytes) -> Iterator[int]:
    """A process that answers this; its port."""
    words = [*ITSELF, "--answer", str(len(body))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=KEPT, cwd=HERE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(body)
        process.stdin.flush()
        yield int(process.stdout.readline())
        process.stdin.close()


# ------------------------------------------------------------------------------------------------------------ the worker


class Loaded:
    """A worker under load, and what it has done so far."""

    def __init__(self, program: Program, port: int) -> None:
        self.program = program
        self.port = port

    def warm(self) -> None:
        """Wait until it works, and most keys are there."""
        give_up = time.monotonic() + 120
        done = 0.0
        while done < 6 * USERS:
            if time.monotonic() > give_up:
                raise AssertionError(f"it has done {done:,.0f} records:\n{self.program.told()}")
            time.sleep(0.2)
            with contextlib.suppress(urllib.error.URLError):  # it does not listen yet
                done = self.records()

    def answered(self, case: str, keys: int) -> bytes:
        """What it answers."""
        url = f"http://127.0.0.1:{self.port}/api/query/spent"
        body = orjson.dumps({"keys": [f"u{n}" for n in range(keys)]})
        with urllib.request.urlopen(f"{url}/u1" if case == "gets" else urllib.request.Request(url, body)) as answer:
            return bytes(answer.read())

    def records(self) -> float:
        """The records that it has taken so far, from the input and again behind the shuffle."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        lines = re.findall(r"^headgate_records_read_total\{.*?\} (\S+)$", text, re.MULTILINE)
        return sum(map(float, lines))

    def turns(self, case: str, rate: float, batch: int, given: Any, other: int) -> Iterator[dict[str, Any]]:
        """What the worker did in each turn, and how it answered; in the first, the last and every other one the stand-in was asked."""
        ask = (other, self.port, case, rate, batch, 2 * given.rounds + 1, given.seconds)
        words = [*ITSELF, "--ask", *map(str, ask)]
        before, began = self.records(), time.time()
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=KEPT, cwd=HERE) as asks:
            assert asks.stdout is not None
            for at, told in enumerate(asks.stdout):
                now, ended = self.records(), time.time()
                done, lasted = now - before, ended - began
                if not done:
                    raise AssertionError("the worker has nothing to do any more: give more --records")
                cpu = self.program.cpu_between(began, ended)
                found = {"case": case if at % 2 else f"not {case}", "per_s": done / lasted, "per_cpu_s": done / cpu}
                yield {
                    **found,
                    "cpu": cpu / lasted,
                    **{f"asked_{name}": value for name, value in orjson.loads(told).items()},
                }
                before, began = now, ended


def measured(broker: Broker, directory: Path, given: Any) -> list[dict[str, Any]]:
    """All turns on one worker."""
    job = f"queries-{uuid.uuid4().hex[:6]}"
    source = f"{job}-in"
    make_topic(broker.bootstrap, source, partitions=4)
    fill(broker.bootstrap, source, given.records)
    (directory / "query_job.py").write_text(JOB)
    words = [
        *OWN_CORE,
        sys.executable,
        "-m",
        "headgate.agents.cli",
        "run",
        "query_job:app",
        "--app-dir",
        str(directory),
    ]
    words += ["-b", broker.bootstrap, "--state-dir", str(directory / "state"), "--log-format", "json"]
    log = directory / f"{job}.log"
    program = Program(words, {"BENCH_JOB": job, "BENCH_SOURCE": source}, log).start()
    try:
        loaded = Loaded(program, port_of(program, log))
        loaded.warm()
        rows: list[dict[str, Any]] = []
        for case in ("gets", "batches"):
            rate, keys = (given.gets, 1) if case == "gets" else (given.keys / given.batch, given.batch)
            with stand_in(loaded.answered(case, keys)) as other:
                for row in loaded.turns(case, rate, given.batch, given, other):
                    rows.append(row)
                    print(line(row), flush=True)
        return rows
    finally:
        program.stop()


def port_of(program: Program, log: Path) -> int:
    """The port of its pages, which it says when it starts."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        if found := re.search(r"http://[^:]+:(\d+)", log.read_text(errors="replace")):
            return int(found[1])
        time.sleep(0.1)
    raise AssertionError(f"it has not started:\n{program.told()}")


def line(row: dict[str, Any]) -> str:
    """One turn, for people."""
    text = (
        f"{row['case']:8} {row['per_s']:9,.0f} records/s  {row['per_cpu_s']:9,.0f} a CPU second  cpu {row['cpu']:.2f}"
    )
    if "asked_per_s" in row:
        text += f"  answered {row['asked_per_s']:8,.0f}/s  bad {row['asked_bad']}"
        text += f"  p50 {row['asked_p50_ms']:.1f} ms  p99 {row['asked_p99_ms']:.1f} ms"
    return text


def cost(rows: list[dict[str, Any]], case: str) -> list[float]:
    """Which part of a core each turn with questions took for them."""
    return [
        row["cpu"] - row["per_s"] / ((rows[at - 1]["per_cpu_s"] + rows[at + 1]["per_cpu_s"]) / 2)
        for at, row in enumerate(rows)
        if row["case"] == case
    ]


def slower(rows: list[dict[str, Any]], case: str) -> list[float]:
    """By how much each turn with questions had fewer records a second than the turns around it."""
    return [
        1 - row["per_s"] / ((rows[at - 1]["per_s"] + rows[at + 1]["per_s"]) / 2)
        for at, row in enumerate(rows)
        if row["case"] == case
    ]


def interval(found: list[float]) -> tuple[float, float]:
    """Between which of the figures their median is, with 95 %."""
    ordered, n = sorted(found), len(found)
    off = 0.98 * math.sqrt(n)  # 1.96 standard deviations of how many of n lie below the median
    return ordered[max(0, int(n / 2 - off))], ordered[min(n - 1, int(n / 2 + off))]


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench queries", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="ten rounds")
    words.add_argument("--seconds", type=float, default=0.25, help="how long a turn lasts")
    words.add_argument(
        "--rounds", type=int, default=0, help="how often the worker is asked for so long: 120, or 10 in a quick run"
    )
    words.add_argument("--records", type=int, default=0, help="how many stand in the input")
    words.add_argument("--gets", type=float, default=1_000, help="single gets a second")
    words.add_argument("--keys", type=float, default=20_000, help="keys a second in batches")
    words.add_argument("--batch", type=int, default=500)
    words.add_argument("--ask", nargs=7, help=argparse.SUPPRESS)
    words.add_argument("--answer", type=int, help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.answer:
        asyncio.run(answering(sys.stdin.buffer.read(given.answer)))
        return 0
    if given.ask:
        other, port, case, rate, batch, turns, seconds = given.ask
        asyncio.run(asked((int(other), int(port)), case, float(rate), int(batch), int(turns), float(seconds)))
        return 0
    given.rounds = given.rounds or (10 if given.quick else 120)
    given.records = given.records or int((4 * given.rounds + 2) * given.seconds * 250_000) + 3_000_000
    if OWN_CORE:
        os.sched_setaffinity(0, CORES[1:])  # and all that is started from here
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        rows = measured(broker, directory, given)
    failed = False
    for case, wanted in (("gets", given.gets), ("batches", given.keys)):
        rates = [row["asked_per_s"] for row in rows if row["case"] == case]
        bad = sum(row["asked_bad"] for row in rows if row["case"] == case)
        core, wall = median(cost(rows, case)), median(slower(rows, case))
        low, high = interval(cost(rows, case))
        well = median(rates) >= 0.98 * wanted and not bad and core <= MOST
        failed |= not well
        print(
            f"{case}: {median(rates):,.0f} keys/s answered, wanted {wanted:,.0f}, for {core:.1%} of a core ({low:.1%} to {high:.1%}); "
            f"{wall:.1%} fewer records a second at {median(row['cpu'] for row in rows):.2f} CPU: {'ok' if well else 'TOO SLOW'}"
        )
    report.keep("queries", {"quick": given.quick, "rows": rows})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
