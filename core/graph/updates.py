"""Events and updates: what comes out of a stage, and which stages are refused behind updates.

An *event* says that something has happened. An *update* is the newest value of its key and takes the place of the one before it: what a
running `agg` gives, and a window before it closes. Whoever counts, collects or pairs rows would take each update for one more row, and
1, 2, 3 would add up to 6. There are no retractions, so that is refused, unless `as-events` says that it is meant.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import DeclarationError
from .graph import Graph, Stage

NEEDS_EVENTS = frozenset({"agg", "window", "batch"})
"""Verbs that take each row for something that has happened; so does a join of two streams."""
GIVES_EVENTS = frozenset({"as-events", "table", "actor", "agent"})
"""Verbs behind which no updates come, whatever they read: the user says so, nothing comes out at all, or user code made what comes."""


def check_events(graph: Graph, stage: Stage) -> None:
    """Raise a `DeclarationError` if the stage needs events and reads updates."""
    updates = sorted({name for read in stage.reads for name in updates_of(graph, read)})
    if not updates:
        return
    whose = ", ".join(f"{name!r} ({graph.stage[name].verb})" for name in updates)
    events = [read for read in stage.reads if not updates_of(graph, read)]
    if stage.verb == "merge" and events:
        what = f"'{stage.name}' (merge) mixes the events of {_listed(events)} with updates of {whose}"
    elif stage.verb in NEEDS_EVENTS or (stage.verb == "join" and not _joins_table(graph, stage)):
        what = f"'{stage.name}' ({stage.verb}) would take each update of {whose} for one more row"
    else:
        return
    raise DeclarationError(
        what,
        remedy="use the rows that the updates are made of, or keep the updates in a table and join with it; "
        "if each update is to count as a row of its own, say so with .as_events()",
    )


def _joins_table(graph: Graph, stage: Stage) -> bool:
    return any(other is not None and other.verb == "table" for other in map(graph.stage.get, stage.reads))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def updates_of(graph: Graph, name: str) -> frozenset[str]:
    """The stages whose updates come out of this input or stage; none where it gives events."""
    return graph.derived(_all_updates).get(name, frozenset())


def _all_updates(graph: Graph) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for stage in graph.ordered:
        if stage.updates:
            found[stage.name] = frozenset({stage.name})
        elif stage.verb not in GIVES_EVENTS:
            found[stage.name] = frozenset(name for read in stage.reads for name in found.get(read, ()))
    return found
