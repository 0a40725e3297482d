"""Publishes what Spark has written for a batch: moves the files of the attempt that counts to their final names, and then makes the batch's
entry in the manifest.

    Spark writes → the attempt is sealed → a transaction names it → published → a transaction forgets the batch

What it promises:

- `publish` may be repeated, interrupted anywhere, and done by two processes at a time: the files and the entry are the same in the end.
  The transaction names one attempt of a batch, so no other one is ever published.
- An entry exists only when all files of its batch have their final names, and these survive a power cut.
- What has been named cannot get lost in silence: if its staging directory is gone and there is no entry, publishing fails and says so.
- Staging directories are deleted when their batch is published: those of other attempts, too. What belongs to a batch that is done, because
  a late job has written to it again or because the batch had no result, is deleted the next time anything is published. What a `reset` has
  left is deleted with the first batch of the next life.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from ...core.batching.forgetting import Numbers, forgotten
from ...core.batching.forgetting import notes as notes_among
from ...core.batching.manifest import (
    FilesWanted,
    ManifestEntry,
    covering,
    entries,
    held,
    merged,
    paths,
    to_merge,
    whole,
)
from ...core.batching.publishing import HOME, PLAN, SeriesPaths, SparkWrite, Undone, declared_write, forebears
from ...core.errors import DataError, HeadgateError, NotFound
from .files import DRAFT, Files, files_of
from .forget import Forgetter, Forgotten

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_NAMED = 5
TRIES = 20
"""How often a reader lists the manifest again because files of entries were merged meanwhile."""


def wall_ms() -> int:
    """The time by the clock."""
    return time.time_ns() // 1_000_000


class Publisher:
    """Writes the files of one series."""

    def __init__(self, files: Files, write: SparkWrite, now_ms: Callable[[], int] = wall_ms) -> None:
        self.files = files
        self.keep = write.keep
        self.now_ms = now_ms
        self.layout = SeriesPaths(write.path, write.series)
        self.forgetter = Forgetter(files, self.layout)

    def seal(self, entry: ManifestEntry) -> None:
        """Complete an attempt whose job has ended: list its files. From now on a transaction may name it."""
        where = self.layout.attempt(entry.number, entry.attempt)
        files = self.layout.files(entry.number, self.files.found(where))
        self.files.put(f"{where}/{PLAN}", replace(entry, files=files).line())

    def publish(self, number: int, attempt: str, undone: Undone) -> Forgotten:
        """Publish the attempt that the transaction has named, and forget what is too old. `undone`: what was durable when it was named."""
        names = self.files.names(self.layout.manifest)
        plan = None
        if not self._is_whole(names, number, attempt):
            plan = self._plan(number, attempt)
            if plan is not None:
                self._move(plan)
                self.files.put(self.layout.entry(number), f"{plan.published().line()}\n")
                names = [*names, self.layout.entry(number).rpartition("/")[2]]
        self._sweep(number, undone)
        self._sweep_drafts(names)
        self._sweep_before(names)
        merged = self._merge(names)
        if self.keep is None or plan is None or plan.latest_ms is None:
            return Forgotten()
        found = self._forget(self.layout, plan.latest_ms, undone)
        if found != Forgotten() or merged or len(names) == 1:  # rarely, but whatever comes
            for name in forebears(self.files.names(self.layout.listed), self.layout.series):
                found = found.plus(self._forget(replace(self.layout, series=name), plan.latest_ms, None))
        return found

    def _forget(self, layout: SeriesPaths, newest_ms: int, undone: Undone | None) -> Forgotten:
        """Forget what is too old in a series, beside rows of this time, and delete what was forgotten long enough ago."""
        assert self.keep is not None, "somebody has said how long"
        now_ms, after_ms = self.now_ms(), self.keep.delete_after_ms
        forgetter = Forgetter(self.files, layout)
        cutoff_ms = self.keep.cutoff_ms(newest_ms, now_ms)
        found = forgetter.forget_sometimes(self.files.names(layout.manifest), cutoff_ms, after_ms, now_ms, undone)
        return found.plus(forgetter.delete_old(self.files.names(layout.manifest), after_ms, now_ms))

    def _is_whole(self, names: list[str], number: int, attempt: str) -> bool:
        for name in covering(names, number):
            text = self.files.read(f"{self.layout.manifest}/{name}") or ""
            for entry in entries(text):
                if entry.number == number:
                    if not attempt.startswith(entry.attempt):  # merged entries keep the beginning
                        raise Unpublished(
                            f"batch {entry.batch} is to be published as attempt {attempt}, but the manifest of {self.layout.path} has it "
                            f"as attempt {entry.attempt}",
                            remedy="two jobs with one name write to one directory: give each its own",
                        )
                    return True
        return self.forgetter.knows(names, number)

    def _plan(self, number: int, attempt: str) -> ManifestEntry | None:
        """The sealed attempt. None if someone else has published it meanwhile."""
        where = self.layout.attempt(number, attempt)
        text = self.files.read(f"{where}/{PLAN}")
        if text is not None:
            return ManifestEntry.read(text)
        self._must_be_whole(number, attempt, f"{where} is gone")
        return None

    def _must_be_whole(self, number: int, attempt: str, why: str) -> None:
        if not self._is_whole(self.files.names(self.layout.manifest), number, attempt):
            raise Unpublished(
                f"batch {number} cannot be published to {self.layout.path}: {why}, and the manifest has no entry for it",
                remedy=f"nothing but headgate may delete below {HOME}/; restore the directory, or start again from the batch's input "
                "(headgate seek) without its state",
            )

    def _move(self, plan: ManifestEntry) -> None:
        source = self.layout.attempt(plan.number, plan.attempt)
        for file in plan.files:
            target = f"{self.layout.path}/{file.path}"
            size = self.files.size(target)
            if size == file.bytes:
                continue
            if size is not None:
                self.files.delete(target)  # a copy that was cut off, on a file system that shows it
            if not self.files.move(f"{source}/{file.source}", target) and self.files.size(target) != file.bytes:
                self._must_be_whole(plan.number, plan.attempt, f"{source}/{file.source} is gone")
        self.files.settle(self.layout.path, {file.path.rpartition("/")[0] for file in plan.files})

    def _sweep(self, number: int, undone: Undone) -> None:
        """Delete the staging directories of this batch, and of all that were done before."""
        for name in self.files.names(self.layout.staging):
            if name.isdecimal() and (int(name) == number or undone.done(int(name))):
                self.files.delete(f"{self.layout.staging}/{name}")

    def _sweep_drafts(self, names: list[str]) -> None:
        """Delete the drafts of entries that killed publishers have left."""
        for name in names:
            if DRAFT.fullmatch(name):
                self.files.delete(f"{self.layout.manifest}/{name}")

    def _sweep_before(self, names: list[str]) -> None:
        """With the first batches of a series, delete what its forebears have left: no one knows of it any more."""
        if len(names) > 1:
            return
        for name in forebears(self.files.names(self.layout.staged), self.layout.series):
            self.files.delete(f"{self.layout.staged}/{name}")

    def _merge(self, names: list[str]) -> bool:
        """Merge many files of entries into one. It stops where another process has begun the same."""
        texts: dict[str, str] = {}
        for name in to_merge(names):
            text = self.files.read(f"{self.layout.manifest}/{name}")
            if text is None:
                return False
            texts[name] = text
        if texts:
            name, text = merged(texts)
            self.files.put(f"{self.layout.manifest}/{name}", text)
            for one in texts:
                self.files.delete(f"{self.layout.manifest}/{one}")
        return bool(texts)


def published(
    path: Any,
    spark: Any = None,
    *,
    since: str | int | datetime | None = None,
    until: str | int | datetime | None = None,
    where: Mapping[str, Any] | None = None,
) -> list[str]:
    """The files of all batches that are whole, at a path that a job writes to with `.write(path)` or `.to_files(path)`.

    >>> published("/data/revenue", since="2026-01-30", where={"country": "DE"})                  # doctest: +SKIP
    ['/data/revenue/country=DE/part-00000-sales-1-revenue-Partition-0-….snappy.parquet', …]

    Without `spark` (a session) it reads local paths, S3, GCS, Azure and HDFS through pyarrow; with a session, whatever Spark can read.

    `since` and `until` leave out batches that have no row with a time from the one up to, but not including, the other: times in ISO (UTC,
    if they do not say otherwise), as a `datetime`, or in milliseconds. A file that is given may have further rows. `where` leaves out
    directories: for a column of `partition_by` a value, a list of values, or a function of the text that stands in the path.

    A path where no job has written is an error, unless it is an empty directory.
    """
    target = declared_write(path, None, (), None, verb="published").path
    if where is not None and not isinstance(where, Mapping):
        raise DataError(f"published(where={where!r:.80})", remedy='by column of partition_by: where={"country": "DE"}')
    wanted = FilesWanted(
        _moment("since", since), _moment("until", until), {name: _test(of) for name, of in (where or {}).items()}
    )
    if wanted.since_ms is not None and wanted.until_ms is not None and wanted.since_ms >= wanted.until_ms:
        raise DataError(
            f"published(since={since!r}, until={until!r}): no time lies between them", remedy="exchange them"
        )
    files = files_of(target, spark)
    shown = target.removeprefix("file://")
    texts, gone = _all_texts(files, target)
    if not texts:
        _must_be_written(files, target)
    return [f"{shown}/{one}" for one in paths(texts, wanted, gone)]


def _must_be_written(files: Files, target: str) -> None:
    """Refuse a path without a manifest in which no job has begun to write. An empty directory may be one for a job to come."""
    shown = target.removeprefix("file://")
    if files.names(f"{target}/{HOME}"):
        return
    there = sorted(files.names(target))
    if there:
        some = ", ".join(there[:MOST_NAMED]) + (", …" if len(there) > MOST_NAMED else "")
        why = f"no job has written to {shown} by .write(…) or .to_files(…), as there is no {HOME} in it, but {some}"
    elif target.startswith("file://") and Path(shown).is_dir():
        return
    else:
        why = f"there is nothing at {shown}"
    raise NotFound(
        f"published({shown!r}): {why}",
        remedy="the path that the job writes to; it is there once the job has begun its first batch",
    )


def _moment(name: str, given: Any) -> int | None:
    """A time in milliseconds."""
    if given is None or type(given) is int:
        return given
    try:
        when = datetime.fromisoformat(given) if isinstance(given, str) else given
        return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(
            f"published({name}={given!r:.80}) is not a time",
            remedy=f'{name}="2026-01-31T12:00", a datetime, or milliseconds',
        ) from error


def _test(of: Any) -> Callable[[str | None], bool]:
    """What says whether the value of a partition is wanted."""
    if callable(of):
        return cast("Callable[[str | None], bool]", of)
    several = isinstance(of, Collection) and not isinstance(of, str)
    return frozenset(map(_text, cast("Collection[Any]", of) if several else (of,))).__contains__


def _text(value: Any) -> str | None:
    """A value as it stands in a path, without its escapes."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) and not isinstance(value, datetime) else str(value)


