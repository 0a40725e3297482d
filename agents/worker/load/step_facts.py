"""What heartbeats carry of a step: one frozen value, which status, metrics, the page and commands show.

    <key>.<step>        in a heartbeat; a value says itself by which keys its numbers go

Promises: what is sent is read as it was, by workers of other versions, too: a key that is missing stands for the default. Sums over tasks
and workers add numbers, and take the least of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeVar

from .times import fitting


@dataclass(frozen=True, slots=True)
class StepFacts:
    """Base class of what is reported of a step. Its fields are numbers, and times that may be unknown."""

    KEYS: ClassVar[Mapping[str, str]] = {}
    """Field → its key in a heartbeat. The first one is always there; by it, the steps are found."""
    SPARSE: ClassVar[bool] = False
    """Numbers that are zero are not sent."""

    step: str

    @property
    def place(self) -> str:
        """What stands behind the keys."""
        return self.step

    @property
    def order(self) -> tuple[str, ...]:
        """What is summed, and sorted by."""
        return (self.step,)

    @classmethod
    def at(cls, place: str) -> Self:
        """The facts of which nothing but their place is known."""
        return cls(place)

    def plus(self, other: Self) -> Self:
        """The sum of both."""
        return replace(self, **{name: _together(getattr(self, name), getattr(other, name), name) for name in self.KEYS})

    def numbers(self) -> dict[str, float]:
        """The numbers under their keys."""
        found: dict[str, float] = {}
        for name, key in self.KEYS.items():
            value = getattr(self, name)
            if value is not None and (value or not self.SPARSE or not found or is_time(name)):
                found[f"{key}.{self.place}"] = float(value)
        return found


F = TypeVar("F", bound=StepFacts)


def summed(found: Iterable[F]) -> list[F]:
    """One sum for each step, sorted by name."""
    sums: dict[tuple[str, ...], F] = {}
    for one in found:
        sums[one.order] = sums[one.order].plus(one) if one.order in sums else one
    return [sums[at] for at in sorted(sums)]


def load_of_steps(found: Iterable[StepFacts], most_bytes: int) -> dict[str, float]:
    """The facts as numbers, in at most `most_bytes`. From the first step that does not fit, steps are left out."""
    return fitting((one.numbers() for one in found), most_bytes)


def steps_of_load(kind: type[F], load: Mapping[str, float]) -> list[F]:
    """The facts of this kind in a heartbeat."""
    first = f"{next(iter(kind.KEYS.values()))}."
    found: list[F] = []
    for place in (name.removeprefix(first) for name in load if name.startswith(first)):
        given = {name: int(load[at]) for name, key in kind.KEYS.items() if (at := f"{key}.{place}") in load}
        found.append(replace(kind.at(place), **given))
    return found


def is_time(name: str) -> bool:
    """Whether a field is a time in milliseconds."""
    return name.endswith("_ms")


def _together(one: int | None, other: int | None, name: str) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return min(known, default=None) if is_time(name) else sum(known)
