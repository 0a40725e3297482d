"""A record that takes its worker with it: it goes round once, runs alone, and is then judged by its policy, while the others go on."""

from __future__ import annotations

import asyncio
import signal

import orjson
import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

KILLS = """
import os, signal
import headgate as hg

def fatal(value):
    if value["n"] == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return value

app = hg.App("JOB", on_error="POLICY")
app.input("IN").map(fatal).to("OUT")
"""
DEAD = "{}-1-dead-letters"


def numbers(records):
    """What the records hold, in order."""
    return sorted(orjson.loads(record.value)["n"] for record in records)


async def deaths(job, source, end, *words):
    """Start a worker again each time that it is killed, until `end` is over. Returns how often it was killed."""
    killed = 0
    while True:
        one = await job.process(source, "w1", *words)
        ended = asyncio.get_running_loop().create_task(one.ended(within_s=300))
        await asyncio.wait([ended, end], return_when=asyncio.FIRST_COMPLETED)
        if end.done():
            ended.cancel()
            return killed, one
        assert one.process.returncode == -signal.SIGKILL, one.text()[-3000:]
        killed += 1
        assert killed < 5, one.text()[-3000:]


async def test_a_record_that_kills_its_worker_becomes_a_dead_letter(job, topic):
    """SIGKILL in the middle of a function, as the kernel does it out of memory: twice, then exactly that record is set aside."""
    inp, out = topic("in"), topic("out")
    source = KILLS.replace("IN", inp).replace("OUT", out).replace("POLICY", "dead_letter")
    await job.write(inp, [{"n": n} for n in range(20)])
    end = asyncio.get_running_loop().create_task(job.records(out, 19, within_s=300))
    killed, one = await deaths(job, source, end)
    assert numbers(await end) == [n for n in range(20) if n != 7]
    assert killed == 2
    assert numbers(await job.records(DEAD.format(job.name), 1)) == [7]
    one.process.send_signal(signal.SIGTERM)
    assert await one.ended() == 0


async def test_a_record_that_kills_its_worker_fails_its_task_by_name_and_the_others_go_on(job, topic):
    """Without a policy: after two deaths the task says which record, and does not run it again."""
    inp, out = topic("in", 2), topic("out")
    source = KILLS.replace("IN", inp).replace("OUT", out).replace("POLICY", "fail")
    await job.write(inp, [{"n": 7}], partition=0)
    await job.write(inp, [{"n": n} for n in range(10, 20)], partition=1)

    async def failed():
        told = "2 workers have ended in the middle of it"
        while not any(told in one.text() for one in job.processes):  # noqa: ASYNC110 - what a process writes can only be looked at
            await asyncio.sleep(0.2)

    end = asyncio.get_running_loop().create_task(failed())
    killed, one = await deaths(job, source, end)
    assert killed == 2
    assert f"record at {inp}[0] offset 0: this record: 2 workers have ended" in one.text()
    await job.write(inp, [{"n": n} for n in range(20, 25)], partition=1)
    assert numbers(await job.records(out, 15)) == list(range(10, 25))
    one.process.send_signal(signal.SIGTERM)
    assert await one.ended() == 0


STALLS = """
import time
import headgate as hg

def fatal(value):
    while value["n"] == 7:
        time.sleep(0.01)
    return value

app = hg.App("JOB", on_error="dead_letter")
app.input("IN").map(fatal).to("OUT")
"""


async def test_a_record_that_blocks_its_worker_does_not_go_round_for_ever(job, topic):
    """It blocked one worker after the other for `stall.timeout`, all their tasks with them; nothing named it, no policy was asked."""
    inp, out = topic("in"), topic("out")
    source = STALLS.replace("IN", inp).replace("OUT", out)
    words = ("--set", "stall.timeout=4s", "--set", "stop.timeout=1s")
    workers = [await job.process(source, f"w{n}", *words) for n in range(3)]
    await job.write(inp, [{"n": n} for n in range(20)])
    values = await job.records(out, 19, within_s=300)
    assert numbers(values) == [n for n in range(20) if n != 7]
    assert numbers(await job.records(DEAD.format(job.name), 1)) == [7]
    for one in workers:
        one.process.kill()


async def test_a_record_that_blocks_until_its_supervisor_loses_patience_does_not_go_round_for_ever(job, topic):
    """SIGTERM, and at the deadline the end by force: the letter under way was forgotten, since the process had been told to end."""
    inp, out = topic("in"), topic("out")
    source = STALLS.replace("IN", inp).replace("OUT", out)
    await job.write(inp, [{"n": n} for n in range(20)])
    end = asyncio.get_running_loop().create_task(job.records(out, 19, within_s=300))
    for _ in range(2):
        one = await job.process(source, "w1", "--set", "stop.timeout=1s")
        while not any("the main loop is blocked" in line and "in fatal" in line for line in one.text().splitlines()):
            assert not end.done()
            await asyncio.sleep(0.1)
        one.process.send_signal(signal.SIGTERM)
        assert await one.ended() == 3
    one = await job.process(source, "w1")
    assert numbers(await end) == [n for n in range(20) if n != 7]
    assert numbers(await job.records(DEAD.format(job.name), 1)) == [7]
    one.process.send_signal(signal.SIGTERM)
    assert await one.ended() == 0


async def test_a_record_that_kills_workers_at_different_places_is_judged(job, topic):
    """Each worker has a disk of its own, so no mark on a disk reaches the next one. The first death is known without its letter; the second
    owner says each letter before it runs, the third runs the one that it has heard of row by row, and the next one judges the row."""
    inp, out = topic("in", 2), topic("out")
    source = KILLS.replace("IN", inp).replace("OUT", out).replace("POLICY", "dead_letter")
    await job.write(inp, [{"n": n} for n in range(20)], partition=0)
    await job.write(inp, [{"n": n} for n in range(20, 30)], partition=1)
    end = asyncio.get_running_loop().create_task(job.records(out, 29, within_s=400))
    started = []

    async def anew():
        """Another worker, on another machine."""
        place = job.directory / f"place-{len(started)}"
        started.append(await job.process(source, f"w{len(started)}", "--state-dir", str(place)))

    await anew()
    await anew()
    while not end.done():
        dead = [one for one in started if one.process.returncode is not None]
        assert all(one.process.returncode == -signal.SIGKILL for one in dead), dead[-1].text()[-3000:]
        assert len(dead) < 6, dead[-1].text()[-3000:]
        if len(started) - len(dead) < 2:
            await anew()
        await asyncio.sleep(0.1)
    assert numbers(await end) == [n for n in range(30) if n != 7]
    assert numbers(await job.records(DEAD.format(job.name), 1)) == [7]
    # one more where it could not run alone: another letter did not end within the patience of `solitude`
    assert sum(one.process.returncode is not None for one in started) in (3, 4)
