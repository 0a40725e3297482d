"""The messages of the coordinator stream: what they say, who may write them, and their bytes.

    key    msgpack array  [1, type, key]                  stable bytes: compaction depends on them
    value  msgpack map    host, username, source, timestamp, values        null deletes the key

The law of keys: within a key the last message wins, and no key has two unfenced writers. `Delete` is for the leader alone, and only
for keys that are answered, superseded or fenced.

Promises:

- messages are values: frozen, comparable, and equal when they say the same;
- `key_of` names the key that a message replaces, so nobody else has to know which of its fields make the key.

Their bytes stand in `coordinator_bytes`, what they come to in `jobstate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from ..graph.model import JobModel
from ..orders import TaskState

VERSION = 1
MAX_KEY = 1024
MAX_VALUE = 1_000_000
MAX_COUNT = 2**53
"""Terms, grants, offsets and the like are below this, so that whoever counts on from one that was read can write the next."""
MAX_SETTING = 1000
"""Letters of an override at most: the last changes of a setting stand in one message."""
FOR_EVER = frozenset({"set-run", "set-leader", "set-job-model", "set-grant", "set-changelog"})
"""Types whose keys nobody deletes, not even the leader: what was counted in them would begin again."""
LEADERS = FOR_EVER | {"set-config", "set-member", "set-fence", "set-answer"}
"""Types that the leader alone writes."""
FORGOTTEN = ""
"""The processor of the one `SetFence` that stands for all that were deleted: its incarnation counts as high as any of theirs."""


class RunState(StrEnum):
    """Where a run is in its life."""

    RUNNING = "running"
    DRAINING = "draining"
    DRAINED = "drained"
    ENDING = "ending"
    ENDED = "ended"
    STOPPING = "stopping"
    STOPPED = "stopped"


LIVE = frozenset({RunState.RUNNING, RunState.DRAINING, RunState.ENDING, RunState.STOPPING})
CLOSED = frozenset({RunState.DRAINED, RunState.ENDED, RunState.STOPPED})


class ProcessorState(StrEnum):
    """What an incarnation of a worker says of itself."""

    JOINED = "joined"
    LEAVING = "leaving"
    LEFT = "left"


class AnswerState(StrEnum):
    """How far a request is. The last three are final."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a request was refused or has failed, where that is known by a name."""

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
    """One of the last changes of a setting: who set it to what, and when."""

    value: Any
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class SetConfig:
    """An operator's override of one setting. Written by the leader after checking a request."""

    setting: str
    value: Any
    changes: tuple[Change, ...] = ()
    """The last ones, newest last; the last of them is this one."""


@dataclass(frozen=True, slots=True)
class SetChangelog:
    """The partition of the task log that is this task's. Written by the leader once per task, for ever."""

    task: str
    partition: int


@dataclass(frozen=True, slots=True)
class SeekRequest:
    """A seek that was accepted and waits in the run until every task has applied it (and said so in its task state)."""

    id: str
    """What the task remembers in its checkpoint: the request's uuid and the partition."""
    request: str
    stream: str
    partition: int
    to: str | int | tuple[str, int]
    expected: int | None = None
    """The position that its plan showed, or `orders.NO_POSITION`, where it waits for workers to come; from elsewhere it is refused."""


@dataclass(frozen=True, slots=True)
class SetRun:
    """The run of the job: there is one at a time. Written by the leader."""

    run_id: str
    deployment: str
    state: RunState
    job_uuid: str
    drain: str | None = None
    """The request that drains this run. It stays over a stop: a draining run is resumed draining."""
    closing: bool = False
    """Every task has drained or ended: release now. (`stopping` says the same by itself.)"""
    paused_job: bool = False
    paused_streams: frozenset[str] = frozenset()
    seeks: tuple[SeekRequest, ...] = ()
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=_empty)
    """Stream → first offset of each partition for a task that has no position yet (`newest` and times are resolved)."""
    untils: Mapping[str, tuple[int, ...]] = field(default_factory=_empty)
    """Stream → offset before which each partition ends, for bounded inputs."""
    settings: Mapping[str, Any] = field(default_factory=_empty)
    """The settings that the run started with; never client settings or secrets."""
    fingerprint: Mapping[str, str] = field(default_factory=_empty)
    """What may not differ in this run: part of the graph or immutable setting → its value or hash."""
    past_runs: tuple[str, ...] = ()
    past_deployments: tuple[str, ...] = ()
    """Every deployment that was ever run: a restart of one of these starts nothing by itself."""
    drain_upto: Mapping[str, tuple[int, ...]] = field(default_factory=_empty)
    """Stream of another job → offset of each partition up to which the drain of this run still reads it."""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=_empty)
    """Stream of other jobs → the jobs that its producers are said to be: how a cascade finds who comes behind whom."""
    goes_on: bool = False
    """The run before this one was drained, not ended."""
    drain_by: str = ""
    """Who asked for the drain, for people."""
    failed: str = ""
    """Why a bounded run has stopped by itself: tasks have given up, and nothing else can move. Whoever comes next goes on with it."""
    overrides: Mapping[str, Any] = field(default_factory=_empty)
    """The overrides of settings that change between runs only, as they stood when this one began: its tasks have no others, ever."""


