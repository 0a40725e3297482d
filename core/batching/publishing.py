"""Results that Spark writes to files: where an attempt writes, what the files of a batch are called for good, and which batches are whole.

    <path>/country=DE/part-00000-…-000000000007.snappy.parquet      what plain readers see
    <path>/_headgate/staging/<series>/<number>/<attempt>/…          what an attempt writes; readers skip names that begin with `_`
    <path>/_headgate/manifest/<series>/0-<number>-<number>.json     the entry of a batch that is whole

A *series* is what one task writes for one stage, from the first batch of its bookkeeping on. Its name is part of every name below, so
that numbers which begin again at 1 (after `reset`) never meet old files.

What it promises:

- Two attempts never write to the same directory, and the names of a batch's files depend on its series and number only: publishing an
  attempt again changes nothing, whoever does it.
- A batch has an entry in the manifest (`manifest`) once all its files have their names.
- What is in a staging directory is garbage as soon as its batch is published, or durably done without files, and never before; or when
  the bookkeeping that knew it has started over, as after `reset`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..errors import DeclarationError
from .manifest import File
from .spark_schema import RESULT, ROWS, check_column

STAGED = ("parquet", "orc", "json")
DELTA = "delta"
OURS = frozenset({"path", "txnappid", "txnversion"})
"""Options of a writer that the stage sets itself, in lower case as Spark compares them."""

HOME = "_headgate"
PLAN = "_plan.json"
"""The file in an attempt's directory that lists its files. It is written last: an attempt without it is not complete."""

_HEX = re.compile(r"[0-9a-f]+")
_ENDING = re.compile(r".*?[-.]c\d+(\..+)")


def series_name(job: str, stage: str, task: str, begun_ms: int) -> str:
    """The name of what a task writes for a stage; `begun_ms` is the time of its first batch.

    >>> series_name("sales/1", "daily", "Partition 3", 0x18C2F3A5B00)
    'sales-1-daily-Partition-3-6783e6b3-18c2f3a5b00'
    """
    readable = "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part)[:40] for part in (job, stage, task))
    return f"{readable}-{zlib.crc32(json.dumps([job, stage, task]).encode()):08x}-{begun_ms:x}"


def forebears(names: Iterable[str], series: str) -> list[str]:
    """The series among these that the same task wrote for the same stage before its bookkeeping began again: `reset`, `tables clear`.

    >>> forebears(["a-1-6783e6b3-ff", "a-1-6783e6b3-101", "b-6783e6b3-1", "x"], "a-1-6783e6b3-100")
    ['a-1-6783e6b3-ff']
    """
    own, _, begun = series.rpartition("-")
    if not _HEX.fullmatch(begun):
        return []
    parts = ((name, *name.rpartition("-")[::2]) for name in names)
    return [name for name, of, when in parts if of == own and _HEX.fullmatch(when) and int(when, 16) < int(begun, 16)]


@dataclass(frozen=True, slots=True)
class Keep:
    """How long batches stay in the manifest (`forgetting`)."""

    rows_ms: int
    """A batch is forgotten when its newest row is older than this."""
    delete_after_ms: int
    """How long the files of a forgotten batch stay, for those who are reading them."""

    def cutoff_ms(self, newest_ms: int, now_ms: int) -> int:
        """Batches without a row of this time or later are forgotten.

        >>> Keep(100, 10).cutoff_ms(1000, 5000), Keep(100, 10).cutoff_ms(1000, 900)
        (900, 800)
        """
        return min(newest_ms, now_ms) - self.rows_ms


@dataclass(frozen=True, slots=True)
class SparkWrite:
    """Where a stage writes its results instead of passing them on: files, a Delta table, or whatever a function of the user writes."""

    path: str = ""
    """A URI."""
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    save: Callable[[Any, Any], Any] | None = None
    """The user's function `(df, batch)`."""
    job: str = ""
    series: str = ""
    keep: Keep | None = None
    """How long batches stay; None: for ever."""

    @property
    def in_order(self) -> bool:
        """Whether a batch may be written only after the one before it: a Delta table remembers no more than the greatest number."""
        return self.save is None and self.format == DELTA


