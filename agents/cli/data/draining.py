"""`headgate drain JOB`: stop reading, finish what was read, and close the run for good.

With `--wait` it ends when the run is over, and says how many records stay parked for the next one. Exit codes: those of `steer.steering`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ....core.coordination import requests as r
from ....core.coordination.metadata import REQUESTS
from ....core.errors import HeadgateError
from ....core.names import JobName
from ...process.cascade import cascade
from ...process.reading import folded, heard, shown
from ...process.requests import Outcome, Request, drains_of, to_withdraw
from ..options import Target, run_async
from ..output import show_json, show_table, show_text, shown_as_json
from ..steer.steering import Asker, asks, outcome_document, run_option, show_outcome, show_parked


@click.command()
@click.argument("job")
@run_option
@click.option("--mode", default=r.DEFAULT_MODE, show_default=True, help="How to drain; there is only `default` so far.")
@click.option("--list", "list_", is_flag=True, help="Only list the drains that are pending or in progress.")
@click.option(
    "--withdraw",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="REQUEST",
    help="Withdraw this pending drain (its id, or the start of it); without REQUEST the only one there is.",
)
@click.option(
    "--cascade",
    "cascade_",
    is_flag=True,
    help="Wait, then drain the jobs that read what this one shares, and so on, each after its producers.",
)
@asks()
def drain(ask: Asker, run_id: str, mode: str, list_: bool, withdraw: str | None, cascade_: bool) -> None:
    """Stop reading, finish everything that was read, and close the run for good.

    Batches and timers are flushed, results are committed, and the workers exit with 0. The next run continues after what was read.
    With `--run-id` you can request the drain before that run has started.
    """
    if sum([list_, withdraw is not None, cascade_]) > 1:
        raise click.UsageError("--list, --withdraw and --cascade exclude each other")
    if cascade_:
        drain_followers(ask, Request(r.DRAIN, run_id, {"mode": mode}))
    elif list_:
        show_drains(ask.to, drains_of(ask.to.folded()), ask.output)
    elif withdraw is not None:
        ask.metadata.remove(REQUESTS, to_withdraw(ask.to.folded(), withdraw, ask.to.job, r.DRAIN))
    else:
        ask(Request(r.DRAIN, run_id, {"mode": mode}), _still_parked if ask.wait else None)


def drain_followers(ask: Asker, request: Request) -> None:
    """Drain the job and those behind it, and show each outcome; the schema of the document is `schemas/drain-cascade.json`. What stays
    parked is looked for when all are drained."""
    drained: list[tuple[Target, Outcome]] = []

    def tell(job: JobName, found: Outcome | None) -> None:
        to = replace(ask.to, job=job, topics=replace(ask.to.topics, job=job))
        if found is not None:
            drained.append((to, found))
        if ask.output == "json":
            return
        if found is not None:
            show_outcome(to, request, found, ask.output)
        else:
            click.echo(f"drain of {shown(job)}: its run is over already")

    to = ask.to
    run_async(cascade(to.client, to.topics, request.arguments, run_id=request.run_id, timeout_s=ask.timeout, tell=tell))
    left = [_still_parked(one) if found.state == "done" else None for one, found in drained]
    documents = [outcome_document(one, request, found, n) for (one, found), n in zip(drained, left, strict=True)]
    if ask.output == "json":
        show_json({"job": str(to.job), "drained": documents})
        return
    for (one, _), parked in zip(drained, left, strict=True):
        show_parked(one, parked)


def show_drains(to: Target, found: list[dict[str, Any]], output: str) -> None:
    """Print the drains, for people or for programs; the schema is `schemas/drain-list.json`."""
    if shown_as_json(output, {"job": str(to.job), "drains": found}):
        return
    show_table(
        ["REQUEST", "WRITTEN", "RUN", "MODE", "BY", "STATE", "DRAINED", "WHY"],
        (
            [
                one["request"], one["written"] or "-", one["run"] or "-", one["mode"], one["by"], one["state"],
                f"{one['done']} of {one['of']} tasks" if one["of"] else "-", one["why"] or "-",
            ]
            for one in found
        ),
        none=f"No drain of {shown(to.job)} is pending or in progress.",
    )  # fmt: skip


def _still_parked(to: Target) -> int | None:
    return run_async(_counted(to))


async def _counted(to: Target) -> int | None:
    """How many records stay parked behind a drain; None if that cannot be read. The tables are read only if a heartbeat of the last seconds
    counts parked records: most jobs have none, and logs are long."""
    from ...job.types.schemas import PARKED
    from .parked import MOST
    from .tables import read_tables

    try:
        hearing = await heard(to.client, to.topics.heartbeat, await folded(to.client, to.topics))
        if not hearing.parks:
            return 0
        return len((await read_tables(to, PARKED, "", "", MOST, True))["rows"])
    except HeadgateError as error:  # the drain is done all the same
        show_text(f"how many records stay parked cannot be read: {error.what}", err=True)
        return None
