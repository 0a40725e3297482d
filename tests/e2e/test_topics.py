"""Topics on a real broker: created as needed, compared, planned."""

from __future__ import annotations

import uuid

import pytest

from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import INTERMEDIATE, TASK_LOG, TopicsAdmin, TopicSpec
from headgate.core.errors import EnvironmentFault

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
