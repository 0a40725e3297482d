"""The embedded broker: a real Apache Kafka on this machine, without Docker and without root.

Decides how one is started, found ready, and ended. Promises: `start` returns when every node serves, or raises with the end
of the log and leaves nothing running and nothing half made; what was acknowledged survives `kill`; ports stay the same over
the life of a data directory as long as they are free; nothing is signalled that we did not start.

>>> with Broker.start(data) as broker:          # doctest: +SKIP
...     print(broker.bootstrap)
127.0.0.1:41873
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from ...core.errors import EnvironmentFault
from . import storage
from .jars import bill, classpath
from .java import Java, find_java
from .process import STEP_S, Daemon
from .settings import HOST, Ports, log4j2_properties, server_properties
from .storage import Identity
from .wire import ask_cluster

READY_TIMEOUT_S = 60.0
Say = Callable[[str], None]


def _silent(_: str) -> None:
    """Say nothing."""


@dataclass(slots=True)
class Broker:
    """A cluster of one or three nodes in one data directory."""

    data: Path
    identity: Identity
    say: Say = _silent
    heap: str = "512m"
    owns_directory: bool = field(default=False)

    @classmethod
    def start(
        cls,
        data: Path | str,
        *,
        nodes: int | None = None,
        secure: bool | None = None,
        port: int | None = None,
        say: Say = _silent,
        timeout_s: float = READY_TIMEOUT_S,
    ) -> Broker:
        """Start a broker in `data` (made if it does not exist) and wait until it serves.

        `nodes` and `secure` are fixed by the first start of a directory; `port` is that of the first node.
        """
        data = Path(data).expanduser().absolute()
        existing = storage.read_identity(data)
        _check_shape(data, existing, nodes, secure)
        identity = existing or Identity.new(nodes or 1, bool(secure))
        broker = cls(data, identity, say)
        if running := broker.pids():
            raise EnvironmentFault(
                f"a broker is running in {data} already (pid {', '.join(map(str, running))}, at {broker.bootstrap})",
                remedy="use it, stop it with `headgate kafka down`, or choose another directory with --data",
            )
        storage.check_room(data)
        java = find_java()
        jars = classpath(java, say)
        made_parent = not data.exists()
        with storage.held(data):
            try:
                storage.check_nodes(data, identity)
                broker._launch(java, jars, port, timeout_s)
            except BaseException as error:
                broker._end_all()
                if existing is None:
                    _remove_new(data, keep_root=not made_parent)
                if isinstance(error, OSError):
                    raise _disk_fault(data, error) from error
                raise
        return broker

    @classmethod
    def at(cls, data: Path | str, say: Say = _silent) -> Broker | None:
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
        return Daemon(home / "pid", f"-Dheadgate.node={home}")

    def _nodes(self) -> range:
        return range(1, self.identity.nodes + 1)

    # What can be done to it ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it in good order and wait until it is down."""
        with storage.held(self.data):
            self._end_all()

    def kill(self, node: int | None = None) -> None:
        """`kill -9`, of one node or of all, and wait until the process is gone."""
        for number in self._chosen(node):
            self.daemon(number).send(signal.SIGKILL)
        for number in self._chosen(node):
            self.daemon(number).wait_gone(10.0)

    def pause(self, node: int | None = None) -> None:
        """SIGSTOP: it keeps its connections and answers nobody."""
        for number in self._chosen(node):
            self.daemon(number).send(signal.SIGSTOP)

    def resume(self, node: int | None = None) -> None:
        """SIGCONT after `pause`."""
        for number in self._chosen(node):
            self.daemon(number).send(signal.SIGCONT)

    def restart(self, node: int | None = None, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start again what does not live (after `kill`), or stop and start what does; the ports stay."""
        java = find_java()
        jars = classpath(java, self.say)
        with storage.held(self.data):
            for number in self._chosen(node):
                self.daemon(number).end()
            for number in self._chosen(node):
                self._spawn(number, java, jars)
            self._wait_ready(timeout_s)

    def _chosen(self, node: int | None) -> list[int]:
        return list(self._nodes()) if node is None else [node]

    def _end_all(self) -> None:
        for node in self._nodes():
            self.daemon(node).send(signal.SIGTERM)
        for node in self._nodes():
            self.daemon(node).end()

    # Starting --------------------------------------------------------------------------------------------------------------

    def _launch(self, java: Java, jars: str, port: int | None, timeout_s: float) -> None:
        self.identity = self.identity.at(choose_ports(self.identity, port))
        for node in self._nodes():
            storage.node_dir(self.data, node).mkdir(parents=True, exist_ok=True)
            storage.format_node(self.data, node, self.identity)
        storage.write_identity(self.data, self.identity)
        for node in self._nodes():
            self._spawn(node, java, jars)
        self._wait_ready(timeout_s)

    def _spawn(self, node: int, java: Java, jars: str) -> None:
        home = storage.node_dir(self.data, node)
        log = self.log_file(node)
        (home / "server.properties").write_text(server_properties(node, list(self.identity.ports), home, self.secrets))
        (home / "log4j2.properties").write_text(log4j2_properties(log))
        command = [
            java.path,
            f"-Xmx{self.heap}",
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
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")
        }
        self.daemon(node).spawn(command, environment=environment, output=log)

    def _wait_ready(self, timeout_s: float) -> None:
        """Until every node lists every node."""
        deadline = time.monotonic() + timeout_s
        everyone = tuple(self._nodes())
        tls = self.admin_tls()
        for node in self._nodes():
            ports = self.identity.ports[node - 1]
            while True:
                seen = ask_cluster(HOST, ports.admin or ports.client, tls=tls)
                if seen is not None and seen.brokers == everyone and seen.controller > 0:
                    break
                if self.daemon(node).pid() is None:
                    raise self._not_ready(node, "ended while it started")
                if time.monotonic() > deadline:
                    raise self._not_ready(node, f"did not become ready within {timeout_s:.0f} s")
                time.sleep(STEP_S)

    def admin_tls(self) -> ssl.SSLContext | None:
        """The owner's way into a secure broker: a client certificate."""
        if self.secrets is None:
            return None
        context = ssl.create_default_context(cafile=str(self.secrets / "ca.pem"))
        context.load_cert_chain(str(self.secrets / "admin.pem"))
        return context

    def _not_ready(self, node: int, what: str) -> EnvironmentFault:
        log = self.log_file(node)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        end = "\n".join("  " + line[:300] for line in lines[-25:]) or "  (the log is empty)"
        full = any("No space left on device" in line for line in lines[-200:])
        remedy = (
            "free some space on that disk" if full else "read what the log says; `headgate kafka reset` begins anew"
        )
        return EnvironmentFault(f"Kafka (node {node}) {what}. The end of {log}:\n{end}\n", remedy=remedy)

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def choose_ports(identity: Identity, port: int | None) -> list[Ports]:
    """The ports of every node: the told one, those of the last start if they are free, else free ones."""
    if port is not None and not _is_free(port):
        raise EnvironmentFault(
            f"port {port} on {HOST} is taken", remedy="choose another with --port, or leave it out for a free one"
        )
    before = identity.ports
    if (
        before
        and (port is None or port == before[0].client)
        and all(_is_free(p) for ports in before for p in _all(ports))
    ):
        return list(before)
    free = _free_ports(identity.nodes * 3)
    chosen: list[Ports] = []
    for node in range(identity.nodes):
        client, controller, admin = free[3 * node : 3 * node + 3]
        if port is not None and node == 0:
            client = port
        chosen.append(Ports(client, controller, admin if identity.secure else 0))
    return chosen


def _all(ports: Ports) -> list[int]:
    return [port for port in (ports.client, ports.controller, ports.admin) if port]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _check_shape(data: Path, existing: Identity | None, nodes: int | None, secure: bool | None) -> None:
    if nodes not in (None, 1, 3):
        raise EnvironmentFault(f"a broker has 1 node or 3, not {nodes}", remedy="--nodes 1 or --nodes 3")
    if existing is None:
        return
    anew = "choose another directory with --data, or `headgate kafka reset` to begin anew"
    if nodes is not None and nodes != existing.nodes:
        raise EnvironmentFault(f"{data} holds a cluster of {existing.nodes} node(s), not of {nodes}", remedy=anew)
    if secure is not None and secure != existing.secure:
        kinds = {True: "a secure cluster", False: "a cluster without TLS"}
        raise EnvironmentFault(f"{data} holds {kinds[existing.secure]}", remedy=anew)
    if existing.kafka != bill().kafka and _release(existing.kafka) > _release(bill().kafka):
        raise EnvironmentFault(
            f"{data} was written by Kafka {existing.kafka}; this headgate brings {bill().kafka}, which is older",
            remedy=anew,
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _remove_new(data: Path, *, keep_root: bool) -> None:
    """Take away what a start that failed has made."""
    if not keep_root:
        shutil.rmtree(data, ignore_errors=True)
        return
    for path in data.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _disk_fault(data: Path, error: OSError) -> EnvironmentFault:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentFault(
            f"the disk of {data} is full", remedy="free some space, or choose another directory with --data"
        )
    return EnvironmentFault(
        f"cannot write into {data}: {error.strerror}", remedy="choose another directory with --data"
    )
