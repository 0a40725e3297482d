"""What takes the time of a worker, through heartbeats, and what a job makes of those of all workers."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.agents.status.slow import error_documents, step_documents
from headgate.agents.step_work import StepTotals
from headgate.agents.worker.load.step_facts import steps_of_load, summed
from headgate.agents.worker.load.work_load import (
    SPAN_S,
    Rates,
    StepErrors,
    StepRate,
    StreamLag,
    WaitRate,
    counted,
    error_load,
    work_load,
)
from headgate.core.names import StreamPartition


def load(ns: int, rows: int, most: int = 2_000) -> dict[str, float]:
    """Of a worker whose step took so long, and had so many rows, within two seconds."""
    steps, rates, waits = StepTotals(), Rates(), Counter({"waited.paused": 3})
    steps.of("map")
    assert work_load(rates.look(counted(steps, [waits], None), 10.0), [], most) == {}
    steps.of("map").ns, steps.of("map").rows = ns, rows
    steps.of("later").ns = ns // 4
    waits["waited.paused"] = 5
    at = StreamPartition("orders", 0)
    lags = [{at: 4, StreamPartition("orders", 1): None}, {StreamPartition("orders", 2): 3}]
    return work_load(rates.look(counted(steps, [waits], None), 12.0), lags, most)


def test_what_two_workers_say_is_added_up() -> None:
    """By step, whichever tasks they run."""
    loads = [load(1_000_000_000, 500), load(3_000_000_000, 100)]
    assert summed(one for each in loads for one in steps_of_load(StreamLag, each)) == [StreamLag("orders", 14)]
    assert summed(one for each in loads for one in steps_of_load(WaitRate, each)) == [WaitRate("paused", 120)]
    steps = summed(one for each in loads for one in steps_of_load(StepRate, each))
    assert step_documents(steps) == [
        {"step": "map", "busy": 2.0, "share": 0.8, "rows_s": 300},
        {"step": "later", "busy": 0.5, "share": 0.2, "rows_s": 0},
    ]


def test_the_steps_that_take_most_are_said_if_not_all_fit() -> None:
    """A heartbeat has its limit; who is slow must be in it."""
    found = load(1_000_000_000, 500, most=70)
    assert (steps_of_load(StepRate, found), steps_of_load(StreamLag, found)) == (
        [StepRate("map", 500_000, 250)],
        [StreamLag("orders", 7)],
    )


@pytest.mark.parametrize("every_s", [0.1, 0.5, 3.0])
def test_a_rate_is_of_the_last_seconds(every_s: float) -> None:
    """What was before them is forgotten, however often it is looked at."""
    rates, rows, now_s, seen = Rates(), 0.0, 0.0, dict[str, float]()
    while now_s < 60:
        rows += 1000 * every_s if now_s < 30 else 10 * every_s
        now_s += every_s
        seen = rates.look({"rows": rows}, now_s)
        if now_s == pytest.approx(30):
            assert seen["rows"] == pytest.approx(1000)
    assert seen["rows"] == pytest.approx(10)
    assert SPAN_S < 30


def test_a_step_that_comes_later_has_begun_at_nothing() -> None:
    """A task that has just come here brings its steps."""
    rates = Rates()
    rates.look({"busy.a": 5}, 0.0)
    assert rates.look({"busy.a": 5, "busy.b": 8}, 2.0) == {"busy.a": 0.0, "busy.b": 4.0}


def test_the_errors_of_all_workers_are_added_up() -> None:
    """By step and class, those that come now first. One that comes no more is still there."""
    loads = list[dict[str, float]]()
    for more in (4, 0):
        rates, counts = Rates(), Counter({"failed.map|KeyError": 9, "failed.a|b|ValueError": 1, "waited.paused": 3})
        rates.look(counted(StepTotals(), [counts], None), 10.0)
        counts["failed.a|b|ValueError"] += more
        work = counted(StepTotals(), [counts], None)
        loads.append(error_load(work, rates.look(work, 12.0), 500))
    assert loads[1] == {"errors.map|KeyError": 9.0, "errors.a|b|ValueError": 1.0}
    assert error_documents(summed(one for each in loads for one in steps_of_load(StepErrors, each))) == [
        {"step": "a|b", "error": "ValueError", "times": 6, "a_minute": 120},
        {"step": "map", "error": "KeyError", "times": 18, "a_minute": 0},
    ]
    assert error_load({"errors.map|KeyError": 9.0, "errors.later|ValueError": 1.0}, {}, 40) == {
        "errors.map|KeyError": 9.0
    }
