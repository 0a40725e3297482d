"""Actors that users write: a class with hooks, or an async generator over batches.

Both run inside the one Faust agent that a task has, one letter at a time: no locks, no threads, and a hook never overlaps
with another one of the same task. What a hook emits and changes belongs to the letter it was called for: it becomes durable
with it, or, when the hook raises, not at all.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Generic, Protocol, TypeVar

from ...core.errors import DeclarationError
from ...core.settings import did_you_mean
from ..records.record import Batch, Headers

K = TypeVar("K")
V = TypeVar("V")


class Context(Protocol):
    """What a hook can do. It is valid for the duration of the hook."""

    @property
    def task(self) -> str:
        """The task that this actor is, for example `Partition 3`."""
        ...

    @property
    def watermark(self) -> int | None:
        """The event time (ms) up to which everything has been seen; None before the first watermark."""
        ...

    @property
    def now_ms(self) -> int:
        """The wall clock; a test driver's clock in tests."""
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
        """Write a record to a topic, with the letter. Without `timestamp` it has the greatest of the batch; in `on_timer` the event time of
        the timer and in `on_watermark` that of the watermark, but not before 1970 and no later than the clock; else the clock's.
        """
        ...

    def forward(self, value: Any, *, key: Any = None, timestamp: int | None = None, headers: Headers = ()) -> None:
        """Give a record to the step behind `process()`. Without `timestamp` it has the greatest of the batch; in `on_timer` the event time
        of the timer, in `on_watermark` that of the watermark; else the clock's.
        """
        ...

    def timer(self, name: str, *, at: int | None = None, after: str | float | None = None) -> None:
        """Call `on_timer` once: `at` an event time (ms), when the watermark reaches it, or `after` some processing time.

        A timer of the same name replaces the earlier one. A drain fires both kinds, once.
        """
        ...

    def cancel(self, name: str) -> None:
        """Forget a timer."""
        ...

    def commit(self) -> None:
        """Commit after this letter, without waiting for the interval."""
        ...

    def stop(self) -> None:
        """This task has seen enough: after this letter it commits and has ended. The run ends when all of its tasks have.

        Where all that the actor reads has ended, this changes nothing: other steps of the task still get what it has emitted.
        """
        ...


class Actor:
    """Base of actors with hooks. Each hook may be plain or async; those that are not overridden cost nothing.

    >>> @app.actor(orders)
    ... class Totals(hg.Actor):
    ...     def on_batch(self, ctx, batch):
    ...         totals = ctx.table("totals")
    ...         for record in batch:
    ...             totals[record.key] = totals.get(record.key, 0) + record.value["amount"]
    """

    def on_start(self, ctx: Context) -> Awaitable[None] | None:
        """Once, when the task has its state and before its first letter. It belongs to that letter: if that fails, it is called again."""

    def on_batch(self, ctx: Context, batch: Batch[Any, Any]) -> Awaitable[None] | None:
        """A run of records of one partition of one stream (`batch.stream`)."""

    def on_watermark(self, ctx: Context, timestamp: int) -> Awaitable[None] | None:
        """Event time has reached `timestamp` on everything that this actor reads."""

    def on_end_of_stream(self, ctx: Context) -> Awaitable[None] | None:
        """All that this actor reads has ended: the last chance to emit."""

    def on_drain(self, ctx: Context) -> Awaitable[None] | None:
        """The run is drained: everything before it has been seen. Called once in a run."""

    def on_timer(self, ctx: Context, name: str, timestamp: int) -> Awaitable[None] | None:
        """A timer is due."""

    def on_stop(self, ctx: Context) -> Awaitable[None] | None:
        """The task is released: close what was opened. Nothing can be emitted any more."""


HOOKS = ("on_start", "on_batch", "on_watermark", "on_end_of_stream", "on_drain", "on_timer", "on_stop")


class Batches(Generic[K, V]):
    """What an `@app.agent` function iterates over; asking for the next batch says that this one is done."""

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
    """Refuse what is no actor, has no hook, has one under a wrong name, or cannot be made with these arguments."""
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
