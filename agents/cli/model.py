"""`headgate model JOB` and `headgate seek JOB STREAM[:PARTITION] --to …`: what the leader wants, and where reading goes on."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import click

from ...core import requests as r
from ..asking import Wish
from ..reading import following
from ..web.documents import model_document
from .asks import Asker, asks
from .group import Mistyped
from .options import broker_options, confirmed, run_async, target
from .output import output_option, show_fields, show_json, show_table


@click.command()
@click.argument("job")
@broker_options
@output_option
def model(job: str, bootstrap: str, pairs: tuple[str, ...], config: Path | None, output: str) -> None:
    """Which tasks there are, what each owns, who should run it, and who produces which intermediate stream."""
    to = target(job, bootstrap, pairs, config)

    async def read() -> dict[str, Any]:
        async with following(to.client, to.topics) as stream:
            return {"job": str(to.job), **model_document(stream.job.model)}

    found = run_async(read())
    if output == "json":
        show_json(found)
        return
    show(found)


def show(found: dict[str, Any]) -> None:
    """For people."""
    if found["version"] is None:
        show_fields([("job", found["job"]), ("model", "none yet: the leader makes it when the first run begins")])
        click.echo("To do: `headgate plan MODULE:app` shows what it would be", err=True)
        return
    show_fields(
        [("job", found["job"]), ("model", f"version {found['version']} of term {found['term']}"), ("run", found["run"])]
    )
    click.echo()
    show_table(
        ["TASK", "WANTED", "PARTITIONS"],
        ([t["task"], t["wanted"] or "-", ", ".join(t["partitions"])] for t in found["tasks"]),
    )
    if found["producers"]:
        click.echo()
        show_table(
            ["STREAM", "EPOCH", "PRODUCERS"],
            ([p["stream"], p["epoch"], ", ".join(p["tasks"])] for p in found["producers"]),
        )


@click.command()
@click.argument("job")
@click.argument("place", metavar="STREAM[:PARTITION]")
@click.option(
    "--to", "goal", required=True, metavar="oldest|newest|OFFSET|TIME", help="TIME is ISO, as in 2026-01-31T12:00."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks()
def seek(ask: Asker, place: str, goal: str, yes: bool) -> None:
    """Go on reading an input from another place. What was read stays counted; what is skipped is not read."""
    stream, partition = place_of(place)
    arguments: dict[str, Any] = {"stream": stream, "to": goal_of(goal)}
    if partition is not None:
        arguments["partition"] = partition
    confirmed(f"{ask.to.job} goes on with {place} at {goal}: records between are read again, or skipped.", yes)
    ask(Wish(r.SEEK, arguments=arguments))


def place_of(text: str) -> tuple[str, int | None]:
    """Stream and partition of `orders` or `orders:3`."""
    stream, colon, number = text.rpartition(":")
    if not colon:
        return text, None
    if not number.isdigit():
        raise click.UsageError(f"'{text}' is no STREAM[:PARTITION]")
    return stream, int(number)


def goal_of(text: str) -> str | int | list[Any]:
    """Where a seek goes, in the words of a request."""
    if text in ("oldest", "newest"):
        return text
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Mistyped(
            f"'{text}' is no place to seek to", remedy="oldest, newest, an offset, or a time in ISO form"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return ["time", int(moment.timestamp() * 1000)]
