"""The faults, and the operators' requests, while a job runs.

Each seed uses some kinds and leaves the others out (swarm testing): a run with all faults at once hides what goes wrong when only two of
them meet. A fault counts if it took effect: a kill if a process was alive, a lost answer if an answer was lost. When the time of faults is
over (`WINDOW_S`, or later if fewer than `LEAST` have taken effect), the operator drains the job, starts what was stopped, and waits for the
end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from headgate.agents.job.types.schemas import PARKED
from headgate.core.coordination import messages
from headgate.core.coordination.leader import protocol as leader_words
from headgate.core.coordination.member import protocol as member_words
from headgate.core.names import StreamPartition

from .branches import PARKS, RELEASING_FROM, SKIPPING_FROM
from .disk import Location
from .invariants import number_of
from .job import EXTRAS, SIDE, SOURCE
from .log import Partition
from .process import Process, Slot
from .shares import Story

if TYPE_CHECKING:
    from .world import Job, World

LEAST = 4
WINDOW_S = (14.0, 32.0)
REQUESTS = (
    "drain",
    "cascade",
    "stop",
    "pause",
    "pause-stream",
    "seek",
    "config",
    "move",
    "stop-worker",
    "seek-time",
    "skip",
    "withdraw",
    "unset-config",
    "release",
)
"""These are no faults but requests of operators. They also come at any time, but do not count towards `LEAST`."""


class Faults:
    """The faults of one seed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.schedule = world.schedule
        self.kafka = world.kafka
        names = sorted(KINDS)
        self.kinds = self.rng.sample(names, self.rng.randint(3, 8))
        if not any(kind not in REQUESTS for kind in self.kinds):
            self.kinds.append("kill")
        self.kinds += edges_of(world.seed) + further_of(world.seed) + calls_of(world.seed)
        if world.seed >= RELEASING_FROM and any(
            job.branches is not None and job.branches.policy == PARKS for job in world.jobs
        ):
            self.kinds += sorted(RELEASES)
            self.kinds += sorted(LEFT_OUT) if world.seed >= SKIPPING_FROM else []
        for name in world.locations if "power-cut" in self.kinds else ():
            world.disk(name).may_fail = True
        if world.shape.mixed and "growth" not in self.kinds:
            self.kinds.append("growth")  # new tasks join after others have ended: the producer set changes during a run
        self.pace_s = self.rng.uniform(0.6, 3.0)
        self.over_at = self.rng.uniform(*WINDOW_S)
        self.injected = 0
        self.concluding = False
        self.open_drains: dict[str, str] = {}

    def begin(self) -> None:
        """Schedule the first fault, while the workers start or later."""
        if self.world.shares is not None:
            Story(self.world.shares, self).begin()
        self.schedule.at(self.rng.uniform(0.2, 6.0), self.inject)
        if self.rng.random() < 0.5:
            self.schedule.at(self.rng.uniform(2.0, 5.0), self.clean)

    def clean(self) -> None:
        """Run the log cleaner, which runs all the time."""
        self.compaction()
        self.schedule.at(self.rng.uniform(1.0, 4.0), self.clean)

    def counted(self) -> int:
        """How many faults have taken effect, without requests."""
        return sum(n for name, n in self.world.effects.items() if name not in REQUESTS)

    def inject(self) -> None:
        """Inject one of the seed's faults, and schedule the next."""
        late = self.schedule.moment > self.over_at
        if late and self.counted() >= LEAST:
            self.conclude()
            return
        kind = self.rng.choice(self.kinds)
        if late and (kind in REQUESTS or self.schedule.moment > self.over_at + 20.0):
            kind = self.rng.choice(("kill", "stall", "duplicate"))
        self.injected += 1
        (KINDS | EDGES | FURTHER | CALLS | RELEASES | LEFT_OUT)[kind](self)
        self.schedule.at(self.rng.expovariate(1.0 / self.pace_s), self.inject)

    # ------------------------------------------------------------------------------------------------------ to choose

    def process(self) -> Process | None:
        """A process that is alive."""
        alive = [slot.process for job in self.world.jobs for slot in job.slots if slot.process is not None]
        return self.rng.choice(alive) if alive else None

    def job(self) -> Job:
        return self.rng.choice(self.world.jobs)

    def run_state(self, job: Job) -> str:
        run = self.world.invariants.truth(job).state.run
        return "" if run is None else run.state

    # ---------------------------------------------------------------------------------------------------- of processes

    def kill(self) -> None:
        victim = self.process()
        if victim is None:
            return
        alone = sum(slot.process is not None and not slot.absent for slot in victim.job.slots) < 3
        draw = self.rng.random()
        back = (
            None
            if draw < 0.1 and not alone
            else self.rng.uniform(8.0, 16.0)
            if draw < 0.3
            else self.rng.uniform(0.2, 3.0)
        )
        if self.rng.random() < 0.2:
            victim.slot.location = self.rng.choice(self.world.locations)
        self.world.kill(victim, back)
        self.world.took_effect("kill")

    def kill_all(self) -> None:
        self.kill_job(self.job())

    def kill_job(self, job: Job) -> None:
        """Kill every worker of a job at once."""
        for slot in job.slots:
            if slot.process is not None:
                self.world.kill(slot.process, self.rng.uniform(0.2, 5.0))
        self.world.took_effect("kill-all")

    def stall(self) -> None:
        victim = self.process()
        if victim is not None:
            victim.freeze(self.rng.uniform(0.3, 4.5))
            self.world.took_effect("stall")

    def zombie(self) -> None:
        """Freeze a process for longer than a session; then it continues as if nothing had happened."""
        victim = self.process()
        if victim is None:
            return
        if self.rng.random() < 0.5:
            victim.freeze_on_record = self.rng.uniform(8.0, 18.0)  # with messages not yet written
        else:
            victim.freeze(self.rng.uniform(8.0, 18.0))
            self.world.took_effect("zombie")

    def term(self) -> None:
        victim = self.process()
        if victim is not None and victim.exit is None:
            victim.guilty_until = self.schedule.moment + 60.0
            prepare_s = (0.0, 8.0)[int(self.schedule.moment * 1000) % 2]
            victim.to_member(member_words.Leave("SIGTERM", prepare_s))
            self.world.took_effect("sigterm")

    def twin(self) -> None:
        """Start a second process with the same name, while the first lives."""
        victim = self.process()
        if victim is None:
            return
        victim.guilty_until = self.schedule.moment + 60.0
        twin = Slot(victim.job, victim.slot.processor, self.rng.choice(self.world.locations))
        twin.lives = 100 + self.injected
        twin.once = True
        victim.job.slots.append(twin)
        self.world.launch(twin)
        self.world.took_effect("twin")

    # ------------------------------------------------------------------------------------------------------ of the net

    def lost_ack(self) -> None:
        victim = self.process()
        if victim is not None:
            victim.lose_answer += self.rng.randint(1, 2)

    def slow_reader(self) -> None:
        victim = self.process()
        if victim is not None:
            victim.read_delay_s = self.rng.uniform(0.3, 3.0)
            victim.fetch_delay_s = self.rng.choice((0.0, 0.5))
            self.world.took_effect("slow-reader")
            self.schedule.at(self.rng.uniform(1.0, 8.0), self._fast_again, victim)

    def _fast_again(self, victim: Process) -> None:
        victim.read_delay_s = 0.0
        victim.fetch_delay_s = 0.0

    def duplicate(self) -> None:
        self.world.duplicate_beats += self.rng.randint(0, 3)
        self.world.duplicate_singles += self.rng.randint(1, 3)

    def slow_fence(self) -> None:
        self.world.slow_fences += 2

    def failing_fence(self) -> None:
        self.world.failing_fences += 1

    def cut_off(self) -> None:
        """One worker cannot reach the broker, while the others can."""
        victim = self.process()
        if victim is None:
            return
        seconds = self.rng.uniform(0.3, 4.0) if self.rng.random() < 0.5 else self.rng.uniform(8.0, 16.0)
        victim.cut(seconds)
        victim.guilty_until = self.schedule.moment + 60.0
        self.world.took_effect("cut-off")
        self.schedule.at(seconds, self._reached_again)

    def _reached_again(self) -> None:
        self.world.quiet_from = self.schedule.moment

    def lost_commit(self) -> None:
        """The end of a transaction is lost on its way."""
        victim = self.process()
        if victim is not None:
            victim.lose_commits += 1

    def cancelled_call(self) -> None:
        """The client cancels some calls of the worker, which nobody has asked for."""
        victim = self.process()
        if victim is not None:
            victim.cancel_calls += self.rng.randint(1, 3)

    # --------------------------------------------------------------------------------------------------- of the broker

    def late_markers(self) -> None:
        """Some transactions are decided and acknowledged, and readers see that later."""
        self.world.late_markers += self.rng.randint(1, 6)

    def partition_away(self) -> None:
        """One partition has no leader for a while."""
        topic = self.rng.choice(sorted(self.kafka.topics))
        at = StreamPartition(topic, self.rng.randrange(len(self.kafka.topics[topic])))
        if at not in self.kafka.away:
            self.kafka.away.add(at)
            self.world.took_effect("partition-away")
            self.schedule.at(self.rng.choice((0.4, 2.0, 9.0)) * self.rng.uniform(0.7, 1.3), self._led_again, at)

    def _led_again(self, at: StreamPartition) -> None:
        self.kafka.away.discard(at)
        self.world.trouble_over[at] = self.schedule.moment
        self.world.quiet_from = self.schedule.moment

    def retention(self) -> None:
        """The broker deletes the beginning of a source partition; mostly while nobody reads it, so that some of it was not read yet."""
        topic = self.rng.choice(sorted(self.world.feeds))
        at = StreamPartition(topic, self.rng.randrange(len(self.kafka.topics[topic])))
        after_s = 0.0
        if self.rng.random() < 0.7:
            after_s = self.rng.uniform(0.2, 4.0)
            for job in self.world.jobs:
                for slot in job.slots if topic in job.inputs else ():
                    if slot.process is not None:
                        self.world.kill(slot.process, after_s + self.rng.uniform(0.0, 3.0))
        self.schedule.at(after_s, self._deleted, at)

    def _deleted(self, at: StreamPartition) -> None:
        log = self.kafka.topics[at.stream][at.partition]
        read = max((one.positions.get(at, 0) for one in self.world.invariants.references.values()), default=0)
        if log.start < log.end:
            log.trim(self.rng.randint(min(max(log.start, read) + 1, log.end), log.end))
            self.world.took_effect("retention")

    def outage(self) -> None:
        if self.kafka.down:
            return
        self.kafka.down = True
        self.world.took_effect("outage")
        self.schedule.at(self.rng.choice((0.5, 2.0, 9.0, 14.0)) * self.rng.uniform(0.7, 1.2), self._broker_up)

    def _broker_up(self) -> None:
        self.kafka.down = False
        self.world.outage_over = self.schedule.moment
        self.world.took_effect("outage")

    def bad_target(self) -> None:
        """Make one partition reject writes for a while: the topic is gone, or a permission is missing."""
        ours = {topic for job in self.world.jobs for topic in (job.coordinator_topic, job.heartbeat_topic)}
        topic = self.rng.choice(
            sorted(self.kafka.topics.keys() - ours - {SOURCE, EXTRAS, SIDE} - self.world.feeds.keys())
        )
        target = StreamPartition(topic, self.rng.randrange(len(self.kafka.topics[topic])))
        if target not in self.kafka.broken:
            self.kafka.broken[target] = self.injected
            self.schedule.at(self.rng.uniform(1.0, 20.0), self._good_again, target)

    def _good_again(self, target: StreamPartition) -> None:
        if self.kafka.broken.pop(target, None) is not None:
            self.world.trouble_over[target] = self.schedule.moment
        self.world.quiet_from = self.schedule.moment

    def compaction(self) -> None:
        gone = 0
        for topic in sorted(self.kafka.topics):
            for log in self.kafka.topics[topic]:
                if log.compact:
                    gone += log.clean(self.schedule.wall_ms)
        if gone:
            self.world.effects["compaction"] += 1
            for job in self.world.jobs:
                self.world.invariants.folds(job)

    def growth(self) -> None:
        """Add partitions to the source. A job reads them in its live run where it can, else from the next run."""
        world = self.world
        topic = EXTRAS if world.shape.mixed else SOURCE
        before = len(self.kafka.topics[topic])
        if before > (2 if world.shape.mixed else world.shape.sources):
            return
        self.kafka.grow(topic, before * 2)
        world.took_effect("growth")
        for partition in range(before, before * 2):
            self.schedule.at(self.rng.uniform(0.0, 2.0), world.write_source, topic, partition)
        self.schedule.at(0.5, self._counts)

    def _counts(self) -> None:
        for job in self.world.jobs:
            for process in list(job.processes):
                plan = process.leader.config.plan
                event = leader_words.Counts(job.counts(plan), job.more_counts(plan))
                self.schedule.post(process, self.rng.uniform(0.0, 2.0), process.to_leader, event)

    # ---------------------------------------------------------------------------------------------- of clocks and code

    def clock_jump(self) -> None:
        victim = self.process()
        if victim is not None:
            victim.wall_offset_ms += self.rng.choice((-3_600_000, -1500, 1500, 3_600_000))
            self.world.took_effect("clock-jump")

    def user_error(self) -> None:
        self.world.failing_chunks += 1
        self.world.failing_starts += 1

    def cancelled_await(self) -> None:
        self.world.cancelled_awaits += 1

    # -------------------------------------------------------------------------------------------- of disks and of records

    def refused_write(self) -> None:
        self.world.refusing_writes += 1

    def full_disk(self) -> None:
        location = self.world.disk(self.rng.choice(self.world.locations))
        location.full = True
        self.schedule.at(self.rng.uniform(0.3, 6.0), self._room_again, location)

    def _room_again(self, location: Location) -> None:
        location.full = False
        self.world.quiet_from = self.schedule.moment

    def busy_disk(self) -> None:
        location = self.world.disk(self.rng.choice(self.world.locations))
        location.busy = True
        self.schedule.at(self.rng.uniform(0.05, 2.0), self._followed, location)

    def _followed(self, location: Location) -> None:
        location.busy = False

    def power_cut(self) -> None:
        """All workers of a machine die at once, and its disk has only what was synced."""
        name = self.rng.choice(self.world.locations)
        there = [slot for job in self.world.jobs for slot in job.slots if slot.location == name]
        if not any(slot.process is not None for slot in there):
            return
        back_after = self.rng.uniform(0.2, 5.0)
        for slot in there:
            if slot.process is not None:
                self.world.kill(slot.process, back_after + self.rng.random())
        self.world.disk(name).power_cut()
        self.world.took_effect("power-cut")

    def poison(self) -> None:
        """Add a record that nobody can decode to a partition; after a while the broker has a good copy of it."""
        topics = sorted({*self.world.feeds, *self.world.framed})
        log = self.rng.choice(self.kafka.topics[self.rng.choice(topics)])
        offset = log.end + self.rng.randrange(3)
        log.damaged.add(offset)
        self.world.took_effect("poison")
        self.schedule.at(self.rng.uniform(0.5, 8.0), self._decoded_again, log, offset)

    def _decoded_again(self, log: Partition, offset: int) -> None:
        log.damaged.discard(offset)
        self.world.quiet_from = self.schedule.moment

    # --------------------------------------------------------------------------------------------------------- requests

    def requested(self, job: Job, verb: str, name: str, **arguments: object) -> str:
        """Send an operator's request, and count it by this name. Returns its uuid."""
        self.world.effects[name] += 1
        job.concluded = False
        return self.world.request(job, verb, **arguments)

    def drain(self) -> None:
        job = self.job()
        if self.run_state(job) == messages.RunState.RUNNING:
            self.requested(job, "drain", "drain")
            if job.windows is not None or job.joining is not None or job.writes:  # what it closes may open again
                self.schedule.at(self.rng.uniform(1.0, 8.0), self.start, job)

    def stop(self) -> None:
        job = self.job()
        if self.run_state(job) in (messages.RunState.RUNNING, messages.RunState.DRAINING):
            self.requested(job, "stop", "stop")
            self.schedule.at(self.rng.uniform(1.0, 8.0), self.start, job)

    def start(self, job: Job) -> None:
        """Begin or resume a run, as soon as the last one is closed."""
        state = self.run_state(job)
        if state in messages.CLOSED:
            if state == messages.RunState.STOPPED:
                job.resumes += 1
            else:
                job.allowed_begins += 1
            self.requested(job, "start", "start")
        elif not self.concluding:
            self.schedule.at(1.0, self.start, job)

    def pause(self) -> None:
        job = self.job()
        self.requested(job, "pause", "pause")
        self.schedule.at(self.rng.uniform(0.5, 5.0), self.requested, job, "resume", "pause")

    def pause_stream(self) -> None:
        job = self.job()
        stream = job.inputs[0]
        self.requested(job, "pause", "pause-stream", stream=stream)
        if self.rng.random() < 0.7:
            self.schedule.at(self.rng.uniform(0.5, 5.0), self._resume_stream, job, stream)

    def _resume_stream(self, job: Job, stream: str) -> None:
        self.requested(job, "resume", "pause-stream", stream=stream)

    def seek(self) -> None:
        job = self.job()
        if job.kind == "downstream":
            return
        world, source = self.world, job.inputs[0]
        partition = self.rng.randrange(world.feeds[source].width)
        to = self.rng.choice(("oldest", "newest", self.rng.randrange(20)))
        self._sought(job, "seek", partition, to)

    def _sought(self, job: Job, name: str, partition: int, to: object) -> None:
        self.requested(job, "seek", name, stream=job.inputs[0], partition=partition, to=to)
        if self.rng.random() < 0.6:
            if self.rng.random() < 0.5:
                self.schedule.at(self.rng.uniform(0.02, 0.3), self.kill_all)
            else:
                self.schedule.at(self.rng.uniform(0.0, 0.3), self._kill_owner, job, f"Partition {partition % 6}")

    def _input(self) -> tuple[Job, StreamPartition]:
        """A partition of a source, and the job that reads it."""
        job = self.rng.choice([job for job in self.world.jobs if job.kind != "downstream"])
        return job, StreamPartition(job.inputs[0], self.rng.randrange(self.world.feeds[job.inputs[0]].width))

    def seek_time(self) -> None:
        """A seek to a time: mostly one of a record, sometimes one after all of them."""
        job, at = self._input()
        ms = self.schedule.wall_ms - self.rng.randrange(-2000, 12_000)
        self._sought(job, "seek-time", at.partition, ["time", ms])

    def skip(self) -> None:
        """Leave out a record that is processed soon, or was just now. One that does not exist is refused by the command."""
        job, at = self._input()
        read = [
            one.positions.get(at, 0) for (name, _), one in self.world.invariants.references.items() if name == job.name
        ]
        wanted = max(0, max(read, default=0) + self.rng.randint(-1, 8))
        last = self.kafka.topics[at.stream][at.partition].end - 1
        if last >= 0:
            self._sought(job, "skip", at.partition, ["skip", min(wanted, last)])

    def release(self) -> None:
        """Have the parked rows of a task, or of some, tried now. Some workers are killed just then."""
        job = next(job for job in self.world.jobs if job.branches is not None and job.branches.policy == PARKS)
        model = self.world.invariants.truth(job).state.model
        if model is None:
            return
        some = self.rng.sample(sorted(model.tasks), self.rng.randint(1, min(2, len(model.tasks))))
        self.requested(job, "release-parked", "release", tasks={task: [[None, None]] for task in some})
        if self.rng.random() < 0.3:
            self.schedule.at(self.rng.uniform(0.02, 0.3), self.kill_all)

    def leave_out(self) -> None:
        """Have a parked row of a task left out, or all of its key or of the task up to one. Some workers are killed just then."""
        job = next(job for job in self.world.jobs if job.branches is not None and job.branches.policy == PARKS)
        waiting = {
            task: sorted(map(number_of, rows))
            for (name, task), one in sorted(self.world.invariants.references.items())
            if name == job.name and (rows := one.tables.get(PARKED))
        }
        if not waiting:
            return
        task = self.rng.choice(sorted(waiting))
        upto = self.rng.choice(waiting[task])
        number = self.rng.choice([None, upto, waiting[task][0]])
        self.requested(job, "skip-parked", "leave-out", tasks={task: [[number, max(upto, number or 0)]]})
        if self.rng.random() < 0.3:
            self.schedule.at(self.rng.uniform(0.02, 0.3), self.kill_all)

    def withdraw(self) -> None:
        """Take back a request that has no answer yet."""
        job = self.job()
        finals = self.world.invariants.truth(job).finals
        waiting = [uuid for uuid, one in job.requests.items() if uuid not in finals and one.verb != "withdraw"]
        if not waiting and job.kind != "downstream":
            partition = self.rng.randrange(self.world.feeds[job.inputs[0]].width)
            waiting = [
                self.requested(
                    job, "seek", "seek", stream=job.inputs[0], partition=partition, to=self.rng.randrange(20)
                )
            ]
        if waiting:
            meant = self.rng.choice(waiting)
            self.schedule.at(self.rng.uniform(0.0, 0.5), self._withdraw, job, meant)

    def _withdraw(self, job: Job, meant: str) -> None:
        self.requested(job, "withdraw", "withdraw", request=meant)

    def unset_config(self) -> None:
        """A setting is set, and after a while no more."""
        job = self.job()
        value = self.rng.choice(("100ms", "1s"))
        self.requested(job, "set-config", "config", setting="commit.interval", value=value)
        unset = partial(self.requested, setting="commit.interval")
        self.schedule.at(self.rng.uniform(0.5, 6.0), unset, job, "unset-config", "unset-config")

    def _kill_owner(self, job: Job, task: str) -> None:
        """Kill the owner at some time between the request, the checkpoint that contains it, and the answer."""
        held = self.world.invariants.truth(job).state.held(task)
        for slot in job.slots:
            if held is not None and slot.process is not None and slot.process.member.incarnation == held.incarnation:
                self.world.kill(slot.process, self.rng.uniform(0.2, 3.0))
                self.world.took_effect("kill")
                return

    def config(self) -> None:
        self.requested(
            self.job(), "set-config", "config", setting="commit.interval", value=self.rng.choice(("100ms", "1s"))
        )

    def move(self) -> None:
        job = self.job()
        task = f"Partition {self.rng.randrange(6)}"
        self.requested(job, "move", "move", task=task, to=self.rng.choice(job.slots).processor)

    def stop_worker(self) -> None:
        victim = self.process()
        if victim is not None and sum(slot.process is not None for slot in victim.job.slots) > 2:
            victim.guilty_until = self.schedule.moment + 60.0
            self.requested(victim.job, "stop", "stop-worker", worker=victim.slot.processor)

    # -------------------------------------------------------------------------------------------------- the conclusion

    def conclude(self) -> None:
        """Inject no more faults: missing workers return, stopped runs continue, and everything drains."""
        world = self.world
        if not self.concluding:
            self.concluding = True
            world.failing_chunks = world.failing_starts = world.failing_fences = world.cancelled_awaits = (
                world.refusing_writes
            ) = 0
            world.trouble_over |= {StreamPartition(*at): self.schedule.moment for at in world.kafka.broken}
            world.kafka.broken.clear()
            world.late_markers = 0
            world.quiet_from = self.schedule.moment
            for job in world.jobs:
                for slot in job.slots:
                    slot.absent = slot.once
                    if slot.process is None and not slot.absent:
                        world.launch(slot, self.rng.random())
                    elif slot.process is not None:
                        slot.process.lose_answer = slot.process.lose_commits = slot.process.cancel_calls = 0
                        slot.process.freeze_on_record = 0.0
                        slot.process.wall_offset_ms = (
                            0  # a leader with a wrong clock would refuse every request as expired
                        )
        if not world.timely.over():
            for job in world.jobs:
                self._keep_going(job)
            self.schedule.at(1.0, self.conclude)
            return
        for job in world.jobs:
            self._conclude(job)
        self.schedule.at(2.0, self.conclude)

    def _keep_going(self, job: Job) -> None:
        """A calm world judges the time of jobs that run."""
        truth = self.world.invariants.truth(job)
        run, waiting = truth.state.run, [one.verb for uuid, one in job.requests.items() if uuid not in truth.finals]
        if run is None or waiting:
            return
        if run.state in messages.LIVE and truth.state.failed():
            self.requested(job, "stop", "stop")
        elif run.state in messages.CLOSED:
            self.start(job)
        elif run.paused_job:
            self.requested(job, "resume", "pause")
        for stream in run.paused_streams if run.state in messages.LIVE else ():
            self._resume_stream(job, stream)

    def _conclude(self, job: Job) -> None:
        world = self.world
        truth = world.invariants.truth(job)
        run = truth.state.run
        waiting = [request.verb for uuid, request in job.requests.items() if uuid not in truth.finals]
        if run is None or not job.upstream_done():
            return
        if run.state in messages.LIVE and truth.state.failed() and "stop" not in waiting:
            self.requested(job, "stop", "stop")  # a stop and a start restart a task that has given up
        elif run.state == messages.RunState.STOPPED and "start" not in waiting:
            self.start(job)
        elif (
            run.state == messages.RunState.RUNNING
            and not run.closing
            and "drain" not in waiting
            and "stop" not in waiting
        ):
            shares = world.shares
            if shares is not None and shares.sharing.cascade and not job.writes:
                ends = shares.ends()
                shares.last = (self.requested(job, "drain", "cascade", upto=ends), ends)
            else:
                self.requested(job, "drain", "drain")
        elif run.state in (messages.RunState.DRAINED, messages.RunState.ENDED):
            if not waiting:
                job.concluded = True
            elif set(waiting) <= {"seek", "release-parked", "skip-parked"}:
                self.start(job)  # a seek of a closed run waits for the next one


