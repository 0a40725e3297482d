"""What every step of a declared job is: one frozen value, linked to the steps before it.

A step runs nothing. It says itself what the rules must know of it; a verb creates it while the user declares, and `operators/` has what a
task runs for it. The kinds of steps stand in the other files of this room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

Policy = str | Callable[..., Any] | None
"""`"fail"`, `"skip"`, `"dead_letter"`, a function `(record, exception)` that returns one of these, or None: the policy one level up."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Step:
    """Base class of all steps. `name` is empty for steps that keep no state and shuffle nothing."""

    VERB: ClassVar[str] = ""
    """The verb of this step's stage in the graph; the rules of `core.graph` depend on it, and messages show it."""
    stateful: ClassVar[bool] = False
    """Whether the step keeps state under its name."""
    passing: ClassVar[bool] = False
    """Whether the step only passes rows on. An input whose rows all go through such steps into tables is read to its end first."""
    effective: ClassVar[bool] = False
    """Whether a job that ends with this step has an effect."""
    hears_time: ClassVar[bool] = False
    """Whether its operator is told the event time; the operator's `letters` is then true."""
    remembers: ClassVar[bool] = False
    """Whether what the step does with a row may depend on earlier rows."""
    irrevocable: ClassVar[bool] = False
    """Whether the user's function has effects that cannot be undone. It runs again to find a failed row only if a policy may leave that row
    out."""
    by_row: ClassVar[bool] = False
    """Whether the user's function gets rows and nothing else. A policy may leave one out, so the function runs with its chunk."""

    parents: tuple[Step, ...] = field(default=(), repr=False)
    name: str = ""
    on_error: Policy = None
    where: str = ""
    """File and line of the declaration, for messages."""

    @property
    def behind(self) -> tuple[Step, ...]:
        """The steps that it needs: those whose rows it gets, and others that it reads."""
        return self.parents

    def relinked(self, replaced: Mapping[int, Step]) -> Self:
        """The step, behind those that replace others, by the ids of these."""
        parents = tuple(replaced.get(id(parent), parent) for parent in self.parents)
        return self if parents == self.parents else replace(self, parents=parents)

    @property
    def verb(self) -> str:
        """The verb of this step."""
        return self.VERB

    @property
    def place(self) -> str:
        """Its name, or else its verb and the line of its declaration."""
        return self.name or f"{self.verb} ({self.where})"

    @property
    def updates(self) -> bool:
        """Whether each output row replaces the earlier one of its key; otherwise the output rows are events."""
        return False

    @property
    def holds_ms(self) -> int:
        """By how much output rows may be older than the time that the step was told. Only for steps that are told the event time."""
        return 0


def readers_of(steps: Sequence[Step]) -> dict[int, list[Step]]:
    """The steps that read what a step gives, by its id."""
    readers: dict[int, list[Step]] = {}
    for step in steps:
        for parent in step.parents:
            readers.setdefault(id(parent), []).append(step)
    return readers


def rebuilt(steps: Sequence[Step], change: Callable[[Step], Step]) -> list[Step]:
    """The steps as `change` returns them, linked with each other as before."""
    replaced: dict[int, Step] = {}
    result: list[Step] = []
    for step in steps:
        changed = change(step).relinked(replaced)
        if changed is not step:
            replaced[id(step)] = changed
        result.append(changed)
    return result


def lineage(steps: tuple[Step, ...]) -> list[Step]:
    """These steps and all that lead to them, parents before children, each once."""
    seen: dict[int, Step] = {}
    stack = [(step, False) for step in reversed(steps)]
    while stack:
        step, through = stack.pop()
        if through:
            seen.setdefault(id(step), step)
        elif id(step) not in seen:
            stack.append((step, True))
            stack += [(one, False) for one in reversed(step.behind)]
    return list(seen.values())
