"""What is said about bounded batches while a job runs: in which state each is, how far it is at Spark, what it waits for, and how
many there were.

    open → closed → running → returned → done

A batch is *open* while it collects rows, *closed* until Spark works on it, *running* while it does, *returned* when its result is here, and
*done* when the transaction that holds its result is committed. A batch whose last attempt failed is closed again, and says why.

Everything here is a plain value. `agents.operators.batches.batches_seen` collects it from the bookkeeping of a step, and a `Bridge` says
what happens at Spark (`AtSpark`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .ranges import Range

OPEN, CLOSED, RUNNING, RETURNED = "open", "closed", "running", "returned"
STATES = (OPEN, CLOSED, RUNNING, RETURNED)
"""The states of a batch that is not done."""

NOT_STARTED, STARTING, READY, LOST, STOPPED = "not started", "starting", "ready", "lost", "stopped"
SESSION_STATES = (NOT_STARTED, STARTING, READY, LOST, STOPPED)
"""The states of the session: *lost* if its JVM died or it cannot be reached, and the next one has not begun."""

QUEUED, AT_WORK, ISOLATING = "queued", "at work", "isolating"
"""What an attempt does: it waits for a thread and a session; Spark works on it; it looks for the rows that make it fail."""


@dataclass(frozen=True, slots=True)
class SparkMemory:
    """What processes of one kind take of memory, in bytes."""

    process: str
    used: int
    """What all of them take; of executors, what the one takes that has needed most."""
    limit: int | None = None
    """What each of them may take; None if nothing bounds it."""
    count: int = 1

    def text(self) -> str:
        """It for people.

        >>> SparkMemory("heap", 300 << 20, 1 << 30).text(), SparkMemory("jvm", 700 << 20).text()
        ('heap 300 of 1,024 MiB', 'jvm 700 MiB')
        >>> SparkMemory("python", 160 << 20, 2 << 30, 2).text()
        'python 160 MiB (2 with 2,048 each)'
        """
        used = f"{self.process} {self.used >> 20:,}"
        if self.limit is None:
            return f"{used} MiB"
        if self.count == 1:
            return f"{used} of {self.limit >> 20:,} MiB"
        return f"{used} MiB ({self.count} with {self.limit >> 20:,} each)"


@dataclass(frozen=True, slots=True)
class SparkState:
    """The session of a worker."""

    state: str = NOT_STARTED
    where: str = ""
    """The master, or the address of the Connect server."""
    since_ms: int = 0
    """When it came into this state, by the wall clock."""
    version: str = ""
    ui: str = ""
    """The address of Spark's own pages, if they are on."""
    started: int = 0
    """How many sessions were started."""
    why: str = ""
    """Why the last one was lost, or did not start."""
    memory: Mapping[str, str] = field(default_factory=dict[str, str])
    """The bounds of memory, by the names of Spark's settings."""
    taken: tuple[SparkMemory, ...] = ()
    """What its processes take; empty until that was measured."""


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """How far Spark is with an attempt. All are 0 until Spark has said it; a stage that is not planned yet is in no number."""

    jobs: int = 0
    stages: int = 0
    stages_done: int = 0
    tasks: int = 0
    tasks_done: int = 0
    tasks_running: int = 0
    tasks_failed: int = 0
    at_ms: int = 0
    """When Spark said so, by the wall clock."""

    def text(self) -> str:
        """It for people; empty if nothing is known.

        >>> SparkProgress(jobs=1, stages=3, stages_done=1, tasks=200, tasks_done=120, tasks_running=2).text()
        'stage 2 of 3, 120 of 200 tasks done, 2 running'
        """
        if not self.tasks:
            return ""
        parts = [f"stage {min(self.stages, self.stages_done + 1)} of {self.stages}"]
        parts.append(f"{self.tasks_done:,} of {self.tasks:,} tasks done")
        parts += [f"{self.tasks_running:,} running"] if self.tasks_running else []
        parts += [f"{self.tasks_failed:,} failed"] if self.tasks_failed else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class SparkAttempt:
    """One attempt of a batch in one `.spark(...)`."""

    stage: str
    number: int = 1
    """Counts the attempts since the batch was begun: another one follows if a process of Spark died."""
    doing: str = QUEUED
    since_ms: int = 0
    """When it began to do so, by the wall clock."""
    error: str = ""
    """Why the attempt before this one failed."""
    progress: SparkProgress = field(default_factory=SparkProgress)
    retry_ms: int | None = None
    """The time from that failure until Spark had the batch again; None if this is the first attempt, or until then."""


