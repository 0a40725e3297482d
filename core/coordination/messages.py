"""The messages of the coordinator stream: their meaning, and who may write them.

    key    msgpack array  [1, type, key]                                     stable bytes: compaction depends on them
    value  msgpack map    host, username, source, timestamp, values          null deletes the key

For each key the last message counts, and no key has two unfenced writers. Only the leader writes `Delete`, and only for keys that are
answered, superseded or fenced. The leader writes in transactions: a deletion outside of one is not the leader's and does not count.

Promises:

- Messages are values: frozen, comparable, and equal if their contents are equal.
- `key_of` returns the key that a message replaces, so no other code knows which fields form the key.

`wire` encodes the messages, and `state` folds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from ..graph.model import JobModel
from ..orders import Goal, TaskState

VERSION = 1
MAX_KEY = 1024
MAX_VALUE = 1_000_000
MAX_COUNT = 2**53
"""Terms, grants, offsets and similar numbers are below this, so that the number after any valid one is also valid."""
MAX_SETTING = 1000
"""The longest override, in characters: the last changes of a setting share one message."""
FOR_EVER = frozenset({"set-run", "set-leader", "set-job-model", "set-grant", "set-changelog"})
"""Types whose keys no one deletes, not even the leader, because their counters would start again."""
LEADERS = FOR_EVER | {"set-config", "set-member", "set-fence", "set-answer"}
"""Types that only the leader writes."""
FORGOTTEN = ""
"""The processor of the `SetFence` that stands for all deleted ones. Its incarnation is at least as high as any of theirs."""


class RunState(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    DRAINING = "draining"
    DRAINED = "drained"
    ENDING = "ending"
    ENDED = "ended"
    STOPPING = "stopping"
    STOPPED = "stopped"


LIVE = frozenset({RunState.RUNNING, RunState.DRAINING, RunState.ENDING, RunState.STOPPING})
CLOSED = frozenset({RunState.DRAINED, RunState.ENDED, RunState.STOPPED})
OVER = CLOSED - {RunState.STOPPED}
"""Behind these, the next worker begins another run."""


class ProcessorState(StrEnum):
    """The state of an incarnation of a worker, as it reports itself."""

    JOINED = "joined"
    LEAVING = "leaving"
    LEFT = "left"


class AnswerState(StrEnum):
    """The state of a request. The last three are final."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a request was refused or has failed, if the reason has a name."""

    EXPIRED = "expired"
    OTHER_RUN = "other run"
    NO_LIVE_RUN = "no live run"


Key = tuple[str, tuple[str | int, ...]]
"""Type and key of a message, decoded: `("set-grant", ("Partition 3",))`."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _empty() -> Mapping[str, Any]:
    return _EMPTY


@dataclass(frozen=True, slots=True)
class Change:
    """One of the last changes of a setting: the value, who set it, and when."""

    value: Any
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class SetConfig:
    """An operator's override of one setting. Written by the leader after checking a request."""

    setting: str
    value: Any
    changes: tuple[Change, ...] = ()
    """The last changes, newest last; the last one is this override itself."""


@dataclass(frozen=True, slots=True)
class SetChangelog:
    """The task's partition of the task log. The leader writes it once for each task; it never changes."""

    task: str
    partition: int


@dataclass(frozen=True, slots=True)
class SeekRequest:
    """An accepted seek. It stays in the run until every task concerned has applied it (and reported so in its task state)."""

    id: str
    """What the task remembers in its checkpoint: the request's uuid and the partition."""
    request: str
    stream: str
    partition: int
    to: Goal
    expected: int | None = None
    """The position that the seek's plan showed, or `orders.NO_POSITION`, if it waits for workers. A task at another position refuses it."""


@dataclass(frozen=True, slots=True)
class UnparkRequest:
    """An accepted request about parked records of one task. It stays in the run until the task has carried it out, or refused it."""

    id: str
    """What the task remembers in its checkpoint."""
    request: str
    task: str
    what: str
    number: int | None = None
    upto: int | None = None
    """See `orders.Unpark`."""


