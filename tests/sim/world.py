"""The world of one seed: a broker, disks, jobs with their workers and supervisors, operators and their requests.

`World(seed).run()` runs it to its end: until every job has closed its last run and every request has its final answer, or until an
invariant is violated (`Violation`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import msgpack
import orjson

from headgate.agents.job.types.parking import ParkedRow
from headgate.agents.job.types.schemas import PARKED
from headgate.core.coordination import messages
from headgate.core.coordination.leader.leader import Leader
from headgate.core.coordination.leader.plan import LeaderConfig, Plan, Timing
from headgate.core.coordination.member.member import Member
from headgate.core.coordination.member.plan import MemberConfig
from headgate.core.coordination.state import FINAL
from headgate.core.coordination.wire import encode
from headgate.core.graph.grouping import by_partition, by_stream_partition
from headgate.core.names import JobName, StreamPartition, leader_id
from headgate.core.task.stored.checkpoint import parse_log_value

from . import branches as b
from . import columns as c
from . import joins
from .answers import Answers
from .app import SHUFFLED, declared
from .disk import Location
from .faults import FURTHER_FROM, Faults
from .invariants import Invariants, Violation
from .job import (
    EXTRAS,
    LAG_MS,
    OUTPUT,
    OUTPUTS,
    SHARED,
    SIDE,
    SIDE_BASE,
    SOURCE,
    TABLE,
    Account,
    Feed,
    Intervals,
    Row,
    Shape,
    account,
    follows_a_stray,
    taken_in,
)
from .log import Kafka, Producer
from .placing import Placing
from .process import Process, Slot
from .reading import Reading
from .recount import Recount
from .schedule import Schedule
from .shares import DOWNSTREAM, Shares, Sharing, writer_of
from .timely import CALM_FROM, Timely
from .waiting import AFTER_S, Waiting
from .windows import COMBINED, COMBINED_STREAM, FAR, RESHUFFLED, TOPICS

if TYPE_CHECKING:
    from .stories import Story

DEPLOYMENT = "v1"
SESSION_S = 6.0
LOG_RETENTION_MS = 8_000
"""How long tombstones of task logs are kept after compaction has seen them."""
BOUND_S = 150.0
"""How long, after the last fault and the last request, everything may take to finish."""
BOUND_STEPS = 80_000
"""The most steps of a run, including faults; the longest of a thousand seeds needs a third of that."""
PATIENT_FROM = 6_000_000
"""From this seed on, tasks of some worlds wait with little work for a later commit."""


def modulo(partitions: Any, broadcast: frozenset[str]) -> dict[str, list[StreamPartition]]:
    """A user's own grouper: six tasks, partition n of every stream belongs to task n mod 6."""
    tasks: dict[str, list[StreamPartition]] = {f"Partition {n}": [] for n in range(6)}
    for stream in sorted(partitions):
        for n in range(partitions[stream]):
            tasks[f"Partition {n % 6}"].append(StreamPartition(stream, n))
    return tasks


def parked_value(stored: bytes) -> bytes:
    """The value of a parked row."""
    return ParkedRow(*msgpack.unpackb(parse_log_value(stored).body)).value or b""


