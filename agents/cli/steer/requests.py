"""`headgate requests list|withdraw JOB`: the pending requests of a job, and how to withdraw one.

A request that is not accepted yet, or a seek that no task has applied, can be withdrawn; one that is being carried out cannot. The leader
withdraws it, so without a running worker the withdrawal waits too, and is handled first when a worker starts.
"""

from __future__ import annotations

from typing import Any

import click

from ....core.coordination.metadata import REQUESTS
from ....core.coordination.state import JobState
from ...process.reading import shown
from ...process.requests import pending, to_withdraw
from ..group import Group
from ..options import Target, about_job
from ..output import output_option, show_table, shown_as_json
from .coordinator import plain
from .steering import Asker, asks


@click.group(cls=Group)
def requests() -> None:
    """Show pending requests of a job, and withdraw them."""


@requests.command(name="list")
@click.argument("job")
@about_job
@output_option
def list_(to: Target, output: str) -> None:
    """List all requests without a final answer, oldest first."""
    found = waiting(to.folded())
    if shown_as_json(output, {"job": str(to.job), "requests": found}):
        return
    show_table(
        ["REQUEST", "WRITTEN", "EXPIRES", "VERB", "ARGUMENTS", "RUN", "BY", "STATE"],
        (
            [
                o["request"], o["written"], o["expires"] or "-", o["verb"],
                " ".join(f"{name}={value}" for name, value in o["arguments"].items()) or "-",
                o["run"] or "-", o["by"], o["state"],
            ]
            for o in found
        ),
        none=f"No request of {shown(to.job)} is pending.",
    )  # fmt: skip


def waiting(state: JobState) -> list[dict[str, Any]]:
    """The requests without a final answer, as plain values."""
    return [{**one, "arguments": plain(one["arguments"])} for one in pending(state)]


@requests.command()
@click.argument("job")
@click.argument("request")
@asks(wait=True)
def withdraw(ask: Asker, request: str) -> None:
    """Withdraw a pending request. REQUEST is its id, or the start of it."""
    ask.metadata.remove(REQUESTS, to_withdraw(ask.to.folded(), request, ask.to.job))
