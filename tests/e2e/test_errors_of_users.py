"""Errors of user code and data, on the real broker: what anybody can see of them, and what the broker itself refuses.

Policies are told on the test driver (`tests/agents/operators/pipeline/test_policies.py`).
"""

from __future__ import annotations

import re
import time

import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def divide(value):
    return {"n": 100 // value["n"]}


POISON = [{"n": 1}, {"n": 0}, {"n": 2}]


async def test_a_poison_record_becomes_a_dead_letter_and_the_others_go_through(job, topic):
    """The dead letter is the record as it came, with origin, exception and traceback in headers."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).map(divide, on_error="dead_letter").to(out)
    await job.start(app)
    await job.write(inp, POISON, key=b"key", headers=[("mine", b"1")])
    assert [v["n"] for v in await job.values(out, 2)] == [100, 50]
    [letter] = await job.records(job.topics.dead_letters, 1)
    headers = dict(letter.headers)
    assert (letter.key, letter.value) == (b"key", b'{"n":0}')
    assert (headers["mine"], headers["hg-topic"], headers["hg-partition"], headers["hg-offset"]) == (
        b"1",
        inp.encode(),
        b"0",
        b"1",
    )
    assert headers["hg-exception"].startswith(b"ZeroDivisionError")
    told = headers["hg-traceback"].decode()
    assert told.splitlines()[1].endswith("in divide"), "the user's code, and nothing of headgate before it"
    assert told.count("Traceback") == 1
    assert re.fullmatch(r"map \(.*test_errors_of_users.py:\d+\)", headers["hg-step"].decode())
    assert headers["hg-task"] == b"Partition 0"


async def test_a_task_that_fails_is_retried_with_backoff_and_leaves_the_others_running(job, topic):
    """The default: the record is named, tried again, then the task has failed, visibly; its neighbour never pauses."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name)
    app.input(inp).map(divide).to(out)
    one = await job.start(app, settings={"error.retries": 1})
    await one.until_running(2)
    await job.write(inp, POISON, partition=0)
    await job.write(inp, [{"n": 1}, {"n": 2}], partition=1)
    assert len(await job.values(out, 2)) == 2
    await one.until(lambda: one.state("Partition 0") == "failed", "the task has failed")
    why = one.worker.actors["Partition 0"].machine.why
    assert f"{inp}[0] offset 1" in why
    assert "division" in why
    assert one.worker.counters["Partition 0"]["failures"] == 2
    assert one.state("Partition 1") == "running"
    said = one.worker.coordination.member.job
    await one.until(lambda: said.says("Partition 0") == "failed", "the stream says so")
    await job.write(inp, [{"n": 4}], partition=1)
    assert sorted(v["n"] for v in await job.values(out, 3)) == [25, 50, 100]


async def test_a_record_that_the_topic_does_not_take_is_an_error_of_user_code(job, topic):
    """Too large: found before it is sent, with the record's origin, under the same policies; nobody else is hurt."""
    inp, out = topic("in", 1), topic("out", 1, {"max.message.bytes": "20000"})
    app = hg.App(job.name, on_error="dead_letter")
    app.input(inp).map(lambda v: {"pad": "x" * v["n"]}).to(out)
    one = await job.start(app)
    await job.write(inp, [{"n": 10}, {"n": 50_000}, {"n": 20}])
    assert [len(v["pad"]) for v in await job.values(out, 2)] == [10, 20]
    [letter] = await job.records(job.topics.dead_letters, 1)
    assert letter.value == b'{"n":50000}'
    assert b"max.message.bytes" in dict(letter.headers)["hg-exception"]
    assert one.worker.incarnation.startswith("000001")


async def test_an_unreadable_frame_between_two_stages_fails_the_task_with_its_place(job, topic):
    """Somebody wrote into an intermediate stream: the task says where, and the default policy stops it there."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).repartition("k").agg(n=hg.count()).to(out)
    one = await job.start(app, settings={"error.retries": 0})
    await one.until_running(1)
    between = next(iter(one.worker.declared.graph.intermediates))
    await job.write(between, [b"\xff\xff nonsense"])
    await one.until(lambda: one.state("Partition 0") == "failed", "the task has failed")
    assert between in one.worker.actors["Partition 0"].machine.why


async def test_a_dead_letter_of_an_old_record_is_kept_as_long_as_any(job, topic):
    """The topic of dead letters deletes by time: stamped with the record's own, a letter of a month ago was gone at once. That time is in
    a header."""
    inp = topic("in")
    app = hg.App(job.name, on_error="dead_letter")
    app.input(inp).map(lambda v: 1 / 0).sink(lambda batch: None)
    one = await job.start(app)
    await one.until_running(1)
    old = int(time.time() * 1000) - 30 * 86_400_000
    await job.write(inp, [{"n": 1}], timestamp_ms=old)
    (letter,) = await job.records(job.topics.dead_letters, 1)
    assert time.time() * 1000 - letter.timestamp < 600_000
    assert dict(letter.headers)["hg-timestamp"] == str(old).encode()
