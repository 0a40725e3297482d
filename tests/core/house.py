"""A house for the machines that steer: one modelled coordinator stream, workers with their two machines, and tasks that obey.

Time passes only by `run(seconds)`. Everything is delivered in order and at once unless a worker is `frozen`, so a story can say exactly
which message comes before which.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from headgate.core import orders as o
from headgate.core.coordination.events import Beat, Fence, FenceFailed, FenceReturned, Heartbeat, JobNote
from headgate.core.coordination.leader.leader import Leader
from headgate.core.coordination.leader.plan import LeaderConfig, Plan, Timing
from headgate.core.coordination.leader.protocol import (
    BoundsResolved,
    CountInputs,
    Counts,
    InitLeaderId,
    LeaderIdLost,
    LeaderIdReady,
    Refuse,
    Resign,
    ResolveBounds,
    TransactionWritten,
    WriteTransaction,
)
from headgate.core.coordination.member.member import Member
from headgate.core.coordination.member.plan import MemberConfig
from headgate.core.coordination.member.protocol import (
    CloseProducer,
    ConfigChanged,
    Exit,
    Follow,
    Followed,
    InitProducer,
    Leave,
    MessagesWritten,
    Probe,
    Probed,
    ProducerLost,
    ProducerReady,
    Readiness,
    SendOrder,
    WriteMessages,
    WriteOut,
)
from headgate.core.coordination.messages import AskEnd, Delete, End, Entry, Message, Read, SetRequest, Write, key_of
from headgate.core.coordination.state import JobState
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.machine import Now, Tick
from headgate.core.names import StreamPartition


def plan(deployment: str = "d1", **changes: Any) -> Plan:
    """A job that reads `orders`, shuffles, and has state."""
    given: dict[str, Any] = {
        "deployment": deployment,
        "fingerprint": {"stage:all": deployment, "setting:grouper": "partition"},
        "graph": graph(),
    }
    return Plan(**(given | changes))


def graph(*, stateful: bool = True, shuffle: str | None = "by-country") -> Graph:
    """One that reads `orders`, shuffles into `shuffle` if that is given, and counts."""
    stages = () if shuffle is None else (Stage(shuffle, "repartition", ("orders",), by="country", writes=(shuffle,)),)
    count = Stage("count", "agg" if stateful else "to", (shuffle or "orders",), stateful=stateful)
    return Graph((Input("orders"),), (*stages, count))


@dataclass
class FakeTask:
    """A task that does at once what it is told, unless it is stuck."""

    task: str
    grant: int
    told: list[Any] = field(default_factory=list)
    state: str = ""


class Worker:
    """One process: a member, a leader, its tasks, and whether it still turns."""

    def __init__(self, house: House, processor: str, process: str, code: Plan, **given: Any) -> None:
        self.house, self.processor, self.process, self.code = house, processor, process, code
        settings: dict[str, Any] = {"location": f"at-{processor}", "supervised": True, "deployment": code.deployment}
        settings |= {"fingerprint": dict(code.fingerprint)} | given
        self.member = Member(MemberConfig(processor, process, process.replace("-", ""), **settings))
        timing = house.timing
        self.leader = Leader(LeaderConfig(processor, process, f"uuid-{process}", code, timing, settings.get("job", "")))
        self.tasks: dict[str, FakeTask] = {}
        self.position = 0
        self.frozen = False
        self.dead = False
        self.exit: Exit | None = None
        self.notes: list[JobNote] = []
        self.refused: list[Refuse] = []
        self.ready: Readiness | None = None
        self.stood: list[Readiness] = []
        self.config: ConfigChanged | None = None
        self.written_out: tuple[str, ...] = ()
        """The tasks that it was told to write out, because they are about to go."""
        self.follows: dict[str, int] = {}
        """The tasks whose logs it follows, each with the grant of its holder."""
        self.init: list[str] = []
        self.hold: set[type[Any]] = set()
        """Instructions that are not carried out."""
        self.held: list[Any] = []
        self.stuck: set[str] = set()
        """Tasks that do not release."""
        self.unproven = False
        """Its tasks are released before enough commits have followed a death."""
        self.fenced = False

    @property
    def turns(self) -> bool:
        return not self.frozen and not self.dead and self.exit is None

    def feed(self, machine: Member | Leader, event: Any) -> None:
        for instruction in machine.handle(event, self.house.now):
            self.house.queue.append((self, machine, instruction))

    def _released(self, task: str, grant: int) -> o.TaskReported:
        return o.TaskReported(task, grant, o.TaskState.RELEASED, unproven=self.unproven)

    def report(self, task: str, state: str, why: str = "", *, still: bool = False) -> None:
        """Something happened in a task."""
        one = self.tasks[task]
        one.state = state
        self.feed(self.member, o.TaskReported(task, one.grant, state, why, still))
        self.house.settle()

    def obey(self, tell: SendOrder) -> None:
        order = tell.order
        if isinstance(order, o.Start):
            assert tell.task not in self.tasks, f"{tell.task} was started twice"
            self.tasks[tell.task] = FakeTask(tell.task, order.grant)
            self.house.check_owners()
            self.tasks[tell.task].told.append(order)
            state = o.TaskState.DRAINED if order.run.draining and self.house.drains else o.TaskState.RUNNING
            if tell.task in self.house.finished:
                state = self.house.finished[tell.task]
            self.feed(self.member, o.TaskReported(tell.task, order.grant, o.TaskState.RUNNING))
            if state != o.TaskState.RUNNING:
                self.feed(self.member, o.TaskReported(tell.task, order.grant, state))
            self.tasks[tell.task].state = state
            return
        task = self.tasks[tell.task]
        task.told.append(order)
        if isinstance(order, o.Abandon):
            del self.tasks[tell.task]
        elif isinstance(order, o.Release):
            if tell.task not in self.stuck:
                del self.tasks[tell.task]
                self.feed(self.member, self._released(tell.task, task.grant))
        elif (
            isinstance(order, o.RunChanged)
            and order.run.draining
            and self.house.drains
            and task.state == o.TaskState.RUNNING
        ):
            task.state = o.TaskState.DRAINED
            self.feed(self.member, o.TaskReported(tell.task, task.grant, o.TaskState.DRAINED))
        elif isinstance(order, o.Seek | o.Unpark) and self.house.seeks:
            self.feed(self.member, o.SeekApplied(tell.task, order.request))


class House:
    """The stream, the broker's fences, the clock, and the workers."""

    def __init__(self, partitions: int = 4, **timing: Any) -> None:
        self.timing = Timing(**timing)
        self.now = Now(100.0, 1_000_000)
        self.log: list[Entry] = []
        self.workers: list[Worker] = []
        self.queue: deque[tuple[Worker, Any, Any]] = deque()
        self.leader_owner: Worker | None = None
        self.fenced: set[tuple[str, str]] = set()
        self.initialised: set[tuple[str, str]] = set()
        self.partitions = {"orders": partitions}
        self.more: dict[str, int] = {}
        """The topics that match a pattern, for a leader that asks."""
        self.beats: list[Heartbeat] = []
        self.broker_up = True
        self.drains = True
        self.seeks = True
        self.near = True
        """Whether whoever follows a log is near its end at once."""
        self.finished: dict[str, str] = {}
        self.untils: dict[str, tuple[int, ...]] = {}
        self.fences_work = True
        self.targets_work = True
        self.lost_acks: set[str] = set()
        """Processors whose next record is written but not acknowledged."""

    def worker(self, processor: str, code: Plan | None = None, **given: Any) -> Worker:
        """A process starts."""
        process = given.pop("process", f"{processor}x{len(self.workers)}")
        one = Worker(self, processor, process, code or plan(), **given)
        self.workers.append(one)
        one.feed(one.member, Tick())
        one.feed(one.leader, Tick())
        one.feed(one.leader, Counts(self.partitions))
        self.settle()
        return one

    # ------------------------------------------------------------------------------------------------------------ the stream

    def append(self, write: Write) -> int:
        key = write.key if isinstance(write, Delete) else key_of(write)
        message: Message | None = None if isinstance(write, Delete) else write
        self.log.append(Entry(len(self.log), key, message, self.now.wall))
        return len(self.log) - 1

    def request(self, uuid: str, verb: str, **arguments: Any) -> None:
        """Somebody writes a request."""
        run_id, not_after = arguments.pop("run_id", ""), arguments.pop("not_after", None)
        self.append(SetRequest(uuid, verb, run_id, arguments, not_after, "me"))
        self.settle()

    @property
    def state(self) -> JobState:
        return JobState().fold(self.log)

    def answer(self, uuid: str) -> tuple[str, str]:
        found = self.state.answer(uuid)
        return ("", "") if found is None else (found.state, found.why)

    def deliver(self) -> bool:
        moved = False
        for one in self.workers:
            if one.turns and self.broker_up and one.position < len(self.log):
                read = Read(tuple(self.log[one.position :]), len(self.log))
                one.position = len(self.log)
                one.feed(one.member, read)
                if one.exit is None:
                    one.feed(one.leader, read)
                moved = True
        return moved

    def settle(self) -> None:
        """Until nothing more happens without time."""
        for _ in range(2000):
            waiting = [item for item in self.queue if not item[0].turns]
            item = next((item for item in self.queue if item[0].turns), None)
            if item is not None:
                self.queue.remove(item)
                self.carry_out(*item)
            elif not self.deliver():
                self.queue = deque(item for item in waiting if not item[0].dead)
                self.check_owners()
                return
        raise AssertionError("it does not come to rest")

    def check_owners(self) -> None:
        """One running owner per task: whoever is fenced does not count, for nothing that it does comes through."""
        owners: dict[str, list[str]] = {}
        for one in self.workers:
            if not one.dead and (one.processor, one.member.incarnation) not in self.fenced:
                for task in one.tasks:
                    owners.setdefault(task, []).append(f"{one.processor}/{one.member.incarnation}")
        assert all(len(found) == 1 for found in owners.values()), owners

    def carry_out(self, one: Worker, machine: Any, instruction: Any) -> None:
        if type(instruction) in one.hold:
            one.held.append(instruction)
            return
        match instruction:
            case AskEnd(ticket):
                one.feed(machine, End(len(self.log), ticket))
            case InitLeaderId():
                self.leader_owner = one
                one.feed(machine, LeaderIdReady())
            case WriteTransaction(writes):
                if self.leader_owner is not one:
                    one.feed(machine, LeaderIdLost(True, "fenced"))
                    return
                last = [self.append(write) for write in writes][-1]
                one.feed(machine, TransactionWritten(last))
            case Fence(processor, incarnation):
                if self.fences_work:
                    assert (processor, incarnation) in self.initialised
                    self.fenced.add((processor, incarnation))
                    one.feed(machine, FenceReturned(processor, incarnation))
                else:
                    one.feed(machine, FenceFailed(processor, incarnation, "no broker"))
            case InitProducer(incarnation):
                assert (one.processor, incarnation) not in self.initialised, "an incarnation initialises its id once"
                self.initialised.add((one.processor, incarnation))
                one.init.append(incarnation)
                one.feed(machine, ProducerReady(incarnation))
            case WriteMessages(messages):
                last = [self.append(message) for message in messages][-1]
                one.feed(machine, MessagesWritten(last))
            case SendOrder():
                one.obey(instruction)
            case Exit():
                one.exit = instruction
                one.leader.handle(Resign(), self.now)
                one.tasks.clear()
            case Readiness():
                one.ready = instruction
                one.stood.append(instruction)
            case ConfigChanged():
                one.config = instruction
            case Follow(logs):
                fresh = {task: log.grant for task, log in logs.items() if one.follows.get(task) != log.grant}
                one.follows = {task: log.grant for task, log in logs.items()}
                for task, grant in fresh.items() if self.near else ():
                    one.feed(machine, Followed(task, grant))
            case WriteOut(tasks):
                one.written_out += tasks
            case JobNote():
                one.notes.append(instruction)
            case Refuse():
                one.refused.append(instruction)
            case CountInputs(number):
                one.feed(machine, Counts(self.partitions, self.more, number))
            case ResolveBounds(run_id):
                one.feed(machine, BoundsResolved(run_id, {"orders": (0, 0, 0, 0)}, dict(self.untils)))
            case Probe(target):
                one.feed(machine, Probed(target, "" if self.targets_work else "still broken"))
            case CloseProducer():
                pass
            case _:
                assert type(instruction).__name__ == "Resigned"

    # --------------------------------------------------------------------------------------------------------------- time

    def run(self, seconds: float, step: float = 0.5) -> None:
        """Time passes: everybody who turns beats once a second, and is woken when he wants to be."""
        end = self.now.mono + seconds
        while self.now.mono < end - 1e-9:
            self.now = Now(self.now.mono + step, self.now.wall + int(step * 1000))
            if abs(self.now.mono - round(self.now.mono)) < 1e-9 and self.broker_up:
                for one in [w for w in self.workers if w.turns]:
                    self.beat(Heartbeat(one.processor, one.process, one.member.incarnation, self.now.mono))
            for one in [w for w in self.workers if w.turns]:
                for machine in (one.member, one.leader):
                    due = machine.deadline()
                    if due is not None and due <= self.now.mono and one.turns:
                        one.feed(machine, Tick())
            self.settle()

    def beat(self, beat: Heartbeat) -> None:
        for one in self.workers:
            if one.turns:
                one.feed(one.member, Beat(beat))
                if one.exit is None:
                    one.feed(one.leader, Beat(beat))
        self.settle()

    def kill(self, one: Worker) -> None:
        """kill -9."""
        one.dead = True
        one.tasks.clear()

    def producer_lost(
        self,
        one: Worker,
        why: str = "broken",
        failed: tuple[tuple[str, str], ...] = (),
        target: StreamPartition | None = None,
    ) -> None:
        one.feed(one.member, ProducerLost(one.member.incarnation, why, failed, target))
        self.settle()

    def leave(self, one: Worker, prepare_s: float = 0.0) -> None:
        """SIGTERM."""
        one.feed(one.member, Leave("SIGTERM", prepare_s))
        self.settle()

    def owners(self) -> dict[str, str]:
        """Task → who runs it."""
        return {task: one.processor for one in self.workers if one.turns for task in one.tasks}

    def leads(self) -> list[str]:
        return [
            one.processor
            for one in self.workers
            if one.turns and one.leader.state in ("leading", "writing", "settling")
        ]
