"""`headgate tables JOB [TABLE [KEY]]`: the tables of a job and their rows, including headgate's own, also while the job runs.

It asks the workers that run the tasks, at their recorded addresses. For tasks whose worker is not running or cannot be reached, it reads
the task log (and says so on standard error), with keys and values as far as they can be read without the job's code.
"""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import click

from ....core.coordination.metadata import LOCALITY, stored
from ....core.coordination.state import JobState
from ....core.errors import NotFound
from ....core.names import StreamPartition
from ....core.settings import offer
from ...job.types.schemas import PARKED
from ...kafka.offsets import KafkaOffsets
from ...kafka.port import KafkaPort
from ...port.bounds import log_ends
from ...process.reading import following
from ...runtime.store.log import restore
from ...state.scan import CHECKPOINT, OWN, RowDecoder, kind_of, scan
from ...state.store import MemoryStore
from ..group import WithVerbs
from ..options import Target, about_job, run_async
from ..output import as_typed, output_option, quoted, show_json, show_table, show_text
from ..pages import page, refusal, token_option

MISDIRECTED = 421
"""The answer of a worker that does not have the key, while other workers run tasks of the job: they are asked, too."""


class TablesCommand(WithVerbs):
    """Reads tables; `clear` empties them."""

    verbs = MappingProxyType({"clear": "data.tables_clear:clear"})


@click.command(cls=TablesCommand)
@click.argument("job")
@click.argument("table", required=False, default="")
@click.argument("key", required=False, default="")
@click.option("--task", default="", metavar="TASK", help="Only the rows of this task.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of rows.")
@click.option("--from-log", is_flag=True, help="Read the task log instead of asking the workers.")
@token_option
@about_job
@output_option
def tables(to: Target, table: str, key: str, task: str, limit: int, from_log: bool, output: str) -> None:
    """Show the tables of a job, the rows of one table, or the value of one key.

    KEY is text, or what the rows show: a number (7), true, a UUID, bytes (0x01ff), a tuple (["DE", 7])."""
    found = run_async(read_tables(to, table, key, task, limit, from_log))
    if table and key and not found["rows"]:
        raise NotFound(f"the table '{table}' of {to.job} has no key '{key}'")
    if output == "json":
        show_json({"job": str(to.job), **found})
    elif not table:
        show_table(["TABLE", "KIND", "TASKS"], ([o["table"], o["kind"], len(o["tasks"])] for o in found["tables"]))
    elif key and len({quoted(row["key"]) for row in found["rows"]}) > 1:  # the text "7" and the number 7
        show_table(["TASK", "KEY", "VALUE"], ([o["task"], quoted(o["key"]), o["value"]] for o in found["rows"]))
    elif key:
        for row in found["rows"]:
            show_text(row["value"])
    else:
        show_table(["TASK", "KEY", "VALUE"], ([o["task"], as_typed(o["key"]), o["value"]] for o in found["rows"]))
        if found["more"]:
            click.echo(f"… more than {limit} rows; see --limit", err=True)


async def read_tables(to: Target, table: str, key: str, task: str, limit: int, from_log: bool) -> dict[str, Any]:
    """The tables of a job, the rows of one, or those of a key, as a document."""
    async with following(to.client, to.topics) as stream:
        state = stream.job
        workers = [] if from_log else [w for w in stored(state, LOCALITY).values() if w["url"] and w["tasks"]]
        if task and state.model is not None and task not in state.model.tasks:
            workers = []  # one of an earlier run: only its log has its rows
        answers = await asyncio.gather(*(_ask(to, worker, table, key, task, limit) for worker in workers))
        heard = [one for one in answers if one is not None]
        if copies := [one for one in heard if one.get("copy")]:
            return merged(copies[:1], table, limit)  # each worker has all of it
        known = {name for one in heard for name in (one.get("tasks") or _tasks_of(one))}
        if task and state.changelogs and task not in state.changelogs:
            raise NotFound(f"{to.job} has no task '{task}'", remedy=offer(task, state.changelogs))
        missing = [name for name in sorted(set(state.changelogs) - known) if task in ("", name)]
        found = merged(heard, table, limit)
        if missing and not (table and key and found["rows"]):
            if not from_log:
                click.echo(f"Note: read from the task log: {', '.join(missing)}", err=True)
            logs = [await _from_log(to, state, name, table, key, limit) for name in missing]
            if table not in ("", PARKED) and not heard:  # that no record is parked is an answer
                _in_some_log(to, table, {name for one in logs for name in one["names"]})
            found = merged([*heard, *logs], table, limit)
        return found


def _tasks_of(answer: dict[str, Any]) -> list[str]:
    return [task for one in answer.get("tables", ()) for task in one["tasks"]]


def merged(answers: list[dict[str, Any]], table: str, limit: int) -> dict[str, Any]:
    """The answers of all workers as one."""
    if table:
        rows = [row for one in answers for row in one["rows"]]
        return {"table": table, "rows": rows[:limit], "more": len(rows) > limit or any(one["more"] for one in answers)}
    found: dict[str, dict[str, Any]] = {}
    for answer in answers:
        for one in answer["tables"]:
            into = found.setdefault(one["table"], {"table": one["table"], "kind": one["kind"], "tasks": []})
            into["tasks"] = sorted({*into["tasks"], *one["tasks"]})
    return {"tables": list(found.values())}


async def _ask(
    to: Target, worker: dict[str, Any], table: str, key: str, task: str, limit: int
) -> dict[str, Any] | None:
    """A worker's answer; None if it cannot be reached, or refuses, which is said."""
    path = "/".join(["tables", *(quote(part, safe="") for part in (table,) if part)])
    query = {"limit": str(limit), **({"task": task} if task else {}), **({"key": key} if key else {})}
    status, answer = await page(to, worker["url"], path, query)
    if note := refusal(worker["processor"], status):
        show_text(f"Note: {note}", err=True)
    if status == 404:
        raise NotFound(answer["error"], remedy=answer["remedy"])
    return answer if status in (200, MISDIRECTED) else None


async def _from_log(to: Target, state: JobState, task: str, table: str, key: str, limit: int) -> dict[str, Any]:
    """A task's tables, read from its partition of the task log."""
    at = StreamPartition(to.topics.log, state.changelogs[task])
    offsets = KafkaOffsets(to.client)
    await offsets.start()
    try:
        start, end, _ = await log_ends(offsets, at)
    finally:
        await offsets.stop()
    store = MemoryStore()
    await restore(KafkaPort(to.client), at, store, start=start, end=end)
    reader = RowDecoder(store)
    if not table:
        names = [*reader.stored(), CHECKPOINT]
        return {"tables": [{"table": name, "kind": kind_of(name), "tasks": [task]} for name in names]}
    rows = [{"task": task, "key": found, "value": value} for found, value in scan(reader, table, key, limit)]
    return {"rows": rows, "more": len(rows) >= limit and not key, "names": [*reader.stored(), *OWN]}


def _in_some_log(to: Target, table: str, names: set[str]) -> None:
    """Raise `NotFound` if no log contains the table. A log contains only tables with rows, so an empty table looks like one that does not
    exist.
    """
    if table not in names:
        raise NotFound(f"no task log of {to.job} holds a row of a table '{table}'", remedy=offer(table, names))
