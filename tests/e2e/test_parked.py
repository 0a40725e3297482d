"""Records that wait: a worker is killed while a key is sick, and another one goes on with it, each record once, in the order of its key."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict

import pytest

from .test_keys import headgate
from .test_patterns import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

JOB = """
from pathlib import Path

import headgate as hg

app = hg.App("JOB")


def check(value):
    if value["k"] == "sick" and not Path("HEALED").exists():
        raise ValueError("the account is locked")
    return value


app.input("IN", key="k").map(check, on_error=hg.park(after="1s", times=10_000)).to("OUT")
"""


async def test_parked_records_are_exported_released_and_left_out_while_the_job_runs(job, topic, tmp_path):
    """By command. Another key stays as it is, and a request that comes while no worker runs is carried out when one does."""
    inp, out, healed = topic("in", 1), topic("out", 1), tmp_path / "healed"
    source = JOB.replace("IN", inp).replace("OUT", out).replace("HEALED", str(healed))
    source = source.replace('after="1s"', 'after="1h"').replace('== "sick"', 'in ("sick", "ill", "gone")')
    worker = await job.process(source)
    await job.write(inp, [{"k": key, "n": n} for n in range(3) for key in ("well", "sick", "ill", "gone")])
    await job.records(out, 3)

    async def said(*words, code=0):
        done = await headgate(job, "parked", *words)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def lines(text):
        return [json.loads(line) for line in text.splitlines()]

    found = lines(await said("export", job.name))
    assert [json.loads(one["value"])["n"] for one in found] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    sick = next(one for one in found if json.loads(one["value"])["k"] == "sick")
    assert (sick["tries"], "locked" in sick["why"]) == (0, True)
    keys = {json.loads(one["value"])["k"]: one["key"] for one in found}
    await said("skip", job.name, code=2)
    await said("skip", job.name, "Partition 0", "nobody", "--yes", code=4)
    await said("skip", job.name, "Partition 0", keys["gone"], "--all", "--yes")
    assert [json.loads(one["value"])["k"] for one in lines(await said("export", job.name))] == ["sick", "ill"] * 3
    await said("skip", job.name, "Partition 0", keys["sick"], "--yes")
    await said("release", job.name)
    left = lines(await said("export", job.name))
    assert [json.loads(one["value"])["n"] for one in left if one["key"] == keys["sick"]] == [1, 2]
    healed.touch()
    worker.kill()
    await worker.ended()
    async with asyncio.TaskGroup() as both:
        both.create_task(said("release", job.name, "Partition 0", keys["ill"], "--timeout", "60s"))
        await job.process(source, "w2")
    rows = await job.values(out, 6)
    assert [row["n"] for row in rows if row["k"] == "ill"] == [0, 1, 2]
    await said("release", job.name)
    rows = await job.values(out, 8)
    assert [row["n"] for row in rows if row["k"] == "sick"] == [1, 2]
    assert not [row for row in rows if row["k"] == "gone"]
    assert await said("export", job.name) == ""


async def test_a_sick_key_waits_through_a_kill_and_a_drain_which_says_what_it_leaves(job, topic, tmp_path):
    """`headgate parked` says what waits and why, of a worker that runs and from the log. A drain tries the key once more, finishes, and
    says how many records stay parked; the next run takes them up."""
    inp, out, healed = topic("in", 1), topic("out", 1), tmp_path / "healed"
    source = JOB.replace("IN", inp).replace("OUT", out).replace("HEALED", str(healed))
    sent = defaultdict(list)

    async def send(numbers):
        rows = [{"k": key, "n": n} for n in numbers for key in ("well", "sick", "fine")]
        await job.write(inp, rows)
        for row in rows:
            sent[row["k"]].append(row["n"])

    async def said(*words, verb="parked"):
        done = await headgate(job, verb, job.name, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = await job.process(source)
    await send(range(20))
    await job.records(out, 40)
    shown = json.loads(await said("-o", "json"))
    assert [json.loads(one["value"])["n"] for one in shown["records"]] == list(range(20))
    assert "the account is locked" in shown["records"][0]["why"]
    assert "why" not in shown["records"][1]
    while "20 records are parked" not in await said(verb="status"):  # noqa: ASYNC110 - another process says it
        await asyncio.sleep(0.2)
    first.kill()
    await first.ended()
    assert "behind the one before" in await said()
    second = await job.process(source, "w2")
    await send(range(20, 40))
    await job.records(out, 80)
    tries = json.loads(await said("-o", "json"))["records"][0]["tries"]
    drained = await said("--wait", verb="drain")
    assert f"40 records stay parked, which the next run takes up: `headgate parked {job.name}` shows why" in drained
    assert await second.ended() == 0
    stay = [json.loads(line) for line in second.text().splitlines() if '"records stay parked"' in line]
    assert [(one["records"], one["keys"]) for one in stay] == [(40, 1)]
    shown = json.loads(await said("-o", "json"))
    assert len(shown["records"]) == 40
    assert shown["records"][0]["tries"] > tries
    healed.touch()
    await job.process(source, "w3")
    await said(verb="start")
    found = defaultdict(list)
    for record in await job.values(out, 120):
        found[record["k"]].append(record["n"])
    assert found == sent
    assert "no record" in await said()
    assert "parked" not in await said("--wait", verb="drain")
    assert "no record" in await said(), "the log alone says it, too"


WINDOWS = """
from pathlib import Path

