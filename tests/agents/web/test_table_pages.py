"""The tables of a worker over HTTP: it never says that a key has no row where another worker may have one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.agents.web import tables
from headgate.agents.web.tables import Elsewhere, table_document
from headgate.core.coordination import messages as c
from headgate.core.coordination.state import JobState
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition

ADDRESS = "http://127.0.0.1:9001"


def job() -> hg.App:
    app = hg.App("job")
    app.input("in", key="k").table("rows")
    return app


def worker(d: Driver) -> Any:
    """A worker with the tasks of a test driver."""

    class Options:
        processor = "w1"

    class Worker:
        options = Options()
        actors = d.tasks
        declared = next(iter(d.tasks.values())).state.declared
        coordination = None

    return Worker()


def test_a_key_that_is_not_here_is_not_said_to_have_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 and no rows was the answer of a worker that did not run the key's task."""
    others = [{"worker": "w2", "url": ADDRESS, "tasks": ["Partition 1"]}]
    with Driver(job(), partitions={"in": 1}) as d:
        d.send("in", {"k": "a"}, key="a")
        d.advance("1s")
        one = worker(d)
        assert table_document(one, "rows", "b", {})["rows"] == []
        monkeypatch.setattr(tables, "elsewhere", lambda worker, task="": others)
        assert [row["key"] for row in table_document(one, "rows", "a", {})["rows"]] == ["a"]
        assert table_document(one, "rows", "", {})["elsewhere"] == others
        with pytest.raises(Elsewhere) as error:
            table_document(one, "rows", "b", {})
    assert error.value.answer["elsewhere"] == others
    assert error.value.answer["tasks"] == ["Partition 0"]
    assert f"ask {ADDRESS} (Partition 1)" in (error.value.remedy or "")


def test_the_owners_of_other_tasks_are_named_with_their_addresses() -> None:
    """As the coordinator stream has them; a task without an owner has no address."""
    state = JobState()
    one, two, three = (StreamPartition("in", n) for n in range(3))
    model = JobModel(1, 1, "r1", "d1", {"a": (one,), "b": (two,), "c": (three,)}, {"a": "w1", "b": "w2"})
    said = [
        c.SetRun("r1", "d1", c.RunState.RUNNING, "u"),
        c.SetJobModel(model),
        c.SetProcessor("w2", "000001-x", "p2", "here", c.ProcessorState.JOINED, url=ADDRESS),
        c.SetGrant("b", 1, "w2", "000001-x"),
    ]
    for offset, message in enumerate(said):
        state.apply(c.Entry(offset, c.key_of(message), message))

    member = SimpleNamespace(view=SimpleNamespace(job=state))
    asked: Any = SimpleNamespace(coordination=SimpleNamespace(member=member), actors={})
    w2 = {"worker": "w2", "url": ADDRESS, "tasks": ["b"]}
    assert tables.elsewhere(asked) == [{"worker": "", "url": "", "tasks": ["a", "c"]}, w2]
    assert tables.elsewhere(asked, "b") == [w2]
