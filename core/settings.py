"""Every setting: its name, type, default, owner, and when a change takes effect. This is the only table; docs and checks read it.

Values come from flags and `HEADGATE_*` for one worker, from `headgate.toml` for a deployment, and from overrides in the coordinator stream
for the job; the source nearest to the worker wins (`resolve` says which one that was). Kinds:

- `immutable`  decides where state lies; a change is refused after the first run;
- `next-run`   takes effect when the next run begins;
- `dynamic`    takes effect at once, in every worker; each acknowledges the offset that it has applied.

Promises: an unknown name is an error that suggests the nearest known one; a value is checked and parsed before it is used; a secret is
masked wherever it is shown, and is never written to a topic. What is secret is known by the row of the setting, by its name, or, inside of
a text, by what precedes it (`secrets`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from .errors import SettingError
from .secrets import MASK, NAMES, found_in, masked

IMMUTABLE = "immutable"
DYNAMIC = "dynamic"
NEXT_RUN = "next-run"

JOB = "job"
"""Set for the whole job; may be overridden in the coordinator stream."""
WORKER = "worker"
"""Set for one worker by a flag, the environment or the file; never in the stream."""

WAIT, AUTO = "duration or auto", "auto"
"""A type whose value may be `auto`, which is parsed as None."""
SECRET_REMEDY = "set it on each worker: by flag, environment or file"

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNITS_BYTES = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_NUMBERS = re.compile(r"\d+")
_LETTERS = re.compile(r"[^a-z0-9]")
MAX_MS = 2**53


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    name: str
    type: str
    default: Any
    kind: str
    owner: str
    doc: str
    choices: tuple[str, ...] = ()
    secret: bool = False
    least: str = ""
    """The least value that makes sense; empty if any does."""
    most: str = ""
    """The greatest value that makes sense; empty if any does."""


class VirtualTime(str):
    """The value of a setting in virtual time, where what is done at once costs nothing: no least value applies to it."""

    __slots__ = ()


LEAST: Mapping[str, str] = MappingProxyType({
    "heartbeat.interval": "50ms",
    "session.timeout": "500ms",
    "stall.timeout": "1s",
    "stop.timeout": "100ms",
    "release.timeout": "100ms",
    "fence.timeout": "100ms",
    "fetch.watchdog": "100ms",
    "fetch.max-batch-bytes": "64KiB",
    "buffer.bytes": "1KiB",
    "chunk.max-bytes": "1",
    "commit.interval": "10ms",
    "transaction.timeout": "1s",
    "watermark.idle-timeout": "50ms",
    "watermark.idle-confirm": "100ms",
    "share.restate": "100ms",
    "state.memory": "256KiB",
    "spark.batch-timeout": "1s",
    "spark.batch-memory": "1KiB",
    "spark.probe-timeout": "1s",
    "spark.executors-timeout": "1s",
    "gather.max-bytes": "1",
    "sink.max-age": "10ms",
    "files.max-age": "10ms",
    "answers.keep": "1s",
    "inputs.look-interval": "100ms",
})  # fmt: skip
"""Below these values a worker would fence healthy ones, refuse all work, or do nothing but say the same again."""
MOST: Mapping[str, str] = MappingProxyType({"web.port": "65535", "workers": "1000", "standby": "1"})
"""Above these values a worker would not start."""
TIMES: Mapping[str, tuple[str, int, str]] = MappingProxyType({
    "session.timeout": ("heartbeat.interval", 2, "a worker would be dead before its next heartbeat"),
    "transaction.timeout": ("commit.interval", 2, "the broker would abort transactions before they commit"),
})  # fmt: skip
"""Settings that must be so many times another one, and what would happen otherwise."""


def _rows(*rows: tuple[Any, ...]) -> Mapping[str, Setting]:
    bounds = {row[0]: {"least": LEAST.get(row[0], ""), "most": MOST.get(row[0], "")} for row in rows}
    return MappingProxyType({row[0]: replace(Setting(*row), **bounds[row[0]]) for row in rows})


SETTINGS: Mapping[str, Setting] = _rows(
    # ------------------------------------------------------------------------------------------------ where state lies
    ("job.name", "text", "", IMMUTABLE, JOB, "The job's name; with its id it names every topic and directory."),
    ("job.id", "text", "1", IMMUTABLE, JOB, "Distinguishes jobs with the same name."),
    ("grouper", "text", "partition", IMMUTABLE, JOB, "Which partitions make a task: partition, stream-partition, all, or an import path."),
    ("topic.prefix", "text", "", IMMUTABLE, JOB, "Prefix of every topic that the job creates."),
    ("topic.create-outputs", "flag", False, NEXT_RUN, WORKER, "Create outputs that are missing. On for a broker of `headgate kafka up`."),
    ("topic.replicas", "count", 0, NEXT_RUN, WORKER, "Replicas of the topics that the job creates; 0: the brokers' default."),
    ("topic.min-insync", "count", 0, NEXT_RUN, WORKER, "Their min.insync.replicas; 0: the brokers' default."),
    ("topic.output-retention", "duration", "0s", NEXT_RUN, WORKER, "Retention of outputs that the job creates; 0s: the brokers' default."),
    ("topic.dead-letters-retention", "duration", "14d", NEXT_RUN, WORKER, "How long dead letters are kept; 0s: the brokers' default."),
    # --------------------------------------------------------------------------------------------------- who is alive
    ("heartbeat.interval", "duration", "1s", NEXT_RUN, JOB, "How often a worker sends a heartbeat."),
    ("session.timeout", "duration", "6s", NEXT_RUN, JOB, "A worker that sends no heartbeat for this long is considered dead."),
    ("stall.timeout", "duration", "5m", DYNAMIC, JOB, "A worker whose main loop is blocked for this long is considered dead."),
    ("stop.timeout", "duration", "25s", DYNAMIC, JOB, "How long a worker may take to stop; then it reports what is unfinished, and exits."),
    ("stop.prepare", "duration", "10s", DYNAMIC, JOB, "How long a worker that is told to leave works on, while others prepare its tasks."),
    ("release.timeout", "duration", "30s", DYNAMIC, JOB, "How long a task may take to release before its worker is fenced."),
    ("fence.timeout", "duration", "30s", DYNAMIC, JOB, "A fence that has not returned after this time is requested again."),
    ("placement", "text", "default", NEXT_RUN, JOB, "Which worker runs which task: default, or an import path."),
    ("placement.debounce", "duration", "1s", DYNAMIC, JOB, "How long the leader waits for more workers before it places tasks."),
    ("placement.rejoin-grace", WAIT, "10s", DYNAMIC, JOB, "How long tasks with state wait for a worker that has left, or auto."),
    ("placement.prepare", "duration", "5m", DYNAMIC, JOB, "How long a task's next owner may prepare before it moves; 0s: at once."),
    ("standby", "count", 0, DYNAMIC, JOB, "How many workers elsewhere follow the log of each task with state: 0 or 1."),
    ("workers", "count", 0, DYNAMIC, JOB, "How many workers `headgate run --workers` keeps; 0: as many as `--workers` says."),
    ("workers.spare", "flag", True, NEXT_RUN, WORKER, "A supervisor keeps one process loaded, which takes the place of one that dies."),
    ("location.provider", "text", "default", NEXT_RUN, WORKER, "Where its disk is: default, host, kubernetes-…, env:NAME, an import path."),
    # ---------------------------------------------------------------------------------------------------- reading
    ("inputs.look-interval", "duration", "30s", DYNAMIC, JOB, "How often the leader counts partitions and looks for topics of patterns."),
    ("fetch.watchdog", "duration", "30s", DYNAMIC, JOB, "An input without an answered fetch for this long is considered degraded."),
    ("buffer.bytes", "size", "4MiB", NEXT_RUN, JOB, "Bytes of one partition that are read ahead; all of a worker share four times that."),
    ("fetch.max-batch-bytes", "size", "64MiB", NEXT_RUN, JOB, "A record batch that is larger once it is decompressed is bad data."),
    ("chunk.max-records", "positive", 2000, DYNAMIC, JOB, "Maximum number of records in a chunk of rows."),
    ("chunk.max-bytes", "size", "1MiB", DYNAMIC, JOB, "Maximum size of the records in a chunk of columns; one record always fits."),
    ("chooser", "text", "round-robin", NEXT_RUN, JOB, "What is read next: round-robin, time-aligned, starting-alignment, an import path."),
    ("chooser.batch-size", "positive", 2000, DYNAMIC, JOB, "Records taken in a row from one partition; in columns up to 8 times as many."),
    ("chooser.max-starve", "duration", "10s", DYNAMIC, JOB, "A lower tier gets a turn after waiting this long."),
    ("chooser.align-wait", "duration", "200ms", DYNAMIC, JOB, "How long time alignment waits for an empty but active partition."),
    ("chooser.max-drift", "duration", "10s", DYNAMIC, JOB, "How far apart in event time streams of a join are read; 0: any distance."),
    ("streams.<name>.priority", "number", 0, DYNAMIC, JOB, "The tier of an input; higher tiers are read first."),
    ("intermediate.max-lag", "count", 100_000, DYNAMIC, JOB, "Inputs pause while a task has more unread intermediate records than this."),
    ("intermediate.trim", "flag", True, DYNAMIC, JOB, "Delete records of intermediate streams that are no longer needed."),
    # ---------------------------------------------------------------------------------------------------- committing
    ("guarantee", "text", "exactly_once", NEXT_RUN, JOB, "Delivery guarantee of the outputs.", ("exactly_once", "at_least_once")),
    ("commit.interval", "duration", "200ms", DYNAMIC, JOB, "How often completed work is committed. Tasks with a backlog may wait for 2s."),
    ("transaction.timeout", "duration", "1m", NEXT_RUN, JOB, "The broker aborts a transaction that is open for longer."),
    ("error.retries", "count", 3, DYNAMIC, JOB, "How often a failed chunk is retried."),
    ("letter.warn-after", "duration", "30s", DYNAMIC, JOB, "A letter that takes longer is reported, and its worker not ready; 0s: never."),
    ("await.timeout", "duration", "0s", DYNAMIC, JOB, "How long awaited user code may take before it fails; 0s means no limit."),
    ("drain.callback-timeout", "duration", "5m", DYNAMIC, JOB, "As await.timeout, during a drain; the task fails at once. 0s: no limit."),
    ("failure.policy", "text", "task", DYNAMIC, JOB, "If a task fails for good: only it stops, or its worker exits.", ("task", "exit")),
    ("compression", "text", "none", NEXT_RUN, JOB, "Compression codec of written batches.", ("none", "gzip", "snappy", "lz4", "zstd")),
    # ---------------------------------------------------------------------------------------------------- control
    ("control.aggregate-above", "count", 1024, NEXT_RUN, JOB, "Above this many producers times partitions, control messages are merged."),
    ("watermark.idle-timeout", "duration", "30s", DYNAMIC, JOB, "An input without new records for this long is idle."),
    ("watermark.idle-confirm", "duration", "1s", DYNAMIC, JOB, "How often an idle task confirms that it is, while others may go on."),
    ("share.restate", "duration", "1m", DYNAMIC, JOB, "How often the state of its producers is repeated in a shared stream."),
    # ---------------------------------------------------------------------------------------------------- state
    ("state.dir", "text", "~/.local/state/headgate", NEXT_RUN, WORKER, "Directory of the local tables."),
    ("state.cleanup-delay", "duration", "12h", DYNAMIC, JOB, "How long stores that are not used any more are kept; 0s: always."),
    ("story.max-bytes", "size", "64MiB", NEXT_RUN, WORKER, "How much is kept on disk of what a worker saw and decided; 0: nothing."),
    ("state.memory", "size", "256MiB", NEXT_RUN, WORKER, "Memory of all tables: a quarter for decoded rows, the rest for RocksDB."),
    # ---------------------------------------------------------------------------------------------------- spark
    ("spark.master", "text", "local[*]", NEXT_RUN, JOB, "Where Spark runs."),
    ("spark.remote", "text", "", NEXT_RUN, JOB, "A Spark Connect server, instead of a master."),
    ("spark.in-flight", "positive", 4, DYNAMIC, JOB, "How many batches of one task run in Spark at a time, or wait for a sink."),
    ("spark.batch-timeout", "duration", "1h", NEXT_RUN, JOB, "How long Spark may take for one batch before its jobs are cancelled."),
    ("spark.batch-memory", "size", "256MiB", NEXT_RUN, WORKER, "Memory of a worker for batches and results at Spark; others go to files."),
    ("spark.spool", "text", "", NEXT_RUN, WORKER, "A directory for batches beyond spark.batch-memory, which all executors reach."),
    ("spark.package", "text", "", NEXT_RUN, JOB, "Code for Spark's executors: files, directories or archives, separated by commas."),
    ("spark.probe-timeout", "duration", "30s", NEXT_RUN, JOB, "A Spark session that does not answer for this long is replaced."),
    ("spark.executors-timeout", "duration", "2m", NEXT_RUN, JOB, "How long a Spark session may wait for its cluster or for an executor."),
    ("spark.<name>", "value", "", NEXT_RUN, JOB, "A setting of Spark under its own name, such as spark.driver.memory."),
    ("gather.max-bytes", "size", "1GiB", DYNAMIC, JOB, "How many bytes the open batches behind a gather may hold together."),
    # ---------------------------------------------------------------------------------------------------- sinks
    ("sink.max-rows", "positive", 10_000, DYNAMIC, JOB, "Maximum rows of a batch of to_sql and to_sink that do not say so themselves."),
    ("sink.max-age", "duration", "1s", DYNAMIC, JOB, "How long such a batch waits for more rows."),
    ("files.max-rows", "positive", 1_000_000, DYNAMIC, JOB, "Maximum rows of a batch of to_files that does not say so itself."),
    ("files.max-age", "duration", "1m", DYNAMIC, JOB, "How long such a batch waits for more rows: each makes a file or more."),
    # ---------------------------------------------------------------------------------------------------- surroundings
    ("bootstrap", "text", "", NEXT_RUN, WORKER, "Kafka brokers."),
    ("processor.id", "text", "", NEXT_RUN, WORKER, "Stable name of this worker."),
    ("web.host", "text", "127.0.0.1", NEXT_RUN, WORKER, "Address of this worker's pages."),
    ("web.port", "count", 0, NEXT_RUN, WORKER, "Port of this worker's pages, the first of those of --workers N; 0 means a free port."),
    ("web.token", "text", "", NEXT_RUN, WORKER, "The token of the pages, which readers send as a bearer token or password.", (), True),
    ("registry.url", "text", "", NEXT_RUN, WORKER, "Schema registry of hg.avro() and the like; several addresses with commas between."),
    ("registry.user", "text", "", NEXT_RUN, WORKER, "User at the schema registry."),
    ("registry.password", "text", "", NEXT_RUN, WORKER, "Password at the schema registry.", (), True),
    ("registry.token", "text", "", NEXT_RUN, WORKER, "Bearer token for the schema registry, instead of a user.", (), True),
    ("registry.ca", "text", "", NEXT_RUN, WORKER, "Authorities that the schema registry is known by, a PEM file; else the system's."),
    ("registry.certificate", "text", "", NEXT_RUN, WORKER, "This worker's certificate for the schema registry, a PEM file."),
    ("registry.key", "text", "", NEXT_RUN, WORKER, "Its key, a PEM file, unless it is in the same file."),
    ("trace.sample", "share", "0", DYNAMIC, JOB, "The share of chunks of which OpenTelemetry gets a span, from 0 (none) to 1 (all)."),
    ("trace.propagate", "flag", False, DYNAMIC, JOB, "Records of outputs name the span that has written them, in a header `traceparent`."),
    ("log.level", "text", "info", DYNAMIC, JOB, "Minimum level of log messages.", ("debug", "info", "warning", "error")),
    ("answers.keep", "duration", "1d", DYNAMIC, JOB, "How long the answer to a request is kept."),
)  # fmt: skip
"""All settings by name. `<name>` stands for the name of a stream."""


PRODUCERS_OWN = frozenset({"guarantee", "transaction.timeout", "compression"})
"""The settings that a worker's producers are made with. A worker that started before its run makes new producers if the run's settings
differ."""

BEFORE_THE_STREAM = frozenset({
    "heartbeat.interval", "session.timeout", "placement", "spark.master", "spark.remote", "spark.package", "spark.probe-timeout",
    "spark.executors-timeout", "spark.<name>",
})  # fmt: skip
"""The settings that a process needs before it can read an override. All other settings of a run are stored in the run, for all its
tasks."""

ADDRESSES = frozenset({"spark.master", "spark.remote", "spark.package"})
"""Settings that say where something is, for one process. Addresses may hold passwords in more ways than are known."""
OF_SPARK = "spark.<name>"
SHORT_OF_SPARK = frozenset({
    "spark.archives", "spark.authenticate", "spark.extraListeners", "spark.files", "spark.home", "spark.jars", "spark.logConf",
    "spark.logLineage", "spark.maxRemoteBlockSizeFetchToMem", "spark.plugins", "spark.serializer", "spark.speculation",
})  # fmt: skip
"""The settings of Spark itself whose names have two parts only. All others have more."""

TAKEN_BY: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "stall.timeout": ("leader",),
    "release.timeout": ("leader",),
    "fence.timeout": ("leader",),
    "placement.debounce": ("leader",),
    "placement.rejoin-grace": ("leader",),
    "placement.prepare": ("leader",),
    "standby": ("leader",),
    "answers.keep": ("leader",),
    "workers": ("supervisor",),
    "fetch.watchdog": ("intake",),
    "chunk.max-records": ("chooser",),
    "chunk.max-bytes": ("chooser",),
    "chooser.batch-size": ("chooser",),
    "chooser.max-starve": ("chooser",),
    "chooser.align-wait": ("chooser",),
    "chooser.max-drift": ("chooser",),
    "streams.<name>.priority": ("chooser",),
    "intermediate.max-lag": ("task",),
    "intermediate.trim": ("upkeep",),
    "state.cleanup-delay": ("upkeep",),
    "commit.interval": ("committer", "task"),
    "error.retries": ("task",),
    "stop.timeout": ("worker",),
    "stop.prepare": ("leader", "worker"),
    "inputs.look-interval": ("worker",),
    "letter.warn-after": ("task",),
    "await.timeout": ("task",),
    "drain.callback-timeout": ("task",),
    "failure.policy": ("worker",),
    "watermark.idle-timeout": ("task",),
    "watermark.idle-confirm": ("task",),
    "share.restate": ("task",),
    "spark.in-flight": ("spark",),
    "gather.max-bytes": ("spark",),
    **dict.fromkeys(("sink.max-rows", "sink.max-age", "files.max-rows", "files.max-age"), ("task",)),
    "trace.sample": ("trace",),
    "trace.propagate": ("trace",),
    "log.level": ("log",),
})  # fmt: skip
"""Which parts of a worker apply a dynamic setting while they run; a change is acknowledged when each of them has applied it. The leader
and the supervisor read theirs from the stream; the other parts are notified (`agents/worker/settings_taken.py`). A setting that no part
applies is not dynamic."""


def duration_ms(text: str | int | float) -> int:
    """Milliseconds from `200ms`, `5s`, `1.5m`, `2h`, `1d`, `1w`, or a bare number of seconds.

    >>> duration_ms("1.5m"), duration_ms(2)
    (90000, 2000)
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SettingError(f"{text!r} is not a duration", remedy="write it like 200ms, 5s, 1.5m, 2h or 1d")
    match = _QUANTITY.fullmatch(str(text))
    if match is None or (unit := match[2] or "s") not in _UNITS_MS:
        raise SettingError(f"{text!r} is not a duration", remedy="write it like 200ms, 5s, 1.5m, 2h or 1d")
    value = round(float(match[1]) * _UNITS_MS[unit]) if len(match[1]) < 20 else MAX_MS + 1
    if value > MAX_MS:
        raise SettingError(f"{text!r} is too long for a duration", remedy="use something shorter")
    return value


