"""Processes of one job, each with its own machines, tasks and producers, over logs in memory and a clock that the test moves.

It is a worker's own code: `participant`, `coordination`, `steering`, `heartbeat`, `runtime`. What the port refuses is planted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.live_settings import Settings
from headgate.agents.measured import Clocks
from headgate.agents.port.errors import Fenced, NotSent, OutcomeUnknown, ProducerBroken
from headgate.agents.port.port import Background, BatchInWork
from headgate.agents.runtime.copies.directory import NoDirectory
from headgate.agents.state.store import Disk, NoDisk
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.loop import VirtualLoop
from headgate.agents.testing.port import MemoryMailbox, MemoryPort, MemoryProducer
from headgate.agents.testing.targets import MemoryTargets
from headgate.agents.worker.options import WorkerOptions
from headgate.agents.worker.participant import Participant
from headgate.core.coordination import wire
from headgate.core.coordination.member.protocol import Leave
from headgate.core.coordination.messages import SetRequest, Stamp
from headgate.core.coordination.state import JobState
from headgate.core.errors import EnvironmentFault
from headgate.core.names import StreamPartition
from headgate.core.settings import VirtualTime

WIDTH = 4


class Life:
    """See `runtime.Life`: coroutines of one loop, which end together when the process is killed."""

    busy = False

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.crashed: list[BaseException] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.mailboxes: list[MemoryMailbox] = []

    def crash(self, error: BaseException) -> None:
        self.crashed.append(error)

    def disk(self, task: str) -> Disk:
        return NoDisk()

    def copy_disk(self, table: str) -> NoDirectory:
        return NoDirectory()

    def spawn(self, work: Background, name: str) -> asyncio.Task[None]:
        async def awaited() -> None:
            await work()

        task = self.loop.create_task(awaited(), name=name)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(error)

    async def serve(self, name: str, work: Background) -> Any:
        return self.spawn(work, name)

    def mailbox(self, name: str, on_letter: Any, on_gone: Any, on_again: Any) -> MemoryMailbox:
        self.mailboxes.append(MemoryMailbox(name, on_letter, on_gone))
        return self.mailboxes[-1]


class Producer(MemoryProducer):
    """One that fails once, where its port is told to. Promises of the port stand: a start ends by its deadline."""

    port: Port

    async def start(self, *, deadline_s: float) -> None:
        await self._fail("start")
        await super().start(deadline_s=deadline_s)

    async def begin(self) -> None:
        await self._fail("begin")
        await super().begin()

    async def send(self, at: StreamPartition, batch: BatchInWork) -> asyncio.Future[int]:
        await self._fail("send")
        answer = await super().send(at, batch)
        await self._fail("sent")
        return answer

    async def commit(self) -> None:
        await self._fail("commit")
        await super().commit()
        await self._fail("committed")

    async def _fail(self, call: str) -> None:
        planted = self.port.planted
        if planted is not None and planted[0] == call and self.port.concerns(self._id):
            self.port.planted = None
            self.port.struck.append(call)
            if planted[1] is None:
                await asyncio.Event().wait()  # nobody answers, ever
            else:
                raise planted[1]


class Port(MemoryPort):
    """Memory, with a fault in what is written to the coordinator stream."""

    planted: tuple[str, Exception | None] | None = None
    """What fails next, and how; None is never answered."""
    whose = ""
    """How the transactional id ends that it strikes; `own`: what is written without one."""

    def __init__(self, logs: Logs, clock: VirtualClock) -> None:
        super().__init__(logs, clock)
        self.struck: list[str] = []

    def concerns(self, transactional_id: str | None) -> bool:
        return transactional_id.endswith(self.whose) if transactional_id is not None else self.whose == "own"

    def producer(self, transactional_id: str | None, *, name: str = "", **_: Any) -> Producer:  # type: ignore[override]
        made = Producer(self.logs, transactional_id)
        made.port = self if name == "coordinator stream" else Port(self.logs, self.clock)
        return made


class House:
    """The processes, their clock and their logs."""

    def __init__(self, app: hg.App | None = None, clocks: Clocks | None = None) -> None:
        """`clocks`: those by which letters are measured; none in virtual time."""
        if app is None:
            app = hg.App("job", serde=hg.json())
            app.input("in").to("out")
        self.app = app
        self.clocks = clocks
        self.declared = Declared(self.app)
        self.clock = VirtualClock(1_000_000)
        self.loop = VirtualLoop(self.clock.ring)
        self.logs = Logs({"in": WIDTH, "out": 1})
        self.names = self.declared.topics
        self.ports: dict[str, Port] = {}
        self.lives: dict[str, Life] = {}
        self.there: dict[str, Participant] = {}

    def start(self, name: str, **given: Any) -> Participant:
        """A process begins, and is there."""
        settings = {"placement.debounce": "0ms", "placement.rejoin-grace": "0s", "commit.interval": VirtualTime("0ms")}
        options = WorkerOptions(
            declared=self.declared,
            client=ClientSettings("memory:1"),
            processor=name,
            location=name,
            process=f"process-{name}-{len(self.lives)}",
            token=f"{len(self.lives):06d}",
            settings=settings,
            lock_free=True,
            job_uuid="00000000-0000-4000-8000-000000000000",
            **given,
        )
        port = self.ports[name] = Port(self.logs, self.clock)
        life = self.lives[name] = Life(self.loop)
        topics = MemoryTargets(self.declared, self.logs, WIDTH)

        async def begin() -> Participant:
            made = Participant(
                options,
                life,
                port,
                port,
                topics,
                Settings(settings),
                refuse=life.crashed.append,
                more={"upkeep": lambda: None, "log": lambda: None},
                clocks=self.clocks,
            )
            await made.start()
            return made

        self.there[name] = self.loop.run_until_complete(begin())
        return self.there[name]

    def kill(self, name: str) -> None:
        """As kill -9: nothing is said, committed or released."""
        one, life = self.there.pop(name), self.lives.pop(name)
        one.coordination.stop()
        for task in [*life.tasks]:
            task.cancel()
        for mailbox in life.mailboxes:
            self.do(mailbox.stop())
        self.do(one.coordination.stop_heartbeats())

    def do(self, work: Awaitable[Any]) -> None:
        self.loop.until_quiet(self, work)

    busy = False

    def run(self, seconds: float) -> None:
        """Time passes."""
        until = self.clock.now().mono + seconds
        while not self.clock.move(until):
            self.loop.until_quiet(self, None)
        self.loop.until_quiet(self, None)
        assert [life.crashed for life in self.lives.values()] == [[] for _ in self.lives]

    def until(self, true: Callable[[], Any], *, within_s: float = 120.0) -> None:
        """Time passes until something is true."""
        give_up = self.clock.now().mono + within_s
        while not true():
            assert self.clock.now().mono < give_up, self.told()
            self.run(0.25)

    def told(self) -> str:
        """What the machines saw and decided."""
        return "\n".join(
            f"{name}:\n{machine.story()[-3000:]}"
            for name, one in self.there.items()
            for machine in (one.coordination.leader, one.coordination.member)
        )

    @property
    def state(self) -> JobState:
        """What stands in the stream."""
        stream = StreamPartition(self.names.coordinator, 0)
        records = self.logs.records(stream)
        return JobState().fold(wire.read(r.offset, r.key, r.value, r.timestamp) for r in records)

    def leads(self) -> list[str]:
        """Who leads, by his own word."""
        leading = ("leading", "writing", "settling")
        return [name for name, one in self.there.items() if one.coordination.leader.state in leading]

    def owners(self) -> dict[str, str]:
        """Who runs which task."""
        found: dict[str, str] = {}
        for name, one in self.there.items():
            for task, actor in one.actors.items():
                if actor.machine.phase == "running":
                    assert task not in found, f"{task} runs twice"
                    found[task] = name
        return found

    def runs(self) -> bool:
        """One leads, and all tasks run."""
        return len(self.leads()) == 1 and len(self.owners()) == WIDTH

    def term(self) -> int:
        leader = self.state.leader
        return 0 if leader is None else leader.term

    def ask(self, request: SetRequest) -> None:
        """A command."""
        key, value = wire.encode(request, Stamp())
        self.logs.write(StreamPartition(self.names.coordinator, 0), [key], [value], [self.clock.now().wall], None)

    def close(self) -> None:
        for name in list(self.there):
            self.kill(name)
        self.loop.close()


@pytest.fixture
def house() -> Iterator[House]:
    made = House()
    yield made
    made.close()


def test_one_leads_all_are_granted_and_a_dead_leader_is_followed_by_the_next(house: House) -> None:
    """An election, grants, a kill, another election; what the dead one ran goes on elsewhere, and reads on where it had committed."""
    house.start("a")
    house.until(house.runs)
    assert house.leads() == ["a"]
    house.start("b")
    house.start("c")
    house.until(lambda: house.runs() and set(house.owners().values()) == {"a", "b", "c"})
    for partition in range(WIDTH):
        house.logs.write(StreamPartition("in", partition), None, [b'{"n":1}'], [1], None)
    house.run(5.0)
    grants = {grant.task: grant.grant for grant in house.state.grants()}
    house.kill("a")
    house.until(lambda: house.runs() and set(house.owners().values()) == {"b", "c"})
    for partition in range(WIDTH):
        house.logs.write(StreamPartition("in", partition), None, [b'{"n":2}'], [1], None)
    house.run(5.0)
    assert house.term() == 2
    assert [r.value for r in house.logs.records(StreamPartition("out", 0))] == [b'{"n":1}'] * WIDTH + [
        b'{"n":2}'
    ] * WIDTH
    assert {grant.task for grant in house.state.grants() if grant.grant > grants[grant.task]}


def test_the_same_calls_write_the_same_stream() -> None:
    """Nothing of coordination depends on this machine's clock or on its load."""
    streams: list[list[Any]] = []
    for _ in range(2):
        house = House()
        for name in "abc":
            house.start(name)
        house.until(house.runs)
        house.kill(house.leads()[0])
        house.until(house.runs)
        streams.append(house.logs.records(StreamPartition(house.names.coordinator, 0)))
        house.close()
    assert streams[0] == streams[1]


