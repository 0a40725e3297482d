"""The embedded broker: a real Apache Kafka on this machine, without Docker and without root.

Decides how one is started, found ready, and ended. Promises: `start` returns when every node serves, or raises with the end
of the log and leaves nothing running and nothing half made; what was acknowledged survives `kill`; ports stay the same over
the life of a data directory as long as they are free; nothing is signalled that we did not start.

>>> with Broker.start(data) as broker:          # doctest: +SKIP
...     print(broker.bootstrap)
127.0.0.1:41873
"""

from __future__ import annotations

import os
import signal
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from ...core.errors import EnvironmentFault
from . import acls, quickstart, secrets, storage
from .guard import Lease
from .jars import bill, classpath
from .java import Java, find_java
from .ports import choose_ports
from .process import STEP_S, Daemon
from .settings import HOST, log4j2_properties, server_properties
from .storage import BrokerIdentity
from .wire import ask_cluster

READY_TIMEOUT_S = 60.0
TRIES = 3
"""Free ports can be taken by somebody else between our choice and Kafka's start."""

SayLine = Callable[[str], None]


def _silent(_: str) -> None:
    """Say nothing."""


class PortLost(EnvironmentFault):
    """A port that was free when it was chosen was taken when Kafka wanted it."""


@dataclass(slots=True)
class Broker:
    """A cluster of one or three nodes in one data directory."""

    data: Path
    identity: BrokerIdentity
    say: SayLine = _silent
    java_options: tuple[str, ...] = ()

    @classmethod
    def start(
        cls,
        data: Path | str,
        *,
        nodes: int | None = None,
        secure: bool | None = None,
        port: int | None = None,
        say: SayLine = _silent,
        timeout_s: float = READY_TIMEOUT_S,
    ) -> Broker:
        """Start a broker in `data` (made if it does not exist) and wait until it serves.

        `nodes` and `secure` are fixed by the first start of a directory; `port` is that of the first node.
        """
        data = Path(data).expanduser().absolute()
        existing = storage.read_identity(data)
        storage.check_shape(data, existing, nodes, secure)
        broker = cls(data, existing or BrokerIdentity.new(nodes or 1, bool(secure)), say)
        if running := broker.pids():
            raise EnvironmentFault(
                f"a broker is already running in {data} (pid {', '.join(map(str, running))}), at {broker.bootstrap}",
                remedy="use it, stop it with `headgate kafka down`, or choose another directory with --data",
            )
        storage.check_room(data)
        java, jars = broker._java()
        there_before = data.exists()
        with storage.held(data):
            try:
                storage.check_nodes(data, broker.identity)
                broker._launch(java, jars, port, timeout_s)
            except BaseException as error:
                broker._end_all()
                if existing is None:
                    storage.remove_new(data, keep_root=there_before)
                if isinstance(error, OSError):
                    raise storage.disk_fault(data, error) from error
                raise
        return broker

    @classmethod
    def at(cls, data: Path | str, say: SayLine = _silent) -> Broker | None:
        """The broker of a data directory, running or not; None if there is none."""
        data = Path(data).expanduser().absolute()
        identity = storage.read_identity(data)
        return None if identity is None else cls(data, identity, say)

    # What it is ------------------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """What clients connect to: `127.0.0.1:41873`, or three of them."""
        return ",".join(f"{HOST}:{ports.client}" for ports in self.identity.ports)

    @property
    def secrets(self) -> Path | None:
        """Where certificates and client settings of a secure broker lie."""
        return self.data / "secrets" if self.identity.secure else None

    def client_settings(self, user: str = "app") -> dict[str, str]:
        """What a client is to be given, under the names that Java's clients know; `user` is one of `secrets.USERS`."""
        if self.secrets is None:
            return {"bootstrap.servers": self.bootstrap}
        return secrets.client_settings(self.secrets, user, self.bootstrap)

    def pids(self) -> list[int]:
        """The living processes."""
        return [pid for node in self._nodes() if (pid := self.daemon(node).pid()) is not None]

    def is_running(self) -> bool:
        """Whether every node lives."""
        return len(self.pids()) == self.identity.nodes

    def log_file(self, node: int = 1) -> Path:
        """The log of a node."""
        return storage.log_file(self.data, node, self.identity.nodes)

    def daemon(self, node: int) -> Daemon:
        """The process of one node."""
        home = storage.node_dir(self.data, node)
        return Daemon(home / "pid", f"-Dheadgate.node={home} ")

    def _nodes(self) -> range:
        return range(1, self.identity.nodes + 1)

    # What can be done to it ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it in good order and wait until it is down."""
        with storage.held(self.data):
            self._end_all()

    def end_within_hold(self) -> None:
        """As `stop`, for a caller that holds the directory (`storage.held`) because it goes on to change it."""
        self._end_all()

    def kill(self, node: int | None = None) -> None:
        """`kill -9`, of one node or of all, and wait until the process is gone."""
        self._send(signal.SIGKILL, node)
        for number in self._chosen(node):
            self.daemon(number).wait_gone(10.0)

    def pause(self, node: int | None = None) -> None:
        """SIGSTOP: it keeps its connections and answers nobody."""
        self._send(signal.SIGSTOP, node)

    def resume(self, node: int | None = None) -> None:
        """SIGCONT after `pause`."""
        self._send(signal.SIGCONT, node)

    def restart(self, node: int | None = None, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start again what does not live (after `kill`), or stop and start what does; the ports stay."""
        java, jars = self._java()
        chosen = self._chosen(node)
        with storage.held(self.data):
            self._end(chosen)
            for number in chosen:
                self._spawn(number, java, jars)
            self._wait_ready(chosen, timeout_s)

    def allow(self, *permissions: acls.Acl) -> None:
        """Add permissions (or prohibitions) to a secure broker."""
        acls.create_acls(*self._owner(), list(permissions))

    def disallow(self, *permissions: acls.Acl) -> None:
        """Take permissions away from a secure broker."""
        acls.delete_acls(*self._owner(), list(permissions))

    def _owner(self) -> tuple[str, int, ssl.SSLContext]:
        tls = self._tls()
        if tls is None:
            raise EnvironmentFault(f"the broker in {self.data} has no permissions", remedy="start one with --secure")
        return HOST, self.identity.ports[0].admin, tls

    def _chosen(self, node: int | None) -> list[int]:
        return list(self._nodes()) if node is None else [node]

    def _send(self, number: int, node: int | None) -> None:
        for chosen in self._chosen(node):
            self.daemon(chosen).send(number)

    def _end_all(self) -> None:
        self._end(self._nodes())

    def _end(self, nodes: Iterable[int]) -> None:
        """Ask all of them first, then wait for each: a quorum that loses members one by one waits for itself."""
        for node in nodes:
            self.daemon(node).ask_to_end()
        for node in nodes:
            self.daemon(node).end()

    def _java(self) -> tuple[Java, str]:
        """The Java and the class path to start with; fetches and prepares what is not there yet."""
        java = find_java()
        jars = classpath(java, self.say)
        self.java_options = tuple(quickstart.options(java, jars, self.say, lambda options: _train(java, jars, options)))
        return java, jars

    # Starting --------------------------------------------------------------------------------------------------------------

    def _launch(self, java: Java, jars: str, port: int | None, timeout_s: float) -> None:
        for left in reversed(range(TRIES)):
            self.identity = replace(self.identity, kafka=bill().kafka, ports=tuple(choose_ports(self.identity, port)))
            fresh = self._prepare(java, jars)
            try:
                for node in self._nodes():
                    self._spawn(node, java, jars)
                self._wait_ready(list(self._nodes()), timeout_s)
            except PortLost:
                self._end_all()
                if port is not None or not left:
                    raise
                self.identity = replace(self.identity, ports=())
                continue
            if fresh and self.identity.secure:
                self.allow(*secrets.default_acls())
            return

    def _prepare(self, java: Java, jars: str) -> bool:
        """Make the directories of all nodes; True if there was something to make."""
        if self.secrets is not None:
            secrets.make_secrets(self.secrets)
            secrets.write_client_properties(self.secrets, self.bootstrap)
        storage.write_identity(self.data, self.identity)
        fresh = [node for node in self._nodes() if not storage.is_formatted(self.data, node)]
        for node in self._nodes():
            home = storage.node_dir(self.data, node)
            home.mkdir(parents=True, exist_ok=True)
            (home / "server.properties").write_text(
                server_properties(node, list(self.identity.ports), home, self.secrets)
            )
            (home / "log4j2.properties").write_text(log4j2_properties(self.log_file(node)))
        if fresh:
            first = bill().bootstrap_checkpoint
            if self.secrets is not None:
                settings = storage.node_dir(self.data, 1) / "server.properties"
                first = secrets.checkpoint_with_users(
                    self.secrets, settings, self.identity.cluster_id, java=java, jars=jars
                )
            for node in fresh:
                storage.format_node(self.data, node, self.identity, first)
        return bool(fresh)

    def _spawn(self, node: int, java: Java, jars: str) -> None:
        home = storage.node_dir(self.data, node)
        heap = "512m" if self.identity.nodes == 1 else "320m"
        command = [
            java.path,
            *self.java_options,
            f"-Xmx{heap}",
            "-Xms96m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
        ]
        command += [
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}",
            f"-Dheadgate.node={home}",
        ]
        command += ["-cp", jars, "kafka.Kafka", str(home / "server.properties")]
        # Options meant for the user's own Java programs (agents, heaps, flags that print) are not for the broker.
        foreign = {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"}
        environment = {name: value for name, value in os.environ.items() if name not in foreign}
        self.daemon(node).spawn(command, environment=environment, output=self.log_file(node))

    def _wait_ready(self, nodes: list[int], timeout_s: float) -> None:
        """Until each of these nodes serves and knows each of them."""
        deadline = time.monotonic() + timeout_s
        tls = self._tls()
        for node in nodes:
            ports = self.identity.ports[node - 1]
            while True:
                if self.daemon(node).pid() is None:
                    raise self._not_ready(node, "exited during its start")
                seen = ask_cluster(HOST, ports.admin or ports.client, tls=tls)
                if seen is not None and set(nodes) <= set(seen.brokers) and seen.controller > 0:
                    break
                if time.monotonic() > deadline:
                    raise self._not_ready(node, f"did not become ready within {timeout_s:g} s")
                time.sleep(STEP_S)

    def _tls(self) -> ssl.SSLContext | None:
        """The owner's way into a secure broker: a client certificate."""
        if self.secrets is None:
            return None
        context = ssl.create_default_context(cafile=str(self.secrets / "ca.pem"))
        context.load_cert_chain(str(self.secrets / "admin.pem"))
        return context

    def _not_ready(self, node: int, what: str) -> EnvironmentFault:
        log = self.log_file(node)
        lines = log.read_text(errors="replace").splitlines()[-400:] if log.exists() else []
        told = "\n".join("  " + line[:300] for line in telling(lines)) or "  (it is empty)"
        late = "\n".join(lines)
        said = f"Kafka (node {node}) {what}. From the end of its log {log}:\n{told}\n"
        if "Address already in use" in late:
            return PortLost(said, remedy="try again, or choose another port with --port")
        if "No space left on device" in late:
            return EnvironmentFault(
                said, remedy="the disk is full: free some space, or choose another directory with --data"
            )
        return EnvironmentFault(said, remedy="the log says why; `headgate kafka reset` starts from scratch")

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _train(java: Java, jars: str, options: list[str]) -> None:
    """A broker that is started with `options`, serves, and is thrown away; guarded, should we die in between."""
    scratch = Path(tempfile.mkdtemp(prefix="headgate-train-"))
    lease = Lease(scratch)
    with Lease.guard(scratch) as guard:
        try:
            broker = Broker(scratch / "kafka", BrokerIdentity.new(1, secure=False), java_options=tuple(options))
            broker.data.mkdir()
            broker._launch(java, jars, None, READY_TIMEOUT_S)
            broker._end_all()
        finally:
            lease.release()
            guard.wait()


def telling(lines: list[str], keep: int = 20) -> list[str]:
    """The last lines of a log, without the inner steps of stack traces, and before them what went wrong first, if it is further up."""
    spoken = [line for line in lines if not line.startswith("\tat ") and not line.lstrip().startswith("... ")]
    wrong = [
        at for at, line in enumerate(spoken) if " ERROR " in line or " FATAL " in line or line.startswith("Caused by")
    ]
    end = len(spoken) - keep
    first = [spoken[at] for at in wrong if at < end][:5]
    return [*first, *(["…"] if first else []), *spoken[max(end, 0) :]]
