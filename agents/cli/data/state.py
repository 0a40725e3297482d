"""`headgate state export JOB TABLE`: all rows of a table of a running job, as Parquet or JSON lines, at one commit of each task."""

from __future__ import annotations

from pathlib import Path

import click

from ...process.exporting import FORMATS, ExportedTask, export
from ..group import Group
from ..options import Duration, Target, about_job, run_async
from ..output import output_option, show_json, show_text
from ..pages import token_option


@click.group(cls=Group)
def state() -> None:
    """Export tables of a job while it runs."""


@state.command(name="export")
@click.argument("job")
@click.argument("table")
@click.option(
    "--to",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A directory that does not exist yet: a file for each task, and _export.json with the commits.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="parquet", show_default=True)
@click.option(
    "--timeout",
    type=Duration(),
    default="1m",
    show_default=True,
    metavar="TIME",
    help="How long to wait for a task that moves, restores, or whose worker has died.",
)
@token_option
@about_job
@output_option
def export_table(to: Target, table: str, directory: Path, form: str, timeout: float, output: str) -> None:
    """Write all rows of a table into files, while the job runs.

    The rows of each task are those of one of its commits; nothing is stopped. The workers of the tasks must be reachable."""

    def reported(one: ExportedTask) -> None:
        click.echo(f"{one.task}: {one.rows} rows of commit {one.commit}, from {one.worker}", err=True)

    token = str(to.configuration.value("web.token"))
    work = export(to.client, to.topics, table, directory, form=form, token=token, timeout_s=timeout, report=reported)
    found = run_async(work)
    if output == "json":
        show_json({**found, "directory": str(directory)})
    else:
        show_text(f"{found['rows']} rows of {table} in {directory}")
