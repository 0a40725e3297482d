"""Reads a row of a table in the process that has it: what `worker.get(table, key)` of a hosted worker answers.

Promises: it asks what a query over HTTP asks (`parts`, `committed`), so a row is what the newest commit has made durable, of a task that
this worker runs under the grant that the coordinator stream has for it. That a key has no row is said only if every task that may have it
can be read here; otherwise the tasks that would have to be asked are named.
"""

from __future__ import annotations

from typing import Any

from ...core.errors import DataError, DeclarationError, EnvironmentFault
from .parts import QueryParts, SeveralTasks, spread


class NotOpenHere(EnvironmentFault):
    """A row may lie in a task that this worker does not have, or has not restored yet."""


def read_here(parts: QueryParts, table: str, key: Any) -> Any:
    """The committed value of a key; None if the table has no such row."""
    asked = parts.table(table)
    try:
        raw = asked.key.dumps(key)
    except (DataError, TypeError, ValueError) as error:
        raise DeclarationError(f"the key {key!r:.80} of the table '{table}': {error}") from error
    value, of, missing = None, "", list[str]()
    for task in spread(parts, asked, [raw], ()):
        part = parts.part(task, asked)
        if part is None:
            missing.append(task)
        elif (found := part.value(raw)) is not None:
            if of:
                raise SeveralTasks(table, of, task)
            value, of = found, task
    if of:
        return value
    if missing or not parts.tasks:
        where = f"{', '.join(missing[:5])} {'is' if len(missing) == 1 else 'are'}" if missing else "no task is"
        raise NotOpenHere(
            f"the row may be in another part of the table '{table}': {where} not open in this worker",
            remedy="wait until worker.tasks shows all tasks, or ask the job: hg.query(job, table)",
        )
    return None