import headgate as hg

app = hg.App("JOB")


def check(value):
    if value["k"] == "sick" and not Path("HEALED").exists():
        raise ValueError("the account is locked")
    return value


rows = app.input("IN", key="k", timestamp="ts").map(check, on_error=hg.park(after="1h", hold="1h"))
rows.window(hg.tumbling("10s"), name="counts").agg(n=hg.count()).to("OUT")
"""


async def test_time_waits_for_a_parked_record_and_goes_on_when_it_is_left_out(job, topic, tmp_path):
    """Its window is complete when it closes, though its worker was killed; for another one, which is left out, nothing waits."""
    inp, out, healed = topic("in", 1), topic("out", 1), tmp_path / "healed"
    source = WINDOWS.replace("IN", inp).replace("OUT", out).replace("HEALED", str(healed))
    first = await job.process(source)
    await job.write(
        inp, [{"k": k, "ts": ts} for k, ts in [("well", 1000), ("sick", 2000), ("well", 15_000), ("well", 31_000)]]
    )

    async def said(*words):
        done = await headgate(job, "parked", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    while "1 records are parked" not in (await headgate(job, "status", job.name)).stdout:  # noqa: ASYNC110 - another process says it
        await asyncio.sleep(0.2)
    first.kill()
    await first.ended()
    await job.process(source, "w2")
    await job.write(inp, [{"k": "well", "ts": 31_500}])
    while json.loads((await headgate(job, "status", job.name, "-o", "json")).stdout)["lag"] != 0:  # noqa: ASYNC110 - another process reads
        await asyncio.sleep(0.2)
    assert await job.values(out, 0) == []
    healed.touch()
    await said("release", job.name)
    assert [(row["n"]) for row in await job.values(out, 3)] == [1, 1, 1]
    healed.unlink()
    await job.write(inp, [{"k": k, "ts": ts} for k, ts in [("sick", 32_000), ("well", 45_000), ("well", 61_000)]])
    while "1 records are parked" not in (await headgate(job, "status", job.name)).stdout:  # noqa: ASYNC110 - another process says it
        await asyncio.sleep(0.2)
    await said("skip", job.name, "--all", "--yes")
    assert len(await job.values(out, 5)) == 5


OF_PATTERN = """
from pathlib import Path

import headgate as hg

app = hg.App("JOB")


def check(value, topic):
    if value["k"] == "sick" and not Path("HEALED").exists():
        raise ValueError("the account is locked")
    return value


