"""The topic of a stream that jobs share: which settings it must have, and what helps where another job has made it differently."""

from __future__ import annotations

import headgate as hg
from headgate.agents.job.declaration import Declared
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import ExistingTopic, differences
from headgate.agents.worker.job_topics import JobTopics
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition

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