@dataclass(frozen=True, slots=True)
class Retried:
    """Attempts that were repeated because a process of Spark died or hung."""

    times: int = 0
    sum_ms: int = 0
    """The sum of the times from such a failure until Spark had the batch again."""
    longest_ms: int = 0
    why: str = ""
    """The last failure."""

    def again(self, why: str) -> Retried:
        """One more failed, and is repeated."""
        return replace(self, times=self.times + 1, why=why)

    def after(self, ms: int) -> Retried:
        """Spark has the batch again, this long after the failure.

        >>> Retried().again("the JVM died").after(40).again("it died again").after(30)
        Retried(times=2, sum_ms=70, longest_ms=40, why='it died again')
        """
        return replace(self, sum_ms=self.sum_ms + ms, longest_ms=max(self.longest_ms, ms))


NEVER_RETRIED = Retried()


@dataclass(frozen=True, slots=True)
class AtSpark:
    """What a worker's bridge to Spark says of itself."""

    session: SparkState = field(default_factory=SparkState)
    attempts: Mapping[str, SparkAttempt] = field(default_factory=dict[str, SparkAttempt])
    """What is under way, by the id of the batch."""
    retries: Mapping[str, Retried] = field(default_factory=dict[str, Retried])
    """What was repeated because a process of Spark died or hung, by task and step (`task/step`)."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The batches of a step since its task started here."""

    opened: int = 0
    closed: Mapping[str, int] = field(default_factory=dict[str, int])
    """By what closed them."""
    done: int = 0
    rows: int = 0
    """Rows of the batches that are done."""
    size: int = 0
    """Bytes of these rows, as Arrow columns."""
    results: int = 0
    """Rows that Spark gave back for them."""
    retried: int = 0
    """Attempts that were repeated."""
    poisoned: int = 0
    """Rows that were left out because Spark failed on them."""
    spark_ms: int = 0
    """Time that the attempts took."""
    retry_ms: int = 0
    """Time from a failed attempt at a batch until Spark works on the batch again."""

    def plus(self, other: Tally) -> Tally:
        """The sum of both.

        >>> Tally(done=1, closed={"rows": 1}).plus(Tally(done=2, closed={"rows": 1, "age": 1})).closed
        {'age': 1, 'rows': 2}
        """
        causes = sorted({*self.closed, *other.closed})
        return Tally(
            self.opened + other.opened,
            {why: self.closed.get(why, 0) + other.closed.get(why, 0) for why in causes},
            self.done + other.done,
            self.rows + other.rows,
            self.size + other.size,
            self.results + other.results,
            self.retried + other.retried,
            self.poisoned + other.poisoned,
            self.spark_ms + other.spark_ms,
            self.retry_ms + other.retry_ms,
        )


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """One batch that is not done."""

    id: str
    task: str
    step: str
    number: int
    state: str
    rows: int
    size: int | None = None
    """Bytes of its rows, as Arrow columns; None if not known."""
    closed_by: str = ""
    window: tuple[int, int] | None = None
    """Start and end of its window, in event time."""
    latest_ms: int | None = None
    """The greatest timestamp of its rows."""
    opened_ms: int | None = None
    closed_ms: int | None = None
    since_ms: int | None = None
    """Since when it is in its state, by the wall clock; None for what happened before the task started here."""
    stage: str = ""
    """The `.spark(...)` that works on it, or failed."""
    attempt: int = 0
    """How often it was begun since its task started here."""
    why: str = ""
    """What it waits for."""
    error: str = ""
    """Why its last attempt failed."""
    progress: SparkProgress | None = None
    ranges: tuple[Range, ...] = ()
    """The offsets of a batch by reference; its number of rows is that of its offsets, until Spark has read them."""
    retry_ms: int | None = None
    """The longest time from the failure of an attempt until Spark had the batch again; None if it was not repeated."""


@dataclass(frozen=True, slots=True)
class BatchDone:
    """One batch that is done."""

    id: str
    task: str
    step: str
    number: int
    rows: int
    size: int | None
    closed_by: str
    window: tuple[int, int] | None
    latest_ms: int | None
    opened_ms: int | None
    closed_ms: int | None
    begun_ms: int | None
    """When its last attempt began."""
    returned_ms: int | None
    done_ms: int
    attempts: int
    results: int
    """Rows that Spark gave back."""
    poisoned: int
    retry_ms: int | None = None
    """The longest time from the failure of an attempt until Spark had the batch again; None if it was not repeated."""
    error: str = ""
    """Why the last attempt that failed did so."""


@dataclass(frozen=True, slots=True)
class StepBatches:
    """The batches of one step in one task."""

    task: str
    step: str
    batches: tuple[BatchSeen, ...] = ()
    done: tuple[BatchDone, ...] = ()
    """The last ones, the newest first."""
    tally: Tally = field(default_factory=Tally)
    to_sink: bool = False
    """A sink gets the batches, and not Spark."""
    held: bool = False
    """So many wait that the task takes no more chunks of the streams that lead to this step."""


