"""Names of jobs, topics, tasks, partitions and producers. They are built, checked and parsed here.

Promises:

- Every topic of a job contains the job's name and id, and is a legal Kafka topic name; otherwise a `DeclarationError` says why not.
- `_` in a job's name or id becomes `-` in its internal topics, so that these can be parsed: `_` is only a separator.
- Two jobs that would share a topic are distinguished by their exact names, and `collision` names the topic that they would share.
- Transactional ids contain the exact name, so that a job whose topics collide with another's can never fence it by mistake.
- Two jobs never share a directory, and neither do two tasks: the names of directories are an injective encoding, also on a disk that does
  not tell `A` from `a`, and are legal names of files whatever a grouper calls its tasks.
- Incarnations of a processor are ordered by their leading counter (`incarnation_order`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from .errors import DeclarationError

MAX_TOPIC = 249
"""Kafka's limit: a partition is a directory, `<topic>-<partition>`, on the broker's disk."""
KAFKAS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""The topics of the brokers."""
MAX_PROCESSOR = 200
MAX_DIRECTORY = 180
"""What of a task's name a directory shows at most; with a digest behind it, it stays below the 255 bytes that file systems allow."""
DEFAULT_ID = "1"
DEAD_LETTERS = "dead-letters"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_INCARNATION = re.compile(r"([0-9]{6,18})-([0-9a-zA-Z]+)")
_INTERNAL = re.compile(r"__headgate_(coordinator|heartbeat|log)_([a-zA-Z0-9.-]+)_([a-zA-Z0-9.-]+)")
_TRANSACTION = re.compile(r"headgate\.([^.]+)\.([^.]+)\.(?:(leader)|worker\.([^.]+)\.([^.]+))")


class StreamPartition(NamedTuple):
    """One partition of a stream. `str()` gives the notation that people use.

    >>> str(StreamPartition("orders", 3))
    'orders:3'
    """

    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stream}:{self.partition}"


def _legal(kind: str, text: str) -> None:
    if not _LEGAL.fullmatch(text) or text in (".", ".."):
        raise DeclarationError(
            f"{kind} {text!r} is not a legal name",
            remedy="use only letters, digits, '.', '_' and '-', and at least one of them; '.' and '..' are reserved",
        )


def topic_name(text: str, *, what: str = "topic") -> str:
    """The name itself if Kafka accepts it as a topic; otherwise raises `DeclarationError`."""
    _legal(what, text)
    if len(text) > MAX_TOPIC:
        raise DeclarationError(
            f"{what} {text[:40]!r}… has {len(text)} characters; Kafka allows {MAX_TOPIC}",
            remedy="shorten the job's name, the step's name or the topic prefix",
        )
    return text


def metric_form(topic: str) -> str:
    """The form that Kafka compares when a topic is created: `.` and `_` are the same in its metrics, so names that differ only there
    collide."""
    return topic.replace(".", "_")


@dataclass(frozen=True, slots=True, order=True)
class JobName:
    """Name and id of a job, exactly as the user wrote them.

    >>> JobName.parse("sales"), str(JobName("sales", "2")), JobName("my_sales").slug
    (JobName(name='sales', id='1'), 'sales/2', 'my-sales-1')
    """

    name: str
    id: str = DEFAULT_ID

    def __post_init__(self) -> None:
        _legal("job name", self.name)
        _legal("job id", self.id)

    def __str__(self) -> str:
        return f"{self.name}/{self.id}"

    @classmethod
    def parse(cls, text: str) -> JobName:
        """Parse `name` or `name/id`, as on the command line."""
        name, slash, number = text.partition("/")
        return cls(name, number if slash else DEFAULT_ID)

    @property
    def safe(self) -> tuple[str, str]:
        """Name and id as they appear in topics."""
        return self.name.replace("_", "-"), self.id.replace("_", "-")

    @property
    def slug(self) -> str:
        """`name-id`: the prefix of the job's own topics, and its group id."""
        return "-".join(self.safe)

    @property
    def directory(self) -> str:
        """The name of the job's directory. Unlike the slug it differs for any two jobs: an id has no `-` there, so the last one separates.

        >>> JobName("sales").directory, JobName("Sales-1").directory, JobName("sales", "1-1").directory
        ('sales-1', '%53ales-1-1', 'sales-1%2D1')
        """
        return f"{_without_capitals(self.name)}-{_without_capitals(self.id).replace('-', '%2D')}"


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one job.

    >>> Topics(JobName("sales")).coordinator, Topics(JobName("sales"), prefix="eu.").intermediate("by-country")
    ('__headgate_coordinator_sales_1', 'eu.sales-1-by-country')
    """

    job: JobName
    prefix: str = ""

    def __post_init__(self) -> None:
        if self.prefix:
            _legal("topic prefix", self.prefix)
        for topic in self.fixed:
            topic_name(topic)

    def _internal(self, kind: str) -> str:
        name, number = self.job.safe
        return f"{self.prefix}__headgate_{kind}_{name}_{number}"

    @property
    def coordinator(self) -> str:
        return self._internal("coordinator")

    @property
    def heartbeat(self) -> str:
        return self._internal("heartbeat")

    @property
    def log(self) -> str:
        return self._internal("log")

    @property
    def dead_letters(self) -> str:
        return f"{self.own}{DEAD_LETTERS}"

    @property
    def fixed(self) -> tuple[str, ...]:
        """The topics that every job has."""
        return self.coordinator, self.heartbeat, self.log, self.dead_letters

    def intermediate(self, step: str) -> str:
        """The topic between two stages, named after the step that writes it."""
        _legal("step name", step)
        if step == DEAD_LETTERS:
            raise DeclarationError(
                f"step name {step!r} is taken by the job's dead-letter topic", remedy="give the step another name"
            )
        return topic_name(f"{self.own}{step}", what=f"the topic of step {step!r},")

    @property
    def own(self) -> str:
        """How the names of the job's own streams begin."""
        return f"{self.prefix}{self.job.slug}-"

    def kept(self, topic: str, *, written: bool) -> str:
        """Why no input, or no topic that the job writes, may have this name; empty if it may.

        >>> Topics(JobName("sales")).kept("sales-1-orders", written=False)
        "names that begin with 'sales-1-' are kept for the job's own streams"
        >>> Topics(JobName("sales")).kept("sales-orders", written=True)
        ''
        """
        if topic.startswith(self.own):
            return f"names that begin with '{self.own}' are kept for the job's own streams"
        if of_headgate(topic):
            return "it is a topic of headgate itself"
        return "it is a topic of Kafka itself" if written and of_kafka(topic) else ""


