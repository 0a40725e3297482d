"""The rights of a job follow from what it declares: what it reads, writes, creates and deletes, and nothing else."""

from __future__ import annotations

import pytest

from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.graph.rights import Right, rights, transactional_prefix
from headgate.core.names import JobName, Topics

TOPICS = Topics(JobName("sales"))
SHUFFLED = Graph(
    (Input("orders"), Input("rates")),
    (
        Stage("by-user", "repartition", ("orders",), writes=("sales-1-by-user",)),
        Stage("out", "to", ("by-user",), writes=("totals",)),
        Stage("late", "window", ("by-user",), writes=("late-orders",)),
        Stage("shared", "share", ("by-user",), writes=("priced",)),
    ),
)


def of(graph: Graph, **more: bool) -> dict[str, set[str]]:
    """Name → what may be done there."""
    return {name: set(right.operations) for right in rights(graph, TOPICS, **more) for name in right.names}


def test_each_topic_gets_what_the_job_does_there() -> None:
    """An input is only read; only what lies between two stages is read, written and trimmed; nothing else is ever deleted."""
    found = of(SHUFFLED, outputs=True)
    assert found == {
        "orders": {"Read", "DescribeConfigs"},
        "rates": {"Read", "DescribeConfigs"},
        "sales-1-by-user": {"Read", "Write", "Delete", "DescribeConfigs", "Create"},
        "totals": {"Write", "DescribeConfigs", "Create"},
        "late-orders": {"Write", "DescribeConfigs", "Create"},
        "priced": {"Write", "DescribeConfigs", "Create"},
        "sales-1-dead-letters": {"Write", "DescribeConfigs", "Create"},
        "__headgate_log_sales_1": {"Read", "Write", "DescribeConfigs", "Create", "Alter"},
        "__headgate_coordinator_sales_1": {"Read", "Write", "DescribeConfigs", "Create"},
        "__headgate_heartbeat_sales_1": {"Read", "Write", "DescribeConfigs", "Create"},
        "sales-1": {"Read"},
        "headgate.sales.1.": {"Write"},
    }


def test_outputs_are_created_only_by_a_job_that_is_told_to() -> None:
    """Where it is not, a right to create one would be a right too many."""
    fewer = {name: of(SHUFFLED, outputs=True)[name] - operations for name, operations in of(SHUFFLED).items()}
    assert {name: less for name, less in fewer.items() if less} == {"totals": {"Create"}, "late-orders": {"Create"}}


def test_where_others_create_the_topics_nothing_is_created_or_widened() -> None:
    """A team whose applications may not create topics."""
    assert {one for operations in of(SHUFFLED, create=False, outputs=True).values() for one in operations} == {
        "Read",
        "Write",
        "Delete",
        "DescribeConfigs",
    }


def test_the_task_log_of_a_job_with_state_never_grows() -> None:
    """Its tasks are fixed, so nobody has to alter it."""
    stateful = Graph((Input("orders"),), (Stage("n", "agg", ("orders",), stateful=True),))
    assert "Alter" not in of(stateful)["__headgate_log_sales_1"]


def test_a_job_without_shuffles_and_outputs_asks_for_no_empty_right() -> None:
    """A right without a name would be a command that fails."""
    assert all(right.names for right in rights(Graph((Input("orders"),)), TOPICS))


@pytest.mark.parametrize(
    ("job", "prefix"),
    [(JobName("sales"), "headgate.sales.1."), (JobName("a.b", "2"), "headgate.a%2Eb.2.")],
)
def test_the_prefix_is_that_of_every_transactional_id_of_the_job_and_of_no_other(job: JobName, prefix: str) -> None:
    """`sales` with the id 1 has no right on `sales` with the id 11."""
    assert transactional_prefix(job) == prefix


def test_a_prefix_is_said_to_be_one() -> None:
    """In the words of Kafka's tool."""
    assert Right("transactional-id", ("headgate.sales.1.",), ("Write",), "", prefixed=True).arguments() == [
        "--operation",
        "Write",
        "--transactional-id",
        "headgate.sales.1.",
        "--resource-pattern-type",
        "prefixed",
    ]
