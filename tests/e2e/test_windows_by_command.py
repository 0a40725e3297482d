"""What an operator sees and does of windows: through the command line, with processes of their own, on a real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from .conftest import WAIT_S
from .test_cli_operations import Headgate, good_orders

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

BASE = 1_700_000_000_000
SOURCE = """
import headgate as hg
app = hg.App("JOB")
orders = app.input("JOB-orders", timestamp="ts")
tens = orders.repartition("user").window(hg.tumbling("10s"), name="tens")
tens.agg(n=hg.count(), total=hg.sum("amount")).to("JOB-out")
"""
HOPS = """
import headgate as hg
app = hg.App("JOB")
orders = app.input("JOB-orders", timestamp="ts")
hops = orders.repartition("user").window(hg.hopping("10s", every="5s", grace="2s"), late="JOB-late", name="hops")
hops.agg(n=hg.count(), total=hg.sum("amount")).to("JOB-out")
"""


@pytest.fixture
def hg(kafka: Any, tmp_path: Any) -> Iterator[Headgate]:
    """A job in two tasks; the orders that the harness writes are left behind."""
    with good_orders(kafka, tmp_path) as found:
        yield found


def coded(hg: Headgate, source: str) -> None:
    """The job's code; it begins behind the orders that the harness has written."""
    source = source.replace('timestamp="ts"', 'timestamp="ts", on_bad_data="skip"')
    (hg.directory / "cli_job.py").write_text(source.replace("JOB", hg.job))


def order(ms: int, user: str = "u0", amount: int = 1) -> dict[str, Any]:
    return {"ts": BASE + ms, "user": user, "amount": amount}


def write(hg: Headgate, *orders: dict[str, Any], partition: int = 0) -> None:
    async def put() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=hg.bootstrap)
        await producer.start()
        for one in orders:
            await producer.send(f"{hg.job}-orders", orjson.dumps(one), partition=partition)
        await producer.stop()

    asyncio.run(put())


def read(hg: Headgate, topic: str) -> list[Any]:
    """All values of a topic of the job that are committed, up to where it ends by now."""
    at = [TopicPartition(topic, n) for n in range(2 if topic.endswith("-out") else 1)]
    reader = partial(AIOKafkaConsumer, bootstrap_servers=hg.bootstrap, enable_auto_commit=False)

    async def get() -> list[Any]:
        found: list[Any] = []
        async with asyncio.timeout(WAIT_S), reader() as all_of_it, reader(isolation_level="read_committed") as consumer:
            ends = await all_of_it.end_offsets(at)  # a commit is answered a moment before its markers stand
            consumer.assign(at)
            await consumer.seek_to_beginning()
            while any([await consumer.position(one) < ends[one] for one in at]):
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    found += [orjson.loads(one.value) for one in batch]
        return found

    return asyncio.run(get())


def results(hg: Headgate) -> Counter[tuple[int, int, int, str]]:
    """Start from BASE, number, sum and what closed it."""
    return Counter(
        (one["window_start"] - BASE, one["n"], one["total"], one["closed_by"]) for one in read(hg, f"{hg.job}-out")
    )


def until_results(hg: Headgate, expected: dict[tuple[int, int, int, str], int]) -> None:
    hg.until(lambda: results(hg) == expected, f"{expected}, and not {results(hg)}")


def windows(hg: Headgate) -> Any:
    return hg.json("status", "status", hg.job)["windows"]


