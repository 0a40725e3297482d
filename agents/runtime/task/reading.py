"""A task's reading: it makes the intake and its chooser at the first position, and stops them when the task is shut down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from ....core.names import StreamPartition
from ....core.task import protocol as t
from ...job.derive.declaration import Declared
from ...operators.source.decode import value_serdes
from ...port.port import Offsets
from ...records.frames.chunks import Chunk
from ...records.limits import LIMIT
from ..reading.chooser import TaskChooser
from ..reading.intake import BEHIND_S, FETCH_BYTES, Intake, PartitionSource
from ..reading.old_reads import OldReads
from ..reading.read_ahead import ReadAhead
from .background import BackgroundWork
from .site import Site
from .task_intake import IntakeNeeds, TaskIntake


class ReadingNeeds(IntakeNeeds, Protocol):
    """What reading needs of the process."""

    declared: Declared
    offsets: Offsets
    old_reads: OldReads
    read_ahead: ReadAhead


class Reading:
    """Carries out the machine's instructions for the intake. `take` receives every chunk."""

    def __init__(
        self, site: Site, needs: ReadingNeeds, background: BackgroundWork, take: Callable[[Chunk], Awaitable[None]]
    ) -> None:
        self._site = site
        self._needs = needs
        self._background = background
        self._take = take
        self._bounds: t.Bounds | None = None
        """The last bounds; an intake that is made later needs them, too."""
        self.intake: TaskIntake | None = None

    @property
    def arriving(self) -> bool:
        """Whether what a gathered fetch brings is still being processed."""
        return self.intake is not None and self.intake.intake.arriving

    def go_on(self) -> None:
        """Fetch what is held back."""
        if self.intake is not None:
            self.intake.intake.go_on()

    def seek(self, order: t.SeekConsumer) -> None:
        """Continue reading at these positions."""
        if self.intake is None:
            self.intake = self._made(order.positions)
            if self._bounds is not None:
                self.intake.bound(self._bounds)
            self._background.serve(self.intake.run, "intake")
            old_reads = self._needs.old_reads
            if old_reads.asks(order.positions):
                self._background.run(partial(old_reads.look, order.positions), "old records")
        else:
            self.intake.seek(order.positions)

    def _made(self, positions: Mapping[StreamPartition, int]) -> TaskIntake:
        """The intake: its consumer, and the chooser of what it hands out next."""
        site, declared, settings = self._site, self._needs.declared, self._site.settings
        inputs = {plan.stream: plan for plan in site.plan.inputs}
        chooser = TaskChooser(declared, site.plan, settings.given)
        serdes = value_serdes(declared)
        assert site.pipeline is not None, "a task is prepared before it reads"
        read = site.pipeline.sources
        sources = [
            PartitionSource(
                at,
                position,
                topic=site.topic_of(at),
                framed=serdes[at.stream] if inputs[at.stream].framed else None,
                times=chooser.times.get(at.stream),
                spanned=at.stream in read and read[at.stream].spanned,
                bulk=at.stream in read and (read[at.stream].bulk or read[at.stream].unread > 0),
                unread=read[at.stream].unread if at.stream in read else 0,
                gathers=not inputs[at.stream].bootstrap,
                most_bytes=settings.value(LIMIT),
            )
            for at, position in positions.items()
        ]
        room, producers = settings.value("buffer.bytes"), self._needs.producers
        intake = Intake(
            self._needs.port,
            sources,
            name=f"{declared.app.job.slug}-{site.name}".replace(" ", "-"),
            buffer_bytes=room,
            fetch_bytes=min(FETCH_BYTES, max(1, room)),
            watchdog_s=settings.seconds("fetch.watchdog"),
            gather_until=lambda: producers.gather_until() if site.runs_on else None,
            seldom_until=self._seldom_until,
            offsets=self._needs.offsets,
            ahead=self._needs.read_ahead,
        )
        return TaskIntake(site, self._needs, intake, chooser, positions, self._take)

    def _seldom_until(self, now_s: float) -> float | None:
        """Until when a fetch is held back, if this task has a backlog, or rests because another one has; None: not at all."""
        site, producers = self._site, self._needs.producers
        if not (site.runs_on and producers.gathers):
            return None
        return now_s + BEHIND_S if site.behind else site.rests(producers.rest_s)

    def take_settings(self) -> None:
        """Apply changed settings from the next look and the next choice on."""
        if self.intake is not None:
            settings = self._site.settings
            self.intake.take_settings(settings.given, settings.seconds("fetch.watchdog"))

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
