"""The world of one seed: a broker, disks, jobs, their workers and whoever starts them again, operators and their wishes.

`World(seed).run()` lets it run to its end: until every job has closed its last run and every wish has its final answer, or until
something was seen that may never be seen (`Violation`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property
from typing import Any

from headgate.core import orders
from headgate.core.coordination import messages as words
from headgate.core.coordination.leader.leader import Leader
from headgate.core.coordination.leader.plan import LeaderConfig, Plan, Timing
from headgate.core.coordination.member.member import Member
from headgate.core.coordination.member.plan import MemberConfig
from headgate.core.coordination.state import FINAL
from headgate.core.graph.checks import validate
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.graph.grouping import by_partition, by_stream_partition
from headgate.core.names import JobName, StreamPartition, leader_id
from headgate.core.task.plan import FOREIGN, INTERMEDIATE, InputPlan, OutputPlan, TaskPlan, TaskSettings
from headgate.core.task.plan import SOURCE as PLAIN
from headgate.core.task.task import Task

from .actor import Actor, Store
from .faults import Faults
from .invariants import Invariants, Violation
from .job import EXTRAS, LAG_MS, OUTPUT, OUTPUTS, SOURCE, Account, Feed, Shape, account
from .log import Kafka
from .process import Process, Slot
from .schedule import Schedule
from .tasks import Tasks

DEPLOYMENT = "v1"
SESSION_S = 6.0
BOUND_S = 150.0
"""How long, after the last fault and the last wish, everything may take to come to its end."""
BOUND_STEPS = 80_000
"""And how many steps all of it, faults included, may take; the longest of a thousand seeds takes a third of that."""


def modulo(partitions: Any, broadcast: frozenset[str]) -> dict[str, list[StreamPartition]]:
    """A grouper of the user's own: six tasks, partition n of every stream to task n mod 6."""
    tasks: dict[str, list[StreamPartition]] = {f"Partition {n}": [] for n in range(6)}
    for stream in sorted(partitions):
        for n in range(partitions[stream]):
            tasks[f"Partition {n % 6}"].append(StreamPartition(stream, n))
    return tasks


class Disk:
    """The stores at one location. A process that is killed leaves its stores as they were; one that is frozen keeps its lock."""

    def __init__(self) -> None:
        self.stores: dict[tuple[str, str], Store] = {}
        self.holders: dict[tuple[str, str], Actor] = {}

    def open(self, job: str, task: str, actor: Actor) -> tuple[Store, bool]:
        """The store, and whether its directory was still held by somebody who lives: then a fresh one is taken."""
        name = (job, task)
        holder = self.holders.get(name)
        held = holder is not None and not holder.gone and holder.process.alive
        if held or name not in self.stores:
            self.stores[name] = Store()
        self.holders[name] = actor
        return self.stores[name], held

    def wipe(self, job: str, task: str, actor: Actor) -> Store:
        """An empty store in its place."""
        self.stores[job, task] = Store()
        self.holders[job, task] = actor
        return self.stores[job, task]

    def close(self, job: str, task: str, actor: Actor) -> None:
        """Give the lock back."""
        if self.holders.get((job, task)) is actor:
            del self.holders[job, task]


