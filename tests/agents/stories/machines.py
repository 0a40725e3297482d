"""A task's machine that lives through a short life, recorded as in a worker."""

from __future__ import annotations

from headgate.agents.stories.blocks import Who
from headgate.agents.stories.files import StoryFiles
from headgate.agents.stories.follow import TASK
from headgate.agents.stories.recorder import Recorder
from headgate.core.machine import Now
from headgate.core.names import StreamPartition
from headgate.core.orders import Release, RunView, Start
from headgate.core.task import protocol as t
from headgate.core.task.plan import InputPlan, TaskPlan
from headgate.core.task.task import Task

AT = StreamPartition("orders", 0)
PLAN = TaskPlan("sales/1", "Partition 0", (InputPlan("orders", (0,), 1),))
WALL = 1_767_225_600_000


class Clock:
    """Stands where a test sets it."""

    def __init__(self) -> None:
        self.mono = 100.0

    def now(self) -> Now:
        return Now(self.mono, WALL + round(self.mono * 1000))

    def call_later(self, delay_s, callback, *args):
        raise NotImplementedError


def recorder(folder, clock, *, process="p1", most=1 << 20, secrets=()):
    return Recorder(StoryFiles(folder, process, most), Who("w1", process, "0.1"), clock, secrets)


def started(keeper, clock, plan=PLAN, grant=3):
    """A task that has restored and works."""
    task = Task(plan)
    keeper.follow(task, TASK, plan.task, plan, grant)
    feed(
        task,
        clock,
        Start(plan.task, grant, RunView("r1", "u1"), 0),
        t.StoreOpened(),
        t.LogEnds(0, 0, 86_400_000),
        t.Restored(0),
        t.OffsetsResolved(0, {AT: 0}),
        t.CommitBegins(1),
        t.CommitDone(1),
    )
    assert task.state == "working"
    return task


def feed(task, clock, *events):
    for event in events:
        clock.mono += 0.25
        task.handle(event, clock.now())


def chunk(upto):
    return t.ChunkTaken(AT, upto), t.ChunkDone(AT, upto)


def released(task, clock):
    feed(task, clock, Release("moved"), t.CommitBegins(9), t.CommitDone(9), t.StoreClosed())
    assert task.state == "released"
