"""The tables for the HTTP API: their names and their rows, including headgate's own.

Rows are read from the store of a task in this process, on the worker's loop and in small pages. They show what a commit has made durable,
without uncommitted changes. Keys of internal tables are shown as they are stored.

Promise: a worker never says that there is no row where another task may have it. For a key that it has not found, and for a task that it
does not run, it raises `Elsewhere` with the tasks and the addresses that have to be asked; a list of rows names them in `elsewhere`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import HeadgateError
from ...core.names import natural
from ...core.settings import offer, shown
from ..state.scan import UNOWNED, NoSuchTable, RowDecoder, scan

if TYPE_CHECKING:
    from ..worker.worker import Worker

MOST = 10_000
PAGE = 100


class Elsewhere(HeadgateError):
    """Tasks of other workers have to be asked; `elsewhere` in the answer says at which addresses."""

    def __init__(self, what: str, answer: dict[str, Any]) -> None:
        at = [f"{one['url'] or 'no address'} ({', '.join(one['tasks'])})" for one in answer["elsewhere"]]
        super().__init__(what, remedy=f"ask {'; '.join(at)}, or use `headgate tables`, which asks all of them")
        self.answer = answer


def elsewhere(worker: Worker, task: str = "") -> list[dict[str, Any]]:
    """The workers whose tasks are not open here, each with its address. Tasks without an owner have a worker without a name."""
    member = getattr(worker.coordination, "member", None)
    if member is None or (model := member.view.job.model) is None:
        return []
    here = {name for name, _ in readers(worker)}
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(set(model.tasks) - here, key=natural):
        if task in ("", name):
            grant = member.view.job.held(name)
            owner = None if grant is None else member.view.job.recorded(grant.processor).get(grant.incarnation)
            one = {
                "worker": "" if grant is None else grant.processor,
                "url": "" if owner is None else owner.url,
                "tasks": [],
            }
            found.setdefault(one["worker"], one)["tasks"].append(name)
    return list(found.values())


def readers(worker: Worker, task: str = "") -> Iterator[tuple[str, RowDecoder]]:
    """The tasks of this process whose tables are open, with a reader for each."""
    for name, actor in sorted(worker.actors.items()):
        if actor.state.store is not None and actor.state.tables is not None and task in ("", name):
            yield name, RowDecoder(actor.state.store, worker.declared)


def table_document(worker: Worker, table: str, key: str, query: Mapping[str, str]) -> dict[str, Any]:
    """All tables; the rows of one table; or the rows of one key, from all tasks of this process."""
    most = _number(query.get("limit", str(PAGE)))
    task = query.get("task", "")
    unowned: dict[str, list[str]] = {}
    for name, actor in sorted(worker.actors.items()):
        for one in actor.state.unowned:
            unowned.setdefault(one, []).append(name)
    if not table:
        running = [task for task, _ in readers(worker)]
        return {
            "worker": worker.options.processor,
            "tables": [
                *({"table": name, "kind": kind, "tasks": running} for name, kind in RowDecoder.names(worker.declared)),
                *({"table": name, "kind": UNOWNED, "tasks": tasks} for name, tasks in sorted(unowned.items())),
            ],
        }
    RowDecoder.known(worker.declared, table, unowned)
    _known_task(worker, task)
    if table in worker.declared.copied:
        return _copy_document(worker, table, key or query.get("key", ""), most)
    rows: list[dict[str, Any]] = []
    for name, reader in readers(worker, task):
        for found in scan(reader, table, key or query.get("key", ""), most - len(rows)):
            rows.append({"task": name, "key": found[0], "value": shown(str(found[0]), found[1])})
        if len(rows) >= most:
            break
    others = elsewhere(worker, task)
    answer = {
        "worker": worker.options.processor,
        "table": table,
        "tasks": [name for name, _ in readers(worker, task)],
        "rows": rows,
        "more": len(rows) >= most,
        "elsewhere": others,
    }
    wanted = key or query.get("key", "")
    if others and not rows and (wanted or task):
        what = f"the key '{wanted}' of the table '{table}'" if wanted else f"the table '{table}' of {task}"
        raise Elsewhere(f"{what} is not in the tasks of this worker; other tasks may have it", answer)
    return answer


def _copy_document(worker: Worker, table: str, key: str, most: int) -> dict[str, Any]:
    """The rows of this worker's copy of a table, which are those of every worker's."""
    copy = worker.runtime.copies.all.get(table)
    if copy is None or copy.store is None:
        raise HeadgateError(
            f"{worker.options.processor} has no copy of the table '{table}' open: {'it runs no task' if copy is None else copy.waits}",
            remedy="ask again, or another worker; `headgate status JOB` shows the copies",
        )
    name = f"copy of {worker.options.processor}"
    reader = RowDecoder(copy.store, worker.declared)
    rows = [
        {"task": name, "key": found[0], "value": shown(str(found[0]), found[1])}
        for found in scan(reader, table, key, most)
    ]
    return {
        "worker": worker.options.processor,
        "table": table,
        "tasks": [task for task, _ in readers(worker)],
        "copy": True,
        "rows": rows,
        "more": len(rows) >= most,
        "elsewhere": [],
    }


def _known_task(worker: Worker, task: str) -> None:
    """Raise for a task that the job does not have. A task of another worker has no rows here."""
    member = getattr(worker.coordination, "member", None)
    model = member.view.job.model if member is not None else None
    if task and model is not None and task not in model.tasks and task not in worker.actors:
        raise NoSuchTable(f"there is no task '{task}'", remedy=offer(task, model.tasks))


def _number(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MOST:
        raise HeadgateError(
            f"limit={text!r} is not a number between 1 and {MOST}", remedy=f"without it, {PAGE} rows are shown"
        )
    return int(text)
