"""`headgate coordinator cat|write JOB`: the coordinator stream, record by record, for people.

`cat` shows every message with its writer and time, and every unreadable record with the reason. `write` writes what anyone may write: a
request, given by its fields. All other messages have one writer, the leader or the worker that they are about, and every process would
trust a forged one. So they are refused, and the error names the command to use instead.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, fields
from typing import Any

import click

from ....core.coordination import messages as c
from ....core.coordination import requests as r
from ....core.coordination.wire import encode, read
from ....core.errors import HeadgateError
from ...kafka.scan import scan_topic
from ...process.reading import must_exist, shown
from ...process.requests import Request
from ..group import Group, Mistyped
from ..options import Target, about_job, confirmed, run_async, yes_option
from ..output import output_option, show_text, shown_as_json
from .steering import Asker, asks

TYPES = {kind: message for message, (kind, _) in c.KEYS.items()}


@click.group(cls=Group)
def coordinator() -> None:
    """Show the coordinator stream, from which every member derives the same job state."""


@coordinator.command()
@click.argument("job")
@click.option("--type", "kinds", multiple=True, type=click.Choice(sorted(TYPES)), help="Only messages of this type.")
@click.option("--uncommitted", is_flag=True, help="Include open and aborted transactions.")
@about_job
@output_option
def cat(to: Target, kinds: tuple[str, ...], uncommitted: bool, output: str) -> None:
    """Show all messages in the stream, oldest first."""
    found = run_async(_read(to, set(kinds), not uncommitted))
    if shown_as_json(output, {"job": str(to.job), "topic": to.topics.coordinator, "messages": found}):
        return
    for one in found:
        what = one["problem"] or ("deleted" if one["values"] is None else _short(one["values"]))
        show_text(f"{one['offset']:>6}  {one['time']}  {one['type'] or '?':<14} {_short(one['key'])}  {what}")
        if one["source"]:
            show_text(f"        by {one['source']} ({one['username']}@{one['host']})")


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
        from ...status.documents import model_document

        return model_document(message.model)
    return {field.name: getattr(message, field.name) for field in fields(message)}


def plain(value: Any) -> Any:
    """A value made of JSON's types only."""
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
@click.option("--delete", is_flag=True, help="Remove the override that this set-config names.")
@yes_option
@asks(wait=True)
def write(ask: Asker, kind: str, values: str, delete: bool, yes: bool) -> None:
    """Write a request to the stream as JSON, a map of its fields. The leader checks and answers it.

    TYPE is set-request, or set-config for the request that sets an override. Only the leader and the workers write other messages.
    """
    request = request_of(kind, values, delete=delete)
    confirmed(f"This asks {shown(ask.to.job)} for: {request.verb} {_short(plain(request.arguments))}", yes)
    ask(request)


INSTEAD = {
    "set-run": "`headgate start`, `stop`, `drain`, `pause` and `resume` change the run",
    "set-grant": "`headgate move` gives a task to another worker",
    "set-job-model": "`headgate move` gives a task to another worker",
    "set-member": "`headgate stop JOB --worker P` takes a worker out",
    "set-fence": "`headgate stop JOB --worker P` takes a worker out",
    "set-leader": "stop the worker that leads; another one takes over",
    "set-processor": "a worker writes it when it comes and when it goes",
    "set-letters": "the worker that holds the task writes it; a mark without a crash has no effect",
    "set-task-state": "the worker that holds the task writes it",
    "set-changelog": "it is written once, and never changes",
    "set-answer": "`headgate requests withdraw` ends a request that waits",
}
"""The commands that do what a user may have intended with such a message."""


def request_of(kind: str, text: str, *, delete: bool = False) -> Request:
    """The request with these fields. Raises `Mistyped` if they do not form one."""
    if kind in INSTEAD:
        raise Mistyped(f"{kind} cannot be written by hand, because all workers would trust it", remedy=INSTEAD[kind])
    allowed = ("setting", "value") if kind == "set-config" else ("verb", "run_id", "arguments")
    try:
        given = json.loads(text)
        if not isinstance(given, dict):
            raise TypeError("a map of fields is needed")
        if strange := [name for name in given if name not in allowed]:
            raise TypeError(f"there is no field '{strange[0]}'")
        if kind == "set-config":
            arguments = {"setting": given["setting"]} if delete else {name: given[name] for name in allowed}
            made = c.SetRequest("", r.UNSET_CONFIG if delete else r.SET_CONFIG, arguments=arguments)
        else:
            if delete:
                raise TypeError("`headgate requests withdraw` takes a request back")
            made = c.SetRequest("", given["verb"], given.get("run_id", ""), given.get("arguments", {}))
        wrong = read(0, *encode(made)).problem or r.problem(made)
    except KeyError as error:
        raise Mistyped(f"not a {kind}: without {error}", remedy=f"its fields are {', '.join(allowed)}") from error
    except (TypeError, ValueError, AttributeError, HeadgateError) as error:
        raise Mistyped(f"not a {kind}: {error}", remedy=f"its fields are {', '.join(allowed)}") from error
    if wrong:
        raise Mistyped(f"not a {kind}: {wrong}", remedy=f"its fields are {', '.join(allowed)}")
    r.refuse_secrets(made)
    return Request.of(made)
