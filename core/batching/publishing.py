"""Results that Spark writes to files: where an attempt writes, what the files of a batch are called for good, and which batches are whole.

    <path>/country=DE/part-00000-…-000000000007.snappy.parquet      what plain readers see
    <path>/_headgate/staging/<series>/<number>/<attempt>/…          what an attempt writes; readers skip names that begin with `_`
    <path>/_headgate/manifest/<series>/0-<number>-<number>.json     the entry of a batch that is whole

A *series* is what one task writes for one stage, from the first batch of its bookkeeping on. Its name is part of every name below, so
that numbers which begin again at 1 (after `reset`) never meet old files.

What it promises:

- Two attempts never write to the same directory, and the names of a batch's files depend on its series and number only: publishing an
  attempt again changes nothing, whoever does it.
- A batch has an entry once all its files have their names. No entry is ever lost by merging: a file of entries may be deleted only when
  another one holds them all, and files with different contents have different names.
- What is in a staging directory is garbage as soon as its batch is published, or durably done without files, and never before; or when
  the bookkeeping that knew it has started over, as after `reset`.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from ..errors import DataError, DeclarationError
from .spark_schema import check_column

STAGED = ("parquet", "orc", "json")
DELTA = "delta"
OURS = frozenset({"path", "txnappid", "txnversion"})
"""Options of a writer that the stage sets itself, in lower case as Spark compares them."""

FORMAT_VERSION = 1
HOME = "_headgate"
PLAN = "_plan.json"
"""The file in an attempt's directory that lists its files. It is written last: an attempt without it is not complete."""
MERGE = 100
"""So many files of entries of one level become one file of the next level."""
TOP_LEVEL = 2

_ENTRIES = re.compile(r"(\d+)-(\d{12,})-(\d{12,})(?:-[0-9a-f]+)?\.json")
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

    @property
    def in_order(self) -> bool:
        """Whether a batch may be written only after the one before it: a Delta table remembers no more than the greatest number."""
        return self.save is None and self.format == DELTA