def declared_write(
    target: Any,
    format: Any,
    partition_by: Any,
    options: Any,
    columns: tuple[str, ...] = (),
    keep: Keep | None = None,
    verb: str = "write",
) -> SparkWrite:
    """The arguments of `.write(…)`, checked; raises `DeclarationError`. `columns`: those of the result, if they are known; `verb`: what the
    user has called.

    >>> declared_write("/data/revenue/", "parquet", "country", None) == SparkWrite("file:///data/revenue", "parquet", ("country",))
    True
    """
    if callable(target):
        if (format, partition_by, options, keep) != (None, (), None, None):
            raise DeclarationError(
                "write(function) with a format, partition_by, options or keep",
                remedy="the function itself says how it writes",
            )
        return SparkWrite(save=target)
    format = "parquet" if format is None else format
    if format not in (*STAGED, DELTA):
        raise DeclarationError(
            f"{verb}(format={format!r})",
            remedy=f"one of {', '.join((*STAGED, DELTA))}; for anything else pass a function (df, batch) that writes, at least once",
        )
    if format == DELTA and keep is not None:
        raise DeclarationError(
            f"{verb}(format='delta', keep=…): headgate keeps no list of a Delta table's files",
            remedy="delete rows of the table, and VACUUM it, on a schedule of your own",
        )
    if not isinstance(options, Mapping | None):
        raise DeclarationError(f"{verb}(options={options!r:.80})", remedy='options={"compression": "zstd"}')
    given: dict[Any, Any] = dict(cast("Mapping[Any, Any]", options or {}))
    pairs: list[tuple[Any, Any]] = sorted(given.items(), key=lambda one: str(one[0]))
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
            raise DeclarationError(f"{verb}(options={{{name!r}: {value!r}}})", remedy='options={"compression": "zstd"}')
        if name.lower() in OURS:
            raise DeclarationError(f"{verb}(options={{{name!r}: …}}): headgate sets it itself", remedy="leave it out")
    texts = tuple((name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in pairs)
    return SparkWrite(_uri(target, verb), format, _partitions(partition_by, columns, verb), texts, keep=keep)


def _partitions(given: Any, columns: tuple[str, ...], verb: str) -> tuple[str, ...]:
    """The columns that make directories."""
    several = isinstance(given, list | tuple)
    found: Sequence[Any] = cast("Sequence[Any]", given) if several else (given,)
    names: tuple[str, ...] = tuple(found)
    if not all(isinstance(one, str) and one for one in found):
        raise DeclarationError(
            f"{verb}(partition_by={given!r:.80})", remedy='names of columns: partition_by=["country", "day"]'
        )
    if len(set(names)) != len(names):
        raise DeclarationError(f"{verb}(partition_by={given!r})", remedy="name each column once")
    whose, what = (RESULT, "result") if verb == "write" else (ROWS, "rows")
    if columns:
        for name in names:
            check_column(name, columns, f"{verb}(partition_by={given!r})", whose)
        if len(names) == len(columns):
            raise DeclarationError(
                f"{verb}(partition_by={given!r}): these are all columns of the {what}, so no file would have any",
                remedy="leave at least one out of partition_by=",
            )
    return names


def _uri(path: Any, verb: str) -> str:
    text = str(path) if isinstance(path, str) or hasattr(path, "__fspath__") else ""
    scheme, colon, rest = text.partition(":")
    if text.startswith("/"):
        text = f"file://{text}"
    elif not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) or not rest.startswith("/"):
        raise DeclarationError(
            f"{verb}({path!r}): this is neither an absolute path nor a URI, and workers may run in different directories",
            remedy=f'{verb}("/data/revenue") or {verb}("s3a://bucket/revenue")',
        )
    elif scheme == "file":
        text = f"file://{re.sub('^/*', '/', rest)}"
    text = text.rstrip("/")
    if HOME in text.split("/"):
        raise DeclarationError(f"{verb}({path!r}): {HOME} belongs to headgate", remedy="another directory")
    if text in ("file:", f"{scheme}:"):
        raise DeclarationError(f"{verb}({path!r}) without a directory", remedy=f'{verb}("/data/revenue")')
    return text


@dataclass(frozen=True, slots=True)
class Undone:
    """Which batches of a series were not done at some moment, as a commit has made it durable. What was done then stays done, so even a
    process that knows nothing newer may act on it."""

    next_number: int
    """The number of the batch that is opened next."""
    numbers: frozenset[int]
    """The batches that are open, closed or being published."""

    def done(self, number: int) -> bool:
        """Whether this batch was done.

        >>> [Undone(4, frozenset({2})).done(number) for number in (1, 2, 3, 4)]
        [True, False, True, False]
        """
        return number < self.next_number and number not in self.numbers


@dataclass(frozen=True, slots=True)
class SeriesPaths:
    """The paths of a series below its target."""

    path: str
    series: str

    @property
    def manifest(self) -> str:
        """The directory of its entries."""
        return f"{self.listed}/{self.series}"

    @property
    def listed(self) -> str:
        """The directory of the manifests of all series."""
        return f"{self.path}/{HOME}/manifest"

    @property
    def staging(self) -> str:
        """The directory of its attempts."""
        return f"{self.path}/{HOME}/staging/{self.series}"

    @property
    def staged(self) -> str:
        """The directory of the attempts of all series."""
        return f"{self.path}/{HOME}/staging"

    def batch(self, number: int) -> str:
        """The directory of a batch's attempts."""
        return f"{self.staging}/{number:012d}"

    def attempt(self, number: int, attempt: str) -> str:
        """The directory of an attempt."""
        return f"{self.batch(number)}/{attempt}"

    def entry(self, number: int) -> str:
        """The file of a batch's entry."""
        return f"{self.manifest}/0-{number:012d}-{number:012d}.json"

    def files(self, number: int, found: Iterable[tuple[str, int]]) -> tuple[File, ...]:
        """What the files of an attempt will be called: in the directories of their partitions, by series and number.

        >>> [file] = SeriesPaths("/out", "s").files(7, [("c=DE/part-00003-5f-c000.snappy.parquet", 9), ("_SUCCESS", 0)])
        >>> file.path
        'c=DE/part-00000-s-000000000007.snappy.parquet'
        """
        files: list[File] = []
        for source, size in sorted(found):
            *directories, name = source.split("/")
            if name[0] in "_." or any(one[0] in "_." and "=" not in one for one in directories):
                continue
            matched = _ENDING.fullmatch(name)
            ending = matched[1] if matched else name[name.find(".") :] if "." in name else ""
            target = f"part-{len(files):05d}-{self.series}-{number:012d}{ending}"
            files.append(File("/".join([*directories, target]), size, source))
        return tuple(files)
