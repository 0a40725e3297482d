"""`headgate model JOB`: the job model, as the leader has written it."""

from __future__ import annotations

from typing import Any

import click

from ...process.reading import following
from ...status.documents import whole_model
from ..options import Target, about_job, run_async
from ..output import output_option, show_fields, show_table, shown_as_json


@click.command()
@click.argument("job")
@about_job
@output_option
def model(to: Target, output: str) -> None:
    """Show the tasks, what each owns, which worker should run it, and which tasks produce each intermediate stream."""

    async def read() -> dict[str, Any]:
        async with following(to.client, to.topics) as stream:
            return {"job": str(to.job), **whole_model(stream.job)}

    found = run_async(read())
    if shown_as_json(output, found):
        return
    show(found)


def show(found: dict[str, Any]) -> None:
    """Print the model for people."""
    if found["version"] is None:
        show_fields([("job", found["job"]), ("model", "none yet: the leader creates it when the first run begins")])
        click.echo("To do: `headgate plan MODULE:app` shows what it will be", err=True)
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
    if found["reads"]:
        click.echo()
        show_table(
            ["STREAM", "WRITTEN BY JOBS"], ([stream, ", ".join(jobs)] for stream, jobs in found["reads"].items())
        )
