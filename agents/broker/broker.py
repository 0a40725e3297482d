"""The embedded broker: a real Apache Kafka on this machine, without Docker and without root.

It decides how a broker is started, when it is ready, and how it is ended. Promises: `start` returns when every node serves; otherwise it
raises with the end of the log, and leaves no process and no half-written directory. Acknowledged records survive `kill`. The ports of a
data directory stay the same as long as they are free. No process is signalled that headgate did not start.

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

READY_TIMEOUT_S = 180.0
"""More than a start has ever taken on a machine that is busy with other things. A process that ends meanwhile is noticed at once."""
TRIES = 3
"""Another process can take a free port between our choice and Kafka's start."""

SayLine = Callable[[str], None]


def _silent(_: str) -> None:
    """Print nothing."""


class PortLost(EnvironmentFault):
    """A port that was free when it was chosen was taken when Kafka started."""


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
        """Start a broker in `data`, which is created if needed, and wait until it is ready.

        The first start of a directory fixes `nodes` and `secure`. `port` is that of the first node.
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
        """The address for clients: `127.0.0.1:41873`, or three of them."""
        return ",".join(f"{HOST}:{ports.client}" for ports in self.identity.ports)

    @property
    def secrets(self) -> Path | None:
        """The directory with certificates and client settings of a secure broker."""
        return self.data / "secrets" if self.identity.secure else None

    def client_settings(self, user: str = "app") -> dict[str, str]:
        """The settings for a client, by their names in the Java client. `user` is one of `secrets.USERS`."""
        if self.secrets is None:
            return {"bootstrap.servers": self.bootstrap}
        return secrets.client_settings(self.secrets, user, self.bootstrap)

    def pids(self) -> list[int]:
        """The pids of the running nodes."""
        return [pid for node in self._nodes() if (pid := self.daemon(node).pid()) is not None]

    def is_running(self) -> bool:
        """Whether every node is running."""
        return len(self.pids()) == self.identity.nodes

    def log_file(self, node: int = 1) -> Path:
        """The log file of a node."""
        return storage.log_file(self.data, node, self.identity.nodes)

    def daemon(self, node: int) -> Daemon:
        """The process of one node."""
        home = storage.node_dir(self.data, node)
        return Daemon(home / "pid", f"-Dheadgate.node={home} ")

    def _nodes(self) -> range:
        return range(1, self.identity.nodes + 1)

    # What can be done to it ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop all nodes in order, and wait until they are down."""
        with storage.held(self.data):
            self._end_all()

    def end_within_hold(self) -> None:
        """As `stop`, for a caller that holds the directory (`storage.held`) because it then changes it."""
        self._end_all()

    def kill(self, node: int | None = None) -> None:
        """`kill -9` for one node or all; waits until the processes are gone."""
        self._send(signal.SIGKILL, node)
        for number in self._chosen(node):
            self.daemon(number).wait_gone(10.0)

    def pause(self, node: int | None = None) -> None:
        """SIGSTOP: the broker keeps its connections and answers nothing."""
        self._send(signal.SIGSTOP, node)

    def resume(self, node: int | None = None) -> None:
        """SIGCONT, after `pause`."""
        self._send(signal.SIGCONT, node)

    def restart(self, node: int | None = None, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start nodes that are down (after `kill`), and stop and start those that run. The ports stay the same."""
        java, jars = self._java()
        chosen = self._chosen(node)
        with storage.held(self.data):
            self._end(chosen)
            for number in chosen:
                self._spawn(number, java, jars)
            self._wait_ready(chosen, timeout_s)

    def allow(self, *permissions: acls.Acl) -> None:
        """Add permissions or prohibitions to a secure broker. When this returns, its nodes enforce them."""
        acls.create_acls(*self._owner(), list(permissions))
        self._wait_applied(list(permissions), there=True)

    def disallow(self, *permissions: acls.Acl) -> None:
        """Remove permissions from a secure broker. When this returns, its nodes no longer enforce them."""
        acls.delete_acls(*self._owner(), list(permissions))
        self._wait_applied(list(permissions), there=False)

    def _owner(self, node: int = 1) -> tuple[str, int, ssl.SSLContext]:
        tls = self._tls()
        if tls is None:
            raise EnvironmentFault(f"the broker in {self.data} has no permissions", remedy="start one with --secure")
        return HOST, self.identity.ports[node - 1].admin, tls

    def _wait_applied(self, permissions: list[acls.Acl], *, there: bool) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        for node in self._nodes():
            while self.daemon(node).pid() is not None:
                if set(acls.applied(*self._owner(node), permissions)) <= {there}:
                    break
                if time.monotonic() > deadline:
                    raise EnvironmentFault(
                        f"node {node} of the broker in {self.data} does not apply the permissions: {permissions}"
                    )
                time.sleep(STEP_S)

    def _chosen(self, node: int | None) -> list[int]:
        return list(self._nodes()) if node is None else [node]

    def _send(self, number: int, node: int | None) -> None:
        for chosen in self._chosen(node):
            self.daemon(chosen).send(number)

    def _end_all(self) -> None:
        self._end(self._nodes())

    def _end(self, nodes: Iterable[int]) -> None:
        """Signal all nodes first, then wait for each: if a quorum loses its members one by one, the rest waits for a majority."""
        for node in nodes:
            self.daemon(node).ask_to_end()
        for node in nodes:
            self.daemon(node).end()

    def _java(self) -> tuple[Java, str]:
        """The Java and the class path for the start; fetches and prepares what is missing."""
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
        """Create the directories of all nodes. Returns whether there was something to create."""
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
        # Options for the user's own Java programs (agents, heap sizes, flags that print) must not reach the broker.
        foreign = {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"}
        environment = {name: value for name, value in os.environ.items() if name not in foreign}
        self.daemon(node).spawn(command, environment=environment, output=self.log_file(node))

    def _wait_ready(self, nodes: list[int], timeout_s: float) -> None:
        """Wait until each of these nodes serves and knows the others."""
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
        """The TLS context of the owner of a secure broker, with its client certificate."""
        if self.secrets is None:
            return None
        context = ssl.create_default_context(cafile=str(self.secrets / "ca.pem"))
        context.load_cert_chain(str(self.secrets / "admin.pem"))
        return context

    def _not_ready(self, node: int, what: str) -> EnvironmentFault:
        log = self.log_file(node)
        lines = log.read_text(errors="replace").splitlines()[-400:] if log.exists() else []
        text = "\n".join("  " + line[:300] for line in telling(lines)) or "  (it is empty)"
        late = "\n".join(lines)
        said = f"Kafka (node {node}) {what}. From the end of its log {log}:\n{text}\n"
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
    """Run a broker with `options` until it serves, and discard it. A guard cleans up if this process dies meanwhile."""
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
    """The last lines of a log without the inner steps of stack traces, preceded by the first errors if those are further up."""
    spoken = [line for line in lines if not line.startswith("\tat ") and not line.lstrip().startswith("... ")]
    wrong = [
        at for at, line in enumerate(spoken) if " ERROR " in line or " FATAL " in line or line.startswith("Caused by")
    ]
    end = len(spoken) - keep
    first = [spoken[at] for at in wrong if at < end][:5]
    return [*first, *(["…"] if first else []), *spoken[max(end, 0) :]]
