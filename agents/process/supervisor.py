"""`headgate run --workers N`: runs the same worker in N processes, and restarts those that die.

    running → (dies) → running …    running → (dies soon) → resting → running …    running → (exits 0) → finished

Decides:

- Child n is `<host>-<n>`, or `<id>-<n>` with `--processor-id`, so that a restarted child gets its name, its lock and its tables back.
- A child's death is reported at once (`Heartbeat(gone=True)`), which others believe after three heartbeats of silence, and its successor is
  told that it is dead, so no one waits for a session timeout.
- How many there are: as many as the job wants (`scaling`), at the start and while it runs. A child whose number is wanted is not touched.
- A child that died is restarted at once; after a short run (ten seconds) after a pause that doubles with each in a row. It stays down after
  five short runs in a row, if it refused to run (exit 2 or 4), or if its bounded run failed. In the last case the supervisor exits with 1,
  and its next start continues that run.
- A spare stands by, once the supervisor has run for as long as a short run, unless `workers.spare` is off: a process that has loaded Python
  and its libraries, but not the user's code. It becomes the next child that is started, and another takes its place. Loading takes longer
  than all else of a restart.
- A child that finds its run closed although the supervisor was running then (it died while the run closed, or came late) exits with 0: a
  restart neither undoes a stop nor repeats a batch.
- SIGTERM and Ctrl-C go to all children; a second Ctrl-C kills them. The exit code is 0 if every child exited with 0, 130 after a second
  Ctrl-C, and otherwise that of the first child that did not exit with 0 (for a killed child 128 plus the signal, as in a shell).

Promises: no child outlives the supervisor (the kernel signals the children when it dies), and none is started after a signal.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import click
from aiokafka import AIOKafkaProducer

from ...core.coordination.events import Heartbeat
from ...core.coordination.fleet import front_of
from ...core.coordination.liveness import encode_beat
from ...core.names import processor_id
from ..job.declare.app import App
from ..kafka.connect import closed, started
from .configuration import Configuration
from .launch import RUN_FAILED, host_word
from .scaling import NumberFollower

FIRST_PAUSE_S = 0.2
SHORT_RUN_S = 10.0
SHORT_RUNS = 5
SPARE_AFTER_S = SHORT_RUN_S
"""A spare does not take time from the children that start, and one that runs for a short time only does not use one up each time."""
REPORT_S = 5.0
FIRST_S = 5.0
MOST = 1000
"""The most children, as of `--workers`."""
LOADED = (
    "..worker.worker",
    "..web.service",
    ".memory",
    "faust.tables.manager",
    "faust.topics",
    "faust.transport.consumer",
)
"""What a worker loads that is not loaded by the command line, also what Faust loads when an app is made."""
PR_SET_PDEATHSIG = 1
ENDED_AT_ONCE = 130


@dataclass(slots=True)
class Child:
    """One supervised worker."""

    processor: str
    process: str = ""
    running: asyncio.subprocess.Process | None = None
    began_s: float = 0.0
    short_runs: int = 0
    """In a row."""
    starts: int = 0
    code: int | None = None
    """How it ended for good; None while it runs or waits to be restarted."""
    retired: bool = False
    """Its number is not wanted any more: it is not restarted, and how it ends is not the supervisor's end."""
    off: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends a pause before a restart."""


@dataclass(frozen=True, slots=True)
class Role:
    """Which worker a process is to be."""

    processor: str
    process: str
    """The process id that others will know it by."""
    since_ms: int
    """When the supervisor began."""
    web_port: int = 0
    successor: bool = False
    """A process with this processor id ran here before, and is dead."""

    def words(self) -> list[str]:
        """As arguments of `run`."""
        words = ["--processor-id", self.processor, "--supervised", self.process, "--since", str(self.since_ms)]
        words += ["--web-port", str(self.web_port)] if self.web_port else []
        return [*words, "--successor"] if self.successor else words

    def line(self) -> bytes:
        """As a spare reads it."""
        return json.dumps(asdict(self)).encode() + b"\n"


class Spare:
    """A process that waits for its role on its standard input."""

    def __init__(self, running: asyncio.subprocess.Process) -> None:
        self.running = running
        self.taken = asyncio.Event()

    async def takes(self, role: Role) -> bool:
        """Give it its role. Returns whether it has got it: it may have died."""
        self.taken.set()
        line = self.running.stdin
        if line is None or self.running.returncode is not None:
            return False
        try:
            line.write(role.line())
            await line.drain()
        except ConnectionError:
            return False
        finally:
            line.close()
        return True

    async def over(self) -> None:
        """Wait until it has died, or is no longer a spare."""
        loop = asyncio.get_running_loop()
        ways = [loop.create_task(self.taken.wait()), loop.create_task(self.running.wait())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            if not self.taken.is_set() and self.running.returncode is None:
                self.running.kill()
                await self.running.wait()


@dataclass(slots=True)
class Supervisor:
    """Starts, watches and restarts children. Tests replace `command` and `report`."""

    command: list[str]
    processors: list[str]
    report: Any
    """Called for each child that died: `async report(processor, process)`."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    follower: NumberFollower | None = None
    """Says how many children there are to be; without one, those of `processors`."""
    web_port: int = 0
    """The port of the pages of the first child; each has that of the one before plus one. 0: any free ones."""
    has_spare: bool = True
    """Whether it keeps a spare."""
    spare: Spare | None = None
    """Becomes the next child, if it lives."""
    children: list[Child] = field(default_factory=list)
    leaving: bool = False
    ended_at_once: bool = False
    since_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    """When it began. A child that finds its run closed since then has nothing to do: it was restarted, or late."""
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _keeping: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """The task of each child, by processor."""

    async def run(self) -> int:
        """Run until every child has ended for good. Returns the exit code."""
        number = await self._first()
        async with asyncio.TaskGroup() as self._group:
            for processor in self.processors[:number]:
                self._begin(processor)
            others: list[asyncio.Task[None]] = []
            if self.has_spare:
                others.append(self._group.create_task(self._have_a_spare()))
            if self.follower is not None:
                others.append(self._group.create_task(self.follower.follow(self)))
            while self._keeping:  # a child may begin meanwhile: it is waited for in the next turn
                done, _ = await asyncio.wait(self._keeping.values(), return_when=asyncio.FIRST_COMPLETED)
                self._keeping = {name: task for name, task in self._keeping.items() if task not in done}
            for task in others:
                task.cancel()
        worst = next((child.code for child in self.children if child.code), 0)
        return ENDED_AT_ONCE if worst and self.ended_at_once else worst

    async def _first(self) -> int:
        """How many children to begin with. Reading the job is given a few seconds, and no time once a signal has come."""
        if self.follower is None:
            return len(self.processors)
        loop = asyncio.get_running_loop()
        found, left = loop.create_task(self.follower.first()), loop.create_task(self._left.wait())
        await asyncio.wait({found, left}, timeout=FIRST_S, return_when=asyncio.FIRST_COMPLETED)
        number = found.result() if found.done() else self.follower.alone
        for task in (found, left):
            task.cancel()
        await asyncio.gather(found, left, return_exceptions=True)
        return 0 if self.leaving else number

    def numbers(self) -> set[int]:
        """The children that are there, and stay: also one that ended for good, which is not started again."""
        return {self.processors.index(child.processor) for child in self.children if not child.retired}

    def begin(self, number: int) -> None:
        """Start the child of this number."""
        if not self.leaving:
            self._begin(self.processors[number])

    def retire(self, number: int) -> str:
        """Not restart the child of this number any more. Returns its processor."""
        for child in self._of(number):
            child.retired = True
            child.off.set()
        return self.processors[number]

    def dismiss(self, number: int) -> None:
        """Send SIGTERM to the retired child of this number, if it still runs."""
        for child in self._of(number):
            if child.retired and child.running is not None and child.running.returncode is None:
                child.running.send_signal(signal.SIGTERM)

    def _of(self, number: int) -> list[Child]:
        return [child for child in self.children if child.processor == self.processors[number]]

    def _begin(self, processor: str) -> None:
        child, before = Child(processor), self._keeping.get(processor)
        self.children.append(child)
        self._keeping[processor] = self._group.create_task(self._after(before, child), name=processor)

    async def _after(self, before: asyncio.Task[None] | None, child: Child) -> None:
        """Keep a child, once a retired one of the same name has ended."""
        try:
            if before is not None:
                await before
            if self.leaving or child.retired:
                child.code = 0
                return
            await self._keep(child)
        finally:
            if child.retired:
                self.children.remove(child)

    def signal(self, number: int) -> None:
        """Pass a signal to the children. No child is started any more."""
        self.leaving = True
        self.ended_at_once = self.ended_at_once or number == signal.SIGKILL
        self._left.set()
        for child in self.children:
            child.off.set()
            if child.running is not None and child.running.returncode is None:
                child.running.send_signal(number)

    async def _keep(self, child: Child) -> None:
        while child.code is None:
            code = await self._live(child)
            if code == 0 or self.leaving or child.retired:
                child.code = left(code)
                if child.code and not self.ended_at_once:
                    say(f"{child.processor} ended {how(code)} while it was shutting down")
                    await self.report(child.processor, child.process)
                return
            if code == RUN_FAILED:
                say(f"{child.processor} has ended: its run can go no further")
                child.code = 1
                return
            if code in (2, 4):
                say(f"{child.processor} refused to run (exit {code}), and is not restarted")
                child.code = code
                return
            await self._died(child, code)

    async def _live(self, child: Child) -> int:
        child.process, child.began_s = uuid.uuid4().hex, time.monotonic()
        number = self.processors.index(child.processor)
        port = self.web_port + number if self.web_port else 0
        role = Role(child.processor, child.process, self.since_ms, port, child.starts > 0)
        child.starts += 1
        try:
            child.running = await self._process_for(role)
        except OSError as error:
            say(f"{child.processor} could not be started: {error.strerror or error}")
            return 1
        if self.leaving or child.retired:
            child.running.send_signal(signal.SIGTERM)
        return await child.running.wait()

    async def _process_for(self, role: Role) -> asyncio.subprocess.Process:
        """A process for this role: the spare if there is one."""
        spare, self.spare = self.spare, None
        if spare is not None and await spare.takes(role):
            return spare.running
        return await self._process(role.words())

    async def _process(self, words: list[str], stdin: int | None = None) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self.command, *words, env=dict(self.environment), stdin=stdin, preexec_fn=partial(with_parent, os.getpid())
        )

    async def _have_a_spare(self) -> None:
        """Have one, until a signal comes. One that died is replaced after the same pause as one that was needed."""
        while not await happens(self._left, SPARE_AFTER_S):
            try:
                spare = self.spare = Spare(await self._process(["--spare"], asyncio.subprocess.PIPE))
            except OSError as error:
                say(f"no spare could be started: {error.strerror or error}")
                continue
            await spare.over()
            self.spare = None if self.spare is spare else self.spare

    async def _died(self, child: Child, code: int) -> None:
        short = time.monotonic() - child.began_s < SHORT_RUN_S
        child.short_runs = child.short_runs + 1 if short else 0
        if child.short_runs >= SHORT_RUNS:
            say(f"{child.processor} ended {how(code)} {SHORT_RUNS} times in a row; it is not restarted")
            child.code = code if code > 0 else 1
            await self.report(child.processor, child.process)
            return
        self._group.create_task(self.report(child.processor, child.process))
        pause = FIRST_PAUSE_S * 2 ** (child.short_runs - 1) if short else 0.0
        say(f"{child.processor} ended {how(code)}; again {f'in {pause:g} s' if pause else 'at once'}")
        if await happens(child.off, pause):
            child.code = 0


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Whether this happens within so many seconds; waits for it."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def left(code: int) -> int:
    """The exit code of a child that was told to leave, as a shell gives it: 0 if it left in order, or had not begun to run.

    >>> left(0), left(3), left(-signal.SIGTERM), left(-signal.SIGKILL)
    (0, 3, 0, 137)
    """
    if code == -signal.SIGTERM:
        return 0
    return code if code >= 0 else 128 - code