KINDS: dict[str, Callable[[Faults], None]] = {
    "kill": Faults.kill,
    "kill-all": Faults.kill_all,
    "stall": Faults.stall,
    "zombie": Faults.zombie,
    "sigterm": Faults.term,
    "twin": Faults.twin,
    "lost-ack": Faults.lost_ack,
    "slow-reader": Faults.slow_reader,
    "duplicate": Faults.duplicate,
    "slow-fence": Faults.slow_fence,
    "fence-fails": Faults.failing_fence,
    "outage": Faults.outage,
    "bad-target": Faults.bad_target,
    "compaction": Faults.compaction,
    "growth": Faults.growth,
    "clock-jump": Faults.clock_jump,
    "user-error": Faults.user_error,
    "cancelled-await": Faults.cancelled_await,
    "refused-write": Faults.refused_write,
    "full-disk": Faults.full_disk,
    "busy-disk": Faults.busy_disk,
    "poison": Faults.poison,
    "drain": Faults.drain,
    "stop": Faults.stop,
    "pause": Faults.pause,
    "pause-stream": Faults.pause_stream,
    "seek": Faults.seek,
    "config": Faults.config,
    "move": Faults.move,
    "stop-worker": Faults.stop_worker,
}
EDGES: dict[str, Callable[[Faults], None]] = {
    "cut-off": Faults.cut_off,
    "lost-commit": Faults.lost_commit,
    "late-markers": Faults.late_markers,
    "partition-away": Faults.partition_away,
    "power-cut": Faults.power_cut,
    "retention": Faults.retention,
}
"""Half of the worlds that chance chooses have one or two of these besides."""
FURTHER: dict[str, Callable[[Faults], None]] = {
    "seek-time": Faults.seek_time,
    "skip": Faults.skip,
    "withdraw": Faults.withdraw,
    "unset-config": Faults.unset_config,
}
"""Half of the worlds from `FURTHER_FROM` on have one or two of these, too."""
FURTHER_FROM = 2_000_000
RELEASES: dict[str, Callable[[Faults], None]] = {"release": Faults.release}
"""Worlds with parked rows from `RELEASING_FROM` on have this, too."""
LEFT_OUT: dict[str, Callable[[Faults], None]] = {"leave-out": Faults.leave_out}
"""Those from `SKIPPING_FROM` on have this besides."""
CALLS: dict[str, Callable[[Faults], None]] = {"cancelled-call": Faults.cancelled_call}
"""A third of the worlds from `CALLS_FROM` on have this, too."""
CALLS_FROM = 3_000_000
EDGES_FROM = 1_000_000
"""The ordinary seeds of CI are below; it runs a block of those above, too (`blocks`)."""


def calls_of(seed: int) -> list[str]:
    """The faults of the client that this seed draws."""
    return sorted(CALLS) if seed >= CALLS_FROM and Random(f"calls {seed}").random() < 1 / 3 else []


def further_of(seed: int) -> list[str]:
    """The further requests that this seed draws."""
    further = Random(f"further {seed}")
    if seed < FURTHER_FROM or further.random() >= 0.5:
        return []
    return further.sample(sorted(FURTHER), further.choice((1, 1, 2)))


def edges_of(seed: int) -> list[str]:
    """The edges that this seed draws."""
    edges = Random(f"edges {seed}")
    if seed < EDGES_FROM or edges.random() >= 0.5:
        return []
    return edges.sample(sorted(EDGES), edges.choice((1, 1, 2)))
