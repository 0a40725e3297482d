"""`headgate parked release|skip JOB [TASK] [KEY]`: try parked records now, or leave them out, also while the job runs.

Both are requests, which the tasks carry out once. They name records by their numbers, as they were when this was asked: what is parked
later is not left out. A skip cannot be undone, so the command shows the records first.
"""

from __future__ import annotations

from typing import Any

import click

from ....core.coordination import requests as r
from ....core.errors import NotFound
from ....core.names import natural
from ...job.types.schemas import PARKED
from ...process.reading import shown
from ...process.requests import Request
from ..options import confirmed, run_async, yes_option
from ..pages import token_option
from ..steer.steering import Asker, asks
from .parked import MOST, chosen, place_of_record, stray_tasks
from .tables import read_tables

SHOWN = 20
"""How many records a plan names."""
Rows = list[dict[str, Any]]


@click.command()
@click.argument("job")
@click.argument("task", required=False, default="")
@click.argument("key", required=False, default="")
@token_option
@asks(wait=True)
def release(ask: Asker, task: str, key: str) -> None:
    """Try parked records now, without waiting for their time: those of a key, of a task, or all. It counts as a try.

    KEY is a key, or the place of a record, as `headgate parked` shows them.
    """
    rows = _found(ask, task, key)
    firsts = _by_key(rows)
    picks: dict[str, list[list[int | None]]] = {}
    for (of_task, *_), some in firsts.items():
        if key:
            picks.setdefault(of_task, []).append([some[0]["key"], None])
        else:
            picks[of_task] = [[None, None]]
    ask(Request(r.RELEASE_PARKED, arguments={"tasks": picks}))


@click.command()
@click.argument("job")
@click.argument("task", required=False, default="")
@click.argument("key", required=False, default="")
@click.option(
    "--all", "every", is_flag=True, help="All parked records of the key; without KEY those of the task or the job."
)
@token_option
@yes_option
@asks(wait=True)
def skip(ask: Asker, task: str, key: str, every: bool, yes: bool) -> None:
    """Leave out the first parked record of a key for good; those behind it go on. With `--all`, leave out all of them.

    They are counted as skipped, and the log of the worker names each of them. `headgate parked export` keeps them first.
    KEY is a key, or the place of a record, as `headgate parked` shows them.
    """
    if not key and not every:
        raise click.UsageError("name the KEY, or give --all to leave out all parked records")
    rows = _found(ask, task, key)
    picks: dict[str, list[list[int | None]]] = {}
    lost: Rows = []
    for (of_task, *_), some in _by_key(rows).items():
        some = some if every else some[:1]
        lost += some
        upto = some[-1]["key"]
        if key:
            picks.setdefault(of_task, []).append([some[0]["key"], upto])
        else:
            before = picks.get(of_task, [[None, upto]])[0][1]
            picks[of_task] = [[None, max(before or 0, upto)]]
    lines = [f"{shown(ask.to.job)} leaves out {len(lost)} parked record{'s' if len(lost) > 1 else ''}:"]
    lines += [
        f"  {one['task']}: {place_of_record(one['value'])} key {one['value']['key']!r:.60}" for one in lost[:SHOWN]
    ]
    lines += [f"  … and {len(lost) - SHOWN} more"] if len(lost) > SHOWN else []
    confirmed("\n".join(lines), yes)
    ask(Request(r.SKIP_PARKED, arguments={"tasks": picks}))


def _found(ask: Asker, task: str, key: str) -> Rows:
    found = run_async(read_tables(ask.to, PARKED, "", task, MOST, False))
    rows = chosen(found["rows"], key)
    if rows and (strays := stray_tasks(ask.to, rows)):
        rows = [row for row in rows if row["task"] not in strays]
        if not rows:
            raise NotFound(
                f"{ask.to.job} does not have the tasks in which these records are parked: {', '.join(sorted(strays, key=natural))}",
                remedy="read as many partitions as before, or export the records, and send them again",
            )
    if not rows:
        what = f" with the key or place '{key}'" if key else ""
        raise NotFound(f"no record of {ask.to.job}{what} is parked", remedy=f"headgate parked {shown(ask.to.job)}")
    return rows


def _by_key(rows: Rows) -> dict[tuple[Any, ...], Rows]:
    """The rows of each key, or of one without a key, in the order in which they were parked."""
    found: dict[tuple[Any, ...], Rows] = {}
    for row in sorted(rows, key=lambda one: (one["task"], one["key"])):
        value = row["value"]
        own = row["key"] if value["key"] is None else None
        found.setdefault((row["task"], value["stream"], value["partition"], value["key"], own), []).append(row)
    return found
