"""Runs a user-defined actor class: its hooks, its timers, its context.

Timers are rows of an internal table of the task, so they are as durable as everything else: a timer that a letter has set exists once
that letter is committed, and fires once. An end or a drain fires all remaining timers, those in event time first, and then those that
`on_end_of_stream` or `on_drain` has set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ....core.progress.frames import MAX_TIME
from ....core.settings import duration_ms
from ....core.windows.results import END_FIELD, WINDOW_HEADER, result_time
from ....core.words import CONTEXT
from ...job.declare.actors import Actor, hooks_of
from ...job.steps.ends import ActorStep, timers_table
from ...job.types.schemas import CLOSED
from ...records.columns.batch import Batch
from ...records.columns.records import Records
from ...records.kafka.writable import check_headers, whole_ms
from ...records.values.record import Headers
from ..base.stateless import VALUES, Env, Operator
from .asynchronous import call
from .emitting import InTask
from .timers import EVENT, PROCESSING, Timers

FLUSH_STEP = 500
"""The maximum number of timers that fire in one step: the outputs of a letter must not exceed what one transaction should hold."""


class ActorOp(Operator):
    """Runs one instance of the user's class, in one task."""

    awaits = True
    letters = True
    wants_keys = VALUES
    gives_keys = True
    flags = ("watermark", "flushed", "started")
    of_letter = ("timers",)

    def __init__(self, step: ActorStep, env: Env) -> None:
        super().__init__(step, env)
        self.actor_step = step
        self.actor: Actor = step.cls(**step.args)
        self.hooks = hooks_of(step.cls)
        self.timers = Timers(env.table(timers_table(step)))
        self.context = ActorContext(self)
        self.started = False
        """`on_start` has run, in a letter that has not failed."""
        self.closing = False
        """All its inputs have ended or are drained, or it has stopped: it is being flushed."""
        self.firing = False
        """A timer fires because the actor is flushed. One that its hook sets waits for the next run, so that a periodic timer ends."""
        self.window: tuple[Any, Mapping[str, Any]] | None = None
        """The key and the window of the rows that the current hook was given."""
        self.event_ms: int | None = None
        """The event time for which the current hook is called: the default timestamp of what the hook emits."""
        self._opened = False
        """`on_start` was called, so there may be something to close, even if its letter failed."""

    def push(self, rows: Records) -> None:
        if self.stopped:
            self.env.count("rows_after_stop", len(rows))
            return
        if self.hooks["on_batch"] or not self.started:
            if rows.window is not None:
                window = rows.window
                keys = rows.shown_keys() or []
                rows = Records(rows.values, rows.timestamps, keys, rows.headers)
                whole: Batch[Any, Any] = Batch(self.step.parents[0].name, 0, rows, (), window)
                self.env.defer(lambda: self._hook("on_batch", whole, window=(keys[0], window)))
                return
            at = self.env.origin()
            batch: Batch[Any, Any] = Batch(at.stream, at.partition, rows, at.offsets, at.meta)
            self.env.defer(lambda: self._hook("on_batch", batch))

    async def _hook(self, name: str, *args: Any, window: tuple[Any, Mapping[str, Any]] | None = None) -> None:
        """Call a hook, and before the first one `on_start`; no name: that alone."""
        try:
            if not self.started:
                self._opened = True
                if self.hooks["on_start"]:
                    await call(self.step, self.env.patience, self.actor.on_start, self.context)
                self.started = True
            if window is not None:
                self.window, self.event_ms = window, result_time(window[1][END_FIELD])
            if name and self.hooks[name]:
                await call(self.step, self.env.patience, getattr(self.actor, name), self.context, *args)
        except BaseException:
            self.context.forget()
            raise
        finally:
            self.event_ms = self.window = None
        self.context.flush()

    def drop(self) -> None:
        self.timers.drop()

    def complete(self) -> None:
        self.timers.complete()

    async def on_watermark(self, watermark: int) -> bool:
        """Event time has reached `watermark`. Returns whether there is more to do for it."""
        self.watermark = watermark
        if self.stopped:
            return False
        if watermark == MAX_TIME:  # a drain begins: as in `on_close`
            self.closing = True
            if await self._fire_left():
                return True
            await self._hook("on_watermark", watermark)
            return False
        for _ in range(FLUSH_STEP):
            first = self.timers.first(EVENT)
            if first is None or first[0] > watermark:
                self.event_ms = watermark
                await self._hook("on_watermark", watermark)
                return False
            await self._fire(first[1], first[0])
        return True

    async def on_close(self, cause: str) -> bool:
        """All its inputs have ended or are drained, or it has stopped. Returns whether there is more to do.

        Time is at its end, so every timer is due: those that are set, and then those that the last hook sets.
        """
        self.closing = True
        if await self._fire_left():
            return True
        closed, hook = self.env.table(CLOSED), f"hook:{self.step.name}"
        if closed.get_many([hook])[0] is not None:
            return False
        await self._hook("on_drain" if cause == "drain" else "on_end_of_stream")
        closed.update({hook: cause})
        return await self._fire_left()

    async def _fire_left(self) -> bool:
        """Fire the timers that do not wait for the next run, at most `FLUSH_STEP`. Returns whether there are more."""
        left = self._left(FLUSH_STEP + 1)
        self.firing = True
        try:
            for at, name in left[:FLUSH_STEP]:
                await self._fire(name, at)
        finally:
            self.firing = False
        return len(left) > FLUSH_STEP

    def _left(self, most: int) -> list[tuple[int, str]]:
        """The first timers that do not wait for the next run, at most so many. No more of them are looked up than this takes."""
        closed, rest = self.env.table(CLOSED), self.timers.rest()
        found: list[tuple[int, str]] = []
        for start in range(0, len(rest), most):
            some = rest[start : start + most]
            wait = closed.get_many([self._waiting(name) for _, name in some])
            found += [timer for timer, waits in zip(some, wait, strict=True) if waits is None]
            if len(found) >= most:
                break
        return found[:most]

    def _waiting(self, timer: str) -> str:
        """The key under which the table of what is closed says that a timer waits for the next run."""
        return f"timer:{self.step.name}/{timer}"

    def set_timer(self, name: str, kind: str, at: int) -> None:
        """Set a timer of this actor."""
        self.timers.set(name, kind, at)
        if self.closing:
            closed, waiting = self.env.table(CLOSED), self._waiting(name)
            if self.firing:
                closed.update({waiting: kind})
            else:
                closed.delete_many([waiting])

    async def work(self, key: str) -> bool:
        """A timer is due, unless it has been replaced or cancelled since; or the actor starts. Returns whether there is more to do."""
        found = self.timers.get(key)
        if found is not None and self._is_due(*found):
            await self._fire(key, found[1])
        elif self._starts_alone:
            await self._hook("")
        return False

    @property
    def _starts_alone(self) -> bool:
        """Whether it starts before any record has come: so do the timers that `on_start` sets."""
        unborn = not (self.started or self.env.bootstraps())
        return unborn and self.hooks["on_start"] and self.hooks["on_timer"]

    def _is_due(self, kind: str, at: int) -> bool:
        if kind == PROCESSING:
            return at <= self.env.now_ms()
        return self.watermark is not None and at <= self.watermark

    async def _fire(self, name: str, at: int) -> None:
        kind, _ = self.timers.get(name) or (PROCESSING, at)
        self.event_ms = at if kind == EVENT else None
        self.timers.cancel(name)
        await self._hook("on_timer", name, at)

    def due(self) -> tuple[int, str] | None:
        """The earliest processing-time timer; or, due at once, an event-time timer whose time has already passed, the flush of an actor
        that has stopped, and the start of one with timers. What is flushed leaves its timers to the next run.
        """
        if self.flushed:
            return None
        if self.stopped or self._starts_alone:
            return self.env.now_ms(), ""
        first = self.timers.first(EVENT)
        if first is not None and self._is_due(EVENT, first[0]):
            return self.env.now_ms(), first[1]
        return self.timers.first(PROCESSING)

    def owed_ms(self) -> int | None:
        """The time of the earliest event-time timer: what the timer emits has this timestamp."""
        first = None if self.flushed else self.timers.first(EVENT)
        return None if first is None else first[0]

    async def close(self) -> None:
        """The task is released: call `on_stop` if the actor was started."""
        if self._opened and self.hooks["on_stop"]:
            await call(self.step, None, self.actor.on_stop, self.context)


