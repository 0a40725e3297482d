"""What a worker says of its batches in a heartbeat: sums by step, within bounds."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Bag
from typing import Any

import pytest

from headgate.agents.status.batches import load_documents
from headgate.agents.worker.load.batch_load import (
    BatchLoad,
    load_of_step,
    memory_of_load,
    spark_load,
    spark_of_load,
)
from headgate.agents.worker.load.step_facts import load_of_steps, steps_of_load, summed
from headgate.core.batching.batch_progress import AtSpark, BatchSeen, SparkMemory, SparkState, StepBatches, Tally


def batch(number: int, state: str, **more: int | str | None) -> BatchSeen:
    return BatchSeen(f"t/daily/{number}", "t", "daily", number, state, rows=10, size=100, **more)  # type: ignore[arg-type]


def test_a_step_is_counted_by_state_with_its_oldest() -> None:
    """The oldest that Spark owes: not the open one, and not one whose result is here. Closed elsewhere, it counts from its first row."""
    one = StepBatches(
        "t",
        "daily",
        (
            batch(1, "returned", closed_ms=1),
            batch(2, "running", closed_ms=30, error="x"),
            batch(3, "closed", opened_ms=20),
            batch(4, "open", opened_ms=5),
        ),
        tally=Tally(done=5, rows=50, retried=2, poisoned=1),
    )
    found = load_of_step(one)
    assert found == BatchLoad("daily", 1, 1, 1, 1, 40, 400, 1, 5, 50, 2, 1, oldest_ms=20)
    assert summed([found, BatchLoad("daily", 1), BatchLoad("all")]) == [
        BatchLoad("all"),
        BatchLoad("daily", 2, 1, 1, 1, 40, 400, 1, 5, 50, 2, 1, oldest_ms=20),
    ]


def test_what_a_sink_holds_up_comes_through_heartbeats() -> None:
    """How many tasks take no more, and that it is a sink. A heartbeat of an older version says neither."""
    held = StepBatches("t", "daily", (batch(1, "running"),), to_sink=True, held=True)
    of_all = summed([load_of_step(held), load_of_step(replace(held, task="u", held=False))])
    (found,) = steps_of_load(BatchLoad, load_of_steps(of_all, 1_000))
    assert (found.held, found.to_sink, found.running) == (1, 2, 2)
    (older,) = steps_of_load(BatchLoad, {"batches.open.daily": 1.0})
    assert (older.held, older.to_sink) == (0, 0)


@pytest.mark.parametrize(
    ("to_sink", "waiting"), [(1, "2 batches of 'daily' wait for its sink"), (0, "3 batches of 'daily' wait for Spark")]
)
def test_what_a_sink_has_written_does_not_wait_for_it(to_sink: int, waiting: str) -> None:
    """It waits for a commit. What Spark has returned counts: it is held up until its results are written."""
    load = BatchLoad("daily", closed=1, running=1, returned=1, held=1, to_sink=to_sink)
    (document,) = load_documents([load], now_ms=0)
    assert document["told"] == f"1 task takes no more records: {waiting}"


@pytest.mark.parametrize("most", [0, 300, 10_000])
def test_no_more_than_fits_is_said(most: int) -> None:
    """However many steps there are. A step without a batch is said, too."""
    some = [BatchLoad(f"s{n}", n, 2, 0, 1, oldest_ms=n or None) for n in range(20)]
    load = load_of_steps(some, most)
    found = steps_of_load(BatchLoad, load)
    assert found == some[: len(found)]
    assert sum(len(name) + 12 for name in load) <= most
    assert (len(found) == 20) == (most == 10_000)


def test_a_state_of_a_newer_version_is_unknown() -> None:
    """Workers of different versions read each other's heartbeats."""
    assert spark_of_load({"spark": 99.0}) is None


def test_memory_of_spark_comes_through_heartbeats() -> None:
    """With its bounds, where there are any."""
    taken = (SparkMemory("jvm", 700), SparkMemory("heap", 300, 900), SparkMemory("python", 160, 2_000, 2))
    bridge: Any = Bag(seen=lambda: AtSpark(SparkState("ready", taken=taken)))
    assert tuple(memory_of_load(spark_load(bridge))) == taken
    assert spark_load(None) == {}
    assert memory_of_load({"spark": 1.0, "ready": 1.0}) == []
