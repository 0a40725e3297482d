"""What it costs to record what a task's machine sees and decides, for each event, in processor time.

    python -m bench stories [--events 60000] [--rounds 5]

    loop      what the main loop pays: `handle` of the same events, recorded and not
    thread    packing, compressing and writing, as the recorder's thread does it
    snapshot  copying the machine, on the loop, as with each new file
    replay    reading, and deciding again

Chunks of one partition, and a commit after each ten of them. The best round counts: the machine may have other work.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headgate.agents.kafka.port import WallClock
from headgate.agents.stories.blocks import Who
from headgate.agents.stories.files import StoryFiles, files_in
from headgate.agents.stories.follow import TASK
from headgate.agents.stories.recorder import Recorder
from headgate.agents.stories.replaying import replay
from headgate.agents.stories.snapshots import taken
from headgate.core.machine import Now
from headgate.core.names import StreamPartition
from headgate.core.orders import RunView, Start
from headgate.core.task import protocol as t
from headgate.core.task.plan import InputPlan, TaskPlan
from headgate.core.task.task import Task

AT = StreamPartition("orders", 0)
PLAN = TaskPlan("sales/1", "Partition 0", (InputPlan("orders", (0,), 1),))
CHUNK, COMMIT_AFTER = 2000, 10


def begun(recorder: Recorder | None) -> Task:
    """A task that works."""
    task = Task(PLAN)
    if recorder is not None:
        recorder.follow(task, TASK, PLAN.task, PLAN, 1)
    first = (Start(PLAN.task, 1, RunView("r1", "u1"), 0), t.StoreOpened(), t.LogEnds(0, 0, 86_400_000), t.Restored(0))
    for event in (*first, t.OffsetsResolved(0, {AT: 0}), t.CommitBegins(1), t.CommitDone(1)):
        task.handle(event, Now(0.0, 0))
    return task


def work(task: Task, count: int, after: Callable[[], None]) -> float:
    """Seconds of processor time for so many events; `after` each two thousand, outside of the measurement."""
    spent_s, number = 0.0, 0
    for block in range(0, count, 2000):
        events: list[t.TaskEvent] = []
        while len(events) < 2000:
            number += 1
            upto = number * CHUNK
            events += [t.ChunkTaken(AT, upto), t.ChunkDone(AT, upto, max_ts=1_767_225_600_000 + number)]
            if number % COMMIT_AFTER == 0:
                events += [t.CommitBegins(1 + number // COMMIT_AFTER), t.CommitDone(1 + number // COMMIT_AFTER)]
        nows = [Now((block + at) / 1000, 1_767_225_600_000 + block + at) for at in range(len(events))]
        begun_s = time.process_time()
        for event, now in zip(events, nows, strict=True):
            task.handle(event, now)
        spent_s += time.process_time() - begun_s
        after()
    return spent_s


def one_round(count: int) -> dict[str, float]:
    """The figures of one round, in µs for each event."""
    found = {"loop, not recorded": work(begun(None), count, lambda: None) / count * 1e6}
    with tempfile.TemporaryDirectory() as directory:
        recorder = Recorder(StoryFiles(Path(directory), "p1", 1 << 30), Who("w1", "p1", "0"), WallClock(), ["hunter2!"])
        task = begun(recorder)
        spent = [0.0]

        def turn() -> None:
            begun_s = time.process_time()
            recorder.turn()
            spent[0] += time.process_time() - begun_s

        found["loop, recorded"] = work(task, count, turn) / count * 1e6
        found["thread"] = spent[0] / count * 1e6
        begun_s = time.process_time()
        for _ in range(100):
            taken(task)
        found["snapshot of the machine"] = (time.process_time() - begun_s) * 1e4
        begun_s = time.process_time()
        replayed = replay(directory)
        assert not replayed.differs
        found["replay"] = (time.process_time() - begun_s) / replayed.events * 1e6
        found["bytes on disk"] = sum(path.stat().st_size for path in files_in(Path(directory))) / replayed.events
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench stories")
    parser.add_argument("--events", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rounds = [one_round(given.events) for _ in range(given.rounds)]
    for name in rounds[0]:
        unit = "bytes" if name.startswith("bytes") else "µs"
        print(f"{name:<24} {min(one[name] for one in rounds):8.2f} {unit}")


if __name__ == "__main__":
    main()