parks = hg.park(after="1h", times=10_000)
app.input(pattern="PREFIX[a-z]+", key="k", into=check, on_error=parks, on_lost="oldest").to("OUT")
"""


async def test_what_is_parked_in_a_task_that_the_next_run_lacks_waits_until_it_is_there_again(job, topic, tmp_path):
    """The widest topic of a pattern is deleted while its records are parked. They can be released until the run ends, and are exported and
    said behind that; the other tasks go on, and so does that one when a topic is as wide again."""
    shop, healed = Shop(job, topic), tmp_path / "healed"
    shop.source = OF_PATTERN.replace("PREFIX", shop.prefix).replace("OUT", shop.out).replace("HEALED", str(healed))

    async def said(*words, verb="parked", code=0):
        done = await headgate(job, *([verb] if verb else []), *words)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    async def parked(count):
        async with asyncio.timeout(60):
            while (await said(job.name)).count("sick") != count:  # noqa: ASYNC110 - another process parks them
                await asyncio.sleep(0.1)

    async def numbers():
        return sorted(row["n"] for row in await job.values(shop.out, 1))

    await shop.make("a", 1)
    await shop.make("b", 2)
    worker = await shop.worker("w1")
    await job.write(f"{shop.prefix}a", [{"k": "well", "n": 0}, {"k": "sick", "n": 1}])
    await job.write(f"{shop.prefix}b", [{"k": "sick", "n": 2}, {"k": "sick", "n": 3}], partition=1)
    await job.values(shop.out, 1)
    await parked(3)
    await shop.delete("b")
    await shop.warned(f"{shop.prefix}b", "does not exist any more", "leaves it out", "on_lost=")
    healed.touch()
    await said("release", job.name, "Partition 1", f"{shop.prefix}b:1:0")
    await job.values(shop.out, 3)
    healed.unlink()
    await shop.make("c", 2)
    await job.write(f"{shop.prefix}c", [{"k": "sick", "n": 4}, {"k": "sick", "n": 5}], partition=1)
    await parked(3)
    await shop.delete("c")
    await shop.warned(f"{shop.prefix}b", f"{shop.prefix}c", "do not exist any more")
    await shop.drain(worker)
    planned, _ = await shop.plan()
    assert (planned["topics"], planned["leaves"]) == (["a"], ["b", "c"])
    last = await shop.worker("w2")
    await job.write(f"{shop.prefix}a", [{"k": "well", "n": 6}])
    await job.values(shop.out, 4)
    healed.touch()
    shown = await said(job.name)
    assert "does not have the task 'Partition 1' any more" in shown
    assert "parked there (2) waits" in shown
    shown = await said("release", job.name)
    assert "done" in shown
    await job.values(shop.out, 5)
    assert await numbers() == [0, 1, 2, 3, 6]
    assert "read as many partitions as before" in await said("release", job.name, "Partition 1", code=4)
    exported = (await said("export", job.name)).splitlines()
    assert [json.loads(json.loads(line)["value"])["n"] for line in exported if line.startswith("{")] == [4, 5]
    await shop.make("d", 1)
    await job.write(f"{shop.prefix}d", [{"k": "well", "n": 7}])
    await job.values(shop.out, 6)
    await shop.make("c", 2)
    async with asyncio.timeout(60):
        while "does not have the task" in await said(job.name):  # noqa: ASYNC110 - another process gets the task
            await asyncio.sleep(0.1)
    await said("release", job.name)
    await job.values(shop.out, 8)
    assert await numbers() == [0, 1, 2, 3, 4, 5, 6, 7]
    healed.unlink()
    await job.write(f"{shop.prefix}d", [{"k": "sick", "n": 8}])
    await parked(1)
    await shop.delete("d")
    await shop.warned(f"{shop.prefix}d", "exist any more")
    await shop.drain(last)
    healed.touch()
    await shop.worker("w3")
    async with asyncio.timeout(60):
        while f"does not read {shop.prefix}d any more" not in await said(job.name):  # noqa: ASYNC110 - another process begins
            await asyncio.sleep(0.1)
    await said("skip", job.name, "--all", "--yes")
    assert "no record" in await said(job.name)
    assert await numbers() == [0, 1, 2, 3, 4, 5, 6, 7]


def late_rows(found):
    """How many late rows a document of the status counts."""
    if isinstance(found, dict):
        return (found.get("late_rows") or 0) + sum(late_rows(one) for one in found.values())
    return sum(late_rows(one) for one in found) if isinstance(found, list) else 0


async def test_a_parked_record_is_late_behind_its_hold(job, topic, tmp_path):
    """The worker is killed while the key waits, and another one goes on. Behind the hold its window closes without it: it is counted as
    late, and goes to `late=` as it was.
    """
    inp, out, late, healed = topic("in", 1), topic("out", 1), topic("late", 1), tmp_path / "healed"
    source = WINDOWS.replace("IN", inp).replace("OUT", out).replace("HEALED", str(healed))
    source = source.replace('hold="1h"', 'hold="2s"').replace('name="counts"', f'name="counts", late="{late}"')

    async def said(*words):
        done = await headgate(job, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async def counted():
        return late_rows(json.loads(await said("status", job.name, "-o", "json"))["windows"])

    async def closed(count):
        found = await job.records(out, count)
        values = [(record.key.decode(), json.loads(record.value)) for record in found]
        return {(key, value["window_start"]): value["n"] for key, value in values}

    first = await job.process(source)
    rows = [("well", 1_000), ("sick", 2_000), ("well", 3_000), ("well", 15_000), ("well", 31_000)]
    await job.write(inp, [{"k": k, "ts": ts} for k, ts in rows])
    while "1 records are parked" not in (await headgate(job, "status", job.name)).stdout:  # noqa: ASYNC110 - another process says it
        await asyncio.sleep(0.2)
    first.kill()
    await first.ended()
    await job.process(source, "w2")
    await job.write(inp, [{"k": "well", "ts": 32_000}])
    without = {("well", 0): 2, ("well", 10_000): 1}
    assert await closed(2) == without
    assert await counted() == 0
    healed.touch()
    await said("parked", "release", job.name)
    [record] = await job.records(late, 1)
    assert json.loads(record.value) == {"k": "sick", "ts": 2_000}
    while await counted() != 1:  # noqa: ASYNC110 - another process counts it
        await asyncio.sleep(0.2)
    await job.write(inp, [{"k": k, "ts": ts} for k, ts in [("sick", 33_000), ("well", 55_000)]])
    assert await closed(4) == {**without, ("sick", 30_000): 1, ("well", 30_000): 2}
    assert "no record" in await said("parked", job.name)
