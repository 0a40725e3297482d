"""A grouper of the job's own names its tasks as it likes; each has a store of its own, and counts on from its own counts."""

from __future__ import annotations

import pytest

import headgate as hg
from headgate.agents.state import directory
from headgate.agents.state.directory import Directory
from headgate.agents.state.rocks import StoreMemory
from headgate.agents.testing.driver import Driver
from headgate.agents.testing.host import DriverHost
from headgate.core.names import StreamPartition

NAMES = ["r", "r.15", "a b", "a-b", "../../x", "x", "A", "a", "Partition 0", "partition 0"]


def by_name(partitions, broadcast):
    """A task for each partition, under a name that others resemble."""
    found = {name: [] for name in NAMES}
    for stream, width in partitions.items():
        for number in range(width):
            found[NAMES[number]].append(StreamPartition(stream, number))
    return found


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The state directory of a job: its stores are on disk. The disk is one that does not tell `A` from `a`."""
    made, memory = tmp_path / "state" / "job-1", StoreMemory(64 << 20)
    exact = directory.task_directory
    monkeypatch.setattr(directory, "task_directory", lambda task: exact(task).lower())
    monkeypatch.setattr(DriverHost, "disk", lambda self, task: Directory(made, task, memory))
    return made


def test_tasks_whose_names_resemble_each_other_count_for_themselves(state):
    """[1, 1] came instead of [1, 2], when a task opened the store of another one after a restart. Each partition is sent a number of
    records that is its own, half of them before the restart."""
    app = hg.App("job", settings={"grouper": f"{__name__}:by_name"})
    app.input("in", key="k").agg(n=hg.count(), name="counts")
    sent = {f"k{number}": number + 1 for number in range(len(NAMES))}
    with Driver(app, partitions={"in": len(NAMES)}) as d:
        for number, (key, count) in enumerate(sent.items()):
            d.send_all("in", [{"k": key}] * count, partition=number)
        d.restart()
        for number, (key, count) in enumerate(sent.items()):
            d.send_all("in", [{"k": key}] * count, partition=number)
        counted = {key: d.table("counts")[key]["n"] for key in sent}
    assert counted == {key: 2 * count for key, count in sent.items()}
    assert len(list((state / "tasks").iterdir())) == len(NAMES)
    assert [path.name for path in state.parent.parent.iterdir()] == ["state"]
