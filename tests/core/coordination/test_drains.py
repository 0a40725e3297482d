"""What a drain means in each state of a job, and which drains are listed."""

from __future__ import annotations

import pytest

from headgate.core.coordination import messages as c
from headgate.core.coordination.drains import Meaning, OpenDrain, drain_verdict, open_drains
from headgate.core.coordination.state import JobState
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition

RUN, PAST = "r1", "r0"


def run(of: str, **more: object) -> c.SetRun:
    return c.SetRun(RUN, "d", of, "u", past_runs=(PAST,), **more)  # type: ignore[arg-type]


def state(*messages: c.Message) -> JobState:
    return JobState().fold(c.Entry(n, c.key_of(m), m, 1000 + n) for n, m in enumerate(messages))


@pytest.mark.parametrize(
    ("of", "asked", "meaning", "why"),
    [
        (None, "", Meaning.REFUSED, "no live run"),
        (None, "next", Meaning.WAITS, "it waits for run next to begin"),
        ("running", "", Meaning.DRAINS, ""),
        ("running", RUN, Meaning.DRAINS, ""),
        ("draining", "", Meaning.DRAINS, ""),
        ("ending", RUN, Meaning.DRAINS, ""),
        ("running", "next", Meaning.REFUSED, "other run: the live run is r1"),
        ("running", PAST, Meaning.OVER, "run r0 is closed"),
        ("stopping", "", Meaning.REFUSED, "run r1 is stopping"),
        ("stopped", "", Meaning.REFUSED, "no live run"),
        ("stopped", RUN, Meaning.REFUSED, "run r1 is stopped; start it, then drain it"),
        ("stopped", "next", Meaning.WAITS, "it waits for run next to begin"),
        ("drained", "", Meaning.OVER, "run r1 is drained"),
        ("drained", RUN, Meaning.OVER, "run r1 is drained"),
        ("ended", RUN, Meaning.OVER, "run r1 is ended"),
        ("drained", PAST, Meaning.OVER, "run r0 is closed"),
        ("drained", "next", Meaning.WAITS, "it waits for run next to begin"),
    ],
)
def test_what_a_drain_means(of: str | None, asked: str, meaning: Meaning, why: str) -> None:
    found = drain_verdict(None if of is None else run(of), asked)
    assert (found.meaning, found.why) == (meaning, why)


MODEL = c.SetJobModel(
    JobModel(tasks={f"Partition {n}": (StreamPartition("orders", n),) for n in range(2)}, run_id=RUN, version=1, term=1)
)
HELD = (c.SetGrant("Partition 0", 1, "w1", "000001-aa"), c.SetGrant("Partition 1", 1, "w1", "000001-aa"), MODEL)


def test_a_drain_is_listed_with_its_progress_while_it_is_under_way() -> None:
    found = open_drains(
        state(
            c.SetRequest("q", "drain", requested_by="me"),
            c.SetAnswer("q", "running", "", {"run": RUN}),
            c.SetRequest("second", "drain", requested_by="you"),
            c.SetAnswer("second", "running", "", {"run": RUN}),
            run("draining", drain="q", drain_by="me"),
            *HELD,
            c.SetTaskState("Partition 0", 1, "drained"),
            c.SetTaskState("Partition 1", 1, "draining"),
        )
    )
    assert found == [
        OpenDrain("q", RUN, "default", "me", "running", "", 1000, 1, 2),
        OpenDrain("second", RUN, "default", "you", "running", "", 1002, 1, 2),
    ]


def test_a_drain_that_has_failed_is_listed_as_long_as_its_run_drains() -> None:
    """Its request has its answer, and is deleted; the run drains on as soon as the task can."""
    [found] = open_drains(
        state(run("draining", drain="q", drain_by="me"), *HELD, c.SetTaskState("Partition 1", 1, "failed", "boom"))
    )
    assert found == OpenDrain("q", RUN, "default", "me", "running", "Partition 1: boom", None, 0, 2)


def test_a_drain_of_a_stopped_run_is_listed_and_one_that_is_over_is_not() -> None:
    [found] = open_drains(state(run("stopped", drain="q", drain_by="me")))
    assert (found.state, found.why, found.done, found.of) == ("stopped", "run r1 is stopped", 0, 0)
    assert open_drains(state(run("drained", drain="q"))) == []
    [unanswered] = open_drains(state(c.SetRequest("q", "drain"), run("drained", drain="q")))
    assert (unanswered.state, unanswered.why) == ("written", "no leader has read it yet")


def test_a_drain_that_waits_says_for_what() -> None:
    asked = c.SetRequest("a", "drain", "tonight", {"mode": "default"}, None, "me")
    assert open_drains(state(run("drained"), asked)) == [
        OpenDrain("a", "tonight", "default", "me", "written", "it waits for run tonight to begin", 1001)
    ]
    [beside] = open_drains(state(asked, run("running")))
    assert beside.why == "it waits for run tonight to begin; the live run is r1"
    [fresh] = open_drains(state(c.SetRequest("a", "drain", "", {}, 10**9, "me"), run("running")))
    assert (fresh.state, fresh.why) == ("written", "no leader has read it yet")
