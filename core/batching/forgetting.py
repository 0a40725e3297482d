"""Batches whose rows are too old are forgotten: their entries leave the manifest, and their files are deleted some time later.

    forgotten-<first>-<last>-<time>-<digest>.json     the numbers that were forgotten then, and entries: whose files are to be deleted
    forgotten-<first>-<last>-0-<digest>.json          numbers whose files are deleted; all such notes become one

A note stands beside the files of entries, where a headgate of before sees a name that it does not know.

    the note → files of entries without what it names → time passes → files of rows are deleted → the numbers alone are noted

What it promises:

- A batch counts as forgotten from the moment its note is there, whatever files of entries say: an entry that a late process writes again is
  hidden, and goes with the next look.
- A file of rows is deleted only when a note that is old enough names it, and a note goes only when another one has its numbers. So whoever
  is killed between two steps leaves nothing that is not found again.
- Only what has had an entry is forgotten, so a batch that is not published yet never is. A number that was forgotten stays so for ever: the
  batch counts as published, and is not published again.
- Age is measured from the newest rows or the clock, whichever is earlier. A clock that is ahead forgets nothing before its time.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DataError
from .manifest import FilesWanted, ManifestEntry, entries, held, packed, rewritten, span_of
from .publishing import Undone

NOTE_VERSION = 1
DELETED = 0
"""The time in the name of a note whose batches have no files any more."""
LOOKS = 24
"""Batches are forgotten at most so many times in `Keep.delete_after_ms`: about as many notes wait."""
_NOTES = re.compile(r"forgotten-(\d{12,})-(\d{12,})-(\d+)-[0-9a-f]+\.json")


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers of batches, as ranges: the first and the last of each, in order and apart from each other.

    >>> Numbers.of([3, 1, 2, 7]), 2 in Numbers.of([1, 3])
    (Numbers(ranges=((1, 3), (7, 7))), False)
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Numbers:
        """These numbers."""
        return cls.joined([cls(((one, one),)) for one in numbers])

    @classmethod
    def joined(cls, several: Iterable[Numbers]) -> Numbers:
        """The numbers of all of these."""
        found: list[tuple[int, int]] = []
        for first, last in sorted(one for each in several for one in each.ranges):
            if found and first <= found[-1][1] + 1:
                found[-1] = found[-1][0], max(found[-1][1], last)
            else:
                found.append((first, last))
        return cls(tuple(found))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, number, key=lambda one: one[0])
        return at > 0 and number <= self.ranges[at - 1][1]

    def __bool__(self) -> bool:
        return bool(self.ranges)


# ----------------------------------------------------------------------------------------------------------------------- notes


@dataclass(frozen=True, slots=True)
class ForgottenNote:
    """What was forgotten at one time."""

    at_ms: int
    numbers: Numbers
    waiting: tuple[ManifestEntry, ...] = ()
    """The batches whose files are to be deleted."""

    @property
    def text(self) -> str:
        """Its lines."""
        head = {"v": NOTE_VERSION, "at_ms": self.at_ms, "numbers": self.numbers.ranges}
        return json.dumps(head, separators=(",", ":")) + "\n" + packed(self.waiting)

    @property
    def name(self) -> str:
        """The name of its file. It depends on the text: no note overwrites another one."""
        first, last = self.numbers.ranges[0][0], self.numbers.ranges[-1][1]
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        return f"forgotten-{first:012d}-{last:012d}-{self.at_ms}-{digest}.json"

    @classmethod
    def read(cls, text: str) -> ForgottenNote:
        """The note of a text. Raises `DataError`."""
        head, _, rest = text.partition("\n")
        try:
            body: dict[str, Any] = json.loads(head)
            if body["v"] > NOTE_VERSION:
                raise DataError(
                    f"a note of forgotten batches has format {body['v']}; this headgate reads up to {NOTE_VERSION}",
                    remedy="use a newer headgate",
                )
            numbers = Numbers(tuple((int(first), int(last)) for first, last in body["numbers"]))
            return cls(body["at_ms"], numbers, tuple(entries(rest)))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"a note of forgotten batches is none: {head[:200]!r} ({error!r})") from error


def notes(names: Iterable[str]) -> list[str]:
    """The notes among the names in a directory of the manifest."""
    return sorted(name for name in names if _NOTES.fullmatch(name))


def noting(names: Iterable[str], number: int) -> list[str]:
    """The notes that may have this number.

    >>> noting(["forgotten-000000000001-000000000009-0-ab.json", "0-000000000007-000000000007.json"], 9)
    ['forgotten-000000000001-000000000009-0-ab.json']
    """
    return [name for name in notes(names) if _named(name)[0] <= number <= _named(name)[1]]


def _named(name: str) -> tuple[int, int, int]:
    """First and last number, and the time, in the name of a note."""
    found = _NOTES.fullmatch(name)
    assert found is not None, "only names of notes get here"
    return int(found[1]), int(found[2]), int(found[3])


def forgotten(texts: Iterable[str]) -> Numbers:
    """The numbers of all these notes."""
    return Numbers.joined([ForgottenNote.read(text).numbers for text in texts])


# ------------------------------------------------------------------------------------------------------------------ forgetting


def expired(every: Sequence[ManifestEntry], cutoff_ms: int) -> list[ManifestEntry]:
    """The batches, in the order of their numbers, without a row of the cutoff or later. One without times, of an older version, is as
    old as the next one that has times.

    >>> class At(ManifestEntry): pass
    >>> made = [ManifestEntry("j", "s", "t", "", n, "", 1, "", latest_ms=at) for n, at in enumerate((None, 5, 20, None, 7))]
    >>> [one.number for one in expired(made, 10)]
    [0, 1, 3, 4]
    """
    found: list[ManifestEntry] = []
    old = False
    for one in sorted(every, key=lambda one: one.number, reverse=True):
        old = old if one.latest_ms is None else one.latest_ms < cutoff_ms
        if old:
            found.append(one)
    return found[::-1]


def least(names: Iterable[str]) -> str | None:
    """The file of entries with the least numbers."""
    return min(held(names), key=span_of, default=None)


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What is to be done, in this order: the note is put, then the files of entries, and then others are deleted."""

    note: ForgottenNote | None
    """The batches that are forgotten now."""
    put: Mapping[str, str]
    """Files of entries that take the place of those which are deleted."""
    delete: tuple[str, ...]


