"""A row read in the process that has it is what a query would answer, and nothing is said of tasks that this worker does not own."""

from __future__ import annotations

from types import SimpleNamespace as Bag
from typing import Any

import pytest

import headgate as hg
from headgate.agents.queries.here import NotOpenHere, read_here
from headgate.agents.queries.parts import QueryParts, SeveralTasks, spread
from headgate.agents.testing.driver import Driver
from headgate.core.coordination import messages as c
from headgate.core.coordination.state import JobState
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition


def job() -> hg.App:
    app = hg.App("job")
    orders = app.input("in").repartition("user", partitions=2, name="by-user")
    orders.agg(n=hg.count(), name="counts")
    orders.table("latest", ttl="1h")
    app.input("anyhow", key_serde=hg.text()).table("placed")
    return app


def parts_of(d: Driver, owner: str = "w1") -> QueryParts:
    """What worker w1 sees. `owner`: who has task 1, according to the coordinator stream."""
    actors = dict(d.tasks)
    state = JobState()
    partitions = {f"Partition {n}": (StreamPartition("job-1-by-user", n),) for n in range(2)}
    model = JobModel(1, 1, "r1", "d1", partitions, {"Partition 0": "w1", "Partition 1": owner})
    grants = [
        c.SetGrant("Partition 0", actors["Partition 0"].grant, "w1", "000001-x"),
        c.SetGrant("Partition 1", actors["Partition 1"].grant + (owner != "w1"), owner, "000001-y"),
    ]
    for offset, message in enumerate([c.SetRun("r1", "d1", c.RunState.RUNNING, "u"), c.SetJobModel(model), *grants]):
        state.apply(c.Entry(offset, c.key_of(message), message))
    one = actors["Partition 0"].state
    worker: Any = Bag(
        options=Bag(processor="w1"),
        actors=actors,
        declared=one.declared,
        coordination=Bag(member=Bag(view=Bag(job=state))),
        port=one.port,
    )
    return QueryParts(worker)


def filled(d: Driver) -> None:
    d.send_all("in", [{"user": f"u{n}", "n": n} for n in range(10)])
    d.advance("1s")


def test_values_are_those_of_the_job() -> None:
    """Objects, results of aggregates, and no row that has expired."""
    with Driver(job(), partitions={"anyhow": 2}) as d:
        filled(d)
        parts = parts_of(d)
        assert read_here(parts, "latest", "u3") == {"user": "u3", "n": 3}
        assert read_here(parts, "counts", "u3") == {"n": 1}
        assert read_here(parts, "counts", "zoe") is None
        d.advance("2h")
        assert read_here(parts, "latest", "u3") is None


def test_a_task_that_another_worker_has_been_granted_is_not_read() -> None:
    """The store is still open here, but somebody else may have committed since."""
    with Driver(job(), partitions={"anyhow": 2}) as d:
        filled(d)
        mine, lost = parts_of(d), parts_of(d, owner="w2")
        users = [f"u{n}" for n in range(10)]
        of = {user: next(iter(spread(mine, mine.table("latest"), [user.encode()], ()))) for user in users}
        assert set(of.values()) == {"Partition 0", "Partition 1"}
        for user in users:
            assert read_here(mine, "latest", user)["user"] == user
            if of[user] == "Partition 0":
                assert read_here(lost, "latest", user)["user"] == user
            else:
                with pytest.raises(NotOpenHere, match="Partition 1 is not open in this worker"):
                    read_here(lost, "latest", user)
        with pytest.raises(NotOpenHere, match="Partition 1 is not open"):
            read_here(lost, "placed", "nobody")


def test_a_key_of_two_tasks_has_no_single_value() -> None:
    """Records of an input lie where their producers have put them."""
    with Driver(job(), partitions={"anyhow": 2}) as d:
        for partition in (0, 1):
            d.send("anyhow", {"at": partition}, key="k", partition=partition)
        d.advance("1s")
        with pytest.raises(SeveralTasks, match="Partition 0 and Partition 1"):
            read_here(parts_of(d), "placed", "k")


def test_what_cannot_be_asked_says_so() -> None:
    """No such table, and a key that its serde does not take."""
    with Driver(job(), partitions={"anyhow": 2}) as d:
        filled(d)
        with pytest.raises(hg.HeadgateError, match="no table 'lates'"):
            read_here(parts_of(d), "lates", "u1")
        with pytest.raises(hg.DeclarationError, match="the key"):
            read_here(parts_of(d), "placed", object())
