"""The manifest of files: which batches are whole, as lines of JSON, and how many of them become few bytes.

    0-<number>-<number>.json             an entry for a batch that is whole                      format 1: a line for each batch
    1-<first>-<last>-<digest>.json       a hundred of them, merged; 2-…: ten thousand            format 2: a line for many batches

A line of format 2 says once what its batches have in common, and holds the rest as columns: JSON, deflated, in base64. What can be told
from series, number and place is left out, and of an attempt the first characters are kept, which tell it from another one.

What it promises:

- No entry is ever lost by merging: a file of entries may be deleted only when another one holds them all, and files with different contents
  have different names.
- Whoever does not know a format says so, and never takes a manifest for a smaller one.
- What a filter leaves out is not wanted: of a batch without times all files are given.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, islice
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import DataError

LINE, BLOCK = 1, 2
"""The formats of a line."""
MERGE = 100
"""So many files of entries of one level become one file of the next level."""
TOP_LEVEL = 2
ATTEMPT = 8
"""So much of an attempt's name is kept when its entry is merged."""
NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value of a partition whose column is null."""

_ENTRIES = re.compile(r"(\d+)-(\d{12,})-(\d{12,})(?:-[0-9a-f]+)?\.json")
_ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})")
_FACTS = ("number", "attempt", "batch_rows", "closed_by", "window_start", "window_end")
_OPTIONAL = ("earliest_ms", "latest_ms")
_CLIMBING = ("number", "window_start", "window_end", "earliest_ms", "latest_ms")
"""What is near its value in the entry before."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a batch: its path below the target, its size, and its path below the attempt's directory."""

    path: str
    bytes: int
    source: str = ""

    @property
    def directory(self) -> str:
        """Where it is, below the target."""
        return self.path.rpartition("/")[0]


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
    earliest_ms: int | None = None
    """The least and the greatest timestamp of its rows; None if an older version has written it."""
    latest_ms: int | None = None

    def published(self) -> ManifestEntry:
        """The entry as it is in the manifest: where an attempt had its files does not matter any more."""
        return replace(self, files=tuple(replace(file, source="") for file in self.files))

    def line(self) -> str:
        """The entry as a line of JSON.

        >>> ManifestEntry("sales/1", "daily", "Partition 3", "Partition 3/daily/7", 7, "a1", 2, "rows").line()[:53]
        '{"v":1,"job":"sales/1","stage":"daily","task":"Partit'
        """
        files = [{name: value for name, value in asdict(file).items() if value != ""} for file in self.files]
        body = {"v": LINE} | asdict(self) | {"files": files}
        return _json({name: value for name, value in body.items() if value is not None or name not in _OPTIONAL})

    @classmethod
    def read(cls, line: str) -> ManifestEntry:
        """The entry of a line of one entry; raises `DataError`."""
        [found] = _read([line], EVERYTHING)
        return found.entry()


@dataclass(frozen=True, slots=True)
class FilesWanted:
    """Which batches, and which of their files, a reader wants."""

    since_ms: int | None = None
    until_ms: int | None = None
    where: Mapping[str, Callable[[str | None], bool]] = field(default_factory=dict[str, Callable[[str | None], bool]])
    """By column of the partition, a test of its value as it stands in the path; None stands for null."""

    def in_time(self, earliest_ms: int | None, latest_ms: int | None) -> bool:
        """Whether rows between these times may be wanted.

        >>> wanted = FilesWanted(since_ms=10, until_ms=20)
        >>> [wanted.in_time(*times) for times in ((0, 9), (0, 10), (19, 30), (20, 30), (None, None))]
        [False, True, True, False, True]
        """
        if earliest_ms is None or latest_ms is None:
            return True
        late = self.until_ms is not None and earliest_ms >= self.until_ms
        return not late and (self.since_ms is None or latest_ms >= self.since_ms)

    def in_directory(self, directory: str) -> bool:
        """Whether the files of a directory are wanted. Raises `DataError` if it says nothing of a column.

        >>> FilesWanted(where={"day": lambda day: day == "a/b"}).in_directory("country=DE/day=a%2Fb")
        True
        """
        if not self.where:
            return True
        known = {part.partition("=")[0]: part.partition("=")[2] for part in directory.split("/")}
        if missing := [name for name in self.where if name not in known]:
            raise DataError(
                f"where={{'{missing[0]}': …}}: files are not partitioned by '{missing[0]}', "
                f"but by {', '.join(filter(None, known)) or 'nothing'}",
                remedy="name columns of partition_by=; rows are filtered by whoever reads the files",
            )
        return all(test(None if known[name] == NULL else _plain(known[name])) for name, test in self.where.items())


def _plain(text: str) -> str:
    """A value of a path without its escapes."""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), text.encode()).decode(errors="replace")


EVERYTHING = FilesWanted()