def test_whoever_leaves_gives_everything_back_first(house: House) -> None:
    """The leadership, too: the next one need not wait until it is silent."""
    one = house.start("a")
    house.start("b")
    house.until(house.runs)
    house.start("c")
    house.until(lambda: house.runs() and set(house.owners().values()) == {"a", "b", "c"})
    one.coordination.feed_member(Leave("SIGTERM"))
    house.until(one.over.is_set)
    assert (one.exit_code, one.exit_why, one.actors) == (0, "SIGTERM", {})
    before = house.clock.now().mono
    house.until(lambda: house.leads() not in ([], ["a"]))
    assert house.clock.now().mono - before < 3.0


FAULTS: list[tuple[str, Exception | None, bool]] = [
    ("start", EnvironmentFault("no broker answers"), False),
    ("start", ProducerBroken("its coordinator has no leader"), False),
    ("begin", Fenced("another has the id"), True),
    ("begin", ProducerBroken("cannot begin a transaction"), False),
    ("send", NotSent("the topic is gone"), False),
    ("sent", Fenced("another has the id"), True),
    ("commit", Fenced("at the commit", committed=None), True),
    ("commit", OutcomeUnknown("no answer, and nothing happened"), False),
    ("committed", OutcomeUnknown("no answer, and it happened"), False),
    ("commit", None, False),
    ("committed", None, False),
    ("begin", ValueError("a library may be wrong in any way"), False),
]


