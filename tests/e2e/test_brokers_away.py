"""Brokers that are away: the job goes on once they are back; until then what is closed is closed, and who is told to go goes, in time."""

from __future__ import annotations

import asyncio
import fcntl
import signal

import orjson
import pytest

import headgate as hg
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.runtime.reading.intake import Intake, PartitionSource
from headgate.agents.runtime.store.log import restore
from headgate.agents.state.store import MemoryStore
from headgate.core.errors import EnvironmentFault
from headgate.core.names import StreamPartition

from ..conftest import READY_S
from .scenes import COUNTS, made, named

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


@pytest.mark.slow
async def test_a_broker_that_restarts_holds_a_job_up_and_breaks_nothing(job_on, private_kafka):
    """Killed and back after half a minute: the job goes on by itself, every record counts once. Chaos has those that are away for less."""
    async with job_on(private_kafka) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 2), (out, 2))
        app = hg.App(job.name)
        app.input(inp).repartition("k").agg(n=hg.count()).to(out)
        one = await job.start(app)
        await one.until_running(2)
        await job.write(inp, [{"k": f"k{n % 10}"} for n in range(200)])
        await job.records(out, 10)
        await asyncio.to_thread(private_kafka.kill)
        await asyncio.sleep(30)
        await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)
        await one.until_running(2, within_s=240)
        await job.write(inp, [{"k": f"k{n % 10}"} for n in range(200)])
        async with asyncio.timeout(240):
            while True:
                last = {r.key: orjson.loads(r.value)["n"] for r in await job.records(out, 10)}
                if set(last.values()) == {40} and len(last) == 10:
                    break
                assert max(last.values()) <= 40


async def test_a_consumer_is_closed_while_the_broker_is_away(private_kafka):
    """Each looks for its broker when it is closed. Its end raised a cancellation that nobody had asked for, out of everything that was to
    be put down with it: stores stayed open, their locks held, and the next life restored beside them. A restore that was past its deadline
    stood in `restoring`, with no reason, for ever."""
    client, (name,) = ClientSettings(private_kafka.bootstrap), named("in")
    await made(client, (name, 2))
    intakes = [
        Intake(KafkaPort(client), [PartitionSource(StreamPartition(name, 0), 0)], name=f"i{n}", max_wait_ms=500)
        for n in range(10)
    ]
    for intake in intakes:
        await intake.start()
    consumers = [intake._consumer.consumer for intake in intakes]
    log, reads = StreamPartition(name, 1), asyncio.Event()
    replay = restore(
        KafkaPort(client), log, MemoryStore("j"), start=0, end=10, deadline_s=10.0, progress=lambda _: reads.set()
    )
    restoring = asyncio.get_running_loop().create_task(replay)
    # on a machine so busy that it cannot even start, its error is told below
    restoring.add_done_callback(lambda _: reads.set())
    await reads.wait()
    await asyncio.to_thread(private_kafka.kill)
    try:
        with pytest.raises(EnvironmentFault, match="cannot be read up to 10, only to 0"):
            await restoring
        for intake in intakes:
            await intake.stop()
        assert asyncio.current_task().cancelling() == 0
        assert [c for one in consumers for c in one._client._conns.values() if c.connected()] == []
    finally:
        await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)


async def test_a_worker_whose_broker_stands_still_is_put_down_whole(job_on, private_kafka, tmp_path):
    """It is told to go, and cannot commit: it says what it did not finish, in time, and no store of it is left open."""
    async with job_on(private_kafka) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 2), (out, 1))
        app = hg.App(job.name)
        app.input(inp, key="k").agg(n=hg.count(), name="counts").to(out)
        one = await job.start(app, settings={"stop.timeout": "5s"})
        await one.until_running(2)
        await job.write(inp, [{"k": f"k{n}"} for n in range(20)])
        await job.records(out, 20, more_s=0)
        private_kafka.pause()
        try:
            code = await one.stop()
        finally:
            private_kafka.resume()
    assert code == 3
    why = one.worker.participant.exit_why
    assert "could not stop within stop.timeout (5 s): " in why
    assert (
        "its departure could not be announced" in why
    )  # nor are tasks released, if it has had little of the processor
    assert one.worker.actors == {}
    locks = list((tmp_path / "state").glob("*/tasks/Partition-*/lock"))
    assert len(locks) == 2
    for lock in locks:
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_sigterm_ends_a_process_whose_brokers_are_gone(job_on, private_kafka):
    """Two minutes after it, it was there, idle in its loop."""
    async with job_on(private_kafka) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 1), (out, 1))
        one = await job.process(COUNTS.replace("IN", inp).replace("OUT", out), "w1", "--set", "stop.timeout=5s")
        await job.write(inp, [{"k": "a"}])
        await job.records(out, 1)
        await asyncio.to_thread(private_kafka.kill)
        try:
            one.process.send_signal(signal.SIGTERM)
            code = await one.ended(240)
        finally:
            await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)
    assert code == 3, one.text()[-3000:]
    assert "could not stop within stop.timeout (5 s)" in one.text()
    assert "To do: committed work is safe" in one.text()
