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
from .reading import KeptLine, LineFilter
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


def routine(kept: KeptLine) -> bool:
    """Whether a line is about what a machine does all the time. The first one behind lost ones is not, whatever it is about."""
    if kept.lost_before:
        return False
    kind, words = kept.part.kind, {kept.event, *kept.decided}
    if kind == COMMITTER:
        return not words & _FAILS
    return kept.before == kept.after and not words - _STEADY.get(kind, frozenset())


def wanted(of: str = "", *, everything: bool = False) -> LineFilter:
    """What chooses the lines: those of a task, of the leader, of a worker, or all of them; routine only if `everything`."""

    def choose(kept: KeptLine) -> bool:
        if not (everything or not routine(kept)):
            return False
        return not of or (kept.part.kind == LEADER if of == LEADER else of in (kept.part.name, kept.who.worker))

    return choose


def document(kept: KeptLine) -> dict[str, Any]:
    """A line as plain values."""
    line = kept.line()
    return {
        "at_ms": kept.at_ms,
        "worker": kept.who.worker,
        "process": kept.who.process,
        "machine": kept.part.kind,
        "number": kept.part.number,
        "name": kept.part.name,
        "grant": kept.part.grant or None,
        "event_number": kept.number,
        "lost_before": kept.lost_before,
        "before": kept.before,
        "after": kept.after,
        "event": text_of(line.event),
        "why": why(kept),
        "decided": [text_of(one) for one in cast("Iterable[Any]", line.instructions)],
        "routine": routine(kept),
    }


def why(kept: KeptLine) -> str:
    """What the table of the machine says about this event in this state; empty if it does not say, or no longer."""
    return _whys(kept.part.kind).get((kept.before, kept.event), "")


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
    telling = {"state", "processor", "grant", "verb", "why"}
    said = ", ".join(f"{name}={one}" for name, one in _fields(entry.message, 2) if name in telling)
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
        texts = [f"{_shown(key, depth + 1)}: {_shown(one, depth + 1)}" for key, one in pairs[:FEW]]
        return f"{{{', '.join([*texts, *_more(pairs)])}}}"
    if isinstance(value, tuple | list | frozenset):
        members = sorted(value, key=str) if isinstance(value, frozenset) else list(cast("Iterable[Any]", value))
        return f"({', '.join([*(_shown(one, depth + 1) for one in members[:FEW]), *_more(members)])})"
    return str(value)


def _more(members: Any) -> list[str]:
    return [f"{len(members) - FEW} more"] if len(members) > FEW else []
