"""Why a job does not move: every reason has whom it waits for, and what to do."""

from __future__ import annotations

import doctest
from typing import Any

from headgate.agents.coordinator import heard
from headgate.agents.status import flow, history, job_view, recent, standing
from headgate.agents.status.recent import SAMPLES, RecentNumbers, sample_of
from headgate.core.coordination import messages as c
from headgate.core.coordination.state import JobState

RUN = {"id": "r1", "state": "running", "why": "", "paused": False, "paused_streams": []}


def status(**more: Any) -> dict[str, Any]:
    """The status of a job that works."""
    found: dict[str, Any] = {"job": "sales/1", "run": RUN, "leader": {"processor": "w1"}, "drain": None, "warnings": []}
    found |= {
        "workers": [{"processor": "w1", "alive": True, "loop": 0.5, "starved": 0.1}],
        "workers_wanted": None,
        "tasks": [task("a")],
    }
    return found | {"times": [], "streams": [], "waits": [], "errors": [], "batches": [], "steps": [], "lag": 0} | more


def task(name: str, state: str = "running", **more: Any) -> dict[str, Any]:
    found = {"task": name, "worker": "w1", "wanted": "w1", "state": state, "why": "", "restore_left": None}
    return {**found, "letter": None, "parked": 0, "lag": 0, **more}


def told(*, away_s: float | None = None, by: str = "", **more: Any) -> list[tuple[str, ...]]:
    return [(o["kind"], o["what"], o["who"], o["todo"]) for o in standing.standing(status(**more), away_s, by)]


def test_examples() -> None:
    for module in (flow, heard, history, job_view, recent, standing):
        assert doctest.testmod(module).failed == 0


def test_a_job_that_works_has_no_reasons() -> None:
    assert told() == []


def test_a_pause_says_who_asked_and_how_it_ends() -> None:
    run = {**RUN, "paused": True, "paused_streams": ["rates"]}
    assert told(run=run, by="ann") == [
        ("waits", "the job is paused", "requested by ann", "headgate resume sales"),
        ("waits", "rates is paused", "requested by ann", "headgate resume sales --stream rates"),
    ]


def test_a_drain_says_whom_it_waits_for() -> None:
    drain = {"by": "ann", "done": 1, "of": 2, "failed": [], "streams": [], "waiting": [], "todo": ""}
    tasks = [task("Partition 0", "drained"), task("Partition 1", "draining", lag=7)]
    [(kind, what, who, _)] = told(run={**RUN, "state": "draining"}, drain=drain, tasks=tasks)
    assert (kind, what) == ("waits", "the job drains: 1 of 2 tasks are done")
    assert who == "requested by ann; Partition 1 on w1: draining, 7 records behind"


def test_what_is_bad_comes_first() -> None:
    """A worker that is silent, and leads; a letter that takes long; a broker that does not answer."""
    workers = [{"processor": "w1", "alive": False}, {"processor": "w2", "alive": True}]
    tasks = [task("a", "silent"), task("b", "restoring", worker="w2", wanted="w2", restore_left=1200)]
    tasks.append(task("c", worker="w2", wanted="w1", letter={"what": "orders[1] 5-9", "for_s": 61.0}, parked=3))
    found = told(workers=workers, workers_wanted=3, tasks=tasks, away_s=12.0)
    assert [what for kind, what, *_ in found if kind == "bad"] == [
        "no broker has answered this worker for 12 s: what is shown is older than that",
        "no worker leads: no one places tasks, and no request is answered",
        "no heartbeats from w1",
        "1 task is of silent workers: they move after session.timeout",
        "c works on orders[1] 5-9 for 61 s",
    ]
    assert [what for kind, what, *_ in found if kind == "waits"][1:] == [
        "1 task is restoring: 1,200 records to replay",
        "1 task is about to move",
        "3 records are parked",
    ]


def test_who_holds_event_time_is_named_once_it_has_stood_for_long() -> None:
    failed = {"who": "Partition 3", "why": "behind", "worker": "w1", "state": "failed"}
    idle = {"who": "orders:2", "why": "idle", "worker": None, "state": None}
    held = {"place": "orders", "watermark": None, "held_by": [failed, idle]}
    assert told(times=[{**held, "stands_s": 5.0}]) == []
    [(_, what, who, _)] = told(times=[{**held, "stands_s": 95.0}])
    assert (what, who) == (
        "event time of orders has stood for 95 s",
        "held by Partition 3 on w1 (failed), orders:2 (idle)",
    )
    waits = {"waits": [{"reason": "alignment", "a_minute": 40}], "streams": [{"stream": "orders", "lag": 3}]}
    assert told(**waits)[0][1] == "tasks wait although records are buffered: alignment (40 times a minute)"


def test_who_paused_is_the_last_that_asked_for_it() -> None:
    paused = c.SetRun("r1", "d", c.RunState.RUNNING, "u", paused_job=True)
    state = JobState().fold([c.Entry(0, c.key_of(paused), paused)])
    asked = [("pause", "ann"), ("resume", "ann"), ("pause", "bob"), ("seek", "eve")]
    assert (standing.paused_by(state, asked), standing.paused_by(state, []), standing.paused_by(JobState(), asked)) == (
        "bob",
        "",
        "",
    )


def test_the_ring_is_bounded_and_what_is_unknown_is_a_gap() -> None:
    """Ten minutes, whoever looks; a step that came later has a gap before."""
    ring = RecentNumbers()
    ring.take(sample_of(status(lag=None), ["orders"]), 0.0)
    assert not ring.due(3.0)
    assert ring.due(5.0)
    steps = [{"step": "orders", "rows_s": 9, "busy": 0.25}]
    ring.take(sample_of(status(lag=7, steps=steps, streams=[{"stream": "orders", "lag": 7}]), ["orders"]), 5.0)
    found = ring.document(5.0)
    assert (found["rows_s"], found["lag"], found["lag_trend"]) == ([None, 9.0], [None, 7.0], None)
    assert (found["steps"], found["streams"]) == ({"orders": [None, 0.25]}, {"orders": [None, 7.0]})
    assert found["workers"] == {"w1": [0.5, 0.5]}
    for n in range(1000):
        ring.take({"lag": 1.0}, 10.0 + 5 * n)
    assert len(ring.document(5005.0)["lag"]) == SAMPLES
