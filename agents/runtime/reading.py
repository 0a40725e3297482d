"""A task's reading: it makes the intake at the first position, and stops it when the task is shut down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from ...core.task import protocol as t
from ..records.chunks import Chunk
from .beside import Beside
from .site import Site
from .task_intake import TaskIntake


class Reading:
    """Carries out the machine's instructions for the intake. `take` receives every chunk."""

    def __init__(self, site: Site, beside: Beside, take: Callable[[Chunk], Awaitable[None]]) -> None:
        self._site = site
        self._beside = beside
        self._take = take
        self._bounds: t.Bounds | None = None
        """The last bounds; an intake that is made later needs them, too."""
        self.intake: TaskIntake | None = None

    @property
    def arriving(self) -> bool:
        """Whether what a gathered fetch brings is still being processed."""
        return self.intake is not None and self.intake.intake.arriving

    def seek(self, order: t.SeekConsumer) -> None:
        """Continue reading at these positions."""
        if self.intake is None:
            self.intake = self._site.runtime.make_intake(self._site, self._take, order.positions)
            if self._bounds is not None:
                self.intake.bound(self._bounds)
            self._beside.serve(self.intake.run, "intake")
            old_reads = self._site.runtime.old_reads
            if old_reads.asks(order.positions):
                self._beside.run(partial(old_reads.look, order.positions), "old records")
        else:
            self.intake.seek(order.positions)

    def skip(self, order: t.SkipRecord) -> None:
        """Leave out this record."""
        if self.intake is not None:
            self.intake.skips.add(order)

    def bound(self, order: t.Bounds) -> None:
        """Hand out no records at or behind these offsets."""
        self._bounds = order
        if self.intake is not None:
            self.intake.bound(order)

    def look(self, _: t.Gate) -> None:
        """The machine may now let other partitions be taken: look again."""
        if self.intake is not None:
            self.intake.wake()

    def decided(self) -> None:
        """The machine has handled an event: the intake looks again."""
        if self.intake is not None:
            self.intake.decided()

    def stop_fetching(self, order: t.StopFetching) -> None:
        """Stop fetching these partitions."""
        intake, machine = self.intake, self._site.machine
        if intake is None:
            upto = {at: machine.position(at) for at in (*order.keep, *order.drop)}
        else:
            upto = intake.stop_fetching(order)
        self._site.feed_later(t.FetchStopped(upto))

    async def stop(self) -> None:
        """Stop reading."""
        intake, self.intake = self.intake, None
        if intake is not None:
            await intake.stop()