class _Read(NamedTuple):
    """A batch as it was read, of which an entry is made only for who wants one."""

    common: tuple[str, str, str, str]
    """Job, stage, task, and the id of the batch; of a block, without its number."""
    facts: tuple[Any, ...]
    """Number, attempt, rows, reason, window, times."""
    files: list[tuple[Any, ...]]

    def entry(self) -> ManifestEntry:
        """The entry."""
        number, attempt, rows, why, start, end, earliest, latest = self.facts
        job, stage, task, batch = self.common
        batch = f"{batch}{number}" if batch.endswith("/") else batch
        files = tuple(File(*one) for one in self.files)
        return ManifestEntry(job, stage, task, batch, number, attempt, rows, why, start, end, files, earliest, latest)


def entries(text: str, wanted: FilesWanted = EVERYTHING) -> list[ManifestEntry]:
    """The entries of a file of the manifest, with the files that are wanted."""
    return [one.entry() for one in _read(text.splitlines(), wanted)]


def whole(
    files: Mapping[str, Iterable[str]],
    wanted: FilesWanted = EVERYTHING,
    gone: Mapping[str, Container[int]] = MappingProxyType({}),
) -> list[ManifestEntry]:
    """All batches that are whole, each once: from the texts of all files of the manifest, by series. `gone`: the numbers that are forgotten
    (`forgetting`)."""
    return [one.entry() for one in _whole(files, wanted, gone)]


def paths(
    files: Mapping[str, Iterable[str]],
    wanted: FilesWanted = EVERYTHING,
    gone: Mapping[str, Container[int]] = MappingProxyType({}),
) -> list[str]:
    """The paths of the files of all batches that are whole, in the order of `whole`."""
    return [file[0] for one in _whole(files, wanted, gone) for file in one.files]


def _whole(
    files: Mapping[str, Iterable[str]], wanted: FilesWanted, gone: Mapping[str, Container[int]]
) -> Iterator[_Read]:
    for series in sorted(files):
        lines = (line for text in files[series] for line in text.splitlines())
        found = {one.facts[0]: one for one in _read(lines, wanted)}
        out = gone.get(series, ())
        yield from (found[number] for number in sorted(found) if number not in out)


def _read(lines: Iterable[str], wanted: FilesWanted) -> Iterator[_Read]:
    for line in lines:
        try:
            body: dict[str, Any] = json.loads(line)
            if body["v"] > BLOCK:
                raise DataError(
                    f"an entry of the manifest has format {body['v']}; this headgate reads up to {BLOCK}",
                    remedy="use a newer headgate",
                )
            yield from _block(body, wanted) if body["v"] == BLOCK else _single(body, wanted)
        except (ValueError, KeyError, TypeError, IndexError, zlib.error) as error:
            raise DataError(f"a line of the manifest is not an entry: {line[:200]!r} ({error!r})") from error


def _single(body: Mapping[str, Any], wanted: FilesWanted) -> Iterator[_Read]:
    files = [(file["path"], file["bytes"], file.get("source", "")) for file in body["files"]]
    facts = tuple(body[name] for name in _FACTS) + tuple(body.get(name) for name in _OPTIONAL)
    if wanted.in_time(*facts[-2:]):
        left = [one for one in files if wanted.in_directory(one[0].rpartition("/")[0])] if wanted.where else files
        if left or not wanted.where:
            yield _Read((body["job"], body["stage"], body["task"], body["batch"]), facts, left)


# --------------------------------------------------------------------------------------------------------------- many entries


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _climbs(values: Sequence[int | None]) -> list[int | None]:
    """Each value as its distance to the one before that is there; nothing if none is."""
    if all(one is None for one in values):
        return []
    before, steps = 0, list[int | None]()
    for one in values:
        steps.append(None if one is None else one - before)
        before = before if one is None else one
    return steps


def _climbed(steps: Sequence[int | None], number: int) -> Iterable[int | None]:
    """The values of these distances."""
    if not steps:
        return [None] * number
    return (
        at if step is not None else None
        for at, step in zip(accumulate(step or 0 for step in steps), steps, strict=True)
    )


def _places(values: Iterable[str], among: list[str]) -> list[int]:
    """Each value as its place among those that are different."""
    known: dict[str, int] = {}
    found = [known.setdefault(one, len(known)) for one in values]
    among.extend(known)
    return found


def _name_of(file: File, place: int, number: int) -> tuple[str, str] | None:
    """The series and the ending of a file whose name is as `SeriesPaths.files` makes it."""
    name = file.path.rpartition("/")[2]
    at = name.rfind(f"-{number:012d}")
    start = f"part-{place:05d}-"
    if at < len(start) or not name.startswith(start) or file.source:
        return None
    return name[len(start) : at], name[at + 13 :]


def _common(entry: ManifestEntry) -> tuple[str, ...] | None:
    """What the entry has in common with others of a block; None if it is unlike all that this version writes."""
    names = [_name_of(file, place, entry.number) for place, file in enumerate(entry.files)]
    series = {name[0] for name in names if name is not None}
    start, _, number = entry.batch.rpartition("/")
    if None in names or len(series) > 1 or number != str(entry.number):
        return None
    return entry.job, entry.stage, entry.task, start, *series


