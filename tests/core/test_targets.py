"""Which topics are closed to those who write records: one answer for jobs and tools, for declared and computed names."""

from __future__ import annotations

import pytest

from headgate.core.names import JobName, Topics
from headgate.core.targets import ClosedTopics

SALES = Topics(JobName("sales"), prefix="eu.")
JOB = ClosedTopics(SALES, kept=(JobName("pricing"),), framed={"priced": "pricing/1"})
TOOL = ClosedTopics(framed={"eu.sales-1-by": "sales/1"}, owned={"eu.sales-1-dead-letters": "sales/1"})


@pytest.mark.parametrize(
    ("known", "topic", "why"),
    [
        (JOB, "priced", "it holds the frames of the job 'pricing/1', and any other record would stop every job that reads it"),
        (JOB, "eu.sales-1-x", "names that begin with 'eu.sales-1-' are kept for the job's own streams"),
        (JOB, "eu.pricing-1-x", "names that begin with 'eu.pricing-1-' are kept for the streams of the job 'pricing/1'"),
        (JOB, "__headgate_log_other_1", "it is a topic of headgate itself"),
        (JOB, "__consumer_offsets", "it is a topic of Kafka itself"),
        (JOB, "orders", ""),
        (TOOL, "eu.sales-1-by", "it holds the frames of the job 'sales/1', and any other record would stop every job that reads it"),
        (TOOL, "eu.sales-1-dead-letters", "it belongs to the job 'sales/1'"),
        (TOOL, "eu.__headgate_coordinator_sales_1", "it is a topic of headgate itself"),
        (TOOL, "__transaction_state", "it is a topic of Kafka itself"),
        (TOOL, "eu.sales-1-theirs", ""),
        (TOOL, "orders", ""),
    ],
)  # fmt: skip
def test_who_may_write_where(known: ClosedTopics, topic: str, why: str) -> None:
    """A job is refused the names that another may come to use; for a tool, a name alone makes no topic a job's."""
    assert known.closed(topic) == why
