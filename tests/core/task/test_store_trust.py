"""A store is trusted only while nothing can have been missed; starts and ends are decided once."""

from __future__ import annotations

import pytest

from headgate.core.names import StreamPartition as SP
from headgate.core.task.plan import FOREIGN, INTERMEDIATE, InputPlan
from headgate.core.task.protocol import LogEnds, StoreOpened
from headgate.core.task.store_trust import beginning, distrust

LOG = LogEnds(10, 50, 1000)


@pytest.mark.parametrize(
    ("store", "why"),
    [
        (StoreOpened(), ""),
        (StoreOpened(50, "u", 0), ""),
        (StoreOpened(50, "u", None), ""),
        (StoreOpened(20, "u", 9_501), ""),
        (StoreOpened(20, "u", 9_500), "500 ms ago"),
        (StoreOpened(20, "u", None), "it is unknown when"),
        (StoreOpened(20, "u", 10_001), "the clock was set back"),
        (StoreOpened(50, "u", 10_001), ""),
        (StoreOpened(9, "u", 10_000), "begins at 10"),
        (StoreOpened(51, "u", 10_000), "re-created"),
        (StoreOpened(50, "v", 10_000), "job uuid v"),
        (StoreOpened(50, None, 10_000), "job uuid None"),
    ],
)
def test_whether_a_store_may_be_used(store, why):
    answer = distrust(store, LOG, "u", 10_000)
    assert (why in answer) if why else answer == ""


A0, A1 = SP("a", 0), SP("a", 1)


def test_a_first_start_asks_for_what_is_not_a_number():
    plans = [
        InputPlan("a", (0, 1), 2, start="newest", until=("time", 5), until_of={1: 30}),
        InputPlan("b", (0,), 1, start=7),
        InputPlan("i", (0,), 1, INTERMEDIATE, until=3),
        InputPlan("f", (0,), 1, FOREIGN),
    ]
    begin = beginning(plans, {}, {}, new_run=True)
    assert begin.positions == {SP("b", 0): 7}
    assert begin.until == {A1: 30}
    assert begin.ask_positions == {A0: "newest", A1: "newest", SP("i", 0): "oldest", SP("f", 0): "oldest"}
    assert begin.ask_until == {A0: ("time", 5)}
    assert begin.news


def test_a_restart_knows_everything():
    plans = [InputPlan("a", (0, 1), 2, until="newest")]
    begin = beginning(plans, {A0: 5, A1: 6}, {A0: 10, A1: 10}, new_run=False)
    assert (begin.positions, begin.until, begin.ask_until, begin.news) == ({A0: 5, A1: 6}, {A0: 10, A1: 10}, {}, False)


def test_a_partition_that_is_new_to_the_task_begins_where_it_was_declared():
    begin = beginning([InputPlan("a", (0, 1), 2)], {A0: 5}, {}, new_run=False)
    assert (begin.positions, begin.ask_positions, begin.news) == ({A0: 5}, {A1: "oldest"}, True)


def test_a_new_run_asks_for_its_bounds_again():
    begin = beginning([InputPlan("a", (0,), 1, until="newest")], {A0: 5}, {A0: 10}, new_run=True)
    assert (begin.positions, begin.ask_until, begin.news) == ({A0: 5}, {A0: "newest"}, True)
