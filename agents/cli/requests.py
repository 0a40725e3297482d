"""`headgate requests list|withdraw JOB`: what was asked of a job and has no final answer yet, and how it is taken back.

A wish that nobody has taken up, or a seek that no task has applied, can be withdrawn; what is under way cannot. The leader does it, so
where no worker lives the withdrawal waits as well, and comes first when one begins.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ...core.coordination import requests as r
from ...core.coordination.state import JobState
from ...core.errors import NotFound
from ...core.settings import offer
from ..asking import Wish
from ..reading import following, heard, shown
from .asks import Asker, asks
from .coordinator import plain
from .group import Group
from .options import Target, broker_options, run_async, target
from .output import output_option, show_json, show_table


@click.group(cls=Group)
def requests() -> None:
    """What was asked of a job and waits."""


@requests.command(name="list")
@click.argument("job")
@broker_options
@output_option
def list_(job: str, bootstrap: str, pairs: tuple[str, ...], config: Path | None, output: str) -> None:
    """Every request without a final answer, oldest first."""
    to = target(job, bootstrap, pairs, config)
    found = run_async(_open(to))[0]
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


async def _open(to: Target) -> tuple[list[dict[str, Any]], bool]:
    """The open requests, and whether anybody is there to answer."""
    async with following(to.client, to.topics) as stream:
        beats = await heard(to.client, to.topics.heartbeat, stream.job)
        await stream.to_end()
        return waiting(stream.job), bool(beats.present(stream.job))


def waiting(state: JobState) -> list[dict[str, Any]]:
    """The requests that have no final answer, as plain values."""
    now_ms, rows = int(time.time() * 1000), list[dict[str, Any]]()
    for wish in state.open_requests():
        answer = state.answer(wish.uuid)
        void = r.expired(wish, answer, now_ms)
        written = state.at["set-request", (wish.uuid,)][1] / 1000
        rows.append(
            {
                "request": wish.uuid,
                "verb": wish.verb,
                "arguments": plain(wish.arguments),
                "run": wish.run_id or None,
                "by": wish.requested_by,
                "state": r.EXPIRED if void else "written" if answer is None else answer.state,
                "why": "" if answer is None else answer.why,
                "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written)),
            }
        )
    return rows


@requests.command()
@click.argument("job")
@click.argument("request")
@asks(wait=True)
def withdraw(ask: Asker, request: str) -> None:
    """Take a request back that waits. REQUEST is its id, or the beginning of it."""
    found, alive = run_async(_open(ask.to))
    ids = [one["request"] for one in found if one["verb"] != r.WITHDRAW]
    meant = [one for one in ids if one.startswith(request)]
    if len(meant) != 1:
        raise NotFound(
            f"{len(meant) or 'no'} request{'s' * (len(meant) > 1)} of '{shown(ask.to.job)}' that wait{'s' * (not meant)} "
            f"begin{'s' * (not meant)} with '{request}'",
            remedy=offer(request, ids) or "none waits",
        )
    wish = Wish(
        r.WITHDRAW, arguments={"request": meant[0]}, lasting=not alive, waits="" if alive else "it waits for a worker"
    )
    if alive:
        ask(wish)
    else:  # nobody is there to answer; it is the first thing that is done when somebody is
        Asker(ask.to, False, ask.timeout, ask.output)(wish)
