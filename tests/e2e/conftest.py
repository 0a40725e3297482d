"""A job on the real broker: workers in this process or in processes of their own, and waiting for causes instead of sleeping.

    async def test_x(job, topic):
        app = hg.App(job.name)
        ...
        worker = await job.start(app)
        await job.write("in", [{"n": 1}])
        assert await job.values(out, 1) == [{"n": 1}]

`job` stops everything that it started. A reader here is a plain read-committed consumer, none of our code.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from headgate.agents.job.derive.declaration import Declared
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.process.requests import Request, ask
from headgate.agents.runtime.task import turns
from headgate.agents.worker.options import WorkerOptions
from headgate.agents.worker.worker import Worker
from headgate.core.names import JobName, Topics
from headgate.core.turns import LetterCosts

from .. import forked
from ..spark_in_process import hand_on, shared_sessions

QUICK = {
    "placement.debounce": "20ms",
    "placement.rejoin-grace": "0s",
    "commit.interval": "50ms",
    "heartbeat.interval": "200ms",
    "session.timeout": "3s",
    "topic.create-outputs": True,
}
OPEN_S = 2.0
"""So long nothing comes to a reader that has found what it looks for, until it takes the rest for an open transaction, which may stay
open as long as it likes."""
MORE_S = 0.15
"""So long records are waited for that should not come: three commits of `QUICK`."""
WAIT_S = 200.0
"""Far more than anything here needs; a test that waits for what never comes is the only one that it costs."""


class Running:
    """A worker in this process."""

    def __init__(self, worker: Worker, task: asyncio.Task[int]) -> None:
        self.worker = worker
        self.task = task

    def state(self, task: str) -> str:
        actor = self.worker.actors.get(task)
        return actor.machine.phase if actor is not None else "absent"

    def states(self) -> dict[str, str]:
        return {name: actor.machine.phase for name, actor in sorted(self.worker.actors.items())}

    async def until(self, true: Callable[[], Any], what: str = "", *, within_s: float = WAIT_S) -> None:
        """Wait until something is true; a worker that ends meanwhile raises what it ended with."""
        give_up = time.monotonic() + within_s
        while not true():
            if self.task.done() and not true():
                self.task.result()
                raise AssertionError(
                    f"the worker ended: {self.worker.participant.exit_code} {self.worker.participant.exit_why}"
                )
            if time.monotonic() > give_up:
                raise AssertionError(f"{what or true} did not come true: {self.states()} {self.worker.participant.why}")
            await asyncio.sleep(0.01)

    async def until_running(self, tasks: int, *, within_s: float = WAIT_S) -> None:
        def all_run() -> bool:
            return len(self.worker.actors) == tasks and set(self.states().values()) == {"running"}

        await self.until(all_run, f"{tasks} running tasks", within_s=within_s)

    async def stop(self) -> int:
        """As SIGTERM does."""
        self.worker.leave("test")
        return await self.ended()

    async def ended(self, within_s: float = WAIT_S) -> int:
        try:
            return await asyncio.wait_for(asyncio.shield(self.task), within_s)
        except TimeoutError:
            raise AssertionError(
                f"the worker did not end: {self.states()} {self.worker.participant.why}\n{self.story()}"
            ) from None

    def story(self) -> str:
        """What the machines of the tasks saw and decided last."""
        told = {name: actor.machine for name, actor in self.worker.actors.items()}
        if self.worker.committing is not None:
            told["committer"] = self.worker.committing.machine
        return "\n".join(f"{name}:\n{machine.story()[-6000:]}" for name, machine in told.items())

    async def crash(self) -> None:
        """As nearly like kill -9 as one process can: nothing is committed, said or released; sockets fall."""
        worker = self.worker
        worker.coordination.stop()
        # a dying task reports nothing, and commits nothing
        worker.participant.report = lambda report: None  # type: ignore[method-assign]
        worker.runtime.producers.want_commit = lambda task, urgent: None  # type: ignore[method-assign]
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self.task


class Process:
    """A worker in a process of its own: `headgate run`."""

    def __init__(self, process: forked.AsyncForked, log: Path) -> None:
        self.process = process
        self.log = log

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    async def ended(self, within_s: float = WAIT_S) -> int:
        try:
            return await asyncio.wait_for(self.process.wait(), within_s)
        except TimeoutError:
            raise AssertionError(f"the worker did not end:\n{self.text()[-4000:]}") from None


class Jobs:
    """Workers of one job, its topics and its outputs."""

    def __init__(self, bootstrap: str, directory: Path, client: ClientSettings | None = None) -> None:
        self.bootstrap = bootstrap
        self.client = client or ClientSettings(bootstrap)
        self.directory = directory
        self.name = f"e2e-{uuid.uuid4().hex[:8]}"
        self.topics = Topics(JobName(self.name))
        self.workers: list[Running] = []
        self.processes: list[Process] = []
        self.uuid = uuid.uuid4().hex
        self._producer: AIOKafkaProducer | None = None

    # ------------------------------------------------------------------------------------------------------------ workers

    async def start(
        self, app: Any, processor: str = "w1", *, settings: Mapping[str, Any] | None = None, **more: Any
    ) -> Running:
        """A worker in this process."""
        options: dict[str, Any] = {
            "declared": Declared(app),
            "client": self.client,
            "processor": processor,
            "location": "here",
            "process": uuid.uuid4().hex,
            "token": secrets.token_hex(3),
            "state_dir": self.directory / "state",
            "settings": {**QUICK, **app.settings, **(settings or {})},
            "lock_free": True,
            "job_uuid": self.uuid,
            "state_memory": 32 << 20,
            **more,
        }
        worker = Worker(WorkerOptions(**options))
        running = Running(worker, asyncio.get_running_loop().create_task(worker.run(), name=f"worker {processor}"))
        self.workers.append(running)
        return running

    async def process(self, source: str, processor: str = "w1", *words: str, **environment: str) -> Process:
        """`headgate run` of this source in a process of its own. In it, JOB stands for the job's name."""
        module, text = self.directory / "the_job.py", source.replace("JOB", self.name)
        if not module.exists() or module.read_text() != text:
            (draft := module.with_suffix(".draft")).write_text(text)
            draft.replace(module)  # whoever imports it at this moment, has the one or the other
        log = self.directory / f"{processor}-{len(self.processes)}.log"
        command = ["run", "the_job:app", "-b", self.bootstrap]
        command += ["--app-dir", str(self.directory), "--processor-id", processor]
        command += ["--state-dir", str(self.directory / "state"), "--log-format", "json"]
        for name, value in QUICK.items():
            command += ["--set", f"{name}={value}"]
        with log.open("wb") as out:
            process = await forked.start([*command, *words], stdout=out, env={**os.environ, **environment})
        started = Process(process, log)
        self.processes.append(started)
        return started

    async def ask(self, verb: str, *, wait: bool = True, timeout_s: float = WAIT_S, **arguments: Any) -> Any:
        """What `headgate VERB JOB` does."""
        return await ask(self.client, self.topics, Request(verb, arguments=arguments), wait=wait, timeout_s=timeout_s)

    # ------------------------------------------------------------------------------------------------------------- records

    async def write(self, topic: str, values: list[Any], *, partition: int | None = None, **more: Any) -> None:
        """JSON records (bytes go as they are), in order, spread over the partitions by their number unless one is named."""
        if self._producer is None:
            self._producer = AIOKafkaProducer(**self.client.producer())
            await self._producer.start()
        known = await self._producer.partitions_for(topic)
        give_up = time.monotonic() + WAIT_S
        while partition is not None and partition not in known and time.monotonic() < give_up:
            # a broker may answer before it has heard of a new partition
            await self._producer.client.force_metadata_update()
            known = await self._producer.partitions_for(topic)
        partitions = len(known)
        futures = []
        for number, value in enumerate(values):
            body = value if isinstance(value, bytes) or value is None else orjson.dumps(value)
            at = number % partitions if partition is None else partition
            futures.append(await self._producer.send(topic, body, partition=at, **more))
        await self._producer.flush()
        await asyncio.gather(*futures)

    async def renew_producer(self) -> None:
        """Topics have more partitions now; the next producer knows them."""
        if self._producer is not None:
            await self._producer.stop()
            self._producer = None

    async def records(self, topic: str, count: int, *, within_s: float = WAIT_S, more_s: float = MORE_S) -> list[Any]:
        """At least `count` committed records, all that is written by then, and what comes in the moment behind it.

        `more_s=0`: as soon as there are as many.
        """
        consumer = AIOKafkaConsumer(**self.client.consumer(isolation_level="read_committed", enable_auto_commit=False))
        await consumer.start()
        try:
            partitions: set[int] | None = None
            give_up = time.monotonic() + within_s
            while not partitions:
                partitions = await _partitions(consumer, topic)
                if time.monotonic() > give_up:
                    raise AssertionError(f"the topic {topic} does not exist")
            consumer.assign([TopicPartition(topic, n) for n in sorted(partitions)])
            await consumer.seek_to_beginning()
            found: list[Any] = []
            end: dict[TopicPartition, int] | None = None
            quiet_at = None
            while quiet_at is None or time.monotonic() < quiet_at:
                got = await consumer.getmany(timeout_ms=50)
                for batch in got.values():
                    found += batch
                if len(found) >= count and more_s and end is None:
                    end = await self._written(consumer)
                    rest_at = time.monotonic() + OPEN_S
                elif got:
                    rest_at = time.monotonic() + OPEN_S
                if len(found) >= count and (quiet_at is None or got):
                    behind = [tp for tp, upto in (end or {}).items() if await consumer.position(tp) < upto]
                    if not behind or time.monotonic() > rest_at:
                        quiet_at = time.monotonic() + more_s
                if time.monotonic() > give_up:
                    for one in self.workers:
                        if one.task.done():
                            one.task.result()
                    states = [one.states() for one in self.workers]
                    raise AssertionError(f"{len(found)} of {count} records in {topic}: {found[-3:]} {states}")
            return found
        finally:
            await consumer.stop()

    async def _written(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        """How far it is written: a commit is answered a moment before its markers stand, and only behind them can be read what it holds."""
        asked = AIOKafkaConsumer(**self.client.consumer(isolation_level="read_uncommitted", enable_auto_commit=False))
        await asked.start()
        try:
            return await asked.end_offsets(consumer.assignment())
        finally:
            await asked.stop()

    async def values(self, topic: str, count: int, **more: Any) -> list[Any]:
        """Their values, as JSON."""
        return [None if r.value is None else orjson.loads(r.value) for r in await self.records(topic, count, **more)]

    @contextlib.asynccontextmanager
    async def admin(self) -> Any:
        admin = AIOKafkaAdminClient(**self.client.admin())
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.stop()
        for one in self.workers:
            if not one.task.done():
                one.worker.coordination.stop()
                one.task.cancel()
        await asyncio.wait_for(asyncio.gather(*(w.task for w in self.workers), return_exceptions=True), 240)
        for one in self.processes:
            if one.process.returncode is None:
                one.kill()
                await one.process.wait()


async def _partitions(consumer: Any, topic: str) -> set[int] | None:
    """Of this topic alone: a client that knows of none asks for all of the broker, which are thousands in the course of a run."""
    client = consumer._client
    await (client.force_metadata_update() if topic in client._topics else client.add_topic(topic))
    found = client.cluster.partitions_for_topic(topic)
    if found is None:
        await asyncio.sleep(0.05)
    return found


HERE = Path(__file__).parent


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Called before the fixtures of a test end."""
    hand_on(HERE, nextitem)


@pytest.fixture(scope="module")
def warm() -> Iterator[Any]:
    """One session for all workers that live in this process, handed on from file to file."""
    yield from shared_sessions(HERE)


@pytest_asyncio.fixture
async def job(kafka: Any, tmp_path: Path) -> Any:
    """One job on the broker of the run."""
    jobs = Jobs(kafka.bootstrap, tmp_path)
    yield jobs
    await jobs.close()


@pytest_asyncio.fixture
async def make(kafka: Any, tmp_path: Path) -> Any:
    """More jobs on the broker of the run."""
    made: list[Jobs] = []

    def make() -> Jobs:
        directory = tmp_path / f"job-{len(made)}"
        directory.mkdir()
        made.append(Jobs(kafka.bootstrap, directory))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture(autouse=True)
def _long_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this process begin with long letters, as behind many whose rows cost nothing: what is written at once is one letter.

    Otherwise the first letter of a stream would be one row, and a test could not say with which rows a failing one shares its letter.
    """
    costs = LetterCosts()
    for _ in range(4):
        costs = costs.after(1_000_000, 1)
    monkeypatch.setattr(turns, "_UNKNOWN", costs)


@pytest.fixture
def swept() -> Iterator[None]:
    """What a thrown-away producer never told anybody is logged now, and not while pytest parses something: that would end the run."""
    yield
    gc.collect()


@pytest.fixture
def job_on(tmp_path: Path) -> Any:
    """A job on another broker: `async with job_on(private_kafka) as job`."""

    @contextlib.asynccontextmanager
    async def on(broker: Any, client: ClientSettings | None = None) -> Any:
        jobs = Jobs(broker.bootstrap if client is None else client.bootstrap, tmp_path, client)
        try:
            yield jobs
        finally:
            await jobs.close()

    return on


def stacks() -> str:
    """Where every task of this loop waits; for a failing test's message."""
    import io

    out = io.StringIO()
    for task in asyncio.all_tasks():
        out.write(f"--- {task.get_name()}\n")
        for frame in task.get_stack(limit=3):
            out.write(f"    {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}\n")
    return out.getvalue()


@pytest.fixture(autouse=True)
def _short_tracebacks() -> None:
    """Failing tests show the worker's log; locals of every frame would bury it."""
    import structlog

    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback, colors=False)
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.TimeStamper("%H:%M:%S.%f"), plain]
    )