@pytest.mark.parametrize(("call", "error", "fenced"), FAULTS, ids=lambda v: str(v)[:30])
def test_a_leader_whose_transaction_fails_leads_no_more_and_another_term_finishes(
    house: House, call: str, error: Exception | None, fenced: bool
) -> None:
    """Whatever it was, what was decided is decided anew by whoever leads next, from what stands in the stream."""
    house.start("a")
    house.until(house.runs)
    port, leader = house.ports["a"], house.there["a"].coordination.leader
    if call == "start":
        port.planted, port.whose = ("begin", ProducerBroken("so that it stands again")), ".leader"
        house.start("b")
        house.until(lambda: port.struck)
        term = house.term()
        port.planted = (call, error)
    else:
        port.planted, port.whose = (call, error), ".leader"
        term = house.term()
        house.start("b")
    house.until(lambda: port.struck and port.struck[-1] == call)
    house.until(lambda: house.runs() and set(house.owners().values()) == {"a", "b"})
    house.run(30.0)
    lost = [step.event for step in leader.steps() if type(step.event).__name__ == "LeaderIdLost"]
    assert [one.fenced for one in lost][-1] is fenced
    assert house.term() > term
    assert house.runs()
    assert {grant.task: grant.processor for grant in house.state.grants()} == house.owners()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("start", EnvironmentFault("no broker answers")),
        ("start", ProducerBroken("no producer id")),
        ("send", NotSent("the topic is gone")),
        ("send", None),
        ("sent", OutcomeUnknown("no answer, and it is written")),
        ("sent", None),
    ],
    ids=lambda v: str(v)[:30],
)
def test_what_a_member_says_is_said_in_the_end_whatever_becomes_of_a_record(
    house: House, call: str, error: Exception | None
) -> None:
    """Read back where it is in doubt, and written again, by another producer, where it is not there."""
    house.start("a")
    house.until(house.runs)
    port = house.ports["a"]
    port.planted, port.whose = (call, error), "own"
    house.do(house.there["a"].coordination.member_edge.own.stop())  # the next record begins with another producer
    house.ask(SetRequest("u1", "drain", house.state.run.run_id if house.state.run else "", {}, None, "me"))
    house.until(lambda: port.struck == [call])
    house.until(lambda: house.state.run is not None and house.state.run.state == "drained")
    answer = house.state.answer("u1")
    assert answer is not None
    assert answer.state == "done"