class ActorContext(InTask):
    """The context that hooks get; see `actors.Context`. Forwarded records are passed on when their hook has returned."""

    KIND = CONTEXT
    _CALLED = "ctx"

    def __init__(self, operator: ActorOp) -> None:
        super().__init__(operator)
        self._op = operator
        self._forwarded: list[tuple[Any, Any, int, Headers]] = []

    @property
    def watermark(self) -> int | None:
        """The event time up to which this actor has seen everything."""
        return self._op.watermark

    def _time(self, timestamp: int | None) -> int:
        """See `InTask`: without one, the time of what the hook is called for."""
        if timestamp is not None:
            return super()._time(timestamp)
        if self._op.event_ms is not None:
            return self._op.event_ms
        times = self._op.env.origin().rows.timestamps
        return max(times) if times else self.now_ms

    def forward(self, value: Any, *, key: Any = None, timestamp: int | None = None, headers: Headers = ()) -> None:
        """Pass a record to the step behind this one."""
        (pairs,) = check_headers([headers or ()], "ctx.forward()")
        if self._op.window is not None:
            own, window = self._op.window
            key = own if key is None else key
            if isinstance(value, Mapping):
                value = {**value, **window, **value}
            else:
                pairs = [*pairs, (WINDOW_HEADER, orjson.dumps(window))]
        self._forwarded.append((value, key, self._time(timestamp), pairs))

    def flush(self) -> None:
        """Pass on the forwarded records."""
        if self._forwarded:
            values, keys, times, headers = zip(*self._forwarded, strict=True)
            self._forwarded = []
            self._op.forward(
                Records(
                    list(values),
                    list(times),
                    list(keys) if any(key is not None for key in keys) else None,
                    list(headers) if any(headers) else None,
                )
            )

    def forget(self) -> None:
        """The hook failed: discard the forwarded records."""
        self._forwarded = []

    def timer(self, name: str, *, at: int | None = None, after: str | float | None = None) -> None:
        """Call `on_timer` once: at the event time `at`, or after the processing time `after`."""
        if (at is None) == (after is None):
            raise ValueError("timer() takes either at= (event time, ms) or after= (processing time)")
        if not isinstance(name, str):
            raise TypeError(f"the name of a timer must be text, not {name!r:.60}")
        if at is not None:
            self._op.set_timer(name, EVENT, whole_ms(at, "timer's at="))
        else:
            self._op.set_timer(name, PROCESSING, self.now_ms + duration_ms(after or 0))

    def cancel(self, name: str) -> None:
        """Cancel a timer."""
        self._op.timers.cancel(name)

    def stop(self) -> None:
        """Stop this actor after this letter."""
        if not (self._op.closing or self._op.stopped):
            self._op.env.stop(self._op)
