"""`headgate requests list|withdraw JOB`: the pending requests of a job, and how to withdraw one.

A request that is not accepted yet, or a seek that no task has applied, can be withdrawn; one that is being carried out cannot. The leader
withdraws it, so without a running worker the withdrawal waits too, and is handled first when a worker starts.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ...core.coordination import requests as r
from ...core.coordination.metadata import REQUESTS, open_requests
from ...core.coordination.state import JobState
from ...core.errors import NotFound
from ...core.settings import offer
from ..process.reading import shown
from ..process.requests import wall_ms
from .coordinator import plain
from .group import Group
from .options import broker_options, target
from .output import output_option, show_json, show_table
from .steering import Asker, asks


@click.group(cls=Group)
def requests() -> None:
    """Show pending requests of a job, and withdraw them."""


@requests.command(name="list")
@click.argument("job")
@broker_options
@output_option
def list_(job: str, bootstrap: str, pairs: tuple[str, ...], config: Path | None, output: str) -> None:
    """List all requests without a final answer, oldest first."""
    to = target(job, bootstrap, pairs, config)
    found = waiting(to.folded())
    if output == "json":
        show_json({"job": str(to.job), "requests": found})
        return
    show_table(
        ["REQUEST", "WRITTEN", "VERB", "ARGUMENTS", "RUN", "BY", "STATE"],
        (
            [
                o["request"], o["written"], o["verb"],
                " ".join(f"{name}={value}" for name, value in o["arguments"].items()) or "-",
                o["run"] or "-", o["by"], o["state"],
            ]
            for o in found
        ),
    )  # fmt: skip


def waiting(state: JobState) -> list[dict[str, Any]]:
    """The requests without a final answer, as plain values."""
    return [
        {
            **{name: one[name] for name in ("request", "verb", "run", "by", "state", "why")},
            "arguments": plain(one["arguments"]),
            "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one["written_ms"] / 1000)),
        }
        for one in open_requests(state, wall_ms())
    ]


@requests.command()
@click.argument("job")
@click.argument("request")
@asks(wait=True)
def withdraw(ask: Asker, request: str) -> None:
    """Withdraw a pending request. REQUEST is its id, or the start of it."""
    ids = [one["request"] for one in waiting(ask.to.folded()) if one["verb"] != r.WITHDRAW]
    meant = [one for one in ids if one.startswith(request)]
    if len(meant) != 1:
        raise NotFound(
            f"{len(meant) or 'no'} request{'s' * (len(meant) > 1)} of '{shown(ask.to.job)}' that wait{'s' * (not meant)} "
            f"begin{'s' * (not meant)} with '{request}'",
            remedy=offer(request, ids) or "no request is pending",
        )
    ask.metadata.remove(REQUESTS, meant[0])
