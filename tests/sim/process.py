"""One worker process: the edge that carries out what `Leader` and `Member` decide, over the modelled logs.

It decides nothing. Every instruction becomes one or two events: when the call reaches the broker, and when its answer reaches the
process. Between them the process may be killed or frozen, the broker may go down, or the answer may get lost; then the process
hears that the outcome is unknown, exactly as a client would tell it.

What outlives a process stands in its `Slot` (the processor's id, its location and the count of its incarnations) and on the
location's disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headgate.core.coordination import events as coordinator_events
from headgate.core.coordination import messages as words
from headgate.core.coordination.leader import protocol as leader_words
from headgate.core.coordination.member import protocol as member_words
from headgate.core.machine import Tick
from headgate.core.names import StreamPartition, worker_id

from .log import Fenced, NotOngoing, Producer, Refused, Unavailable
from .schedule import Host

if TYPE_CHECKING:
    from headgate.core.coordination.leader.leader import Leader
    from headgate.core.coordination.member.member import Member

    from .tasks import Tasks
    from .world import Job, World

RETRY_S = 0.15
LEADER_TIMEOUT_MS = 10_000
WORKER_TIMEOUT_MS = 15_000


class Slot:
    """What stays of a worker when its process is gone."""

    def __init__(self, job: Job, processor: str, location: str) -> None:
        self.job = job
        self.processor = processor
        self.location = location
        self.lives = 0
        self.process: Process | None = None
        self.incarnations = 0
        self.absent = False
        """Nobody starts it again."""
        self.once = False
        """It is started once only."""
        self.started = False


class Process(Host):
    """One life of a worker."""

    def __init__(self, world: World, slot: Slot) -> None:
        slot.lives += 1
        super().__init__(world.schedule, f"{slot.job.name}/{slot.processor}.{slot.lives}")
        self.world = world
        self.slot = slot
        self.job = slot.job
        self.kafka = world.kafka
        self.born = self.schedule.moment
        self.frozen_last = -1e9
        self.freeze_on_record = 0.0
        """For how long it is frozen when it writes to the coordinator stream next (a fault)."""
        self.holds_writes = False
        """Whether what it has written and not sent yet goes out when it wakes (a zombie's late words), or went before."""
        self.guilty_until = 0.0
        """Until then there may be a good reason to fence it."""
        self.exiting = False
        self.exit: tuple[int, str] | None = None
        self.leader: Leader = world.make_leader(self)
        self.member: Member = world.make_member(self)
        self.leader_producer: Producer | None = None
        self.producers: dict[str, Producer] = {}
        """Data producers of this process, by incarnation."""
        self.refused: set[tuple[str, StreamPartition, int]] = set()
        """Which task failed at which target, and at which of its times of being broken."""
        self.tasks: Tasks = world.make_tasks(self)
        self.single_pid = f"{self.name}#0"
        self.single_seq = 0
        self._position = 0
        self._reading = False
        self._ticks: dict[str, float] = {"leader": float("inf"), "member": float("inf")}
        self.config_offset = -1
        self.lose_answer = 0
        """How many of the next answers to writes get lost (a fault)."""
        self.read_delay_s = 0.0
        """How slow its reader of the coordinator stream is (a fault)."""

    # ------------------------------------------------------------------------------------------------------- life

    def start(self) -> None:
        """The first events of a life."""
        self.beats_from = self.kafka.topics[self.job.heartbeat_topic][0].end
        self.job.coordinator_watchers.append(self)
        self.beat()
        self.to_member(Tick())
        self.to_leader(Tick())
        self.to_leader(leader_words.Counts(self.job.counts()))
        self.coordinator_changed()

    def end(self) -> None:
        """Whatever a kill or an exit takes away; what is on disk and in the logs stays."""
        self.alive = False
        self.tasks.die()
        if self in self.job.coordinator_watchers:
            self.job.coordinator_watchers.remove(self)
        if self.slot.process is self:
            self.slot.process = None

    def freeze(self, seconds: float) -> None:
        super().freeze(seconds)
        self.frozen_last = max(self.frozen_last, self.schedule.moment + seconds)
        self.holds_writes = self.schedule.rng.random() < 0.6

    # ---------------------------------------------------------------------------------------- calls to the broker

    def call(self, effect: Callable[[], Any], done: Callable[[Any], None], slow: float = 0.0) -> None:
        """Reach the broker, then answer; retried for ever while the broker is down."""
        self.schedule.at(self.schedule.latency() + slow, self._reach, effect, done)

    def _reach(self, effect: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if not self.alive:
            return
        try:
            result = effect()
        except Unavailable:
            self.schedule.post(self, RETRY_S, self.call, effect, done)
            return
        self.schedule.post(self, self.schedule.latency(), done, result)

    def write(
        self, effect: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception | None], None]
    ) -> None:
        """The same for a write: it may be refused (`failed(error)`), and its answer may get lost (`failed(None)`)."""
        self.schedule.at(self.schedule.latency(), self._reach_write, effect, done, failed)

    def _reach_write(
        self, effect: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception | None], None]
    ) -> None:
        if not self.alive:
            return
        if self.holds_writes and self.frozen_until > self.schedule.moment:
            self.schedule.post(self, 0.0, self._reach_write, effect, done, failed)
            return
        try:
            result = effect()
        except Unavailable:
            self.schedule.post(self, RETRY_S, self.write, effect, done, failed)
            return
        except (Fenced, NotOngoing, Refused) as error:
            self.schedule.post(self, self.schedule.latency(), failed, error)
            return
        if self.lose_answer > 0:
            self.lose_answer -= 1
            self.world.took_effect("lost-ack")
            self.schedule.post(self, 0.05 + self.schedule.latency(), failed, None)
            return
        self.schedule.post(self, self.schedule.latency(), done, result)

    # ------------------------------------------------------------------------------------------ the coordinator stream

    def coordinator_changed(self) -> None:
        """Something may be read: ask for it, unless that is under way."""
        if not self._reading:
            self._reading = True
            self.schedule.post(self, self.schedule.latency() + self.read_delay_s, self._read)

    def _read(self) -> None:
        self._reading = False
        log = self.kafka.topics[self.job.coordinator_topic][0]
        if self.kafka.down:
            self.schedule.post(self, RETRY_S, self.coordinator_changed)
            return
        position = max(self._position, log.start)
        records, after = log.read(position, 100)
        if after == position:
            return
        self._position = after
        entries = tuple(words.Entry(record.offset, record.key, record.value, record.append_ms) for record in records)
        event = words.Read(entries, after)
        self.to_leader(event)
        self.to_member(event)
        if self._position < log.stable:
            self.coordinator_changed()

    # -------------------------------------------------------------------------------------------------- heartbeats

    def beat(self) -> None:
        """Say that it lives, each second, from a thread that a busy main loop does not hold up."""
        job = self.job
        self.schedule.post(self, job.heartbeat_s, self.beat)
        if self.kafka.down or self.exiting:
            return
        beat = coordinator_events.Heartbeat(
            processor=self.slot.processor,
            process=self.name,
            incarnation=self.member.incarnation,
            sent_s=self.schedule.moment + self.mono_origin,
        )
        copies = 1
        if self.world.duplicate_beats > 0:
            self.world.duplicate_beats -= 1
            self.world.took_effect("duplicate")
            copies = 2
        for _ in range(copies):
            self.kafka.plain(job.heartbeat_topic, 0, None, beat)
            event = coordinator_events.Beat(beat)
            for process in job.coordinator_watchers:
                process.schedule.post(process, process.schedule.latency(), process.heard, event)

    def heard(self, event: coordinator_events.Beat) -> None:
        """A heartbeat came back from the topic."""
        if self.kafka.down:
            self.schedule.post(self, RETRY_S, self.heard, event)
            return
        self.to_leader(event)
        self.to_member(event)

    # ------------------------------------------------------------------------------------------------- the machines

    def to_leader(self, event: Any) -> None:
        """Give the leader machine an event, carry out what it says, and see to its next tick."""
        if not self.alive or self.leader.state == "resigned":
            return
        instructions = self.leader.handle(event, self.now())
        if self.schedule.trace is not None:
            self._note("L", self.leader.state, event, instructions)
        for instruction in instructions:
            LEADER_EDGE[type(instruction)](self, instruction)
        self._arm("leader", self.leader, self.to_leader)

    def to_member(self, event: Any) -> None:
        """The same for the member machine."""
        if not self.alive or self.exit is not None:
            return
        instructions = self.member.handle(event, self.now())
        if self.schedule.trace is not None:
            self._note("M", self.member.state, event, instructions)
        for instruction in instructions:
            MEMBER_EDGE[type(instruction)](self, instruction)
            if not self.alive:
                return
        self._arm("member", self.member, self.to_member)

    def _note(self, who: str, state: str, event: Any, instructions: list[Any]) -> None:
        if type(event) in (coordinator_events.Beat, Tick) and not instructions:
            return
        if type(event) is words.Read:
            seen = " ".join(str(entry.message or entry.key).replace("Set", "", 1)[:90] for entry in event.entries[:4])
            event = f"Read({len(event.entries)} to {event.position}: {seen})"
        self.schedule.note(f"{self.name} {who}", state, event, "=>", ", ".join(map(str, instructions)) or "-")

    def _arm(self, name: str, machine: Any, give: Callable[[Any], None]) -> None:
        deadline = machine.deadline()
        if deadline is None:
            return
        at = deadline - self.mono_origin
        if at < self._ticks[name] - 1e-9:
            self._ticks[name] = at
            self.schedule.post(self, max(0.0, at - self.schedule.moment) + 1e-6, self._tick, name, machine, give, at)

    def _tick(self, name: str, machine: Any, give: Callable[[Any], None], at: float) -> None:
        if self._ticks[name] != at:
            return
        self._ticks[name] = float("inf")
        deadline = machine.deadline()
        if deadline is not None and deadline <= self.schedule.moment + self.mono_origin:
            give(Tick())
        else:
            self._arm(name, machine, give)

    # -------------------------------------------------------------------------------- what both machines may ask for

    def ask_end(self, order: words.AskEnd, give: Callable[[Any], None]) -> None:
        topic = self.job.coordinator_topic
        self.call(lambda: self.kafka.end(topic, 0, committed=True), lambda end: give(words.End(end, order.ticket)))

    def fence(self, order: coordinator_events.Fence, give: Callable[[Any], None]) -> None:
        """Initialise that incarnation's id, as often as it takes; sometimes that is slow, sometimes it fails the first time."""
        world = self.world
        if world.failing_fences > 0:
            world.failing_fences -= 1
            world.took_effect("fence-fails")
            failed = coordinator_events.FenceFailed(order.processor, order.incarnation, "timed out")
            self.schedule.post(self, 0.5, give, failed)
            return
        slow = world.fence_delay()
        txid = worker_id(self.job.job_name, order.processor, order.incarnation)

        def effect() -> None:
            world.invariants.fencing(self, order)
            self.kafka.init(txid, WORKER_TIMEOUT_MS)

        self.call(effect, lambda _: give(coordinator_events.FenceReturned(order.processor, order.incarnation)), slow)

    # --------------------------------------------------------------------------------------------------- the leader

    def _l_init(self, order: leader_words.InitLeaderId) -> None:
        def done(producer: Producer) -> None:
            self.leader_producer = producer
            self.to_leader(leader_words.LeaderIdReady())

        self.call(lambda: self.kafka.init(self.job.leader_txid, LEADER_TIMEOUT_MS), done)

    def _l_ask_end(self, order: words.AskEnd) -> None:
        self.ask_end(order, self.to_leader)

    def _l_commit(self, order: leader_words.Commit) -> None:
        producer = self.leader_producer
        assert producer is not None, "a commit before the leader's id was initialised"
        topic = self.job.coordinator_topic

        def failed(error: Exception | None) -> None:
            self.leader_producer = None
            self.to_leader(leader_words.LeaderIdLost(fenced=error is not None, why=str(error or "no answer")))

        def send() -> int:
            for write in order.writes:
                if isinstance(write, words.SetChangelog):
                    self.job.need_log_partition(write.partition)
            last = -1
            for write in order.writes:
                if isinstance(write, words.Delete):
                    last = self.kafka.send(producer, topic, 0, write.key, None)
                else:
                    last = self.kafka.send(producer, topic, 0, words.key_of(write), write)
            return last

        def commit(last: int) -> int:
            self.kafka.commit(producer)
            return last

        def sent(last: int) -> None:
            self.write(lambda: commit(last), lambda offset: self.to_leader(leader_words.Committed(offset)), failed)

        self.write(send, sent, failed)

    def _l_fence(self, order: coordinator_events.Fence) -> None:
        self.fence(order, self.to_leader)

    def _l_resolve(self, order: leader_words.Resolve) -> None:
        def effect() -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
            self.kafka.up()
            return self.job.resolve()

        self.call(effect, lambda found: self.to_leader(leader_words.Resolved(order.run_id, *found)))

    def _l_resigned(self, order: leader_words.Resigned) -> None:
        if self.exit is not None:
            self.world.exited(self, *self.exit)

    def _l_refuse(self, order: leader_words.Refuse) -> None:
        raise AssertionError(f"the tasks of this job can always be made: {order.what}")

    def _l_note(self, order: coordinator_events.Note) -> None:
        self.world.invariants.leader_note(self, order)

    # --------------------------------------------------------------------------------------------------- the member

    def _m_ask_end(self, order: words.AskEnd) -> None:
        self.ask_end(order, self.to_member)

    def _m_fence(self, order: coordinator_events.Fence) -> None:
        self.fence(order, self.to_member)

    def _m_init(self, order: member_words.InitProducer) -> None:
        txid = worker_id(self.job.job_name, self.slot.processor, order.incarnation)
        self.world.invariants.initialising(self, order.incarnation)

        def effect() -> Producer:
            producer = self.kafka.init(txid, WORKER_TIMEOUT_MS)
            producer.owner = (self, order.incarnation)
            return producer

        def done(producer: Producer) -> None:
            self.producers[order.incarnation] = producer
            self.tasks.new_producer(order.incarnation, producer)
            self.to_member(member_words.ProducerReady(order.incarnation))

        self.call(effect, done)

    def _m_close(self, order: member_words.CloseProducer) -> None:
        producer = self.producers.pop(order.incarnation, None)
        self.tasks.close_producer(order.incarnation)
        if producer is not None:
            self.write(lambda: self.kafka.abort(producer), lambda _: None, lambda _: None)

    def _m_probe(self, order: member_words.Probe) -> None:
        target = order.target

        def effect() -> str:
            self.kafka.up()
            return "still broken" if target in self.kafka.broken else ""

        self.call(effect, lambda why: self.to_member(member_words.Probed(target, why)))

    def _m_record(self, order: member_words.Record) -> None:
        """Single records, one in flight; after an unknown outcome the producer is a new one, so nothing suppresses a rewrite."""
        left = list(order.messages)
        topic = self.job.coordinator_topic

        def failed(error: Exception | None) -> None:
            self.single_pid = f"{self.name}#{self.single_seq}"
            self.to_member(member_words.RecordUnknown(str(error or "no answer")))

        def one() -> int:
            message = left[0]
            self.single_seq += 1
            offset = self.kafka.single(
                self.single_pid, self.single_seq, topic, 0, words.key_of(message), message
            ).offset
            if self.world.duplicate_singles > 0:
                self.world.duplicate_singles -= 1
                self.world.took_effect("duplicate")
                self.kafka.single(self.single_pid, self.single_seq, topic, 0, words.key_of(message), message)
            return offset

        def done(offset: int) -> None:
            del left[0]
            if left:
                self.write(one, done, failed)
            else:
                self.to_member(member_words.Recorded(offset))

        self.write(one, done, failed)
        if self.freeze_on_record:
            self.freeze(self.freeze_on_record)
            self.freeze_on_record, self.holds_writes = 0.0, True
            self.world.took_effect("zombie")

    def _m_tell(self, order: member_words.Tell) -> None:
        self.tasks.tell(order.task, order.order)

    def _m_config(self, order: member_words.ConfigChanged) -> None:
        self.world.invariants.config_applied(self, order)
        self.config_offset = order.offset

    def _m_standing(self, order: member_words.Standing) -> None:
        pass

    def _m_exit(self, order: member_words.Exit) -> None:
        self.exit = (order.code, order.why)
        self.exiting = True
        self.to_leader(leader_words.Resign())
        self.schedule.post(self, 5.0, self.world.exited, self, order.code, order.why)

    def _m_note(self, order: coordinator_events.Note) -> None:
        pass


LEADER_EDGE: dict[type, Callable[[Process, Any], None]] = {
    leader_words.InitLeaderId: Process._l_init,
    words.AskEnd: Process._l_ask_end,
    leader_words.Commit: Process._l_commit,
    coordinator_events.Fence: Process._l_fence,
    leader_words.Resolve: Process._l_resolve,
    leader_words.Resigned: Process._l_resigned,
    coordinator_events.Note: Process._l_note,
    leader_words.Refuse: Process._l_refuse,
}
MEMBER_EDGE: dict[type, Callable[[Process, Any], None]] = {
    words.AskEnd: Process._m_ask_end,
    coordinator_events.Fence: Process._m_fence,
    member_words.InitProducer: Process._m_init,
    member_words.CloseProducer: Process._m_close,
    member_words.Probe: Process._m_probe,
    member_words.Record: Process._m_record,
    member_words.Tell: Process._m_tell,
    member_words.ConfigChanged: Process._m_config,
    member_words.Standing: Process._m_standing,
    member_words.Exit: Process._m_exit,
    coordinator_events.Note: Process._m_note,
}
