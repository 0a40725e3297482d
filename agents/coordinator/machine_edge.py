"""Drives one of the two machines: feeds it events, carries out its instructions in order, and keeps its deadline.

Instructions that take time run in the background, and their results come back as events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.coordination import events as ce
from ...core.coordination import messages as c
from ...core.machine import Machine, Now, Tick
from ...core.names import JobName
from ..cancellation import answered
from ..logger import Logger
from ..port.alarm import Alarm
from ..port.outlasting import outlasted
from ..port.port import Port, Process
from .coordinator_stream import CoordinatorReader, fence

log = Logger("headgate.coordination")


class Driven:
    """Drives the member or the leader of a process. It carries out itself the instructions that both machines have."""

    def __init__(
        self,
        machine: Machine[Any, Any],
        process: Process,
        port: Port,
        job: JobName,
        reader: CoordinatorReader,
        handlers: Mapping[type[Any], Callable[[Any], None]],
    ) -> None:
        """`handlers`: how to carry out the instructions that only this machine has."""
        self._machine = machine
        self._process = process
        self._port = port
        self._job = job
        self._reader = reader
        self._handlers = {c.AskEnd: self._ask_end, ce.Fence: self._fence, ce.JobNote: self._note, **handlers}
        self._alarm = Alarm(machine.deadline, port.clock, lambda: self.feed(Tick()))
        self._stopped = False

    def feed(self, event: Any) -> None:
        """Feed one event to the machine, and carry out its instructions."""
        if self._stopped:
            return
        for instruction in self._machine.handle(event, self._now()):
            self._handlers[type(instruction)](instruction)
        self._alarm.see()

    def _now(self) -> Now:
        """What the machine takes for the wall clock is the broker's time: it compares that with append times of the stream, whatever the
        clocks of workers and of commands say.
        """
        now = self._port.clock.now()
        broker_ms = self._port.broker.ms(now)
        return now if broker_ms is None else Now(now.mono, broker_ms)

    def stop(self) -> None:
        """Feed nothing more."""
        self._stopped = True
        self._alarm.stop()

    def _ask_end(self, order: c.AskEnd) -> None:
        async def work() -> None:
            self.feed(c.End(await outlasted(self._reader.end), order.ticket))

        self._process.spawn(work, "end of the coordinator stream")

    def _fence(self, order: ce.Fence) -> None:
        async def work() -> None:
            try:
                with answered("the fence"):
                    await fence(self._port, self._job, order.processor, order.incarnation)
            except Exception as error:  # noqa: BLE001 - the machine logs it and tries again
                self.feed(ce.FenceFailed(order.processor, order.incarnation, str(error)))
            else:
                self.feed(ce.FenceReturned(order.processor, order.incarnation))

        self._process.spawn(work, f"fence {order.processor} {order.incarnation}")

    def _note(self, order: ce.JobNote) -> None:
        getattr(log, order.level)(order.text, **order.fields)