class Job:
    """One job of the world: its topics, its plan, and its workers."""

    def __init__(self, world: World, name: str, kind: str, shape: Shape) -> None:
        self.world = world
        self.name = name
        self.kind = kind
        self.shape = shape
        self.job_name = JobName(name)
        self.leader_txid = leader_id(self.job_name)
        self.coordinator_topic = f"coordinator-{name}"
        self.heartbeat_topic = f"heartbeat-{name}"
        self.log_topic = f"log-{name}"
        self.heartbeat_s = 1.0
        self.delete_retention_ms = 8_000
        self.shuffled = "shuffled"
        self.output = OUTPUT
        self.outputs = OUTPUTS
        self.slots: list[Slot] = []
        self.coordinator_watchers: list[Process] = []
        self.stages = {
            "whole": {SOURCE: "shuffle", EXTRAS: "shuffle", "shuffled": "count" if shape.stateful else "map"},
            "upstream": {SOURCE: "shuffle"},
            "downstream": {"shuffled": "count"},
        }[kind]
        self.plan = self._plan()
        self.timing = Timing(
            session_s=SESSION_S,
            debounce_s=0.5,
            grace_s=3.0,
            release_s=30.0,
            answer_kept_ms=3_600_000,
            gone_kept_ms=4000,
        )
        self.allowed_runs: set[str] = set()
        self.allowed_begins = 1
        self.resumes = 0
        self.wishes: dict[str, words.SetRequest] = {}
        self.seen_end = 0
        self.concluded = False
        """The last run is closed and every wish has its answer."""
        kafka = world.kafka
        kafka.create(self.coordinator_topic, 1, compact=True)
        kafka.create(self.heartbeat_topic, 1)
        kafka.create(self.log_topic, 1, compact=True, delete_retention_ms=self.delete_retention_ms)
        self.coordinator_log = kafka.topics[self.coordinator_topic][0]
        self.coordinator_log.watchers[self] = None

    def wake(self) -> None:
        """The coordinator stream has more."""
        for process in self.coordinator_watchers:
            process.coordinator_changed()

    @property
    def inputs(self) -> tuple[str, ...]:
        """External streams."""
        if self.kind == "downstream":
            return ("shuffled",)
        return (SOURCE, EXTRAS) if self.shape.mixed else (SOURCE,)

    def _plan(self) -> Plan:
        return Plan(
            deployment=DEPLOYMENT,
            fingerprint={"job": self.kind},
            graph=validate(self.graph),
            grouper=modulo if self.shape.modulo else by_stream_partition if self.shape.mixed else by_partition,
            resolve=self.shape.bounded and self.kind != "downstream",
            ends=self.inputs,
        )

    @cached_property
    def graph(self) -> Graph:
        """The job as it would be declared."""
        foreign = (str(JobName("upstream")),) if self.kind == "downstream" else ()
        inputs = tuple(Input(stream, producers=foreign) for stream in self.inputs)
        front: tuple[Stage, ...] = (Stage("passes", "merge", self.inputs),)
        shuffle = Stage("shuffle", "share" if self.kind == "upstream" else "repartition", ("passes",), (self.shuffled,))
        counted = Stage(
            "counted",
            "agg" if self.shape.stateful else "map",
            ("shuffled" if foreign else "shuffle",),
            stateful=self.shape.stateful,
        )
        match self.kind:
            case "upstream":
                stages = (*front, shuffle)
            case "downstream":
                stages = (counted,)
            case _:
                stages = (*front, replace(shuffle, width=self.shape.width), counted)
        return Graph(inputs, stages)

    def counts(self) -> dict[str, int]:
        """What the broker says of the inputs."""
        return {stream: len(self.world.kafka.topics[stream]) for stream in self.inputs}

    def resolve(self) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        """Where a run starts and ends."""
        topics = self.world.kafka.topics
        starts = {stream: tuple(log.start for log in topics[stream]) for stream in self.inputs}
        untils = {}
        if self.shape.bounded:
            rng, rows = self.world.rng, self.shape.rows
            untils = {
                stream: tuple(max(log.stable, min(rows, log.stable + rng.randrange(rows))) for log in topics[stream])
                for stream in self.inputs
                if stream != EXTRAS
            }
        return starts, untils

    def need_log_partition(self, partition: int) -> None:
        """The task log has as many partitions as tasks."""
        self.world.kafka.grow(self.log_topic, partition + 1)

    def upstream_done(self) -> bool:
        """Whether nobody writes its input any more (for the second of two jobs)."""
        return self.kind != "downstream" or self.world.jobs[0].concluded

    def may_begin(self, run: words.SetRun) -> bool:
        """Whether somebody wanted another run, or this code was never run before."""
        if run.run_id in self.allowed_runs or self.allowed_begins > 0:
            self.allowed_begins -= run.run_id not in self.allowed_runs
            return True
        return False

    def may_resume(self, run: words.SetRun) -> bool:
        """Whether somebody wanted the stopped run to go on."""
        self.resumes -= 1
        return self.resumes >= 0

    def task_plan(self, process: Process, start: orders.Start) -> TaskPlan:
        """What this task reads and writes, from the model that the member has."""
        model = process.member.job.model
        assert model is not None
        widths = model.streams
        inputs = []
        run = process.member.job.run
        for stream in sorted(widths):
            owned = tuple(at.partition for at in model.tasks[start.task] if at.stream == stream)
            external = stream in self.inputs
            kind = (FOREIGN if self.kind == "downstream" else PLAIN) if external else INTERMEDIATE
            until = dict(enumerate(run.untils.get(stream, ()))) if external and run is not None else {}
            inputs.append(
                InputPlan(
                    stream,
                    owned,
                    widths[stream],
                    kind,
                    lag_ms=LAG_MS if kind == PLAIN else 0,
                    until_of={n: until[n] for n in owned if n in until},
                    jobs=(str(JobName("upstream")),) if kind == FOREIGN else (),
                )
            )
        outputs: tuple[OutputPlan, ...] = ()
        if self.kind != "downstream":
            fed = self.graph.upstreams(self.shuffled)
            outputs = (OutputPlan(self.shuffled, self.shape.width, fed, crosses=self.kind == "upstream"),)
        return TaskPlan(str(self.job_name), start.task, tuple(inputs), outputs, self.settings)

    @property
    def settings(self) -> TaskSettings:
        """The settings that a task's machine needs."""
        return TaskSettings(
            idle_timeout_s=2.0,
            watermark_quorum=0.5,
            aggregate_above=0 if self.shape.aggregated else 1 << 30,
            restore_deadline_s=40.0,
            error_backoff_s=0.2,
        )


