"""`headgate watch JOB`: shows the status repeatedly until Ctrl-C; as JSON, one document on each line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import click

from ...process.reading import following, heard
from ..options import Duration, Target, about_job, run_async
from ..output import output_option
from .status import document, show


@click.command()
@click.argument("job")
@click.option(
    "--every", type=Duration(), default="2s", show_default=True, metavar="TIME", help="Time between two updates."
)
@click.option("--times", type=click.IntRange(1), help="Stop after this many updates.")
@about_job
@output_option
def watch(to: Target, every: float, times: int | None, output: str) -> None:
    """Show the status repeatedly, until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the normal way to end it
        run_async(_watch(to, every, times, output))


async def _watch(to: Target, every: float, times: int | None, output: str) -> None:
    shown = 0
    async with following(to.client, to.topics) as stream:
        while times is None or shown < times:
            due = time.monotonic() + every
            beats = await heard(to.client, to.topics.heartbeat, stream.job)
            found = document(to, await stream.to_end(), beats)
            shown += 1
            if output == "json":
                click.echo(json.dumps(found, default=str))
            else:
                click.clear()
                click.echo(time.strftime("%H:%M:%S") + "  Ctrl-C exits\n")
                show(found)
            if times is None or shown < times:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
