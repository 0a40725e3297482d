"""`headgate dev`: one worker of a job, replaced by another when the code changes.

    load → (say what the job is) → topics → drain or stop the one before → go → (a file changes) → load …

Decides:

- A new process loads the code, says what the job is (`Offer`), and waits for a word. The one before works until then, so code that does not
  load stops nothing: its error is shown, and it waits for the next change.
- If what the run is tied to is the same (graph, fixed settings), the worker before is stopped and the new one continues the run. If it
  differs, the run is drained first, and the new code begins the next run with the same tables. So is the run at the end, if Kafka stays:
  what the next session begins with may be other code.
- Inputs and outputs that are missing are created. Streams that other jobs share are theirs.
- A worker that ends by itself is not run again before something changes.

Promises: at most one worker runs. None is left behind, however this process ends (the kernel signals it, as with a supervisor). Where it
cannot go on, it says what to do, and waits for the next change.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ...core.coordination import messages as c
from ...core.coordination import requests as r
from ...core.coordination.messages import RunState
from ...core.errors import HeadgateError, NotFound
from ...core.graph.fingerprint import differences
from ...core.names import JobName, Topics
from ..job.declare.app import App
from ..job.derive.declaration import Declared
from ..job.derive.plans import parts
from ..kafka.settings import ClientSettings
from ..kafka.topics import TopicsAdmin, TopicSpec
from .changes import files_of, until_changed
from .configuration import Configuration
from .launch import of_the_job
from .patterns import find_topics
from .reading import folded, shown
from .requests import Request, ask
from .supervisor import how, with_parent

DRAIN_S = 60.0
"""How long a run that other code replaces may take to drain. If it takes longer, it stays open, and the new code cannot begin."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a process that has loaded the job says of it."""

    job: str
    prefix: str
    fingerprint: Mapping[str, str]
    topics: tuple[str, ...]
    """The inputs and outputs that may be created."""

    @property
    def names(self) -> Topics:
        """The topics of the job."""
        return Topics(JobName.parse(self.job), self.prefix)


def offer_of(app: App, configuration: Configuration) -> Offer:
    """What this job is."""
    asyncio.run(find_topics(app, configuration))
    declared = Declared(app)
    graph = declared.graph
    inputs = {one.stream for one in graph.inputs if not one.producers}
    fingerprint = parts(declared, of_the_job(configuration.given))
    return Offer(str(app.job), declared.topics.prefix, fingerprint, tuple(sorted(inputs | graph.outputs)))


def held(app: App, configuration: Configuration, descriptor: int) -> str:
    """In the worker: say what the job is, and wait for the word to begin. Returns the run id that was given with it.

    Raises `SystemExit` if the other end is closed: this process is not needed.
    """
    offer = offer_of(app, configuration)
    with socket.socket(fileno=descriptor) as end:
        document = {"job": offer.job, "prefix": offer.prefix, "topics": offer.topics, "fingerprint": offer.fingerprint}
        end.sendall(json.dumps(document).encode() + b"\n")
        word = end.makefile("rb").readline()
    if not word:
        raise SystemExit(0)
    return str(json.loads(word)["run_id"])


@dataclass(slots=True)
class HeldWorker:
    """A process of a worker, from its start."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    offer: Offer | None = None
    """What it has said; None while it loads, and for ever if it cannot."""

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    async def hear(self) -> Offer | None:
        """Wait until it has loaded the job; None if it has ended instead."""
        line = await self.reader.readline()
        if not line:
            await self.process.wait()
            return None
        said: dict[str, Any] = json.loads(line)
        self.offer = Offer(said["job"], said["prefix"], said["fingerprint"], tuple(said["topics"]))
        return self.offer

    def go(self, run_id: str) -> None:
        """Let it begin."""
        self.writer.write(json.dumps({"run_id": run_id}).encode() + b"\n")
        self.writer.close()

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it, and wait until it has. The worker itself sees to its `stop.timeout`."""
        self.writer.close()
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
        return await self.process.wait()


async def start(command: list[str]) -> HeldWorker:
    """Start a process that waits for a word."""
    ours, theirs = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--held",
            str(theirs.fileno()),
            pass_fds=(theirs.fileno(),),
            preexec_fn=partial(with_parent, os.getpid()),
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 24)
    return HeldWorker(process, reader, writer)


