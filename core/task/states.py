"""The states of a task, and which event may come in which: the table that runs it and draws it.

Facts that come late (the edge was told to stop, and had an answer on its way) are taken and change nothing; orders and answers
that nobody asked for are mistakes, and raise.
"""

from __future__ import annotations

from ..machine import Rule, Tick, rules
from ..orders import Abandon, Release, RunChanged, Seek, Start
from .protocol import (
    ApplyFailed,
    AtEnd,
    Broken,
    ChunkDone,
    ChunkDropped,
    ChunkTaken,
    CommitBegins,
    CommitDone,
    CommitLost,
    CommitWanted,
    ControlAtHead,
    FetchStopped,
    Lag,
    LogEnds,
    Lost,
    NotAnswered,
    NotAtEnd,
    PositionMoved,
    Resolved,
    Restored,
    RestoreProgress,
    SettingsChanged,
    StepDone,
    StoreBroken,
    StoreClosed,
    StoreOpened,
    StoreWiped,
    WorkDue,
    WorkFailed,
)

WAITING = "waiting"
RESTORING = "restoring"
BOOTSTRAPPING = "bootstrapping"
RUNNING = "running"
PAUSED = "paused"
DRAINING = "draining"
DRAINED = "drained"
ENDING = "ending"
ENDED = "ended"
RELEASING = "releasing"
RELEASED = "released"
FAILED = "failed"
ABANDONED = "abandoned"

WORKING = (BOOTSTRAPPING, RUNNING, PAUSED, DRAINING, ENDING)
"""It processes."""
RESTING = (DRAINED, ENDED)
"""It has reported its last, and keeps its grant until the run closes."""
GONE = (RELEASED, FAILED, ABANDONED)
"""Nothing comes from it any more."""
STATES = (WAITING, RESTORING, *WORKING, *RESTING, RELEASING, *GONE)

_ANY = (BOOTSTRAPPING, RUNNING, PAUSED, DRAINING, ENDING, RELEASING)
_RESTORED = (*_ANY, RESTORING, DRAINED, ENDED, FAILED)

STORE = (StoreOpened, StoreBroken, LogEnds, StoreWiped, RestoreProgress, Restored)
INTAKE = (PositionMoved, ControlAtHead, AtEnd, NotAtEnd, NotAnswered, Lost, Lag, FetchStopped, WorkDue, CommitWanted)
ACTOR = (ChunkDone, ChunkDropped, WorkFailed, StepDone)
COMMIT = (CommitBegins, CommitDone)
FACTS = (*STORE, Resolved, StoreClosed, *INTAKE, ChunkTaken, *ACTOR, *COMMIT, CommitLost, ApplyFailed, Broken)


def _table() -> tuple[Rule, ...]:
    rows: list[tuple[str, type, str | tuple[str, ...], str]] = [
        (WAITING, Start, RESTORING, "the predecessor has released it, or is fenced"),
        (WAITING, Release, RELEASED, "it never began"),
        (WAITING, Abandon, ABANDONED, "it never began"),
        (WAITING, Tick, "", "nothing to wait for"),
        (WAITING, SettingsChanged, "", "it begins with them"),
        (RESTORING, RunChanged, "", "seen when it opens"),
        (RESTORING, Seek, "", "applied when it opens"),
        (RESTORING, SettingsChanged, "", "it opens with them"),
        (RESTORING, Tick, ("", FAILED), "an open transaction has held it up for too long"),
        (RESTORING, Resolved, _RESTORED, "what is new becomes durable first"),
        (RESTORING, CommitDone, _RESTORED, "what was resolved is durable"),
        *((RESTORING, fact, ("", FAILED), "store and log") for fact in STORE if fact is not Restored),
        (RESTORING, Restored, _RESTORED, "it stands where it stood"),
        *((RESTORING, fact, "", "left over from before") for fact in (CommitBegins, *INTAKE, StoreClosed)),
    ]
    for state in WORKING:
        rows += [
            (state, RunChanged, _ANY, "a pause, a drain, a newer epoch"),
            (state, Seek, _ANY, "applied between chunks"),
            (state, Resolved, _ANY, "a seek's or a lost position's offset"),
            (state, Tick, _ANY, "a retry, or time to speak"),
            (state, SettingsChanged, _ANY, "they count at once"),
            (state, ChunkTaken, "", "the actor works"),
            (state, CommitBegins, "", "everything complete joins"),
            (state, CommitDone, (*_ANY, DRAINED, ENDED), "durable"),
            *((state, fact, _ANY, "work") for fact in (*INTAKE, *ACTOR)),
        ]
    for state in RESTING:
        rows += [
            (state, RunChanged, "", "control is said again when epochs change"),
            (state, Seek, "", "refused: nothing is read in this run any more"),
            (state, Tick, "", "nothing to wait for"),
            (state, SettingsChanged, "", "nothing is left that they change"),
            *((state, fact, "", "too late") for fact in (*INTAKE, *ACTOR, Resolved)),
            *((state, fact, "", "what was said again") for fact in COMMIT),
        ]
    rows += [
        (RELEASING, RunChanged, "", "not any more"),
        (RELEASING, Release, "", "already; one that was failing is released instead"),
        (RELEASING, Seek, "", "the next owner is told again; what has failed for good begins again with it"),
        (RELEASING, Tick, "", "nothing to wait for"),
        (RELEASING, SettingsChanged, "", "not any more"),
        (RELEASING, CommitBegins, "", "the last one"),
        (RELEASING, CommitDone, "", "now it may close"),
        (RELEASING, StoreClosed, ("", RELEASED, FAILED, ABANDONED), "reported last, when it was told to close"),
        *((RELEASING, fact, "", "the last answers") for fact in (*STORE, Resolved, *INTAKE, *ACTOR)),
    ]
    for state in (RESTORING, *WORKING, *RESTING):
        rows.append((state, Release, (RELEASING,), "finish or drop the chunk, commit, close, report"))
    for state in (RESTORING, *WORKING, *RESTING, RELEASING):
        rows += [
            (state, Abandon, ABANDONED, "fenced or superseded: drop everything, write nothing"),
            (state, CommitLost, (ABANDONED, FAILED), "the incarnation is over"),
            (state, ApplyFailed, (RELEASING, FAILED), "the log is right, the store is void"),
            (state, Broken, (RELEASING, FAILED), "what is complete is committed, then it has failed"),
        ]
    for state in GONE:
        rows += [
            (
                state,
                Abandon,
                ABANDONED if state == FAILED else "",
                "what has failed goes; else nothing is left to drop",
            ),
            (state, Release, RELEASED if state == FAILED else "", "a failed task is released at once"),
            (
                state,
                Seek,
                ("", ABANDONED) if state == FAILED else "",
                "a failed task begins again behind what it failed at",
            ),
            *((state, fact, "", "too late") for fact in (*FACTS, RunChanged, Tick, SettingsChanged)),
        ]
    return rules(rows)


TABLE = _table()
