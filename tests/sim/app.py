"""The job that every run computes, as a user declares it. Its functions also take time and fail, on request of the world."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import headgate as hg
from headgate.agents.job.derive.declaration import Declared

from . import branches as b
from . import columns as c
from . import joins, lookups
from .job import CYCLE, EXTRAS, LAG_MS, OUTPUT, SHARED, SIDE, SOURCE, TABLE, passes
from .windows import (
    COMBINED,
    COMBINED_STREAM,
    FAR,
    HOPPING,
    RESHUFFLED,
    ROWS,
    SESSION,
    SLIDING,
    Spec,
    Windowing,
    regrouped,
)

if TYPE_CHECKING:
    from .loop import Loop
    from .process import Process

SHUFFLED = "shuffled"
BEGUN = "begun"
"""A table that records what the hook `on_start` has done."""


def process_now() -> Process:
    """The process in which the calling function runs."""
    loop: Loop = asyncio.get_running_loop()  # type: ignore[assignment]
    return loop.host  # type: ignore[return-value]


async def work(value: Any, *, first: bool = False, counts: bool = False) -> Any:
    """User code that awaits: it sometimes takes a while, and fails if the world says so. `first`: in the first letter of a task; `counts`:
    in its second stage.
    """
    world = process_now().world
    if world.rng.random() < 0.2:
        await asyncio.sleep(world.rng.random() * 0.01)
    if first and world.failing_starts > 0:
        world.failing_starts -= 1
        world.took_effect("user-error")
        raise ValueError("the user's on_start raised")
    if world.failing_chunks > 0:
        world.failing_chunks -= 1
        world.took_effect("user-error")
        raise ValueError("the user's function raised")
    if counts and world.cancelled_awaits > 0:
        world.cancelled_awaits -= 1
        world.took_effect("cancelled-await")
        raise asyncio.CancelledError("a client was torn down")
    return value


def counted_none(row: Any) -> Any:
    """The second stage of a job without state."""
    return {**row, "n": 0}


class Counting(hg.Actor):
    """The second stage: counts each key from one to `CYCLE`, then starts again."""

    def __init__(self) -> None:
        world = process_now().world
        world.instances += 1
        self.instance = world.instances
        self.fresh = True
        """Whether `on_start` has run in the current letter, or in none yet."""

    async def on_start(self, ctx: hg.Context) -> None:
        """Belongs to the first letter that counts."""
        ctx.table(BEGUN)["instance"] = self.instance
        self.fresh = True

    async def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        """Rows of one key come in order."""
        if ctx.table(BEGUN).get("instance") != self.instance:
            process_now().world.invariants.fail(f"{ctx.task}: nothing is left of on_start, and it is not called again")
        counts = ctx.table(TABLE)
        for index, row in enumerate(batch.values):
            if index == 0 or process_now().world.rng.random() < 0.1:
                await work(None, first=self.fresh, counts=True)
            key = row["k"]
            count = counts.get(key, 0) + 1
            if count == CYCLE:
                counts.pop(key, None)
            else:
                counts[key] = count
            ctx.forward({**row, "n": count}, key=key)
        self.fresh = False


class Gathering(hg.Actor):
    """Makes a result of the rows of a key and window."""

    async def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        """All rows of a key and window, in the order of time."""
        rows = batch.values
        if process_now().world.rng.random() < 0.1:
            await work(None)
        sums = {"n": len(rows), "p": sum(row["p"] for row in rows), "s": sum(row["s"] for row in rows)}
        ctx.forward({**sums, "ids": list(map(named, rows))})


def named(row: Any) -> list[int]:
    """What identifies a row."""
    return [row["p"], row["s"]]


@lru_cache(maxsize=256)
def declared(
    kind: str,
    width: int,
    stateful: bool,
    mixed: bool,
    bounded: bool,
    windows: Windowing | None,
    columns: str,
    joining: joins.Joining | None,
    branches: b.Branches | None,
    producers: tuple[str, ...],
    ranked: bool,
    pattern: str,
) -> Declared:
    """The declaration of a job. All worlds with the same kind of job share it. `producers`: the jobs whose stream it reads. `pattern`:
    that of its topics, of which there is only the source when it begins.
    """
    app = hg.App("job" if kind == "whole" else kind)
    before: Any = None
    if kind == "downstream":
        before = stream = app.input(SHARED, producers=producers)
    elif columns:
        until = "newest" if bounded else None
        serde, lag = hg.json(c.Order), f"{LAG_MS}ms"
        source = app.input(SOURCE, serde=serde, max_out_of_order=lag, until=until, on_lost="oldest")
        before, stream = c.first_stage(source, columns, work, SHUFFLED, width, ranked=ranked)
    else:
        source = SIDE if kind == "side" else SOURCE
        until = "newest" if bounded else None
        lag = f"{LAG_MS}ms"
        if pattern:
            app.found = (SOURCE,)
            stream = app.input(pattern=pattern, max_out_of_order=lag, on_lost="oldest")
        else:
            stream = app.input(source, max_out_of_order=lag, until=until, on_lost="oldest")
        if mixed:
            stream = stream.merge(app.input(EXTRAS, max_out_of_order=f"{LAG_MS}ms", on_lost="oldest"))
        before = stream.filter(passes).map_async(work)
        if kind in ("upstream", "side"):
            before.share(SHARED, key="k", partitions=width)
            return Declared(app)
        stream = before.repartition("k", name=SHUFFLED, partitions=width)
    if windows is not None:
        _windows(before, stream, windows)
    if joining is not None:
        joins.declare(before, joining)
    if branches is not None:
        healing = b.Healing(lambda: process_now().world.failed_s)
        b.declare(app, before, branches, work, healing, lookups.Service(process_now))
    if columns and columns != c.NAMED:
        stream = stream.rows()
    if stateful:
        app.table(TABLE)
        app.table(BEGUN)
        stream.process(Counting).to(OUTPUT)
    else:
        stream.map_async(work).map(counted_none).to(OUTPUT, key="k")
    return Declared(app)


def _windows(before: Any, stream: Any, windows: Windowing) -> None:
    """Results of rows by key and window, and of these results by window again."""
    first, second = windows.first, windows.second
    if windows.how == COMBINED:
        stream = before.repartition("k", name=COMBINED_STREAM, partitions=2)
    if isinstance(stream, hg.ColumnStream) and (windows.exact or windows.how == ROWS):
        stream = stream.rows()
    windowed = stream.window(_window(first), emit=windows.emit, late=first.late, name=first.name)
    if windows.how == ROWS:
        results = windowed.process(Gathering)
    else:
        names = {"ids": hg.collect(named)} if windows.exact else {}
        results = windowed.agg(n=hg.count(), p=hg.sum("p"), s=hg.sum("s"), **names)
    results.to(first.topic)
    if second is None:
        return
    if windows.place == FAR:
        results = results.repartition(regrouped, name=RESHUFFLED, partitions=2)
    again = results.window(_window(second), late=second.late, name=second.name)
    again.agg(n=hg.sum("n"), ends=hg.collect("window_end")).to(second.topic)


def _window(spec: Spec) -> Any:
    size, grace = f"{spec.size_ms}ms", f"{spec.grace_ms}ms"
    if spec.kind == SESSION:
        return hg.session(size, grace=grace)
    if spec.kind == SLIDING:
        return hg.sliding(size, grace=grace)
    if spec.kind == HOPPING:
        return hg.hopping(size, every=f"{spec.every_ms}ms", grace=grace)
    return hg.tumbling(size, grace=grace)
