"""What the machines of real workers saw and decided: kept through kill -9, read from the disk and through workers, and replayed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time

import pytest
from click.testing import CliRunner

import headgate as hg
from headgate.agents.cli.group import main
from headgate.agents.stories.files import LeftOut, blocks_of, folder_of
from headgate.agents.stories.reading import StoryReader
from headgate.agents.stories.replaying import stories
from headgate.core.machine import Now
from headgate.core.names import JobName
from headgate.core.task import protocol as t
from headgate.core.task.task import Task

from .. import forked
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
SOURCE = """
import headgate as hg

app = hg.App("JOB")
app.input("IN", key="k").agg(n=hg.count(), name="counts").to("OUT")
"""
WITHIN_S = 120.0


async def told(job, *words):
    """What `headgate story JOB … -o json` says, checked against its schema."""
    command = ["story", job.name, *words, "-b", job.bootstrap, "-o", "json", "--last", "1h", "--lines", "5000"]
    done = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert wrong(found, schema("story")) == []
    return found


async def until(job, true, *words):
    """Ask until the answer is so; a line comes to the disk within a second."""
    give_up = time.monotonic() + WITHIN_S
    while not true(found := await told(job, *words)):
        assert time.monotonic() < give_up, json.dumps(found)[-4000:]
        await asyncio.sleep(0.2)
    return found


def states(found, worker, task="Partition 0"):
    return [
        (one["before"], one["after"])
        for one in found["lines"]
        if (one["machine"], one["name"], one["worker"]) == ("task", task, worker) and one["before"] != one["after"]
    ]


async def next_line(lines, true):
    """The next line of a story that is followed and is so; those before it are dropped."""
    async with asyncio.timeout(WITHIN_S):
        while not true(line := json.loads(await asyncio.to_thread(lines.readline))):
            pass
    return line


async def test_a_story_is_followed_until_ctrl_c_or_the_end_of_the_run(job, topic):
    """Lines that come later are shown as they come, those of workers that come later, too, and none twice."""
    inp, out = topic("in", 2), topic("out", 2)
    source = SOURCE.replace("IN", inp).replace("OUT", out)
    await job.process(source, "w1")
    await job.write(inp, [{"k": n} for n in range(10)])
    await job.records(out, 10)
    words = ["story", job.name, "--follow", "-o", "json", "-b", job.bootstrap]
    whole, paper = job.directory / "whole.txt", job.directory / "short.txt"
    with whole.open("wb") as kept, paper.open("wb") as short, whole.open() as lines, paper.open() as until_ctrl_c:
        followed = await forked.start(words, stdout=kept, env=dict(os.environ))
        interrupted = await forked.start(words, stdout=short, env=dict(os.environ))
        await next_line(Tail(until_ctrl_c, interrupted), lambda line: line["worker"] == "w1")
        interrupted.send_signal(signal.SIGINT)
        assert await interrupted.wait() == 0
        tail = Tail(lines, followed)
        await next_line(tail, lambda line: (line["worker"], line["after"]) == ("w1", "working"))
        await job.process(source, "w2")
        moved = await next_line(tail, lambda line: (line["worker"], line["after"]) == ("w2", "working"))
        assert (moved["before"], moved["machine"]) == ("restoring", "task")
        await job.ask("stop")
        assert await followed.wait() == 0
    said = whole.read_text().splitlines()
    assert "is stopped" in said[-1]
    shown = [json.loads(line) for line in said if line.startswith("{")]
    names = [(one["worker"], one["process"], one["number"], one["event_number"]) for one in shown]
    assert len(set(names)) == len(names)


class Tail:
    """Lines of a file that a process writes."""

    def __init__(self, lines, writer):
        self.lines, self.writer = lines, writer

    def readline(self):
        text = ""
        while not text.endswith("\n"):
            ended = self.writer.poll() is not None
            text += (more := self.lines.readline())
            assert more or not ended, "it ended without the line that was waited for"
            if not more:
                time.sleep(0.05)
        return text


async def test_the_story_of_a_killed_worker_is_told_and_replayed(job, topic):
    """A worker runs two tasks, is killed, and another one takes over: its story says from before the kill why each task started, restored
    and ran; without any worker, the disk says the same; a replay decides the same, and finds what is planted in a machine."""
    inp, out = topic("in", 2), topic("out", 2)
    source = SOURCE.replace("IN", inp).replace("OUT", out)
    one = await job.process(source, "w1")
    await job.write(inp, [{"k": f"customer-{n}", "of": "no one's business"} for n in range(100)])
    await job.records(out, 100)
    began = [("waiting", "restoring"), ("restoring", "working")]
    await until(
        job, lambda found: any(line["event"].startswith("ChunkDone") for line in found["lines"]), "Partition 0", "--all"
    )
    live = await told(job, "Partition 0")
    assert states(live, "w1") == began
    first = next(line for line in live["lines"] if line["after"] == "restoring")
    assert first["event"].startswith("Start task=Partition 0 grant=1")
    assert first["why"] == "the predecessor has released it, or is fenced"
    assert first["decided"] == ["OpenStore", "AskLogEnds"]
    one.kill()
    await one.ended()

    # no worker is alive: the disk
    state_dir = str(job.directory / "state")
    disk = await told(job, "Partition 0", "--state-dir", state_dir)
    assert states(disk, "w1") == began
    assert [line["event"] for line in disk["lines"]][: len(live["lines"])] == [line["event"] for line in live["lines"]]

    # the other worker has the same disk: it tells the story of both, by time
    two = await job.process(source, "w2")
    both = await until(job, lambda found: ("restoring", "working") in states(found, "w2"), "Partition 0")
    assert states(both, "w1") == began
    workers = [line["worker"] for line in both["lines"]]
    assert workers == sorted(workers)  # w1 was dead when w2 began
    fenced = next(line for line in both["lines"] if line["worker"] == "w2" and line["after"] == "restoring")
    assert "after_death=True" in fenced["event"]
    led = await told(job, "leader")
    assert {line["machine"] for line in led["lines"]} == {"leader"}
    assert any("WriteTransaction" in said for line in led["lines"] for said in line["decided"])
    assert {line["worker"] for line in (await told(job, "w2"))["lines"]} == {"w2"}

    two.process.send_signal(signal.SIGTERM)
    assert await two.ended() == 0
    after = await told(job, "Partition 0", "--state-dir", state_dir)
    assert states(after, "w2")[-1] == ("closing", "released")  # the last lines are written when a worker ends

    place = job.directory / "state" / JobName.parse(job.name).directory / "stories"
    replayed = hg.testing.replay(place)
    assert not replayed.differs
    assert not replayed.left_out
    kinds = sorted((story.worker, story.kind) for story in replayed.agreed)
    every = ["committer", "leader", "member", "task", "task"]
    assert kinds == [(worker, kind) for worker in ("w1", "w2") for kind in every]
    assert replayed.events > 100

    class Changed(Task):
        """Asks for a commit of no use after each chunk."""

        def on_ChunkDone(self, event: t.ChunkDone, now: Now):
            return [*super().on_ChunkDone(event, now), t.RequestCommit(urgent=True)]

    wrong_one = hg.testing.replay(folder_of(place.parent, "w1"), {"task": Changed}, of="task")
    assert len(wrong_one.differs) >= 1
    difference = wrong_one.differs[0]
    assert isinstance(difference.line.event, t.ChunkDone)
    assert "decides otherwise on event" in str(difference)
    assert "RequestCommit(urgent=True)" in str(difference)
    assert {story.version for story in stories(place)} == {hg.__version__}

    kept = b"".join(block for path in StoryReader(place).files() for block in blocks_of(path, 0, LeftOut()))
    assert b"ChunkDone" in kept
    assert b"customer-" not in kept  # of records, nothing
    assert b"business" not in kept
