"""Reads stories: of one file, of a worker, or of all workers that have run on a disk, by time.

Promises:

- It reads while the worker writes: what is not complete yet is not there yet.
- Lines of one process are in the order in which its machines decided; those of different processes are ordered by their wall clocks.
- Of what is not asked for, no values are made.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import NotFound
from ...core.machine import StoryLine
from .blocks import MachineSteps, Who, line_of, parts_of
from .files import SUFFIX, LeftOut, blocks_of

SLACK_MS = 60_000
"""A file or a block that is so much older than what is asked for has nothing of it, whatever the clocks say."""


@dataclass(frozen=True, slots=True)
class KeptLine:
    """One line of a story, before its values are made."""

    at_ms: int
    who: Who
    part: MachineSteps
    number: int
    """Of the event in the life of its machine, from 0."""
    step: Sequence[Any] = field(repr=False)

    @property
    def before(self) -> str:
        return self.step[2]

    @property
    def after(self) -> str:
        return self.step[3]

    @property
    def event(self) -> str:
        """The name of the event."""
        return self.step[4]

    @property
    def decided(self) -> list[str]:
        """The names of the decisions."""
        return str(self.step[5]).split()

    @property
    def lost_before(self) -> int:
        """How many lines of this machine are lost between the one before and this one."""
        return self.part.lost if self.number == self.part.first else 0

    def line(self) -> StoryLine:
        """Its values."""
        return line_of(self.step)


LineFilter = Callable[[KeptLine], bool]


class StoryReader:
    """Reads what is below some paths: files, the directories of stories, or directories of those. `left_out`: what of it could not be read
    so far.
    """

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self.left_out = LeftOut()

    def files(self, since_ms: int = 0) -> list[Path]:
        """The files that may hold lines since then, oldest first within each directory."""
        found: list[Path] = []
        for path in self.paths:
            if not path.exists():
                raise NotFound(f"there is no {path}", remedy="give a file of a story, or a directory of such files")
            found += [path] if path.is_file() else sorted(path.rglob(f"*{SUFFIX}"))
        return [one for one in found if _written_ms(one) >= since_ms - SLACK_MS]

    def blocks(self, since_ms: int = 0) -> Iterator[tuple[Who, list[MachineSteps]]]:
        """What the blocks contain that may have lines since then."""
        for path in self.files(since_ms):
            for block in blocks_of(path, since_ms - SLACK_MS, self.left_out):
                yield parts_of(block)

    def lines(self, wanted: LineFilter, *, since_ms: int = 0, most: int = 0) -> tuple[list[KeptLine], int]:
        """The lines that are wanted since then, by time, and how many of them are left out: of more than `most`, the newest stay."""
        kept: list[tuple[int, str, float, int, int, KeptLine]] = []
        found = 0
        for who, parts in self.blocks(since_ms):
            for part in parts:
                for at, step in enumerate(part.steps):
                    kept_line = KeptLine(who.wall_ms(step[0]), who, part, part.first + at, step)
                    if kept_line.at_ms < since_ms or not wanted(kept_line):
                        continue
                    found += 1
                    row = kept_line.at_ms, who.process, step[0], part.number, kept_line.number, kept_line
                    if most and len(kept) >= most:
                        heapq.heappushpop(kept, row)
                    else:
                        heapq.heappush(kept, row)
        return [row[-1] for row in sorted(kept, key=lambda one: one[:-1])], found - len(kept)


def _written_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:  # it was removed meanwhile, as the oldest
        return -1 << 62
