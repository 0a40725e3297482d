"""A world whose workers never come back: each is killed or leaves, and the next one has a new name.

There is one small job (one partition, one task), two pods at a time, and no other fault. The check is on the coordinator stream: the broker
compacts it after every generation, and it may then contain only records about living workers, about workers that have gone too recently to
be deleted, and the few keys of every job.

`python -m tests.sim.generations [NAMES]` runs more of them than CI does; `make fuzz` runs ten thousand.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from headgate.core.coordination import messages
from headgate.core.coordination.member import protocol as member_words
from headgate.core.coordination.messages import FORGOTTEN
from headgate.core.coordination.wire import read

from .job import Shape
from .outcome import unheard
from .process import Slot
from .world import World

SHORT_S = (0.4, 2.5)
"""How long most of them live: a pod that crashes right after its start, again and again."""
LONG_S = (35.0, 50.0)
"""How long the elder one lives: it becomes the leader, declares silent workers dead, and cleans up; then it goes, too."""
LEAVES = 0.2
"""The share of them that leave on SIGTERM; the others are killed."""
KEPT_S = 120.0
"""After this time nothing may remain of a worker that is gone. A session, a fence and the retention take half a minute; two leaders may die
meanwhile.
"""
OF_ONE = 3
"""The keys of one worker: its record, its valid incarnation, its fence."""
OF_THE_JOB = ("set-run", "set-leader", "set-job-model", "set-changelog", "set-grant", "set-fence")
"""The keys of a job, whatever its workers: the run, the leader, the model, the task's log and grant, and the fence for all deleted
workers.
"""
OF_A_TASK = 2
"""The states of a task: under its grant, and under the previous one."""
OF_WORKERS = ("set-processor", "set-member", "set-fence")


class Generations(World):
    """Runs until this many names have come and gone, then drains."""

    bound_steps = 1 << 60

    def __init__(self, seed: int, names: int) -> None:
        super().__init__(seed, faulty=False)
        self.names = names
        self.begun = 0
        self.most = 0
        """The most keys that the compacted stream has contained."""
        self.looks = 0
        self.gone: dict[str, float] = {}
        """When each gone worker went, without those whose records must be deleted by now."""
        self.job = self.jobs[0]
        self.job.slots.clear()
        self.job.heartbeat_s = 2.0

    def draw(self) -> Shape:
        """One partition of everything, and few rows."""
        return Shape(
            sources=1, width=1, keys=3, chunk=4, aggregated=False, rows=500, pace_s=self.rng.uniform(100.0, 200.0)
        )

    def begin(self) -> None:
        """Start the first pods, and schedule the first end."""
        self.schedule.at(0.0, self.write_source, "orders", 0)
        self.elder, self.younger = self.pod(), self.pod()
        self.elder_until = 10.0
        self.schedule.at(5.0, self.next)
        self.schedule.at(1.0, self.scan)

    def scan(self) -> None:
        """Run seldom, because there are thousands of producers."""
        self.kafka.expire()
        self.schedule.at(30.0, self.scan)

    def pod(self) -> Slot:
        """Start a pod with a new name."""
        self.begun += 1
        slot = Slot(self.job, f"pod-{self.rng.randrange(1 << 32):08x}-{self.begun}", "host0")
        self.job.slots.append(slot)
        self.launch(slot)
        return slot

    def next(self) -> None:
        """End one pod, and start another."""
        if self.begun == self.names:
            self.request(self.job, "drain")
            self.schedule.at(1.0, self.drain_all)
            return
        slot = self.younger
        if self.schedule.moment > self.elder_until:
            slot, self.elder = self.elder, self.younger
            self.elder_until = self.schedule.moment + self.rng.uniform(*LONG_S)
        process = slot.process
        assert process is not None, f"{slot.processor} ended by itself"
        if self.rng.random() < LEAVES:
            slot.absent = True
            process.guilty_until = float("inf")
            process.to_member(member_words.Leave("SIGTERM"))
            self.took_effect("sigterm")
        else:
            self.kill(process, None)
            self.took_effect("kill")
        self.younger = self.pod()
        self.look()
        self.schedule.at(self.rng.uniform(*SHORT_S), self.next)

    def look(self) -> None:
        """Compact the stream, and check which workers it still contains."""
        moment = self.schedule.moment
        for slot in [slot for slot in self.job.slots if slot.absent and slot.process is None]:
            self.job.slots.remove(slot)
            self.gone[slot.processor] = moment
        self.gone = {name: at for name, at in self.gone.items() if moment - at <= KEPT_S}
        log = self.job.coordinator_log
        log.clean(self.schedule.wall_ms)
        last: dict[Any, Any] = {}
        for record in log.read(log.start, 1 << 30)[0]:
            last[record.key] = read(record.offset, record.key, record.value).message
        standing = [message for message in last.values() if message is not None]
        about = {m.processor for m in standing if messages.key_of(m)[0] in OF_WORKERS} - {FORGOTTEN}
        spoken_of = {slot.processor for slot in self.job.slots} | self.gone.keys()
        if late := sorted(about - spoken_of):
            self.invariants.fail(f"the stream speaks of {len(late)} workers that are long gone, of {late[0]} first")
        most = len(OF_THE_JOB) + OF_A_TASK + OF_ONE * len(spoken_of)
        if len(standing) > most:
            kinds = Counter(messages.key_of(message)[0] for message in standing)
            self.invariants.fail(f"{len(standing)} keys stand in the stream, and {most} may: {dict(kinds)}")
        self.most = max(self.most, len(standing))
        self.looks += 1
        if self.looks % 100 == 0:
            self.invariants.folds(self.job)


def come_and_gone(names: int, seed: int = 1) -> str:
    """Run so many generations, check that they have happened, and say what did."""
    world = Generations(seed, names)
    with unheard():
        world.run()
    truth = world.invariants.truth(world.job)
    assert (world.begun, world.looks) == (names, names - 2)
    assert world.effects["kill"] > names // 2
    assert world.effects["sigterm"] > names // 10
    assert truth.terms > names // 100, "leaders go, too"
    assert sum(one.rows for _, one in world.accounts()) > names // 500, "the job has worked"
    assert len(truth.state.at) <= world.most < 200
    world.invariants.folds(world.job)
    return f"{names} workers, {truth.terms} leaders, at most {world.most} keys, {world.schedule.steps} steps"


if __name__ == "__main__":
    print(come_and_gone(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
