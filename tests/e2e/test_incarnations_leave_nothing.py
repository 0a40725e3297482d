"""A worker that loses its incarnation again and again holds no more than before: what an incarnation was made of is let go."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
from aiokafka import AIOKafkaProducer

import headgate as hg
from headgate.agents.process.reading import folded
from headgate.core.names import worker_id

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
HELD = ("TaskActor", "Pipeline", "Outbox", "Committing", "RocksStore", "Intake")
LOST = 8


@pytest.fixture(autouse=True)
def seldom():
    """The collector is that of a worker, which looks at old objects next to never."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, 20, 100)
    yield
    gc.set_threshold(*before)


def held():
    """How many there are of what incarnations are made of."""
    found = Counter(type(one).__name__ for one in gc.get_objects() if type(one).__module__.startswith("headgate."))
    return {name: found[name] for name in HELD}


async def lost(job, one, inp):
    """End its incarnation, as another owner of its transactional id does; wait until the next one runs its tasks."""
    before = (await folded(job.client, job.topics)).newest("w1").incarnation
    other = AIOKafkaProducer(bootstrap_servers=job.bootstrap, transactional_id=worker_id(job.topics.job, "w1", before))
    await other.start()
    await other.stop()
    await job.write(inp, [{"user": f"u{n}"} for n in range(20)])  # a commit finds out

    def next_runs():
        return one.worker.participant.producers.incarnation not in ("", before) and set(one.states().values()) == {
            "running"
        }

    await one.until(next_runs, "the next incarnation runs its tasks")


async def test_incarnations_that_were_lost_leave_nothing(job, topic, monkeypatch):
    """Each was made of two tasks, their stores and a producer. What the last ones are closed with may hold them for a while."""
    monkeypatch.setattr("headgate.agents.worker.garbage.PAUSE_S", 2.0)
    monkeypatch.setattr("headgate.agents.worker.garbage.PAUSES", 0)
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name)
    app.input(inp, key="user").agg(n=hg.count(), name="counts").to(out)
    one = await job.start(app)
    await one.until_running(2)
    for _ in range(LOST):
        await lost(job, one, inp)
    few = {"Outbox": LOST // 2, "Committing": LOST // 2}
    await one.until(lambda: all(n <= few.get(name, LOST) for name, n in held().items()), "few are held")
