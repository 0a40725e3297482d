"""Gives the recorded events of machines to new ones, and compares what these decide.

A machine is a function of what it was made with, its events and the time that came with them. So a story that was recorded from the first
event of a machine says whether another version decides the same, and from where on it does not.

Promises:

- What cannot be replayed is named, with the reason: nothing is passed over.
- Decisions are compared as they stand in the story: with secrets masked on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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
from .values import pack, unknown_in, unpack

Make = Callable[[Any], Machine[Any, Any]]
MACHINES: Mapping[str, Make] = MappingProxyType(
    {TASK: Task, MEMBER: Member, LEADER: Leader, COMMITTER: lambda made: Committer(*made)}
)


@dataclass(frozen=True, slots=True)
class MachineStory:
    """The story of one machine: what was recorded of it, in order."""

    worker: str
    process: str
    version: str
    kind: str
    name: str
    grant: int
    made: Any
    """What it was made with; None if its beginning is not there."""
    lines: tuple[StoryLine, ...]
    gap: str = ""
    """Why it cannot be replayed: its beginning is not kept, or lines are missing."""

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
        return sum(len(one.lines) for one in self.agreed) + sum(one.number for one in self.differs)


def stories(path: str | Path) -> list[MachineStory]:
    """The stories of all machines in a file, or in a directory of files, in the order in which they began."""
    reader = StoryReader(Path(path))
    made: dict[tuple[str, int], MachineStory] = {}
    lines: dict[tuple[str, int], list[StoryLine]] = {}
    for who, parts in reader.blocks():
        for part in parts:
            key = who.process, part.number
            before = made.get(key)
            made[key] = _begun(who, part) if before is None else _continued(before, part, len(lines[key]))
            lines.setdefault(key, []).extend(map(line_of, part.steps))
    return [replace(story, lines=tuple(lines[key])) for key, story in made.items()]


def _begun(who: Who, part: MachineSteps) -> MachineStory:
    gap = (
        ""
        if part.made
        else f"its first {part.first} events are not kept: raise story.max-bytes, or copy the files earlier"
    )
    made = made_with(part) if part.made else None
    return MachineStory(who.worker, who.process, who.version, part.kind, part.name, part.grant, made, (), gap)


def _continued(story: MachineStory, part: MachineSteps, seen: int) -> MachineStory:
    if story.gap or (part.first == seen and not part.lost):
        return story
    return replace(story, gap=f"{part.first - seen} of its events are missing after the first {seen}")


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
        if why := _why_not(one, makers):
            left_out.append((one, why))
        elif (difference := _difference(one, makers[one.kind](one.made))) is not None:
            differs.append(difference)
        else:
            agreed.append(one)
    return Replayed(tuple(agreed), tuple(differs), tuple(left_out))


def _why_not(story: MachineStory, makers: Mapping[str, Make]) -> str:
    if story.gap:
        return story.gap
    if story.kind not in makers:
        return f"this version has no machine of the kind {story.kind!r}"
    makes = MACHINES.get(story.kind) is makers[story.kind]  # one of the user's own may bring what is missing
    strange = unknown_in((story.made if makes else None, tuple(line.event for line in story.lines)))
    return (
        f"this version cannot make {', '.join(strange)}: give a maker of the machine that brings it" if strange else ""
    )


def _difference(story: MachineStory, machine: Machine[Any, Any]) -> ReplayDifference | None:
    for number, line in enumerate(story.lines):
        try:
            decided: tuple[Any, ...] = tuple(machine.handle(line.event, line.now))
        except Exception as error:  # noqa: BLE001 - that it raises is what is compared
            decided = (Raised(raised(error)),)
        if str(machine.state) != line.after or _as_kept(decided) != line.instructions:
            return ReplayDifference(story, number, line, str(machine.state), decided)
    return None


def _as_kept(instructions: tuple[Any, ...]) -> Any:
    return unpack(pack(instructions))
