"""`headgate parked JOB`: the records that wait because a step failed on them, or on an earlier one of their key; also while the job runs.

They are the rows of the table `hg.parked`: the workers that run the tasks are asked, or, where none answers, the task log is read. Exit
codes: 0, or 4 if the job, the task or the key does not exist. `release`, `skip` and `export` are verbs of it.
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Any

import click

from ....core.names import natural
from ...job.types.schemas import PARKED
from ...process.reading import folded, shown
from ..group import WithVerbs
from ..options import Target, about_job, run_async
from ..output import age, output_option, show_table, show_text, shown_as_json
from ..pages import token_option
from .tables import read_tables

WIDEST = 60
"""Of a key and a reason in a table."""
MOST = 10_000
"""How many records a worker gives in one answer."""


class ParkedCommand(WithVerbs):
    """Shows parked records; its verbs release, skip and export them."""

    verbs = MappingProxyType(
        {
            "release": "data.unparking:release",
            "skip": "data.unparking:skip",
            "export": "data.parked_export:export",
        }
    )


@click.command(cls=ParkedCommand)
@click.argument("job")
@click.option("--task", default="", metavar="TASK", help="Only the records of this task.")
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=100, show_default=True, help="Maximum number of records."
)
@click.option("--from-log", is_flag=True, help="Read the task log instead of asking the workers.")
@token_option
@about_job
@output_option
def parked(to: Target, task: str, limit: int, from_log: bool, output: str) -> None:
    """Show the parked records of a job: where each came from, and of the first one of a key why it failed and when it is tried again."""
    found = run_async(read_tables(to, PARKED, "", task, limit, from_log))
    rows = [record_of(row) for row in found["rows"]]
    if shown_as_json(output, {"job": str(to.job), "records": rows, "more": found["more"]}):
        return
    if not rows:
        show_text(f"no record of {to.job} is parked")
        return
    now_ms = time.time() * 1000
    stray_tasks(to, found["rows"])
    show_table(["TASK", "RECORD", "KEY", "SINCE", "TRIES", "TRIED IN", "WHY"], [_line(one, now_ms) for one in rows])
    if found["more"]:
        click.echo(f"… more than {limit} records; see --limit", err=True)


def stray_tasks(to: Target, rows: list[dict[str, Any]]) -> frozenset[str]:
    """The tasks of these rows that the job does not have now, which is said: it reads fewer partitions. It is also said of which
    streams nothing is read any more, for what is parked of them is not tried."""
    model = run_async(folded(to.client, to.topics)).model
    if model is None:
        return frozenset()
    strays = frozenset(row["task"] for row in rows) - model.tasks.keys()
    for stream in sorted({row["value"]["stream"] for row in rows if row["task"] not in strays} - model.streams.keys()):
        count = sum(row["value"]["stream"] == stream for row in rows)
        show_text(
            f"Note: the job does not read {stream} any more: what is parked of it ({count}) is not tried until it does. "
            f"`headgate parked skip {shown(to.job)} … --all` leaves it out",
            err=True,
        )
    for task in sorted(strays, key=natural):
        count = sum(row["task"] == task for row in rows)
        show_text(
            f"Note: the job does not have the task '{task}' any more, since it reads fewer partitions: what is parked there ({count}) "
            f"waits until it has it again. `headgate parked export {shown(to.job)} '{task}'` prints it",
            err=True,
        )
    return strays


def record_of(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table as a record, with its task."""
    return {"task": row["task"], **row["value"]}


def place_of_record(one: dict[str, Any]) -> str:
    """Where a record came from: stream, partition, offset, and its row if it came in a frame."""
    row = "" if one["row"] is None else f".{one['row']}"
    return f"{one['stream']}:{one['partition']}:{one['offset']}{row}"


def chosen(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The rows with this key, or, if it is the place of a record, that record; all without a key."""
    return [row for row in rows if not key or key in (row["value"]["key"], place_of_record(row["value"]))]


def _line(one: dict[str, Any], now_ms: float) -> list[Any]:
    key = "" if one["key"] is None else one["key"][:WIDEST]
    own = [one["task"], place_of_record(one), key, age(max(0.0, (now_ms - one["since"]) / 1000))]
    if "why" not in one:
        return [*own, "", "", "behind the one before"]
    return [*own, one["tries"], age(max(0.0, (one["due"] - now_ms) / 1000)), one["why"][:WIDEST]]
