"""The answers for one key of a task that this worker runs, with what was looked up before.

Which task has a key, its store, and the grant under which it runs change seldom; a service asks a thousand times a second. So they are
looked up again only when the coordinator stream or the task has gone on.

Promises: an answer is that of `web.queries`, byte by byte. Where anything is unusual there is none, and `web.queries` answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from ...core.coordination.state import JobState
from ...core.errors import HeadgateError
from ..records.kafka.partitioner import partition_of
from ..records.values.serdes import writes_utf8
from .committed import CommittedPart, age_ms
from .parts import QueryParts
from .queryable import Queryable

if TYPE_CHECKING:
    from ..runtime.task.task import TaskActor
    from ..state.store import Store
    from ..state.tables import TaskTables


PLAIN = re.compile(rb"[ !#-\[\]-~]*").fullmatch
"""A key that is its own text in JSON."""


@dataclass(slots=True)
class QuickPart:
    """A task's part of a table."""

    actor: TaskActor
    store: Store
    tables: TaskTables
    part: CommittedPart
    begins: bytes
    """How an answer begins, up to the key."""
    goes_on: bytes
    """How it goes on behind the value, up to the commit."""

    def stands(self, actor: TaskActor | None) -> bool:
        """Whether this is still the task that runs here, restored and not given up."""
        own = self.actor
        state = own.state
        return own is actor and own.machine.readable and state.store is self.store and state.tables is self.tables


@dataclass(slots=True)
class QuickTable:
    """A table, each key of which is in the one task that owns its partition."""

    asked: Queryable
    places: list[str]
    parts: dict[str, QuickPart] = field(default_factory=dict[str, QuickPart])


class QuickRows:
    """What was looked up, as of one position of the coordinator stream."""

    def __init__(self, parts: QueryParts, me: str, heard_ms: Callable[[], int], now_ms: Callable[[], int]) -> None:
        """`me`: this worker. `heard_ms`: when the coordinator stream was last read to its end."""
        self._parts = parts
        self._me = me
        self._heard_ms = heard_ms
        self._now_ms = now_ms
        self._as_of: tuple[JobState | None, int] = None, -1
        self._tables: dict[str, QuickTable | None] = {}

    def answer(self, name: str, key: bytes) -> bytes | None:
        """The row of a key, which is a text in UTF-8, in JSON; None if `web.queries` must say what there is."""
        job = self._parts.job
        known, position = self._as_of
        if known is not job or position != job.position:
            self._as_of, self._tables = (job, job.position), {}
        table = self._tables[name] if name in self._tables else self._find(name)
        if table is None:
            return None
        try:
            task = table.places[partition_of(key, len(table.places))]
            found = table.parts.get(task)
            if found is None or not found.stands(self._parts.running(task)):
                found = self._open(task, table)
                if found is None:
                    return None
            value = found.part.one(key)
            said = b'"%b"' % key if PLAIN(key) else orjson.dumps(key.decode())
        except (HeadgateError, UnicodeDecodeError):
            return None
        meta = found.store.meta
        owned_ms = self._heard_ms() if found.actor.state.settled else None
        return b'%b%b,"found":%b,"value":%b%b%b,"age_ms":%d}' % (
            found.begins,
            said,
            b"false" if value is None else b"true",
            b"null" if value is None else value,
            found.goes_on,
            b"null" if meta.position is None else b"%d" % meta.position,
            age_ms(meta, owned_ms, self._now_ms()),
        )

    def _find(self, name: str) -> QuickTable | None:
        asked = self._parts.tables.get(name)
        found = None
        if asked is not None and not asked.copied and not asked.broadcast and asked.stream and writes_utf8(asked.key):
            places = self._parts.places(asked.stream)
            found = QuickTable(asked, places) if places else None
        self._tables[name] = found
        return found

    def _open(self, task: str, table: QuickTable) -> QuickPart | None:
        """A task's part, if this worker may read it."""
        actor, part = self._parts.running(task), self._parts.part(task, table.asked)
        if actor is None or part is None:
            table.parts.pop(task, None)
            return None
        store, tables = actor.state.store, actor.state.tables
        assert store is not None, "tables lie in a store"
        assert tables is not None, "they are open"
        begins = b'{"table":%b,"key":' % orjson.dumps(table.asked.name)
        goes_on = b',"task":%b,"worker":%b,"commit":' % (orjson.dumps(task), orjson.dumps(self._me))
        found = table.parts[task] = QuickPart(actor, store, tables, part, begins, goes_on)
        return found
