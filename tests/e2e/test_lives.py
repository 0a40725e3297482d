"""One life of a worker after the other: whatever ends them, the process holds no more after many of them than after a few."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter, deque

import pytest

import headgate as hg
from headgate.agents.coordinator.coordinator_stream import fence
from headgate.agents.coordinator.heartbeat import HeartbeatSource
from headgate.agents.kafka.port import KafkaPort
from headgate.core.coordination.member.pauses import Pauses
from headgate.core.names import JobName

from .scenes import life

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
FEW, MANY = 3, 6
"""Lives before the first count, and between it and the second."""
OURS = ("headgate.", "aiokafka.", "faust.", "mode.")
"""Where the types of all that lives are: machines, actors, stores, clients, connections, agents, services. Messages have no `__dict__`."""


MADE_ANEW = ((HeartbeatSource, "_load"),)
"""What is replaced at each turn, and says more while the worker is behind, as it is while this test counts."""


def alive():
    """How many there are of each kind, how much the largest of their collections hold, and what tasks of asyncio run."""
    gc.collect()
    found = Counter(f"task {one.get_coro().__qualname__}" for one in asyncio.all_tasks())
    for one in gc.get_objects():
        kind = type(one)
        if not str(kind.__module__).startswith(OURS) or not kind.__dictoffset__:
            continue
        name = f"{kind.__module__}.{kind.__qualname__}"
        found[name] += 1
        for attribute, value in list(vars(one).items()):
            if (kind, attribute) in MADE_ANEW:
                continue
            found[f"largest {name}.{attribute}"] = max(found[f"largest {name}.{attribute}"], held(value))
    return found


def held(value, depth=2):
    """Entries of a collection and of those in it, but for what has a bound: a machine's story, counters that code of ours names."""
    if isinstance(value, deque) and value.maxlen is not None:
        return 0
    if isinstance(value, Counter):
        return sum(not str(name).isidentifier() for name in value)
    if isinstance(value, dict) and depth:
        return len(value) + sum(held(one, depth - 1) for one in list(value.values()))
    return len(value) if isinstance(value, (dict, set, list, deque)) else 0


async def another_life(job, one, inp):
    """Somebody takes the worker's transactional id away, and it begins anew; both of its tasks have committed then."""
    before = life(one)
    await fence(KafkaPort(job.client), JobName(job.name), "w1", one.worker.incarnation)
    await job.write(inp, [{"k": "a"}], partition=0)
    await one.until(lambda: life(one) > before, "another life")
    await one.until_running(2)
    await job.write(inp, [{"k": "a"}, {"k": "b"}])
    await one.until(lambda: one.worker.committing and one.worker.committing.commits, "it commits")


async def test_lives_that_end_for_no_fault_of_anyone_leave_nothing_behind(job, topic, caplog):
    """Brokers that fail over may end lives for days: each left its producers, consumers or actors behind, and in the end the memory."""
    inp, out = topic("in", 2), topic("out")
    app = hg.App(job.name, settings={"guarantee": "at_least_once"})  # it has two producers
    app.input(inp, key="k").agg(n=hg.count(), name="counts").to(out)
    one = await job.start(app)
    await one.until_running(2)
    one.worker.coordination.member.pauses = Pauses(0.0)
    for _ in range(FEW):
        await another_life(job, one, inp)
    caplog.clear()  # pytest keeps what was logged, and with an error the stack and all that stood in it
    few, began = alive(), life(one)
    for _ in range(MANY):
        await another_life(job, one, inp)
    assert life(one) >= began + MANY
    more = {}

    def as_many():
        caplog.clear()
        more.clear()
        more.update(alive() - few)
        return max(more.values(), default=0) < MANY  # what is under way just now comes and goes

    try:
        await one.until(as_many)
    except AssertionError as error:
        raise AssertionError(f"after {MANY} more lives there are more of these: {more}") from error
