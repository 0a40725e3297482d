"""Gives the recorded events of machines to new ones, and compares what these decide.

A machine is a function of what it was made with, its events and the time that came with them. So a story that was recorded from the first
event of a machine says whether another version decides the same, and from where on it does not.

Promises:

- What cannot be replayed is named, with the reason: nothing is passed over.
- Decisions are compared as they stand in the story: with secrets masked on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...core.coordination.leader.leader import Leader
from ...core.coordination.member.member import Member
from ...core.errors import NotFound
from ...core.machine import Machine, Raised, StoryLine, raised
from ...core.task.committer.commit import Committer
from ...core.task.task import Task
from .blocks import MachineSteps, Who, line_of, made_with
from .follow import COMMITTER, LEADER, MEMBER, TASK
from .reading import StoryReader
from .snapshots import NotRestored, restored
from .values import pack, unknown_in, unpack

Make = Callable[[Any], Machine[Any, Any]]
MACHINES: Mapping[str, Make] = MappingProxyType(
    {TASK: Task, MEMBER: Member, LEADER: Leader, COMMITTER: lambda made: Committer(*made)}
)


@dataclass(frozen=True, slots=True)
class MachineStory:
    """The story of one machine, or a part of it without a hole: what was recorded, in order."""

    worker: str
    process: str
    version: str
    kind: str
    name: str
    grant: int
    made: Any
    """What it was made with; None if its beginning is not there."""
    state: bytes
    """The machine before the first line, if that is not the beginning."""
    first: int
    """How many events it had had before the first line."""
    missing: int
    """How many of these are not kept, after what is kept of it before."""
    lines: tuple[StoryLine, ...] = ()

    @property
    def end(self) -> int:
        """How many events it had had after the last line."""
        return self.first + len(self.lines)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}{f' #{self.grant}' if self.grant else ''} of {self.worker}"


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """The first event on which a machine decides otherwise than it did."""

    story: MachineStory
    number: int
    """Of the event, from 0."""
    line: StoryLine
    """As it was recorded."""
    after: str
    instructions: tuple[Any, ...]
    """As it is now."""

    def __str__(self) -> str:
        return (
            f"{self.story} decides otherwise on event {self.number}, {self.line.event}: it was '{self.line.after}' with "
            f"{_listed(self.line.instructions)}, and is '{self.after}' with {_listed(self.instructions)}"
        )


def _listed(instructions: Iterable[Any]) -> str:
    return ", ".join(map(str, instructions)) or "nothing"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay."""

    agreed: tuple[MachineStory, ...]
    differs: tuple[ReplayDifference, ...]
    left_out: tuple[tuple[MachineStory, str], ...]
    """The machines that could not be replayed, each with the reason."""

    @property
    def events(self) -> int:
        """How many events were decided alike."""
        return sum(len(one.lines) for one in self.agreed) + sum(one.number - one.story.first for one in self.differs)


def stories(path: str | Path) -> list[MachineStory]:
    """The stories of all machines in a file, or in a directory of files, in the order in which they began. Where lines are missing, another
    one begins with the next snapshot of the machine, or at once if there is none before the next hole.
    """
    made: dict[tuple[str, int], list[_Pieces]] = {}
    for who, parts in StoryReader(Path(path)).blocks():
        for part in parts:
            pieces = made.setdefault((who.process, part.number), [])
            last = pieces[-1] if pieces else None
            follows = last is not None and part.first == last.end
            if last is None or not follows or (part.state and not last.plays):
                missing = 0 if follows else part.first - (0 if last is None else last.end)
                pieces.append(_Pieces(who, part, missing))
            pieces[-1].lines.extend(map(line_of, part.steps))
    return [each.story() for pieces in made.values() for each in pieces]


class _Pieces:
    """Steps of one machine without a hole between them, as they are read."""

    def __init__(self, who: Who, part: MachineSteps, missing: int) -> None:
        self._who, self._part, self._missing = who, part, missing
        self.plays = bool(part.made or part.state)
        """Whether it can be replayed from its first line."""
        self.lines: list[StoryLine] = []

    @property
    def end(self) -> int:
        return self._part.first + len(self.lines)

    def story(self) -> MachineStory:
        who, part = self._who, self._part
        made = made_with(part) if part.made else None
        about = who.worker, who.process, who.version, part.kind, part.name, part.grant
        return MachineStory(*about, made, part.state, part.first, self._missing, tuple(self.lines))


def replay(path: str | Path, machines: Mapping[str, Make] | None = None, *, of: str = "") -> Replayed:
    """Replay the machines of a story; see `hg.testing.replay`."""
    makers = {**MACHINES, **(machines or {})}
    found = [one for one in stories(path) if of in ("", one.kind, one.name, one.worker)]
    if not found:
        raise NotFound(
            f"{path} has no story{f' of {of!r}' if of else ''}", remedy="give a file of a story, or its directory"
        )
    agreed: list[MachineStory] = []
    differs: list[ReplayDifference] = []
    left_out: list[tuple[MachineStory, str]] = []
    for one in found:
        try:
            machine = _machine(one, makers)
        except NotRestored as error:
            left_out.append((one, str(error)))
            continue
        if (difference := _difference(one, machine)) is not None:
            differs.append(difference)
        else:
            agreed.append(one)
    return Replayed(tuple(agreed), tuple(differs), tuple(left_out))


def _machine(story: MachineStory, makers: Mapping[str, Make]) -> Machine[Any, Any]:
    """The machine as it was before the first line of its story. Raises `NotRestored` with the reason why there is none."""
    make = makers.get(story.kind)
    if make is None:
        raise NotRestored(f"this version has no machine of the kind {story.kind!r}")
    if story.made is None and not story.state:
        what = f"{story.missing} of its events before are not kept" if story.missing else "its beginning is not kept"
        raise NotRestored(f"{what}, and no snapshot comes before its first line: a larger story.max-bytes keeps more")
    own = MACHINES.get(story.kind) is not make  # one of the user's own may bring what is missing
    strange = unknown_in((None if own else story.made, tuple(line.event for line in story.lines)))
    if strange:
        raise NotRestored(f"this version cannot make {', '.join(strange)}: give a maker of the machine that brings it")
    if story.made is not None:
        return make(story.made)
    try:
        if isinstance(make, type):
            return restored(story.state, kind=make)
        return restored(story.state, like=make(None) if own else None)
    except NotRestored as error:
        raise NotRestored(f"its snapshot, of version {story.version}, cannot be read here: {error}") from error


def _difference(story: MachineStory, machine: Machine[Any, Any]) -> ReplayDifference | None:
    for number, line in enumerate(story.lines):
        try:
            decided: tuple[Any, ...] = tuple(machine.handle(line.event, line.now))
        except Exception as error:  # noqa: BLE001 - that it raises is what is compared
            decided = (Raised(raised(error)),)
        if str(machine.state) != line.after or _as_kept(decided) != line.instructions:
            return ReplayDifference(story, story.first + number, line, str(machine.state), decided)
    return None


def _as_kept(instructions: tuple[Any, ...]) -> Any:
    return unpack(pack(instructions))
