"""A chooser of one's own decides what a job reads next: a class, an object, or an import path."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.core.choosing.chooser import Choice, Wait

from .test_driver_as_worker import backlog, two_inputs


class HighestFirst:
    """Reads the partition with the greatest name first, one record at a time."""

    def choose(self, heads: Any, now: float) -> Any:
        able = [head for head in heads if head.takeable]
        return Choice(max(able, key=lambda head: head.at).at, 1) if able else None


class MostUrgent:
    """Looks into the records."""

    needs = frozenset({"value"})

    def choose(self, heads: Any, now: float) -> Any:
        able = [head for head in heads if head.takeable]
        return Choice(max(able, key=lambda head: head.value["urgency"]).at, 1) if able else None


class Hesitant:
    """Waits once before each choice, and says no time."""

    def __init__(self) -> None:
        self.waited = False

    def choose(self, heads: Any, now: float) -> Any:
        self.waited = not self.waited
        able = [head for head in heads if head.takeable]
        return Wait(why="not yet") if self.waited or not able else Choice(able[0].at, able[0].ready)


def greedy(heads: Any, now: float) -> Any:
    """Answers more than there is."""
    able = [head for head in heads if head.takeable]
    return Choice(able[0].at, able[0].ready + 1) if able else None


def leaves(heads: Any, now: float) -> Any:
    """Would end the process."""
    if any(head.takeable for head in heads):
        raise SystemExit(3)


@pytest.mark.parametrize("chooser", [HighestFirst, HighestFirst(), f"{__name__}:HighestFirst"])
def test_the_stream_that_it_prefers_is_read_to_its_end_first(chooser: Any) -> None:
    seen: list[Any] = []
    with Driver(two_inputs(seen, chooser=chooser, a={}, b={}), settings={"chunk.max-records": 5}) as d:
        backlog(d, *[(topic, f"{topic}{n}", 0) for n in range(20) for topic in ("a", "b")])
        assert seen == [f"{topic}{n}" for topic in ("b", "a") for n in range(20)]


def test_it_may_look_into_the_values() -> None:
    """It was given bytes, and failed the task at its first field."""
    seen: list[Any] = []
    with Driver(two_inputs(seen, chooser=MostUrgent, a={}, b={})) as d:
        waiting = [(topic, {"urgency": n}, 0) for n, topic in ((1, "a"), (5, "a"), (4, "b"), (3, "b"))]
        backlog(d, *waiting, first={"urgency": 0})
        assert [value["urgency"] for value in seen] == [4, 3, 1, 5]


def test_one_that_waits_over_what_is_there_is_asked_again() -> None:
    """All records are there before it waits, and nothing more comes: it stalled for good."""
    seen: list[Any] = []
    with Driver(two_inputs(seen, chooser=Hesitant, a={}, b={})) as d:
        backlog(d, *[("a", n, 0) for n in range(3)])
        d.advance("1m")
        assert seen == [0, 1, 2]


@pytest.mark.parametrize(("chooser", "says"), [(greedy, "of which 1 are ready"), (leaves, "raised SystemExit: 3")])
def test_one_that_breaks_its_contract_fails_the_task_and_says_how(chooser: Any, says: str) -> None:
    """Not the worker, and not in silence."""
    with Driver(two_inputs([], chooser=chooser, a={}, b={})) as d:
        with pytest.raises(hg.HeadgateError, match=says):
            d.send("a", 1)
        why = d.tasks["Partition 0"].machine.why
        assert f"the chooser '{chooser.__name__}'" in why
        assert says in why
        assert d.states == {"Partition 0": "failed"}


def test_one_that_cannot_be_imported_refuses_the_start_with_what_may_stand_there() -> None:
    with pytest.raises(hg.HeadgateError, match="cannot be imported") as refused:
        Driver(two_inputs([], chooser="nowhere.at_all:choose", a={}))
    assert "nowhere.at_all:choose" in str(refused.value)
    assert "round-robin, time-aligned, starting-alignment" in str(refused.value)
