"""`headgate doctor`: what is missing is said with what helps, all at once."""

from __future__ import annotations

import asyncio
import json

import pytest

from headgate.agents.job.derive.declaration import Declared
from headgate.agents.kafka.allowed import lacking
from headgate.core.graph.rights import rights

from .. import forked
from .scenes import client_of, made, named
from .schemas import schema, wrong
from .test_rights import declared, granted

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def doctor(job, *words):
    """Exit code, findings and what stands on standard error."""
    done = await asyncio.to_thread(forked.run, ["doctor", *words, "-o", "json"], cwd=job.directory)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert wrong(document, schema("doctor")) == []
    return done.returncode, document["findings"], done.stderr


def write_job(job, inp, out):
    (job.directory / "a_job.py").write_text(
        f'import headgate as hg\napp = hg.App("{job.name}")\napp.input("{inp}").repartition("k").agg(n=hg.count()).to("{out}")\n'
    )


async def test_where_all_is_there_it_says_so(job, topic):
    """Broker, rights, inputs, and what the environment has."""
    inp, out = topic("in", 2), topic("out", 1)
    write_job(job, inp, out)
    code, found, err = await doctor(job, "a_job:app", "-b", job.bootstrap)
    by_name = {one["what"]: one for one in found}
    assert (code, [one for one in found if one["state"] == "wrong"]) == (0, []), err
    assert by_name["inputs"]["said"] == f"{inp} (2 partitions)"
    assert by_name["rights"]["state"] == by_name["broker"]["state"] == by_name["disk"]["state"] == "ok"
    assert {"python", "headgate", "aiokafka", "java", "clock", "compiled part"} <= set(by_name)


async def test_a_missing_input_and_a_missing_broker_are_wrong(job, topic):
    """Each with what helps, and exit code 1."""
    write_job(job, f"{job.name}-nowhere", topic("out", 1))
    code, found, _ = await doctor(job, "a_job:app", "-b", job.bootstrap)
    (bad,) = [one for one in found if one["state"] == "wrong"]
    assert (code, bad["what"]) == (1, "inputs")
    assert "does not exist" in bad["said"]
    assert f"`headgate topics create {job.name}-nowhere --partitions N`" in bad["todo"]
    code, found, _ = await doctor(job, "-b", "127.0.0.1:1")
    (bad,) = [one for one in found if one["state"] == "wrong"]
    assert (code, bad["what"]) == (1, "broker")
    assert "check the address" in bad["todo"]


async def test_every_missing_right_is_named_at_once(job_on, secure_kafka):
    """Nothing is lacking with all rights; without some, exactly these; without any, all of them."""
    async with job_on(secure_kafka, client_of(secure_kafka, "app")) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 1), (out, 1))
        app = declared(job, inp, out)
        one = await job.start(app)
        await one.until_running(1)
        await one.stop()
        wanted = rights(Declared(app).graph, Declared(app).topics)
        mine, stranger = granted(app, "stranger"), client_of(secure_kafka, "stranger")
        names = {name for right in wanted for name in right.names}
        assert {right.names[0] for right in await lacking(stranger, wanted)} == names
        without = [
            acl
            for acl in mine
            if (acl.name, acl.operation) != (inp, "describe_configs") and acl.resource != "transactional_id"
        ]
        await asyncio.to_thread(secure_kafka.allow, *without)
        try:
            found = {right.names[0]: right.operations for right in await lacking(stranger, wanted)}
            assert found == {inp: ("DescribeConfigs",), f"headgate.{job.name}.1.": ("Write",)}
            await asyncio.to_thread(secure_kafka.allow, *mine)
            assert await lacking(stranger, wanted) == []
        finally:
            await asyncio.to_thread(secure_kafka.disallow, *mine)