@dataclass(frozen=True, slots=True)
class SetRun:
    """The run of the job; there is one at a time. Written by the leader."""

    run_id: str
    deployment: str
    state: RunState
    job_uuid: str
    drain: str | None = None
    """The request that drains this run. It survives a stop: a draining run resumes draining."""
    closing: bool = False
    """Every task has drained or ended, so all must release now. (In `stopping`, they must in any case.)"""
    paused_job: bool = False
    paused_streams: frozenset[str] = frozenset()
    seeks: tuple[SeekRequest, ...] = ()
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=_empty)
    """Stream → first offset of each partition, for tasks without a position (`newest` and times are resolved)."""
    untils: Mapping[str, tuple[int, ...]] = field(default_factory=_empty)
    """Stream → offset before which each partition ends, for bounded inputs."""
    settings: Mapping[str, Any] = field(default_factory=_empty)
    """The settings with which the run started, without client settings and secrets."""
    fingerprint: Mapping[str, str] = field(default_factory=_empty)
    """What must not change during this run: part of the graph or immutable setting → its value or hash."""
    past_runs: tuple[str, ...] = ()
    past_deployments: tuple[str, ...] = ()
    """Every deployment that ever ran. A worker of one of these does not begin a run by itself."""
    drain_upto: Mapping[str, tuple[int, ...]] = field(default_factory=_empty)
    """Stream of another job → offset of each partition up to which the drain of this run still reads."""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=_empty)
    """Stream of other jobs → the jobs that produce it, as declared. A cascade finds the following jobs with it."""
    goes_on: bool = False
    """Whether the previous run was drained, not ended."""
    reopens: bool = False
    """Whether a seek between the runs leads back: windows that watermarks have closed may be opened again."""
    drain_by: str = ""
    """Who requested the drain, for people."""
    failed: str = ""
    """Why a bounded run has stopped by itself: tasks have given up, and nothing else can move. The next worker continues it."""
    overrides: Mapping[str, Any] = field(default_factory=_empty)
    """The overrides of settings that change only between runs, as of the start of this one. They do not change while it lasts."""
    unparks: tuple[UnparkRequest, ...] = ()
    joined: tuple[str, ...] = ()
    """The topics that have come since this run began, match a pattern of the job, and are read in it, oldest first."""
    unjoined: Mapping[str, str] = field(default_factory=_empty)
    """The topics that have come and match, but are not read in this run, each with the reason."""
    ungrown: Mapping[str, str] = field(default_factory=_empty)
    """The inputs that have got partitions which this run does not read, each with the reason."""


@dataclass(frozen=True, slots=True)
class SetProcessor:
    """One incarnation of a worker. The worker itself writes it after it has initialised its transactional id, and when it leaves."""

    processor: str
    incarnation: str
    process: str
    """The start of the process, to which leadership belongs. A process may have several incarnations."""
    location: str
    state: ProcessorState
    deployment: str = ""
    run_id: str = ""
    """The run that `--run-id` names; empty if none."""
    url: str = ""
    pid: int = 0
    version: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=_empty)
    bounded: bool = False
    """`--bounded`: it begins another run when the last one has ended."""
    since_ms: int = 0
    """When the supervisor of this process began, by its wall clock; 0 without one."""
    follows: bool = False
    """Whether it can follow the log of a task that another worker runs. Versions that cannot do not say so."""
    prepared: Mapping[str, int] = field(default_factory=_empty)
    """The tasks whose log it follows, because it is to run them, and of which it lacks little; each with the grant of its holder."""
    widens: bool = False
    """Whether it can run a task that reads topics which have joined the run. Versions that cannot do not say so."""
    retires: bool = False
    """Whether it is about to leave, and works on while others prepare its tasks."""


@dataclass(frozen=True, slots=True)
class SetMember:
    """The valid incarnation of a processor; only this one is granted tasks. Written by the leader."""

    processor: str
    incarnation: str
    location: str
    dismissed: str = ""
    """Why it must leave (`stop --worker`); empty otherwise. With `for good`, no one waits for its return."""
    prepare_ms: int = 0
    """If it must leave: how long it works on while others prepare its tasks. Versions that do not know this leave at once."""

    @property
    def out(self) -> bool:
        """Whether it must leave at once, and may be granted nothing."""
        return bool(self.dismissed) and not self.prepare_ms


@dataclass(frozen=True, slots=True)
class SetLeader:
    """The leader and its term. Written by the candidate; with an empty processor, the last leader has resigned."""

    term: int
    processor: str
    process: str
    job: str = ""
    """The job of this stream: name and id exactly as the user wrote them, which the topic names do not contain."""


@dataclass(frozen=True, slots=True)
class SetJobModel:
    """The model of the job: which worker should run which task (`core.graph.model`). For people, term and version show which one is
    newer.
    """

    model: JobModel


@dataclass(frozen=True, slots=True)
class SetGrant:
    """The only incarnation that may run the task. The leader writes grant n+1 only after grant n is released or its holder fenced."""

    task: str
    grant: int
    processor: str
    incarnation: str
    last_location: str = ""
    """Where the task last ran; empty if nowhere."""
    died: bool = False
    """Whether a holder before this one has died, or was fenced in the middle of its work, and none since has shown that no letter was
    to blame.
    """


@dataclass(frozen=True, slots=True)
class SetFence:
    """This incarnation of the processor and all before it are fenced. The leader writes it after the fence has returned.

    For the processor `FORGOTTEN`, new incarnations of all processors count on from this one.
    """

    processor: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class SetTaskState:
    """The state of a grant. Its holder writes it, after the commit that it reports."""

    task: str
    grant: int
    state: TaskState
    why: str = ""
    applied: tuple[str, ...] = ()
    """The seeks (`SeekRequest.id`, `UnparkRequest.id`) whose effect is in the task's checkpoint."""
    still: bool = False
    """The task does not move by itself: it has given up for good, or has read everything and waits for others. Reported only in a bounded
    run in which a task has failed.
    """
    refused: Mapping[str, str] = field(default_factory=_empty)
    """The seeks that the task has refused, each with the reason."""
    unproven: bool = False
    """It was released before enough of its letters were durable. The holder before this one died, and one of them may still be to blame,
    so the next holder starts as after a death.
    """


