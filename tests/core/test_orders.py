"""Orders and reports between member and task are plain values: equal when they say the same, and never changed on the way."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from headgate.core import orders
from headgate.core.orders import (
    Abandon,
    ProducerSet,
    Release,
    RunChanged,
    RunView,
    Seek,
    SeekApplied,
    Start,
    TaskReported,
    Unpark,
)

RUN = RunView("r1", "u1")


def test_a_run_begins_with_nothing_draining_paused_or_produced():
    assert (RUN.draining, RUN.paused_job, RUN.paused_streams, dict(RUN.producers)) == (None, False, frozenset(), {})
    with pytest.raises(TypeError):
        RUN.producers["s"] = ProducerSet("s", 1, frozenset())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Start("Partition 0", 1, RunView("r1", "u1"), 0),
        lambda: RunChanged(RunView("r1", "u1", draining="d1")),
        lambda: Release("moved"),
        lambda: Abandon("fenced"),
        lambda: Seek("uuid", "orders", 0, ("time", 5)),
        lambda: TaskReported("Partition 0", 1, orders.TaskState.RELEASED),
        lambda: SeekApplied("Partition 0", "uuid"),
        lambda: ProducerSet("s", 1, frozenset({"Partition 0"})),
    ],
)
def test_words_are_values(make):
    assert make() == make()
    name = type(make()).__slots__[0]
    with pytest.raises(FrozenInstanceError):
        setattr(make(), name, "other")


def test_every_order_and_every_report_is_named_in_its_union():
    assert set(get_args(orders.Order)) == {Start, RunChanged, Release, Abandon, Seek, Unpark}
    assert set(get_args(orders.Report)) == {TaskReported, SeekApplied}
    assert set(orders.REPORTED) < set(orders.TaskState)
