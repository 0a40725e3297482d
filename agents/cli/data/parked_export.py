"""`headgate parked export JOB [TASK] [KEY]`: the parked records of a job as lines of JSON. It changes nothing, and the job goes on.

Promise: what is exported is what was committed at one moment of each task. Bytes that are no text are hexadecimal digits behind `0x`,
and no text begins so.
"""

from __future__ import annotations

import json

import click

from ....core.errors import NotFound
from ...job.types.schemas import PARKED
from ..options import Target, about_job, run_async
from ..pages import token_option
from .parked import MOST, chosen, record_of
from .tables import read_tables

ALL = 1 << 40
"""A limit that no task log reaches."""


@click.command()
@click.argument("job")
@click.argument("task", required=False, default="")
@click.argument("key", required=False, default="")
@click.option("--from-log", is_flag=True, help="Read the task log instead of asking the workers.")
@token_option
@about_job
def export(to: Target, task: str, key: str, from_log: bool) -> None:
    """Write parked records as lines of JSON: key, value, headers, times, why they wait, how often they were tried. They stay parked.

    KEY is a key, or the place of a record, as `headgate parked` shows them.
    """
    found = run_async(read_tables(to, PARKED, "", task, ALL if from_log else MOST, from_log))
    if found["more"]:  # more than workers give in one answer
        found = run_async(read_tables(to, PARKED, "", task, ALL, True))
    rows = chosen(found["rows"], key)
    if key and not rows:
        raise NotFound(
            f"no record of {to.job} with the key or place '{key}' is parked", remedy=f"headgate parked {to.job}"
        )
    for row in rows:
        click.echo(json.dumps(record_of(row), ensure_ascii=False))
