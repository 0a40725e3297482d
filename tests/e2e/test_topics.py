"""Topics on a real broker: created as needed, compared, planned."""

from __future__ import annotations

import json
import os
import shlex
import uuid

import pytest
from aiokafka import AIOKafkaConsumer

from headgate.agents.broker.storage import node_dir
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import INTERMEDIATE, TASK_LOG, TopicsAdmin, TopicSpec
from headgate.core.errors import EnvironmentFault

from .. import forked

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def test_what_is_missing_is_created_and_found(kafka):
    """What is not there is only made where that is asked for; a second ensure changes nothing."""
    name = f"made-{uuid.uuid4().hex[:8]}"
    specs = [
        TopicSpec(name, 3, TASK_LOG),
        TopicSpec(name + "-mid", 2, {**INTERMEDIATE, "max.message.bytes": "2000000"}),
    ]
    topics = TopicsAdmin(ClientSettings(kafka.bootstrap))
    await topics.start()
    try:
        assert await topics.find([name]) == {}
        with pytest.raises(EnvironmentFault, match="it does not exist"):
            await topics.ensure(specs, create=False)
        found = await topics.ensure(specs)
        assert found[name].partitions == 3
        assert found[name + "-mid"].limit == 2_000_000
        assert found[name + "-mid"].config["retention.ms"] == "-1"
        assert await topics.ensure(specs) == found
    finally:
        await topics.stop()


async def test_a_topic_that_differs_refuses_the_start_with_the_remedy(kafka, topic):
    """Somebody made the task log with the broker's defaults: its records would be deleted after a week."""
    name = topic("log", partitions=2)
    topics = TopicsAdmin(ClientSettings(kafka.bootstrap))
    await topics.start()
    try:
        with pytest.raises(EnvironmentFault) as wrong:
            await topics.ensure([TopicSpec(name, 3, TASK_LOG)])
    finally:
        await topics.stop()
    assert "it has 2 partitions, but 3 are needed" in str(wrong.value)
    assert "cleanup.policy is delete, but compact is needed" in str(wrong.value)
    assert (
        f"--alter --entity-type topics --entity-name {name} --add-config cleanup.policy=compact" in wrong.value.remedy
    )


JOB = """\
import headgate as hg

app = hg.App("typed")
app.input("orders").to("totals")
lost = hg.App("lost")
lost.input("oders").to("totals")
"""


async def test_a_name_that_kafka_does_not_allow_is_no_matter_of_permissions(kafka):
    topics = TopicsAdmin(ClientSettings(kafka.bootstrap))
    await topics.start()
    try:
        with pytest.raises(EnvironmentFault, match="Topic name is invalid") as wrong:
            await topics.ensure([TopicSpec("orders:2", 1)])
    finally:
        await topics.stop()
    assert wrong.value.remedy == "give it another name"


async def test_a_mistyped_name_makes_no_topic(private_kafka, tmp_path):
    """Also not at brokers that create what they are asked about, as many teams have them: neither an input nor an output, whoever asks. The
    error has the command that creates what is missing, and with it the job runs.
    """
    settings = node_dir(private_kafka.data, 1) / "server.properties"
    told = settings.read_text()
    settings.write_text(told.replace("auto.create.topics.enable=false", "auto.create.topics.enable=true"))
    private_kafka.restart()
    (tmp_path / "job.py").write_text(JOB)
    place = {"HEADGATE_BOOTSTRAP": private_kafka.bootstrap, "HEADGATE_STATE_DIR": str(tmp_path / "state")}
    environment = {**os.environ, **place, "HEADGATE_TOPIC_CREATE_OUTPUTS": "false"}

    def headgate(line, code=0):
        done = forked.run(shlex.split(line), env=environment, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    asks = AIOKafkaConsumer("carelessly", bootstrap_servers=private_kafka.bootstrap)
    await asks.start()
    await asks.stop()
    headgate("topics create orders --partitions 2")
    assert "did you mean 'orders'? Or create it" in headgate("run job:lost", 1)
    planned = headgate("topics plan job:lost", 1)
    for name in (
        "oders --partitions N",
        "__headgate_coordinator_lost_1 --partitions 1",
        "__headgate_log_lost_1 --partitions N",
        "totals --partitions N",
    ):
        assert f"--create --topic {name}" in planned
    assert "the input topic 'oders' does not exist" in planned
    assert "did you mean 'orders'?" in planned
    for line in ("plan job:app", "doctor job:app", "run job:app --bounded"):
        said = headgate(line, 1)
        assert "the output topic 'totals' does not exist" in said
    assert "did you mean 'orders'" in headgate("send oders 1", 4)
    assert "did you mean 'orders'" in headgate("tail oders", 4)
    assert "--create --topic totals --partitions 2" in headgate("topics plan job:app")
    listed = {one["topic"] for one in json.loads(headgate("topics list --all -o json"))["topics"]}
    assert listed - {"__consumer_offsets", "__transaction_state"} == {"carelessly", "orders"}
    headgate(said.partition("`headgate ")[2].partition("`")[0])
    headgate("send orders 1")
    headgate("run job:app --bounded")
    assert '"value": 1' in headgate("tail totals")


async def test_more_replicas_than_brokers_name_the_setting(kafka, tmp_path, topic):
    """The error of the broker does not say where the number comes from."""
    name = topic("in")
    (tmp_path / "job.py").write_text(JOB.replace("orders", name).replace("typed", f"typed{uuid.uuid4().hex[:6]}"))
    place = {"HEADGATE_BOOTSTRAP": kafka.bootstrap, "HEADGATE_STATE_DIR": str(tmp_path / "state")}
    environment = {**os.environ, **place, "HEADGATE_TOPIC_REPLICAS": "3", "HEADGATE_TOPIC_CREATE_OUTPUTS": "true"}
    done = forked.run(shlex.split("run job:app --bounded"), env=environment, cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be created" in done.stderr
    assert "set topic.replicas to at most the number of brokers" in done.stderr
