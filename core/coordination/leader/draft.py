"""What a leader decides on, and what it has decided so far in this round: the draft of one transaction.

All rules of a round see the state as it will be once everything before them in the round is written. Since a round is one
transaction, that is what everybody else will see, too: all of it or nothing.

Promises:

- the folded state itself is never touched; the first write makes a copy;
- waiting is measured from the first round in which its reason held, and forgotten in the first in which it does not (`Waits`),
  so a rule states *that* something is so, and never has to remember since when.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from ...errors import DeclarationError
from ...machine import Level, Now
from ..events import JobNote
from ..messages import CLOSED, Delete, Entry, Key, Message, ProcessorState, SetProcessor, SetRun, Write, key_of
from ..run_choice import fits
from ..state import JobState
from .plan import LeaderConfig, overridden
from .protocol import BoundsResolved, LeaderInstruction, Refuse

NOTES_KEPT = 1000
"""So many notes are known to have been given; then one may come again."""


class Waits:
    """Since when something holds."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}
        self._asked: set[Hashable] = set()
        self.wake: float | None = None
        self.now = 0.0

    def begin(self, now: float) -> None:
        """A round begins."""
        self.now = now
        self.wake = None
        self._asked = set()

    def end(self) -> None:
        """The round is over: what was not asked for does not hold any more."""
        for key in [key for key in self._since if key not in self._asked]:
            del self._since[key]

    def over(self, key: Hashable, limit: float) -> bool:
        """`key` holds in this round. Has it held for so long?"""
        self._asked.add(key)
        until = self._since.setdefault(key, self.now) + limit
        if self.now >= until:
            return True
        self.wake = until if self.wake is None else min(self.wake, until)
        return False


@dataclass(slots=True)
class Memory:
    """What a leader may forget without harm: everything here is found again, or waited for again, by the next one."""

    waits: Waits = field(default_factory=Waits)
    fencing: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """Fences that were asked for and have not answered → when to ask again."""
    fenced: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Fences that have returned and are not written yet."""
    condemned: dict[str, str] = field(default_factory=dict[str, str])
    """Processors declared dead by silence or stall: nobody waits for their return. Incarnation by processor."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    resolved: BoundsResolved | None = None
    resolving: str = ""
    next_run: str = ""
    said: set[str] = field(default_factory=set[str])
    """Notes that were given once."""


class Draft:
    """One round of decisions."""

    def __init__(
        self,
        state: JobState,
        config: LeaderConfig,
        memory: Memory,
        now: Now,
        silent: Callable[[SetProcessor], str],
        term: int = 0,
    ) -> None:
        self._folded = state
        self.state = state
        self.config = config
        self.plan = config.plan
        self.timing = overridden(config.timing, state.configs, config.masked)
        self.memory = memory
        self.waits = memory.waits
        self.now = now
        self.silent = silent
        """Why this worker counts as dead; empty if it does not."""
        self.term = term
        self.writes: dict[Key, Write] = {}
        self.instructions: list[LeaderInstruction] = []
        self.resign = ""
        """Why somebody else must lead, if so."""
        self.impossible: DeclarationError | None = None
        """Why no run of this code can begin, if so."""

    def put(self, message: Message) -> None:
        """Write this, with everything else of this round."""
        key = key_of(message)
        self._write(key, message, message)

    def delete(self, key: Key) -> None:
        """Delete this key; only for what is answered, superseded or fenced."""
        self._write(key, None, Delete(key))

    def _write(self, key: Key, message: Message | None, write: Write) -> None:
        if self.state is self._folded:
            self.state = self._folded.copy()
        self.writes.pop(key, None)
        self.writes[key] = write
        self.state.apply(Entry(self.state.position, key, message, self.now.wall))

    def note(self, text: str, *, level: Level = "info", **fields: str | int) -> None:
        """Tell people."""
        self.instructions.append(JobNote(text, fields, level))

    def note_once(self, text: str, *, level: Level = "info", **fields: str | int) -> None:
        """Tell people, but not in every round."""
        if text not in self.memory.said:
            if len(self.memory.said) >= NOTES_KEPT:
                self.memory.said.clear()
            self.memory.said.add(text)
            self.note(text, level=level, **fields)

    def refuse(self, error: DeclarationError) -> None:
        """No run of this code can begin; its process is told once, and whoever requested a run gets it as the answer."""
        self.impossible = error
        if str(error) not in self.memory.said:
            self.memory.said.add(str(error))
            self.instructions.append(Refuse(error.what, error.remedy))

    # ------------------------------------------------------------------------------------------------ asked by many rules

    @property
    def run(self) -> SetRun | None:
        return self.state.run

    def alive(self) -> list[SetProcessor]:
        """The newest incarnation of each processor that has joined and is not silent."""
        found = [self.state.newest(processor) for processor in self.state.processors()]
        return [
            life for life in found if life is not None and life.state == ProcessorState.JOINED and not self.silent(life)
        ]

    def workers(self) -> dict[str, SetProcessor]:
        """Those of the live run that may be granted something, by processor: named, alive, not dismissed, and of this run."""
        if self.run is None or self.run.state in CLOSED:
            return {}
        found: dict[str, SetProcessor] = {}
        for member in self.state.members():
            life = self.state.recorded(member.processor)[member.incarnation]
            if fits(self.run, life) and not self.silent(life):
                found[member.processor] = life
        return dict(sorted(found.items()))
