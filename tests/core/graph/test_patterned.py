"""What the fingerprint of a run tells of its inputs by pattern."""

from __future__ import annotations

from headgate.core.graph.patterned import read_by_run, unread_by_run
from headgate.core.names import JobName, Topics

NAMES = Topics(JobName("sales"))
RUN = {
    "input:orders-de": '{"pattern": "orders-.*"}',
    "input:rates": "{}",
    "stage:to": '{"writes": ["orders-copies"]}',
    "setting:grouper": "partition",
}


def test_a_run_keeps_the_topics_that_its_patterns_read() -> None:
    assert read_by_run(RUN, ["orders-.*"]) == ["orders-de"]
    assert read_by_run(RUN, ["other"]) == []


def test_topics_that_came_later_are_named() -> None:
    """Not those that the job reads or writes itself, and not those of headgate or of the brokers."""
    there = ["orders-de", "orders-copies", "rates", "__consumer_offsets", NAMES.coordinator]
    assert unread_by_run(RUN, there, NAMES) == {}
    assert unread_by_run(RUN, [*there, "orders-it"], NAMES) == {"orders-.*": ["orders-it"]}
    everything = {"input:orders-de": '{"pattern": ".*"}', "setting:list": "[1]"}
    assert unread_by_run(everything, [*there, "orders-de"], NAMES) == {".*": ["orders-copies", "rates"]}
