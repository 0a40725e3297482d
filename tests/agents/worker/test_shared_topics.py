"""The topic of a stream that jobs share: which settings it must have, and what helps where another job has made it differently."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import ExistingTopic, differences
from headgate.agents.worker import job_topics
from headgate.agents.worker.job_topics import JobTopics
from headgate.core.errors import DeclarationError
from headgate.core.graph.model import JobModel
from headgate.core.names import JobName, StreamPartition

MODEL = JobModel(
    tasks={"Partition 0": (StreamPartition("orders", 0), StreamPartition("pricing-1-by-k", 0))}, shared={"priced": 3}
)


def specs():
    app = hg.App("pricing")
    app.input("orders").repartition("k").share("priced", retention="3d")
    topics = JobTopics(ClientSettings("nobody:1"), Declared(app))
    return {one.name: one for one in topics.specs_for(MODEL, 1)}


def test_it_is_kept_for_as_long_as_declared_from_when_it_was_written_and_never_trimmed_by_size():
    found = specs()
    assert found["priced"].partitions == 3
    config = {**found["priced"].config}
    assert (config["retention.ms"], config["retention.bytes"]) == ("259200000", "-1")
    assert (config["cleanup.policy"], config["message.timestamp.type"]) == ("delete", "LogAppendTime")
    assert found["pricing-1-by-k"].config["retention.ms"] == "-1"


def test_where_another_job_has_made_it_with_other_partitions_the_remedy_is_to_say_so():
    spec = specs()["priced"]
    [found] = differences(spec, ExistingTopic("priced", 6, dict(spec.config)))
    assert found.what == "it has 6 partitions, but 3 are needed"
    assert '.share("priced", partitions=6)' in found.remedy


@pytest.mark.asyncio
async def test_one_that_two_jobs_write_is_asked_about_when_it_has_failed_and_not_judged_again(
    monkeypatch: pytest.MonkeyPatch,
):
    """The other job has said first that it holds its frames, and the stream was refused to this one until its tasks were started again."""
    spec = specs()["priced"]
    there = {name: ExistingTopic(name, 3, dict(spec.config)) for name in ("priced", "others")}

    async def find(names: Any) -> dict[str, ExistingTopic]:
        return {name: there[name] for name in names}

    async def names() -> list[str]:
        return [*there, "__headgate_coordinator_other_1"]

    async def states(*_: Any, **__: Any) -> dict[str, Any]:
        return {str(JobName("other")): SimpleNamespace(model=SimpleNamespace(producers=("priced", "others")))}

    monkeypatch.setattr(job_topics, "states_of_all", states)
    app = hg.App("pricing")
    app.input("orders").repartition("k").share("priced", retention="3d")
    topics = JobTopics(ClientSettings("nobody:1"), Declared(app))
    monkeypatch.setattr(topics, "topics", SimpleNamespace(find=find, names=names))
    learned: list[str] = []
    outbox: Any = SimpleNamespace(learn=lambda topic, *_: learned.append(topic))
    monkeypatch.setattr(job_topics, "_tell", lambda producer, topic: producer.learn(topic.name))
    await topics.learn_one([outbox, None], "priced")
    assert learned == ["priced"]
    with pytest.raises(DeclarationError, match="it holds the frames of the job 'other/1'"):
        await topics.learn_one([outbox], "others")
