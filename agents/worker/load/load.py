"""The load that a worker reports in each heartbeat, and its decoding: numbers only, by short names.

    state.<task>  lag.<task>  since.<task>  wm.<task>  restore.<task>  parked.<task>  keys.<partitioner>.<input>  config  commits  ready
    follow.<task>                                                                      of a task that another worker runs
    time.<place>  newest.<place>  stands.<place>  held.<why>.<place>/<who>  more.<place>      see `times`
    letter.<task>/<what>                                                               see `health`
    owes.<task>/<stream>                                                               see `drain_load`
    windows.<step>  entries.<step>  oldest.<step>  late.<step>  partly.<step>          see `window_load`
    batches.<what>.<step>  spark                                                       see `batch_load`
    joined.<what>.<side>.<step>                                                        see `join_load`
    copy.<what>.<table>                                                                see `copy_load`
    masks.<setting>                                                                    see `mask_load`
    errors.<step>|<error>                                                              see `work_load`
    busy.<step>  rate.<step>  behind.<stream>  waits.<reason>  loop                    see `work_load`

Promises: a heartbeat stays below its size limit, however many tasks a worker runs. Tasks that do not fit are left out, in the order of
their names, and counted (`left_out`). The lag of a task is said whether it runs or not: also when it has failed, and between two
incarnations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from ....core.graph.keying import VERDICTS
from ....core.machine import Now
from ....core.orders import RESTING, WORKING, TaskState
from ....core.progress.frames import MAX_TIME, NO_TIME
from .batch_load import batches_of, load_of_step, spark_load
from .copy_load import copies_of
from .drain_load import drain_load
from .health import WorkerFacts, readiness
from .join_load import joins_of
from .lags import TaskLags, total
from .step_facts import load_of_steps, summed
from .times import Times, time_load
from .window_load import windows_of
from .work_load import Rates, counted, error_load, work_load

if TYPE_CHECKING:
    from ...runtime.task.task import TaskActor

STATES = tuple(TaskState)
"""By number. Workers of different versions read each other's heartbeats, so `TaskState` may only be appended to."""
MOST_BYTES = 12_000
MOST_TIME_BYTES = 3_000
"""The part of `MOST_BYTES` that event times may use."""
MOST_DRAIN_BYTES = 2_000
"""The part that a drain may use."""
MOST_WINDOW_BYTES = 1_500
"""The part that windows may use."""
MOST_BATCH_BYTES = 1_500
"""The part that batches may use."""
MOST_JOIN_BYTES = 1_500
"""The part that joins may use."""
MOST_COPY_BYTES = 1_000
"""The part that copies of tables may use."""
MOST_ERROR_BYTES = 1_000
"""The part that the errors of steps may use."""
MOST_WORK_BYTES = 2_000
"""The part that the work of steps may use."""
MASKS = "masks."
"""Before the name of a setting that a flag or a variable of the worker sets, so that an override of it has no effect there."""
MOST_MASK_BYTES = 1_000
"""The part that names of such settings may use."""


def mask_load(names: Iterable[str], most_bytes: int) -> dict[str, float]:
    """The settings that a worker masks, as far as there is room.

    >>> mask_load(["stall.timeout", "commit.interval"], 40)
    {'masks.stall.timeout': 1.0}
    """
    load: dict[str, float] = {}
    for name in names:
        most_bytes -= len(MASKS) + len(name.encode()) + 12
        if most_bytes < 0:
            break
        load[MASKS + name] = 1.0
    return load


def masks_of(load: Mapping[str, float]) -> frozenset[str]:
    """The settings that the worker with this load masks.

    >>> sorted(masks_of({"masks.stall.timeout": 1.0, "config": 18.0}))
    ['stall.timeout']
    """
    return frozenset(name.removeprefix(MASKS) for name in load if name.startswith(MASKS))


def key_tests(actor: TaskActor) -> dict[str, dict[str, Any]]:
    """How the keys of a task's inputs are partitioned, as far as the task has tested them."""
    test = actor.site.pipeline.keys if actor.site.pipeline is not None else None
    return test.shown() if test is not None else {}


def watermarks(actor: TaskActor) -> dict[str, int]:
    """The watermark of each stream that a task reads; empty before its state is restored."""
    machine = actor.machine
    return machine.view.watermarks if machine.phase in (*WORKING, *RESTING) else {}


class LoadFacts(WorkerFacts, Protocol):
    """What is asked of a worker to know its load; `Participant` has it."""

    times: Times
    rates: Rates

    @property
    def overrides(self) -> Any:
        """The settings that it has taken, with their offset."""
        ...

    def lags_now(self) -> dict[str, TaskLags]: ...


