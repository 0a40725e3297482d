"""`headgate topics adopt`: what an operator types when a mirror's copy has taken the place of an input, through real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from headgate.agents.kafka.plainwrite import Plain, put
from headgate.agents.kafka.settings import ClientSettings
from headgate.core.names import JobName, Topics

from .test_cli_operations import Headgate, good_orders

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def hg(kafka: Any, tmp_path: Any) -> Iterator[Headgate]:
    with good_orders(kafka, tmp_path) as found:
        yield found


async def made_again(hg: Headgate, each: int) -> None:
    """The input under another id, with so many orders in each partition."""
    name = f"{hg.job}-orders"
    admin = AIOKafkaAdminClient(bootstrap_servers=hg.bootstrap)
    await admin.start()
    await admin.delete_topics([name])
    while (await admin.create_topics([NewTopic(name, 2, 1)])).topic_errors[0][1]:
        pass  # the deletion is under way
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=hg.bootstrap)
    await producer.start()
    for number in range(2 * each):
        body = orjson.dumps({"user": "u", "amount": number})
        await producer.send_and_wait(name, body, partition=number % 2)
    await producer.stop()


async def buried(hg: Headgate, topic: str, topic_id: str) -> None:
    """A letter of Spark: its record is read from the topic of this id."""
    said = {
        "hg-batch": "b1",
        "hg-exception": "ValueError: no",
        "hg-topic": topic,
        "hg-partition": "0",
        "hg-offset": "3",
    }
    headers = [(name, text.encode()) for name, text in {**said, "hg-topic-id": topic_id}.items()]
    await put(
        ClientSettings(hg.bootstrap), [Plain(Topics(JobName(hg.job)).dead_letters, b"k", b"{}", 0, None, headers)]
    )


def test_a_copy_of_an_input_is_adopted_with_the_positions_as_they_are(hg: Headgate) -> None:
    """Nothing is adopted by itself: the job fails and names the command. A copy with fewer records is refused. A letter that does not hold
    its record is replayed from the copy only when that is adopted."""
    orders = f"{hg.job}-orders"
    adopt = ("topics", "adopt", hg.job, orders)
    plan = lambda: hg.json("topics-adopt", *adopt, "--plan")  # noqa: E731
    hg.start("--run-id", "r1")
    hg.running()
    hg.until(lambda: [one["position"] for one in plan()["partitions"]] == [20, 20], "all is read and committed")
    found = plan()
    assert not found["differs"]
    assert {one["topic_id"] for one in found["partitions"]} == {found["topic_id"]}
    assert "Nothing to adopt" in hg.run(*adopt, "--yes")
    asyncio.run(buried(hg, orders, found["topic_id"]))
    hg.run("stop", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0

    asyncio.run(made_again(hg, 19))
    hg.run(*adopt, "--yes", code=1)
    assert f"the position of {orders}:0 is 20, and the log begins at 0 and ends before 19" in hg.said

    asyncio.run(made_again(hg, 25))
    assert plan()["differs"]
    rows = hg.json("seek-plan", "seek", hg.job, orders, "--to", "newest", "--plan")["partitions"]
    assert [(one["remade"], one["skipped"], one["again"]) for one in rows] == [(True, 25, 0)] * 2
    hg.start("--run-id", "r1")
    states = lambda: [t["state"] for t in hg.json("status", "status", hg.job)["tasks"]]  # noqa: E731
    hg.until(lambda: states() == ["failed", "failed"], "no record of the copy is taken for the next one")
    assert f"headgate topics adopt JOB {orders}" in hg.run("status", hg.job)
    replay = ("dead-letters", "replay", hg.job, "0", "--yes")
    hg.run(*replay, code=1)
    assert f"'{orders}' was deleted and re-created since" in hg.said
    hg.run(*adopt, code=1)  # it asks, and there is no answer
    assert "records are lost or processed twice" in hg.said
    assert hg.json("answer", *adopt, "--yes", "--wait", "--timeout", "150s")["state"] == "done"

    def counted() -> Any:
        return sum(row["value"]["n"] for row in hg.json("tables", "tables", hg.job, "totals")["rows"])

    hg.until(lambda: counted() == 40 + 2 * 5, "five orders more of each partition are counted")
    assert not plan()["differs"]
    hg.run(*replay)
    hg.until(lambda: counted() == 40 + 2 * 5 + 1, "the record of the letter is counted again")
