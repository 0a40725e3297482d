"""`headgate topics plan MODULE:app --acls`: the rights of a job, as commands of Kafka's own tool. They follow from the declaration alone,
so no broker is asked.
"""

from __future__ import annotations

import shlex

import click

from ....core.graph.rights import Right, rights
from ...job.derive.declaration import Declared
from ...kafka.settings import ClientSettings
from ...kafka.topics import ABOUT_PROPERTIES, tool
from ...process.configuration import NO_BROKER, Configuration
from ..output import show_json

UNKNOWN = "User:NAME"
"""Whom the commands name if no one said it: the name has to be filled in."""


def show_acls(
    declared: Declared, configuration: Configuration, principal: str | None, *, create: bool, output: str
) -> None:
    """Print them; their JSON is `schemas/topics-acls.json`."""
    client = None if configuration.broker_origin == NO_BROKER else configuration.client
    whom = principal or principal_of(configuration.client)
    outputs = bool(configuration.value("topic.create-outputs"))
    found = rights(declared.graph, declared.topics, create=create, outputs=outputs)
    commands = [command(right, whom, client) for right in found]
    if output == "json":
        acls = [
            {
                "resource": right.resource,
                "names": list(right.names),
                "pattern": "prefixed" if right.prefixed else "literal",
                "operations": list(right.operations),
                "why": right.why,
            }
            for right in found
        ]
        show_json({"job": str(declared.app.job), "principal": whom, "acls": acls, "commands": commands})
        return
    for right, text in zip(found, commands, strict=True):
        click.echo(f"# {declared.app.job} {right.why}\n{text}")
    if client is None:
        click.echo("Note: HOST:PORT stands for the brokers; -b names them", err=True)
    elif client.guarded:
        click.echo(f"Note: {ABOUT_PROPERTIES}", err=True)
    if whom == UNKNOWN:
        click.echo(f"Note: {UNKNOWN} stands for the user of the job; --principal names it", err=True)


def command(right: Right, principal: str, client: ClientSettings | None) -> str:
    """The command that grants it.

    >>> command(Right("topic", ("orders",), ("Read",), "reads"), "User:sales", ClientSettings("b:1"))
    'kafka-acls.sh --bootstrap-server b:1 --add --allow-principal User:sales --operation Read --topic orders'
    """
    words = [*tool("kafka-acls.sh", client), "--add", "--allow-principal", principal, *right.arguments()]
    return " ".join(map(shlex.quote, words))


def principal_of(client: ClientSettings) -> str:
    """The principal of these client settings, as far as they say."""
    user = client.user
    return UNKNOWN if user is None else f"User:{user}"
