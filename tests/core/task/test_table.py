"""The table is whole: every state can be reached, the last ones lead nowhere else, late facts hurt nobody."""

from __future__ import annotations

from headgate.core.orders import RESTING, WORKING, Abandon, Release, Start, TaskState
from headgate.core.task.task import FACTS, GONE, TABLE


def arrows() -> set[tuple[str, str]]:
    return {(rule.state, to) for rule in TABLE for to in rule.to if to != rule.state}


def test_every_state_is_reached_and_named():
    reached, queue = {TaskState.WAITING}, [TaskState.WAITING]
    while queue:
        state = queue.pop()
        for one, to in arrows():
            if one == state and to not in reached:
                reached.add(to)
                queue.append(to)
    assert reached == set(TaskState)
    assert {rule.state for rule in TABLE} == set(TaskState)


def test_whoever_is_gone_stays_gone():
    assert {arrow for arrow in arrows() if arrow[0] in GONE} == {("failed", "released"), ("failed", "abandoned")}


def test_late_facts_hurt_nobody():
    for state in GONE:
        assert {rule.event for rule in TABLE if rule.state == state} >= set(FACTS)


def test_every_state_that_holds_something_can_be_released_and_abandoned():
    for state in (*WORKING, TaskState.RESTORING, *RESTING):
        events = {rule.event for rule in TABLE if rule.state == state}
        assert {Release, Abandon} <= events
        assert Start not in events
    assert all(rule.why for rule in TABLE)
