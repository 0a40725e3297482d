"""`headgate parked JOB`: the records that wait because a step failed on them, or on an earlier one of their key; also while the job runs.

They are the rows of the table `hg.parked`: the workers that run the tasks are asked, or, where none answers, the task log is read. Exit
codes: 0, or 4 if the job or the task does not exist.
"""

from __future__ import annotations

import time
from typing import Any

import click

from ...job.types.schemas import PARKED
from ..options import Target, about_job, run_async
from ..output import age, output_option, show_table, show_text, shown_as_json
from ..pages import token_option
from .tables import read_tables

WIDEST = 60
"""Of a key and a reason in a table."""


@click.command()
@click.argument("job")
@click.option("--task", default="", metavar="TASK", help="Only the records of this task.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of records."
)
@click.option("--from-log", is_flag=True, help="Read the task log instead of asking the workers.")
@token_option
@about_job
@output_option
def parked(to: Target, task: str, limit: int, from_log: bool, output: str) -> None:
    """Show the parked records of a job: where each came from, and of the first one of a key why it failed and when it is tried again."""
    found = run_async(read_tables(to, PARKED, "", task, limit, from_log))
    rows = [{"task": row["task"], **row["value"]} for row in found["rows"]]
    if shown_as_json(output, {"job": str(to.job), "records": rows, "more": found["more"]}):
        return
    if not rows:
        show_text(f"no record of {to.job} is parked")
        return
    now_ms = time.time() * 1000
    show_table(["TASK", "RECORD", "KEY", "SINCE", "TRIES", "TRIED IN", "WHY"], [_line(one, now_ms) for one in rows])
    if found["more"]:
        click.echo(f"… more than {limit} records; see --limit", err=True)


def _line(one: dict[str, Any], now_ms: float) -> list[Any]:
    row = "" if one["row"] is None else f".{one['row']}"
    where = f"{one['stream']}:{one['partition']}:{one['offset']}{row}"
    key = "" if one["key"] is None else one["key"][:WIDEST]
    own = [one["task"], where, key, age(max(0.0, (now_ms - one["since"]) / 1000))]
    if "why" not in one:
        return [*own, "", "", "behind the one before"]
    return [*own, one["tries"], age(max(0.0, (one["due"] - now_ms) / 1000)), one["why"][:WIDEST]]
