"""Whether a worker works now: each fact alone makes it not ready, says why, and is withdrawn."""

from __future__ import annotations

from types import SimpleNamespace as Bag
from typing import Any

import pytest

from headgate.agents.runtime.task.at_work import AtWork
from headgate.agents.worker.load.health import (
    AWAY_S,
    COMMIT_S,
    Contact,
    Health,
    letter_load,
    readiness,
    work_of_load,
)
from headgate.core.machine import Now
from headgate.core.names import StreamPartition
from headgate.core.orders import TaskState


class Said:
    """A log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    info = warning


def looked(contact: Contact, answers: int, since_s: float, until_s: float) -> None:
    """A main loop that turns, and looks twice a second."""
    at = since_s
    while at <= until_s:
        contact.look(answers, Now(at, int(at * 1000)))
        at += 0.5


def test_a_broker_that_is_away_is_reported_with_its_end() -> None:
    """Since when, at growing intervals, and that it is back."""
    said = Said()
    contact = Contact(0.0, said)
    looked(contact, 1, 0.0, 1.0)
    looked(contact, 1, 1.5, AWAY_S - 0.5)
    assert (contact.why, said.lines) == ("", [])
    looked(contact, 1, AWAY_S, 70.0)
    assert contact.why == "the broker of the coordinator stream has not answered since 1970-01-01T00:00:00Z (70 s)"
    assert [event for event, _ in said.lines] == ["the broker does not answer"] * 4
    looked(contact, 2, 70.5, 71.0)
    assert (contact.why, contact.away_s) == ("", None)
    assert said.lines[-1] == ("the broker answers again", {"of": "the coordinator stream", "after_s": 70})


def test_a_broker_is_not_blamed_for_a_loop_that_did_not_look() -> None:
    """User code held the loop for five minutes, or the process was suspended: no answer could be taken."""
    said = Said()
    contact = Contact(0.0, said)
    looked(contact, 1, 0.0, 1.0)
    contact.look(1, Now(301.0, 301_000))
    contact.look(2, Now(301.5, 301_500))
    assert said.lines == []


def worker(**given: Any) -> Any:
    """A worker that is ready, but for what is given."""
    actor = Bag(machine=Bag(phase=TaskState.RUNNING), under_way=Bag(doing=Bag(look=lambda: None)))
    committing = Bag(under_way_s=lambda: 0.1, machine=Bag(view=Bag(state="committing")))
    facts: dict[str, Any] = {
        "exit_code": None,
        "exit_why": "",
        "coordination": Bag(blocked=""),
        "health": Health(0.0),
        "ready": True,
        "why": "",
        "runtime": Bag(producers=Bag(committing=committing), copies=Bag(waits="")),
        "owned": lambda: {"Partition 0": ()},
        "actors": {"Partition 0": actor},
    }
    return Bag(**{**facts, **given})


def away() -> Health:
    """As after a minute without an answer."""
    health = Health(0.0)
    looked(health.contact, 1, 0.0, 60.0)
    return health


def slow() -> Health:
    """As while a letter takes long."""
    health = Health(0.0)
    actor = Bag(under_way=Bag(doing=Bag(look=lambda: AtWork("Partition 0", "in:0 offset 3", 40.0))))
    health.look(1, [actor], Now(0.0, 0))
    return health


def producing(committing: Any) -> Any:
    return Bag(producers=Bag(committing=committing))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, ""),
        ({"exit_code": 0}, "exiting"),
        ({"coordination": Bag(blocked="the stream is damaged")}, "the stream is damaged"),
        ({"health": away()}, "the broker of the coordinator stream has not answered since 1970-01-01T00:00:00Z (60 s)"),
        ({"ready": False, "why": "waiting for the leader"}, "waiting for the leader"),
        (
            {
                "ready": False,
                "why": "waiting for its tasks",
                "runtime": Bag(producers=Bag(), copies=Bag(waits="waiting for table rates: 7 records behind")),
            },
            "waiting for its tasks; waiting for table rates: 7 records behind",
        ),
        ({"runtime": producing(None)}, "it has no producer: one incarnation has ended, and the next one has not begun"),
        (
            {"runtime": producing(Bag(under_way_s=lambda: COMMIT_S + 5, machine=Bag(view=Bag(state="flushing"))))},
            "a commit has been flushing for 15 s",
        ),
        ({"runtime": producing(Bag(under_way_s=lambda: None))}, ""),
        ({"actors": {}}, "Partition 0 does not run"),
        ({"actors": {"Partition 0": Bag(machine=Bag(phase=TaskState.ABANDONED))}}, "Partition 0 is abandoned"),
        ({"health": slow()}, "Partition 0 has been working on in:0 offset 3 for 40 s"),
    ],
)
def test_each_fact_alone_makes_a_worker_not_ready(given: dict[str, Any], why: str) -> None:
    """`/readyz` said 200 while the brokers were stopped, all tasks abandoned, and a function never returned."""
    assert readiness(worker(**given)) == (not why, why)


def test_letters_that_take_long_come_through_a_heartbeat() -> None:
    """The longest ones, with their names, and nothing of short ones."""

    def at(seconds: float, partition: int) -> Any:
        work = AtWork(f"Partition {partition}", f"{StreamPartition('in', partition)} offset 3", seconds)
        return Bag(under_way=Bag(doing=Bag(now=lambda: work)))

    actors = [at(1.0, 0), at(30.0, 1), at(6.0, 2), Bag(under_way=Bag(doing=Bag(now=lambda: None)))]
    load = letter_load(actors, 100_000, 5.0)
    assert list(load.values()) == [70_000.0, 94_000.0]
    found = work_of_load(load, 101_000)
    assert {name: (one.what, one.for_s) for name, one in found.items()} == {
        "Partition 1": ("in:1 offset 3", 31.0),
        "Partition 2": ("in:2 offset 3", 7.0),
    }
