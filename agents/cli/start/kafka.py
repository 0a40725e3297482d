"""`headgate kafka up|down|status|reset`: the embedded broker from the command line.

Without `--data`, a command means the broker in the default directory and never another, which someone may need. Other running brokers are
named, with the command for each. Promise: the printed commands can be pasted into a shell.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import click

from ....core.errors import EnvironmentFault
from ...broker import storage
from ...broker.broker import Broker, telling
from ...broker.places import default_data_dir
from ...broker.registry import enlist, running_brokers, strike_off
from ...broker.schema_server import SchemaServer
from ...broker.secrets import USERS
from ..group import NOT_FOUND, Group
from ..options import confirmed, yes_option
from ..output import megabytes, output_option, show_fields, show_json, shown_as_json

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help=f"Data directory.  [default: {str(default_data_dir()).replace(str(Path.home()), '~', 1)}]",
)


@click.group(cls=Group)
def kafka() -> None:
    """Run a real Apache Kafka on this machine, without Docker or root.

    The first `up` downloads Kafka (18 MB) from the Maven repositories configured on this machine; after that, no network is needed. It
    listens on loopback only. Other `headgate` commands find the running broker by themselves.
    """


@kafka.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=None,
    help="Port on 127.0.0.1.  [default: the last one, or a free one]",
)
@data_option
@click.option(
    "--nodes",
    type=click.Choice(["1", "3"]),
    default=None,
    help="Number of brokers; 3 means replication factor 3 and min.insync.replicas 2.",
)
@click.option("--secure/--plain", default=None, help="TLS, SCRAM users and ACLs, with temporary certificates.")
@click.option(
    "--registry", is_flag=True, help="A schema registry beside it (Apicurio, with Confluent's API): 109 MB, once."
)
@click.option("--foreground", is_flag=True, help="Stay attached, and stop Kafka on Ctrl-C or SIGTERM.")
@output_option
def up(
    port: int | None,
    data: Path | None,
    nodes: str | None,
    secure: bool | None,
    registry: bool,
    foreground: bool,
    output: str,
) -> None:
    """Start Kafka and wait until it is ready. It keeps the data of earlier starts."""
    directory = (data or default_data_dir()).expanduser().absolute()
    ended = _Ended() if foreground else None
    wanted = int(nodes) if nodes else None
    running = Broker.at(directory) if registry else None
    if running is not None and running.is_running():
        broker = running  # it is the registry that is missing
        storage.check_shape(directory, broker.identity, wanted, secure)
    else:
        broker = Broker.start(directory, nodes=wanted, secure=secure, port=port, say=_say)
    enlist(broker)
    if registry:
        SchemaServer.of(broker.data).start(_say)
    _show(broker, output)
    if ended is not None:
        _stay(broker, ended)


@kafka.command()
@data_option
@output_option
def down(data: Path | None, output: str) -> None:
    """Stop Kafka and wait until it is down. Its data are kept."""
    broker = _meant(data)
    if broker is None or not broker.pids():
        where = data or (default_data_dir() if running_brokers() else None)
        _tell(
            output,
            f"No broker is running{f' in {where}' if where else ''}.",
            down_document(data, broker, stopped=False),
        )
        _name_others(broker, "down")
        return
    SchemaServer.of(broker.data).stop()
    broker.stop()
    strike_off(broker.data)
    _tell(
        output,
        f"Kafka at {broker.bootstrap} is down. Its data are kept in {broker.data}.",
        down_document(data, broker, stopped=True),
    )


@kafka.command()
@data_option
@output_option
def status(data: Path | None, output: str) -> None:
    """Show version, port, pid, data directory, disk usage, and how to connect. Exits with 4 if no broker is running."""
    broker = _meant(data)
    if broker is None or not broker.pids():
        where = data or (broker.data if broker else default_data_dir())
        if not shown_as_json(output, {"running": False, "data": str(where)}):
            stopped = f" (stopped; its data are in {where})" if broker else ""
            here = f" in {where}" if running_brokers() and not stopped else ""
            click.echo(f"No broker is running{here}{stopped}. Start one with `headgate kafka up`.")
        _name_others(broker, "status")
        raise SystemExit(NOT_FOUND)
    _show(broker, output)
    _name_others(broker, "status")


@kafka.command()
@data_option
@yes_option
@output_option
def reset(data: Path | None, yes: bool, output: str) -> None:
    """Stop Kafka and delete its data: all topics, groups and users."""
    broker = _meant(data)
    if broker is None:
        where = data or default_data_dir()
        _tell(
            output,
            f"There is nothing to delete in {where}.",
            {"deleted": False, "data": str(where), "freed_bytes": 0},
        )
        return
    used = storage.disk_used(broker.data)
    also = " and stops the broker that is running there" if broker.pids() else ""
    confirmed(f"This deletes {broker.data} ({megabytes(used)}){also}.", yes)
    SchemaServer.of(broker.data).stop()
    with storage.held(broker.data):
        broker.end_within_hold()
        # The identity goes last: until then the directory still looks like a broker's, and another reset can finish this one.
        for path in sorted(broker.data.iterdir(), key=lambda path: path.name == "broker.json"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    with contextlib.suppress(OSError):
        broker.data.rmdir()
    strike_off(broker.data)
    _tell(output, "Deleted.", {"deleted": True, "data": str(broker.data), "freed_bytes": used})


def down_document(data: Path | None, broker: Broker | None, *, stopped: bool) -> dict[str, Any]:
    """The document of `down -o json`; its schema is `schemas/kafka-down.json`."""
    return {
        "stopped": stopped,
        "bootstrap": broker.bootstrap if broker is not None and stopped else None,
        "data": str(broker.data if broker is not None else data or default_data_dir()),
    }


def _tell(output: str, text: str, document: dict[str, Any]) -> None:
    """Print what was done, for people or for programs."""
    if not shown_as_json(output, document):
        click.echo(text)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _meant(data: Path | None) -> Broker | None:
    return Broker.at(data if data is not None else default_data_dir())


def _name_others(meant: Broker | None, verb: str) -> None:
    """Name this user's other running brokers, in case one of them was intended."""
    for other in running_brokers():
        if meant is None or other.data != meant.data:
            note = f"Another broker is running at {other.bootstrap}: headgate kafka {verb} --data {shlex.quote(str(other.data))}"
            click.echo(note, err=True)