def drained(hg: Headgate) -> None:
    hg.run("drain", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0


def test_a_seek_backwards_between_two_runs_opens_closed_windows_again(hg: Headgate) -> None:
    """After `stop`, it is the same run: what has closed stays closed, and what is read again is late. After a drain, the results come
    again, complete; what the next run has closed stays closed."""
    coded(hg, SOURCE)
    orders = f"{hg.job}-orders"
    rows = [order(n * 1_000, f"u{n % 2}", n) for n in range(24)]
    for partition in (0, 1):
        write(hg, *rows[partition::2], partition=partition)
    closed = {(0, 5, 20, "watermark"): 1, (0, 5, 25, "watermark"): 1, (10_000, 5, 70, "watermark"): 1}
    closed |= {(10_000, 5, 75, "watermark"): 1}
    hg.start("--run-id", "r1")
    hg.running()
    until_results(hg, closed)
    plan = hg.json("seek-plan", "seek", hg.job, orders, "--to", "oldest", "--plan")
    assert (plan["alive"], plan["reopens"]) == (True, False)
    hg.run("stop", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0

    assert "Windows that are closed stay closed" in hg.run("seek", hg.job, orders, "--to", "oldest", "--plan")
    assert not hg.json("seek-plan", "seek", hg.job, orders, "--to", "oldest", "--plan")["reopens"]
    hg.json("answer", "seek", hg.job, orders, "--to", "oldest", "--yes")
    hg.start("--run-id", "r1")
    hg.running()
    hg.until(lambda: [one["late_rows"] for one in windows(hg)] == [20], "the rows of closed windows are late")
    drained(hg)
    last = {(20_000, 4, 84, "drain"): 1, (20_000, 4, 88, "drain"): 1}  # open windows count them twice
    assert results(hg) == closed | last

    assert "Windows that watermarks have closed open again" in hg.run(
        "seek", hg.job, orders, "--to", "oldest", "--plan"
    )
    assert hg.json("seek-plan", "seek", hg.job, orders, "--to", "oldest", "--plan")["reopens"]
    hg.json("answer", "seek", hg.job, orders, "--to", "oldest", "--yes")
    hg.start("--run-id", "r2")
    until_results(hg, dict.fromkeys(closed, 2) | last)
    hg.until(lambda: [one["late_rows"] for one in windows(hg)] == [0], "no row is late")
    hg.run("stop", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0
    hg.start("--run-id", "r2")  # what this run has closed stays closed
    hg.running()
    write(hg, order(500), order(20_500, "u0", 0))
    hg.until(lambda: [one["late_rows"] for one in windows(hg)] == [1], "a row of a closed window is late")
    drained(hg)

    hg.start("--run-id", "r3")
    hg.running()
    write(hg, order(500))
    hg.until(lambda: [one["late_rows"] for one in windows(hg)] == [1], "the floor outlives runs")


def test_open_windows_and_late_rows_are_seen_from_outside(hg: Headgate) -> None:
    """In the status, the pages of the worker and the tables; a row that some of its windows have missed is counted for itself. After a kill
    -9 the same windows are open, and the rows that came late stand in their topic."""
    coded(hg, HOPS)
    asyncio.run(made(hg.bootstrap, f"{hg.job}-late"))
    write(hg, order(1_000), order(6_000, amount=3), order(16_999), partition=0)
    write(hg, order(16_999, "u1"), partition=1)
    hg.start()
    hg.running()
    until_results(hg, {(-5_000, 1, 1, "watermark"): 1, (0, 2, 4, "watermark"): 1})
    write(hg, order(2_000, amount=7), order(8_000, amount=2), partition=0)

    def counted() -> Any:
        (found,) = windows(hg)
        return found if found["late_rows"] and found["late_for_some_windows"] and found["entries"] == 5 else None

    found = hg.until(counted, "one row is late for all of its windows, and one for some")
    assert found["windows"] in (3, 5)  # of two keys, in one task or in two
    assert found == {
        "step": "hops", "windows": found["windows"], "entries": 5, "oldest_ends": "2023-11-14T22:13:35.000Z",
        "late_rows": 1, "late_for_some_windows": 1,
    }  # fmt: skip
    row = [str(value) for value in found.values()]
    hg.until(
        lambda: row in [line.split() for line in hg.run("status", hg.job).splitlines()], "people are shown the same"
    )
    hg.until(lambda: orjson.loads(hg.get("/api/status")[1])["worker"]["windows"] == [found], "the page has the same")
    metrics = hg.get("/metrics")[1]
    for name, value in {
        "headgate_open_window_keys": 5,
        "headgate_oldest_open_window_seconds": (BASE + 15_000) / 1000,
        "headgate_late_rows_total": 1,
        "headgate_late_for_some_windows_total": 1,
    }.items():
        assert any(
            line.startswith(name) and 'step="hops"' in line and float(line.split()[-1]) == value
            for line in metrics.splitlines()
        ), name
    assert "<h2>Windows</h2>" in hg.get("/")[1]
    assert read(hg, f"{hg.job}-late") == [order(2_000, amount=7)]

    def opened(*key: str) -> list[tuple[str, int, int, int]]:
        rows = hg.json("tables", "tables", hg.job, "hops", *key)["rows"]
        return sorted(
            (row["key"], row["value"]["window_start"] - BASE, row["value"]["n"], row["value"]["total"])
            for row in rows
            if isinstance(row["value"], dict)
        )

    of_one = [("u0", 5_000, 2, 5), ("u0", 10_000, 1, 1), ("u0", 15_000, 1, 1)]
    every = [*of_one, ("u1", 10_000, 1, 1), ("u1", 15_000, 1, 1)]
    hg.until(lambda: opened() == every, "what is open is committed")
    assert opened("u0") == of_one
    hg.end()
    assert opened() == every  # read from the task log: no worker is alive
    hg.start()
    hg.running()
    of_both = [(5, found["oldest_ends"])]
    hg.until(
        lambda: [(one["entries"], one["oldest_ends"]) for one in windows(hg)] == of_both, "heartbeats say what is open"
    )
    drained(hg)
    assert windows(hg) == []
    assert read(hg, f"{hg.job}-late") == [order(2_000, amount=7)]


async def made(bootstrap: str, topic: str) -> None:
    """One more topic."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
