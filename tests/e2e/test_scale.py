"""`headgate scale`: the supervisor of `headgate run --workers` follows the number of workers up and down, under load, on the real broker.

The workers that stay are not touched: their tasks keep their grants. Every record counts once.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

import headgate
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.process.reading import folded
from headgate.agents.process.requests import Refused
from headgate.core.coordination.fleet import unsettled
from headgate.core.names import JobName, Topics

from .test_cli_operations import Headgate

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOURCE = """import headgate as hg
app = hg.App("JOB")
orders = app.input("JOB-orders", key="user")
orders.to("JOB-out")
orders.agg(n=hg.count(), name="counts").to("JOB-counts")
"""
TASKS, USERS = 4, 20


class Load(threading.Thread):
    """Writes numbered orders, some hundred a second, until it is told to end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.topic = bootstrap, topic
        self.written, self.over = 0, threading.Event()

    def run(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True) as producer:
            while not self.over.is_set():
                sent = []
                for number in range(self.written, self.written + 50):
                    user = f"u{number % USERS}"
                    body = orjson.dumps({"user": user, "id": number})
                    sent.append(await producer.send(self.topic, body, key=user.encode(), partition=number % TASKS))
                await asyncio.gather(*sent)
                self.written += 50
                await asyncio.to_thread(self.over.wait, 0.2)


@pytest.fixture
def hg(kafka: Any, tmp_path: Path) -> Iterator[Headgate]:
    found = Headgate(kafka.bootstrap, tmp_path)
    (tmp_path / "cli_job.py").write_text(SOURCE.replace("JOB", found.job))

    async def topics() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=found.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(f"{found.job}-{name}", TASKS, 1) for name in ("orders", "out", "counts")])
        await admin.close()

    asyncio.run(topics())
    try:
        yield found
    finally:
        found.end()


def grants(hg: Headgate) -> dict[str, tuple[str, int]]:
    """Who holds each task, and by which grant."""
    client = configure(CommandLine(bootstrap=hg.bootstrap), environ={}).client
    state = asyncio.run(folded(client, Topics(JobName.parse(hg.job), "")))
    return {grant.task: (grant.processor, grant.grant) for grant in state.grants() if state.held(grant.task)}


