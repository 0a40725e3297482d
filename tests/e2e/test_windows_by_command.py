"""What an operator sees and does of windows: through the command line, with processes of their own, on a real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

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
    """All committed values of a topic of the job."""

    async def get() -> list[Any]:
        consumer = AIOKafkaConsumer(bootstrap_servers=hg.bootstrap, isolation_level="read_committed")
        await consumer.start()
        await consumer._client.force_metadata_update()
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)][: 2 if topic.endswith("-out") else 1])
        await consumer.seek_to_beginning()
        found: list[Any] = []
        while got := await consumer.getmany(timeout_ms=500):
            found += [orjson.loads(one.value) for batch in got.values() for one in batch]
        await consumer.stop()
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
    hg.run("drain", hg.job, "--wait", "--timeout", "60s")
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
    hg.run("stop", hg.job, "--wait", "--timeout", "60s")
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
    assert [one["late_rows"] for one in windows(hg)] == [0]
    hg.run("stop", hg.job, "--wait", "--timeout", "60s")
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
