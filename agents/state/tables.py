"""The tables of one task together: completed, dropped, sealed and applied as one.

Promises:

- `complete()` applies to all tables or to none: what cannot be encoded is found before anything is merged.
- What `seal()` returned goes into the store with `applied()`, in one write with the position and the checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from ...core.errors import DeclarationError
from ...core.graph.schema import SCHEMA_TABLE, pack_history
from ..job.types.schemas import Layout
from ..records.values.serdes import Serde
from .cache_memory import CacheMemory
from .expiry_index import IndexRows
from .store import Store
from .table import Aside, Expired, Table

K = TypeVar("K")
V = TypeVar("V")


REWRITTEN_UNCOMMITTED = 50_000
"""A table with this many uncommitted changes waits for the commit before more of its rows are rewritten."""


class Rewritten(NamedTuple):
    """The result of `rewrite`: rows, the tables that are finished, and whether there may be more."""

    rows: int
    through: list[str]
    more: bool


class TaskTables:
    """All tables of one task, for the actor that uses them and the commit that makes them durable."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], int] = lambda: 0,
        most_bytes: int | None = None,
        memory: CacheMemory | None = None,
    ) -> None:
        """`most_bytes`: the limit of the task log for key and value of a row together. `memory`: the worker's memory for decoded rows;
        without it, this task has its own.
        """
        self.store = store
        self._memory = CacheMemory() if memory is None else memory
        self._most_bytes = most_bytes
        self._clock = clock
        self._tables: dict[str, Table[Any, Any]] = {}
        self._raw: dict[str, IndexRows] = {}
        self._sealed_raw: deque[dict[str, IndexRows]] = deque()
        self._prepared = False

    def declare(
        self, name: str, key: Serde[K], value: Serde[V], *, ttl_ms: int | None = None, layout: Layout | None = None
    ) -> Table[K, V]:
        """Bind a table."""
        more: dict[str, Any] = {
            "clock": self._clock,
            "most_bytes": self._most_bytes,
            "layout": layout,
            "memory": self._memory,
        }
        made = Table(name, self.store, key, value, ttl_ms=ttl_ms, **more)
        self._tables[name] = made
        return made

    def table(self, name: str) -> Table[Any, Any]:
        """A declared table."""
        try:
            return self._tables[name]
        except KeyError:
            raise DeclarationError(
                f"there is no table {name!r}", remedy=f"known: {', '.join(sorted(self._tables))}"
            ) from None

    def raw(self, table: str, rows: Mapping[bytes, bytes | None]) -> None:
        """Change rows of one of headgate's own tables, in bytes. The changes go with the next commit."""
        kept = self._raw.setdefault(table, {})
        for key, value in rows.items():
            kept[key] = None if value is None else b"\x00" + value

    def raw_rows(self, table: str) -> list[tuple[bytes, bytes]]:
        """The stored rows of such a table."""
        return [(key, data[1:]) for key, data in self.store.range(table)]

    def prepare(self) -> None:
        """Encode what the chunk changed in all tables. Raises a `DataError` if something cannot be encoded; nothing is merged then."""
        for table in self._tables.values():
            table.prepare()
        self._prepared = True

    def complete(self) -> None:
        """Complete the chunk in all tables. What `prepare` has not encoded yet is encoded first."""
        if not self._prepared:
            self.prepare()
        self._prepared = False
        tables = self._tables.values()
        for table in tables:
            table.complete()
        self._memory.settle()

    def drop(self) -> None:
        """Discard the changes of a failed chunk."""
        self._prepared = False
        for table in self._tables.values():
            table.drop()

    def suspend(self) -> dict[str, Aside]:
        """Set aside the changes of the unfinished chunk, while a commit seals in the middle of it."""
        return {name: table.suspend() for name, table in self._tables.items()}

    def resume(self, aside: Mapping[str, Aside]) -> None:
        """Restore the changes of the chunk that was set aside."""
        for name, part in aside.items():
            self._tables[name].resume(part)

    def expire(self, now_ms: int) -> Expired:
        """Delete expired rows, with log entries; a limited number in each table."""
        found = [table.expire(now_ms) for table in self._tables.values()]
        return Expired(sum(one.gone for one in found), sum(one.seen for one in found), any(one.more for one in found))

    def rewrite(self, most: int = 5_000) -> Rewritten:
        """Rewrite some rows that only a migration function can read."""
        written, more, through = 0, False, list[str]()
        for name, table in self._tables.items():
            layout = table.layout
            if layout is None or not layout.history.migrating:
                continue
            more = True
            if written >= most or len(table.dirty) + sum(map(len, table.sealed)) >= REWRITTEN_UNCOMMITTED:
                continue
            found = table.rewrite(most - written)
            if found is not None:
                written += found
                continue
            layout.history = layout.history.finished()
            self.raw(SCHEMA_TABLE, {name.encode(): pack_history(layout.history)})
            through.append(name)
        return Rewritten(written, through, more)

    @property
    def changed(self) -> bool:
        """Whether a commit would log anything."""
        return bool(self._raw) or any(table.changed or table.expiry.changed for table in self._tables.values())

    def seal(self) -> dict[str, Mapping[bytes, bytes | None]]:
        """What goes into the task log with this commit, by table."""
        changes: dict[str, Mapping[bytes, bytes | None]] = {**self._raw}
        self._sealed_raw.append(self._raw)
        self._raw = {}
        for name, table in self._tables.items():
            rows = table.seal()
            if rows:
                changes[name] = rows
        return changes

    def applied(self, position: int, *, checkpoint: bytes | None = None, followed_until_ms: int | None = None) -> None:
        """Write the oldest seal, which is durable now, into the store in one write."""
        tables = {name: table for name, table in self._tables.items() if table.sealed}
        changes: dict[str, Mapping[bytes, bytes | None]] = {
            **(self._sealed_raw[0] if self._sealed_raw else {}),
            **{n: t.sealed[0] for n, t in tables.items() if t.sealed[0]},
        }
        for table in tables.values():
            changes |= table.expiry.to_apply()
        self.store.write(changes, position=position, checkpoint=checkpoint, followed_until_ms=followed_until_ms)
        if self._sealed_raw:
            self._sealed_raw.popleft()
        for table in tables.values():
            table.applied()

    def close(self) -> None:
        """Stop counting the rows that the tables cached: the task is closed."""
        for table in self._tables.values():
            table.close()
