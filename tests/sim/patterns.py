"""A world whose job reads topics by a pattern: some of them come while it runs, and join the live run.

What else happens is what happens in every world: kills, zombies, moves, drains, further runs, whose leaders decide anew. The checks are
those of every world: the positions of a topic go on where they were, whatever run takes it up; nothing is lost, doubled or out of order;
what is late was so when the topic came. And in the end every topic that has come was read.

`python -m tests.sim.patterns SEED [SEEDS]` runs more of them than CI does.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from typing import Any, cast

from headgate.agents.job.derive.declaration import Declared
from headgate.core.coordination.leader.leader import Leader
from headgate.core.coordination.messages import OVER
from headgate.core.graph.patterned import read_by_run

from .invariants import Violation
from .job import SOURCE, Feed, Shape
from .outcome import unheard
from .process import Process
from .world import Job, World

PATTERN = "orders.*"
BASES = (300, 400)
"""What is added to the partitions of a topic that comes later, to name its producers."""
FOREVER = 10_000


class Patterns(World):
    """One to two topics come, each as wide as the tasks or narrower."""

    def __init__(self, seed: int, *, faulty: bool = True) -> None:
        super().__init__(seed, faulty=faulty)
        self.read: Counter[str] = Counter()
        """By topic, so many ranges of it were read."""
        for job in self.jobs:
            job.look_s = 1.0
        self.due = {f"{SOURCE}-{number}": self.rng.uniform(1.0, 12.0) for number in range(self.rng.choice((1, 2)))}

    def draw(self) -> Shape:
        """One job over rows; its state and its windows as they come."""
        found = Shape.draw(self.rng)
        while found.split or found.mixed or found.modulo:
            found = Shape.draw(self.rng)
        wider = self.rng.choice(
            (0, 0, 2)
        )  # some tasks read no source, until a topic comes that has a partition for them
        width = found.sources + wider if wider else found.width
        return replace(found, width=width, columns="", bounded=False, pattern=PATTERN)

    def make_leader(self, process: Process) -> Leader:
        """A process that starts knows the topics of a run that is not over, or else all that there are, as a worker does."""
        job = process.job
        run = self.invariants.truth(job).state.run
        found = list(self.feeds)
        if run is not None and run.state not in OVER:
            found = read_by_run(run.fingerprint, [PATTERN])
        declared = job.declared
        if set(found) != declared.inputs.keys():
            declared = Declared(declared.app, found=tuple(found))
        job.declared = declared
        parts = {f"input:{topic}": json.dumps({"pattern": PATTERN}) for topic in found}
        job.plan = replace(
            job.plan,
            graph=declared.graph,
            fingerprint={"job": job.kind, **parts},
            wider=lambda t: declared.joined(t).graph,
        )
        return super().make_leader(process)

    def begin(self) -> None:
        """Schedule what comes."""
        super().begin()
        for number, (topic, at) in enumerate(self.due.items()):
            self.schedule.at(at, self.come, topic, BASES[number])

    def come(self, topic: str, base: int) -> None:
        """A topic is made, and filled at once or little by little."""
        width = self.rng.choice((1, 2, self.shape.sources, max(self.shape.sources, self.shape.width)))
        self.kafka.create(topic, width)
        feed = self.feeds[topic] = Feed(self.kafka, self.rng, self.shape, topic, base)
        feed.width = 0  # each of its partitions was added while the job ran
        self.took_effect("topic")
        for partition in range(width):
            self.schedule.at(self.rng.random(), self.write_source, topic, partition)

    def check_end(self) -> None:
        """Check, too, that what has joined the last run was taken up by each of its tasks."""
        super().check_end()
        for job in self.jobs:
            moves = self.invariants.intervals.get(job.name, {})
            self.read.update(at.stream for at, found in moves.items() if found and at.stream in self.due)
            taken_up(self, job)


def taken_up(world: World, job: Job) -> None:
    """Raise if a task has drained without what the model gives to it."""
    model = world.invariants.truth(job).state.model
    for task, owned in model.tasks.items() if model is not None else ():
        positions = world.invariants.references[job.name, task].positions
        if lacks := [at for at in owned if at not in positions]:
            raise Violation(f"{task} has drained without {lacks}, which the model gives to it")


def joined(seed: int, *, faulty: bool = True) -> Patterns:
    """Run one world to its end."""
    with unheard():
        world = Patterns(seed, faulty=faulty)
        return cast("Patterns", world.run())


def main(words: list[str]) -> int:
    """Run these seeds, and name those that fail."""
    first, many = int(words[0]), int(words[1]) if len(words) > 1 else 1
    effects: Counter[str] = Counter()
    read = failed = 0
    for seed in range(first, first + many):
        try:
            world: Any = joined(seed)
        except (Violation, Exception) as error:  # noqa: BLE001 - named below
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            continue
        effects += world.effects
        read += sum(count > 0 for count in world.read.values())
    print(f"{many} worlds, {failed} failed; {effects['topic']} topics have come, {read} were read; {dict(effects)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
