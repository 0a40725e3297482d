"""What a task shows: where it stands, what holds its time, and what it still owes."""

from __future__ import annotations

from headgate.core.progress.frames import Watermark
from tests.core.task_rig import BY, BY0, ME, ORDERS, ORDERS0, RATES0, Rig, bootstrap_plan, merged, run_view, source_plan


def test_a_view_shows_where_a_task_stands_and_who_holds_its_time() -> None:
    """Of a stream, its producer; of a step, the stream; what waits for nobody is no place."""
    view = merged().task.view
    assert (dict(view.positions), view.topics.get(ORDERS0, ""), dict(view.adopted)) == ({ORDERS0: 5, BY0: 1}, "", {})
    assert (dict(view.closed), view.finished, [*view.bootstrap]) == ({}, False, [])
    assert (view.heard, view.watermarks) == ({ORDERS: 200, BY: 50}, {ORDERS: 200, BY: 50})
    assert (view.time_of(ORDERS0), dict(view.newest)) == (200, {ORDERS: 200})
    assert dict(view.times()) == {ORDERS: 200, BY: 50, "step both": 50, "step one": 200}
    assert view.holders(BY) == [(50, "a", "behind")]
    assert view.holders("step both") == [(50, BY, "behind")]
    assert view.owes() == [BY]


def test_a_view_names_what_is_read_first_and_bounds_what_other_jobs_say() -> None:
    """A bootstrap partition leaves it when it is read; a watermark that is far ahead of the broker counts as less."""
    view = Rig(bootstrap_plan()).start(run_view(ME)).task.view
    assert [*view.bootstrap] == [RATES0]
    plan = source_plan(ahead_ms=10)
    said = Watermark("up/1", "r", "a", 1, 1, 500)
    assert Rig(plan).start(run_view(ME)).task.view.believed(ORDERS0, said, 100).ts == 110
