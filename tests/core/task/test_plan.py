"""What a plan says about its inputs."""

from __future__ import annotations

from dataclasses import replace

from headgate.core.names import StreamPartition as SP
from headgate.core.progress.frames import MAX_TIME, EndOfStream, Watermark
from headgate.core.task.plan import FOREIGN, INTERMEDIATE, InputPlan, OutputPlan, TaskPlan, TaskSettings


def test_what_is_external_and_what_is_framed():
    kinds = [InputPlan("a", (0,), 1), InputPlan("b", (0,), 1, INTERMEDIATE), InputPlan("c", (0,), 1, FOREIGN)]
    assert [one.external for one in kinds] == [True, False, True]
    assert [one.framed for one in kinds] == [False, True, True]


def test_bounds_of_single_partitions_go_before_those_of_the_stream():
    one = InputPlan("a", (0, 2), 3, until="newest", until_of={2: 9})
    assert one.owned == (SP("a", 0), SP("a", 2))
    assert (one.bound(0), one.bound(2), InputPlan("a", (0,), 1).bound(0)) == ("newest", 9, None)


def test_where_a_run_has_resolved_its_starts_later_partitions_begin_at_their_beginning():
    one = InputPlan("a", (0, 1), 2, start="newest", start_of={0: 7})
    assert (one.begin(0), one.begin(1)) == (7, "oldest")
    assert InputPlan("a", (0,), 1, start="newest").begin(0) == "newest"


def test_a_plan_is_a_value():
    make = lambda: TaskPlan("j/1", "Partition 0", (InputPlan("a", (0,), 1),), (OutputPlan("o", 2, frozenset({"a"})),))  # noqa: E731
    assert make() == make()
    assert make().settings == TaskSettings()


def test_no_producer_moves_time_further_ahead_than_its_records_may_be():
    """A watermark of the year 2099 from a job that does not judge its times: the rows of now are not late for good."""
    one = InputPlan("a", (0,), 1, FOREIGN, ahead_ms=50)
    frame = Watermark("j/1", "r", "t", 1, 0, 1_000)
    assert one.believed(frame, 100) == replace(frame, ts=150)
    for same, now_ms, plan in (
        (replace(frame, ts=140), 100, one),
        (replace(frame, ts=MAX_TIME), 100, one),
        (frame, None, one),
        (frame, 100, replace(one, ahead_ms=None)),
        (EndOfStream("j/1", "r", "t", 1, 0), 100, one),
    ):
        assert plan.believed(same, now_ms) == same
