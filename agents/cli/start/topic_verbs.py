"""`headgate topics create|list|describe|delete`: topics by hand. The own topics of a job are left to the job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import click

from ....core.errors import HeadgateError, NotFound
from ....core.names import StreamPartition, parse_internal
from ....core.settings import offer
from ...coordinator.job_states import own_topics, states_of_all
from ...kafka.connect import CONNECT_S
from ...kafka.offsets import KafkaOffsets
from ...kafka.port import KafkaPort
from ...kafka.settings import ClientSettings
from ...kafka.topics import TopicsAdmin, TopicSpec
from ...process.configuration import CommandLine
from ..options import broker_options, configured, confirmed, run_async, yes_option
from ..output import output_option, show_fields, show_table, shown_as_json

T = TypeVar("T")


async def _with_admin(client: ClientSettings, work: Callable[[TopicsAdmin], Awaitable[T]]) -> T:
    admin = TopicsAdmin(client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        return await work(admin)
    finally:
        await admin.stop()


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set {text!r}: NAME=VALUE, for example cleanup.policy=compact")
    return name, value


@click.command()
@click.argument("names", metavar="TOPIC…", nargs=-1, required=True)
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="The number of partitions.")
@click.option("--replicas", type=click.IntRange(1), help="The number of replicas.  [default: that of the brokers]")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the topic.")
@broker_options
@output_option
def create(
    names: tuple[str, ...],
    partitions: int,
    replicas: int | None,
    settings: tuple[str, ...],
    said: CommandLine,
    output: str,
) -> None:
    """Create topics. One that exists is left as it is, and must have as many partitions."""
    client = configured(said).client
    given = dict(map(_pair, settings))
    specs = [TopicSpec(name, partitions, given, replicas or -1) for name in dict.fromkeys(names)]

    async def work(admin: TopicsAdmin) -> list[str]:
        there = await admin.find(names)
        for name, one in there.items():
            if one.partitions != partitions:
                raise HeadgateError(
                    f"the topic '{name}' exists with {one.partitions} partitions, not {partitions}",
                    remedy=f"`headgate topics create {name} --partitions {one.partitions}`, or another name",
                )
        await admin.ensure([one for one in specs if one.name not in there])
        return [one.name for one in specs if one.name not in there]

    made = run_async(_with_admin(client, work))
    if not shown_as_json(output, {"created": made, "existed": [one.name for one in specs if one.name not in made]}):
        for one in specs:
            click.echo(f"{one.name}: {'created' if one.name in made else 'exists'}, {partitions} partitions")


@click.command(name="list")
@click.option("--all", "everything", is_flag=True, help="Include the topics of jobs and of Kafka itself.")
@broker_options
@output_option
def list_topics(everything: bool, said: CommandLine, output: str) -> None:
    """List the topics."""
    configuration = configured(said)
    prefix = str(configuration.value("topic.prefix"))

    async def work(admin: TopicsAdmin) -> list[dict[str, Any]]:
        names = await admin.names()
        owned = await _owned(configuration.client, admin, prefix)
        found = [{"topic": name, "job": _owner(name, owned, prefix)} for name in names]
        chosen = [one for one in found if everything or not (one["job"] or one["topic"].startswith("__"))]
        there = await admin.find(one["topic"] for one in chosen)
        return [{**one, "partitions": there[one["topic"]].partitions} for one in chosen if one["topic"] in there]

    found = run_async(_with_admin(configuration.client, work))
    if not shown_as_json(output, {"topics": found}):
        rows = [(one["topic"], one["partitions"], one["job"] or "-") for one in found]
        show_table(
            ("TOPIC", "PARTITIONS", "JOB"),
            rows,
            none="There are no topics. `headgate topics create TOPIC` creates one.",
        )


async def _owned(client: ClientSettings, admin: TopicsAdmin, prefix: str) -> dict[str, str]:
    """The topics that jobs have made for themselves, as their models have them."""
    return own_topics(await states_of_all(KafkaPort(client), admin.names, prefix, within_s=CONNECT_S), prefix)


def _owner(name: str, owned: Mapping[str, str], prefix: str) -> str:
    """The job whose own topic it is: one of those, or an internal one that another deletion has left."""
    left = parse_internal(name, prefix=prefix)
    return owned.get(name, "" if left is None else str(left[1]))


@click.command()
@click.argument("topic")
@broker_options
@output_option
def describe(topic: str, said: CommandLine, output: str) -> None:
    """Show partitions, offsets and settings of a topic."""
    client = configured(said).client

    async def work(admin: TopicsAdmin) -> dict[str, Any]:
        one = (await admin.find([topic])).get(topic)
        if one is None:
            raise _missing(client, topic, await admin.names())
        offsets = KafkaOffsets(client)
        await offsets.start(deadline_s=CONNECT_S)
        try:
            places = [StreamPartition(topic, number) for number in range(one.partitions)]
            bounds = [(await offsets.start_of(at), await offsets.end_of(at, committed=True)) for at in places]
            known = await offsets.topic_id(topic)
        finally:
            await offsets.stop()
        return {
            "topic": topic,
            "id": known,
            "partitions": [{"partition": n, "start": start, "end": end} for n, (start, end) in enumerate(bounds)],
            "settings": {name: one.config[name] for name in sorted(one.config)},
        }

    found = run_async(_with_admin(client, work))
    if shown_as_json(output, found):
        return
    show_fields([("topic", topic), ("id", found["id"] or "not known")])
    click.echo()
    show_table(("PARTITION", "START", "END", "RECORDS AT MOST"), [
        (one["partition"], one["start"], one["end"], one["end"] - one["start"]) for one in found["partitions"]
    ])  # fmt: skip
    click.echo()
    show_table(("SETTING", "VALUE"), found["settings"].items())


@click.command()
@click.argument("topic")
@yes_option
@broker_options
def delete(topic: str, yes: bool, said: CommandLine) -> None:
    """Delete a topic with its records. Topics of jobs are refused: `headgate reset` deletes those of a job."""
    configuration = configured(said)
    client, prefix = configuration.client, str(configuration.value("topic.prefix"))

    async def look(admin: TopicsAdmin) -> int:
        names = await admin.names()
        if topic not in names:
            raise _missing(client, topic, names)
        if owner := _owner(topic, await _owned(client, admin, prefix), prefix):
            raise HeadgateError(
                f"'{topic}' belongs to the job '{owner}'", remedy=f"`headgate reset {owner}` deletes all that it keeps"
            )
        if topic.startswith("__"):
            raise HeadgateError(f"'{topic}' is a topic of Kafka itself", remedy="leave it")
        return (await admin.find([topic]))[topic].partitions

    partitions = run_async(_with_admin(client, look))
    confirmed(
        f"This deletes '{topic}' ({partitions} partitions) with all its records. Jobs that read or write it fail.", yes
    )
    run_async(_with_admin(client, lambda admin: admin.delete([topic])))
    click.echo(f"{topic}: deleted")


def _missing(client: ClientSettings, topic: str, names: list[str]) -> NotFound:
    there = [name for name in names if not name.startswith("__")]
    return NotFound(
        f"there is no topic '{topic}' at {client.bootstrap}", remedy=offer(topic, there) or "it has no topics at all"
    )