class Job:
    """One job of the world: its topics, its plan, and its workers."""

    def __init__(self, world: World, name: str, kind: str, shape: Shape) -> None:
        self.world = world
        self.name = name
        self.kind = kind
        self.shape = shape
        self.job_name = JobName(name)
        self.leader_txid = leader_id(self.job_name)
        words = (shape.width, shape.stateful, shape.mixed, shape.bounded, shape.windows, shape.columns)
        joined = shape.plain or kind == DOWNSTREAM
        self.joining = joins.Joining.drawn(shape.pace_s) if joined and not world.at_least_once else None
        self.writes = kind not in ("whole", DOWNSTREAM)
        """Whether it writes a stream for other jobs."""
        producers = world.sharing.names if world.sharing is not None and kind == DOWNSTREAM else ()
        plain = kind == "whole" and not (shape.mixed or world.at_least_once)
        self.branches = b.Branches.drawn(world.seed, stateful=shape.stateful) if plain else None
        words = (*words, self.joining, self.branches, producers, shape.ranked, shape.pattern)
        self.declared = declared(kind, *words)
        self.coordinator_topic = self.declared.topics.coordinator
        self.heartbeat_topic = self.declared.topics.heartbeat
        self.log_topic = self.declared.topics.log
        self.heartbeat_s = 1.0
        self.look_s = 30.0
        """How often its leader looks at the inputs."""
        self.delete_retention_ms = LOG_RETENTION_MS
        self.shuffled = SHARED if shape.split else self.declared.topics.intermediate(SHUFFLED)
        """The stream between the two stages."""
        self.reshuffled = self.declared.topics.intermediate(RESHUFFLED)
        self.windows = None if self.writes else shape.windows
        self.streams = []
        """The streams of frames that it makes for its windows."""
        if self.windows is not None and self.windows.how == COMBINED:
            self.streams.append(self.declared.topics.intermediate(COMBINED_STREAM))
        if self.windows is not None and self.windows.place == FAR and self.windows.second is not None:
            self.streams.append(self.reshuffled)
        if shape.columns:
            self.streams.append(self.declared.topics.intermediate(c.SUMMED))
        if self.joining is not None:
            self.streams += map(self.declared.topics.intermediate, (joins.LEFTS, joins.RIGHTS))
        if self.branches is not None:
            self.streams += map(self.declared.topics.intermediate, self.branches.streams)
        self.lag_ms = LAG_MS
        self.given: dict[str, Any] = {
            "watermark.idle-timeout": "2s",
            "control.aggregate-above": 0 if shape.aggregated else 1 << 30,
            "chunk.max-records": shape.chunk,
            "transaction.timeout": "15s",
        }
        if world.at_least_once:
            self.given["guarantee"] = "at_least_once"
        self.written = [self.log_topic, *([] if self.writes else [OUTPUT])]
        if kind != "downstream":
            self.written.append(self.shuffled)
        if self.windows is not None:
            self.written += TOPICS
        if shape.columns:
            self.written += c.TOPICS
        if self.joining is not None:
            self.written += joins.TOPICS
        if self.branches is not None:
            self.written += self.branches.outputs(self.declared.topics.dead_letters)
        self.written += self.streams
        self.slots: list[Slot] = []
        self.processes: list[Process] = []
        self.plan = self._plan()
        self.timing = Timing(
            session_s=SESSION_S,
            debounce_s=0.5,
            grace_s=3.0,
            release_s=30.0,
            work_on_s=world.works_on_s,
            answer_kept_ms=3_600_000,
            gone_kept_ms=4000,
        )
        self.allowed_runs: set[str] = set()
        self.allowed_begins = 1
        self.resumes = 0
        self.requests: dict[str, messages.SetRequest] = {}
        self.seen_end = 0
        self.concluded = False
        """The last run is closed and every request has its answer."""
        kafka = world.kafka
        kafka.create(self.coordinator_topic, 1, compact=True)
        kafka.create(self.heartbeat_topic, 1)
        kafka.create(self.log_topic, 1, compact=True, delete_retention_ms=self.delete_retention_ms)
        self.coordinator_log = kafka.topics[self.coordinator_topic][0]
        self.coordinator_log.append_time = True

    @property
    def inputs(self) -> tuple[str, ...]:
        """The external streams."""
        if self.kind == "downstream":
            return (self.shuffled,)
        if self.kind == "side":
            return (SIDE,)
        if self.shape.pattern:
            return tuple(self.world.feeds)
        return (SOURCE, EXTRAS) if self.shape.mixed else (SOURCE,)

    def is_source(self, stream: str) -> bool:
        """Whether a stream contains records from outside, not frames."""
        return stream in (SOURCE, EXTRAS, SIDE) or (bool(self.shape.pattern) and stream in self.inputs)

    def _plan(self) -> Plan:
        return Plan(
            deployment=DEPLOYMENT,
            fingerprint={"job": self.kind},
            graph=self.declared.graph,
            grouper=modulo
            if self.shape.modulo and self.kind != "side"
            else by_stream_partition
            if self.shape.mixed
            else by_partition,
            resolve=self.shape.bounded and self.kind != "downstream",
            ends=self.inputs,
            wider=(lambda topics: self.declared.joined(topics).graph) if self.shape.pattern else None,
        )

    def counts(self, plan: Plan) -> dict[str, int]:
        """The partition counts of the inputs of this code."""
        return {stream: len(self.world.kafka.topics[stream]) for stream in self.inputs if stream in plan.inputs}

    def more_counts(self, plan: Plan) -> dict[str, int]:
        """The partition counts of the topics that have come since and match a pattern."""
        return {stream: len(self.world.kafka.topics[stream]) for stream in self.inputs if stream not in plan.inputs}

    def need_log_partition(self, partition: int) -> None:
        """Make the task log have as many partitions as tasks."""
        self.world.kafka.grow(self.log_topic, partition + 1)

    def upstream_done(self) -> bool:
        """Whether its input is complete (for the second of two jobs)."""
        return self.kind != DOWNSTREAM or all(job.concluded for job in self.world.jobs if job.writes)

    def may_begin(self, run: messages.SetRun) -> bool:
        """Whether another run was requested, or this code has never run before."""
        if run.run_id in self.allowed_runs or self.allowed_begins > 0:
            self.allowed_begins -= run.run_id not in self.allowed_runs
            return True
        return False

    def may_resume(self, run: messages.SetRun) -> bool:
        """Whether resuming the stopped run was requested."""
        self.resumes -= 1
        return self.resumes >= 0