def manifest(files: Files, target: str) -> list[ManifestEntry]:
    """The entries of all batches that are whole."""
    texts, gone = _all_texts(files, target)
    return whole(texts, gone=gone)


def _all_texts(files: Files, target: str) -> tuple[dict[str, list[str]], dict[str, Numbers]]:
    """By series, the texts of all files of entries, and the numbers that are forgotten."""
    top = f"{target}/{HOME}/manifest"
    found = {series: _texts(files, f"{top}/{series}") for series in files.names(top)}
    return {series: texts for series, (texts, _) in found.items()}, {
        series: gone for series, (_, gone) in found.items()
    }


def _texts(files: Files, directory: str) -> tuple[list[str], Numbers]:
    """The texts of all files of entries, and the numbers in notes. A file that is missing was merged into another one, or its batches were
    forgotten: then everything is read again."""
    for _ in range(TRIES):
        names = files.names(directory)
        texts, notes = (
            [files.read(f"{directory}/{name}") for name in some] for some in (held(names), notes_among(names))
        )
        if None not in texts and None not in notes:
            return [one for one in texts if one is not None], forgotten(one for one in notes if one is not None)
    raise Unpublished(f"the manifest in {directory} changes faster than it can be read", remedy="read it again")


class Unpublished(HeadgateError):
    """What a transaction has named cannot be published, or a manifest cannot be read."""
