"""What tasks leave behind is let go, and looking for it takes little of the time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from headgate.agents.worker.garbage import LATER_S, PAUSE_S, PAUSES, Garbage


class Circle:
    """A task is one: what belongs to it refers to it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def seldom() -> Iterator[None]:
    """The collector is that of a worker."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, 20, 100)
    yield
    gc.set_threshold(*before)


def test_a_task_that_has_gone_is_let_go() -> None:
    """Also if another one has come in its place; and what was held for longer, a minute later."""
    now_s = [100.0]
    tasks, garbage = [Circle(), Circle()], Garbage(lambda: now_s[0])
    assert not garbage.turn(tasks)
    gone, closing = weakref.ref(tasks[0]), [tasks[1]]
    tasks[:] = [Circle()]
    assert gone() is not None
    assert garbage.turn(tasks)
    assert gone() is None
    later = weakref.ref(closing.pop())
    now_s[0] += LATER_S - 0.01
    assert not garbage.turn(tasks)
    assert later() is not None
    now_s[0] += 0.02
    assert garbage.turn(tasks)
    assert later() is None
    now_s[0] += LATER_S
    assert not garbage.turn(tasks)


def test_looking_for_it_takes_a_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that goes meanwhile is let go behind the pause, which is as long as the last collection asks for."""
    now_s = [100.0]

    def collect() -> int:
        now_s[0] += took_s
        return 0

    monkeypatch.setattr("headgate.agents.worker.garbage.gc.collect", collect)
    for took_s, pause_s in ((0.001, PAUSE_S), (0.5, PAUSES * 0.5), (0.0, PAUSE_S)):
        garbage = Garbage(lambda: now_s[0])
        garbage.turn([task := Circle()])
        assert garbage.turn([])
        began_s = now_s[0] - took_s
        garbage.turn([task])
        now_s[0] = began_s + pause_s - 0.01
        assert not garbage.turn([])
        now_s[0] = began_s + pause_s + 0.01
        assert garbage.turn([])