LetterMark = tuple[str, int, int, int, int, int, str, str] | tuple[str, int, int, int, int, int, str, str, int]
"""A letter that is under way or suspected: stream, partition, first offset, the one behind the last, row, deaths, what it is, topic id, and
of how many rows one was under way, if there are several. See `core.task.suspects`."""


@dataclass(frozen=True, slots=True)
class SetLetters:
    """The letters of a task that the next holder must know of if this one dies. The holder of the grant writes it before it runs such a
    letter, and again, without marks, once they are over.
    """

    task: str
    grant: int
    marks: tuple[LetterMark, ...] = ()


@dataclass(frozen=True, slots=True)
class SetRequest:
    """A request. Written by commands or the API; only the leader acts on it."""

    uuid: str
    verb: str
    run_id: str = ""
    arguments: Mapping[str, Any] = field(default_factory=_empty)
    not_after: int | None = None
    """The wall-clock time in ms at which the request expires; None if it never does."""
    requested_by: str = ""


@dataclass(frozen=True, slots=True)
class SetAnswer:
    """The answer to a request: accepted, running, and finally done, refused or failed, which never changes. Written by the leader."""

    uuid: str
    state: AnswerState
    why: str = ""
    progress: Mapping[str, Any] = field(default_factory=_empty)
    reason: Reason | None = None
    """The reason for programs, if they can do more than show `why`."""
    remedy: str = ""
    """What helps, if the leader knows it."""


Message = (
    SetConfig | SetChangelog | SetRun | SetProcessor | SetMember | SetLeader | SetJobModel | SetGrant | SetFence
    | SetTaskState | SetLetters | SetRequest | SetAnswer
)  # fmt: skip


KEYS: Mapping[type[Any], tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        SetConfig: ("set-config", ("setting",)),
        SetChangelog: ("set-changelog", ("task",)),
        SetRun: ("set-run", ()),
        SetProcessor: ("set-processor", ("processor", "incarnation")),
        SetMember: ("set-member", ("processor",)),
        SetLeader: ("set-leader", ()),
        SetJobModel: ("set-job-model", ()),
        SetGrant: ("set-grant", ("task",)),
        SetFence: ("set-fence", ("processor",)),
        SetTaskState: ("set-task-state", ("task", "grant")),
        SetLetters: ("set-letters", ("task", "grant")),
        SetRequest: ("set-request", ("uuid",)),
        SetAnswer: ("set-answer", ("uuid",)),
    }
)
"""For each message its type in the stream, and the fields that form its key."""


def key_of(message: Message) -> Key:
    """The key that this message replaces.

    >>> key_of(SetTaskState("Partition 3", 2, "running"))
    ('set-task-state', ('Partition 3', 2))
    """
    kind, fields = KEYS[type(message)]
    return kind, tuple(getattr(message, name) for name in fields)


def shown(key: Key) -> str:
    """A key for people.

    >>> shown(("set-task-state", ("Partition 3", 2))), shown(("set-run", ()))
    ('set-task-state Partition 3 2', 'set-run')
    """
    return " ".join((key[0], *map(str, key[1])))


def unlawful(key: Key, *, transactional: bool = True) -> str:
    """Why the deletion of this key does not count; empty if it does.

    >>> unlawful(("set-request", ("u1",)))
    ''
    """
    if transactional and key[0] not in FOR_EVER:
        return ""
    whose = "no one deletes it" if key[0] in FOR_EVER else "only the leader deletes it"
    return f"'{shown(key)}' was deleted by hand, but {whose}; the previous message stays valid"


@dataclass(frozen=True, slots=True)
class Delete:
    """A null value, which removes the key. Only the leader writes it."""

    key: Key


Write = Message | Delete


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who wrote a message, from where and when: for people. No decision depends on it."""

    host: str = ""
    username: str = ""
    source: str = ""
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the stream as read: a message, a deletion (`message` is None and `problem` is empty), or a problem."""

    offset: int
    key: Key | None
    message: Message | None
    append_ms: int = 0
    """The broker's append time."""
    problem: str = ""
    stamp: Stamp = Stamp()


# --------------------------------------------------------------------------- events and instructions of both machines


@dataclass(frozen=True, slots=True)
class Read:
    """Event: the next records of the stream, in order. `position` is the next offset after them (transaction markers included)."""

    entries: tuple[Entry, ...]
    position: int


@dataclass(frozen=True, slots=True)
class End:
    """Event: answers `AskEnd` with the read-committed end of the stream, requested from the broker after the instruction was given."""

    offset: int
    ticket: int = 0
    """The ticket of the question. Two may be in progress, and the answer to the older one says less."""


@dataclass(frozen=True, slots=True)
class AskEnd:
    """Instruction: ask the broker for the end of the stream (and retry while it is away), and answer `End` with this ticket."""

    ticket: int = 0