def size_bytes(text: str | int) -> int:
    """Bytes from `64KiB`, `1 MB`, or a bare number.

    >>> size_bytes("64KiB")
    65536
    """
    match = None if isinstance(text, bool) else _QUANTITY.fullmatch(str(text))
    if match is None or (unit := match[2].lower()) not in _UNITS_BYTES or len(match[1]) > 20:
        raise SettingError(f"{text!r} is not a size", remedy="write it like 64KiB, 4MiB or 1GB")
    return round(float(match[1]) * _UNITS_BYTES[unit])


def find(name: str) -> Setting:
    """The row of this setting; `streams.orders.priority` finds the row of `streams.<name>.priority`."""
    if name in SETTINGS:
        return SETTINGS[name]
    if of_spark(name):
        return SETTINGS[OF_SPARK]
    parts = name.split(".")
    if len(parts) >= 3 and (general := f"{parts[0]}.<name>.{parts[-1]}") in SETTINGS and all(parts):
        return SETTINGS[general]
    raise SettingError(
        f"there is no setting '{name}'",
        remedy=did_you_mean(name, {*SETTINGS, *(SHORT_OF_SPARK if name.startswith("spark.") else ())} - {OF_SPARK})
        or "`headgate config get JOB` lists them all",
    )


def of_spark(name: str) -> bool:
    """Whether this is a setting of Spark itself, which is passed on under its own name.

    Names of headgate have two parts, in small letters with hyphens; names of Spark have more parts, but for a few. A name that differs from
    one of headgate's in a letter or two, or only in its dots, hyphens and capitals, is a mistake, and not a setting of Spark.

    >>> of_spark("spark.executor.memory"), of_spark("spark.jars"), of_spark("spark.in-flight"), of_spark("spark.batch.timeout")
    (True, True, False, False)
    """
    front, *parts = name.split(".")
    if front != "spark" or not all(parts) or not (len(parts) > 1 or name in SHORT_OF_SPARK) or "<" in name:
        return False
    ours = [other for other in SETTINGS if other.startswith("spark.") and "<" not in other]
    return not any(
        _LETTERS.sub("", other) == _LETTERS.sub("", name.lower()) or _distance(name, other) < 3 for other in ours
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant: it differs in a few letters, or contains this name; empty if there is none.

    >>> nearest("comit.intervall", SETTINGS), nearest("rejoin-grace", SETTINGS), nearest("xyzzy", SETTINGS)
    ('commit.interval', 'placement.rejoin-grace', '')
    """
    word, names = name[:100].lower(), sorted(known)
    best = min(names, key=lambda other: _distance(word, other.lower()), default="")
    if best and _distance(word, best.lower()) <= max(1, (min(len(word), len(best)) + 1) // 3):
        return best
    return min((other for other in names if len(word) > 2 and word in other.lower()), key=len, default="")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question "did you mean …?" for people; empty if no known name is near.

    >>> did_you_mean("stauts", ["start", "status"]), did_you_mean("xyzzy", ["start"])
    ("did you mean 'status'?", '')
    """
    near = nearest(name, known)
    return f"did you mean '{near}'?" if near else ""


def offer(name: str, known: Iterable[str], *, most: int = 8) -> str:
    """A hint for a name that does not exist: the name that was probably meant, otherwise the names that exist; empty if there are none.

    A name that differs only in its numbers is not offered as the one meant.

    >>> offer("ordesr", ["rates", "orders"]), offer("xyzzy", ["rates", "orders"]), offer("xyzzy", "cab", most=2)
    ("did you mean 'orders'?", "there are 'orders', 'rates'", "there are 'a', 'b' and 1 more")
    """
    names = sorted(set(known))
    if not names:
        return ""
    near = nearest(name, names)
    if near and _NUMBERS.sub("#", near) != _NUMBERS.sub("#", name):
        return f"did you mean '{near}'?"
    shown_names = ", ".join(f"'{one}'" for one in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"there {'is' if len(names) == 1 else 'are'} {shown_names}{more}"


@lru_cache(maxsize=4096)
def _distance(a: str, b: str) -> int:
    """The edit distance: letters that are wrong, missing, surplus, or swapped with their neighbour."""
    above, row = [0] * (len(b) + 1), list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        two_above, above, row = above, row, [i]
        for j, y in enumerate(b, 1):
            least = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                least = min(least, two_above[j - 2] + 1)
            row.append(least)
    return row[-1]


def parse(name: str, value: Any) -> Any:
    """The value as code uses it: durations in ms, sizes in bytes. Raises `SettingError`, which names the setting and the value.

    >>> parse("commit.interval", "200ms"), parse("watermark.idle-confirm", "250ms")
    (200, 250)
    """
    row = find(name)
    try:
        parsed = _parse(row.type, value)
    except (SettingError, ValueError, TypeError, OverflowError) as error:
        said = error.what if isinstance(error, SettingError) else f"{value!r:.60} is not a {row.type}"
        remedy = error.remedy if isinstance(error, SettingError) else f"its default is {row.default!r}"
        hidden = f"'{MASK}' is not a {row.type}" if secrets_in(name, value) else said
        raise SettingError(f"'{name}': {hidden}", remedy=remedy) from None
    if row.choices and parsed not in row.choices:
        raise SettingError(f"'{name}' cannot be {shown(name, parsed)!r:.60}", remedy=f"one of {', '.join(row.choices)}")
    if row.least and parsed < _parse(row.type, row.least) and not isinstance(value, VirtualTime):
        raise SettingError(f"'{name}' cannot be {value!r:.60}", remedy=f"at least {row.least}")
    if row.most and parsed > _parse(row.type, row.most):
        raise SettingError(f"'{name}' cannot be {value!r:.60}", remedy=f"at most {row.most}")
    return parsed


def conflict(values: Mapping[str, Any], about: str = "") -> str:
    """Why these values make no sense together, the defaults of the others included; empty if they do. `about`: only with this one.

    >>> conflict({"heartbeat.interval": "10s"})
    "'session.timeout' (6s) must be at least 2 times 'heartbeat.interval' (10s): a worker would be dead before its next heartbeat"
    """
    for name, (other, times, otherwise) in TIMES.items():
        if about not in ("", name, other):
            continue
        given = {one: values.get(one, find(one).default) for one in (name, other)}
        try:
            together = parse(name, given[name]) >= times * parse(other, given[other])
        except SettingError:  # a value that an earlier version has taken; what is given now is parsed where it is given
            continue
        if not together:
            return f"'{name}' ({given[name]}) must be at least {times} times '{other}' ({given[other]}): {otherwise}"
    return ""


def _parse(kind: str, value: Any) -> Any:
    if kind == WAIT and value == AUTO:
        return None
    if kind in ("duration", WAIT):
        return duration_ms(value)
    if kind == "size":
        return size_bytes(value)
    if kind == "flag":
        if isinstance(value, bool):
            return value
        found = {
            "true": True,
            "yes": True,
            "on": True,
            "1": True,
            "false": False,
            "no": False,
            "off": False,
            "0": False,
        }
        return found.get(str(value).lower()) if str(value).lower() in found else _wrong()
    if kind == "text":
        return value if isinstance(value, str) else _wrong()
    if kind == "value":
        return (
            str(value).lower()
            if isinstance(value, bool)
            else str(value)
            if isinstance(value, str | int | float)
            else _wrong()
        )
    if isinstance(value, bool):
        return _wrong()
    if kind == "share":
        share = float(value)
        return share if 0 <= share <= 1 else _wrong()
    number = int(value) if not isinstance(value, float) else _wrong()
    least = {"positive": 1, "count": 0}.get(kind)
    return number if least is None or number >= least else _wrong()


def _wrong() -> Any:
    raise ValueError


@dataclass(frozen=True, slots=True)
class Resolved:
    """A setting's parsed value, and where it comes from: `default`, or the name of the source that won."""

    value: Any
    origin: str
    raw: Any
    masked: tuple[str, ...] = ()
    """Weaker sources that also set it: for example an override that a flag masks."""


def resolve(sources: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Resolved]:
    """Every setting's value. `sources` are (origin, values), the strongest first; unknown names are errors.

    >>> resolve([("flag", {"commit.interval": "1s"}), ("override", {"commit.interval": "2s"})])["commit.interval"].masked
    ('override',)
    """
    names = dict.fromkeys(name for name in SETTINGS if "<" not in name)
    for _, values in sources:
        for name in values:
            find(name)
            names[name] = None
    return {name: _resolve(name, sources) for name in names}


def _resolve(name: str, sources: Sequence[tuple[str, Mapping[str, Any]]]) -> Resolved:
    saying = [(origin, values[name]) for origin, values in sources if name in values]
    if not saying:
        default = find(name).default
        return Resolved(parse(name, default), "default", default)
    origin, raw = saying[0]
    return Resolved(parse(name, raw), origin, raw, tuple(other for other, _ in saying[1:]))


def is_secret(name: str) -> bool:
    """Whether the whole value of a setting of this name is a secret.

    >>> [is_secret(name) for name in ("ssl.key.password", "spark.executorEnv.PGPASS", "fs.s3a.access.key", "commit.interval")]
    [True, True, True, False]
    """
    return (name in SETTINGS and SETTINGS[name].secret) or NAMES.search(name) is not None


def secrets_in(name: str, value: Any) -> list[str]:
    """The secrets that a value holds: all of it, or parts of a text.

    >>> secrets_in("spark.remote", "sc://host:15002/;token=hunter2;user_id=ann"), secrets_in("x", "s3://me:hunter2@bucket/a")
    (['hunter2'], ['hunter2'])
    """
    if is_secret(name):
        return [] if value in ("", None) else [str(value)]
    return found_in(value) if isinstance(value, str) else []


def secrets_of(*settings: Mapping[str, Any]) -> list[str]:
    """The secrets among settings, of clients and of the job.

    >>> secrets_of({"sasl.password": "hunter2", "x": 1}, {"registry.url": "https://me:pw@host"})
    ['hunter2', 'me:pw', 'pw']
    """
    return [secret for some in settings for name, value in some.items() for secret in secrets_in(name, value)]


def shown(name: str, value: Any) -> Any:
    """The value as it may be shown: secrets are masked, also those inside of it.

    >>> shown("sasl.password", "hunter2"), shown("commit.interval", "1s"), shown("spark.remote", "sc://host/;token=hunter2")
    ('***', '1s', 'sc://host/;token=***')
    """
    if is_secret(name):
        return MASK if value not in ("", None) else value
    return masked(value) if isinstance(value, str) else value


def kept_in_run(name: str, value: Any) -> bool:
    """Whether a setting is written into the run, for all its workers: one of the job's, without a secret, that a process does not need
    before it can read the run.
    """
    if name not in SETTINGS or SETTINGS[name].owner != JOB or name in ADDRESSES:
        return False
    return not secrets_in(name, value)


def stream_of(name: str) -> str:
    """The stream that a setting belongs to; empty if it belongs to none.

    >>> stream_of("streams.eu.orders.priority"), stream_of("commit.interval")
    ('eu.orders', '')
    """
    row = find(name)
    front, _, back = row.name.partition("<name>")
    if row.name == OF_SPARK:
        return ""
    return name.removeprefix(front).removesuffix(back) if back else ""


def stream_problem(name: str, inputs: Iterable[str]) -> str:
    """Why a stream's setting has no effect in a job with these inputs; empty if it has one, or does not belong to a stream."""
    stream, known = stream_of(name), sorted(inputs)
    if not stream or stream in known:
        return ""
    return f"the job has no input '{stream}', so '{name}' has no effect; {offer(stream, known)}"


def secret_problem(name: str, value: Any) -> str:
    """Why this value is not written to any topic; empty if it may be.

    >>> secret_problem("commit.interval", "1s"), secret_problem("spark.remote", "sc://h/;token=hunter2")
    ('', "'spark.remote' holds what looks like a secret, and secrets are never written to a topic")
    """
    if not secrets_in(name, value) and not is_secret(name):
        return ""
    return f"'{name}' holds what looks like a secret, and secrets are never written to a topic"


def override_problem(name: str, value: Any, *, ran: bool, unset: bool = False) -> str:
    """Why this override is not allowed in the coordinator stream; empty if it is allowed. `ran`: the job has had a run."""
    if why := secret_problem(name, None if unset else value):
        return f"{why}; {SECRET_REMEDY}"
    try:
        row = find(name)
        if not unset:
            parse(name, value)
    except SettingError as error:
        return str(error)
    if row.owner != JOB:
        return f"'{name}' belongs to each worker; set it by flag, environment or file"
    if row.kind == IMMUTABLE and ran:
        return f"'{name}' is immutable: it decides where state is stored, and the job has run; start it under a new name or id"
    if row.kind == IMMUTABLE or row.name in BEFORE_THE_STREAM:
        return f"'{name}' is read when a process starts, before any override; set it by flag, environment or file"
    return ""