def how(code: int) -> str:
    """How a process ended, for people.

    >>> how(1), how(-signal.SIGKILL)
    ('with 1', 'by SIGKILL')
    """
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"


def say(text: str) -> None:
    """Print a line on the terminal."""
    click.echo(f"supervisor: {text}", err=True)


def run_command(arguments: list[str]) -> list[str]:
    """`headgate run …` of this Python."""
    return [sys.executable, "-m", "headgate.agents.cli", "run", *arguments]


def with_parent(parent: int) -> None:
    """Run in the child: its own process group, so that Ctrl-C reaches it once, through the supervisor; and SIGTERM from the kernel when the
    supervisor dies.
    """
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)


def awaited() -> Role:
    """Run in a spare: load what a worker needs, and wait for a role. Raises `SystemExit` if the supervisor has ended."""
    for module in LOADED:
        importlib.import_module(module, __package__)
    line = sys.stdin.readline()
    if not line:
        raise SystemExit(0)
    return Role(**json.loads(line))


class Reporter:
    """Announces on the heartbeat topic that a child is dead, so that no one waits for a session timeout."""

    def __init__(self, configuration: Configuration, topic: str) -> None:
        self.configuration = configuration
        self.topic = topic

    async def __call__(self, processor: str, process: str) -> None:
        """Send one heartbeat. If that fails, the session timeout detects the death."""
        beat = Heartbeat(processor, process, "", time.monotonic(), gone=True)
        producer: AIOKafkaProducer | None = None
        try:
            options = self.configuration.client.producer(acks=1, request_timeout_ms=int(REPORT_S * 1000))
            producer = await started(partial(AIOKafkaProducer, **options), "heartbeats", deadline_s=REPORT_S)
            async with asyncio.timeout(REPORT_S):
                await producer.send_and_wait(self.topic, value=encode_beat(beat), partition=0)
        except Exception as error:  # noqa: BLE001 - only time is lost
            say(
                f"could not announce that {processor} is dead ({type(error).__name__}); the session timeout will detect it"
            )
        finally:
            if producer is not None:
                await closed(producer.stop)


def supervise(arguments: list[str], workers: int, app: App, configuration: Configuration) -> int:
    """Run workers of an app: as many as its job wants, or else N (0: nothing was said). Returns the exit code."""
    given = str(configuration.value("processor.id")) or host_word(socket.gethostname())
    processors = [processor_id(f"{given}-{number}") for number in range(MOST)]
    follower = NumberFollower(configuration, app.topics, front_of(processors[0]), workers, say)
    reporter = Reporter(configuration, app.topics.heartbeat)
    made = Supervisor(run_command(arguments), processors, reporter, follower=follower)
    made.web_port, made.has_spare = int(configuration.value("web.port")), bool(configuration.value("workers.spare"))
    return asyncio.run(_supervise(made))


async def _supervise(supervisor: Supervisor) -> int:
    loop = asyncio.get_running_loop()
    heard: list[int] = []

    def on(number: int) -> None:
        heard.append(number)
        if heard.count(signal.SIGINT) > 1:
            say("all are killed at once")
            supervisor.signal(signal.SIGKILL)
            return
        supervisor.signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on, number)
    return await supervisor.run()
