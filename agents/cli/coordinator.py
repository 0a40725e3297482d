"""`headgate coordinator cat|write JOB`: the coordinator stream, record by record, for people.

`cat` shows every message with who wrote it and when, and what could not be read, with the reason. `write` puts one message in, as it
is given: for repairs, by somebody who knows the law of keys; it shows the message and asks.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import click

from ...core import coordinator as c
from ...core.coordinator_bytes import encode, read
from ..launch import user_name
from ..plainwrite import Plain, put
from ..reading import must_exist
from ..topicscan import scan_topic
from .group import Group, Mistyped
from .options import Target, broker_options, confirmed, run_async, target
from .output import output_option, show_json

TYPES = {kind: message for message, (kind, _) in c.KEYS.items()}


@click.group(cls=Group)
def coordinator() -> None:
    """The stream from which every member derives the same job state."""


@coordinator.command()
@click.argument("job")
@click.option("--type", "kinds", multiple=True, type=click.Choice(sorted(TYPES)), help="Only these messages.")
@click.option("--uncommitted", is_flag=True, help="Also what stands in open or aborted transactions.")
@broker_options
@output_option
def cat(
    job: str,
    kinds: tuple[str, ...],
    uncommitted: bool,
    bootstrap: str,
    pairs: tuple[str, ...],
    config: Path | None,
    output: str,
) -> None:
    """Every message that is in the stream now, oldest first."""
    to = target(job, bootstrap, pairs, config)
    found = run_async(_read(to, set(kinds), not uncommitted))
    if output == "json":
        show_json({"job": str(to.job), "topic": to.topics.coordinator, "messages": found})
        return
    for one in found:
        what = one["problem"] or ("deleted" if one["values"] is None else _short(one["values"]))
        click.echo(f"{one['offset']:>6}  {one['time']}  {one['type'] or '?':<14} {_short(one['key'])}  {what}")
        if one["source"]:
            click.echo(f"        by {one['source']} ({one['username']}@{one['host']})")


async def _read(to: Target, kinds: set[str], committed: bool) -> list[dict[str, Any]]:
    await must_exist(to.client, to.topics)
    found: list[dict[str, Any]] = []
    async for record in scan_topic(to.client, to.topics.coordinator, committed=committed):
        one = entry_document(read(record.offset, record.key, record.value, record.timestamp))
        if not kinds or one["type"] in kinds:
            found.append(one)
    return found


def entry_document(entry: c.Entry) -> dict[str, Any]:
    """One record of the stream as plain values."""
    return {
        "offset": entry.offset,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.append_ms / 1000)),
        "type": entry.key[0] if entry.key is not None else None,
        "key": list(entry.key[1]) if entry.key is not None else [],
        "values": None if entry.message is None else plain(message_values(entry.message)),
        "problem": entry.problem,
        "host": entry.stamp.host,
        "username": entry.stamp.username,
        "source": entry.stamp.source,
    }


def message_values(message: Any) -> dict[str, Any]:
    """The fields of a message."""
    if isinstance(message, c.SetJobModel):
        from ..web.documents import model_document

        return model_document(message.model)
    return {field.name: getattr(message, field.name) for field in fields(message)}


def plain(value: Any) -> Any:
    """Nothing but what JSON knows."""
    if hasattr(value, "__dataclass_fields__"):
        return plain(asdict(value))
    if hasattr(value, "items"):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(one) for one in value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 160 else text[:157] + "…"


@coordinator.command()
@click.argument("job")
@click.argument("kind", metavar="TYPE", type=click.Choice(sorted(TYPES)))
@click.argument("values", metavar="JSON")
@click.option("--delete", is_flag=True, help="Delete the key that these fields make, instead of writing a value.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_options
@output_option
def write(
    job: str,
    kind: str,
    values: str,
    delete: bool,
    yes: bool,
    bootstrap: str,
    pairs: tuple[str, ...],
    config: Path | None,
    output: str,
) -> None:
    """Put one message into the stream, as it is: for repairs. JSON is a map of its fields."""
    to = target(job, bootstrap, pairs, config)
    message = message_of(kind, values)
    run_async(must_exist(to.client, to.topics))
    key = c.key_of(message)
    confirmed(f"This {'deletes' if delete else 'writes'} {kind} {list(key[1])} in {to.topics.coordinator}.", yes)
    offset = run_async(_write(to, message, delete))
    if output == "json":
        show_json({"job": str(to.job), "type": kind, "key": list(key[1]), "offset": offset, "deleted": delete})
    else:
        click.echo(f"written at offset {offset}")


def message_of(kind: str, text: str) -> Any:
    """A message from its fields; raises `Mistyped` for what is none, checked by the bytes that a reader would get."""
    try:
        given = json.loads(text)
        if not isinstance(given, dict):
            raise TypeError("a map of fields is needed")
        if kind == "set-job-model":
            raise TypeError("a job model is made by the leader only")
        known = [field.name for field in fields(TYPES[kind])]
        if strange := [name for name in given if name not in known]:
            raise TypeError(f"there is no field '{strange[0]}'")
        needed = [field.name for field in fields(TYPES[kind]) if field.default is field.default_factory is MISSING]
        if absent := [name for name in needed if name not in given]:
            raise TypeError(f"without {', '.join(absent)}")
        message = TYPES[kind](**{name: _frozen(value) for name, value in given.items()})
        found = read(0, *encode(message))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        names = ", ".join(field.name for field in fields(TYPES[kind]))
        raise Mistyped(f"not a {kind}: {error}", remedy=f"its fields are {names}") from error
    if found.problem:
        raise Mistyped(f"not a {kind}: {found.problem}")
    return message


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


async def _write(to: Target, message: Any, delete: bool) -> int:
    stamp = c.Stamp(socket.gethostname(), user_name(), "headgate coordinator write", int(time.time() * 1000))
    key, value = encode(message, stamp)
    record = Plain(to.topics.coordinator, key, None if delete else value, 0)
    return (await put(to.client, [record]))[0]
