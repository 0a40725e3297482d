"""Prepares a task before it runs: opens, wipes or restores its store, builds its operators, and asks the broker for offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from ....core.task import protocol as t
from ....core.task.plan import TaskPlan
from ...cancellation import CalledOff
from ...job.derive.declaration import Declared
from ...live_settings import batch_limits
from ...operators.pipeline.pipeline import Pipeline
from ...operators.source.key_test import KeyTest
from ...port.bounds import resolved
from ...port.outlasting import outlasted
from ...port.port import Offsets
from ...records.limits import LIMIT
from ...step_work import StepTotals
from ..copies.copies import Copies
from ..copies.copy import CopyStopped
from ..writing.buffer import TaskBuffer
from .contribution import Transactions
from .site import Site
from .suspicion import Suspicion
from .turns import LoopTurns


class PreparingNeeds(Protocol):
    """What preparing needs of the process."""

    declared: Declared
    offsets: Offsets
    spark: Any
    sinks: Any
    steps: StepTotals
    turns: LoopTurns
    copies: Copies

    @property
    def producers(self) -> Transactions: ...
    async def check_streams(self, plan: TaskPlan) -> None: ...


class Preparing:
    """Carries out the machine's instructions for the store before the first letter. Each of these runs beside the actor."""

    def __init__(
        self,
        site: Site,
        needs: PreparingNeeds,
        suspicion: Suspicion,
        poke: Callable[[], None],
        lost: Callable[[Exception], None],
    ) -> None:
        """Operators call `poke` when they may have work due. `lost` is called when a copy of a table is not there any more."""
        self._lost = lost
        self._site = site
        self._needs = needs
        self._suspicion = suspicion
        self._buffer = needs.producers.buffer(site.name)
        """What the current letter emits."""
        self._poke = poke

    async def open(self, _: t.OpenStore) -> None:
        """Open the store that is on disk."""
        site = self._site
        await self._needs.copies.start()
        opened = await site.state.open()
        self._suspicion.remember(await site.state.marks(site.grant))
        site.feed(opened)

    async def log_ends(self, _: t.AskLogEnds) -> None:
        """Ask where the task's log starts and ends."""
        self._site.feed(await self._site.state.log_ends())

    async def wipe(self, order: t.WipeStore) -> None:
        """Replace the store by an empty one."""
        self._site.log.warning("local store is rebuilt", why=order.why)
        await self._site.state.wipe()
        self._site.feed(t.StoreWiped())

    async def restore(self, order: t.Restore) -> None:
        """Replay the log into the store, and build the pipeline."""
        site, machine = self._site, self._site.machine
        await self._needs.check_streams(site.plan)
        restored = await site.state.restore(order, site.feed)
        site.log.info("state is restored", records=site.state.replayed, prepared=site.state.prepared)
        await self._copies()
        before = restored.checkpoint
        if before is not None and before.run != machine.run.run_id:
            # durable with the first commit of the run, before anything is read
            site.state.begin_run(reopens=machine.run.reopens)
        site.pipeline = pipeline = assembled(site, self._needs, self._buffer, self._poke)
        site.feed(replace(restored, owed=pipeline.owed()))
        pipeline.knows(machine.step_times)

    async def _copies(self) -> None:
        """Wait until the worker's copies of tables are ready, and read them from then on: there is nothing in between."""
        copies, site = self._needs.copies, self._site
        if not copies.any:
            return
        if waits := copies.waits:
            site.log.info("a task waits for a copy of a table", why=waits)
        site.waits = lambda: copies.waits
        try:
            await copies.ready()
        except CopyStopped as error:
            self._lost(error)
            raise CalledOff(f"restoring {site.name}") from error
        finally:
            site.waits = str
        copies.joins(site.name, self._lost)
        site.state.views = copies.views(site.wall_ms)

    async def resolve(self, order: t.ResolveOffsets) -> None:
        """Ask the broker which offsets the bounds stand for."""
        self._site.feed(await outlasted(partial(resolved, self._needs.offsets, order)))


def assembled(site: Site, needs: PreparingNeeds, buffer: TaskBuffer, poke: Callable[[], None]) -> Pipeline:
    """The pipeline of a task, of the declared job, the task's buffer and tables, and the current settings."""
    settings, state, name = site.settings, site.state, site.name
    made = Pipeline(
        needs.declared,
        name,
        buffer=buffer,
        seal_buffer=needs.producers.buffer(name),
        table=state.table,
        widths={one.stream: one.width for one in site.plan.outputs},
        now_ms=site.wall_ms,
        count=site.count,
        streams=[one.stream for one in site.plan.inputs],
        timers=site.plan.timers,
        prepare=state.prepare,
        careful=name in needs.producers.careful,
        patience=site.patience,
        traces=site.traces,
    )
    made.meter = site.meter
    if (clocks := needs.turns.clocks) is not None:
        made.measure(needs.steps, clocks.wall_ns)
    made.keys = KeyTest(needs.declared, name, site.plan.inputs, site.count)
    made.spark, made.sinks = needs.spark, needs.sinks
    made.runs_under(state.owner.job_uuid, site.grant)
    made.spark_in_flight = settings.value("spark.in-flight")
    made.outlasts = needs.turns.patient
    made.gather_max_bytes = settings.value("gather.max-bytes")
    made.batch_limits = batch_limits(settings)
    made.batch_max_bytes = settings.value(LIMIT)
    made.spark_timeout_s = settings.seconds("spark.batch-timeout")
    made.topic_id = site.topic_of
    made.adopted = lambda: site.view.adopted
    made.bootstraps = lambda: bool(site.view.bootstrap)
    made.poke = poke
    made.durable()
    return made
