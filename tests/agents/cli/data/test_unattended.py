"""What commands take for a job's own while none of its workers lives."""

from __future__ import annotations

from headgate.agents.cli.data.unattended import between_stages, former_stages
from headgate.agents.coordinator.job_states import own_topics
from headgate.core.coordination.messages import Entry, SetJobModel, key_of
from headgate.core.coordination.state import JobState
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition
from headgate.core.orders import ProducerSet


def test_only_streams_that_the_model_says_are_written_between_stages_are_the_jobs_own() -> None:
    """An input that is named like one was deleted by a reset, whose plan said that inputs are kept."""
    streams = ("sales-1-orders", "sales-1-by-user")
    model = SetJobModel(
        JobModel(
            tasks={"Partition 0": tuple(StreamPartition(stream, 0) for stream in streams)},
            producers={
                name: ProducerSet(name, 1, frozenset({"Partition 0"})) for name in ("sales-1-by-user", "priced")
            },
            shared={"priced": 1},
            former=("sales-1-by-shop",),
        )
    )
    state = JobState().fold([Entry(0, key_of(model), model)])
    assert between_stages(state) == ["sales-1-by-user"]
    assert former_stages(state) == ["sales-1-by-shop"]
    assert own_topics({"sales/1": state}, "").keys() >= {"sales-1-by-user", "sales-1-by-shop"}
    assert between_stages(JobState()) == former_stages(JobState()) == []