@dataclass(slots=True)
class Development:
    """Keeps one worker of the code as it is now. `command` is `headgate run …` without `--held`."""

    command: list[str]
    client: ClientSettings
    directory: Path
    partitions: int
    say: Say
    show: Callable[[HeadgateError], None]
    """Shows an error with its remedy."""
    kept: bool = True
    """Whether the topics of the job outlive this session."""
    worker: HeldWorker | None = None
    loading: HeldWorker | None = None
    leaving: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Work until `leave`, then end what runs."""
        try:
            while not self.leaving.is_set():
                seen = files_of(self.directory)
                async with _concurrent(until_changed(self.directory, seen), self.leaving.wait()) as (changes, left):
                    await self._one(changes, left)
            if self.kept:
                await self._close(self.worker)
            elif self._works() and self.worker is not None:
                await self.worker.end()
        finally:
            for one in (self.loading, self.worker):
                if one is not None and one.alive:
                    await asyncio.shield(one.end(signal.SIGKILL))

    def leave(self) -> None:
        """Stop waiting for changes, and end the worker in order."""
        self.leaving.set()

    async def _one(self, changes: asyncio.Task[list[str]], left: asyncio.Task[Any]) -> None:
        """Load the code as it is now and let it work, until it changes."""
        self.loading = loading = await start(self.command)
        await _first(loading.hear(), changes, left)
        offer = None if changes.done() or left.done() else loading.offer
        if offer is None or not await self._replaced(loading, offer):
            await loading.end(signal.SIGKILL)  # it has not begun to work, and what still loads is no more what is there
            goes_on = "; the worker continues with the previous code" if self._works() else ""
            if not changes.done() and not left.done():
                self.say(f"waiting for a change{goes_on}")
        self.loading = None
        if self.worker is not None and self.worker.alive:
            await _first(self.worker.process.wait(), changes, left)
            if not changes.done() and not left.done():
                self.say(f"the worker ended {how(self.worker.process.returncode or 0)}; waiting for a change")
        await _first(changes, left)
        if changes.done():
            self.say(f"{', '.join(changes.result())} changed")

    def _works(self) -> bool:
        return self.worker is not None and self.worker.alive

    async def _replaced(self, new: HeldWorker, offer: Offer) -> bool:
        """Let the new process begin, when all that it needs is there and the one before has ended. Otherwise say why; then False."""
        try:
            await self._make_topics(offer)
            old = self.worker
            if old is not None and old.offer is not None:
                if (old.offer.job, dict(old.offer.fingerprint)) == (offer.job, dict(offer.fingerprint)):
                    await old.end()
                else:
                    await self._close(old)
            run_id = await self._run_id(offer)
        except HeadgateError as error:
            self.show(error)
            return False
        self.worker = new
        new.go(run_id)
        return True

    async def _make_topics(self, offer: Offer) -> None:
        admin = TopicsAdmin(self.client)
        await admin.start()
        try:
            found = await admin.find(offer.topics)
            missing = [name for name in offer.topics if name not in found]
            await admin.ensure(TopicSpec(name, self.partitions, any_width=True) for name in missing)
        finally:
            await admin.stop()
        if missing:
            self.say(f"topics created: {', '.join(missing)}")

    async def _close(self, one: HeldWorker | None) -> None:
        """Drain the run of a worker, so that other code can begin the next one, and end the worker."""
        if one is None or one.offer is None:
            return
        if one.alive:
            drain = Request(r.DRAIN, arguments={"mode": r.DEFAULT_MODE})
            asked = ask(self.client, one.offer.names, drain, wait=True, timeout_s=DRAIN_S)
            try:
                await _first(asked, one.process.wait())
            except NotFound:
                pass  # it had not begun to run, or its run is over
            except HeadgateError as error:
                self.show(error)
        await one.end()

    async def _run_id(self, offer: Offer) -> str:
        """The run id that the new worker is given: none for a run that goes on, another one if the run before is closed."""
        try:
            state = await folded(self.client, offer.names)
        except NotFound:
            return ""
        run = state.run
        if run is None:
            return ""
        if run.state == RunState.STOPPED:
            return run.run_id
        if run.state in c.CLOSED:
            return f"dev-{secrets.token_hex(3)}"
        if lines := differences(run.fingerprint, offer.fingerprint):
            job = shown(offer.names.job)
            raise HeadgateError(
                f"run {run.run_id} of '{job}' is not closed, and this code differs from what it runs: {'; '.join(lines)}",
                remedy=f"change it back; or give up what it has not finished, and its tables: `headgate reset {job}`, then save a file",
            )
        return ""


@contextlib.asynccontextmanager
async def _concurrent(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Do this while the block runs, and no longer."""
    tasks = [asyncio.get_running_loop().create_task(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(*work: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> None:
    """Wait until one of these is done. Coroutines end with it, and their errors are raised; tasks belong to the caller."""
    given = [one for one in work if isinstance(one, asyncio.Task)]
    async with _concurrent(*(one for one in work if not isinstance(one, asyncio.Task))) as own:
        await asyncio.wait([*own, *given], return_when=asyncio.FIRST_COMPLETED)
        for task in own:
            if task.done():
                task.result()
