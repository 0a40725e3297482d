"""An alarm rings when it is time, whichever way the deadline moved meanwhile."""

from __future__ import annotations

import asyncio

from headgate.agents.kafka.port import WallClock
from headgate.agents.port.alarm import Alarm
from headgate.core.machine import Now


class Scene(WallClock):
    """A clock that stands still, and a deadline."""

    def __init__(self) -> None:
        self.mono = 0.0
        self.deadline: float | None = None
        self.rung: list[float] = []
        self.alarm = Alarm(lambda: self.deadline, self, self.ring)

    def now(self) -> Now:
        return Now(self.mono, 0)

    def ring(self) -> None:
        self.rung.append(self.mono)
        self.deadline = None
        self.alarm.see()

    def come(self, mono: float) -> None:
        """The timer comes, at this time."""
        assert self.alarm._timer is not None
        self.mono = mono
        self.alarm._look()


def test_a_deadline_that_moves_on_keeps_its_timer_and_rings_only_when_it_is_time() -> None:
    async def story() -> None:
        one = Scene()
        one.alarm.see()
        assert one.alarm._timer is None
        one.deadline = 10.0
        one.alarm.see()
        first = one.alarm._timer
        one.deadline = 20.0
        one.alarm.see()
        assert one.alarm._timer is first
        one.come(10.0)
        assert one.rung == []
        one.come(20.0)
        assert one.rung == [20.0]
        assert one.alarm._timer is None

    asyncio.run(story())


def test_a_deadline_that_comes_nearer_takes_a_nearer_timer() -> None:
    async def story() -> None:
        one = Scene()
        one.deadline = 20.0
        one.alarm.see()
        first = one.alarm._timer
        one.deadline = 5.0
        one.alarm.see()
        assert one.alarm._timer is not first
        one.come(5.0)
        assert one.rung == [5.0]
        one.deadline = 7.0
        one.alarm.see()
        one.alarm.stop()
        assert one.alarm._timer is None

    asyncio.run(story())
