"""Bounded runs and drains on the real broker: control frames travel through a shuffle with the data, also over a kill -9."""

from __future__ import annotations

import asyncio

import pytest

import headgate as hg

from .scenes import held_open

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def counted(job, inp, out, **options):
    """Sums per key behind a shuffle."""
    app = hg.App(job.name)
    app.input(inp, **options).repartition("k").agg(n=hg.count(), total=hg.sum("v")).to(out)
    return app


def rows(count, keys=10, first=0):
    return [{"k": f"k{n % keys}", "v": n} for n in range(first, first + count)]


def expected(values):
    found = {}
    for one in values:
        n, total = found.get(one["k"], (0, 0))
        found[one["k"]] = (n + 1, total + one["v"])
    return found


async def last(job, out, least, **more):
    """The last update of each key."""
    found = {}
    for record in await job.records(out, least, **more):
        import orjson

        value = orjson.loads(record.value)
        found[record.key.decode()] = (value["n"], value["total"])
    return found


async def test_a_bounded_input_that_is_empty_ends_at_once(job, topic):
    """Nothing to read is an end, too."""
    inp, out = topic("in", 2), topic("out", 2)
    worker = await job.start(counted(job, inp, out, until="newest"))
    assert await worker.ended() == 0


async def test_drain_finishes_what_was_read_and_the_next_run_goes_on_there(job, topic):
    """Drain closes the run; a new run of the same job reads on at the positions of the drain: nothing lost, nothing twice. Its last
    checkpoint is there to be asked (Samza's hole 23: that always gave none).
    """
    inp, out = topic("in", 2), topic("out", 2)
    values = rows(300)
    app = counted(job, inp, out)
    worker = await job.start(app)
    await job.write(inp, values)
    await worker.until_running(2)
    await asyncio.wait_for(_becomes(job, out, expected(values)), 240)
    answer = await job.ask("drain")
    assert (answer.state, answer.run_state) == ("done", "drained")
    assert await worker.ended() == 0
    assert await last(job, out, 10) == expected(values)
    more = rows(200, first=300)
    await job.write(inp, more)
    again = await job.start(counted(job, inp, out), run_id="second")
    await again.until_running(2)
    await asyncio.wait_for(_becomes(job, out, expected([*values, *more])), 240)
    answer = await job.ask("drain")
    assert (answer.state, answer.run_state) == ("done", "drained")
    assert await again.ended() == 0


async def _becomes(job, out, wanted):
    while (found := await last(job, out, 10)) != wanted:
        assert all(found[k][0] <= wanted[k][0] for k in found), "counted twice"


def with_actor(job, inp, out):
    """An actor that says what it hears at the end of a run."""
    app = hg.App(job.name)

    @app.actor(app.input(inp))
    class Teller(hg.Actor):
        def on_batch(self, ctx, batch):
            for record in batch:
                ctx.emit(out, {"n": record.value["n"]})

        def on_drain(self, ctx):
            ctx.emit(out, {"said": "drain"})

    return app


async def test_every_run_has_its_own_drain(job, topic):
    """What was flushed for the drain of one run is flushed again for the drain of the next: closed streams belong to a run."""
    inp, out = topic("in", 1), topic("out", 1)
    one = await job.start(with_actor(job, inp, out))
    await job.write(inp, [{"n": 1}])
    await job.values(out, 1)
    await job.ask("drain")
    assert await one.ended() == 0
    assert await job.values(out, 2) == [{"n": 1}, {"said": "drain"}]
    two = await job.start(with_actor(job, inp, out), run_id="two")
    await two.until_running(1)
    await job.write(inp, [{"n": 2}])
    await job.values(out, 3)
    await job.ask("drain")
    assert await two.ended() == 0
    assert (await job.values(out, 4))[2:] == [{"n": 2}, {"said": "drain"}]


SOURCE = """
import headgate as hg

app = hg.App("JOB")
app.input("IN").repartition("k").agg(n=hg.count(), total=hg.sum("v")).to("OUT")
"""


async def test_a_real_kill_in_the_middle_of_a_drain(job, topic):
    """`headgate run` is killed with -9 while it drains; the next one drains at once, exits 0, and every record counts once. Who asked for
    the drain, and waits, is answered by the second."""
    inp, out = topic("in", 2), topic("out", 2)
    values = rows(20_000)
    await job.write(inp, values)
    source = SOURCE.replace("IN", inp).replace("OUT", out)
    one = await job.process(source)
    await job.records(out, 1)
    asked = asyncio.get_running_loop().create_task(job.ask("drain"))
    async with (
        held_open(job, next(iter(_app_of(job, inp, out).graph().intermediates))),  # so the drain cannot be through
        asyncio.timeout(240),
    ):
        while "draining" not in one.text():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        one.kill()
        await one.ended()
    await job.write(inp, rows(100, first=100_000))
    two = await job.process(source)
    assert (await asked).run_state == "drained"
    assert await two.ended() == 0
    read = sum(n for n, _ in (await last(job, out, 10)).values())
    assert 0 < read <= 20_000  # the drain stopped the sources where they stood, and reads nothing newer
    three = await job.start(_app_of(job, inp, out), run_id="three", deployment="next")
    await asyncio.wait_for(_becomes(job, out, expected([*values, *rows(100, first=100_000)])), 240)
    await three.stop()


def _app_of(job, inp, out):
    app = hg.App(job.name)
    app.input(inp).repartition("k").agg(n=hg.count(), total=hg.sum("v")).to(out)
    return app
