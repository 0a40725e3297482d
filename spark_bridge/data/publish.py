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

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...core.batching.publishing import (
    HOME,
    PLAN,
    ManifestEntry,
    SeriesPaths,
    SparkWrite,
    Undone,
    covering,
    declared_write,
    entries,
    forebears,
    held,
    merged,
    to_merge,
    whole,
)
from ...core.errors import HeadgateError
from .files import DRAFT, Files, files_of

TRIES = 20
"""How often a reader lists the manifest again because files of entries were merged meanwhile."""


class Publisher:
    """Writes the files of one series."""

    def __init__(self, files: Files, write: SparkWrite) -> None:
        self.files = files
        self.layout = SeriesPaths(write.path, write.series)

    def seal(self, entry: ManifestEntry) -> None:
        """Complete an attempt whose job has ended: list its files. From now on a transaction may name it."""
        where = self.layout.attempt(entry.number, entry.attempt)
        files = self.layout.files(entry.number, self.files.found(where))
        self.files.put(f"{where}/{PLAN}", replace(entry, files=files).line())

    def publish(self, number: int, attempt: str, undone: Undone) -> None:
        """Publish the attempt that the transaction has named. `undone`: what was durable when it was named."""
        names = self.files.names(self.layout.manifest)
        if not self._is_whole(names, number, attempt):
            plan = self._plan(number, attempt)
            if plan is not None:
                self._move(plan)
                self.files.put(self.layout.entry(number), f"{plan.published().line()}\n")
                names = [*names, self.layout.entry(number).rpartition("/")[2]]
        self._sweep(number, undone)
        self._sweep_drafts(names)
        self._sweep_before(names)
        self._merge(names)

    def _is_whole(self, names: list[str], number: int, attempt: str) -> bool:
        for name in covering(names, number):
            text = self.files.read(f"{self.layout.manifest}/{name}") or ""
            for entry in entries(text):
                if entry.number == number:
                    if entry.attempt != attempt:
                        raise Unpublished(
                            f"batch {entry.batch} is to be published as attempt {attempt}, but the manifest of {self.layout.path} has it "
                            f"as attempt {entry.attempt}",
                            remedy="two jobs with one name write to one directory: give each its own",
                        )
                    return True
        return False

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

    def _merge(self, names: list[str]) -> None:
        """Merge many files of entries into one. It stops where another process has begun the same."""
        texts: dict[str, str] = {}
        for name in to_merge(names):
            text = self.files.read(f"{self.layout.manifest}/{name}")
            if text is None:
                return
            texts[name] = text
        if texts:
            name, text = merged(texts)
            self.files.put(f"{self.layout.manifest}/{name}", text)
            for one in texts:
                self.files.delete(f"{self.layout.manifest}/{one}")


def published(path: Any, spark: Any = None) -> list[str]:
    """The files of all batches that are whole, at a path that a job writes to with `.write(path)`.

    >>> published("/data/revenue")                                                               # doctest: +SKIP
    ['/data/revenue/country=DE/part-00000-sales-1-revenue-Partition-0-….snappy.parquet', …]

    Without `spark` (a session) it reads local paths, S3, GCS, Azure and HDFS through pyarrow; with a session, whatever Spark can read.
    """
    target = declared_write(path, None, (), None).path
    files = files_of(target, spark)
    shown = target.removeprefix("file://")
    return [f"{shown}/{file.path}" for entry in manifest(files, target) for file in entry.files]


def manifest(files: Files, target: str) -> list[ManifestEntry]:
    """The entries of all batches that are whole."""
    top = f"{target}/{HOME}/manifest"
    return whole({series: list(_texts(files, f"{top}/{series}")) for series in sorted(files.names(top))})


def _texts(files: Files, directory: str) -> Iterator[str]:
    """The texts of all files of entries. A file that is missing was merged into another one: then everything is read again."""
    for _ in range(TRIES):
        texts = [files.read(f"{directory}/{name}") for name in held(files.names(directory))]
        if None not in texts:
            yield from (text for text in texts if text is not None)
            return
    raise Unpublished(f"the manifest in {directory} changes faster than it can be read", remedy="read it again")


class Unpublished(HeadgateError):
    """What a transaction has named cannot be published, or a manifest cannot be read."""