def of_headgate(topic: str) -> bool:
    """Whether it is an internal topic of some job, under any prefix."""
    return _INTERNAL.search(topic) is not None


def of_kafka(topic: str) -> bool:
    """Whether it is a topic of the brokers."""
    return topic in KAFKAS


def parse_internal(topic: str, *, prefix: str = "") -> tuple[str, JobName] | None:
    """Kind (`coordinator`, `heartbeat`, `log`) and job of an internal topic, `_` read as `-`; None for any other topic.

    >>> parse_internal("__headgate_log_my-sales_1")
    ('log', JobName(name='my-sales', id='1'))
    """
    match = _INTERNAL.fullmatch(topic[len(prefix) :]) if topic.startswith(prefix) else None
    if match is None:
        return None
    kind, name, number = match.groups()
    if name in (".", "..") or number in (".", ".."):
        return None
    return kind, JobName(name, number)


def jobs_in(topics: Iterable[str], prefix: str = "") -> list[JobName]:
    """The jobs whose coordinator streams are among these topics; `_` in their names reads `-`.

    >>> jobs_in(["orders", "__headgate_coordinator_my-sales_2", "__headgate_log_my-sales_2"])
    [JobName(name='my-sales', id='2')]
    """
    found = [parse_internal(name, prefix=prefix) for name in topics]
    return sorted(one[1] for one in found if one is not None and one[0] == "coordinator")


def kept_by_others(topic: str, jobs: Iterable[JobName], prefix: str = "") -> JobName | None:
    """The job, of these, that keeps the names that begin like this topic's; None if the topic is open.

    >>> kept_by_others("sales-1-by-user", [JobName("sales")]), kept_by_others("sales-2", [JobName("sales")])
    (JobName(name='sales', id='1'), None)
    """
    return next((job for job in jobs if topic.startswith(Topics(job, prefix).own)), None)


def collision(
    own: Topics, other: Topics, *, own_steps: Iterable[str] = (), other_steps: Iterable[str] = ()
) -> str | None:
    """The first topic of `own` that two *different* jobs would share, as Kafka compares names; None if there is none.

    >>> collision(Topics(JobName("my_sales")), Topics(JobName("my-sales")))
    '__headgate_coordinator_my-sales_1'
    """
    if own.job == other.job and own.prefix == other.prefix:
        return None
    theirs = {metric_form(topic) for topic in (*other.fixed, *map(other.intermediate, other_steps))}
    for topic in (*own.fixed, *map(own.intermediate, own_steps)):
        if metric_form(topic) in theirs:
            return topic
    return None


# ---------------------------------------------------------------------------------------------------------------- tasks


def task_name(partition: int) -> str:
    """The name of the task that owns this partition of every partitioned stream."""
    return f"Partition {partition}"


