"""Targets that could not be written, and the tasks that wait until they can be.

    broke → (a pause) → Probe → Probed: cannot → (a longer pause) → …
                                Probed: can    → its tasks are started

A target that fails ends the producer of the whole worker, so whoever wrote to it must not simply try again: every try would end the
next producer. It decides who is held back, and when the target is asked whether it would take something.

Promises:

- a task is held back while any target is known to refuse what it wrote; no other task ever waits;
- a target is asked with growing pauses, by one question at a time, and only while somebody waits for it;
- a target that fails again soon after it was found well goes on with the pause that it had; after that, nothing of it is remembered;
- what no question can settle is tried a few times, then given up until somebody seeks: a task that failed without a target (user code, at
  the moment of a commit), and one that wrote what its target refused, which is asked all the same, for it may take other things now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...names import StreamPartition
from .protocol import Probe, Probed

LONGEST = 30.0
"""The longest pause, in first pauses. A target that was well for longer than that begins with the first pause again."""
TRIES = 5
"""How often a task without a target to ask is started again."""


@dataclass(slots=True)
class _Trouble:
    """One target; or one task, that failed without any or wrote what was refused."""

    target: StreamPartition | None
    why: str
    tasks: set[str]
    pause: float
    until: float | None
    """When it is asked (or tried) next; None while the question is under way."""
    tries: int = 1
    well_s: float | None = None
    """Since when it holds nobody back."""


class Targets:
    """Who waits for what.

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
        """By task: the seeks that stood in the run when last looked at."""

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
        """These tasks wrote to what failed, or wrote what was `refused`. `most`: so often one that waits alone is tried again."""
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
        """These seeks stand in the run for this task. A new one is another try, behind what it failed at."""
        if seeks - self._sought.get(task, frozenset()):
            self._known.pop(task, None)
        if seeks:
            self._sought[task] = seeks
        else:
            self._sought.pop(task, None)

    def tasks(self) -> set[str]:
        """Of whom anything is remembered here."""
        return set(self._sought).union(*(one.tasks for one in self._known.values()))

    def forget(self, elsewhere: set[str], mono: float) -> None:
        """What was well for long is forgotten; and of tasks that run elsewhere now, what was given up (it may have been mended there)
        and what nobody has asked about for long."""
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
        """Why this task must wait; empty when it need not."""
        for trouble in self._known.values():
            if task not in trouble.tasks or trouble.well_s is not None:
                continue
            if trouble.target is None and trouble.until is not None and mono >= trouble.until:
                trouble.well_s = mono
                continue
            return trouble.why
        return ""

    def due(self, waiting: set[str], mono: float) -> list[Probe]:
        """The questions whose time has come."""
        questions: dict[StreamPartition, Probe] = {}
        for trouble in self._awaited(waiting):
            if trouble.target is not None and trouble.until is not None and mono >= trouble.until:
                trouble.until = None
                questions[trouble.target] = Probe(trouble.target)
        return list(questions.values())

    def probed(self, answer: Probed, mono: float) -> None:
        """A target was asked."""
        for trouble in self._known.values():
            if trouble.target != answer.target or trouble.until is not None:
                continue
            if answer.why:
                self._pause(trouble, mono)
            else:
                trouble.well_s, trouble.until = mono, mono

    def wake(self, waiting: set[str]) -> float | None:
        """When the next question, or the next try, is due."""
        found = [one.until for one in self._awaited(waiting) if one.until is not None and one.until != float("inf")]
        return min(found, default=None)

    def _awaited(self, waiting: set[str]) -> list[_Trouble]:
        return [one for one in self._known.values() if one.well_s is None and one.tasks & waiting]
