"""What an aggregate holds back until the commit may fail there: the other tasks are disturbed once, then the record is found. Every way
under both policies: `tests/agents/operators/pipeline/test_held_back.py`."""

from __future__ import annotations

import orjson
import pytest

import headgate as hg

from .scenes import life, why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def total(state, value):
    return state + value["n"]


def refuse(state):
    if state < 0:
        raise ValueError("below zero")
    return state


def unfit(value):
    return {**value, "more": {1, 2}} if value["total"] < 0 else value


def swell(value):
    return {**value, "more": "x" * (9 << 20)} if value["total"] < 0 else value


def result(keyed):
    return keyed.agg(total=hg.aggregate(int, total, result=refuse))


def unwritable(keyed):
    return keyed.agg(total=hg.sum("n")).map(unfit)


def too_large_an_output(keyed):
    return keyed.agg(total=hg.sum("n")).map(swell)


def too_large_a_state(keyed):
    def grow(state, value):
        return "x" * (9 << 20) if value["n"] < 0 else state

    return keyed.agg(total=hg.sum("n"), pad=hg.aggregate(str, grow, result=len))


def combined(keyed):
    def add(state, value):
        return object() if value["n"] < 0 else state + value["n"]

    return keyed.agg(total=hg.aggregate(int, add, lambda a, b: a + b))


WAYS = {
    "result": (result, "below zero"),
    "unwritable": (unwritable, "set"),
    "too large an output": (too_large_an_output, "the topic accepts only"),
    "too large a state": (too_large_a_state, "the task log accepts only"),
    "combined": (combined, "object"),
}
SENT = [{"k": "a", "n": 1}, {"k": "bad", "n": -1}, {"k": "b", "n": 2}]


def declared(job, inp, out, way, policy):
    app = hg.App(job.name, on_error=policy)
    keyed = app.input(inp).repartition("k") if way == "combined" else app.input(inp, key="k")
    WAYS[way][0](keyed).to(out)
    return app


@pytest.mark.parametrize("way", ["result", "too large an output", "too large a state"])
async def test_the_record_is_found_and_left_out(job, topic, way):
    """A dead letter with its origin; every other record counts, also the neighbour's; there was one new incarnation."""
    inp, out = topic("in", 2), topic("out", 1)
    one = await job.start(declared(job, inp, out, way, "dead_letter"))
    await one.until_running(2)
    before = life(one)
    await job.write(inp, [{"k": "beside", "n": 5}], partition=1)
    await job.write(inp, SENT, partition=0)
    [letter] = await job.records(job.topics.dead_letters, 1)
    assert orjson.loads(letter.value) == SENT[1]
    headers = dict(letter.headers)
    assert (headers["hg-topic"], headers["hg-partition"], headers["hg-offset"]) == (inp.encode(), b"0", b"1")
    assert WAYS[way][1].encode() in headers["hg-exception"]
    assert sorted(v["total"] for v in await job.values(out, 3)) == [1, 2, 5]
    await job.write(inp, [{"k": "beside", "n": 1}], partition=1)
    await job.write(inp, [{"k": "a", "n": 2}], partition=0)
    assert sorted(v["total"] for v in (await job.values(out, 5))[3:]) == [3, 6]
    assert life(one) <= before + 1


@pytest.mark.parametrize("way", ["combined", "unwritable"])
async def test_a_task_that_shall_fail_fails_alone(job, topic, way):
    """After one new incarnation it fails by itself, as it would with any chunk, and its neighbour goes on in that one."""
    inp, out = topic("in", 2), topic("out", 1)
    one = await job.start(declared(job, inp, out, way, "fail"), settings={"error.retries": 1})
    await one.until_running(2)
    before = life(one)
    await job.write(inp, SENT, partition=0)
    await one.until(lambda: "offset 1: " in why(one), "the task says at which record it has failed", within_s=240)
    assert WAYS[way][1] in why(one)
    assert life(one) == before + 1
    for n in range(3):
        await job.write(inp, [{"k": "beside", "n": 5}], partition=1)
        assert [v["total"] for v in await job.values(out, n + 1)][n] == 5 * (n + 1)
    assert life(one) == before + 1
    assert why(one, "Partition 1") == ""


async def test_a_task_that_has_failed_begins_again_with_the_next_incarnation(job, topic):
    """Its neighbour ends the incarnation of both; what the failed one had in the way is gone by then, and it goes on."""
    inp, out = topic("in", 2), topic("out", 1)
    in_the_way = {"a"}

    def picky(value):
        if value["k"] in in_the_way:
            raise ValueError("not yet")
        return value

    app = hg.App(job.name)
    app.input(inp, key="k").map(picky).agg(total=hg.aggregate(int, total, result=refuse)).to(out)
    one = await job.start(app, settings={"error.retries": 0})
    await one.until_running(2)
    await job.write(inp, [{"k": "a", "n": 1}], partition=0)
    await one.until(lambda: "not yet" in why(one), "the task has failed")
    in_the_way.clear()
    await job.write(inp, [{"k": "bad", "n": -1}], partition=1)
    assert [v["total"] for v in await job.values(out, 1)] == [1]
    assert life(one) == 2
