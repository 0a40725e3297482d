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


FORWARDS = """
import headgate as hg

app = hg.App("JOB")
app.input("IN").to("OUT")
"""


@pytest.mark.slow
@pytest.mark.usefixtures("swept")
async def test_a_broker_that_is_away_holds_jobs_up_is_said_everywhere_and_breaks_nothing(job_on, private_kafka):
    """Killed and back after half a minute. Chaos has those that are away for less.

    A job goes on by itself, and every record counts once. A copy of a table keeps its rows, says that they may be old, and goes on. Of a
    worker that has no broker ready, lag, log and status name the cause, and none of it outlives it.
    """
    async with job_on(private_kafka) as job, job_on(private_kafka) as kept, job_on(private_kafka) as seen:
        inp, out, rates, orders, joined, forwarded, sent = named(
            "in", "out", "rates", "orders", "joined", "forwarded", "sent"
        )
        await made(job.client, (inp, 2), (out, 2), *((name, 1) for name in (rates, orders, joined, forwarded, sent)))
        app = hg.App(job.name)
        app.input(inp).repartition("k").agg(n=hg.count()).to(out)
        one = await job.start(app)
        await one.until_running(2)
        await rate(kept, rates, "a", 1)
        copies = await kept.start(joining(kept, rates, orders, joined))
        await live(copies)
        told = await seen.process(FORWARDS.replace("IN", forwarded).replace("OUT", sent))
        await seen.write(forwarded, [{"n": 1}])
        await seen.records(sent, 1, more_s=0)
        await until(told, "/readyz", 200, "ready")
        lag = metric("headgate_input_lag_records", forwarded)
        unknown = metric("headgate_input_lag_unknown_partitions", forwarded)
        await found(told, "/metrics", lag + "0.0", unknown + "0.0")
        await job.write(inp, [{"k": f"k{n % 10}"} for n in range(200)])
        await job.records(out, 10)
        await asyncio.to_thread(private_kafka.kill)
        try:
            await until(told, "/readyz", 503, "the broker of the coordinator stream has not answered since")
            await found(told, "/metrics", lag + "NaN", unknown + "1.0")
            tasks = orjson.loads((await asked(told, "/api/status"))[1])["tasks"]
            assert [(task["task"], task["lag"]) for task in tasks] == [("Partition 0", None)]
            assert await asked(told, "/livez") == (200, "ok\n")
            await is_logged(told, "the broker does not answer")
            assert not logged(told, "the broker answers again")
            await copies.until(lambda: (facts(copies).age_ms or 0) > 30_000, "a copy that grows old")
            assert facts(copies).rows == 1
        finally:
            await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)

        await one.until_running(2, within_s=240)
        await job.write(inp, [{"k": f"k{n % 10}"} for n in range(200)])
        async with asyncio.timeout(240):
            while True:
                last = {r.key: orjson.loads(r.value)["n"] for r in await job.records(out, 10)}
                if set(last.values()) == {40} and len(last) == 10:
                    break
                assert max(last.values()) <= 40
        await kept.renew_producer()
        await rate(kept, rates, "a", 2)
        await copies.until(lambda: facts(copies).read == 2 and facts(copies).lag == 0, "it goes on")
        await live(copies)
        assert (facts(copies).built_anew, facts(copies).age_ms < 60_000) == (0, True)
        await until(told, "/readyz", 200, "ready")
        await is_logged(told, "the broker answers again")
        await seen.renew_producer()
        await seen.write(forwarded, [{"n": 2}])
        assert [value["n"] for value in await seen.values(sent, 2, more_s=0)] == [1, 2]
        await found(told, "/metrics", lag + "0.0", unknown + "0.0")
        await found(told, "/api/status", r'(?s)\A(?!.*"degraded").*"state": "ok"')


async def test_consumers_are_closed_and_a_process_ends_while_the_broker_is_away(job_on, private_kafka):
    """SIGTERM ends a process whose brokers are gone: two minutes after it, it was there, idle in its loop.

    Each consumer looks for its broker when it is closed. Its end raised a cancellation that no one had asked for, out of everything that
    was to be put down with it: stores stayed open, their locks held, and the next life restored beside them. A restore that was past its
    deadline stood in `restoring`, with no reason, for ever."""
    async with job_on(private_kafka) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 1), (out, 1))
        one = await job.process(COUNTS.replace("IN", inp).replace("OUT", out), "w1", "--set", "stop.timeout=5s")
        await job.write(inp, [{"k": "a"}])
        await job.records(out, 1)
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
            one.process.send_signal(signal.SIGTERM)
            with pytest.raises(EnvironmentFault, match="cannot be read up to 10, only to 0"):
                await restoring
            for intake in intakes:
                await intake.stop()
            assert asyncio.current_task().cancelling() == 0
            assert [c for one in consumers for c in one._client._conns.values() if c.connected()] == []
            code = await one.ended(240)
        finally:
            await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)
    assert code == 3, one.text()[-3000:]
    assert "could not stop within stop.timeout (5 s)" in one.text()
    assert "To do: committed work is safe" in one.text()


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