def packed(every: Sequence[ManifestEntry]) -> str:
    """The lines of many entries."""
    groups: dict[tuple[str, ...], list[ManifestEntry]] = {}
    lines: list[str] = []
    for entry in every:
        common = _common(entry)
        if common is None:
            lines.append(entry.line())
        else:
            groups.setdefault(common, []).append(entry)
    lines += [_packed(common, group) for common, group in groups.items()]
    return "".join(f"{line}\n" for line in lines)


def _packed(common: tuple[str, ...], group: Sequence[ManifestEntry]) -> str:
    job, stage, task, start, *series = common
    directories, endings, reasons = list[str](), list[str](), list[str]()
    files = [(place, file, entry.number) for entry in group for place, file in enumerate(entry.files)]
    columns: dict[str, Any] = {name: _climbs([getattr(one, name) for one in group]) for name in _CLIMBING}
    columns["attempt"] = [one.attempt[:ATTEMPT] for one in group]
    columns["batch_rows"] = [one.batch_rows for one in group]
    columns["closed_by"] = _places((one.closed_by for one in group), reasons)
    columns["files"] = [len(one.files) for one in group]
    columns["directory"] = _places((file.directory for _, file, _ in files), directories)
    columns["ending"] = _places(
        ((_name_of(file, place, number) or ("", ""))[1] for place, file, number in files), endings
    )
    columns["bytes"] = [file.bytes for _, file, _ in files]
    times = [(one.earliest_ms, one.latest_ms) for one in group]
    earliest = [one for one, latest in times if one is not None and latest is not None]
    latest = [one for earliest, one in times if one is not None and earliest is not None]
    timed = len(earliest) == len(group)
    body = {
        "v": BLOCK,
        "job": job,
        "stage": stage,
        "task": task,
        "batch": start,
        "series": series[0] if series else "",
        "batches": len(group),
        "earliest_ms": min(earliest) if timed else None,
        "latest_ms": max(latest) if timed else None,
        "directories": directories,
        "endings": endings,
        "closed_by": reasons,
        "columns": base64.b64encode(zlib.compress(_json(columns).encode(), 9)).decode(),
    }
    return _json(body)


def _block(body: Mapping[str, Any], wanted: FilesWanted) -> Iterator[_Read]:
    if not wanted.in_time(body["earliest_ms"], body["latest_ms"]):
        return
    directories: list[str] = body["directories"]
    takes = [wanted.in_directory(one) for one in directories]
    if directories and not any(takes):
        return
    columns: dict[str, list[Any]] = json.loads(zlib.decompress(base64.b64decode(body["columns"], validate=True)))
    climbed = {name: _climbed(columns[name], body["batches"]) for name in _CLIMBING}
    reasons = [body["closed_by"][at] for at in columns["closed_by"]]
    others = columns["attempt"], columns["batch_rows"], reasons, columns["files"]
    common = body["job"], body["stage"], body["task"], f"{body['batch']}/"
    tops = [f"{one}/part-" if one else "part-" for one in directories]
    ends, series = body["endings"], body["series"]
    files = zip(columns["directory"], columns["ending"], columns["bytes"], strict=True)
    for number, begin, end, earliest, latest, attempt, rows, why, count in zip(*climbed.values(), *others, strict=True):
        own = list(islice(files, count))
        if wanted.in_time(earliest, latest):
            middle = f"-{series}-{number:012d}"
            found: list[tuple[Any, ...]] = [
                (f"{tops[at]}{place:05d}{middle}{ends[ending]}", size)
                for place, (at, ending, size) in enumerate(own)
                if takes[at]
            ]
            if found or not wanted.where:
                yield _Read(common, (number, attempt, rows, why, begin, end, earliest, latest), found)


# -------------------------------------------------------------------------------------------------------------------- merging


def covering(names: Iterable[str], number: int) -> list[str]:
    """Which files of entries may hold the entry of a batch.

    >>> covering(["0-000000000007-000000000007.json", "1-000000000001-000000000100-ab.json", ".x.tmp"], 8)
    ['1-000000000001-000000000100-ab.json']
    """
    return [name for name in names if (found := _ENTRIES.fullmatch(name)) and int(found[2]) <= number <= int(found[3])]


def held(names: Iterable[str]) -> list[str]:
    """The files of entries among the names in a directory of the manifest."""
    return sorted(name for name in names if _ENTRIES.fullmatch(name))


def span_of(name: str) -> tuple[int, int]:
    """The first and the last number that a file of entries may have.

    >>> span_of("1-000000000001-000000000100-ab.json")
    (1, 100)
    """
    found = _ENTRIES.fullmatch(name)
    assert found is not None, "only files of entries get here"
    return int(found[2]), int(found[3])


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
    level = int(next(iter(texts)).partition("-")[0]) + 1
    return _file(level, whole({"": texts.values()}))


def rewritten(name: str, kept: Sequence[ManifestEntry]) -> tuple[str, str]:
    """Name and text of the file that replaces this one, of the same level, with what is kept of its entries, in the order of numbers."""
    return _file(int(name.partition("-")[0]), kept)


def _file(level: int, every: Sequence[ManifestEntry]) -> tuple[str, str]:
    text = packed(every)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{level}-{every[0].number:012d}-{every[-1].number:012d}-{digest}.json", text