@dataclass(frozen=True, slots=True)
class SetProcessor:
    """One incarnation of a worker, written by itself: after its transactional id was initialised, and when it goes."""

    processor: str
    incarnation: str
    process: str
    """The process start, which leadership belongs to; a process may live through several incarnations."""
    location: str
    state: ProcessorState
    deployment: str = ""
    run_id: str = ""
    """The run that `--run-id` asked for; empty if none."""
    url: str = ""
    pid: int = 0
    version: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=_empty)
    bounded: bool = False
    """`--bounded`: it begins another run when the last one has ended."""


@dataclass(frozen=True, slots=True)
class SetMember:
    """The incarnation of a processor that counts: only this one is granted anything. Written by the leader."""

    processor: str
    incarnation: str
    location: str
    dismissed: str = ""
    """Why it must leave (`stop --worker`); empty while it is wanted. `for-good` ends the wait for its return."""


@dataclass(frozen=True, slots=True)
class SetLeader:
    """Who leads, and for which term. Written by the candidate; an empty processor says that the last one has resigned."""

    term: int
    processor: str
    process: str
    job: str = ""
    """The job whose stream this is: name and id exactly as its user wrote them, which its topics do not hold."""


@dataclass(frozen=True, slots=True)
class SetJobModel:
    """What the leader wants: who should run what (`core.graph.model`). Its term and version say which is newer, for people."""

    model: JobModel


@dataclass(frozen=True, slots=True)
class SetGrant:
    """The only incarnation that may run the task. Written by the leader, n+1 only after n is released or its holder fenced."""

    task: str
    grant: int
    processor: str
    incarnation: str
    last_location: str = ""
    """Where the task last ran, empty if nowhere."""


@dataclass(frozen=True, slots=True)
class SetFence:
    """This incarnation of the processor and all before it are fenced. Written by the leader after the fence has returned.

    Under the processor `FORGOTTEN`: new incarnations count on from this one, whoever's they are."""

    processor: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class SetTaskState:
    """What became of a grant. Written by its holder, after the commit that it reports."""

    task: str
    grant: int
    state: TaskState
    why: str = ""
    applied: tuple[str, ...] = ()
    """The seeks (`SeekRequest.id`) whose effect is in the task's checkpoint."""
    still: bool = False
    """Nothing moves here by itself: it has given up for good, or has read all that there is and waits for others. Said only in a bounded
    run in which a task has failed."""
    refused: Mapping[str, str] = field(default_factory=_empty)
    """The seeks that the task has refused, and why."""


@dataclass(frozen=True, slots=True)
class SetRequest:
    """A request. Written by the command line or the API; only the leader acts on it."""

    uuid: str
    verb: str
    run_id: str = ""
    arguments: Mapping[str, Any] = field(default_factory=_empty)
    not_after: int | None = None
    """Wall time in ms after which nobody wants it any more; None waits without limit."""
    requested_by: str = ""


@dataclass(frozen=True, slots=True)
class SetAnswer:
    """What became of a request: accepted, running, then once and for ever done, refused or failed. Written by the leader."""

    uuid: str
    state: AnswerState
    why: str = ""
    progress: Mapping[str, Any] = field(default_factory=_empty)
    reason: Reason | None = None
    """Why, for programs, where there is more to do about it than to read `why`."""
    remedy: str = ""
    """What helps, as far as the leader knows it."""


Message = (
    SetConfig | SetChangelog | SetRun | SetProcessor | SetMember | SetLeader | SetJobModel | SetGrant | SetFence
    | SetTaskState | SetRequest | SetAnswer
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
        SetRequest: ("set-request", ("uuid",)),
        SetAnswer: ("set-answer", ("uuid",)),
    }
)
"""Each message's type in the stream, and the fields that make its key."""


def key_of(message: Message) -> Key:
    """The key that this message replaces.

    >>> key_of(SetTaskState("Partition 3", 2, "running"))
    ('set-task-state', ('Partition 3', 2))
    """
    kind, fields = KEYS[type(message)]
    return kind, tuple(getattr(message, name) for name in fields)


@dataclass(frozen=True, slots=True)
class Delete:
    """A null value: the key is gone. The leader's alone."""

    key: Key


Write = Message | Delete


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who wrote a message, from where and when: for people; no decision rests on it."""

    host: str = ""
    username: str = ""
    source: str = ""
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the stream, read: a message, a deletion (`message` is None and `problem` is empty), or a problem."""

    offset: int
    key: Key | None
    message: Message | None
    append_ms: int = 0
    """The broker's append time."""
    problem: str = ""
    stamp: Stamp = Stamp()


# ------------------------------------------------------------------------- what both machines read and ask of the stream


@dataclass(frozen=True, slots=True)
class Read:
    """Event: the next records of the stream, in order. `position` is the next offset behind them (also behind markers)."""

    entries: tuple[Entry, ...]
    position: int


@dataclass(frozen=True, slots=True)
class End:
    """Event: the answer to `AskEnd`, the read-committed end of the stream, asked of the broker after the instruction was given."""

    offset: int
    ticket: int = 0
    """That of the question: two may be under way, and an answer to the older one says less."""


@dataclass(frozen=True, slots=True)
class AskEnd:
    """Instruction: ask the broker for the stream's end (retry while it is away), and say `End` with this ticket."""

    ticket: int = 0