def task_directory(task: str) -> str:
    """The name of a task's directory. It differs for any two tasks, and is no path, whatever the name is.

    Capitals are written as bytes, because some disks do not tell them from other letters. `Partition` is not, as most tasks begin with it;
    so what reads like it is, in its first letter.

    >>> task_directory("Partition 3"), task_directory("Partition-3"), task_directory("partition 3"), task_directory("../R.15")
    ('Partition-3', '%50artition%2D3', '%70artition-3', '%2E.%2F%52.15')
    """
    front, rest = (_USUAL, task[len(_USUAL) :]) if task.startswith(_USUAL) else ("", task)
    made = front.replace(" ", "-") + "".join(_SHOWN.get(char) or _escaped(char) for char in rest)
    if made.startswith(".") or (not front and made.startswith(_USUAL.lower().replace(" ", "-"))):
        made = _escaped(made[0]) + made[1:]
    if len(made) <= MAX_DIRECTORY:
        return made or "%"
    return f"{made[:MAX_DIRECTORY]}%{sha256(task.encode(errors='surrogatepass')).hexdigest()}"


_USUAL = task_name(0)[:-1]
"""How `task_name` begins."""
_SHOWN = {char: char for char in "abcdefghijklmnopqrstuvwxyz0123456789_."} | {" ": "-"}


def _escaped(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode(errors="surrogatepass"))


def _without_capitals(text: str) -> str:
    """The text with its capitals written as bytes.

    >>> _without_capitals("mySales")
    'my%53ales'
    """
    return re.sub("[A-Z]", lambda found: _escaped(found[0]), text)


# ------------------------------------------------------------------------------------------------- processors, incarnations


def processor_id(text: str) -> str:
    """The id itself if it is allowed in coordinator keys, transactional ids and directories; otherwise raises `DeclarationError`."""
    _legal("processor id", text)
    if len(text) > MAX_PROCESSOR:
        raise DeclarationError(
            f"processor id {text[:40]!r}… has more than {MAX_PROCESSOR} characters", remedy="shorten it"
        )
    return text


def incarnation_id(counter: int, suffix: str | bytes) -> str:
    """The id of one incarnation of a producer: a counter that rises with each incarnation of the processor, and a random suffix.

    >>> incarnation_id(7, bytes([0x3F, 0x2A]))
    '000007-3f2a'
    """
    text = suffix.hex() if isinstance(suffix, bytes) else suffix
    made = f"{counter:06d}-{text}"
    if _INCARNATION.fullmatch(made) is None:
        raise DeclarationError(
            f"{made!r} is not an incarnation",
            remedy="it needs a counter of zero or more, and a random suffix of letters and digits",
        )
    return made


def incarnation_order(incarnation: str) -> tuple[int, str]:
    """The sort key of a processor's incarnations: the counter as a number, so that the order also holds beyond a million of them."""
    match = _INCARNATION.fullmatch(incarnation)
    if match is None:
        raise DeclarationError(f"{incarnation!r} is not an incarnation", remedy="incarnations look like '000007-3f2a'")
    return int(match[1]), match[2]


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """A transactional id: the leader's (`processor` is None), or that of one incarnation of a worker.

    >>> str(TransactionalId(JobName("sales"), "p1", "000007-3f2a"))
    'headgate.sales.1.worker.p1.000007-3f2a'
    """

    job: JobName
    processor: str | None = None
    incarnation: str | None = None

    def __str__(self) -> str:
        front = f"headgate.{_quote(self.job.name)}.{_quote(self.job.id)}"
        if self.processor is None or self.incarnation is None:
            return f"{front}.leader"
        return f"{front}.worker.{_quote(self.processor)}.{self.incarnation}"

    @classmethod
    def parse(cls, text: str) -> TransactionalId | None:
        """Parse a transactional id; None if it is not one of headgate's."""
        match = _TRANSACTION.fullmatch(text)
        if match is None:
            return None
        name, number, leader, processor, incarnation = match.groups()
        try:
            job = JobName(_unquote(name), _unquote(number))
            if leader:
                return cls(job)
            incarnation_order(incarnation)
            return cls(job, processor_id(_unquote(processor)), incarnation)
        except DeclarationError:
            return None


def leader_id(job: JobName) -> str:
    """The transactional id with which the leader writes the coordinator stream."""
    return str(TransactionalId(job))


def worker_id(job: JobName, processor: str, incarnation: str) -> str:
    """The transactional id of one incarnation. Its owner initialises it once; after that it is initialised only to fence the owner."""
    incarnation_order(incarnation)
    return str(TransactionalId(job, processor_id(processor), incarnation))


def _quote(text: str) -> str:
    return text.replace(".", "%2E")


def _unquote(text: str) -> str:
    return text.replace("%2E", ".")


def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """A sort key that puts "Partition 10" after "Partition 9".

    >>> sorted(["Partition 10", "Partition 9"], key=natural)
    ['Partition 9', 'Partition 10']
    """
    parts: list[tuple[int, str]] = []
    for at, part in enumerate(re.split(r"([0-9]+)", name)):
        digits = part.lstrip("0")
        parts.append((len(digits), digits) if at % 2 else (0, part))
    return tuple(parts), name
