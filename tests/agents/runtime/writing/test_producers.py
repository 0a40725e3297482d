"""What the producers of a process say to its tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headgate.agents.runtime.writing.producers import REST_S, Producers


class Worked:
    """A task that has worked on little."""

    def __init__(self, behind: bool) -> None:
        self.behind = behind
        self.rest_s: list[float] = []
        self.went_on = 0

    def patient(self, rest_s: float) -> bool:
        self.rest_s.append(rest_s)
        return self.behind or rest_s > 0

    def go_on(self) -> None:
        self.went_on += 1


def test_tasks_that_rested_go_on_when_no_task_has_a_backlog_any_more() -> None:
    """They fetched what had come meanwhile only when their rest was over, almost two seconds later beside 60 others."""
    tasks = {"a": Worked(True), "b": Worked(False), "c": Worked(False)}
    graph = SimpleNamespace(framed=False)
    needs: Any = SimpleNamespace(declared=SimpleNamespace(graph=graph), job=None, name="", port=None, process=None)
    needs.settings = needs.targets = None
    found: Any = tasks
    producers = Producers(needs, found, compression=None)
    assert producers.patient() == {"a", "b", "c"}
    assert tasks["b"].rest_s == [2 * REST_S]
    assert [one.went_on for one in tasks.values()] == [0, 0, 0]
    tasks["a"].behind = False
    assert producers.patient() == frozenset()
    assert [one.went_on for one in tasks.values()] == [1, 1, 1]
    producers.patient()
    assert [one.went_on for one in tasks.values()] == [1, 1, 1]
