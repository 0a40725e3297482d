"""What an act refuses its plan refuses, in the same words: both ask one function."""

from __future__ import annotations

import asyncio
import json

import pytest

import headgate as hg
from headgate.agents.kafka.topics import TopicsAdmin, TopicSpec

from .scenes import why
from .schemas import schema, wrong
from .test_skipped_records import command

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
SOURCE = """
import headgate as hg

app = hg.App("JOB")
app.input("IN", key="user").agg(name="numbers", FIELDS).to("OUT")
"""


async def planned(job, inp, out, fields):
    """The plan of this code: its document, what it says beside, and the exit code."""
    source = SOURCE.replace("JOB", job.name).replace("IN", inp).replace("OUT", out).replace("FIELDS", fields)
    (job.directory / f"{fields[0]}_job.py").write_text(source)
    words = ["plan", f"{fields[0]}_job:app", "--app-dir", str(job.directory)]
    said, code = await command(job, *words, "-o", "json")
    begin, end = said.index("{\n"), said.rindex("}") + 1
    document = json.loads(said[begin:end])
    assert wrong(document, schema("plan")) == []
    return document, said[:begin] + said[end:], code


def aggregating(job, inp, out, **fields):
    app = hg.App(job.name)
    app.input(inp, key="user").agg(name="numbers", **fields).to(out)
    return app


async def test_the_plan_compares_the_code_with_the_stored_state(job, topic):
    """A sum became a maximum: the plan said nothing, and behind the drain every task failed."""
    inp, out = topic("in", 2), topic("out", 1)
    one = await job.start(aggregating(job, inp, out, n=hg.sum("x"), m=hg.count()))
    await one.until_running(2)
    await job.write(inp, [{"user": f"u{n}", "x": n} for n in range(8)])
    await job.records(out, 8)
    found, said, code = await planned(job, inp, out, 'n=hg.max("x"), m=hg.count()')  # while the old code runs
    assert (code, "this code differs from what run" in said) == (1, True)
    await job.ask("drain")
    assert await one.ended() == 0

    found, said, code = await planned(job, inp, out, 'n=hg.max("x"), m=hg.count()')
    assert code == 1
    [state] = found["state"]
    assert (state["refused"], state["tasks"]) == (True, ["Partition 0", "Partition 1"])
    assert "'n' was sum, and would become max" in state["what"]
    assert state["what"] in said

    fine, said, code = await planned(job, inp, out, 'k=hg.count(), n=hg.sum("x")')
    assert (code, fine["problems"]) == (0, [])
    assert sorted(one["what"] for one in fine["state"]) == [
        "table 'numbers': 'k' is new and starts with its initial value",
        "table 'numbers': 'm' was removed, and its values are deleted",
    ]

    two = await job.start(aggregating(job, inp, out, n=hg.max("x"), m=hg.count()), run_id="changed")
    await two.until(lambda: hasattr(two.worker.coordination, "member") and why(two), "the act is refused")
    assert state["what"] in why(two)


async def test_a_bounded_run_is_planned_with_the_ends_that_it_would_have(job, topic):
    """Without `--bounded` such a job has no end to speak of. An actor that may stop, and what that does to time, is said, too."""
    inp, ends, out = topic("in", 1), topic("ends", 1), topic("out", 1)
    for name in (inp, ends):
        await job.write(name, [{"n": 1}])
    source = f"""
import headgate as hg

app = hg.App("{job.name}")
app.input("{inp}").to("{out}")


@app.actor(app.input("{ends}", until="newest"), name="totals")
class Totals(hg.Actor):
    def on_batch(self, ctx, batch):
        ctx.stop()
"""
    (job.directory / "ending_job.py").write_text(source)
    words = ["plan", "ending_job:app", "--app-dir", str(job.directory)]
    kept = "counts until every part has ended"
    for more, ended in (
        ([], {ends: f"does not count: '{inp}' has no end"}),
        (["--bounded"], {inp: kept, ends: f"{kept}, unless 'totals' stops reading it"}),
    ):
        said, code = await command(job, *words, *more, "-o", "json")
        document, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
        assert (code, wrong(document, schema("plan"))) == (0, [])
        assert {one["input"]: one["time"] for one in document["ends"]} == ended
        said, code = await command(job, *words, *more)
        assert (code, [time in said for time in ended.values()]) == (0, [True] * len(ended))


async def test_the_plan_of_a_seek_is_refused_while_the_run_drains(job, topic):
    """The request was refused, and its plan showed what it would skip."""

    inp, out, go = topic("in", 1), topic("out", 1), asyncio.Event()

    async def slow(value):
        await go.wait()
        return value

    app = hg.App(job.name)
    app.input(inp).map_async(slow).to(out)
    worker = await job.start(app)
    await worker.until_running(1)
    await job.write(inp, [{"n": 1}])
    await worker.until(lambda: not worker.worker.actors["Partition 0"].machine.work.idle, "work in hand")
    draining = asyncio.get_running_loop().create_task(job.ask("drain"))
    await worker.until(lambda: worker.state("Partition 0") == "draining", "the drain")
    plan = await command(job, "seek", job.name, inp, "--to", "oldest", "--plan")
    act = await command(job, "seek", job.name, inp, "--to", "oldest", "--yes")
    adopt = await command(job, "topics", "adopt", job.name, inp, "--plan")
    assert (plan[1], "is draining: only failed tasks can be moved" in plan[0]) == (1, True)
    assert plan == act == adopt
    go.set()
    assert (await draining).run_state == "drained"
    assert await worker.ended() == 0


async def test_topics_that_a_start_refuses_its_plan_refuses(job, topic):
    """A task log that somebody made with another policy."""

    inp, out = topic("in", 1), topic("out", 1)
    await job.write(inp, [{"user": "u", "x": 1}])
    admin = TopicsAdmin(job.client)
    await admin.start()
    await admin.ensure([TopicSpec(job.topics.log, 1, {"cleanup.policy": "delete"})])
    await admin.stop()
    found, said, code = await planned(job, inp, out, "n=hg.count()")
    source = SOURCE.replace("IN", inp).replace("OUT", out).replace("FIELDS", "n=hg.count()")
    worker = await job.process(source)
    line = f"{job.topics.log}: cleanup.policy is delete, but compact is needed"
    assert (code, line in said, line in found["problems"][0]) == (1, True, True)
    words = ["topics", "plan", "n_job:app", "--app-dir", str(job.directory)]
    said, code = await command(job, *words)
    assert (code, line in said, "To do: " in said) == (1, True, True)
    said, code = await command(job, *words, "-o", "json")
    document, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert (code, line in document["problems"][0], wrong(document, schema("topics-plan"))) == (1, True, [])
    assert (await worker.ended(), line in worker.text()) == (2, True)
