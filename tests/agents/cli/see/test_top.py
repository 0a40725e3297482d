"""The screen of `headgate top`: what hurts comes first, in terminals of any width."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.agents.cli.see.top import lines_of
from headgate.agents.status.slow import top


def status(**more: Any) -> dict[str, Any]:
    """The status of a job with a slow step, as far as `top` reads it."""
    holder = {"who": "orders:1", "why": "behind"}
    times = [{"place": "orders", "kind": "stream", "lag_s": 75.0, "held_by": [holder]}]
    found: dict[str, Any] = {
        "job": "sales/1",
        "lag": 1200,
        "run": {"state": "running"},
        "tasks": [
            {"task": "Partition 0", "worker": "w1", "state": "running", "why": ""},
            {"task": "Partition 1", "worker": "w2", "state": "running", "why": ""},
        ],
        "times": times,
        "streams": [{"stream": "rates", "lag": 0}, {"stream": "orders", "lag": 1200}],
        "steps": [
            {"step": "score", "busy": 1.5, "share": 0.93, "rows_s": 800},
            {"step": "orders", "busy": 0.1, "share": 0.0665, "rows_s": 800},
            {"step": "to", "busy": 0.001, "share": 0.0004, "rows_s": 20},
        ],
        "waits": [{"reason": "alignment", "a_minute": 30}],
        "errors": [{"step": "score", "error": "KeyError", "times": 12, "a_minute": 3}],
        "batches": [],
        "workers": [
            {"processor": "w1", "alive": True, "ready": True, "loop": 0.81, "starved": None},
            {"processor": "w2", "alive": True, "ready": True, "loop": 0.98, "starved": 0.02},
        ],
    }
    return found | more


def test_the_slow_step_is_named_first() -> None:
    """In the sentence, and on top of the steps."""
    lines = list(lines_of(top(status()), 100))
    assert lines == [
        "sales/1  running  lag 1,200",
        "step 'score' is what is slow: 93 % of the work, 800 rows/s; the busiest worker is at 98 % of a",
        "processor",
        "",
        "STEP    SHARE  BUSY   ROWS/S",
        "score   93 %   150 %  800",
        "orders  7 %    10 %   800",
        "to      <1 %   <1 %   20",
        "",
        "STREAM  LAG    WATERMARK DELAY  HELD BY",
        "orders  1,200  1m               orders:1",
        "rates   0      -                -",
        "",
        "WAITS FOR  A MINUTE",
        "alignment  30",
        "",
        "FAILS  WITH      TIMES  A MINUTE",
        "score  KeyError  12     3",
        "",
        "WORKER  STATE  LOOP  STARVED",
        "w2      ready  98 %  2 %",
        "w1      ready  81 %  -",
    ]


def test_what_a_slow_sink_holds_up_is_named() -> None:
    """It is the first sentence, unless a step takes what a processor has."""
    told = "1 task takes no more records: 5 batches of 'to-sql' wait for its sink, the oldest for 42 s"
    batches = [{"step": "all", "held": 0, "told": ""}, {"step": "to-sql", "held": 1, "told": told}]
    worker = {"processor": "w1", "alive": True, "ready": True, "loop": 0.03, "starved": 0.0}
    lines = list(lines_of(top(status(batches=batches, steps=[], workers=[worker])), 200))
    assert lines[1] == f"{told}: headgate batches sales/1 shows why"
    assert f"HELD UP {told}" in lines
    assert f"HELD UP {told}" in list(lines_of(top(status(batches=batches)), 200))[2:]


def test_a_failed_task_comes_before_everything_with_what_to_do() -> None:
    """Its reason may hold data, which must not steer the terminal."""
    tasks = [{"task": "Partition 1", "worker": "w2", "state": "failed", "why": "map raised ValueError: \x1b[2J"}]
    lines = list(lines_of(top(status(tasks=tasks)), 100))
    assert lines[1:5] == [
        "1 failed task: nothing of it is processed",
        "",
        "FAILED Partition 1 on w2: map raised ValueError: \\x1b[2J",
        '  headgate status sales/1 --why "Partition 1"',
    ]


@pytest.mark.parametrize("wide", [20, 40, 80])
def test_no_line_breaks_in_a_narrow_terminal(wide: int) -> None:
    """The name of a step gives way before its numbers do, and what to do is wrapped, not cut."""
    steps = [{"step": "a-step-whose-name-says-all-of-it", "busy": 0.9, "share": 1.0, "rows_s": 7}]
    tasks = [{"task": "Partition 1", "worker": "w2", "state": "failed", "why": "x" * 90}]
    lines = list(lines_of(top(status(steps=steps, tasks=tasks)), wide))
    assert max(map(len, lines)) <= wide
    assert any("100 %" in line for line in lines)
    assert "headgate status sales/1 --why" in " ".join(lines).replace("  ", " ")


def test_a_job_without_workers_has_a_screen() -> None:
    """Before its first start, and after its last worker has gone."""
    gone = [{"processor": "w1", "alive": False, "ready": False, "loop": None, "starved": None}]
    before = top(status(run=None, lag=None, tasks=[], times=[], streams=[], steps=[], waits=[], errors=[], workers=[]))
    after = top(status(steps=[], waits=[], workers=gone))
    assert before["verdict"] == after["verdict"] == "no worker runs"
    assert list(lines_of(before, 80)) == ["sales/1  no run yet  lag unknown", "no worker runs"]
    assert list(lines_of(after, 80))[-1] == "w1      silent  -     -"


@pytest.mark.parametrize(
    ("starved", "says"), [(None, "it blocks (await it), or others take the machine"), (0.02, "it blocks (await it)")]
)
def test_a_step_that_waits_while_it_holds_the_loop_is_named_as_such(starved: float | None, says: str) -> None:
    """A call that blocks takes no processor, and holds up everything all the same. Where the system says how long the loop has waited for
    a processor, the other cause is ruled out."""
    workers = [{"processor": "w1", "alive": True, "ready": True, "loop": 0.05, "starved": starved}]
    steps = [{"step": "ask", "busy": 0.9, "share": 0.99, "rows_s": 3}]
    assert top(status(workers=workers, steps=steps))["verdict"].endswith(says)


def test_a_worker_that_others_keep_from_the_processor_is_still_bound_by_its_step() -> None:
    """What a step takes is counted without the time in which others had the processor, so neither share alone is great."""
    workers = [{"processor": "w1", "alive": True, "ready": True, "loop": 0.3, "starved": 0.65}]
    steps = [{"step": "score", "busy": 0.28, "share": 0.93, "rows_s": 90}]
    of_step, of_loop = (top(status(workers=workers, steps=some))["verdict"] for some in (steps, []))
    at = "at 30 % of a processor, and waits for one for 65 % of the time: others take the machine, or a limit does"
    assert of_step == f"step 'score' is what is slow: 93 % of the work, 90 rows/s; the busiest worker is {at}"
    assert of_loop == f"the main loop is {at}; not in steps: commits, fetches, many tasks"