def _show(broker: Broker, output: str) -> None:
    if output == "json":  # what people see is made of less
        show_json(describe(broker))
        return
    identity = broker.identity
    nodes = [f"{number} (pid {broker.daemon(number).pid() or 'down'})" for number in range(1, identity.nodes + 1)]
    fields: list[tuple[str, object]] = [("Kafka", f"{identity.kafka}, KRaft"), ("bootstrap", broker.bootstrap)]
    if identity.nodes == 1:
        fields += [("port", identity.ports[0].client), ("pid", broker.daemon(1).pid())]
    else:
        fields += [("nodes", ", ".join(nodes))]
    fields += [
        ("data", broker.data),
        ("disk used", megabytes(storage.disk_used(broker.data))),
        ("log", broker.log_file()),
    ]
    if url := _registry(broker):
        fields += [("schema registry", url)]
    show_fields(fields)
    if broker.secrets is not None:
        click.echo(
            "\nTLS and SCRAM are enabled. A client needs the settings of one of these users (--config-file FILE):"
        )
        show_fields((f"  {broker.secrets / user}.properties", may) for user, may in USERS.items())


def describe(broker: Broker) -> dict[str, Any]:
    """The document of `status -o json`; its schema is `schemas/kafka-status.json`."""
    identity = broker.identity
    nodes = [
        {
            "node": number,
            "port": ports.client,
            "pid": broker.daemon(number).pid(),
            "log": str(broker.log_file(number)),
        }
        for number, ports in enumerate(identity.ports, 1)
    ]
    return {
        "running": True,
        "version": identity.kafka,
        "bootstrap": broker.bootstrap,
        "port": identity.ports[0].client,
        "pid": nodes[0]["pid"],
        "data": str(broker.data),
        "disk_used_bytes": storage.disk_used(broker.data),
        "cluster_id": identity.cluster_id,
        "secure": identity.secure,
        "client_properties": {user: f"{broker.secrets / user}.properties" for user in USERS} if broker.secrets else {},
        "nodes": nodes,
        "registry": _registry(broker),
    }


def _registry(broker: Broker) -> str | None:
    """The address of its schema registry; None if none runs."""
    server = SchemaServer.of(broker.data)
    return server.url if server.is_running else None


class _Ended:
    """Set by Ctrl-C or SIGTERM. It is installed before the broker starts, so that no signal is lost in between."""

    def __init__(self) -> None:
        self.event = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.event.set()


def _stay(broker: Broker, ended: _Ended) -> None:
    """Wait until a signal comes, or a node exits by itself."""
    click.echo("Press Ctrl-C to stop Kafka.", err=True)
    try:
        while not ended.event.wait(0.5):
            for number in range(1, broker.identity.nodes + 1):
                if broker.daemon(number).pid() is None:
                    lines = broker.log_file(number).read_text(errors="replace").splitlines()[-200:]
                    note = "\n".join("  " + line for line in telling(lines))
                    raise EnvironmentFault(
                        f"Kafka (node {number}) exited unexpectedly. From the end of its log:\n{note}\n"
                    )
    finally:
        SchemaServer.of(broker.data).stop()
        broker.stop()
        strike_off(broker.data)
    click.echo("Kafka is down.", err=True)