class World:
    """Everything of one seed."""

    bound_steps = BOUND_STEPS

    def __init__(self, seed: int, trace: bool = False, faulty: bool = True) -> None:
        self.seed = seed
        self.follows = seed % 2 == 1
        """Whether its workers prepare tasks before they move; the others are of a version that cannot."""
        self.works_on_s = 8.0 * (seed % 8 in (1, 3))
        """For how long a worker that is dismissed works on, while others prepare its tasks."""
        self.standby = int(seed % 4 == 1)
        """How many other workers follow the log of each task all the time."""
        self.schedule = Schedule(seed)
        if trace:
            self.schedule.trace = []
        self.rng = self.schedule.rng
        self.invariants = Invariants(self)
        self.kafka = Kafka(self.invariants.seen)
        self.kafka.at = self.schedule.at
        self.kafka.marks_after = self.marker_delay
        self.late_markers = 0
        """How many of the next markers come late (a fault)."""
        self.kafka.now_ms = self.schedule.wall_ms
        self.waiting = Waiting(self)
        self.reading = Reading(self)
        self.answers = Answers(self)
        self.placing = Placing(self)
        self.disks: dict[str, Location] = {}
        self.effects: Counter[str] = Counter()
        self.framed: set[str] = set()
        self.found: Exception | None = None
        """The first error; the code that raised it may have been caught."""
        self.idle_said: set[tuple[str, str, str]] = set()
        self.outage_over = -1e9
        """When the last outage of the whole broker was over."""
        self.trouble_over: dict[StreamPartition, float] = {}
        """By partition that could not be written or had no leader: when that was over."""
        self.failing_fences = 0
        self.slow_fences = 0
        self.failing_chunks = 0
        self.failed_s: dict[Any, float] = {}
        """When the function of a job whose rows are parked failed on each of them first."""
        self.away_until_s = 0.0
        """Until when the service that is asked is away."""
        self.failing_starts = 0
        self.cancelled_awaits = 0
        self.refusing_writes = 0
        self.instances = 0
        """The number of actors of the second stage."""
        self.duplicate_beats = 0
        self.duplicate_singles = 0
        self.wiped = 0
        self.quiet_from = 0.0
        self.last_request = 0.0
        self._uuids = 0
        self.shape = Sharing.lasting(self.draw())
        self.at_least_once = (
            seed >= FURTHER_FROM and not self.shape.split and Random(f"guarantee {seed}").random() < 0.3
        )
        """Whether outputs may be there twice; then the job is a plain one, and nothing of its outputs is counted again."""
        if self.at_least_once:
            self.shape = replace(self.shape, windows=None, columns="")
        self.shape = replace(self.shape, ranked=bool(self.shape.columns) and c.ranks(seed))
        self.patient = seed >= PATIENT_FROM and Random(f"patience {seed}").random() < 0.3
        """Whether a task with a backlog waits for later commits, as tasks of a real worker do until they have worked for a while."""
        self.sharing = Sharing.drawn(self.shape)
        self.shares = Shares(self, self.sharing) if self.sharing is not None else None
        self.kafka.create(SOURCE, self.shape.sources)
        self.kafka.create(OUTPUT, OUTPUTS)
        skews_ms = (0,) if self.sharing is None else self.sharing.skews_ms
        self.feeds = {SOURCE: Feed(self.kafka, self.rng, self.shape, skews_ms=skews_ms)}
        if self.sharing is not None and self.sharing.side:
            self.kafka.create(SIDE, self.sharing.side_width)
            self.feeds[SIDE] = Feed(self.kafka, self.rng, self.shape, SIDE, SIDE_BASE, skews_ms[::-1])
        if self.shape.mixed:
            self.kafka.create(EXTRAS, 2)
            self.feeds[EXTRAS] = Feed(self.kafka, self.rng, self.shape, EXTRAS, base=100)
        names = ("whole",) if self.sharing is None else (*self.sharing.names, DOWNSTREAM)
        self.jobs = [Job(self, "job" if name == "whole" else name, name, self.shape) for name in names]
        self.framed = {job.shuffled for job in self.jobs}
        for topic in sorted(self.framed):
            self.kafka.create(topic, self.shape.width)
        for topic in [topic for job in self.jobs for topic in job.streams]:
            self.kafka.create(topic, 2)
            self.framed.add(topic)
        joined = joins.TOPICS if any(job.joining for job in self.jobs) else ()
        for topic in (*(TOPICS if self.shape.windows else ()), *(c.TOPICS if self.shape.columns else ()), *joined):
            self.kafka.create(topic, 1)
        for job in self.jobs:
            for topic in job.branches.outputs(job.declared.topics.dead_letters) if job.branches is not None else ():
                self.kafka.create(topic, 1)
        locations = [f"host{n}" for n in range(self.rng.choice((1, 2, 3)))]
        for job in self.jobs:
            for n in range(3 if self.shape.split else self.rng.choice((3, 3, 4))):
                job.slots.append(Slot(job, f"p{n + 1}", locations[n % len(locations)]))
        self.locations = locations
        self.rests = Random(f"rests {seed}")
        if self.rests.random() < 0.5:  # in half of the worlds some partitions are idle now and then, and speak again
            for topic, feed in self.feeds.items():
                width = len(self.kafka.topics[topic])
                for partition in self.rests.sample(range(width), self.rests.randint(0, width)):
                    feed.bursts[partition] = 3
        self.groups = seed >= CALM_FROM and Random(f"groups {seed}").random() < 1 / 3
        """Whether stray rows come in groups, so that partial states of several rows are late."""
        for feed in self.feeds.values():
            feed.groups = self.groups
        self.timely = Timely(self, SESSION_S)
        self.faults = Faults(self) if faulty else None

    # ------------------------------------------------------------------------------------------------------- making things

    def draw(self) -> Shape:
        """The job of this seed."""
        return Shape.draw(self.rng)

    def make_leader(self, process: Process) -> Leader:
        job = process.job
        timing = replace(job.timing, jitter_s=self.rng.random() * 1.5, standby=self.standby)
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
                follows=self.follows,
                session_s=SESSION_S,
                backoff_s=1.0,
            )
        )

    def disk(self, location: str) -> Location:
        found = self.disks.get(location)
        if found is None:
            found = self.disks[location] = Location()
        return found

    def broke(self, error: BaseException) -> None:
        """Record an error: it ends the world, even if it is caught."""
        if self.found is None and isinstance(error, Exception):
            self.found = error

    def replay(self, stories: list[Story]) -> None:
        """The life of a process is over: its machines decide the same once more."""
        for story in stories:
            if wrong := story.differs():
                self.broke(Violation(wrong))

    def fence_delay(self) -> float:
        """How long a fence takes before it takes effect."""
        if self.slow_fences > 0:
            self.slow_fences -= 1
            self.took_effect("slow-fence")
            return 0.5 + self.rng.random() * 3.0
        return 0.02 + self.rng.random() * 0.1

    def marker_delay(self) -> float:
        """When the next marker of a transaction that is decided stands in its partition."""
        if self.late_markers <= 0 or self.rng.random() < 0.4:
            return 0.0
        self.late_markers -= 1
        self.took_effect("late-marker")
        return self.rng.uniform(0.01, 0.3) if self.rng.random() < 0.7 else self.rng.uniform(0.3, 4.0)

    def took_effect(self, fault: str) -> None:
        """Record that a fault has taken effect."""
        self.effects[fault] += 1
        self.quiet_from = self.schedule.moment
        if self.schedule.trace is not None:
            self.schedule.note("fault", fault)

    def uuid(self) -> str:
        """A unique name."""
        self._uuids += 1
        return f"request-{self._uuids}"

    def seek_committed(self, job: Job) -> None:
        """The critical moment of a seek: it is durable, and nobody knows that yet. Sometimes all workers are killed just then."""
        if self.faults is not None and not self.faults.concluding and self.rng.random() < 0.5:
            self.schedule.at(self.rng.random() * 0.06, self.faults.kill_job, job)

    def innocent(self, process: Process) -> bool:
        """Whether there is no reason except an outage of the broker to believe that this process is dead."""
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
        """Start a worker after a delay."""
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
        """A process has exited; its supervisor starts it again."""
        if not process.alive:
            return
        if self.schedule.trace is not None:
            self.schedule.note("world", "exit", process.name, code, why)
        if code == 0:  # otherwise its end closes what it holds
            self.invariants.closed(process)
        process.end()
        self.launch(process.slot, 0.5 + self.rng.random() * 2.0)

    def kill(self, process: Process, back_after: float | None) -> None:
        """kill -9. The supervisor starts it again, or not."""
        if self.schedule.trace is not None:
            self.schedule.note("world", "kills", process.name)
        process.end()
        if back_after is None:
            process.slot.absent = True
        else:
            self.launch(process.slot, back_after)

    # ------------------------------------------------------------------------------------------------------- requests

    def request(self, job: Job, verb: str, run_id: str = "", **arguments: Any) -> str:
        """An operator's request, as a command writes it."""
        uuid = self.uuid()
        not_after = self.schedule.wall_ms + 600_000
        request = messages.SetRequest(uuid, verb, run_id, arguments, not_after, "operator")
        job.requests[uuid] = request
        self.last_request = self.schedule.moment
        self._send_request(job, request)
        return uuid

    def _send_request(self, job: Job, request: messages.SetRequest) -> None:
        if self.kafka.down or (job.coordinator_topic, 0) in self.kafka.away:
            self.schedule.at(0.3, self._send_request, job, request)
            return
        if self.schedule.trace is not None:
            self.schedule.note("operator", request.verb, request)
        self.kafka.single(request.uuid, 1, job.coordinator_topic, 0, *encode(request))

    # -------------------------------------------------------------------------------------------------------- running

    def write_source(self, topic: str, partition: int) -> None:
        """Write the next row of one partition, and schedule the one after it."""
        if self.kafka.down or (topic, partition) in self.kafka.away:
            self.schedule.at(0.3, self.write_source, topic, partition)
            return
        if self.feeds[topic].write(partition, self.schedule.wall_ms):
            pace_s = self.rng.expovariate(1.0 / self.shape.pace_s)
            if self.feeds[topic].groups and follows_a_stray(self.feeds[topic].seqs[partition]):
                pace_s = 0.0
            elif self.feeds[topic].goes_on(partition):
                pace_s = 0.7
            rest_s = self.feeds[topic].rest_s(partition, self.rests)
            self.schedule.at(pace_s + rest_s, self.write_source, topic, partition)

    def begin(self) -> None:
        """Schedule what happens at the start of the world."""
        for topic in self.feeds:
            for partition in range(len(self.kafka.topics[topic])):
                self.schedule.at(self.rng.random(), self.write_source, topic, partition)
        for job in self.jobs:
            for slot in job.slots:
                self.launch(slot, self.rng.random() * 1.5)
        self.schedule.at(1.0, self.scan)
        self.schedule.at(1.0, self.waiting.look)
        if self.faults is not None:
            self.faults.begin()
        else:
            self.schedule.at(self.rng.uniform(5.0, 15.0), self.drain_all)

    def drain_all(self) -> None:
        """The end of a world without faults: drain every job."""
        truths = [self.invariants.truth(job) for job in self.jobs]
        for job, truth in zip(self.jobs, truths, strict=True):
            run = truth.state.run
            if run is not None and run.state == messages.RunState.RUNNING and not job.requests and job.upstream_done():
                self.request(job, "drain")
            job.concluded = self.settled(job)
        if not self.done():
            self.schedule.at(1.0, self.drain_all)

    def scan(self) -> None:
        """The broker's own scan for transactions that take too long."""
        self.schedule.at(1.0, self.scan)
        if not self.kafka.down and self.kafka.expire():
            self.effects["expired"] += 1

    def settled(self, job: Job) -> bool:
        """Whether the job's last run is closed and all requests are answered."""
        truth = self.invariants.truth(job)
        run = truth.state.run
        if run is None or run.state not in (messages.RunState.DRAINED, messages.RunState.ENDED):
            return False
        return all(uuid in truth.finals for uuid in job.requests)

    def done(self) -> bool:
        """Whether nothing more is to come."""
        return all(job.concluded for job in self.jobs)

    def run(self) -> World:
        """Run to the end, and end all processes.

        Otherwise Python would close their coroutines whenever it collects them: inside another world, or inside a test with its own event
        loop, where a time limit that a closed coroutine still sets would cancel the wrong task.
        """
        try:
            self._run()
        finally:
            for job in self.jobs:
                for slot in job.slots:
                    if slot.process is not None:
                        slot.process.end()
        if self.found is not None:
            raise self.found
        return self

    def _run(self) -> None:
        self.begin()
        schedule, kafka, invariants = self.schedule, self.kafka, self.invariants
        while True:
            schedule.step()
            if self.found is not None:
                raise self.found
            kafka.now_ms = schedule.wall_ms
            for job in self.jobs:
                if job.coordinator_log.end != job.seen_end or job.coordinator_log.open:
                    invariants.coordinator(job)
                    job.seen_end = job.coordinator_log.end
            if schedule.turns & 63 == 0:
                if self.done():
                    break
                quiet = max(self.quiet_from, self.last_request)
                if schedule.moment > quiet + BOUND_S or schedule.steps > self.bound_steps:
                    self.stuck()
        self.check_end()

    def stuck(self) -> None:
        """The world did not end in time."""
        lines = []
        for job in self.jobs:
            truth = self.invariants.truth(job)
            open_requests = [request for uuid, request in job.requests.items() if uuid not in truth.finals]
            lines.append(f"{job.name}: run {truth.state.run}, without answer: {open_requests}")
        raise Violation(
            f"no end {BOUND_S:g} s or {self.bound_steps} steps after the last fault and the last request: "
            + "; ".join(lines)
        )

    def accounts(self) -> list[tuple[str, Account]]:
        """The account of each job, as a read-committed reader sees it."""
        result = []
        for job in self.jobs:
            intervals = {
                (at.stream, at.partition): moves
                for at, moves in self.invariants.intervals.get(job.name, {}).items()
                if at.stream in job.inputs
            }
            writes = job.writes
            tables: dict[int, int] | None = None
            if job.shape.stateful and not writes:
                tables = {}
                for (name, _), reference in sorted(self.invariants.references.items()):
                    if name == job.name:
                        rows = reference.tables.get(TABLE, {})
                        tables |= {int(key): orjson.loads(parse_log_value(row).body) for key, row in rows.items()}
            taken = all_taken = taken_in(self.kafka, intervals, frames=job.kind == "downstream")
            if job.branches is not None:
                taken = job.branches.left(all_taken)
            found = account(
                self.kafka,
                taken,
                job.shuffled if writes else OUTPUT,
                tables,
                writes=writes,
                twice=self.at_least_once,
                writes_row=lambda row, job=job: not job.writes or writer_of(row) == job.name,
            )
            if job.windows is not None:
                recount = Recount(self.kafka, job.windows, taken, self.may_be_late)
                found.windows = recount.against(self.invariants.windows.missed)
            if job.shape.columns:
                found.columns = c.wrong(self.kafka, taken, ranked=job.shape.ranked)
            if job.joining is not None:
                frames = job.kind == DOWNSTREAM
                by_run = self._by_run(job, intervals)
                runs = {run: taken_in(self.kafka, moves, frames=frames) for run, moves in by_run}
                if job.branches is not None:
                    runs = {run: job.branches.left(rows) for run, rows in runs.items()}
                found.joins = joins.wrong(self.kafka, job.joining, runs, self.may_be_late)
            if job.branches is not None:
                waiting = [
                    parked_value(row)
                    for (name, _), reference in sorted(self.invariants.references.items())
                    for row in (reference.tables.get(PARKED, {}).values() if name == job.name else ())
                ]
                gone = map(parked_value, self.invariants.left_out.get(job.name, ()))
                dead_letters = job.declared.topics.dead_letters
                found.branches = b.wrong(self.kafka, job.branches, all_taken, dead_letters, waiting, gone)
            result.append((job.name, found))
        return result

    def _by_run(self, job: Job, intervals: Intervals) -> list[tuple[str, Intervals]]:
        """The intervals of a job's inputs, by the run that has read them."""
        found: dict[str, Intervals] = {}
        for at, moves in intervals.items():
            runs = self.invariants.runs[job.name][StreamPartition(*at)]
            for move, run in zip(moves, runs, strict=True):
                found.setdefault(run, {}).setdefault(at, []).append(move)
        return sorted(found.items())

    def source_of(self, row: Row) -> StreamPartition | None:
        """The source partition in which this row stands, at the offset of its number."""
        for topic, feed in self.feeds.items():
            if 0 <= row.producer - feed.base < len(self.kafka.topics[topic]):
                return StreamPartition(topic, row.producer - feed.base)
        return None

    def read_again(self, row: Row) -> bool:
        """Whether a seek has led back behind this row."""
        at = self.source_of(row)
        return at is not None and self.reading.read_again(at, row.seq)

    def may_be_late(self, row: Row) -> bool:
        """Whether a row may be late at a window."""
        invariants = self.invariants
        if self.shares is not None and row in self.shares.excused:
            return True
        return invariants.may_be_late(row) or invariants.passed(row)

    def check_end(self) -> None:
        """Check that the account is clean, and that compaction has changed nothing."""
        self.kafka.down = False
        self.kafka.away.clear()
        self.kafka.mark_all()
        for job in self.jobs:
            self.invariants.coordinator(job)
        if self.shares is not None:
            self.shares.ended(self.jobs[-1])
        for name, found in self.accounts():
            if not found.clean:
                raise Violation(f"the account of {name}: {found}")
        for job in self.jobs:
            job.coordinator_log.clean(self.schedule.wall_ms)
            self.invariants.folds(job)
            truth = self.invariants.truth(job)
            for uuid in job.requests:
                if truth.finals.get(uuid) not in FINAL:
                    raise Violation(f"{uuid} has no final answer")
        self._nothing_open()

    def _just_begun(self, producer: Producer) -> bool:
        """Whether a leader may still end this transaction, or its successor abort it."""
        owner, began_ms = producer.owner, producer.began_ms or 0
        led = owner is not None and owner[0].alive and owner[0].woke_s_ago() > AFTER_S
        return not led or self.schedule.wall_ms - began_ms < AFTER_S * 1000

    def _nothing_open(self) -> None:
        """Every run is closed: no living worker has a store open, and no transaction is open. Leaders lead on, and may have begun one just
        now.
        """
        for place, disk in sorted(self.disks.items()):
            for name, files in sorted(disk.files.items()):
                for one in files:
                    if one.held and one.holder is not None and one.holder.process.woke_s_ago() > AFTER_S:
                        raise Violation(f"{one.holder.process.name} has the store of {name} at {place} open at the end")
        leaders = {job.leader_txid for job in self.jobs}
        for txid, producer in sorted(self.kafka.producers.items()):
            if producer.touched and not (txid in leaders and self._just_begun(producer)):
                raise Violation(f"a transaction of {txid} is open at the end, in {sorted(producer.touched)}")
