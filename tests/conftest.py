"""What every test may use: one real Kafka for the whole run, topics of its own, and a run that leaves nothing behind.

- `kafka`: the broker of the run (`kafka.bootstrap`), started when the first test asks, shared by all pytest-xdist workers,
  on a free port, in a temporary directory. It goes when the run goes, even by SIGKILL: a guard waits on a file lock that
  this process holds.
- `topic`: a factory of topics that only this test uses: `topic("orders", partitions=4, config={...}) -> name`.
- `secure_kafka`: another one for the whole run, with TLS, SCRAM and ACLs.
- `private_kafka`: a broker for one test module alone, for tests that stop, kill or pause it.
- `guarded`: a directory in which a test may start brokers of any other kind.
- At the end no child process of ours may be left; one that is fails the run.

Hypothesis draws the same examples each time (profile `fixed`), so a test that turns red does so by the change under test. Chance has a
run of its own: `make fuzz` (profile `random`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import structlog
from hypothesis import settings

from headgate.agents.broker.broker import Broker
from headgate.agents.broker.guard import Lease
from headgate.agents.broker.schema_server import SchemaServer
from headgate.agents.logger import processors

from . import forked, lanes

T = TypeVar("T")
ROOT = "HEADGATE_TEST_ROOT"
OTHER = "HEADGATE_TEST_BOOTSTRAP"
"""The address of a broker that somebody else has started: of another version (`tests.versions`)."""
PATIENCE = "HEADGATE_TEST_PATIENCE"
"""For how many seconds the run waits for its children to end."""
READY_S = 240.0
"""A broker begins in seconds on an idle machine, and was seen to take more than a minute on a busy one."""
_lease: list[Lease] = []

settings.register_profile("fixed", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("random", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("fixed")  # before any test declares its settings; `--hypothesis-profile` comes later, and wins


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """See `lanes`."""
    return lanes.Lanes(config, log) if config.option.dist == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See `lanes`."""
    lanes.long_first(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays: thousands of tests need not be looked through each time that garbage is collected."""
    gc.collect()
    gc.freeze()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


LOGS = {
    **structlog.get_config(),
    "processors": processors(sys.stderr),
    "logger_factory": lambda *_: structlog.PrintLogger(sys.stderr),
}
"""stdout is what a command says."""


@pytest.fixture(autouse=True)
def _logs_as_for_the_first_test() -> None:
    """Logging is global: whatever the test before has made of it, this one logs to stderr."""
    structlog.configure(**LOGS)


def pytest_configure(config: pytest.Config) -> None:
    """The one process that leads the run leases a directory; xdist workers inherit its name."""
    structlog.configure(**LOGS)
    # JVMs of Spark that live for one file compute next to nothing: without their second compiler they take a third less CPU time
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    # the broker is nobody else's, but not one of `headgate kafka up`, where jobs create their outputs without being told to
    os.environ["HEADGATE_TOPIC_CREATE_OUTPUTS"] = "true"
    if _is_worker(config) or _lease:
        return
    root = Path(tempfile.mkdtemp(prefix="headgate-test-"))
    os.environ[ROOT] = str(root)
    _lease.append(Lease(root))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let go, and wait until the guard (if one was needed) has cleaned up."""
    if _is_worker(config) or not _lease:
        return
    root = Path(os.environ[ROOT])
    guard = root / "guard"
    pid = int(guard.read_text()) if guard.exists() else None
    _lease.pop().release()
    if pid is None:
        shutil.rmtree(root, ignore_errors=True)
        return
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(pid).wait(120)


@contextlib.contextmanager
def _guarded() -> Iterator[Path]:
    """The directory of the run, locked among its processes, with its guard running."""
    root = Path(os.environ[ROOT])
    with (root / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "guard").exists():
            (root / "guard").write_text(str(Lease.guard(root).pid))
        yield root


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A broker that is not ours: an address, and nothing that could be done to it."""

    bootstrap: str


@pytest.fixture(scope="session")
def kafka() -> Broker | Elsewhere:
    """The broker of this run."""
    if other := os.environ.get(OTHER):
        return Elsewhere(other)
    return _of_the_run("kafka", secure=False)


@pytest.fixture(scope="session")
def secure_kafka() -> Broker:
    """The broker of this run with TLS, SCRAM users and ACLs: `client_settings(user)`, `allow(...)`, `disallow(...)`.

    A test gives and takes rights on names of its own only.
    """
    return _of_the_run("secure", secure=True)


def _of_the_run(name: str, *, secure: bool) -> Broker:
    """One for all pytest workers."""
    with _guarded() as root:
        running = Broker.at(root / name)
        if running is not None and running.is_running():
            return running
        return Broker.start(root / name, secure=secure, timeout_s=READY_S)


@pytest.fixture(scope="session")
def registry() -> SchemaServer:
    """The schema registry of this run."""
    with _guarded() as root:
        server = SchemaServer(root / "registry")
        server.start(timeout_s=READY_S)
        return server


@pytest.fixture
def private_registry(guarded: Path) -> Iterator[SchemaServer]:
    """A schema registry that one test may kill."""
    server = SchemaServer(guarded / f"registry-{uuid.uuid4().hex[:8]}")
    server.start(timeout_s=READY_S)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def guarded() -> Path:
    """A directory for brokers of one's own: whatever happens, they go with the run."""
    with _guarded() as root:
        own = root / uuid.uuid4().hex[:8]
        own.mkdir()
        return own


@pytest.fixture(scope="module")
def private_kafka(guarded: Path) -> Iterator[Broker]:
    """A broker that one module may kill."""
    with Broker.start(guarded / f"private-{uuid.uuid4().hex[:8]}", timeout_s=READY_S) as broker:
        yield broker


class Loop:
    """An event loop in a thread of its own, so that fixtures work in sync and async tests alike."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fixtures", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(240)

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture(scope="session")
def _admin(kafka: Broker) -> Iterator[tuple[Loop, Any]]:
    from aiokafka.admin import AIOKafkaAdminClient

    loop = Loop()

    async def started() -> Any:
        # It does nothing by itself: every five minutes it would read the metadata of all topics, half a megabyte beside tests that count
        # each byte which this process keeps, or that let its allocations fail.
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap, metadata_max_age_ms=24 * 3_600_000)
        await admin.start()
        return admin

    admin = loop.run(started())
    yield loop, admin
    loop.run(admin.close())
    loop.close()


async def _known(admin: Any, topic: str, partitions: int) -> None:
    """The controller has made it; wait until the broker, which clients ask, knows it and leads all of it."""
    while True:
        [told] = await admin.describe_topics([topic])
        if sum(one["leader"] >= 0 for one in told["partitions"]) == partitions:
            return
        await asyncio.sleep(0.01)


@pytest.fixture
def topic(_admin: tuple[Loop, Any]) -> Iterator[Callable[..., str]]:
    """Makes topics that only this test uses, and deletes them afterwards."""
    from aiokafka.admin import NewTopic

    loop, admin = _admin
    made: list[str] = []

    def make(name: str = "topic", partitions: int = 1, config: dict[str, str] | None = None) -> str:
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        answer = loop.run(admin.create_topics([NewTopic(unique, partitions, 1, topic_configs=config or {})]))
        errors = [error for error in answer.topic_errors if error[1]]
        assert errors == []
        made.append(unique)
        loop.run(_known(admin, unique, partitions))
        return unique

    yield make
    if made:
        loop.run(admin.delete_topics(made))


@pytest.fixture(scope="session", autouse=True)
def _no_process_left() -> Iterator[None]:
    """Fails the run when it leaves child processes behind."""
    yield
    own = [child for child in psutil.Process().children(recursive=True) if not _is_ours_to_keep(child)]
    _, left = psutil.wait_procs(own, timeout=float(os.environ.get(PATIENCE, "240")))
    if left:
        told = [f"{child.pid}: {_command(child)[:200]}" for child in left]
        pytest.fail("child processes were left behind:\n" + "\n".join(told), pytrace=False)
    forked.close()


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _is_ours_to_keep(process: psutil.Process) -> bool:
    """The broker and its guard go with the run. Spark's JVM, Python's resource tracker, and what creates the archive of Spark's classes
    (with the least priority, so that it takes minutes on a busy machine) end when our pipe to them closes."""
    if forked.is_server(process.pid):
        return True
    kept = (os.environ[ROOT], "resource_tracker", "pyspark", "spark_bridge.session.training", "execnet")
    command = _command(process)
    return not command or any(part in command for part in kept)
