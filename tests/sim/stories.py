"""Replays machines: one made anew, and given the recorded events of another, decides the same.

A machine that looks at anything but its events (a clock, a set's order, what somebody has changed since) is found by that. A share of all
machines is recorded, because a replay costs as much as the life itself. What is replayed has been written and read like the story of a
worker on disk, so a value that comes back as another one is found, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headgate.agents.stories.blocks import Packer, line_of
from headgate.agents.stories.snapshots import restored, taken
from headgate.agents.stories.values import pack, unknown_in, unpack
from headgate.core.machine import RecordedStep

if TYPE_CHECKING:
    from .process import Process

SHARE = 0.15
"""The share of the machines that are recorded."""


SNAPSHOTS = 0.01
"""At this share of its events a snapshot is taken of a machine that is recorded; the last one counts."""


class Story:
    """The recorded events of one machine, from its first."""

    def __init__(self, machine: Any, make: Callable[[], Any], who: str) -> None:
        self._machine = machine
        self._make = make
        self._who = who
        self._steps: list[RecordedStep] = []
        self._rng = random.Random(f"snapshots {who}")
        self._snapshot: tuple[int, Any] | None = None

    def tell(self, event: Any, now: Any, before: str, instructions: list[Any]) -> None:
        """The machine has handled an event."""
        self._steps.append((now, before, event, self._machine.state, tuple(instructions)))
        if self._rng.random() < SNAPSHOTS:
            self._snapshot = len(self._steps), taken(self._machine)

    def differs(self) -> str:
        """How a new machine decides otherwise, or one that a snapshot was made of; empty if both decide the same."""
        wrong = self._differs(self._make(), 0)
        if wrong or self._snapshot is None:
            return wrong
        first, nodes = self._snapshot
        wrong = self._differs(restored(pack(nodes), like=self._make()), first)
        return wrong and f"from the snapshot before event {first}, {wrong}"

    def _differs(self, machine: Any, first: int) -> str:
        packer = Packer()
        for step in self._steps[first:]:
            line = line_of(packer.step(step))
            if strange := unknown_in((line.event, line.instructions)):
                return f"{self._who}: the story cannot hold {', '.join(strange)}: {step[2]}"
            instructions = unpack(pack(tuple(machine.handle(line.event, line.now))))
            if instructions != line.instructions or machine.state != line.after:
                return f"{self._who} decides otherwise when it is replayed: {line}; now '{machine.state}' with {instructions}"
        return ""


def recorded(process: Process, machine: Any, make: Callable[[], Any], who: str) -> Story | None:
    """A story of this machine, if it is one of those that are recorded."""
    name = f"{process.world.seed} {process.name} {who} {len(process.stories)}"
    if random.Random(name).random() >= SHARE:
        return None
    story = Story(machine, make, f"{process.name} {who}")
    process.stories.append(story)
    return story
