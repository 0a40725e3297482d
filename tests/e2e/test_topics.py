"""Topics on a real broker: created as needed, compared, planned."""

from __future__ import annotations

import json
import os
import shlex
import uuid

import pytest
from aiokafka import AIOKafkaConsumer

from headgate.agents.broker.broker import Broker
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


REPLICATED = """\
import headgate as hg

app = hg.App("replicated")
app.input("orders").repartition("n", partitions=2).agg(n=hg.count(), name="counts").to("totals")
"""


async def test_replicas_and_retention_are_settings(tmp_path):
    """Each topic that the job creates has them. A topic that is there otherwise is used, and named: at the start, and in the plan."""
    (tmp_path / "job.py").write_text(REPLICATED)
    with Broker.start(tmp_path / "kafka", nodes=3) as broker:
        place = {"HEADGATE_BOOTSTRAP": broker.bootstrap, "HEADGATE_STATE_DIR": str(tmp_path / "state")}
        said = {"HEADGATE_TOPIC_REPLICAS": "2", "HEADGATE_TOPIC_MIN_INSYNC": "1"}
        kept = {"HEADGATE_TOPIC_OUTPUT_RETENTION": "2d", "HEADGATE_TOPIC_DEAD_LETTERS_RETENTION": "3d"}
        environment = {**os.environ, **place, **said, **kept, "HEADGATE_TOPIC_CREATE_OUTPUTS": "true"}

        def headgate(line, **other):
            done = forked.run(shlex.split(line), env={**environment, **other}, cwd=tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout, done.stderr

        headgate("topics create orders --partitions 2")
        headgate("""send orders '{"n": 1}'""")
        commands, _ = headgate("topics plan job:app")
        assert len(commands.splitlines()) == 6
        assert all("--replication-factor 2" in one and "min.insync.replicas=1" in one for one in commands.splitlines())
        headgate("run job:app --bounded")
        topics = TopicsAdmin(ClientSettings(broker.bootstrap))
        await topics.start()
        try:
            own = [one for one in await topics.names() if "replicated" in one or one == "totals"]
            found = await topics.find(own)
        finally:
            await topics.stop()
        assert len(found) == 6
        assert {(one.replicas, one.config["min.insync.replicas"]) for one in found.values()} == {(2, "1")}
        dead = next(one for name, one in found.items() if name.endswith("dead-letters"))
        assert (found["totals"].config["retention.ms"], dead.config["retention.ms"]) == ("172800000", "259200000")

        assert json.loads(headgate("plan job:app -o json")[0])["differs"] == []
        more = {"HEADGATE_TOPIC_REPLICAS": "3", "HEADGATE_TOPIC_OUTPUT_RETENTION": "7d"}
        differs = json.loads(headgate("plan job:app -o json", **more)[0])["differs"]
        assert sorted({one["topic"] for one in differs}) == sorted(found)
        assert {one["what"] for one in differs} == {
            "it has 2 replicas, and the settings say 3",
            "retention.ms is 172800000, and the settings say 604800000",
        }
        assert (
            "Note: the topic totals: it has 2 replicas, and the settings say 3" in headgate("plan job:app", **more)[1]
        )
        log = headgate("run job:app --bounded --log-format json", **more)[1]
        lines = [json.loads(one) for one in log.splitlines() if one.startswith("{")]
        warned = [one for one in lines if one["event"] == "a topic is not as the settings say"]
        assert sorted((one["topic"], one["what"]) for one in warned) == sorted(
            (one["topic"], one["what"]) for one in differs
        )


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
