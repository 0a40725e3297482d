"""Which dead letters can be written to their inputs again, as far as it can be seen without a broker."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.cli.dead_letters import again
from headgate.agents.cli.options import Target
from headgate.agents.testing.driver import Driver
from headgate.core.names import JobName, StreamPartition, Topics


@pytest.fixture
def to() -> Target:
    nothing: Any = None
    return Target(JobName("sales"), Topics(JobName("sales")), nothing)


def failing(row: Any) -> Any:
    raise ValueError("bad")


def letter_of(app: hg.App, *rows: dict[str, Any]) -> Any:
    """The only dead letter of a job, as it lies in its topic."""
    with Driver(app) as d:
        for row in rows:
            d.send("orders", row, key=row["c"], at=5)
        d.drain()
        (letter,) = d.topics.records(StreamPartition("sales-1-dead-letters", 0))
    return letter


def test_a_row_that_came_from_no_chunk_is_replayed_to_a_given_topic_alone(to: Target) -> None:
    """A result of a window is no record of the input: written there, it would be counted as an order."""
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders", key="c", timestamp="ts").window(hg.tumbling("10s"), name="tens").agg(n=hg.count()).map(
        failing
    ).to("out")
    letter = letter_of(app, {"c": "DE", "ts": 1}, {"c": "DE", "ts": 2})
    with pytest.raises(hg.HeadgateError, match=r"holds a result of Partition 0.*several records or none.*--to TOPIC"):
        again(to, letter, "")
    made: Any = again(to, letter, "elsewhere")
    assert (made.topic, made.key, made.partition, made.timestamp_ms) == ("elsewhere", b"DE", None, 9_999)
    assert b'"n":2' in made.value
    assert [name for name, _ in made.headers if name.startswith("hg-")] == []


def test_a_record_is_replayed_to_where_it_came_from(to: Target) -> None:
    """With its own partition and the time that Kafka had for it."""
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders", timestamp="ts").map(failing).to("out")
    made: Any = again(to, letter_of(app, {"c": "DE", "ts": 7}), "")
    assert (made.topic, made.partition, made.key, made.timestamp_ms) == ("orders", 0, b"DE", 5)
