"""What an operator types when a position is wrong, nobody is there, or a drain has failed: through the command line, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from .test_cli_operations import Headgate, good_orders

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FAILING = """
import headgate as hg
app = hg.App("JOB")

@app.actor(app.input("JOB-orders"))
class Count(hg.Actor):
    def on_batch(self, ctx, batch):
        for record in batch:
            100 // (record.value["amount"] + 1)

    def on_drain(self, ctx):
        HOOK
"""


@pytest.fixture
def hg(kafka: Any, tmp_path: Any) -> Iterator[Headgate]:
    with good_orders(kafka, tmp_path) as found:
        yield found


def steps(hg: Headgate, *words: str) -> list[tuple[int, int | None, int, int, int]]:
    """The plan of a seek: partition, old and new position, skipped, read again."""
    found = hg.json("seek-plan", "seek", hg.job, *words, "--plan")["partitions"]
    return [(o["partition"], o["before"], o["after"], o["skipped"], o["again"]) for o in found]


def test_a_seek_shows_its_plan_waits_for_a_worker_and_can_be_taken_back(hg: Headgate) -> None:
    """It expired with the command, or was accepted for offsets that are not there, and both tasks failed with a wrong diagnosis."""
    orders = f"{hg.job}-orders"
    hg.start("--run-id", "r1")
    hg.running()
    hg.until(lambda: [s[1] for s in steps(hg, orders, "--to", "newest")] == [20, 20], "all is read and committed")
    hg.run("seek", hg.job, f"{orders}:0", "--to", "21", "--yes", code=1)
    assert f"there is no offset 21 in {orders}:0: it begins at 0 and ends before 20" in hg.said
    request = orjson.dumps({"verb": "seek", "arguments": {"stream": orders, "partition": 0, "to": 21}}).decode()
    hg.run("coordinator", "write", hg.job, "set-request", request, "--yes", code=1)
    assert f"there is no offset 21 in {orders}:0" in hg.said
    assert {t["state"] for t in hg.running()["tasks"]} == {"running"}
    assert steps(hg, f"{orders}:1", "--to", "5") == [(1, 20, 5, 0, 15)]
    hg.run("stop", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0

    hg.run("seek", hg.job, f"{orders}:1", "--to", "5", code=1)  # it asks, and nobody answers
    assert f"{orders}:1 (Partition 1): 20 → 5, 15 read again" in hg.said
    one = hg.json("answer", "seek", hg.job, f"{orders}:1", "--to", "5", "--yes")
    other = hg.json("answer", "seek", hg.job, f"{orders}:0", "--to", "oldest", "--yes")
    assert [one["state"], other["state"]] == ["written", "written"]
    rows = hg.json("requests-list", "requests", "list", hg.job)["requests"]
    assert [(r["request"], r["verb"], r["state"]) for r in rows] == [
        (one["request"], "seek", "written"),
        (other["request"], "seek", "written"),
    ]
    assert hg.json("answer", "requests", "withdraw", hg.job, other["request"][:12])["state"] == "written"
    hg.run("requests", "withdraw", hg.job, "no-such-request", code=4)

    hg.start("--run-id", "r1")
    hg.running()
    hg.until(lambda: not hg.json("requests-list", "requests", "list", hg.job)["requests"], "both are answered")

    def counted() -> Any:
        rows = hg.json("tables", "tables", hg.job, "totals")["rows"]
        return sum((row["value"]["n"]) for row in rows) == 40 + 15

    hg.until(counted, "fifteen orders of one partition are counted again, and none of the other")


def test_a_failed_drain_says_what_to_do_and_can_be_ended(hg: Headgate) -> None:
    """A dead end: a seek was refused, and the way out stood nowhere. One task fails at a record, the other in what it does at a drain."""
    (hg.directory / "cli_job.py").write_text(FAILING.replace("HOOK", "ctx.nothing").replace("JOB", hg.job))
    hg.start("--set", "error.retries=0")
    hg.running()
    asyncio.run(written(hg, {"user": "u", "amount": -1}))
    status = lambda: hg.json("status", "status", hg.job)  # noqa: E731
    hg.until(lambda: [t["state"] for t in status()["tasks"]] == ["failed", "running"], "one task fails at the record")
    hg.run("drain", hg.job, "--wait", "--timeout", "150s", code=1)
    drain = hg.until(lambda: d if len((d := status()["drain"])["failed"]) == 2 else None, "the other fails, too")
    assert drain["by"]
    assert "integer division" in drain["failed"][0]["why"]
    assert f"headgate stop {hg.job}" in drain["todo"]
    text = hg.run("status", hg.job)
    for word in ("requested by", "Partition 1: ", "to do", "headgate seek"):
        assert word in text

    taken = hg.json("answer", "seek", hg.job, f"{hg.job}-orders:0", "--to", "21", "--yes", "--wait")
    assert taken["state"] == "done"
    hg.run("stop", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0
    (hg.directory / "cli_job.py").write_text(FAILING.replace("HOOK", "pass").replace("JOB", hg.job))
    hg.start()
    assert hg.json("answer", "start", hg.job, "--timeout", "150s")["state"] == "done"
    assert hg.ended() == 0
    assert status()["run"]["state"] == "drained"
    assert [s[1] for s in steps(hg, f"{hg.job}-orders", "--to", "oldest")] == [21, 20]


async def written(hg: Headgate, value: dict[str, Any]) -> None:
    """One more order, in partition 0."""
    producer = AIOKafkaProducer(bootstrap_servers=hg.bootstrap)
    await producer.start()
    await producer.send_and_wait(f"{hg.job}-orders", orjson.dumps(value), partition=0)
    await producer.stop()
