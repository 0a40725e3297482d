"""`headgate kafka up|down|status|reset`: the embedded broker from the command line."""

from __future__ import annotations

from pathlib import Path

import click

from ..broker.broker import Broker
from ..broker.places import default_data_dir

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Data directory [default: in ~/.local/share/headgate]",
)


@click.group()
def kafka() -> None:
    """A real Apache Kafka on this machine: no Docker, no root."""


@kafka.command()
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="Port on loopback [default: a free one]")
@data_option
@click.option("--nodes", type=click.Choice(["1", "3"]), default=None, help="Three brokers: replication 3, min.isr 2")
@click.option("--secure/--plain", default=None, help="TLS, SCRAM users and ACLs, with throw-away certificates")
def up(port: int | None, data: Path | None, nodes: str | None, secure: bool | None) -> None:
    """Start it, and wait until it serves."""
    broker = Broker.start(
        data or default_data_dir(), nodes=int(nodes) if nodes else None, secure=secure, port=port, say=click.echo
    )
    click.echo(f"Kafka {broker.identity.kafka} serves at {broker.bootstrap}")


@kafka.command()
@data_option
def down(data: Path | None) -> None:
    """Stop it, and wait until it is down."""
    broker = Broker.at(data or default_data_dir())
    if broker is None or not broker.pids():
        click.echo("No broker is running.")
        return
    broker.stop()
    click.echo("Kafka is down.")


@kafka.command()
@data_option
def status(data: Path | None) -> None:
    """Whether it runs, and where."""
    broker = Broker.at(data or default_data_dir())
    if broker is None or not broker.pids():
        click.echo("No broker is running.")
        raise SystemExit(4)
    click.echo(f"Kafka {broker.identity.kafka} serves at {broker.bootstrap} (pid {broker.pids()[0]}, {broker.data})")
