"""`headgate frames cat TOPIC`: an intermediate stream for people, everything decoded.

Each Kafka record is a frame: where it stands, what it is, and what is in it, down to the single rows. A record that is no frame is shown
with the reason. With `-f` it goes on behind the end of the topic; as JSON it is one document a line then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from ....core.progress.came_from import ROWS_HEADER, came_from
from ....core.progress.frames import (
    FROM_HEADER,
    HEADER,
    TYPE_NAMES,
    ArrowFrame,
    BatchFrame,
    Drain,
    EndOfStream,
    FrameError,
    UserFrame,
    Watermark,
    decode,
    said_of,
)
from ...kafka.scan import scan_topic
from ...process.configuration import CommandLine
from ...records.frames.arrow_rows import plain_rows
from ...state.scan import guess, guess_key
from ...status.documents import time_of
from ..group import Group
from ..options import broker_options, configured, run_async
from ..output import as_typed, output_option, plain, said_left_out, show_json, show_text

BAD = "bad"
CONTROL = TYPE_NAMES[1:4]


@click.group(cls=Group)
def frames() -> None:
    """Show what is sent between the stages of a job."""


@frames.command()
@click.argument("topic")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--first", type=click.IntRange(0), metavar="OFFSET", help="Start at this offset.")
@click.option("--last", type=click.IntRange(0), metavar="N", help="Only the last N records of each partition.")
@click.option("--type", "kinds", multiple=True, type=click.Choice([*TYPE_NAMES, BAD]), help="Only frames of this type.")
@click.option("--control", is_flag=True, help="Only control messages.")
@click.option("-f", "--follow", is_flag=True, help="Do not stop at the end of the topic.")
@click.option("--uncommitted", is_flag=True, help="Include open and aborted transactions.")
@broker_options
@output_option
def cat(
    topic: str,
    partition: int | None,
    first: int | None,
    last: int | None,
    kinds: tuple[str, ...],
    control: bool,
    follow: bool,
    uncommitted: bool,
    said: CommandLine,
    output: str,
) -> None:
    """Show all frames in a topic, with the records in them."""
    client = configured(said).client
    wanted = {*kinds, *(CONTROL if control else ())} or {*TYPE_NAMES, BAD}

    async def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        good = bad = shown = 0
        async for record in scan_topic(
            client,
            topic,
            partition=partition,
            first=first,
            last=last,
            committed=not uncommitted,
            follow=follow,
            left_out=said_left_out,
        ):
            one = frame_document(record)
            good, bad = good + (one["type"] != BAD), bad + (one["type"] == BAD)
            if one["type"] not in wanted:
                continue
            shown += 1
            if output != "json":
                show_text("\n".join(map(plain, lines(one))))
            elif follow:
                click.echo(json.dumps({"topic": topic, "frames": [one]}, default=str))
            else:
                found.append(one)
        if bad and not good:
            note = f"Note: no record of '{topic}' is a frame; `headgate model JOB` lists the intermediate streams"
            click.echo(note, err=True)
        elif not good:
            click.echo(f"Note: '{topic}' has no record there", err=True)
        elif not shown:
            click.echo(f"Note: there are {good + bad} records, but none of these types", err=True)
        return found

    found = run_async(read())
    if output == "json":
        show_json({"topic": topic, "frames": found})


def frame_document(record: Any) -> dict[str, Any]:
    """One record of an intermediate stream as plain values."""
    front: dict[str, Any] = {"partition": record.partition, "offset": record.offset}
    if record.value is None:
        return {**front, "type": BAD, "problem": "no value"}
    try:
        frame = decode(record.value)
        rows = plain_rows(frame) if isinstance(frame, ArrowFrame) else None
    except FrameError as error:
        return {**front, "type": BAD, "problem": error.reason}
    front["type"] = TYPE_NAMES[record.value[0]]
    if isinstance(frame, Watermark):
        return {**front, **_said(frame), "ts": time_of(frame.ts), "idle": frame.idle, "away": frame.away}
    if isinstance(frame, EndOfStream):
        return {**front, **_said(frame), "left": frame.left}
    if isinstance(frame, Drain):
        return {**front, **_said(frame), "drain": frame.id}
    if isinstance(frame, UserFrame):
        own = [one for one in record.headers if one[0] != HEADER]
        return {**front, **_rows(None, [record.key], [record.timestamp], [frame.body], [own])}
    if isinstance(frame, BatchFrame):
        found = _rows(frame.plan, frame.keys, frame.timestamps, frame.values, frame.headers)
        return {**front, **_made_of(record, found), **found}
    assert rows is not None
    found = _rows(frame.plan, rows.keys, rows.timestamps, rows.values, rows.headers)
    return {**front, **_made_of(record, found), "schema": frame.schema, **found}


def _made_of(record: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The records that the rows of a frame were made of, if its writer says it; each row also gets its own, if that is known."""
    headers = dict(record.headers)
    said, distances = said_of(headers.get(FROM_HEADER)), headers.get(ROWS_HEADER)
    for number, row in enumerate(found["rows"] if said and distances is not None else ()):
        row["from"] = came_from(said, distances, number)
    return {"from": said} if said else {}


def _rows(
    plan: int | None,
    keys: Sequence[bytes | None],
    timestamps: Sequence[int],
    values: Sequence[Any],
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None,
) -> dict[str, Any]:
    """The records of a frame, and what they are: rows, or partial states of an aggregate with this digest."""
    kind = {"kind": "rows"} if plan is None else {"kind": "partial states", "plan": plan}
    columns = zip(keys, timestamps, values, headers or [()] * len(keys), strict=True)
    rows = [
        {
            "key": None if key is None else guess_key(key),
            "timestamp": time_of(at),
            "value": _read(value),
            "headers": [[name, _read(content)] for name, content in pairs],
        }
        for key, at, value, pairs in columns
    ]
    return {**kind, "records": len(rows), "rows": rows}


def _read(value: Any) -> Any:
    """Bytes as what they probably are; in columns also those within a value."""
    if isinstance(value, bytes):
        return guess(value)
    if isinstance(value, dict):
        return {name: _read(one) for name, one in value.items()}
    return [_read(one) for one in value] if isinstance(value, list) else value


def _said(frame: Any) -> dict[str, Any]:
    return {"job": frame.job, "run": frame.run, "task": frame.task, "tasks": frame.tasks, "epoch": frame.epoch}


def lines(one: dict[str, Any]) -> list[str]:
    """One frame: a line of its own, and one for each row."""
    front = f"[{one['partition']}] {one['offset']:>8}  {one['type']:<13}"
    known = ("partition", "offset", "type", "rows")
    said = "  ".join(f"{name}={value}" for name, value in one.items() if name not in known)
    return [f"{front} {said}", *map(_row, one.get("rows", ()))]


def _row(row: dict[str, Any]) -> str:
    headers = "  ".join(f"{name}={value}" for name, value in row["headers"])
    return f"{'':14}{row['timestamp']}  {as_typed(row['key'])}  {row['value']}{'  ' if headers else ''}{headers}"
