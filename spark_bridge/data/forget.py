"""Carries out what `core.batching.forgetting` decides: entries of old batches leave the manifest, and files of rows are deleted later.

    a note is put → files of entries are put, and others deleted → time passes → files of rows are deleted → a note of numbers alone is put

What it promises: it may be interrupted between any two steps, and be done by two processes at a time; what was left is done the next time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...core.batching.forgetting import (
    ForgottenNote,
    deleted,
    expired,
    forgetting,
    forgotten,
    is_time,
    least,
    noting,
    settled,
    to_delete,
)
from ...core.batching.forgetting import notes as notes_among
from ...core.batching.manifest import FilesWanted, entries, held
from ...core.batching.publishing import SeriesPaths, Undone
from .files import Files


class Forgotten(NamedTuple):
    """How many batches were forgotten, and of how many that were forgotten before the files are deleted."""

    batches: int = 0
    deleted: int = 0

    def plus(self, other: Forgotten) -> Forgotten:
        """Both together."""
        return Forgotten(self.batches + other.batches, self.deleted + other.deleted)


class Forgetter:
    """Forgets batches of one series."""

    def __init__(self, files: Files, layout: SeriesPaths) -> None:
        self.files = files
        self.layout = layout

    def _texts(self, names: Iterable[str]) -> dict[str, str] | None:
        """The texts of these files; None if one is gone, so that another process does the same."""
        found: dict[str, str] = {}
        for name in names:
            text = self.files.read(f"{self.layout.manifest}/{name}")
            if text is None:
                return None
            found[name] = text
        return found

    def knows(self, names: list[str], number: int) -> bool:
        """Whether a batch was forgotten: it was published, and is not published again."""
        texts = (self.files.read(f"{self.layout.manifest}/{name}") for name in noting(names, number))
        return number in forgotten(text for text in texts if text is not None)

    def forget_sometimes(
        self, names: list[str], cutoff_ms: int, delete_after_ms: int, now_ms: int, undone: Undone | None
    ) -> Forgotten:
        """Forget what is too old, if something is, and if the last time is long enough ago. The file of entries with the least numbers is
        looked at: what is in others waits for it."""
        name = least(names)
        if name is None or not is_time(names, delete_after_ms, now_ms):
            return Forgotten()
        text = self.files.read(f"{self.layout.manifest}/{name}") or ""
        if not expired(entries(text, FilesWanted(until_ms=cutoff_ms)), cutoff_ms):
            return Forgotten()
        return self.forget(names, cutoff_ms, now_ms, undone)

    def forget(self, names: list[str], cutoff_ms: int, now_ms: int, undone: Undone | None) -> Forgotten:
        """Forget what is too old."""
        texts, known = self._texts(held(names)), self._texts(notes_among(names))
        if texts is None or known is None:
            return Forgotten()
        what = forgetting(texts, forgotten(known.values()), cutoff_ms, now_ms, undone)
        if what.note is not None:
            self._put(what.note.name, what.note.text)
        for name, text in what.put.items():
            self._put(name, text)
        for name in what.delete:
            self._delete(name)
        return Forgotten(len(what.note.waiting) if what.note is not None else 0)

    def delete_old(self, names: list[str], delete_after_ms: int, now_ms: int) -> Forgotten:
        """Delete the files of batches that were forgotten long enough ago."""
        due = to_delete(names, delete_after_ms, now_ms)
        texts = self._texts([*due, *settled(names)]) if due else None
        if not texts:
            return Forgotten()
        waiting = [entry for text in texts.values() for entry in ForgottenNote.read(text).waiting]
        for entry in waiting:
            for file in entry.files:
                self.files.delete(f"{self.layout.path}/{file.path}")
        note = deleted(texts.values())
        self._put(note.name, note.text)
        for name in texts:
            if name != note.name:
                self._delete(name)
        return Forgotten(0, len(waiting))

    def _put(self, name: str, text: str) -> None:
        self.files.put(f"{self.layout.manifest}/{name}", text)

    def _delete(self, name: str) -> None:
        self.files.delete(f"{self.layout.manifest}/{name}")
