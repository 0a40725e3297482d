"""A user who has the rights that `headgate topics plan --acls` names, and no others, runs the job; what is missing is said."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

import headgate as hg
from headgate.agents.broker.acls import Acl
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.kafka.topics import TopicsAdmin
from headgate.core.graph.rights import rights

from .. import forked
from .scenes import client_of, made, named
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

OPERATIONS = {
    "Read": "read", "Write": "write", "Create": "create", "Delete": "delete", "Alter": "alter", "DescribeConfigs": "describe_configs",
}  # fmt: skip


def granted(app, user, **more):
    """The rights of the job, as this broker takes them."""
    declared = Declared(app)
    return [
        Acl(user, right.resource.replace("-", "_"), name, OPERATIONS[operation], prefix=right.prefixed)
        for right in rights(declared.graph, declared.topics, outputs=True, **more)
        for name in right.names
        for operation in right.operations
    ]


def declared(job, inp, out):
    """Reads, shuffles, counts, writes, and has a dead letter: everything that needs a right."""
    app = hg.App(job.name, on_error="dead_letter")

    def checked(value):
        return {"k": value["k"], "n": 1 // value["n"]}

    app.input(inp).map(checked).repartition("k").agg(n=hg.count()).to(out)
    return app


@pytest.mark.parametrize("create", [True, False])
async def test_a_job_runs_with_the_rights_that_its_plan_names(job_on, secure_kafka, capsys, monkeypatch, create):
    """Created by itself or by somebody else: rows come out, a bad one is a dead letter, what was read between the stages is trimmed, tools
    see the positions, a drain ends, and nobody says that a permission is missing.
    """
    monkeypatch.setattr("headgate.agents.worker.housekeeping.TRIM_AFTER", 1)
    async with job_on(secure_kafka, client_of(secure_kafka, "app")) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 2), *([] if create else [(out, 2)]))
        app = declared(job, inp, out)
        if not create:
            before = await job.start(app)  # whoever may create topics does so once, as `headgate topics plan` prints it
            await before.until_running(2)
            await before.stop()
        mine = granted(app, "stranger", create=create)
        await asyncio.to_thread(secure_kafka.allow, *mine)
        try:
            one = await job.start(app, client=client_of(secure_kafka, "stranger"))
            await one.until_running(2)
            await job.write(inp, [{"k": "a", "n": 1}, {"k": "b", "n": 0}, {"k": "c", "n": 1}])
            assert len(await job.records(out, 2)) == 2
            assert len(await job.records(job.topics.dead_letters, 1)) == 1
            await one.until(lambda: one.worker.upkeep._published and one.worker.upkeep._cut, "positions and trimming")
            assert (await job.ask("drain")).run_state == "drained"
            said = capsys.readouterr()  # before the rights are taken from a worker that may still read
        finally:
            await asyncio.to_thread(secure_kafka.disallow, *mine)
    assert [line for line in (said.out + said.err).splitlines() if "ermission" in line or "uthoriz" in line] == []


async def test_an_input_that_may_not_be_read_is_named(job_on, secure_kafka):
    """An input that may not be read: the start is refused, and names it."""
    async with job_on(secure_kafka, client_of(secure_kafka, "app")) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 1))
        app = declared(job, inp, out)
        mine = granted(app, "stranger")
        lacks = [one for one in mine if (one.name, one.operation) != (inp, "read")]
        await asyncio.to_thread(secure_kafka.allow, *lacks)
        try:
            one = await job.start(app, client=client_of(secure_kafka, "stranger"))
            with pytest.raises(hg.EnvironmentFault, match=inp):
                await asyncio.wait_for(one.task, 240)
        finally:
            await asyncio.to_thread(secure_kafka.disallow, *lacks)


async def test_a_missing_right_on_transactional_ids_is_said_with_its_remedy(job_on, secure_kafka, capsys):
    """It was tried again for ever, and nobody said what to do. When it is given, the worker goes on by itself."""
    async with job_on(secure_kafka, client_of(secure_kafka, "app")) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 1))
        app = declared(job, inp, out)
        mine = granted(app, "stranger")
        lacks = [one for one in mine if one.resource != "transactional_id"]
        await asyncio.to_thread(secure_kafka.allow, *lacks)
        try:
            one = await job.start(app, client=client_of(secure_kafka, "stranger"))
            text = ""
            async with asyncio.timeout(240):
                while "grant WRITE on the transactional ids" not in text:
                    await asyncio.sleep(0.2)
                    said = capsys.readouterr()
                    text += said.out + said.err
            assert f"headgate.{job.name}.1." in text
            await asyncio.to_thread(secure_kafka.allow, *mine)
            await one.until_running(1)
        finally:
            await asyncio.to_thread(secure_kafka.disallow, *mine)


async def test_the_command_prints_what_the_job_needs_without_a_broker(job):
    """Somebody who has no rights yet asks for them."""
    (job.directory / "acl_job.py").write_text(
        f'import headgate as hg\napp = hg.App("{job.name}")\napp.input("in").repartition("k").agg(n=hg.count()).to("out")\n'
    )

    async def plan(*words):
        home = {**os.environ, "XDG_RUNTIME_DIR": str(job.directory), "HEADGATE_HOME": str(job.directory)}
        command = ["topics", "plan", "acl_job:app", "--acls", *words]
        done = await asyncio.to_thread(forked.run, command, env=home, cwd=job.directory)
        return done.returncode, done.stdout, done.stderr

    code, out, err = await plan("--principal", "User:sales")
    commands = [line for line in out.splitlines() if not line.startswith("#")]
    assert code == 0, err
    assert all(line.startswith("kafka-acls.sh --bootstrap-server ") for line in commands)
    assert all(" --add --allow-principal User:sales --operation " in line for line in commands)
    assert any(
        line.endswith(f"--transactional-id headgate.{job.name}.1. --resource-pattern-type prefixed")
        for line in commands
    )
    code, out, _ = await plan(
        "-o",
        "json",
        "--no-create",
        "-X",
        "security.protocol=SASL_SSL",
        "-X",
        "sasl.username=ann",
        "-X",
        "sasl.password=x",
    )
    found = json.loads(out)
    assert (code, wrong(found, schema("topics-acls")), found["principal"]) == (0, [], "User:ann")
    assert not [acl for acl in found["acls"] if "Create" in acl["operations"]]


async def test_what_an_operator_needs_for_the_status(job_on, secure_kafka):
    """`reader` may read topics, and nothing else: that shows a job, and steers none."""
    from headgate.agents.process.reading import folded

    async with job_on(secure_kafka, client_of(secure_kafka, "app")) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 1))
        one = await job.start(declared(job, inp, out))
        await one.until_running(1)
        state = await folded(client_of(secure_kafka, "reader"), job.topics)
        assert [grant.task for grant in state.grants()] == ["Partition 0"]


async def test_a_topic_that_one_may_not_see_is_said(secure_kafka):
    """Without a right, brokers hide topics: the error says which permission helps."""
    admin = TopicsAdmin(client_of(secure_kafka, "app"))
    await admin.start()
    (name,) = named("hidden")
    await made(client_of(secure_kafka, "app"), (name, 1))
    await admin.stop()
    stranger = TopicsAdmin(client_of(secure_kafka, "stranger"))
    await stranger.start()
    try:
        with pytest.raises(hg.EnvironmentFault, match=f"no permission to see the topic {name}") as refused:
            await stranger.find([name])
        assert "grant DESCRIBE" in refused.value.remedy
    finally:
        await stranger.stop()