def waits_for_sink(number: int, turn: int, *, durable: int, attempt: SparkAttempt | None, first: int) -> str:
    """What a closed batch waits for that goes to a sink, which gets one batch of a task after the other. `first`: the number of the batch
    that comes first.

    >>> waits_for_sink(7, 6, durable=7, attempt=None, first=5), waits_for_sink(5, 4, durable=7, attempt=SparkAttempt("s"), first=5)
    ('waits for batch 5, which goes to the sink before it', 'waits for a thread to its sink')
    """
    if turn >= durable:
        return "waits for the commit of its closing"
    if number != first and attempt is None:
        return f"waits for batch {first}, which goes to the sink before it"
    return "waits for a thread to its sink"


def held_by(step: str, *, tasks: int, batches: int, to_sink: bool, oldest_s: float | None, failing: int) -> str:
    """What holds up the streams that lead to a batch step, in words.

    `tasks`: how many take no more; `batches`: how many are closed and not done; `failing`: the last attempt of how many has failed.

    >>> held_by("orders", tasks=2, batches=10, to_sink=True, oldest_s=41.7, failing=1)
    "2 tasks take no more records: 10 batches of 'orders' wait for its sink, the oldest for 42 s; the last attempt of 1 failed"
    """
    who = f"{tasks} task takes" if tasks == 1 else f"{tasks} tasks take"
    since = "" if oldest_s is None else f", the oldest for {oldest_s:.0f} s"
    failed = f"; the last attempt of {failing} failed" if failing else ""
    return f"{who} no more records: {batches} batches of '{step}' wait for {'its sink' if to_sink else 'Spark'}{since}{failed}"


def waits_for(
    turn: int, *, durable: int, begun: int, in_flight: int, attempt: SparkAttempt | None, session: SparkState
) -> str:
    """What a closed batch waits for, in words.

    `turn`: its place in the order of closing. `durable`: the first turn that is not committed. `begun`: how many batches of this task and
    step were begun and have not returned. `attempt`: what the bridge says of this one, if it was begun.

    >>> now = dict(begun=2, in_flight=2, attempt=None, session=SparkState(READY))
    >>> waits_for(9, durable=9, **now), waits_for(9, durable=10, **now)
    ('waits for the commit of its closing', '2 of 2 in flight (spark.in-flight)')
    """
    if turn >= durable:
        return "waits for the commit of its closing"
    if attempt is not None or begun < in_flight:
        return waits_for_spark(session)
    return f"{begun} of {in_flight} in flight (spark.in-flight)"


def waits_for_spark(session: SparkState) -> str:
    """Why Spark does not work on a batch that was given to it.

    >>> waits_for_spark(SparkState(STARTING)), waits_for_spark(SparkState(LOST, why="the JVM died"))
    ('Spark is starting', 'Spark is lost: the JVM died')
    """
    if session.state == READY:
        return "waits for a thread to Spark"
    if session.state == STARTING:
        return f"Spark is starting again: {session.why}" if session.why else "Spark is starting"
    return f"Spark is {session.state}" + (f": {session.why}" if session.why else "")


def returned_for(
    number: int, first: int, sent: int, stored: int, *, whole: bool, written_to: Sequence[str] = ()
) -> str:
    """What a batch waits for whose result is here. `written_to`: where Spark has written files of it.

    >>> returned_for(8, 7, 0, 0, whole=False), returned_for(7, 7, 4, 40, whole=True)
    ('its result waits for that of batch 7', '4 of 40 blocks of its result are sent')
    """
    if number != first:
        return f"its result waits for that of batch {first}"
    if whole and written_to and sent == stored:
        return f"its files are named, and are published to {', '.join(written_to)}"
    if whole:
        return f"{sent} of {stored} blocks of its result are sent"
    return f"{stored} blocks of its result are stored" if stored else "its result is about to be sent"


def collects(rows: int, max_rows: int | None, closes_in_ms: int | None, *, window: bool) -> str:
    """What an open batch waits for.

    >>> collects(700, 2000, 1500, window=False), collects(7, None, None, window=True)
    ('collects rows: 700 of 2,000; closes in 1.5 s at the latest', 'collects the rows of its window until the watermark has passed it')
    """
    if window:
        return "collects the rows of its window until the watermark has passed it"
    said = "collects rows" + ("" if max_rows is None else f": {rows:,} of {max_rows:,}")
    return said if closes_in_ms is None else f"{said}; closes in {max(0, closes_in_ms) / 1000:.1f} s at the latest"
