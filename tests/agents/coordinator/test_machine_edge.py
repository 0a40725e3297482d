"""What the machines of a process take for the time."""

from __future__ import annotations

from typing import Any

from headgate.agents.coordinator.machine_edge import Driven
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort
from headgate.core.machine import Now, Tick
from headgate.core.names import JobName


class Watch:
    """A machine that notes the time of each event."""

    def deadline(self) -> None:
        return None

    def __init__(self) -> None:
        self.seen: list[Now] = []

    def handle(self, event: Any, now: Now) -> list[Any]:
        self.seen.append(now)
        return []


def test_the_wall_clock_of_a_machine_is_the_brokers() -> None:
    """It is compared with append times. A worker whose clock is an hour ahead would refuse each request as expired."""
    nothing: Any = None
    machine: Any = Watch()
    port = MemoryPort(Logs({}), VirtualClock(3_600_000))
    driven = Driven(machine, nothing, port, JobName("sales"), nothing, {})
    driven.feed(Tick())
    port.broker.saw(5_000, port.clock.now())
    driven.feed(Tick())
    assert [now.wall for now in machine.seen] == [3_600_000, 5_000]
    assert len({now.mono for now in machine.seen}) == 1
