"""Binds the tables of a task to its restored store, and compares what is stored with what the code declares.

It decides whether this code may work on this state (`judge`), for a task that starts and for a plan. Promises:

- Everything that does not fit is refused before the first record is read, in one message.
- The schema history of each table is written to the task log with the first commit, so no row lacks the schema that describes it.
- A table with rows that the code no longer declares is reported, with the step whose name has probably changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ...core.errors import DeclarationError
from ...core.graph.schema import (
    SCHEMA_TABLE,
    History,
    SchemaRefused,
    Version,
    is_of_event_time,
    pack_history,
    unpack_history,
)
from ...core.task.stored.checkpoint import CONTROL_TABLE, parse_log_value
from ...core.windows.slots import holds_window
from ..job.derive.declaration import Declared
from ..job.types.schemas import AGGREGATE, CLOSED, NOT_TEXT, PARKED, Layout, TableSpec, layout_of
from ..records.values.serdes import msgpack
from .cache_memory import CacheMemory
from .expiry_index import TTL_TABLE
from .store import Store
from .tables import TaskTables


class Opened(NamedTuple):
    """The tables; the changes in their declaration; and the tables that no code declares, each with a hint."""

    tables: TaskTables
    news: tuple[str, ...] = ()
    unowned: Mapping[str, str] = {}


class Judged(NamedTuple):
    """What becomes of a task's state if this code works on it. A task judges so when it starts, and `headgate plan` before it does."""

    layouts: Mapping[str, Layout]
    """How the rows of each declared table that fits are written and read."""
    kept: Mapping[str, History]
    """The stored schemas."""
    news: tuple[str, ...]
    """The changes that keep the state."""
    refused: tuple[SchemaRefused, ...]
    unowned: Mapping[str, str]
    """The tables with rows that no code declares, each with a hint."""

    def must_fit(self) -> None:
        """Raise everything that does not fit, in one message."""
        if self.refused:
            raise DeclarationError(" — ".join(one.what for one in self.refused), remedy=self.refused[0].remedy)


def judge(store: Store, declared: Declared) -> Judged:
    """Compare what is stored with what the code declares; nothing is changed. Of the rows, only keys are looked at."""
    kept = histories(store)
    layouts: dict[str, Layout] = {}
    news: list[str] = []
    refused: list[SchemaRefused] = []
    specs = list(declared.tables())
    for spec in specs:
        try:
            layout, found = layout_of(spec, _of_open_windows(store, kept.get(spec.name), spec))
        except SchemaRefused as error:
            refused.append(error)
            continue
        news += [f"table '{spec.name}': {line}" for line in found]
        layouts[spec.name] = layout
    return Judged(layouts, kept, tuple(news), tuple(refused), _unowned(store, kept, specs, declared.copied))


def open_tables(
    store: Store,
    declared: Declared,
    *,
    clock: Callable[[], int],
    most_bytes: int | None = None,
    memory: CacheMemory | None = None,
) -> Opened:
    """Bind all tables of a job to a restored store. Raises `DeclarationError` for what does not fit."""
    judged = judge(store, declared)
    judged.must_fit()
    tables = TaskTables(store, clock=clock, most_bytes=most_bytes, memory=memory)
    plain = msgpack()
    for own in (CLOSED, NOT_TEXT, PARKED):
        tables.declare(own, plain, plain)
    rows: dict[bytes, bytes | None] = {}
    for spec in declared.tables():
        layout = judged.layouts[spec.name]
        if layout.history != judged.kept.get(spec.name):
            rows[spec.name.encode()] = pack_history(layout.history)
        tables.declare(spec.name, spec.key, spec.value, ttl_ms=spec.ttl_ms, layout=layout)
    still = {*judged.unowned, *judged.layouts, *declared.copied}
    gone = (name for name in judged.kept if name not in still)
    rows |= {name.encode(): None for name in gone}
    if rows:
        tables.raw(SCHEMA_TABLE, rows)
    return Opened(tables, judged.news, judged.unowned)


def _of_open_windows(store: Store, history: History | None, spec: TableSpec) -> History | None:
    """A table of windows of which none is open takes windows of another kind or length, other keys, and rows instead of states or states
    instead of rows; the table of a join that keeps no rows takes another distance or other rows. What it still holds is a time."""
    if (
        history is None
        or not is_of_event_time(history, spec.schema)
        or any(holds_window(key) for key, _ in store.range(spec.name))
    ):
        return history
    found = replace(history, kind=spec.schema.kind, key=spec.schema.key)
    if found.last.value != spec.schema.value:
        found = replace(found, versions=(*found.versions, Version(spec.schema.value)))
    return found


def histories(store: Store) -> dict[str, History]:
    """The schema histories of the tables in the store."""
    rows = ((key.decode(), parse_log_value(data).body) for key, data in store.range(SCHEMA_TABLE))
    return {name: unpack_history(name, data) for name, data in rows if name}


OWN = frozenset((CLOSED, NOT_TEXT, PARKED, CONTROL_TABLE, SCHEMA_TABLE))
"""headgate's own tables, which no code declares."""


def _unowned(
    store: Store, kept: Mapping[str, History], specs: Iterable[TableSpec], copied: Container[str]
) -> dict[str, str]:
    """The tables with rows that no code declares any more, each with a hint at what it may have been. `copied`: those of which a worker
    keeps one copy; what an earlier version has left of them in the task is not looked at, and serves that version if it comes back."""
    known = {spec.name: spec for spec in specs}
    fresh = [name for name in known if name not in kept]
    found: dict[str, str] = {}
    for name in store.tables():
        if (
            name in known
            or name in copied
            or name in OWN
            or name.startswith(TTL_TABLE)
            or next(iter(store.range(name)), None) is None
        ):
            continue
        history = kept.get(name)
        alike = [one for one in fresh if history is not None and _alike(history, known[one])]
        found[name] = (
            f"'{alike[0]}' is new and starts empty: if it is the same step, give it name='{name}'" if alike else ""
        )
    return found


def _alike(history: History, spec: TableSpec) -> bool:
    return history.kind == spec.schema.kind == AGGREGATE and history.key == spec.schema.key


def unowned_text(unowned: Mapping[str, str]) -> str:
    """For people: the undeclared tables, and what to do about them."""
    if not unowned:
        return ""
    names = ", ".join(f"'{name}'" for name in unowned)
    hints = "; ".join(filter(None, unowned.values()))
    one = len(unowned) == 1
    said = (
        f"the code no longer declares the table{'' if one else 's'} {names}; the rows are kept: `headgate tables JOB TABLE` shows them, "
        "`headgate tables clear JOB TABLE` deletes them"
    )
    return f"{said}; {hints}" if hints else said
