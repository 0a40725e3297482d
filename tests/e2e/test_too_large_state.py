"""A row that the task log does not take: an error of the user code that made it, and no trouble for anybody else."""

from __future__ import annotations

import shutil

import orjson
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
LARGE = 9 << 20
"""More than the task log that a worker creates takes."""


async def test_a_row_that_the_task_log_does_not_take_is_an_error_of_user_code(job, topic):
    """Found before it is sent: the record that made it is a dead letter, the others go through, the worker stays what it is."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name, on_error="dead_letter")
    kept = app.table("kept", key=hg.text(), value=hg.json())

    def keep(value):
        kept[value["k"]] = "x" * value["size"]
        return {"k": value["k"]}

    app.input(inp).map(keep).to(out)
    one = await job.start(app)
    await one.until_running(1)
    await job.write(inp, [{"k": "a", "size": 1}, {"k": "b", "size": LARGE}, {"k": "c", "size": 2}])
    assert [v["k"] for v in await job.values(out, 2)] == ["a", "c"]
    [letter] = await job.records(job.topics.dead_letters, 1)
    assert orjson.loads(letter.value)["k"] == "b"
    said = dict(letter.headers)["hg-exception"]
    assert b"kept" in said
    assert b"max.message.bytes" in said
    assert one.worker.incarnation.startswith("000001")


async def test_a_row_far_larger_than_a_batch_is_kept_and_restored(job, topic):
    """Five megabytes in one row: committed, and there again when the disk is lost."""
    inp, out = topic("in", 1), topic("out", 1)

    def declared():
        app = hg.App(job.name)
        kept = app.table("kept", key=hg.text(), value=hg.json())

        def keep(value):
            before = len(kept.get(value["k"], ""))
            kept[value["k"]] = "x" * (5 << 20)
            return {"before": before}

        app.input(inp).map(keep).to(out)
        return app

    first = await job.start(declared())
    await job.write(inp, [{"k": "a"}])
    assert await job.values(out, 1) == [{"before": 0}]
    await first.stop()
    shutil.rmtree(job.directory / "state")
    await job.start(declared())
    await job.write(inp, [{"k": "a"}])
    assert (await job.values(out, 2))[1] == {"before": 5 << 20}
