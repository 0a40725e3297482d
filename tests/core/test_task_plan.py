"""What a plan says about its inputs."""

from __future__ import annotations

from headgate.core.names import StreamPartition as SP
from headgate.core.task_plan import FOREIGN, INTERMEDIATE, InputPlan, OutputPlan, TaskPlan, TaskSettings


def test_what_is_external_and_what_is_framed():
    kinds = [InputPlan("a", (0,), 1), InputPlan("b", (0,), 1, INTERMEDIATE), InputPlan("c", (0,), 1, FOREIGN)]
    assert [one.external for one in kinds] == [True, False, True]
    assert [one.framed for one in kinds] == [False, True, True]


def test_bounds_of_single_partitions_go_before_those_of_the_stream():
    one = InputPlan("a", (0, 2), 3, until="newest", until_of={2: 9})
    assert one.owned == (SP("a", 0), SP("a", 2))
    assert (one.bound(0), one.bound(2), InputPlan("a", (0,), 1).bound(0)) == ("newest", 9, None)


def test_a_plan_is_a_value():
    make = lambda: TaskPlan("j/1", "Partition 0", (InputPlan("a", (0,), 1),), (OutputPlan("o", 2, frozenset({"a"})),))  # noqa: E731
    assert make() == make()
    assert make().settings == TaskSettings()
