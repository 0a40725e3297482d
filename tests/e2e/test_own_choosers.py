"""A chooser of one's own in a real run: given as an object, named by import path, wrong path, and one that breaks its contract."""

from __future__ import annotations

import pytest

import headgate as hg
from headgate.core.choosing.chooser import Choice, Wait
from headgate.core.errors import HeadgateError

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


class HighestFirst:
    """Reads the partition with the greatest number first, one record at a time."""

    asked = 0

    def choose(self, heads, now):
        type(self).asked += 1
        able = [head for head in heads if head.takeable]
        return Choice(max(able, key=lambda head: head.at).at, 1) if able else None


def breaks(heads, now):
    """Answers more than there is."""
    able = [head for head in heads if head.takeable]
    return Choice(able[0].at, able[0].ready + 1) if able else None


def raises(heads, now):
    """Is broken."""
    raise ZeroDivisionError("a bug")


def leaves(heads, now):
    """Would end the process."""
    raise SystemExit(3)


def nowhen(heads, now):
    """Waits for a time that never comes."""
    return Wait(float("nan"))


class Hesitant:
    """Waits once before each choice, and says no time."""

    def __init__(self):
        self.waited = False

    def choose(self, heads, now):
        self.waited = not self.waited
        able = [head for head in heads if head.takeable]
        return Wait(why="not yet") if self.waited or not able else Choice(able[0].at, able[0].ready)


def declared(job, first, second, out, chooser, **more):
    app = hg.App(job.name, chooser=chooser, **more)
    app.input(first).merge(app.input(second)).to(out)
    return app


@pytest.mark.parametrize("by_path", [False, True])
async def test_a_chooser_of_ones_own_decides_what_is_read_next(job, topic, by_path):
    """Two full inputs: the one that the chooser prefers is read to its end first."""
    low, high, out = topic("a-low"), topic("b-high"), topic("out")
    HighestFirst.asked = 0
    chooser = f"{__name__}:HighestFirst" if by_path else HighestFirst
    settings = {"chunk.max-records": 5}
    worker = await job.start(declared(job, low, high, out, chooser, settings=settings))
    await worker.until_running(1)
    await job.ask("pause")
    await worker.until(lambda: worker.state("Partition 0") == "paused", "paused")
    await job.write(low, [{"n": n} for n in range(20)])
    await job.write(high, [{"n": 100 + n} for n in range(20)])
    heads = worker.worker.actors["Partition 0"].reading.intake.intake.heads
    await worker.until(lambda: [head.count for head in heads().values()] == [20, 20], "both are fetched")
    await job.ask("resume")
    found = [v["n"] for v in await job.values(out, 40)]
    assert sorted(found) == [*range(20), *range(100, 120)]
    assert [n for n in found if n < 100] == list(range(20))
    assert HighestFirst.asked >= 40
    assert found.index(119) < found.index(19)


async def test_a_chooser_that_cannot_be_imported_refuses_the_start_with_what_may_stand_there(job, topic):
    """The worker ends with a sentence that names the setting, the path and the built-in ones."""
    low, high, out = topic("low"), topic("high"), topic("out")
    with pytest.raises(HeadgateError) as refused:
        await job.start(declared(job, low, high, out, "nowhere.at_all:choose"))
    assert "the chooser 'nowhere.at_all:choose' cannot be imported" in str(refused.value)
    assert "round-robin, time-aligned, starting-alignment" in str(refused.value)


@pytest.mark.parametrize(
    ("chooser", "says"),
    [
        (breaks, "of which 1 are ready"),
        (raises, "raised ZeroDivisionError: a bug"),
        (leaves, "raised SystemExit: 3"),
        (nowhen, "returned a wait until nan"),
    ],
)
async def test_a_chooser_that_breaks_its_contract_fails_the_task_and_says_how(job, topic, chooser, says):
    """Not the worker, and not in silence."""
    low, high, out = topic("low"), topic("high"), topic("out")
    worker = await job.start(declared(job, low, high, out, chooser))
    await job.write(low, [{"n": 1}])
    await worker.until(lambda: worker.state("Partition 0") == "failed", "the task has failed")
    why = worker.worker.actors["Partition 0"].machine.why
    assert f"the chooser '{chooser.__name__}'" in why
    assert says in why
    assert not worker.task.done()


async def test_a_chooser_that_waits_over_what_is_there_is_asked_again(job, topic):
    """All records are there before it waits, and nothing more comes: it stalled for good."""
    low, high, out = topic("low"), topic("high"), topic("out")
    await job.write(low, [{"n": n} for n in range(3)])
    await job.start(declared(job, low, high, out, Hesitant))
    assert sorted(v["n"] for v in await job.values(out, 3)) == [0, 1, 2]


async def test_alignment_goes_by_the_time_that_the_inputs_declare(job, topic):
    """Two inputs were loaded one after the other, so Kafka's timestamps say nothing of when things happened: by these the whole first input
    was read before the second, and everything of the second was late. By `timestamp=` they come in the order of their events."""
    first, second, out = topic("first"), topic("second"), topic("out")
    await job.write(first, [{"ts": n} for n in range(0, 40, 2)], timestamp_ms=1_000)
    await job.write(second, [{"ts": n} for n in range(1, 40, 2)], timestamp_ms=2_000)
    app = hg.App(job.name, settings={"chooser": "time-aligned", "chooser.align-wait": "1h"})
    inputs = [app.input(name, timestamp="ts", until="newest") for name in (first, second)]
    inputs[0].merge(inputs[1]).to(out)
    worker = await job.start(app)
    assert await worker.ended() == 0
    assert [v["ts"] for v in await job.values(out, 40)] == list(range(40))


class MostUrgent:
    """Looks into the records."""

    needs = frozenset({"value"})

    def choose(self, heads, now):
        able = [head for head in heads if head.takeable]
        return Choice(max(able, key=lambda head: head.value["urgency"]).at, 1) if able else None


async def test_a_chooser_that_needs_the_value_gets_it_decoded(job, topic):
    """It was given bytes, and failed the task at its first field."""
    low, high, out = topic("a-low"), topic("b-high"), topic("out")
    await job.write(low, [{"urgency": n} for n in (1, 5, 2)])
    await job.write(high, [{"urgency": n} for n in (4, 3, 6)])
    app = hg.App(job.name, chooser=MostUrgent)
    app.input(low, until="newest").merge(app.input(high, until="newest")).to(out)
    worker = await job.start(app)
    assert await worker.ended() == 0
    found = [v["urgency"] for v in await job.values(out, 6)]
    assert [n for n in found if n in (1, 5, 2)] == [1, 5, 2]
    assert [n for n in found if n in (4, 3, 6)] == [4, 3, 6]
