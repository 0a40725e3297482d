"""Reads a row of a table in the process that has it: what `worker.get(table, key)` of a hosted worker answers.

Promises: a row is what the newest commit has made durable, never what could still be taken back. That a key has no row is said only where
every task of the job is open in this worker; otherwise the tasks that would have to be asked are named.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...core.errors import DataError, DeclarationError, EnvironmentFault
from ...core.names import natural
from ...core.settings import offer
from ..job.types.schemas import TABLE
from ..state.scan import RowDecoder

if TYPE_CHECKING:
    from ..worker.worker import Worker


class NotOpenHere(EnvironmentFault):
    """A row may lie in a task that this worker does not have, or has not restored yet."""


def read_here(worker: Worker, table: str, key: Any) -> Any:
    """The committed value of a key; None if the table has no such row."""
    specs = {one.name: one for one in worker.declared.tables() if one.schema.kind == TABLE}
    if table not in specs:
        raise DeclarationError(
            f"the job has no table '{table}' of app.table(…) or .table(…)", remedy=offer(table, specs)
        )
    try:
        raw = specs[table].key.dumps(key)
    except (DataError, TypeError, ValueError) as error:
        raise DeclarationError(f"the key {key!r:.80} of the table '{table}': {error}") from error
    now_ms, opened = int(time.time() * 1000), set[str]()
    for task, actor in worker.actors.items():
        store = actor.state.store
        if store is None or actor.state.tables is None:
            continue
        opened.add(task)
        data = store.get(table, raw)
        found = [] if data is None else RowDecoder(store, worker.declared).rows(table, raw, data, now_ms)
        if found:
            return found[0][1]
    _all_open(worker, opened, table)
    return None


def _all_open(worker: Worker, opened: set[str], table: str) -> None:
    member = getattr(worker.coordination, "member", None)
    model = None if member is None else member.view.job.model
    missing = sorted(set(() if model is None else model.tasks) - opened, key=natural)
    if model is None or missing:
        where = f"{', '.join(missing[:5])} {'is' if len(missing) == 1 else 'are'}" if missing else "no task is"
        raise NotOpenHere(
            f"the row may be in another part of the table '{table}': {where} not open in this worker",
            remedy="wait until worker.tasks shows all tasks, or ask all workers: headgate tables",
        )