def spread(hg: Headgate, *workers: str) -> dict[str, Any]:
    """The status, once exactly these workers are there and all tasks run, as evenly as they can."""

    def look() -> Any:
        if hg.ready() != {*workers}:
            return None
        found = hg.json("status", "status", hg.job)
        there = {w["processor"]: len(w["tasks"]) for w in found["workers"] if w["alive"] and w["ready"]}
        even = len(there) == len(found["workers"]) and max(there.values(), default=0) <= -(-TASKS // len(workers))
        running = [t for t in found["tasks"] if t["state"] == "running"]
        return found if set(there) == set(workers) and even and len(running) == TASKS else None

    return hg.until(look, f"the tasks are on {', '.join(workers)}")


def rows(hg: Headgate, name: str, least: int) -> list[dict[str, Any]]:
    """All committed records of a topic."""

    async def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        topic = f"{hg.job}-{name}"
        async with (
            AIOKafkaConsumer(
                topic,
                bootstrap_servers=hg.bootstrap,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
            ) as consumer,
            asyncio.timeout(100),
        ):
            while len(found) < least:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [json.loads(one.value) for one in records]
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [json.loads(one.value) for one in records]
        return found

    return asyncio.run(read())


def test_workers_come_and_go_by_a_setting_and_every_record_counts_once(hg: Headgate) -> None:
    """1 → 3 → 1 under load: the first worker is one process all the time, and keeps by their grants the tasks that it need not give."""
    hg.start("--workers", "1", "--set", "placement.rejoin-grace=10m")
    one = spread(hg, "w1-0")
    assert one["workers_wanted"] is None
    load = Load(hg.bootstrap, f"{hg.job}-orders")
    load.start()
    try:
        before = grants(hg)
        answer = hg.json("answer", "scale", hg.job, "3")
        assert (answer["verb"], answer["state"], answer["why"]) == ("set-config", "done", "applies immediately")
        three = spread(hg, "w1-0", "w1-1", "w1-2")
        assert three["workers_wanted"] == 3
        between = grants(hg)
        kept = {task: held for task, held in between.items() if held[0] == "w1-0"}
        assert kept
        assert {task: before[task] for task in kept} == kept
        hg.run("plan", "cli_job:app")
        assert headgate.scale(hg.job, 1, bootstrap=hg.bootstrap).state == "done"
        last = spread(hg, "w1-0")  # long before the grace is over: they have gone for good
        after = grants(hg)
        assert {task: after[task] for task in kept} == kept
        assert [w["pid"] for w in last["workers"]] == [w["pid"] for w in one["workers"]]
        hg.until_said("w1-2 is stopped for good")
        hg.run("scale", hg.job, "2", "--settled", "--timeout", "120s")  # a name that has gone for good may come back
        state = asyncio.run(
            folded(configure(CommandLine(bootstrap=hg.bootstrap), environ={}).client, Topics(JobName.parse(hg.job), ""))
        )
        assert unsettled(state, 2) == ""
        assert sorted(processor for processor, _ in grants(hg).values()) == ["w1-0", "w1-0", "w1-1", "w1-1"]
        hg.run("scale", hg.job, "2", "--settled", "--timeout", "5s")
    finally:
        load.over.set()
        load.join(60)
    rows(hg, "out", load.written)  # a drain reads no further: all must have been read
    hg.run("drain", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0
    ids = [row["id"] for row in rows(hg, "out", load.written)]
    assert sorted(ids) == list(range(load.written))
    counted = {row["key"]: row["value"]["n"] for row in hg.json("tables", "tables", hg.job, "counts")["rows"]}
    assert sum(counted.values()) == load.written
    assert set(counted) == set(Counter(f"u{n}" for n in range(USERS)))


def test_workers_that_go_work_on_until_the_others_have_prepared_their_tasks(hg: Headgate, tmp_path: Path) -> None:
    """3 → 1 → 2 with `stop.prepare`, under load: the supervisor says that they work on, and no task replays more than the difference. A
    name that is wanted again while its worker goes comes back. Each worker says that it is at a location of its own."""
    (tmp_path / "where.py").write_text("import os\ndef own(_):\n    return f'at-{os.getpid()}'\n")
    apart = ("--set", "location.provider=where:own", "--set", "stop.prepare=10m", "--set", "placement.rejoin-grace=10m")
    hg.start("--workers", "3", *apart)
    spread(hg, "w1-0", "w1-1", "w1-2")
    load = Load(hg.bootstrap, f"{hg.job}-orders")
    load.start()
    try:
        rows(hg, "out", 1_500)
        before = hg.log.read_text()
        hg.run("scale", hg.job, "1")
        hg.until_said("w1-2 is stopped for good: it works on for 600 s at most, while others prepare its tasks")
        spread(hg, "w1-0")
        handed = [event for event in events(hg, before) if event["event"] == "task is handed over"]
        assert {event["why"] for event in handed if event["to"] == "w1-0"} == {"prepared"}
        restored = [event for event in events(hg, before) if event["event"] == "state is restored"]
        assert restored
        assert all(event["prepared"] and event["records"] < 4 * USERS for event in restored)
        hg.run("scale", hg.job, "2", "--settled", "--timeout", "120s")
        hg.run("scale", hg.job, "1")
        hg.run("scale", hg.job, "2")  # whether or not it has gone by now
        spread(hg, "w1-0", "w1-1")
    finally:
        load.over.set()
        load.join(60)
    rows(hg, "out", load.written)
    hg.run("drain", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0
    counted = {row["key"]: row["value"]["n"] for row in hg.json("tables", "tables", hg.job, "counts")["rows"]}
    assert sum(counted.values()) == load.written


def events(hg: Headgate, before: str) -> list[dict[str, Any]]:
    """What the workers have logged since."""
    lines = hg.log.read_text().removeprefix(before).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def test_a_number_that_nobody_would_follow_is_refused_and_a_supervisor_says_why(hg: Headgate) -> None:
    """A worker that was started beside the supervisor: nobody starts or stops any; when it is gone, the supervisor follows."""
    hg.start("--workers", "1")
    spread(hg, "w1-0")
    hg.run("scale", hg.job, "0", code=2)
    assert "2 wanted" not in hg.run("status", hg.job)
    hg.run("scale", hg.job, "2")
    spread(hg, "w1-0", "w1-1")
    assert "2 wanted, 2 present" in hg.run("status", hg.job)
    assert "2 wanted, 2 present" in hg.run("plan", "cli_job:app")
    hg.run("config", "unset", hg.job, "workers")
    spread(hg, "w1-0")
    supervised, hg.worker = hg.worker, None
    try:
        hg.start("--processor-id", "solo")
        spread(hg, "w1-0", "solo")
        with pytest.raises(Refused, match="solo was not started by"):
            headgate.scale(hg.job, 2, bootstrap=hg.bootstrap)
        hg.until_said("this supervisor did not start solo")
        hg.run("stop", hg.job, "--worker", "solo", "--for-good", "--wait")
        assert hg.ended() == 0
    finally:
        hg.end()
        hg.worker = supervised
    hg.run("scale", hg.job, "2")
    spread(hg, "w1-0", "w1-1")