@pytest.mark.parametrize(
    ("row_ns", "rows", "least", "most"),
    [(5_000_000, 60, 1, 3), (100, 12_000, 1000, 2000)],
    ids=["a slow function", "a fast one"],
)
def test_the_letters_of_a_task_are_as_long_as_its_function_permits(
    row_ns: int, rows: int, least: int, most: int
) -> None:
    """The worker measures them. With a function of 5 ms a row, 2,000 rows would hold the loop for ten seconds, and every commit with it;
    with a fast one, a letter for each row would cost more than the rows.
    """
    now_ns, letters = 0, list[int]()

    class Takes(hg.Actor):
        async def on_batch(self, ctx: Any, batch: Any) -> None:
            nonlocal now_ns
            now_ns += row_ns * len(batch)
            letters.append(len(batch))

    app = hg.App("job", serde=hg.json())
    app.actor(app.input("in"))(Takes)
    house = House(app, Clocks(lambda: now_ns, lambda: now_ns, lambda: 0))
    try:
        house.start("a")
        house.until(house.runs)
        house.logs.write(StreamPartition("in", 0), None, [b'{"n":1}'] * rows, [1] * rows, None)
        house.until(lambda: sum(letters) == rows)
    finally:
        house.close()
    assert letters[0] == 1
    learnt = letters[len(letters) // 2 : -1]
    assert least <= min(learnt) <= max(learnt) <= most
