"""Secrets of Spark's settings, of the pages and of options are in no record of a job, on no page and in no log."""

from __future__ import annotations

import asyncio
import json
import re

import aiohttp
import pytest
from click.testing import CliRunner

from headgate.agents.cli.data.tables import tables
from headgate.agents.cli.see.batches import batches
from headgate.agents.cli.see.status import status
from headgate.agents.cli.see.story import story
from headgate.agents.cli.steer.config import config
from headgate.agents.kafka.scan import scan_topic
from headgate.agents.stories.files import LeftOut, blocks_of
from headgate.agents.stories.reading import StoryReader

from .test_probes import until

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
PLANTED = "plan7edSecre7"
PAGES = ("status", "model", "config", "tables", "tables/totals", "tables/__control", "batches", "story?all=1")

JOB = """
import headgate as hg

app = hg.App("JOB", settings={
    "spark.driver.extraJavaOptions": "-Dx.password='PLANTED and more' -Dy=1",
    "spark.hadoop.x.args": "--password PLANTED",
})
app.input("IN").repartition("k").agg(n=hg.count(), name="totals").to("OUT")
"""
FILE = """
[spark]
executorEnv.PGPASS = "PLANTED"
hadoop."fs.azure.sas.c.account" = "sv=1&sig=PLANTED"
hadoop."x.uri" = "https://PLANTED@host/"
hadoop."y.uri" = "s3a://me:PLANTED@bucket/x"
"""
SET = {
    "spark.remote": f"sc://spark:15002/;token={PLANTED};user_id=ann",
    "spark.executor.extraJavaOptions": f"-Dauthorization='Bearer {PLANTED}'",
    "web.token": PLANTED,
}


def blocks_on_disk(job):
    """All of the story that the worker has on its disk, as bytes."""
    files = StoryReader(job.directory / "state").files()
    return [block for file in files for block in blocks_of(file, 0, LeftOut())]


async def everything(client, topics):
    """All bytes of these topics, also what was aborted."""
    return [
        b"".join([record.key or b"", record.value or b"", *(value or b"" for _, value in record.headers)])
        for topic in topics
        async for record in scan_topic(client, topic, committed=False)
    ]


async def test_a_planted_secret_is_nowhere(job, topic):
    """The token of a Connect server was in the coordinator stream and on the page, and so was whatever `config set` was given."""
    inp, out = topic("in"), topic("out")
    source = JOB.replace("IN", inp).replace("OUT", out).replace("PLANTED", PLANTED)
    file = job.directory / "planted.toml"
    file.write_text(FILE.replace("PLANTED", PLANTED))
    words = [word for name, value in SET.items() for word in ("--set", f"{name}={value}")]
    one = await job.process(source, "w1", *words, "--config", str(file))
    await job.write(inp, [{"k": n} for n in range(10)])
    await job.records(out, 10)
    for name, value in (*SET.items(), ("spark.driver.extraJavaOptions", f"-Dx.password={PLANTED}")):
        done = await asyncio.to_thread(
            CliRunner().invoke, config, ["set", "-b", job.bootstrap, "--", job.name, name, value]
        )
        assert "never written to a topic" in str(done.exception), done.output
        assert PLANTED not in done.output + str(done.exception)
    await until(one, "/readyz", 200, "ready")
    url = re.search(r"http://127\.0\.0\.1:\d+(?=\D)", one.text())[0]
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {PLANTED}"}) as web:
        for page in PAGES:
            async with web.get(f"{url}/api/{page}") as answer:
                text = await answer.text()
            assert (page, answer.status, PLANTED in text) == (page, 200, False)
            if page == "config":
                shown = {row["name"]: row["value"] for row in json.loads(text)["settings"]}
        async with web.get(f"{url}/metrics") as answer:
            assert (answer.status, PLANTED in await answer.text()) == (200, False)
    assert shown["spark.remote"] == "sc://spark:15002/;token=***;user_id=ann"
    assert (shown["spark.executorEnv.PGPASS"], shown["spark.hadoop.x.uri"]) == ("***", "https://***@host/")
    assert shown["spark.driver.extraJavaOptions"] == "-Dx.password='***' -Dy=1"
    topics = [job.topics.coordinator, job.topics.heartbeat, job.topics.log, out]
    found = await everything(job.client, topics)
    assert len(found) > 20
    assert [data for data in found if PLANTED.encode() in data] == []
    assert PLANTED not in one.text()
    async with asyncio.timeout(120):
        while True:
            blocks = blocks_on_disk(job)
            if b"ChunkDone" in b"".join(blocks):
                break
            await asyncio.sleep(0.05)
    assert [block for block in blocks if PLANTED.encode() in block] == []


COUNTS = """
import headgate as hg

app = hg.App("JOB")
app.input("IN").repartition("k").agg(n=hg.count(), name="totals").to("OUT")
"""


async def test_commands_give_the_token_of_the_pages_or_say_that_it_is_missing(job, topic):
    """Without it, they took a worker that refused for one that was gone, without a word."""
    inp, out = topic("in"), topic("out")
    one = await job.process(COUNTS.replace("IN", inp).replace("OUT", out), "w1", "--set", f"web.token={PLANTED}")
    await job.write(inp, [{"k": n} for n in range(10)])
    await job.records(out, 10)

    async def run(command, *words, token=None):
        env = {} if token is None else {"HEADGATE_WEB_TOKEN": token}
        arguments = [job.name, *words, "-b", job.bootstrap]
        return await asyncio.to_thread(CliRunner().invoke, command, arguments, env=env)

    task = "Partition 0"
    for token in (None, "other"):
        done = await run(tables, "totals", token=token)
        assert (done.exit_code, "w1 rejects the token" in done.stderr, "HEADGATE_WEB_TOKEN" in done.stderr) == (
            0,
            True,
            True,
        )
        assert "read from the task log" in done.stderr
        done = await run(status, "--why", task, token=token)
        assert (done.exit_code, "w1 rejects the token" in done.stderr, "cannot be reached" in done.stderr) == (
            0,
            True,
            False,
        )
        done = await run(batches, token=token)
        assert (done.exit_code, "not seen" in done.stdout, "w1 rejects the token" in done.stdout) == (0, True, True)
        done = await run(story, task, token=token)
        assert (done.exit_code, "not seen: w1 rejects the token" in done.stderr) == (0, True)
    done = await run(story, task, token=PLANTED)
    assert (done.exit_code, "rejects" in done.stderr) == (0, False)
    done = await run(tables, "totals", token=PLANTED)
    assert (done.exit_code, done.stderr) == (0, "")
    assert await asyncio.to_thread(_why, job, task) == (True, "")
    done = await run(batches, "--web-token", PLANTED)
    assert (done.exit_code, "not seen" in done.stdout) == (0, False)
    assert PLANTED not in one.text()


def _why(job, task):
    done = CliRunner().invoke(
        status, [job.name, "--why", task, "--web-token", PLANTED, "-b", job.bootstrap, "-o", "json"]
    )
    found = json.loads(done.stdout)
    return found["asked"], found["refused"]
