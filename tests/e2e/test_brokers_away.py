"""Brokers that are away: the job goes on once they are back; until then what is closed is closed, and who is told to go goes, in time."""

from __future__ import annotations

import asyncio
import fcntl
import re
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
from .test_copies_of_tables import facts, joining, live, rate
from .test_probes import PATIENCE_S, asked, until

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
    """Each looks for its broker when it is closed. Its end raised a cancellation that no one had asked for, out of everything that was to
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


async def test_a_copy_grows_old_while_the_broker_is_away_and_goes_on_when_it_is_back(private_kafka, job_on):
    """Its rows stay, and it says that they may be old."""
    rates, orders, out = named("rates", "orders", "out")
    async with job_on(private_kafka) as job:
        await made(ClientSettings(private_kafka.bootstrap), (rates, 1), (orders, 1), (out, 1))
        await rate(job, rates, "a", 1)
        running = await job.start(joining(job, rates, orders, out))
        await live(running)
        await asyncio.to_thread(private_kafka.kill)
        await running.until(lambda: (facts(running).age_ms or 0) > 3_000, "a copy that grows old")
        assert facts(running).rows == 1
        await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)
        await job.renew_producer()
        await rate(job, rates, "a", 2)
        await running.until(lambda: facts(running).read == 2 and facts(running).lag == 0, "it goes on")
        await live(running)
        assert (facts(running).built_anew, facts(running).age_ms < 60_000) == (0, True)


FORWARDS = """
import headgate as hg

app = hg.App("JOB")
app.input("IN").to("OUT")
"""


async def test_a_worker_without_a_broker_says_so_everywhere_and_takes_it_back(job_on, private_kafka):
    """The broker is killed. Ready, lag, log, status: whatever a person or an alert looks at names the cause, and none of it outlives it."""
    async with job_on(private_kafka) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 1), (out, 1))
        one = await job.process(FORWARDS.replace("IN", inp).replace("OUT", out))
        await job.write(inp, [{"n": 1}])
        await job.records(out, 1, more_s=0)
        await until(one, "/readyz", 200, "ready")
        lag, unknown = metric("headgate_input_lag_records", inp), metric("headgate_input_lag_unknown_partitions", inp)
        await found(one, "/metrics", lag + "0.0", unknown + "0.0")
        await asyncio.to_thread(private_kafka.kill)
        try:
            await until(one, "/readyz", 503, "the broker of the coordinator stream has not answered since")
            await found(one, "/metrics", lag + "NaN", unknown + "1.0")
            tasks = orjson.loads((await asked(one, "/api/status"))[1])["tasks"]
            assert [(task["task"], task["lag"]) for task in tasks] == [("Partition 0", None)]
            assert await asked(one, "/livez") == (200, "ok\n")
            await is_logged(one, "the broker does not answer")
            assert not logged(one, "the broker answers again")
        finally:
            await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)
        await until(one, "/readyz", 200, "ready")
        await is_logged(one, "the broker answers again")
        await job.renew_producer()
        await job.write(inp, [{"n": 2}])
        assert [value["n"] for value in await job.values(out, 2, more_s=0)] == [1, 2]
        await found(one, "/metrics", lag + "0.0", unknown + "0.0")
        await found(one, "/api/status", r'(?s)\A(?!.*"degraded").*"state": "ok"')


def metric(name, stream):
    """The line of this metric, as a pattern, up to its value."""
    return rf'(?m)^{name}\{{[^}}]*stream="{stream}"[^}}]*\}} '


async def found(one, path, *patterns):
    """Ask until the answer has all of these."""
    async with asyncio.timeout(PATIENCE_S):
        while (said := await asked(one, path)) is None or not all(re.search(pattern, said[1]) for pattern in patterns):
            assert one.process.returncode is None, one.text()[-3000:]
            await asyncio.sleep(0.1)


async def is_logged(one, event):
    """Wait until the log has it."""
    async with asyncio.timeout(PATIENCE_S):
        while not logged(one, event):
            assert one.process.returncode is None, one.text()[-3000:]
            await asyncio.sleep(0.1)


def logged(one, event):
    """The lines of the worker's log with this event."""
    return [line for line in one.text().splitlines() if f'"event": "{event}"' in line or f'"event":"{event}"' in line]