class World:
    """Everything of one seed."""

    bound_steps = BOUND_STEPS

    def __init__(self, seed: int, trace: bool = False, faulty: bool = True) -> None:
        self.seed = seed
        self.schedule = Schedule(seed)
        if trace:
            self.schedule.trace = []
        self.rng = self.schedule.rng
        self.kafka = Kafka()
        self.kafka.now_ms = self.schedule.wall_ms
        self.invariants = Invariants(self)
        self.disks: dict[str, Disk] = {}
        self.effects: Counter[str] = Counter()
        self.framed = {"shuffled"}
        self.idle_said: set[tuple[str, str, str]] = set()
        self.idle_now: set[tuple[str, str, str]] = set()
        self.last_outage_ms = 0
        self.failing_fences = 0
        self.slow_fences = 0
        self.failing_chunks = 0
        self.duplicate_beats = 0
        self.duplicate_singles = 0
        self.seeks = 0
        self.wiped = 0
        self.quiet_from = 0.0
        self.last_wish = 0.0
        self._uuids = 0
        self.shape = self.draw()
        self.kafka.create(SOURCE, self.shape.sources)
        self.kafka.create("shuffled", self.shape.width)
        self.kafka.create(OUTPUT, OUTPUTS)
        self.feeds = {SOURCE: Feed(self.kafka, self.rng, self.shape)}
        if self.shape.mixed:
            self.kafka.create(EXTRAS, 2)
            self.feeds[EXTRAS] = Feed(self.kafka, self.rng, self.shape, EXTRAS, base=100)
        kinds = (("upstream", "upstream"), ("downstream", "downstream")) if self.shape.split else (("job", "whole"),)
        self.jobs = [Job(self, name, kind, self.shape) for name, kind in kinds]
        locations = [f"host{n}" for n in range(self.rng.choice((1, 2, 3)))]
        for job in self.jobs:
            for n in range(3 if self.shape.split else self.rng.choice((3, 3, 4))):
                job.slots.append(Slot(job, f"p{n + 1}", locations[n % len(locations)]))
        self.locations = locations
        self.faults = Faults(self) if faulty else None

    # --------------------------------------------------------------------------------------------------- making things

    def draw(self) -> Shape:
        """The job of this seed."""
        return Shape.draw(self.rng)

    def make_leader(self, process: Process) -> Leader:
        job = process.job
        timing = replace(job.timing, jitter_s=self.rng.random() * 1.5)
        return Leader(
            LeaderConfig(process.slot.processor, process.name, f"uuid-{job.name}-{process.name}", job.plan, timing)
        )

    def make_member(self, process: Process) -> Member:
        slot, job = process.slot, process.job
        others = [
            other.process
            for other in job.slots
            if other.processor == slot.processor and other.process is not None and other.process is not process
        ]
        supervised = slot.lives > 1 and not slot.once and not others and self.rng.random() < 0.4
        locked = any(other.slot.location == slot.location for other in others)
        return Member(
            MemberConfig(
                processor=slot.processor,
                process=process.name,
                token=f"{self.rng.randrange(1 << 32):08x}",
                location=slot.location,
                deployment=DEPLOYMENT,
                fingerprint=job.plan.fingerprint,
                lock_free=not locked,
                supervised=supervised,
                session_s=SESSION_S,
                backoff_s=1.0,
            )
        )

    def make_tasks(self, process: Process) -> Tasks:
        return Tasks(process)

    def make_task(self, process: Process, start: orders.Start) -> Task:
        return Task(process.job.task_plan(process, start))

    def disk(self, location: str) -> Disk:
        found = self.disks.get(location)
        if found is None:
            found = self.disks[location] = Disk()
        return found

    def fence_delay(self) -> float:
        """How long a fence takes before it takes effect."""
        if self.slow_fences > 0:
            self.slow_fences -= 1
            self.took_effect("slow-fence")
            return 0.5 + self.rng.random() * 3.0
        return 0.02 + self.rng.random() * 0.1

    def took_effect(self, fault: str) -> None:
        """A fault has really happened."""
        self.effects[fault] += 1
        self.quiet_from = self.schedule.moment
        if self.schedule.trace is not None:
            self.schedule.note("fault", fault)

    def uuid(self) -> str:
        """A name that is used once."""
        self._uuids += 1
        return f"wish-{self._uuids}"

    def seek_committed(self, job: Job) -> None:
        """The moment that matters for a seek: it is durable, and nobody knows it yet. Sometimes everybody dies just then."""
        if self.faults is not None and not self.faults.concluding and self.rng.random() < 0.5:
            self.schedule.at(self.rng.random() * 0.06, self.faults.kill_job, job)

    def innocent(self, process: Process) -> bool:
        """Whether there is no reason but the broker's own absence to believe that this process is dead."""
        moment = self.schedule.moment
        return (
            process.alive
            and not process.exiting
            and process.guilty_until < moment
            and moment - process.frozen_last > SESSION_S + 4.0
            and moment - process.born > SESSION_S + 4.0
        )

    # ---------------------------------------------------------------------------------------------- starting, ending

    def launch(self, slot: Slot, delay: float = 0.0) -> None:
        """Start a worker, after a while."""
        self.schedule.at(delay, self._launch, slot)

    def _launch(self, slot: Slot) -> None:
        if slot.process is not None or slot.absent or (slot.once and slot.started):
            return
        if self.kafka.down:
            self.launch(slot, 1.0)
            return
        process = Process(self, slot)
        slot.process = process
        slot.started = True
        if self.schedule.trace is not None:
            self.schedule.note("world", "starts", process.name, "at", slot.location)
        process.start()

    def exited(self, process: Process, code: int, why: str) -> None:
        """A process ends by itself; its supervisor starts it again unless its run has closed in it."""
        if not process.alive:
            return
        if self.schedule.trace is not None:
            self.schedule.note("world", "exit", process.name, code, why)
        process.end()
        self.launch(process.slot, 0.5 + self.rng.random() * 2.0)

    def kill(self, process: Process, back_after: float | None) -> None:
        """kill -9; the supervisor starts it again, or not."""
        if self.schedule.trace is not None:
            self.schedule.note("world", "kills", process.name)
        process.end()
        if back_after is None:
            process.slot.absent = True
        else:
            self.launch(process.slot, back_after)

    # ------------------------------------------------------------------------------------------------------- wishes

    def wish(self, job: Job, verb: str, run_id: str = "", **arguments: Any) -> str:
        """An operator's request, as the command line writes it."""
        uuid = self.uuid()
        not_after = self.schedule.wall_ms + 600_000
        request = words.SetRequest(uuid, verb, run_id, arguments, not_after, "operator")
        job.wishes[uuid] = request
        self.last_wish = self.schedule.moment
        self._send_wish(job, request)
        return uuid

    def _send_wish(self, job: Job, request: words.SetRequest) -> None:
        if self.kafka.down:
            self.schedule.at(0.3, self._send_wish, job, request)
            return
        if self.schedule.trace is not None:
            self.schedule.note("operator", request.verb, request)
        self.kafka.single(request.uuid, 1, job.coordinator_topic, 0, words.key_of(request), request)

    # -------------------------------------------------------------------------------------------------------- running

    def write_source(self, topic: str, partition: int) -> None:
        """The next row of one partition, and when the one after it comes."""
        if self.kafka.down:
            self.schedule.at(0.3, self.write_source, topic, partition)
            return
        if self.feeds[topic].write(partition, self.schedule.wall_ms):
            self.schedule.at(self.rng.expovariate(1.0 / self.shape.pace_s), self.write_source, topic, partition)

    def begin(self) -> None:
        """What happens at the start of the world."""
        for topic in self.feeds:
            for partition in range(len(self.kafka.topics[topic])):
                self.schedule.at(self.rng.random(), self.write_source, topic, partition)
        for job in self.jobs:
            for slot in job.slots:
                self.launch(slot, self.rng.random() * 1.5)
        self.schedule.at(1.0, self.scan)
        if self.faults is not None:
            self.faults.begin()
        else:
            self.schedule.at(self.rng.uniform(5.0, 15.0), self.drain_all)

    def drain_all(self) -> None:
        """The end of a world without faults: every job drains."""
        truths = [self.invariants.truth(job) for job in self.jobs]
        for job, truth in zip(self.jobs, truths, strict=True):
            run = truth.state.run
            if run is not None and run.state == words.RUNNING and not job.wishes and job.upstream_done():
                self.wish(job, "drain")
            job.concluded = self.settled(job)
        if not self.done():
            self.schedule.at(1.0, self.drain_all)

    def scan(self) -> None:
        """The broker's own look for transactions that take too long."""
        self.schedule.at(1.0, self.scan)
        if not self.kafka.down and self.kafka.expire():
            self.effects["expired"] += 1

    def settled(self, job: Job) -> bool:
        """Whether the job's last run is closed and all wishes have their answer."""
        truth = self.invariants.truth(job)
        run = truth.state.run
        if run is None or run.state not in (words.DRAINED, words.ENDED):
            return False
        return all(uuid in truth.finals for uuid in job.wishes)

    def done(self) -> bool:
        """Whether nothing more is to come."""
        return all(job.concluded for job in self.jobs)

    def run(self) -> World:
        """To the end."""
        self.begin()
        schedule, kafka, invariants = self.schedule, self.kafka, self.invariants
        while True:
            schedule.step()
            kafka.now_ms = schedule.wall_ms
            for job in self.jobs:
                if job.coordinator_log.end != job.seen_end or job.coordinator_log.open:
                    invariants.coordinator(job)
                    job.seen_end = job.coordinator_log.end
            if schedule.steps & 63 == 0:
                if self.done():
                    break
                quiet = max(self.quiet_from, self.last_wish)
                if schedule.moment > quiet + BOUND_S or schedule.steps > self.bound_steps:
                    self.stuck()
        self.check_end()
        return self

    def stuck(self) -> None:
        """Nothing came to its end in time."""
        lines = []
        for job in self.jobs:
            truth = self.invariants.truth(job)
            open_wishes = [wish for uuid, wish in job.wishes.items() if uuid not in truth.finals]
            lines.append(f"{job.name}: run {truth.state.run}, without answer: {open_wishes}")
        raise Violation(
            f"no end {BOUND_S:g} s or {self.bound_steps} steps after the last fault and the last wish: "
            + "; ".join(lines)
        )

    def accounts(self) -> list[tuple[str, Account]]:
        """The account of each job, at a reader that reads committed."""
        result = []
        for job in self.jobs:
            intervals = {
                (at.stream, at.partition): moves
                for at, moves in self.invariants.intervals.get(job.name, {}).items()
                if at.stream in job.inputs
            }
            output = "shuffled" if job.kind == "upstream" else OUTPUT
            tables: dict[int, int] | None = None
            if "count" in job.stages.values():
                tables = {}
                for (name, _), reference in sorted(self.invariants.references.items()):
                    if name == job.name:
                        tables.update(reference.table)
            result.append((job.name, account(self.kafka, intervals, output, tables)))
        return result

    def check_end(self) -> None:
        """The account is clean, and compaction has changed nothing."""
        self.kafka.down = False
        for name, found in self.accounts():
            if not found.clean:
                raise Violation(f"the account of {name}: {found}")
        for job in self.jobs:
            job.coordinator_log.clean(self.schedule.wall_ms)
            self.invariants.folds(job)
            truth = self.invariants.truth(job)
            for uuid in job.wishes:
                if truth.finals.get(uuid) not in FINAL:
                    raise Violation(f"{uuid} has no final answer")