def forgetting(
    texts: Mapping[str, str], known: Numbers, cutoff_ms: int, now_ms: int, undone: Undone | None
) -> Forgetting:
    """What is to be done with these files of entries. `known`: what was forgotten before. `undone`: batches that are not done stay, and
    without it, it is not known which these are: all that have entries may go."""
    wanted = FilesWanted(until_ms=cutoff_ms)
    found = {one.number: one for text in texts.values() for one in entries(text, wanted)}
    fresh = [
        one
        for one in expired(list(found.values()), cutoff_ms)
        if one.number not in known and (undone is None or undone.done(one.number))
    ]
    note = ForgottenNote(now_ms, Numbers.of(one.number for one in fresh), tuple(fresh)) if fresh else None
    gone = Numbers.joined([known, *([note.numbers] if note else ())])
    put, delete = dict[str, str](), list[str]()
    for name, text in texts.items():
        first, last = span_of(name)
        if not any(first <= end and begin <= last for begin, end in gone.ranges):
            continue
        every = entries(text)
        kept = [one for one in every if one.number not in gone]
        if len(kept) < len(every):
            delete.append(name)
            if kept:
                put.update([rewritten(name, kept)])
    return Forgetting(note, put, tuple(delete))


def is_time(names: Iterable[str], delete_after_ms: int, now_ms: int) -> bool:
    """Whether the last time that something was forgotten is long enough ago."""
    latest = max((_named(name)[2] for name in notes(names)), default=0)
    return now_ms - latest >= delete_after_ms // LOOKS


def to_delete(names: Iterable[str], delete_after_ms: int, now_ms: int) -> list[str]:
    """The notes that are so old that the files which they name may be deleted."""
    return [name for name in notes(names) if 0 < _named(name)[2] <= now_ms - delete_after_ms]


def deleted(texts: Iterable[str]) -> ForgottenNote:
    """The note that takes the place of these, whose files are deleted."""
    return ForgottenNote(DELETED, forgotten(texts))


def settled(names: Iterable[str]) -> list[str]:
    """The notes whose files are deleted."""
    return [name for name in notes(names) if _named(name)[2] == DELETED]
