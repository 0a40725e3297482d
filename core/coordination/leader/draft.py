"""The draft of one transaction: the state on which a leader decides, and its decisions so far in this round.

Each rule of a round sees the state as it will be after the writes of the rules before it. A round is one transaction, so all others see
either all of its writes or none.

Promises:

- The folded state itself is never modified; the first write makes a copy.
- A waiting time counts from the first round in which its reason held, and is dropped in the first in which it does not (`Waits`). So a rule
  only states *that* something holds, and need not remember since when.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import DeclarationError
from ...machine import Level, Now
from ..events import JobNote
from ..messages import CLOSED, OVER, Delete, Entry, Key, Message, ProcessorState, SetProcessor, SetRun, Write, key_of
from ..run_choice import fits, reads_joined
from ..state import JobState
from .plan import LeaderConfig, Plan, overridden
from .protocol import BoundsResolved, LeaderInstruction, Refuse

NOTES_KEPT = 1000
"""The number of remembered notes. Beyond it, a note may be repeated."""


class Waits:
    """Remembers since when something holds."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}
        self._asked: set[Hashable] = set()
        self.wake: float | None = None
        self.now = 0.0

    def begin(self, now: float) -> None:
        """Begin a round."""
        self.now = now
        self.wake = None
        self._asked = set()

    def end(self) -> None:
        """End the round. What was not asked for does not hold any more."""
        for key in [key for key in self._since if key not in self._asked]:
            del self._since[key]

    def over(self, key: Hashable, limit: float) -> bool:
        """State that `key` holds in this round. Returns whether it has held for `limit`."""
        self._asked.add(key)
        until = self._since.setdefault(key, self.now) + limit
        if self.now >= until:
            return True
        self.wake = until if self.wake is None else min(self.wake, until)
        return False


@dataclass(slots=True)
class Memory:
    """What a leader may forget without harm: the next leader finds all of it again, or waits for it again."""

    waits: Waits = field(default_factory=Waits)
    fencing: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """Requested fences without an answer → when to request them again."""
    fenced: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Fences that have returned and are not written yet."""
    condemned: dict[str, str] = field(default_factory=dict[str, str])
    """Processors declared dead because of silence or stall, whose return is not awaited, with the incarnation."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    more: Mapping[str, int] = field(default_factory=dict[str, int])
    """The partition counts of the topics that match a pattern of the job and are no inputs of this code yet, joined or not."""
    looks: dict[str, int] = field(default_factory=dict[str, int])
    """By request `grow`, the number of the count that it waits for."""
    look: int = 0
    """The number of the last count that was ordered."""
    looked: int = 0
    """The number of the last one that has returned."""
    considered: Hashable = None
    """Of what the last decision was about topics that have come."""
    grown: tuple[Hashable, Any] | None = None
    """The last decision about inputs that have grown, and of what it was; see `growing.growth`."""
    resolved: BoundsResolved | None = None
    resolving: str = ""
    next_run: str = ""
    said: set[str] = field(default_factory=set[str])
    """Notes that were already given."""


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
        self.timing = overridden(config.timing, state.configs, config.masked)
        self.memory = memory
        self.waits = memory.waits
        self.now = now
        self.silent = silent
        """Returns why this worker counts as dead; empty if it does not."""
        self.term = term
        self.writes: dict[Key, Write] = {}
        self.instructions: list[LeaderInstruction] = []
        self.resign = ""
        """Why another process must lead, if so."""
        self.impossible: DeclarationError | None = None
        """Why no run of this code can begin, if so."""

    def put(self, message: Message) -> None:
        """Write this message, with all others of this round."""
        key = key_of(message)
        self._write(key, message, message)

    def delete(self, key: Key) -> None:
        """Delete this key. Only for keys that are answered, superseded or fenced."""
        self._write(key, None, Delete(key))

    def _write(self, key: Key, message: Message | None, write: Write) -> None:
        if self.state is self._folded:
            self.state = self._folded.copy()
        self.writes.pop(key, None)
        self.writes[key] = write
        self.state.apply(Entry(self.state.position, key, message, self.now.wall))

    def note(self, text: str, *, level: Level = "info", **fields: str | int) -> None:
        """Log something."""
        self.instructions.append(JobNote(text, fields, level))

    def note_once(self, text: str, *, level: Level = "info", **fields: str | int) -> None:
        """Log something, but not in every round."""
        if text not in self.memory.said:
            if len(self.memory.said) >= NOTES_KEPT:
                self.memory.said.clear()
            self.memory.said.add(text)
            self.note(text, level=level, **fields)

    def refuse(self, error: DeclarationError) -> None:
        """Note that no run of this code can begin. The process is told once; a request for a run gets the error as its answer."""
        self.impossible = error
        if str(error) not in self.memory.said:
            self.memory.said.add(str(error))
            self.instructions.append(Refuse(error.what, error.remedy))

    # ------------------------------------------------------------------------------------------------- common queries

    @property
    def plan(self) -> Plan:
        """The job as this code declares it, with the topics that have joined its run, unless that is over."""
        run = self.run
        return self.config.plan if run is None or run.state in OVER else self.config.plan.joined(run.joined)

    @property
    def run(self) -> SetRun | None:
        return self.state.run

    def alive(self) -> list[SetProcessor]:
        """The newest incarnation of each processor that has joined and is not silent."""
        found = [self.state.newest(processor) for processor in self.state.processors()]
        return [
            worker
            for worker in found
            if worker is not None and worker.state == ProcessorState.JOINED and not self.silent(worker)
        ]

    def staying(self) -> dict[str, SetProcessor]:
        """Those of the workers that are not about to leave."""
        return {processor: worker for processor, worker in self.workers().items() if not worker.retires}

    def workers(self) -> dict[str, SetProcessor]:
        """The workers of the live run that may be granted tasks, by processor: named, alive, not dismissed, of this run, and
        of a version that can read all that has joined it."""
        if self.run is None or self.run.state in CLOSED:
            return {}
        found: dict[str, SetProcessor] = {}
        for member in self.state.members():
            worker = self.state.recorded(member.processor)[member.incarnation]
            if not fits(self.run, worker) or self.silent(worker):
                continue
            if reads_joined(self.run, worker):
                found[member.processor] = worker
            else:
                self.note_once(
                    f"worker '{member.processor}' of version {worker.version or 'unknown'} gets no tasks: it cannot read the topics "
                    "that have joined the run; upgrade it",
                    level="warning",
                )
        return dict(sorted(found.items()))
