"""The data directory of an embedded broker: its contents, the cluster that it belongs to, and its lock.

Layout: `broker.json` (cluster id, Kafka version, nodes, secure, ports) · `kafka.log`, or `kafka-N.log` for several nodes · `node-N/` with
its settings, pid file and `data/` · `secrets/` of a secure broker · `.lock`.

Promises: a directory with other contents is refused and left unchanged. If two commands use one directory, the second gets an error.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ...core.errors import EnvironmentFault
from .jars import bill
from .settings import Ports

LEAST_FREE_BYTES = 256 * 1024 * 1024
"""A broker without disk space dies with a stack trace, so it is not started."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity of a data directory: the content of `broker.json`."""

    cluster_id: str
    kafka: str
    nodes: int
    secure: bool
    ports: tuple[Ports, ...] = ()

    @staticmethod
    def new(nodes: int, secure: bool) -> BrokerIdentity:
        """The identity of a new cluster."""
        return BrokerIdentity(random_id(), bill().kafka, nodes, secure)

    def at(self, ports: list[Ports]) -> BrokerIdentity:
        """The same cluster with these ports."""
        return replace(self, ports=tuple(ports))


def random_id() -> str:
    """A Kafka uuid: 22 characters of URL-safe base64 that do not begin with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def node_dir(data: Path, node: int) -> Path:
    """The directory of one node."""
    return data / f"node-{node}"


def log_file(data: Path, node: int, nodes: int) -> Path:
    """The log file of one node."""
    return data / ("kafka.log" if nodes == 1 else f"kafka-{node}.log")


def read_identity(data: Path) -> BrokerIdentity | None:
    """The identity of `data`; None if it does not exist or is empty. Raises `EnvironmentFault` for anything else."""
    file = data / "broker.json"
    try:
        raw = json.loads(file.read_text())
        return BrokerIdentity(
            raw["cluster_id"], raw["kafka"], raw["nodes"], raw["secure"], tuple(Ports(**p) for p in raw["ports"])
        )
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError) as error:
        raise EnvironmentFault(
            f"{file} cannot be read ({error!r})", remedy="remove the directory, or choose another with --data"
        ) from error
    except OSError as error:
        raise EnvironmentFault(
            f"cannot read {file}: {error.strerror}", remedy="choose a directory that you own with --data"
        ) from error
    if data.exists() and (not data.is_dir() or any(path.name != ".lock" for path in data.iterdir())):
        raise EnvironmentFault(
            f"{data} contains something other than a headgate broker, and is left unchanged",
            remedy="choose an empty or a new directory with --data",
        )
    return None


def write_identity(data: Path, identity: BrokerIdentity) -> None:
    """Write `broker.json` atomically."""
    draft = data / ".broker.json.new"
    draft.write_text(json.dumps(asdict(identity), indent=2) + "\n")
    draft.replace(data / "broker.json")


def check_nodes(data: Path, identity: BrokerIdentity) -> None:
    """Raise unless the Kafka data below `data` belong to this cluster."""
    for node in range(1, identity.nodes + 1):
        file = node_dir(data, node) / "data" / "meta.properties"
        if not file.exists():
            continue
        stored: dict[str, str] = {}
        for line in file.read_text().splitlines():
            name, _, value = line.partition("=")
            stored[name] = value
        if stored.get("cluster.id") != identity.cluster_id or stored.get("node.id") != str(node):
            raise EnvironmentFault(
                f"{file.parent} belongs to another cluster ({stored.get('cluster.id')}, node {stored.get('node.id')}; "
                f"here is {identity.cluster_id}, node {node})",
                remedy="restore the right data, choose another directory with --data, or run `headgate kafka reset`",
            )


def is_formatted(data: Path, node: int) -> bool:
    """Whether the node has a data directory that Kafka accepts."""
    return (node_dir(data, node) / "data" / "meta.properties").exists()


def format_node(data: Path, node: int, identity: BrokerIdentity, checkpoint: bytes) -> None:
    """Create the node's directory as Kafka's storage tool would, without starting a Java.

    `checkpoint` is the cluster's first metadata. The file that makes the directory valid is written last.
    """
    home = node_dir(data, node) / "data"
    metadata = home / "__cluster_metadata-0"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "00000000000000000000-0000000000.checkpoint").write_bytes(checkpoint)
    text = f"version=1\ncluster.id={identity.cluster_id}\nnode.id={node}\ndirectory.id={random_id()}\n"
    (home / "meta.properties.new").write_text(text)
    (home / "meta.properties.new").replace(home / "meta.properties")


def check_room(data: Path) -> None:
    """Raise unless the disk has enough space for a broker to start."""
    place = data
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < LEAST_FREE_BYTES:
        raise EnvironmentFault(
            f"the disk of {data} is full: {free / 1e6:.0f} MB free, and a broker needs at least {LEAST_FREE_BYTES / 1e6:.0f} MB",
            remedy="free some space, or choose a directory on another disk with --data",
        )


def check_shape(data: Path, existing: BrokerIdentity | None, nodes: int | None, secure: bool | None) -> None:
    """Raise unless `data`, if it contains a broker, contains one of the requested kind."""
    if nodes not in (None, 1, 3):
        raise EnvironmentFault(f"a broker has 1 node or 3, not {nodes}", remedy="--nodes 1 or --nodes 3")
    if existing is None:
        return
    remedy = "choose another directory with --data, or start from scratch with `headgate kafka reset`"
    if nodes is not None and nodes != existing.nodes:
        raise EnvironmentFault(f"{data} holds a cluster of {existing.nodes} node(s), not of {nodes}", remedy=remedy)
    if secure is not None and secure != existing.secure:
        kind = "a secure cluster" if existing.secure else "a cluster without TLS"
        raise EnvironmentFault(f"{data} holds {kind}", remedy=remedy)
    if _release(existing.kafka) > _release(bill().kafka):
        raise EnvironmentFault(
            f"{data} was written by Kafka {existing.kafka}, and this headgate brings {bill().kafka}, which is older",
            remedy=remedy,
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def remove_new(data: Path, *, keep_root: bool) -> None:
    """Remove what a failed start has created. The directory itself stays if it existed before."""
    if not keep_root:
        shutil.rmtree(data, ignore_errors=True)
        return
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def disk_fault(data: Path, error: OSError) -> EnvironmentFault:
    """The error for an operating system's error below `data`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentFault(
            f"the disk of {data} is full", remedy="free some space, or choose another directory with --data"
        )
    where = error.filename or data
    return EnvironmentFault(f"cannot use {where}: {error.strerror}", remedy="choose another directory with --data")


@contextlib.contextmanager
def held(data: Path) -> Iterator[None]:
    """Lock the directory while it is changed. A second command on the same directory gets an error at once."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(data / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write into {data}: {error.strerror}", remedy="choose another directory with --data"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise EnvironmentFault(
            f"another headgate command is starting or stopping the broker in {data}",
            remedy="wait until it has finished",
        ) from error
    finally:
        os.close(descriptor)


def disk_used(data: Path) -> int:
    """Bytes on disk below `data`. Counts allocated blocks, because Kafka's index files are mostly holes."""
    total = 0
    for folder, _, files in os.walk(data):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total
