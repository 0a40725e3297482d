"""Early results of the windows of one step and task: which windows have changed since the last ones, and what they emit.

Which keys of a window have changed, and the time of each, the window itself knows (its *marks*), wherever its states are: in arrays marks
are an array, too. None of it is stored: after a restart, only what changes from then on has early results.

Promise: what a letter emits counts when the letter is complete; if it fails, the same is emitted again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from ..base.letter import LetterPart
from .closed_windows import SomeStates
from .kept_windows import KeptWindows


class EarlyResults(LetterPart):
    """What has changed since the last early results."""

    of_letter = ("given",)

    def __init__(self, windows: KeptWindows) -> None:
        self.windows = windows
        self.ends: set[int] = set()
        """The windows with marks."""
        self.rows = 0
        """The number of rows since the last early results, one that is in several windows for each of them."""
        self.given: list[tuple[int, list[bytes]]] = []
        """The windows and keys for which the running letter has emitted early results."""

    def changed(self, end: int, rows: int) -> None:
        """So many rows of a complete letter have left marks on this window."""
        self.ends.add(end)
        self.rows += rows

    def give(self, room: int) -> Iterator[tuple[int, list[bytes], array[int], SomeStates]]:
        """Take at most `room` keys out, in the order of results: by window, with their times and states."""
        for end in sorted(self.ends):
            window = self.windows.get(end)
            assert window is not None, "a window with changes is open"
            keys, times, states = window.first_marked(room)
            self.given.append((end, keys))
            yield end, keys, times, states
            room -= len(keys)
            if room <= 0:
                break

    def all_given(self) -> bool:
        """Whether nothing is left. Then rows are counted anew."""
        if sum(len(keys) for _, keys in self.given) < sum(self.windows[end].marked for end in self.ends):
            return False
        self.rows = 0
        return True

    def closes(self, end: int) -> None:
        """Results of this window are final from now on."""
        self.ends.discard(end)
        self.windows[end].unmark(None)

    def complete(self) -> None:
        """The letter is complete: what it has emitted no longer counts as changed."""
        for end, keys in self.given:
            if end in self.ends:
                window = self.windows[end]
                window.unmark(keys)
                if not window.marked:
                    self.ends.discard(end)
        self.drop()

    def drop(self) -> None:
        """The letter failed."""
        self.given = []
