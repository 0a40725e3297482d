"""The embedded schema registry: a real Apicurio Registry beside the embedded broker, which speaks Confluent's REST API.

What it decides: which release, and where its schemas lie: in the broker's data directory (`registry`), so they survive a stop and a kill.
Promises: it listens on loopback only, and keeps its port as long as it is free; `start` returns when it answers, and otherwise raises with
the end of its log and leaves no process. The release (109 MB) is fetched as Kafka's jars are, once, and only if somebody asks for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import EnvironmentFault
from .ivy import Jar, fetch
from .jars import ivy_jar, whole
from .java import Java, find_java
from .places import cache_dir
from .ports import free_ports, is_free
from .process import STEP_S, Daemon
from .registry import running_brokers
from .settings import HOST

RELEASE = Jar(
    "io.apicurio",
    "apicurio-registry-app",
    "3.0.9",
    108900085,
    "8fc13160eaaafeec930a9a93b7e82da1ee8caef3eae29c9ce4b403d80a1523ea",
    ext="zip",
    classifier="all",
)
READY_TIMEOUT_S = 180.0
FOREIGN = {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"}
"""Options for the user's own Java programs must not reach it."""


@dataclass(frozen=True, slots=True)
class SchemaServer:
    """The registry in a broker's data directory."""

    home: Path

    @classmethod
    def of(cls, data: Path) -> SchemaServer:
        """That of the broker with this data directory, started or not."""
        return cls(data / "registry")

    @property
    def daemon(self) -> Daemon:
        """Its process."""
        return Daemon(self.home / "pid", f"-Dheadgate.node={self.home} ")

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.daemon.pid() is not None

    @property
    def log(self) -> Path:
        """Its log."""
        return self.home / "registry.log"

    @property
    def url(self) -> str:
        """The setting `registry.url` for it; empty if it was never started."""
        port = self._port()
        return f"http://{HOST}:{port}/apis/ccompat/v7" if port else ""

    def _port(self) -> int:
        try:
            return int(json.loads((self.home / "registry.json").read_text())["port"])
        except (OSError, ValueError, KeyError):
            return 0

    def start(self, say: Callable[[str], None] = lambda _: None, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self.is_running:
            return
        java = find_java()
        program = unpacked(java, say)
        self.home.mkdir(parents=True, exist_ok=True)
        if not (port := self._port()) or not is_free(port):
            (port,) = free_ports(1)
            (self.home / "registry.json").write_text(json.dumps({"port": port}) + "\n")
        try:
            self.daemon.spawn(self._command(java, program, port), environment=_environment(), output=self.log)
            self._wait_ready(timeout_s)
        except BaseException:
            self.daemon.end()
            raise

    def stop(self) -> None:
        """Stop it, and wait until it is down."""
        if self.home.exists():
            self.daemon.end()

    def _command(self, java: Java, program: Path, port: int) -> list[str]:
        options = {
            "headgate.node": self.home,
            "quarkus.http.host": HOST,
            "quarkus.http.port": port,
            "quarkus.log.console.level": "INFO",
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            # what it has answered is on the disk, also after kill -9
            "apicurio.datasource.url": f"jdbc:h2:file:{self.home}/schemas;WRITE_DELAY=0",
        }
        command = [java.path, "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
        return [*command, *(f"-D{name}={value}" for name, value in options.items()), "-jar", str(program)]

    def _wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._answers():
            if not self.is_running:
                raise self._not_ready("exited during its start")
            if time.monotonic() > deadline:
                raise self._not_ready(f"did not become ready within {timeout_s:g} s")
            time.sleep(10 * STEP_S)

    def _answers(self) -> bool:
        from urllib.request import urlopen

        try:
            with urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _not_ready(self, what: str) -> EnvironmentFault:
        lines = self.log.read_text(errors="replace").splitlines()[-20:] if self.log.exists() else []
        text = "\n".join(f"  {line[:300]}" for line in lines)
        return EnvironmentFault(f"the schema registry {what}. From the end of its log {self.log}:\n{text}\n")


def registry_url_of(bootstrap: str) -> str:
    """The setting `registry.url` for the registry that `headgate kafka up` runs beside this broker; empty if there is none."""
    for broker in running_brokers():
        server = SchemaServer.of(broker.data)
        if bootstrap.replace("localhost", HOST) == broker.bootstrap and server.is_running:
            return server.url
    return ""


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


def unpacked(java: Java, say: Callable[[str], None] = lambda _: None) -> Path:
    """The program of the release in the cache; fetched and unpacked if it is missing. It is there completely or not at all."""
    home = cache_dir() / "registry"
    app = home / RELEASE.rev
    program = app / f"{RELEASE.name}-{RELEASE.rev}-runner.jar"
    if program.exists():
        return program
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                say(f"Fetching Apicurio Registry {RELEASE.rev} ({RELEASE.size / 1e6:.0f} MB) into {app}")
                _fetch(home, app, java)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot use the cache {home}: {error.strerror}",
            remedy="free some space, or set HEADGATE_CACHE to a directory that you own",
        ) from error
    return program


def _fetch(home: Path, app: Path, java: Java) -> None:
    import zipfile

    draft = Path(tempfile.mkdtemp(prefix=".fetch-", dir=home))
    try:
        fetch([RELEASE], draft, java=java, ivy_jar=ivy_jar())
        archive = draft / RELEASE.file
        if not whole(archive, RELEASE):
            raise EnvironmentFault(
                f"{RELEASE.file} as downloaded does not have the expected SHA-256 sum ({RELEASE.sha256})",
                remedy="the repository or mirror serves something else under this name: check its configuration",
            )
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(draft / "app")
        (draft / "app").replace(app)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
