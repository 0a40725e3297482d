"""Stories for people: which lines matter, and what they say.

    time, worker, machine, state → state, the cause and why it leads there, what was decided

Promises: a line that changes a state, reports, refuses, fails or orders something is never routine. Why an event leads where it does is
what the table of its machine says. A line is short, whatever it is about: what is left out of a value is counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, cast

from ...core.coordination.leader.leader import Leader
from ...core.coordination.member.member import Member
from ...core.coordination.messages import Delete, Entry, Read
from ...core.coordination.messages import shown as shown_key
from ...core.machine import Machine, Raised
from ...core.names import StreamPartition
from ...core.task.committer.commit import Committer
from ...core.task.task import Task
from .follow import COMMITTER, LEADER, MEMBER, TASK
from .reading import LineFilter, Told
from .values import Unknown

WIDEST = 240
"""Of an event or a decision, in characters."""
FEW = 4
"""So many members of a collection are shown."""
DEEPEST = 5
_CLASSES: Mapping[str, type[Machine[Any, Any]]] = {TASK: Task, MEMBER: Member, LEADER: Leader, COMMITTER: Committer}
_STEADY: Mapping[str, frozenset[str]] = {
    TASK: frozenset({
        "Tick", "ChunkTaken", "ChunkDone", "StepDone", "PositionMoved", "AtEnd", "NotAtEnd", "Lag", "WorkDue", "CommitWanted",
        "CommitBegins", "CommitDone", "ControlAtHead", "RestoreProgress", "RequestCommit", "Contribute", "SendControl", "RunStep", "Gate",
        "Bounds",
    }),
    MEMBER: frozenset({"Tick", "Read", "Beat", "End", "MessagesWritten", "AskEnd"}),
    LEADER: frozenset({"Tick", "Read", "Beat", "End", "Counts", "TransactionWritten", "AskEnd"}),
}  # fmt: skip
"""By kind: events and decisions of which a machine that works has many. A line of these alone, in one state, is routine."""
_FAILS = frozenset({"ProducerFailed", "StoreRefused", "IncarnationOver", "TellApplyFailed", "Raised"})
"""What alone is no routine of a committer, whose states change with each transaction."""


def routine(told: Told) -> bool:
    """Whether a line is about what a machine does all the time."""
    kind, words = told.part.kind, {told.event, *told.decided}
    if kind == COMMITTER:
        return not words & _FAILS
    return told.before == told.after and not words - _STEADY.get(kind, frozenset())


def wanted(of: str = "", *, everything: bool = False) -> LineFilter:
    """What chooses the lines: those of a task, of the leader, of a worker, or all of them; routine only if `everything`."""

    def choose(told: Told) -> bool:
        if not (everything or not routine(told)):
            return False
        return not of or (told.part.kind == LEADER if of == LEADER else of in (told.part.name, told.who.worker))

    return choose


def document(told: Told) -> dict[str, Any]:
    """A line as plain values."""
    line = told.line()
    return {
        "at_ms": told.at_ms,
        "worker": told.who.worker,
        "process": told.who.process,
        "machine": told.part.kind,
        "number": told.part.number,
        "name": told.part.name,
        "grant": told.part.grant or None,
        "event_number": told.number,
        "lost_before": told.part.lost if told.number == told.part.first else 0,
        "before": told.before,
        "after": told.after,
        "event": text_of(line.event),
        "why": why(told),
        "decided": [text_of(one) for one in cast("Iterable[Any]", line.instructions)],
        "routine": routine(told),
    }


def why(told: Told) -> str:
    """What the table of the machine says about this event in this state; empty if it does not say, or no longer."""
    return _whys(told.part.kind).get((told.before, told.event), "")


@cache
def _whys(kind: str) -> Mapping[tuple[str, str], str]:
    rows = _CLASSES[kind].TABLE if kind in _CLASSES else ()
    return {(str(state), event.__name__): row.why for row in rows for state in row.states for event in row.events}


def text_of(value: Any) -> str:
    """An event or a decision for people.

    >>> from headgate.core.task.protocol import ChunkTaken
    >>> text_of(ChunkTaken(StreamPartition("orders", 3), 120))
    'ChunkTaken at=orders:3 upto=120'
    """
    if isinstance(value, Read):
        text = " ".join(
            (f"Read to {value.position}:", *(_entry(one) for one in value.entries[:FEW]), *_more(value.entries))
        )
    elif isinstance(value, Raised):
        text = f"raises {value.error}"
    elif dataclasses.is_dataclass(value) and not isinstance(value, Unknown):
        text = " ".join((type(value).__name__, *(f"{name}={one}" for name, one in _fields(value, 1))))
    else:
        text = str(value)
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}…"


def _entry(entry: Entry) -> str:
    if entry.problem or entry.key is None:
        return f"unreadable ({entry.problem})"
    if entry.message is None:
        return f"{shown_key(entry.key)} deleted"
    told = {"state", "processor", "grant", "verb", "why"}
    said = ", ".join(f"{name}={one}" for name, one in _fields(entry.message, 2) if name in told)
    return f"{shown_key(entry.key)} ({said})" if said else shown_key(entry.key)


def _fields(value: Any, depth: int) -> Iterable[tuple[str, str]]:
    """The fields of a value that do not have their default."""
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        if not field.init or given == field.default:
            continue
        if field.default_factory is not dataclasses.MISSING and given == field.default_factory():
            continue
        yield field.name, _shown(given, depth)


def _shown(value: Any, depth: int) -> str:
    if depth > DEEPEST:
        return "…"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, StreamPartition):
        return str(value)
    if isinstance(value, Delete):
        return f"delete {shown_key(value.key)}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Unknown):
        return f"{type(value).__name__}({', '.join(f'{name}={one}' for name, one in _fields(value, depth + 1))})"
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[Any, Any]", value).items())
        told = [f"{_shown(key, depth + 1)}: {_shown(one, depth + 1)}" for key, one in pairs[:FEW]]
        return f"{{{', '.join([*told, *_more(pairs)])}}}"
    if isinstance(value, tuple | list | frozenset):
        members = sorted(value, key=str) if isinstance(value, frozenset) else list(cast("Iterable[Any]", value))
        return f"({', '.join([*(_shown(one, depth + 1) for one in members[:FEW]), *_more(members)])})"
    return str(value)


def _more(members: Any) -> list[str]:
    return [f"{len(members) - FEW} more"] if len(members) > FEW else []
