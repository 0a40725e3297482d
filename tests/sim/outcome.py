"""Runs one seed and reports the outcome: success, a violated invariant, or an error of a machine."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from headgate.agents.operators.joins import joined
from headgate.agents.operators.windows import window_states, windowed
from headgate.agents.port import bounds
from headgate.agents.records.frames import arrow_frames
from headgate.agents.runtime.store import log
from headgate.core.windows import blocks

from .faults import REQUESTS
from .invariants import Violation
from .plant import Plant
from .windows import BLOCK_KEYS, STEP_RESULTS
from .world import BOUND_STEPS, LOG_RETENTION_MS, World

LEAST_STEPS = 500
LEAST_FAULTS = 4
FEWEST_ROWS = 2
WRITE_ROWS = 5


@dataclass
class Outcome:
    """The outcome of a seed."""

    seed: int
    steps: int = 0
    seconds: float = 0.0
    rows: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    """How its runs were closed, and its requests answered."""
    violation: str = ""
    error: str = ""
    trace: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no invariant was violated and no machine failed."""
        return not self.violation and not self.error

    @property
    def faults(self) -> int:
        """How many faults have taken effect."""
        return sum(count for name, count in self.effects.items() if name not in REQUESTS)

    def __str__(self) -> str:
        happened = ", ".join(f"{name} {count}" for name, count in sorted(self.effects.items()))
        how = f"VIOLATION {self.violation}" if self.violation else f"ERROR {self.error}" if self.error else "ok"
        return f"seed {self.seed}: {how}\n  {self.steps} steps, {self.seconds:.1f} s of its own time, {self.rows} rows; {happened}"


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Suppress the runtime's log and Python's warnings about coroutines that a kill has ended; the trace is more useful.

    In this context, tombstones of task logs are kept for seconds instead of days; windows have small blocks and close in small steps; two
    rows are enough for a frame of columns; a restore writes a few rows at once.
    """
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.ReturnLoggerFactory(),
        processors=[],
    )
    retention, bounds.LOG_DELETE_RETENTION_MS = bounds.LOG_DELETE_RETENTION_MS, LOG_RETENTION_MS
    sizes = window_states.BLOCK_KEYS, blocks.BLOCK_ROWS, windowed.STEP_RESULTS, windowed.STEP_SESSIONS
    fewest, writes = arrow_frames.FEWEST, log.WRITE_ROWS
    window_states.BLOCK_KEYS = blocks.BLOCK_ROWS = BLOCK_KEYS
    arrow_frames.FEWEST = FEWEST_ROWS
    log.WRITE_ROWS = WRITE_ROWS
    windowed.STEP_RESULTS = windowed.STEP_SESSIONS = joined.STEP_RESULTS = STEP_RESULTS
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = hook
        bounds.LOG_DELETE_RETENTION_MS = retention
        window_states.BLOCK_KEYS, blocks.BLOCK_ROWS, windowed.STEP_RESULTS, windowed.STEP_SESSIONS = sizes
        arrow_frames.FEWEST = fewest
        log.WRITE_ROWS = writes
        joined.STEP_RESULTS = windowed.STEP_RESULTS
        structlog.reset_defaults()
        if before is not None:
            structlog.configure(**before)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Let the cycle collector rest while a world runs, and collect what the world has left.

    Nearly everything in a world lives as long as the world, so looking for garbage costs a fifth of its time and finds little. What was
    there before, the imported code, is never looked at.
    """
    was = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if was:
            gc.enable()


def outcome(
    seed: int, *, trace: bool = False, faulty: bool = True, plant: Plant | None = None, most: int = BOUND_STEPS
) -> Outcome:
    """Run the seed to its end, or until it has made more steps than `most`."""
    with unheard(), uncollected():
        return _outcome(seed, trace=trace, faulty=faulty, plant=plant, most=most)


def _outcome(seed: int, *, trace: bool, faulty: bool, plant: Plant | None, most: int) -> Outcome:
    found = Outcome(seed)
    world: World | None = None
    try:
        world = World(seed, trace=trace, faulty=faulty)
        world.bound_steps = most
        if plant is not None:
            plant.into(world)
        world.run()
        found.rows = sum(one.rows for _, one in world.accounts())
    except Violation as violation:
        found.violation = str(violation)
    except Exception as error:  # noqa: BLE001 - any exception of a machine is a finding
        found.error = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-8)}"
    finally:
        if plant is not None:
            plant.out()
    if world is not None:
        found.steps = world.schedule.steps
        found.seconds = world.schedule.moment
        found.effects = world.effects
        found.ends = world.invariants.ends
        found.trace = world.schedule.trace or []
    if found.ok and faulty and (found.steps < LEAST_STEPS or found.faults < LEAST_FAULTS):
        found.violation = f"a run that shows nothing: {found.steps} steps, {found.faults} faults"
    return found


def story(seed: int, last: int = 400, plant: Plant | None = None) -> str:
    """The trace of a failed seed, and how to replay it."""
    found = outcome(seed, trace=True, plant=plant)
    skipped = max(0, len(found.trace) - last)
    head = [f"... {skipped} lines before"] if skipped else []
    again = f"replay: python -m tests.sim {seed} --trace"
    return "\n".join([*head, *found.trace[-last:], str(found), again])
