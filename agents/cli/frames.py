"""`headgate frames cat TOPIC`: an intermediate stream for people, with decoded control messages.

Each Kafka record is one line: its position, its type and its content. A record that is no frame is shown with the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...core.progress.frames import ArrowFrame, BatchFrame, Drain, EndOfStream, FrameError, UserFrame, Watermark, decode
from ..kafka.scan import scan_topic
from ..process.configuration import CommandLine
from ..state.scan import guess, guess_key
from ..status.documents import time_of
from .group import Group
from .options import broker_options, configured, run_async
from .output import as_typed, output_option, show_json


@click.group(cls=Group)
def frames() -> None:
    """Show what is sent between the stages of a job."""


@frames.command()
@click.argument("topic")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--first", type=click.IntRange(0), metavar="OFFSET", help="Start at this offset.")
@click.option("--last", type=click.IntRange(0), metavar="N", help="Only the last N records of each partition.")
@click.option("--control", is_flag=True, help="Only control messages.")
@click.option("--uncommitted", is_flag=True, help="Include open and aborted transactions.")
@broker_options
@output_option
def cat(
    topic: str,
    partition: int | None,
    first: int | None,
    last: int | None,
    control: bool,
    uncommitted: bool,
    bootstrap: str,
    pairs: tuple[str, ...],
    config: Path | None,
    output: str,
) -> None:
    """Show all frames in a topic."""
    client = configured(CommandLine(bootstrap, pairs, config)).client

    async def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        good = bad = 0
        async for record in scan_topic(
            client, topic, partition=partition, first=first, last=last, committed=not uncommitted
        ):
            one = frame_document(record.partition, record.offset, record.key, record.value)
            good, bad = good + (one["type"] != "bad"), bad + (one["type"] == "bad")
            if control and one["type"] not in ("watermark", "end", "drain"):
                continue
            if output == "json":
                found.append(one)
            else:
                click.echo(line(one))
        if bad and not good:
            told = f"Note: no record of '{topic}' is a frame; `headgate model JOB` lists the intermediate streams"
            click.echo(told, err=True)
        return found

    found = run_async(read())
    if output == "json":
        show_json({"topic": topic, "frames": found})


def frame_document(partition: int, offset: int, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """One record of an intermediate stream as plain values."""
    front: dict[str, Any] = {"partition": partition, "offset": offset}
    if value is None:
        return {**front, "type": "bad", "problem": "no value"}
    try:
        frame = decode(value)
    except FrameError as error:
        return {**front, "type": "bad", "problem": error.reason}
    match frame:
        case UserFrame(body):
            return {**front, "type": "record", "key": _key(key), "value": guess(body)}
        case Watermark():
            return {**front, "type": "watermark", **_said(frame), "ts": time_of(frame.ts), "idle": frame.idle}
        case EndOfStream():
            return {**front, "type": "end", **_said(frame)}
        case Drain():
            return {**front, "type": "drain", **_said(frame), "drain": frame.id}
        case BatchFrame():
            return {**front, "type": "batch", "records": len(frame.values), "bytes": len(value)}
        case ArrowFrame():
            return {**front, "type": "arrow", "bytes": len(value)}


def _key(key: bytes | None) -> Any:
    return None if key is None else guess_key(key)


def _said(frame: Any) -> dict[str, Any]:
    return {"job": frame.job, "run": frame.run, "task": frame.task, "tasks": frame.tasks, "epoch": frame.epoch}


def line(one: dict[str, Any]) -> str:
    """One frame as a line."""
    front = f"[{one['partition']}] {one['offset']:>8}  {one['type']:<9}"
    if one["type"] == "record":
        return f"{front} {as_typed(one['key'])}  {one['value']}"
    rest = "  ".join(f"{name}={value}" for name, value in one.items() if name not in ("partition", "offset", "type"))
    return f"{front} {rest}"
