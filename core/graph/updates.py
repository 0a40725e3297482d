"""Events and updates: which of them a stage emits, and which stages may not read updates.

An *event* says that something has happened. An *update* is the newest value of its key and replaces the previous one: a running `agg`
emits updates, and so does a window before it closes. A stage that counts, collects or pairs rows would count each update as one more row,
and 1, 2, 3 would add up to 6. There are no retractions, so this is refused, unless `as-events` says that it is intended. A sink that
replaces the row of a key takes updates of this key as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import DeclarationError
from .graph import Graph, Stage

NEEDS_EVENTS = frozenset({"agg", "dedupe", "window", "batch", "share"})
"""Verbs that treat each row as an event; so does a join of two streams. The readers of a shared stream do not know what wrote it."""
GIVES_EVENTS = frozenset({"as-events", "table", "actor", "agent"})
"""Verbs that never emit updates, whatever they read: the user says so, nothing comes out, or user code makes the output."""


def check_events(graph: Graph, stage: Stage) -> None:
    """Raise a `DeclarationError` if the stage needs events and reads updates."""
    updates = sorted({name for read in stage.reads for name in updates_of(graph, read)})
    if not updates:
        return
    whose = ", ".join(f"{name!r} ({graph.stage[name].verb})" for name in updates)
    events = [read for read in stage.reads if not updates_of(graph, read)]
    if stage.verb == "merge" and events:
        what = f"'{stage.name}' (merge) mixes the events of {_listed(events)} with updates of {whose}"
    elif stage.takes_updates:
        return
    elif stage.verb in NEEDS_EVENTS or (stage.verb == "join" and not _joins_table(graph, stage)):
        what = f"'{stage.name}' ({stage.verb}) would take each update of {whose} for one more row"
    else:
        return
    raise DeclarationError(
        what,
        remedy="use the rows that the updates are made of, or keep the updates in a table and join with it; "
        "if each update is to count as a row of its own, say so with .as_events()"
        + ("; .to_sql(…, key=…) takes updates by their key" if stage.verb == "batch" else ""),
    )


def _joins_table(graph: Graph, stage: Stage) -> bool:
    return any(other is not None and other.verb == "table" for other in map(graph.stage.get, stage.reads))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def updates_of(graph: Graph, name: str) -> frozenset[str]:
    """The stages whose updates come out of this input or stage; empty if it emits events."""
    return graph.derived(_all_updates).get(name, frozenset())


def _all_updates(graph: Graph) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for stage in graph.ordered:
        if stage.updates:
            found[stage.name] = frozenset({stage.name})
        elif stage.verb not in GIVES_EVENTS:
            found[stage.name] = frozenset(name for read in stage.reads for name in found.get(read, ()))
    return found
