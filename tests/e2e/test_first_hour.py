"""Topics and records by hand: what a newcomer types before the first job, and an operator behind it."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

import headgate as hg

from .. import forked
from .conftest import WAIT_S, Jobs
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def typed(job: Jobs, *words: str, given: str | None = None) -> tuple[str, str, int]:
    """Standard output, standard error and exit code of a command."""
    surroundings = {**os.environ, "HEADGATE_BOOTSTRAP": job.bootstrap}
    done = await asyncio.to_thread(forked.run, words, env=surroundings, given=given or "")
    return done.stdout, done.stderr, done.returncode


def document(of: str, said: tuple[str, str, int]) -> Any:
    """What a command says as JSON, by its schema."""
    out, err, code = said
    assert code == 0, err
    found = json.loads(out)
    assert wrong(found, schema(of)) == []
    return found


async def test_topics_and_records_by_hand(job: Jobs) -> None:
    """Created, written from arguments and standard input, shown, copied with keys, times and headers, deleted."""
    name, copy = f"by-hand-{uuid.uuid4().hex[:8]}", f"copy-{uuid.uuid4().hex[:8]}"
    made = document(
        "topics-create",
        await typed(job, "topics", "create", name, copy, "--partitions", "2", "--set", "retention.ms=-1", "-o", "json"),
    )
    assert made == {"created": [name, copy], "existed": []}
    again = document("topics-create", await typed(job, "topics", "create", name, "--partitions", "2", "-o", "json"))
    assert again == {"created": [], "existed": [name]}
    _, err, code = await typed(job, "topics", "create", name, "--partitions", "3")
    assert (code, "exists with 2 partitions" in err) == (1, True)
    listed = document("topics-list", await typed(job, "topics", "list", "-o", "json"))["topics"]
    assert {"topic": name, "job": "", "partitions": 2} in listed

    sent = document("send", await typed(job, "send", name, '{"k": "a", "n": 1}', "--key", "k", "-o", "json"))
    assert sent == {"topic": name, "written": 1}
    lines = "".join(json.dumps({"k": "b", "at": {"country": country}}) + "\n" for country in ("DE", "FR")) + "\n"
    assert (await typed(job, "send", name, "--key", "k", given=lines))[1:] == (f"2 written to {name}\n", 0)
    records = {
        "value": {"n": 4},
        "key": "c",
        "headers": {"trace": "7"},
        "time": "2026-01-01T00:00:00.250Z",
        "partition": 1,
    }
    assert (await typed(job, "send", name, "--records", given=json.dumps(records)))[2] == 0
    out, _, code = await typed(job, "tail", name, "--all")
    found = [json.loads(line) for line in out.splitlines()]
    assert (code, len(found)) == (0, 4)
    (last,) = [one for one in found if one["key"] == "c"]
    assert last == {**records, "offset": last["offset"]}
    out, _, _ = await typed(job, "tail", name, "--where", "at.country=FR")
    assert [json.loads(line)["value"]["at"] for line in out.splitlines()] == [{"country": "FR"}]
    out, _, _ = await typed(job, "tail", name, "--since", "2026-06-01T00:00:00Z", "--where", "n=4")
    assert out == ""
    everything = "".join(json.dumps(one) + "\n" for one in found)
    assert (await typed(job, "send", copy, "--records", given=everything))[1:] == (f"4 written to {copy}\n", 0)
    out, _, _ = await typed(job, "tail", copy, "-n", "9")

    def content(one: dict[str, Any]) -> str:
        return json.dumps({name: value for name, value in one.items() if name != "offset"}, sort_keys=True)

    assert sorted(content(json.loads(line)) for line in out.splitlines()) == sorted(map(content, found))

    shown = document("topics-describe", await typed(job, "topics", "describe", name, "-o", "json"))
    assert sum(one["end"] - one["start"] for one in shown["partitions"]) == 4
    assert shown["settings"]["retention.ms"] == "-1"
    assert (await typed(job, "topics", "delete", copy, "--yes"))[2] == 0
    _, err, code = await typed(job, "send", copy, "{}")
    assert (code, "there is no topic" in err) == (4, True)


async def test_a_wrong_line_is_named_and_what_stood_before_it_is_written(job: Jobs, topic: Any) -> None:
    """Somebody sends a file with a mistake in its third line."""
    name = topic("in", 1)
    _, err, code = await typed(job, "send", name, "--key", "k", given='{"k": 1}\n{"k": 2}\n{"j": 3}\n{"k": 4}\n')
    assert (code, "line 3 has no field 'k'" in err) == (2, True)
    out, _, _ = await typed(job, "tail", name)
    assert [json.loads(line)["value"] for line in out.splitlines()] == [{"k": 1}, {"k": 2}]


async def test_nothing_is_sent_into_streams_of_a_job_and_its_topics_are_not_deleted(job: Jobs, topic: Any) -> None:
    """A record that is no frame would stop the job; what a job keeps goes with the job."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).repartition("k", name="by").to(out)
    worker = await job.start(app)
    await worker.until_running(1)
    shown: tuple[Any, ...] = ()
    async with asyncio.timeout(WAIT_S):  # the task's own state comes by heartbeat
        while shown != ("running", 1, 1):
            listed = document("jobs", await typed(job, "jobs", "-o", "json"))["jobs"]
            (mine,) = [one for one in listed if one["job"] == str(job.topics.job)]
            shown = (mine["state"], mine["workers"], mine["tasks"])
    own = job.topics.intermediate("by")
    _, err, code = await typed(job, "send", own, "{}")
    assert (code, f"it holds the frames of the job '{job.name}" in err) == (1, True)
    _, err, code = await typed(job, "send", job.topics.coordinator, "{}")
    assert (code, "nothing is written to" in err) == (1, True)
    beside = f"{job.name}-1-theirs"
    await typed(job, "topics", "create", beside)
    _, err, code = await typed(job, "send", beside, "{}")
    assert (code, "1 written" in err) == (0, True), "its name begins like the job's streams, and it is none of them"
    listed, _, _ = await typed(job, "topics", "list")
    assert (beside in listed, own in listed) == (True, False)
    out, err, code = await typed(job, "topics", "delete", beside, "--yes")
    assert (code, f"{beside}: deleted" in out) == (0, True)
    for one in (own, job.topics.coordinator, job.topics.dead_letters):
        _, err, code = await typed(job, "topics", "delete", one, "--yes")
        assert (code, "belongs to the job" in err) == (1, True)
    assert await worker.stop() == 0
    out, _, code = await typed(job, "jobs")
    (line,) = [line.split() for line in out.splitlines() if line.startswith(f"{job.name} ")]
    assert (code, line[2:]) == (0, ["0", "0", "of", "1", "running", "-"]), "it is listed until it is reset"


async def test_the_last_record_stands_before_the_marker_of_its_transaction(job: Jobs, topic: Any) -> None:
    """The end of what a job writes is a marker, so the last offset holds no record."""
    name = topic("out", 1)
    producer = AIOKafkaProducer(**job.client.producer(transactional_id=name))
    await producer.start()
    for n in range(5):
        async with producer.transaction():
            await producer.send(name, b'{"n": %d}' % n)
    await producer.stop()
    out, _, _ = await typed(job, "tail", name, "-n", "2")
    assert [json.loads(line)["value"] for line in out.splitlines()] == [{"n": 3}, {"n": 4}]
