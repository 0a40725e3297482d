"""The table is whole: every state can be reached, the last ones lead nowhere else, late facts hurt nobody."""

from __future__ import annotations

from headgate.core import machine
from headgate.core.orders import RESTING, WORKING, Abandon, Release, Start, TaskState
from headgate.core.task.phase import TaskMode
from headgate.core.task.task import FACTS, GONE, OPEN, TABLE, Task


def arrows() -> set[tuple[str, str]]:
    return {(state, to) for rule in TABLE for state in rule.states for to in rule.next(state) if to != state}


def events_in(state: str, *, ignored: bool = True) -> set[type]:
    return {event for rule in TABLE if state in rule.states and (rule.to or ignored) for event in rule.events}


def test_every_state_is_reached_and_named():
    reached, queue = {TaskMode.WAITING}, [TaskMode.WAITING]
    while queue:
        state = queue.pop()
        for one, to in arrows():
            if one == state and to not in reached:
                reached.add(to)
                queue.append(to)
    assert reached == set(TaskMode)
    assert {state for rule in TABLE for state in rule.states} == set(TaskMode)


def test_the_table_can_be_read():
    """It taught nobody anything: 356 rows of which most changed nothing, and 71 arrows."""
    assert len(TABLE) <= 80
    assert len(machine.arrows(Task)) <= 15


def test_each_mode_shows_as_a_phase_and_work_and_rest_as_several():
    shown = {*TaskMode} - {TaskMode.WORKING, TaskMode.RESTING, TaskMode.CLOSING}
    assert shown | {*WORKING, *RESTING} == set(TaskState)


def test_whoever_is_gone_stays_gone():
    assert {arrow for arrow in arrows() if arrow[0] in GONE} == {("failed", "released"), ("failed", "abandoned")}


def test_late_facts_hurt_no_one():
    for state in GONE:
        assert events_in(state) >= set(FACTS)
        assert not events_in(state, ignored=False) & set(FACTS)


def test_every_state_that_holds_something_can_be_released_and_abandoned():
    for state in OPEN:
        assert {Release, Abandon} <= events_in(state, ignored=False)
        assert Start not in events_in(state)
    assert all(rule.why for rule in TABLE)
