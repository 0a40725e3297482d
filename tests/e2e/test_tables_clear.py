"""Tables are emptied between two starts, on a real broker: one begins empty, everything else goes on, and nobody comes in between."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import time

import pytest
from click.testing import CliRunner

import headgate as hg
from headgate.agents.cli.group import main
from headgate.agents.process.clearing import leading, read_logs
from headgate.agents.state.opening import unowned_text
from headgate.core.errors import EnvironmentFault

from .scenes import why
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

KILLED = """
import os, signal
from headgate.agents.runtime.writing.outbox import Outbox

async def killed(self):
    os.kill(os.getpid(), signal.SIGKILL)

Outbox._commit_transaction = killed
from headgate.agents.cli.group import main
main()
"""
"""Everything is sent, and nothing is committed."""


async def verb(job, *words, code=0):
    """What a command says: standard output, standard error."""
    done = await asyncio.to_thread(CliRunner().invoke, main, [*words, "-b", job.bootstrap])
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.stdout, done.stderr


async def clear(job, *words):
    """The document of `headgate tables clear`."""
    said, _ = await verb(job, "tables", "clear", job.name, *words, "-o", "json")
    document = json.loads(said)
    assert wrong(document, schema("tables-clear")) == []
    return document


async def rows(job, table):
    """A table as the task logs have it."""
    said, _ = await verb(job, "tables", job.name, table, "--from-log", "-o", "json")
    return {row["key"]: row["value"] for row in json.loads(said)["rows"]}


def orders(amount):
    """One of each of four users, in the same partition each time."""
    return [{"user": f"u{n}", "amount": amount} for n in range(4)]


def of_each(**value):
    return {f"u{n}": value for n in range(4)}


def counting(job, inp, out, *, totals=True, **numbers):
    app = hg.App(job.name)
    read = app.input(inp, key="user")
    read.agg(name="numbers", **numbers).to(out)
    if totals:
        read.agg(name="totals", total=hg.sum("amount")).to(out)
    return app


async def again(job, app):
    """A run of code that is the same as that of the run before, which was closed."""
    one = await job.start(app)
    await job.ask("start", wait=False)
    await one.until_running(2)
    return one


async def drained(job, one):
    await job.ask("drain")
    assert await one.ended() == 0


async def test_a_cleared_table_begins_empty_under_other_code_and_the_rest_goes_on(job, topic):
    """A count that became a maximum was refused, and the only way out was to forget the whole job, with its other tables and positions.

    On the disk where it ran, and on one that knows nothing of it.
    """
    inp, out = topic("in", 2), topic("out", 1)
    one = await job.start(counting(job, inp, out, n=hg.count()))
    await one.until_running(2)
    await job.write(inp, orders(5) + orders(6))
    await job.records(out, 8)
    _, said = await verb(job, "tables", "clear", job.name, "numbers", "--yes", code=1)
    assert f"workers of {job.name}/1 are running: w1" in said
    assert f"headgate stop {job.name} --wait" in said
    plan, refused = await verb(job, "tables", "clear", job.name, "--plan", "-o", "json", code=1)
    assert (json.loads(plan)["alive"], refused in said) == (["w1"], True)
    await drained(job, one)
    changed = counting(job, inp, out, n=hg.max("amount"))
    two = await job.start(changed)
    await two.until(lambda: hasattr(two.worker.coordination, "member") and why(two), "other code is refused")
    assert "`headgate tables clear JOB numbers`" in why(two)
    await job.ask("stop")
    await two.ended()

    _, said = await verb(job, "tables", "clear", job.name, "nmbers", "--yes", code=4)
    assert "did you mean 'numbers'? There are 'numbers', 'totals'" in said
    await verb(job, "tables", "clear", job.name, "__control", "--yes", code=1)
    await verb(job, "tables", "clear", "no-such-job", "--yes", code=4)
    plan = await clear(job, "numbers", "--plan")
    found = [(t["table"], t["kind"], [p["keys"] for p in t["tasks"]]) for t in plan["tables"]]
    assert found == [("numbers", "aggregate", [2, 2])]
    assert (plan["stay"], [p["offset"] for p in plan["positions"]], plan["done"]) == (["totals"], [4, 4], False)
    _, said = await verb(job, "tables", "clear", job.name, "numbers", code=1)  # it asks, and nobody answers
    for word in (
        "numbers (aggregate): 4 keys",
        "Kept: totals",
        f"{inp}:0 at 4",
        f"headgate seek {job.name} {inp}",
    ):
        assert word in said
    assert await rows(job, "numbers") == of_each(n=2)

    said, _ = await verb(job, "tables", "clear", job.name, "numbers", "--yes")
    assert f"'numbers' of {job.name}: 4 keys deleted" in said
    assert await rows(job, "numbers") == {}
    said, _ = await verb(job, "tables", "clear", job.name, "numbers", "--yes")
    assert "already empty" in said
    three = await again(job, changed)
    assert 0 < three.worker.actors["Partition 0"].state.replayed < 10, "the store on the disk has followed the log"
    await job.write(inp, orders(7))
    await job.records(out, 16)
    await drained(job, three)
    await asyncio.to_thread(shutil.rmtree, job.directory / "state")
    four = await again(job, changed)
    await job.write(inp, orders(1))
    await job.records(out, 24)
    await drained(job, four)
    assert await rows(job, "numbers") == of_each(n=7)
    assert await rows(job, "totals") == of_each(total=19)


async def test_who_is_killed_in_the_middle_has_cleared_nothing_and_does_it_again(job, topic):
    """Half a table, or one of two tasks: nobody could say what is counted and what is not. And no worker waits for the dead."""
    inp, out = topic("in", 2), topic("out", 1)
    one = await job.start(counting(job, inp, out, n=hg.count()))
    await one.until_running(2)
    await job.write(inp, orders(5))
    await job.records(out, 8)
    await drained(job, one)

    async def killed():
        words = ["-c", KILLED, "tables", "clear", job.name, "--yes", "-b", job.bootstrap]
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=asyncio.subprocess.PIPE)
        _, said = await process.communicate()
        assert process.returncode == -signal.SIGKILL, said

    await killed()
    two = await job.start(counting(job, inp, out, totals=False, n=hg.count()))
    await two.until_running(2)
    unowned = unowned_text(two.worker.actors["Partition 0"].state.unowned)
    assert "the code no longer declares the table 'totals'" in unowned
    assert "`headgate tables clear JOB TABLE` deletes them" in unowned
    await job.write(inp, orders(5))
    await job.records(out, 12)
    await drained(job, two)
    assert await rows(job, "numbers") == of_each(n=2)
    assert await rows(job, "totals") == of_each(total=5)

    await killed()
    done = await clear(job, "--yes")
    assert {t["table"]: sum(p["keys"] for p in t["tasks"]) for t in done["tables"]} == {"numbers": 4, "totals": 4}
    three = await again(job, counting(job, inp, out, totals=False, n=hg.count()))
    assert three.worker.actors["Partition 0"].state.unowned == {}
    await job.write(inp, orders(5))
    await job.records(out, 16)
    await drained(job, three)
    assert await rows(job, "numbers") == of_each(n=1)


async def test_a_worker_that_comes_in_between_keeps_its_tables(job, topic):
    """Somebody starts the job in the second in which it is cleared: a task that has restored its rows already would go on with them."""
    inp, out = topic("in", 2), topic("out", 1)
    app = counting(job, inp, out, totals=False, n=hg.count())
    one = await job.start(app)
    await one.until_running(2)
    await job.write(inp, orders(1))
    await job.records(out, 4)
    await drained(job, one)
    changelogs = one.worker.coordination.member.job.changelogs

    async def clear_while_somebody_starts():
        async with leading(job.client, job.topics.job, job.topics.log, timeout_ms=60_000) as log:
            logs = await read_logs(job.client, job.topics.log, changelogs)
            await again(job, app)
            await log.clear(logs, changelogs, ["numbers"])

    with pytest.raises(EnvironmentFault, match="nothing was changed"):
        await clear_while_somebody_starts()
    two = job.workers[-1]
    await job.write(inp, orders(1))
    await job.records(out, 8)
    await drained(job, two)
    assert await rows(job, "numbers") == of_each(n=2)


async def test_a_job_that_a_far_time_has_moved_goes_on_where_its_windows_and_joins_are_cleared(job, topic):
    """A record of the year 2099 was taken while nothing judged it: all that follows is late, in every run, or finds no partner. What
    docs/operations.md says leads back, and from then on such a record is bad data. One of before 1970 does no harm: its window closes.
    What was waiting in a join is forgotten with the time, and no pair of before is lost."""
    inp, out, late = topic("in"), topic("out"), topic("late")
    left, right, paired, missed = topic("left"), topic("right"), topic("paired"), topic("missed")
    now, far = int(time.time() * 1000), 4070908800000

    def declared(**options):
        app = hg.App(job.name, on_bad_data="dead_letter")
        read, first, second = (app.input(name, key="user", timestamp="ts", **options) for name in (inp, left, right))
        read.window(hg.tumbling("10s"), name="tens", late=late).agg(n=hg.count()).to(out)
        both = first.join(
            second, within="10s", how="left", late=missed, name="pairs", into=lambda a, b: [a["user"], b and b["user"]]
        )
        both.to(paired)
        return app

    async def write(user, ts, *topics):
        for name in topics:
            await job.write(name, [{"user": user, "ts": ts}])

    one = await job.start(declared(earliest=None, max_future=None))
    await one.until_running(1)
    await write("a", -62135596800000, inp)
    await write("b", far, inp)
    await job.records(out, 1)
    await write("c", now, inp)
    await job.records(late, 1)
    await write("a", now, left, right)
    assert await job.values(paired, 1) == [["a", "a"]]
    await write("b", far, left, right)
    assert await job.values(paired, 2) == [["a", "a"], ["b", "b"]]
    times = one.worker.actors["Partition 0"].machine.time
    await one.until(lambda: list(times.delivered.values()).count(far) >= 2, "time is far ahead")
    await write("c", now, left, right)
    assert [record.key for record in await job.records(missed, 2)] == [b"c", b"c"]
    await drained(job, one)

    await clear(job, "tens", "pairs", "--yes")
    two = await job.start(declared())
    await job.ask("start", wait=False)
    await two.until_running(1)
    await job.write(inp, [{"user": "d", "ts": now}, {"user": "e", "ts": far}, {"user": "f", "ts": now + 20_000}])
    await write("e", far, left, right)
    letters = await job.records(job.topics.dead_letters, 3)
    assert all(
        "more than 1h ahead of the broker's time" in dict(one.headers)["hg-exception"].decode() for one in letters
    )
    found = {record.key for record in await job.records(out, 3)}  # b came with the drain
    assert found == {b"a", b"b", b"d"}
    await write("d", now, left, right)
    assert await job.values(paired, 3) == [["a", "a"], ["b", "b"], ["d", "d"]]
    assert abs(two.worker.port.broker.ahead_ms(two.worker.port.clock.now())) < 60_000
    await drained(job, two)
    assert [record.key for record in await job.records(late, 1)] == [b"c"]
    assert [record.key for record in await job.records(missed, 2)] == [b"c", b"c"]