def declared_write(
    target: Any, format: Any, partition_by: Any, options: Any, columns: tuple[str, ...] = ()
) -> SparkWrite:
    """The arguments of `.write(…)`, checked; raises `DeclarationError`. `columns`: those of the result, if they are known.

    >>> declared_write("/data/revenue/", "parquet", "country", None)
    SparkWrite(path='file:///data/revenue', format='parquet', partition_by=('country',), options=(), save=None, job='', series='')
    """
    if callable(target):
        if (format, partition_by, options) != (None, (), None):
            raise DeclarationError(
                "write(function) with a format, partition_by or options",
                remedy="the function itself says how it writes",
            )
        return SparkWrite(save=target)
    format = "parquet" if format is None else format
    if format not in (*STAGED, DELTA):
        raise DeclarationError(
            f"write(format={format!r})",
            remedy=f"one of {', '.join((*STAGED, DELTA))}; for anything else pass a function (df, batch) that writes, at least once",
        )
    if not isinstance(options, Mapping | None):
        raise DeclarationError(f"write(options={options!r:.80})", remedy='options={"compression": "zstd"}')
    given: dict[Any, Any] = dict(cast("Mapping[Any, Any]", options or {}))
    pairs: list[tuple[Any, Any]] = sorted(given.items(), key=lambda one: str(one[0]))
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
            raise DeclarationError(f"write(options={{{name!r}: {value!r}}})", remedy='options={"compression": "zstd"}')
        if name.lower() in OURS:
            raise DeclarationError(f"write(options={{{name!r}: …}}): headgate sets it itself", remedy="leave it out")
    texts = tuple((name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in pairs)
    return SparkWrite(_uri(target), format, _partitions(partition_by, columns), texts)


def _partitions(given: Any, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that make directories."""
    several = isinstance(given, list | tuple)
    found: Sequence[Any] = cast("Sequence[Any]", given) if several else (given,)
    names: tuple[str, ...] = tuple(found)
    if not all(isinstance(one, str) and one for one in found):
        raise DeclarationError(
            f"write(partition_by={given!r:.80})", remedy='names of columns: partition_by=["country", "day"]'
        )
    if len(set(names)) != len(names):
        raise DeclarationError(f"write(partition_by={given!r})", remedy="name each column once")
    if columns:
        for name in names:
            check_column(name, columns, f"write(partition_by={given!r})")
        if len(names) == len(columns):
            raise DeclarationError(
                f"write(partition_by={given!r}): these are all columns of the result, so no file would have any",
                remedy="leave at least one out of partition_by=",
            )
    return names


def _uri(path: Any) -> str:
    text = str(path) if isinstance(path, str) or hasattr(path, "__fspath__") else ""
    scheme, colon, rest = text.partition(":")
    if text.startswith("/"):
        text = f"file://{text}"
    elif not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) or not rest.startswith("/"):
        raise DeclarationError(
            f"write({path!r}): this is neither an absolute path nor a URI, and workers may run in different directories",
            remedy='write("/data/revenue") or write("s3a://bucket/revenue")',
        )
    elif scheme == "file":
        text = f"file://{re.sub('^/*', '/', rest)}"
    text = text.rstrip("/")
    if HOME in text.split("/"):
        raise DeclarationError(f"write({path!r}): {HOME} belongs to headgate", remedy="write to another directory")
    if text in ("file:", f"{scheme}:"):
        raise DeclarationError(f"write({path!r}) without a directory", remedy='write("/data/revenue")')
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
class File:
    """A file of a batch: its path below the target, its size, and its path below the attempt's directory."""

    path: str
    bytes: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A batch and its files. In the manifest, it says that the batch is whole."""

    job: str
    stage: str
    task: str
    batch: str
    """The batch's id, as in `batch.id`."""
    number: int
    attempt: str
    batch_rows: int
    """How many rows went in."""
    closed_by: str
    window_start: int | None = None
    window_end: int | None = None
    files: tuple[File, ...] = ()

    def published(self) -> ManifestEntry:
        """The entry as it is in the manifest: where an attempt had its files does not matter any more."""
        return replace(self, files=tuple(replace(file, source="") for file in self.files))

    def line(self) -> str:
        """The entry as a line of JSON.

        >>> ManifestEntry("sales/1", "daily", "Partition 3", "Partition 3/daily/7", 7, "a1", 2, "rows").line()[:53]
        '{"v":1,"job":"sales/1","stage":"daily","task":"Partit'
        """
        files = [{name: value for name, value in asdict(file).items() if value != ""} for file in self.files]
        body = {"v": FORMAT_VERSION} | asdict(self) | {"files": files}
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def read(cls, line: str) -> ManifestEntry:
        """The entry of a line; raises `DataError`."""
        try:
            body: dict[str, Any] = json.loads(line)
            if body["v"] > FORMAT_VERSION:
                raise DataError(
                    f"an entry of the manifest has format {body['v']}; this headgate reads up to {FORMAT_VERSION}",
                    remedy="use a newer headgate",
                )
            known: dict[str, Any] = {name: body[name] for name in cls.__slots__}
            known["files"] = tuple(File(file["path"], file["bytes"], file.get("source", "")) for file in body["files"])
            return cls(**known)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"a line of the manifest is not an entry: {line[:200]!r} ({error!r})") from error


def entries(text: str) -> list[ManifestEntry]:
    """The entries of a file of the manifest."""
    return [ManifestEntry.read(line) for line in text.splitlines()]


def whole(files: Mapping[str, Iterable[str]]) -> list[ManifestEntry]:
    """All batches that are whole, each once: from the texts of all files of the manifest, by series."""
    found = {
        (series, entry.number): entry for series, texts in files.items() for text in texts for entry in entries(text)
    }
    return [found[key] for key in sorted(found)]


@dataclass(frozen=True, slots=True)
class SeriesPaths:
    """The paths of a series below its target."""

    path: str
    series: str

    @property
    def manifest(self) -> str:
        """The directory of its entries."""
        return f"{self.path}/{HOME}/manifest/{self.series}"

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


def covering(names: Iterable[str], number: int) -> list[str]:
    """Which files of entries may hold the entry of a batch.

    >>> covering(["0-000000000007-000000000007.json", "1-000000000001-000000000100-ab.json", ".x.tmp"], 8)
    ['1-000000000001-000000000100-ab.json']
    """
    return [name for name in names if (found := _ENTRIES.fullmatch(name)) and int(found[2]) <= number <= int(found[3])]


def held(names: Iterable[str]) -> list[str]:
    """The files of entries among the names in a directory of the manifest."""
    return sorted(name for name in names if _ENTRIES.fullmatch(name))


def to_merge(names: Iterable[str]) -> Sequence[str]:
    """The files of entries that should become one; none if there are too few of one level."""
    levels: dict[int, list[str]] = {}
    for name in held(names):
        levels.setdefault(int(name.partition("-")[0]), []).append(name)
    due = [level for level, found in levels.items() if level < TOP_LEVEL and len(found) >= MERGE]
    return levels[min(due)] if due else ()


def merged(texts: Mapping[str, str]) -> tuple[str, str]:
    """Name and text of the file that replaces these files of one level. The name depends on the text: another merge of other files never
    overwrites it."""
    (every,) = [whole({"": texts.values()})]
    text = "".join(f"{entry.line()}\n" for entry in every)
    level = int(next(iter(texts)).partition("-")[0]) + 1
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{level}-{every[0].number:012d}-{every[-1].number:012d}-{digest}.json", text
