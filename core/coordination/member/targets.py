"""Targets that could not be written, and the tasks that wait until they can be.

    broke → (a pause) → Probe → Probed: cannot → (a longer pause) → …
                              Probed: can    → its tasks are started

A failed target ends the producer of the whole worker, so a task that wrote to it must not simply try again: each attempt would end the next
producer. This code decides which tasks are held back, and when a target is probed.

Promises:

- A task is held back while any target is known to reject what it wrote; no other task ever waits.
- A target is probed with growing pauses, one probe at a time, and only while a task waits for it.
- If a target fails again soon after it recovered, its pauses continue where they were. Later, it is forgotten.
- Some failures cannot be settled by a probe: those of a task without a target (user code, during a commit), and of one whose record was
  rejected. Such a task is started a few times, then given up until a seek comes. A target that rejected a record is probed in any case,
  because it may accept other records now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...names import StreamPartition
from .protocol import Probe, Probed

LONGEST = 30.0
"""The longest pause, as a multiple of the first. A target that was healthy for longer starts with the first pause again."""
TRIES = 5
"""How often a task without a target to probe is started again."""


@dataclass(slots=True)
class _Trouble:
    """One broken target; or one task that failed without a target or whose record was rejected."""

    target: StreamPartition | None
    why: str
    tasks: set[str]
    pause: float
    until: float | None
    """When it is probed (or tried) next; None while the probe is in progress."""
    tries: int = 1
    well_s: float | None = None
    """Since when it holds back no task."""


class Targets:
    """Which tasks wait for which targets.

    >>> targets, at = Targets(1.0), StreamPartition("out", 0)
    >>> targets.broke(["t"], "no such topic", at, 0.0)
    >>> targets.holds("t", 0.5), targets.due({"t"}, 1.0)
    ('no such topic', [Probe(target=StreamPartition(stream='out', partition=0))])
    >>> targets.probed(Probed(at), 1.1)
    >>> targets.holds("t", 1.1)
    ''
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._longest_s = first_s * LONGEST
        self._known: dict[StreamPartition | str, _Trouble] = {}
        self._sought: dict[str, frozenset[str]] = {}
        """By task: the seeks in the run when last looked at."""

    def broke(
        self,
        tasks: Iterable[str],
        why: str,
        target: StreamPartition | None,
        mono: float,
        *,
        refused: bool = False,
        most: float | None = None,
    ) -> None:
        """Note that these tasks wrote to a target that failed, or wrote what it `refused`. `most`: how often a task without a target is
        tried again.
        """
        most = TRIES if most is None else most
        alone = refused or target is None
        for key, those in [(task, {task}) for task in tasks] if alone or target is None else [(target, set(tasks))]:
            before = self._known.get(key)
            if before is None or (before.well_s is not None and mono - before.well_s > self._longest_s):
                until = mono + self._first_s if most else float("inf")
                self._known[key] = _Trouble(target, why, those, self._first_s, until)
                continue
            before.tasks = those if before.well_s is not None else before.tasks | those
            before.target, before.why, before.well_s, before.tries = target, why, None, before.tries + 1
            self._pause(before, mono)
            if alone and before.tries > most:
                before.until = float("inf")
                before.why = f"{why}; given up after {before.tries} attempts: seek, or start with different code"

    def given_up(self, task: str) -> bool:
        """Whether only a seek or other code can help this task."""
        return any(
            task in one.tasks and one.well_s is None and one.until == float("inf") for one in self._known.values()
        )

    def sought(self, task: str, seeks: frozenset[str]) -> None:
        """Take note of the seeks in the run for this task. A new seek is another attempt, from another position."""
        if seeks - self._sought.get(task, frozenset()):
            self._known.pop(task, None)
        if seeks:
            self._sought[task] = seeks
        else:
            self._sought.pop(task, None)

    def tasks(self) -> set[str]:
        """The tasks about which anything is remembered here."""
        return set(self._sought).union(*(one.tasks for one in self._known.values()))

    def forget(self, elsewhere: set[str], mono: float) -> None:
        """Forget targets that have been healthy for long. Of tasks that run elsewhere now, also forget what was given up (it may be
        repaired there) and what was due for long.
        """
        for key, one in list(self._known.items()):
            since = one.well_s if one.tasks - elsewhere or one.well_s is not None else one.until
            if since == float("inf") or (since is not None and mono - since > self._longest_s):
                del self._known[key]
        for task in elsewhere:
            self._sought.pop(task, None)

    def _pause(self, trouble: _Trouble, mono: float) -> None:
        trouble.pause = min(trouble.pause * 2, self._longest_s)
        trouble.until = mono + trouble.pause

    def holds(self, task: str, mono: float) -> str:
        """Why this task must wait; empty if it need not."""
        for trouble in self._known.values():
            if task not in trouble.tasks or trouble.well_s is not None:
                continue
            if trouble.target is None and trouble.until is not None and mono >= trouble.until:
                trouble.well_s = mono
                continue
            return trouble.why
        return ""

    def due(self, waiting: set[str], mono: float) -> list[Probe]:
        """The probes that are due."""
        questions: dict[StreamPartition, Probe] = {}
        for trouble in self._awaited(waiting):
            if trouble.target is not None and trouble.until is not None and mono >= trouble.until:
                trouble.until = None
                questions[trouble.target] = Probe(trouble.target)
        return list(questions.values())

    def probed(self, answer: Probed, mono: float) -> None:
        """Take the answer of a probe."""
        for trouble in self._known.values():
            if trouble.target != answer.target or trouble.until is not None:
                continue
            if answer.why:
                self._pause(trouble, mono)
            else:
                trouble.well_s, trouble.until = mono, mono

    def wake(self, waiting: set[str]) -> float | None:
        """When the next probe or attempt is due."""
        found = [one.until for one in self._awaited(waiting) if one.until is not None and one.until != float("inf")]
        return min(found, default=None)

    def _awaited(self, waiting: set[str]) -> list[_Trouble]:
        return [one for one in self._known.values() if one.well_s is None and one.tasks & waiting]
