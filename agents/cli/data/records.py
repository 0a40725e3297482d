"""`headgate send TOPIC` and `headgate tail TOPIC`: writes and shows records, for people and scripts.

`send` takes values as arguments, or one a line from standard input, and writes their bytes as they are. With `--records` each line is an
object as `tail` prints it: a value with its key, headers, time and partition. `tail` prints one JSON object a line, the newest records
first asked for and in the order of each partition, and with `-f` whatever comes.

Promises: nothing is written into a stream of a job, where only jobs may write. Records that stand before a wrong line are written.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any

import click
import orjson

from ....core.errors import HeadgateError
from ....core.targets import ClosedTopics
from ...coordinator.job_states import framed_streams, own_topics, states_of_all
from ...kafka.connect import CONNECT_S
from ...kafka.plainwrite import Plain, put_all
from ...kafka.port import KafkaPort
from ...kafka.scan import scan_topic, width_of
from ...kafka.settings import ClientSettings
from ...kafka.topics import TopicsAdmin
from ...process.configuration import CommandLine
from ...records.values.keys import encode_output
from ...state.scan import guess, guess_key
from ...status.documents import time_of
from ..group import Mistyped
from ..options import broker_options, configured, run_async
from ..output import json_line, output_option, said_left_out, shown_as_json

MOST_LINE = 64 << 20
"""The longest line that is taken from standard input."""


# ----------------------------------------------------------------------------------------------------------------- send


@click.command()
@click.argument("topic")
@click.argument("values", nargs=-1)
@click.option("--key", "key_field", metavar="FIELD", help="The field of the value that is the key.")
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition.  [default: chosen by the key]")
@click.option("--records", is_flag=True, help="Each line is an object with value, key, headers, time, partition.")
@broker_options
@output_option
def send(
    topic: str,
    values: tuple[str, ...],
    key_field: str | None,
    partition: int | None,
    records: bool,
    said: CommandLine,
    output: str,
) -> None:
    """Write records: VALUES, or each line of standard input. Empty lines are left out."""
    if records and (key_field or partition is not None):
        raise click.UsageError("--records: each line says its own key and partition")
    configuration = configured(said)
    client = configuration.client

    async def write() -> int:
        width = await must_be_open(client, topic, str(configuration.value("topic.prefix")))

        async def made() -> AsyncIterator[Plain]:
            number = 0
            async for line in _each(values) if values else _lines():
                number += 1
                if line.strip():
                    one = (
                        record_of(topic, line, number)
                        if records
                        else plain_of(topic, line, number, key_field, partition)
                    )
                    if one.partition is not None and one.partition >= width:
                        raise Mistyped(
                            f"line {number}: '{topic}' has no partition {one.partition}",
                            remedy=f"it has {width}, from 0",
                        )
                    yield one

        return await put_all(client, made())

    written = run_async(write())
    if not shown_as_json(output, {"topic": topic, "written": written}):
        click.echo(f"{written} written to {topic}", err=True)


async def must_be_open(client: ClientSettings, topic: str, prefix: str) -> int:
    """The number of partitions of a topic that anyone may write to. Raises for one that only jobs write."""
    width = await width_of(client, topic)
    admin = TopicsAdmin(client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        states = await states_of_all(KafkaPort(client), admin.names, prefix, within_s=CONNECT_S)
    finally:
        await admin.stop()
    if why := ClosedTopics(framed=framed_streams(states), owned=own_topics(states, prefix)).closed(topic):
        raise HeadgateError(f"nothing is written to '{topic}': {why}", remedy="send to an input of the job")
    return width


def plain_of(topic: str, line: bytes, number: int, key_field: str | None, partition: int | None) -> Plain:
    """The record of a value.

    >>> plain_of("t", b'{"k": "a"}', 1, "k", None).key
    b'a'
    """
    return Plain(topic, None if key_field is None else _key_in(line, number, key_field), line, partition)


def _key_in(line: bytes, number: int, name: str) -> bytes | None:
    value = _parsed(line, number)
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            raise Mistyped(f"line {number} has no field '{name}'", remedy="leave out --key, or name another field")
        value = value[part]
    return _key_bytes(value, number)


def _key_bytes(value: Any, number: int) -> bytes | None:
    """The bytes of a key as a job writes them."""
    if value is None:
        return None
    try:
        return encode_output(tuple(value) if isinstance(value, list) else value)
    except HeadgateError as error:
        raise Mistyped(
            f"line {number}: {error}", remedy="keys are text, whole numbers, booleans, and lists of them"
        ) from error


def record_of(topic: str, line: bytes, number: int) -> Plain:
    """The record that a line describes, as `tail` prints it.

    >>> record_of("t", b'{"value": {"n": 1}, "key": "a", "time": "1970-01-01T00:00:01Z"}', 1).timestamp_ms
    1000
    """
    said = _parsed(line, number)
    if not isinstance(said, dict) or "value" not in said:
        raise Mistyped(
            f"line {number} is not an object with a value", remedy='for example {"key": "DE", "value": {"n": 1}}'
        )
    value, at = said["value"], said.get("time")
    headers, partition = said.get("headers") or {}, said.get("partition")
    if not isinstance(headers, dict) or not (partition is None or type(partition) is int):
        raise Mistyped(f"line {number}: headers must be an object of strings, and partition a number")
    return Plain(
        topic,
        _key_bytes(said.get("key"), number),
        None if value is None else value.encode() if isinstance(value, str) else orjson.dumps(value),
        partition,
        None if at is None else _ms_of(at, number),
        [(str(name), str(text).encode()) for name, text in headers.items()],
    )


def _ms_of(at: Any, number: int) -> int:
    try:
        return at if type(at) is int else round(datetime.fromisoformat(at).timestamp() * 1000)
    except (TypeError, ValueError) as error:
        raise Mistyped(
            f"line {number}: {at!r} is not a time", remedy="2026-01-01T00:00:00Z, or a number of ms"
        ) from error


def _parsed(line: bytes, number: int) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Mistyped(
            f"line {number} is not JSON: {error}", remedy="values are written as they are without --key and --records"
        ) from error


async def _each(values: Iterable[str]) -> AsyncIterator[bytes]:
    for value in values:
        yield value.encode()


async def _lines() -> AsyncIterator[bytes]:
    """The lines of standard input, as they come. A file is read at once; a pipe or a terminal does not hold up what was sent before."""
    reader = asyncio.StreamReader(limit=MOST_LINE)
    try:
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
        )
    except (OSError, ValueError):  # a file
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
        return
    async for line in reader:
        yield line.rstrip(b"\r\n")


# ----------------------------------------------------------------------------------------------------------------- tail


@click.command()
@click.argument("topic")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    metavar="N",
    help="How many records of each partition.",
)
@click.option("--all", "everything", is_flag=True, help="From the oldest record on.")
@click.option("--since", metavar="TIME", help="From this Kafka timestamp on: 2026-01-01T00:00:00Z, or ms.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this partition.")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Only records whose value has this in that field.",
)
@click.option("-f", "--follow", is_flag=True, help="Do not stop at the end of the topic.")
@click.option("--uncommitted", is_flag=True, help="Include open and aborted transactions.")
@broker_options
def tail(
    topic: str,
    last: int,
    everything: bool,
    since: str | None,
    partition: int | None,
    conditions: tuple[str, ...],
    follow: bool,
    uncommitted: bool,
    said: CommandLine,
) -> None:
    """Show the last records of a topic, one JSON object a line. `headgate frames cat` shows streams between jobs and stages."""
    client = configured(said).client
    wanted = [condition_of(one) for one in conditions]
    since_ms = None if since is None else _ms_of(int(since) if since.isdecimal() else since, 0)

    async def show() -> None:
        only = None if everything or since_ms is not None else last
        async for record in scan_topic(
            client,
            topic,
            partition=partition,
            last=only,
            since_ms=since_ms,
            committed=not uncommitted,
            follow=follow,
            left_out=said_left_out,
        ):
            one = document_of(record)
            if all(_at(one["value"], path) == value for path, value in wanted):
                click.echo(json_line(one))

    run_async(show())


def document_of(record: Any) -> dict[str, Any]:
    """A record for people: values that are neither JSON, msgpack nor text are shown in hexadecimal."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "time": time_of(record.timestamp),
        "key": None if record.key is None else guess_key(record.key),
        "value": None if record.value is None else guess(record.value),
        "headers": {name: (value or b"").decode(errors="replace") for name, value in record.headers},
    }


def condition_of(text: str) -> tuple[list[str], Any]:
    """A field, by its path, and what it must be.

    >>> condition_of("customer.country=DE"), condition_of("n=3")
    ((['customer', 'country'], 'DE'), (['n'], 3))
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--where {text!r}: FIELD=VALUE, for example country=DE")
    try:
        return name.split("."), json.loads(value)
    except ValueError:
        return name.split("."), value


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
