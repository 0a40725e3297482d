"""Poisoned rows behind a shuffle, where no position is between two rows of a frame: each is named, and left out by one command."""

from __future__ import annotations

import json
import re

import pytest

import headgate as hg

from .test_keys import headgate
from .test_positions_lost_and_moved import failed_because

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def command(job, *words):
    """What the command prints, and its exit code."""
    done = await headgate(job, *words)
    return done.stdout + done.stderr, done.returncode


async def test_two_poisoned_rows_of_one_frame_are_left_out_and_no_other_row(job, topic):
    """The failure named an offset of 545 rows, the plan of a seek said that one is skipped, and the seek was refused. Also behind a second
    shuffle the row is that of its record."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name, settings={"error.retries": 0, "intermediate.trim": False})
    first = app.input(inp).filter(lambda v: v["n"] != 3).repartition("k", name="first")
    first.repartition("k", name="by").map(lambda v: {"n": 100 // v["n"]}).to(out)
    await job.write(inp, [{"k": "a", "n": n} for n in (3, 1, 2, 0, 4, 5, 0, 10)])
    worker = await job.start(app)
    stream = job.topics.intermediate("by")
    told = set()
    for row in (2, 5):
        await worker.until(lambda row=row: f", row {row} of the frame" in failed_because(worker), f"row {row} is named")
        why = failed_because(worker)
        assert f"which was made of {inp}[0] offset {row + 1}:" in why
        (place,) = re.findall(rf"headgate seek \S+ {stream}:0 --skip (\d+\.{row})", why)
        told.add(place.partition(".")[0])
        refused, code = await command(job, "seek", job.name, f"{stream}:0", "--to", "9", "--plan")
        assert (code, "--skip OFFSET[.ROW]" in refused) == (1, True), refused
        plan, code = await command(job, "seek", job.name, f"{stream}:0", "--skip", place, "--plan", "-o", "json")
        assert (code, [one["skipped"] for one in json.loads(plan)["partitions"]]) == (0, [1])
        said, code = await command(job, "seek", job.name, f"{stream}:0", "--skip", f"{place}99", "--plan")
        assert (code, "has no row" in said) == (1, True)
        said, code = await command(job, "seek", job.name, f"{stream}:0", "--skip", place, "--yes")
        assert code == 0, said
    assert len(told) == 1, "both are in one frame"
    assert [one["n"] for one in await job.values(out, 5)] == [100, 50, 25, 20, 10]
    await worker.until(lambda: worker.worker.counters["Partition 0"]["records_skipped"] == 2, "both are counted")
    said, code = await command(job, "seek", job.name, f"{stream}:0", "--skip", place, "--plan")
    assert (code, "has been processed" in said) == (1, True)
    assert await worker.stop() == 0
