"""Actors that users write: a class with hooks, or an async generator over batches.

Both run inside the task's only Faust agent, one letter at a time: no locks, no threads, and no two hooks of a task overlap. What a hook
emits and changes belongs to the letter that the hook was called for. It becomes durable with that letter or, if the hook raises, not
at all.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Generic, Protocol, TypeVar

from ....core.errors import DeclarationError
from ....core.settings import did_you_mean
from ....core.words import BATCHES
from ...records.columns.batch import Batch
from ...records.values.record import Headers
from ..types.arguments import is_generator
from .refused_verbs import RefusesVerbs

K = TypeVar("K")
V = TypeVar("V")


class Context(Protocol):
    """What a hook can do. A context is valid only while its hook runs."""

    @property
    def task(self) -> str:
        """The name of this actor's task, for example `Partition 3`."""
        ...

    @property
    def watermark(self) -> int | None:
        """The event time (ms) up to which this actor has seen everything; None before the first watermark."""
        ...

    @property
    def now_ms(self) -> int:
        """The wall clock (ms); in tests, the clock of the test driver."""
        ...

    def table(self, name: str) -> MutableMapping[Any, Any]:
        """A table of the app, bound to this task."""
        ...

    def emit(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        timestamp: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Write a record to a topic, as part of this letter.

        Without `timestamp`, the record gets the greatest timestamp of the batch. In `on_timer` it gets the event time of the timer and in
        `on_watermark` that of the watermark, but none before 1970 and none later than the clock. Otherwise it gets the clock's time.
        """
        ...

    def forward(self, value: Any, *, key: Any = None, timestamp: int | None = None, headers: Headers = ()) -> None:
        """Pass a record to the step behind `process()`.

        Without `timestamp`, the record gets the greatest timestamp of the batch; for the rows of a window, the last ms of the window. In
        `on_timer` it gets the event time of the timer and in `on_watermark` that of the watermark. Otherwise it gets the clock's time.
        Without `key`, what is made of the rows of a window gets their key.
        """
        ...

    def timer(self, name: str, *, at: int | None = None, after: str | float | None = None) -> None:
        """Call `on_timer` once: when the watermark reaches the event time `at` (ms), or when the processing time `after` has passed.

        A new timer replaces an earlier one of the same name. When the streams of this actor have ended or are drained, time is at its end:
        all remaining timers of both kinds fire, once; then those that `on_end_of_stream` or `on_drain` sets. A timer that `on_timer` sets
        meanwhile waits for the next run, so a timer that sets itself again does not keep the job from ending.
        """
        ...

    def cancel(self, name: str) -> None:
        """Cancel a timer."""
        ...

    def commit(self) -> None:
        """Commit after this letter, without waiting for the commit interval."""
        ...

    def stop(self) -> None:
        """Stop this actor in this task for the rest of the run, after this letter.

        It gets no more records and no watermarks. Its remaining timers fire, and `on_end_of_stream` is called. An input of which no other
        step needs records ends with it: the next run continues behind the last record that the actor was given. Everything else flows on:
        steps beside and behind the actor, and, if it is behind a shuffle, the inputs before it, because they feed the actors of all tasks.
        Rows that still come for the actor are counted (`rows_after_stop`) and dropped.

        A task has ended when all its inputs have, and the run when all tasks have. To end all of a job, use `until=` or a drain.
        """
        ...


class ClockTick(Protocol):
    """One call of a function of `@app.timer`, and what it can do. It is valid only while the function runs."""

    @property
    def number(self) -> int:
        """Its number since the job began: 1, 2, 3 … without a gap."""
        ...

    @property
    def at(self) -> int:
        """Its place on the calendar (ms): a multiple of the period."""
        ...

    @property
    def missed(self) -> int:
        """How many ticks were left out before this one, because no worker had the task, or it was busy."""
        ...

    @property
    def task(self) -> str:
        """The name of the task that calls, for example `Partition 3`."""
        ...

    @property
    def now_ms(self) -> int:
        """The wall clock (ms); in tests, the clock of the test driver."""
        ...

    def table(self, name: str) -> MutableMapping[Any, Any]:
        """A table of the app, bound to this task."""
        ...

    def emit(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        timestamp: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Write a record to a topic, as part of this tick. Without `timestamp`, the record gets the time of the tick (`at`)."""
        ...

    def commit(self) -> None:
        """Commit after this tick, without waiting for the commit interval."""
        ...


class Actor:
    """Base class of actors with hooks. Each hook may be plain or async. A hook that is not overridden costs nothing.

    >>> @app.actor(orders)
    ... class Totals(hg.Actor):
    ...     def on_batch(self, ctx, batch):
    ...         totals = ctx.table("totals")
    ...         for record in batch:
    ...             totals[record.key] = totals.get(record.key, 0) + record.value["amount"]
    """

    def on_start(self, ctx: Context) -> Awaitable[None] | None:
        """Called once, when the task has restored its state, before its first letter. It belongs to that letter: if the letter fails, it is
        called again."""

    def on_batch(self, ctx: Context, batch: Batch[Any, Any]) -> Awaitable[None] | None:
        """Called with a batch of records, all from one partition of one stream (`batch.stream`). Behind a window: with all rows of one key
        in one window, which `batch.meta` names."""

    def on_watermark(self, ctx: Context, timestamp: int) -> Awaitable[None] | None:
        """Called when event time has reached `timestamp` on every stream that this actor reads."""

    def on_end_of_stream(self, ctx: Context) -> Awaitable[None] | None:
        """Called when every stream that this actor reads has ended, or after `ctx.stop()`: the last chance to emit."""

    def on_drain(self, ctx: Context) -> Awaitable[None] | None:
        """Called once in a run, when it is drained: the actor has seen everything before the drain."""

    def on_timer(self, ctx: Context, name: str, timestamp: int) -> Awaitable[None] | None:
        """Called when a timer is due."""

    def on_stop(self, ctx: Context) -> Awaitable[None] | None:
        """Called when the task is released: close what this actor has opened. It can no longer emit."""


HOOKS = ("on_start", "on_batch", "on_watermark", "on_end_of_stream", "on_drain", "on_timer", "on_stop")


class Batches(RefusesVerbs, Generic[K, V]):
    """The batches that an `@app.agent` function iterates over. Asking for the next batch completes the current one."""

    KIND = BATCHES

    def __init__(
        self, source: AsyncIterator[Batch[K, V]], tables: Callable[[str], MutableMapping[Any, Any]], task: str
    ) -> None:
        self._source = source
        self._tables = tables
        self.task = task

    def table(self, name: str) -> MutableMapping[Any, Any]:
        """A table of the app, bound to this task."""
        return self._tables(name)

    def __aiter__(self) -> AsyncIterator[Batch[K, V]]:
        return self._source


def check_actor(cls: Any, verb: str, args: Mapping[str, Any]) -> None:
    """Refuse a class that is not an actor, has no hook or one with a wrong name, or cannot be constructed with these arguments."""
    if not (isinstance(cls, type) and issubclass(cls, Actor)):
        raise DeclarationError(f"{verb}: {cls!r} is not derived from hg.Actor", remedy="class MyActor(hg.Actor): …")
    for name in dir(cls):
        if name.startswith("on_") and name not in HOOKS:
            raise DeclarationError(
                f"{verb}: {cls.__name__}.{name} is not a hook",
                remedy=did_you_mean(name, HOOKS) or f"one of {', '.join(HOOKS)}",
            )
    if not any(hooks_of(cls).values()):
        raise DeclarationError(f"{verb}: {cls.__name__} has no hook", remedy=f"one of {', '.join(HOOKS)}")
    for name in HOOKS:
        if is_generator(getattr(cls, name)):
            raise DeclarationError(
                f"{verb}: {cls.__name__}.{name} yields, so nothing of it would run",
                remedy="ctx.forward(value) passes a record on",
            )
    try:
        inspect.signature(cls).bind(**args)
    except TypeError as error:
        raise DeclarationError(
            f"{verb}: {cls.__name__}({', '.join(f'{name}=…' for name in args)}) cannot be made: {error}",
            remedy="stream.process(MyActor, limit=3) gives arguments",
        ) from None


def hooks_of(actor: type[Actor]) -> Mapping[str, bool]:
    """Which hooks a class overrides."""
    return {hook: getattr(actor, hook) is not getattr(Actor, hook) for hook in HOOKS}
