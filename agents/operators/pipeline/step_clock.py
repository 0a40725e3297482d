"""Which step holds the main loop, and how many rows reach it: one clock for each pipeline, which is always on for one step.

What it decides: a step's time is its own, without that of the steps to which it pushes. Operators push into one another, so the clock
follows them: it is switched to a step when its code begins and back when its code returns, and whatever has passed belongs to the step
before the switch. User code is part of its step, and so is decoding that the step is the first to ask for. What is awaited counts only
while it holds the loop, not while it waits.

Promises: rows are counted, all of them, once for each step and chunk. Time is read twice for each step and chunk, nothing for a record; of
chunks so short that this would be felt only one in sixteen is measured, and stands for all of them; a traced one is measured besides, for
itself alone. Whether a chunk is measured is known before it begins, so that sums are right in the long run. A pipeline without a clock
(virtual time) measures nothing, and pays nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from ...measured import around_steps
from ...records.columns.records import Records
from ...records.frames.chunks import Chunk
from ...step_work import StepTotals, StepWork
from ..base.stateless import Operator
from ..source.decode import ReadsChunks

R = TypeVar("R")
SHORT_NS = 1_000_000
"""A chunk that takes less is short: to read the clock for each step of it takes about a hundredth of that."""
OF_SHORT = 16
"""Of short chunks, one in so many is measured."""
SYNCHRONOUS = ("seal", "prepare", "complete")
AWAITED = ("on_watermark", "on_close", "work")


class StepClock:
    """The clock of one pipeline. `now_ns` is read at each switch."""

    def __init__(self, totals: StepTotals, now_ns: Callable[[], int], *, every: bool = False) -> None:
        """`every`: short chunks are measured, too: what is awaited belongs to the step that has started it, which must be known."""
        self.totals = totals
        self._every = every
        self._now_ns = now_ns
        self._work = StepWork()
        """The step for which it is on. At first and between letters it is on for none."""
        self._since_ns = now_ns()
        self.on = False
        """Whether the running letter is measured."""
        self._weight = 1
        """For how many letters it stands."""
        self._short = False
        """Whether the chunk that was measured last was short."""
        self._left_out = 0
        self._traced: dict[StepWork, int] | None = None
        """What each step has taken of the running letter, if it is traced."""
        self._began_ns: int | None = None
        """When the running letter began; None if it is no chunk that is measured."""

    def chunk_begins(self) -> None:
        """Decide whether this chunk is measured."""
        if self._began_ns is not None:
            self._short = not self._every and self._since_ns - self._began_ns < SHORT_NS
            self._began_ns = None
        self._left_out = (self._left_out + 1) % OF_SHORT if self._short else 0
        self.on, self._weight = not self._left_out, OF_SHORT if self._short else 1
        if self._left_out and self._traced is not None:
            self.on, self._weight = True, 0
        if self.on:
            self._began_ns = self._since_ns = self._now_ns()

    def step_begins(self) -> None:
        """A letter that is no chunk is measured: it may take long, and comes seldom."""
        self.on, self._weight, self._began_ns = True, 1, None

    def suspend(self) -> tuple[bool, int, dict[StepWork, int] | None]:
        """Operators hand over what they held back, which is measured, perhaps in the middle of a letter."""
        kept = self.on, self._weight, self._traced
        self.on, self._weight, self._traced = True, 1, None
        return kept

    def resume(self, kept: tuple[bool, int, dict[StepWork, int] | None]) -> None:
        """Go on with the letter."""
        self.on, self._weight, self._traced = kept

    def trace(self) -> None:
        """The next letter is traced: it is measured in any case, and if it would not have been, it stands for no other."""
        self._traced = {}

    def traced(self) -> dict[str, int]:
        """What each step has taken of that letter, which is over, in nanoseconds."""
        taken, self._traced = self._traced or {}, None
        return {step: taken[work] for step, work in self.totals.items() if work in taken}

    def switch(self, work: StepWork) -> StepWork:
        """From now on, time belongs to `work`. Returns to what it has belonged."""
        now_ns, before = self._now_ns(), self._work
        took_ns = now_ns - self._since_ns
        before.ns += took_ns * self._weight
        if self._traced is not None:
            self._traced[before] = self._traced.get(before, 0) + took_ns
        self._since_ns = now_ns
        self._work = work
        return before

    def follow(self, operator: Operator, step: str) -> None:
        """Measure what this operator does, as part of a step."""
        work = self.totals.of(step)
        _set(operator, "push", self._counted(operator.push, len, work))
        for name in SYNCHRONOUS:
            if getattr(type(operator), name) is not getattr(Operator, name):
                _set(operator, name, self._counted(getattr(operator, name), None, work))
        for name in AWAITED:
            if getattr(type(operator), name) is not getattr(Operator, name):
                _set(operator, name, self._awaited(getattr(operator, name), work))

    def follow_reader(self, reader: ReadsChunks, step: str) -> None:
        """Measure what decodes chunks, as part of a step."""
        work, read, switch = self.totals.of(step), reader.read, self.switch

        def measured(chunk: Chunk, skip: frozenset[int]) -> int | None:
            work.rows += len(chunk) - len(skip)
            if not self.on:
                return read(chunk, skip)
            before = switch(work)
            try:
                return read(chunk, skip)
            finally:
                switch(before)

        _set(reader, "read", measured)

    def later(self, call: Callable[[], None]) -> Callable[[], None]:
        """This call, which will be made later, as part of the step that runs now."""
        work = self._work

        def measured() -> None:
            before = self.switch(work)
            try:
                call()
            finally:
                self.switch(before)

        return measured if self.on else call

    def deferred(self, call: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
        """The same for a call that is awaited."""
        work = self._work
        return (lambda: _Followed(self, work, call())) if self.on else call

    def within(self, awaited: Awaitable[R]) -> Awaitable[R]:
        """What is awaited, as part of the step that runs now, wherever it is awaited."""
        return _Followed(self, self._work, awaited)

    def _counted(self, call: Callable[..., Any], count: Callable[[Records], int] | None, work: StepWork) -> Any:
        switch = self.switch
        if count is None:

            def measured() -> None:
                if not self.on:
                    return call()
                before = switch(work)
                try:
                    return call()
                finally:
                    switch(before)

            return measured

        def pushed(rows: Records) -> None:
            work.rows += len(rows)
            if not self.on:
                return call(rows)
            before = switch(work)
            try:
                return call(rows)
            finally:
                switch(before)

        return pushed

    def _awaited(self, call: Callable[..., Awaitable[Any]], work: StepWork) -> Callable[..., Awaitable[Any]]:
        return lambda given: _Followed(self, work, call(given))


class _Followed(Awaitable[R]):
    """Awaits something, and switches the clock whenever it goes on and whenever it waits."""

    def __init__(self, clock: StepClock, work: StepWork, awaited: Awaitable[R]) -> None:
        self._clock = clock
        self._work = work
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, R]:
        switch, work = self._clock.switch, self._work
        return around_steps(self._awaited, lambda: switch(work), switch)


def _set(owner: Any, name: str, measured: Callable[..., Any]) -> None:
    """Put the measured function before the one of the class."""
    setattr(owner, name, measured)
