"""Prepares a task's store before the task runs: opens it, wipes it, restores it from the log, and asks the broker for offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...core.task import protocol as t
from .assembly import assembled
from .beside import Beside
from .site import Site


class Preparing:
    """Carries out the machine's instructions for the store before the first letter."""

    def __init__(self, site: Site, beside: Beside, poke: Callable[[], None]) -> None:
        """Operators call `poke` when they may have work due."""
        self._site = site
        self._beside = beside
        self._poke = poke

    def open(self, _: t.OpenStore) -> None:
        """Open the store that is on disk."""

        async def work() -> None:
            opened = await self._site.state.open()
            await self._site.remember()
            self._site.feed(opened)

        self._beside.run(work, "open store")

    def log_ends(self, _: t.AskLogEnds) -> None:
        """Ask where the task's log starts and ends."""

        async def work() -> None:
            self._site.feed(await self._site.state.log_ends())

        self._beside.run(work, "ask log ends")

    def wipe(self, order: t.WipeStore) -> None:
        """Replace the store by an empty one."""
        self._site.log.warning("local store is rebuilt", why=order.why)

        async def work() -> None:
            await self._site.state.wipe()
            self._site.feed(t.StoreWiped())

        self._beside.run(work, "wipe store")

    def restore(self, order: t.Restore) -> None:
        """Replay the log into the store, and build the pipeline."""

        async def work() -> None:
            site = self._site
            await site.runtime.check_streams(site.plan)
            restored = await site.state.restore(order, site.feed)
            before = restored.checkpoint
            if before is not None and before.run != site.machine.run.run_id:
                # durable with the first commit of the run, before anything is read
                site.state.begin_run(reopens=site.machine.run.reopens)
            site.pipeline = pipeline = assembled(site, self._poke)
            site.feed(replace(restored, owed=pipeline.owed()))
            pipeline.knows(site.machine.step_times)

        self._beside.run(work, "restore")

    def resolve(self, order: t.ResolveOffsets) -> None:
        """Ask the broker which offsets the bounds stand for."""

        async def work() -> None:
            self._site.feed(await self._site.runtime.ask_offsets(order))

        self._beside.run(work, "ask offsets")