def load_of(one: LoadFacts, now: Now) -> dict[str, float]:
    """The load of a worker now. It reads plain values, on the main loop."""
    now_ms, mono_s = now.wall, now.mono
    ready, _ = readiness(one)
    committing = one.runtime.producers.committing
    load: dict[str, float] = {
        "config": float(one.overrides.offset),
        "commits": float(committing.commits if committing is not None else 0),
        "ready": float(ready),
    }
    load |= mask_load(one.overrides.masking, MOST_MASK_BYTES)
    load |= time_load(one.times.look(one.actors.values(), now_ms), MOST_TIME_BYTES)
    load |= drain_load(one.actors.values(), MOST_DRAIN_BYTES)
    load |= load_of_steps(windows_of(one.actors.values()), MOST_WINDOW_BYTES)
    load |= load_of_steps(summed(map(load_of_step, batches_of(one.actors.values()))), MOST_BATCH_BYTES)
    load |= spark_load(one.runtime.spark)
    load |= load_of_steps(joins_of(one.actors.values()), MOST_JOIN_BYTES)
    load |= load_of_steps(copies_of(one.runtime.copies.facts()), MOST_COPY_BYTES)
    lags = one.lags_now()
    work = counted(one.runtime.steps, one.runtime.counters.values(), one.runtime.turns.clocks)
    rates = one.rates.look(work, mono_s)
    load |= error_load(work, rates, MOST_ERROR_BYTES)
    load |= work_load(rates, lags.values(), MOST_WORK_BYTES)
    size = 100 + sum(len(name.encode()) + 12 for name in load)
    left_out = 0
    for name, left in sorted(one.runtime.followers.left().items()):
        load[f"follow.{name}"] = float(left)
        size += len(name.encode()) + 20
    for name in sorted({*one.actors, *lags}):
        if size + 6 * (len(name) + 20) > MOST_BYTES:
            left_out += 1
            continue
        size += 6 * (len(name) + 20)
        if (lag := total(lags.get(name, {}).values())) is not None and name in lags:
            load[f"lag.{name}"] = float(lag)
        if (actor := one.actors.get(name)) is None:
            continue  # it has failed, or no incarnation lives
        load |= _actor_load(actor)
        for stream, found in key_tests(actor).items():
            key = f"keys.{found['partitioner']}.{stream}"
            size += 0 if key in load else len(key) + 10
            if size < MOST_BYTES:
                load[key] = load.get(key, 0.0) + 1.0
    if left_out:
        load["left_out"] = float(left_out)
    return load


def _actor_load(actor: TaskActor) -> dict[str, float]:
    """What only a task that runs here can say."""
    name, state = actor.name, actor.machine.phase
    load = {f"state.{name}": float(STATES.index(state)), f"since.{name}": float(actor.since_ms)}
    low = min(watermarks(actor).values(), default=NO_TIME)
    if low > NO_TIME + 1:
        load[f"wm.{name}"] = float(low)
    progress = actor.state.progress
    if progress is not None and state == TaskState.RESTORING:
        load[f"restore.{name}"] = float(max(0, progress.end - progress.position))
    pipeline = actor.site.pipeline
    if pipeline is not None and pipeline.parked.total:
        load[f"parked.{name}"] = float(pipeline.parked.total)
    return load


def key_load(loads: Iterable[Mapping[str, float]]) -> dict[str, dict[str, int]]:
    """How many tasks of all workers found which partitioner, by input.

    >>> key_load([{"keys.crc32.in": 2.0}, {"keys.crc32.in": 1.0, "keys.unknown.in": 1.0}])
    {'in': {'crc32': 3, 'unknown': 1}}
    """
    found: dict[str, dict[str, int]] = {}
    for load in loads:
        for name, tasks in sorted(load.items()):
            kind, _, rest = name.partition(".")
            verdict, _, stream = rest.partition(".")
            if kind == "keys" and verdict in VERDICTS:
                here = found.setdefault(stream, {})
                here[verdict] = here.get(verdict, 0) + int(tasks)
    return found


class TaskLoad(TypedDict):
    """What a heartbeat says about one task. A field is None if the heartbeat does not contain it."""

    state: str | None
    since_ms: int | None
    lag: int | None
    watermark_ms: int | None
    restore_left: int | None
    parked: int
    """How many of its records are parked."""


def task_load(load: Mapping[str, float], task: str) -> TaskLoad:
    """What a heartbeat says about one task."""
    number = load.get(f"state.{task}")
    low = load.get(f"wm.{task}")
    return {
        "state": STATES[int(number)] if number is not None and 0 <= number < len(STATES) else None,
        "since_ms": _int(load.get(f"since.{task}")),
        "lag": _int(load.get(f"lag.{task}")),
        "watermark_ms": None if low is None else MAX_TIME if low >= float(MAX_TIME) else int(low),
        "restore_left": _int(load.get(f"restore.{task}")),
        "parked": int(load.get(f"parked.{task}", 0)),
    }


def follow_left(load: Mapping[str, float], task: str) -> int | None:
    """How many records of this task's log a worker that follows it still lacks; None if it does not say so."""
    return _int(load.get(f"follow.{task}"))


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
