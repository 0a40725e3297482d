"""The one shape that every machine of this room has.

A machine decides; it never acts. It is given an event and the time, and answers with instructions that somebody else carries
out and reports back as further events:

    instructions = machine.handle(event, now)

What this module promises:

- A pair of state and event that stands in the machine's table is handled; any other pair raises `IllegalEvent` and changes nothing.
- After an event the machine stands in one of the states that the table names for it. The same table draws the diagrams in docs.
- Time is an argument. `deadline()` says when the machine wants to be woken by a `Tick`; it never looks at a clock.
- The last things that a machine saw and decided can be read (`story`) and, from its start, played again (`replay`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

E = TypeVar("E")
I = TypeVar("I")  # noqa: E741 - instruction, and nothing else, is what a machine returns
M = TypeVar("M", bound="Machine[Any, Any]")

STORY_LENGTH = 200
Level = Literal["debug", "info", "warning", "error"]
"""How much a note of a machine is to people: what failed or was declared dead is an error in the log."""


@dataclass(frozen=True, slots=True)
class Now:
    """The time, twice: `mono` seconds for waiting, `wall` milliseconds since the epoch for what is stored and read by others."""

    mono: float
    wall: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened but time: the machine's `deadline()` has come."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of a machine's table: in `state`, `event` may come, and leads to one of `to`; `why` is for people."""

    state: str
    event: type[Any]
    to: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One line of a story."""

    now: Now
    before: str
    event: object
    after: str
    instructions: tuple[object, ...]

    def __str__(self) -> str:
        decided = ", ".join(map(str, self.instructions)) or "-"
        arrow = self.before if self.before == self.after else f"{self.before} → {self.after}"
        return f"{self.now.mono:10.3f}  {arrow:<28}  {self.event}  ⇒  {decided}"


class IllegalEvent(Exception):
    """An event that the machine's table does not allow in its present state. It is a mistake of the caller; nothing has changed."""

    def __init__(self, machine: Machine[Any, Any], event: object) -> None:
        self.machine = type(machine).__name__
        self.state = machine.state
        self.event = event
        self.story = machine.story()
        super().__init__(
            f"{self.machine} in state '{self.state}' cannot take {event!r}; its story:\n{self.story or '(nothing happened yet)'}"
        )


def rules(rows: Iterable[tuple[str, type[Any], str | tuple[str, ...], str]]) -> tuple[Transition, ...]:
    """A table from plain rows `(state, event, next state or states, why)`; a state that is not named stays itself with `""`.

    >>> rules([("open", Tick, "", "nothing to do yet")])[0].to
    ('open',)
    """
    table: list[Transition] = []
    for state, event, to, why in rows:
        targets = (to,) if isinstance(to, str) else to
        table.append(Transition(state, event, tuple(target or state for target in targets), why))
    return tuple(table)


class Machine(Generic[E, I]):
    """Base of the machines. A subclass has a `TABLE`, an `INITIAL` state and one method `on_<EventName>` for each event type."""

    TABLE: ClassVar[tuple[Transition, ...]] = ()
    INITIAL: ClassVar[str] = ""
    _index: ClassVar[Mapping[tuple[str, type[Any]], frozenset[str]]] = {}
    _methods: ClassVar[Mapping[type[Any], str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        index: dict[tuple[str, type[Any]], frozenset[str]] = {}
        methods: dict[type[Any], str] = {}
        for rule in cls.TABLE:
            if (rule.state, rule.event) in index:
                raise TypeError(f"{cls.__name__}: two rules for {rule.event.__name__} in '{rule.state}'")
            index[rule.state, rule.event] = frozenset(rule.to)
            methods[rule.event] = f"on_{rule.event.__name__}"
            if not hasattr(cls, methods[rule.event]):
                raise TypeError(f"{cls.__name__} has no method {methods[rule.event]} for a rule of its table")
        cls._index = index
        cls._methods = methods

    def __init__(self) -> None:
        self.state: str = self.INITIAL
        self._steps: deque[tuple[Now, str, object, str, tuple[object, ...]]] = deque(maxlen=STORY_LENGTH)

    def handle(self, event: E, now: Now) -> list[I]:
        """Take one event; return what must be done. Raises `IllegalEvent`, with nothing changed, for what the table does not allow."""
        kind = type(event)
        allowed = self._index.get((self.state, kind))
        if allowed is None:
            raise IllegalEvent(self, event)
        before = self.state
        method: Callable[[E, Now], list[I]] = getattr(self, self._methods[kind])
        instructions = method(event, now)
        self._steps.append((now, before, event, self.state, tuple(instructions)))
        if self.state not in allowed:
            raise AssertionError(
                f"{type(self).__name__}: {event!r} led from '{before}' to '{self.state}', which its table does not name"
            )
        return instructions

    def deadline(self) -> float | None:
        """The monotonic time at which a `Tick` is wanted; None when only events matter."""
        return None

    def steps(self) -> list[StoryLine]:
        """The last events that it took, with what it decided."""
        return [StoryLine(*step) for step in self._steps]

    def story(self) -> str:
        """The same for people: one line an event."""
        return "\n".join(map(str, self.steps()))


def replay(make: Callable[[], M], recorded: Iterable[StoryLine]) -> M:
    """A fresh machine that has seen the recorded events; raises where it decides otherwise than the record says."""
    machine = make()
    for step in recorded:
        instructions = tuple(machine.handle(step.event, step.now))
        if instructions != step.instructions or machine.state != step.after:
            raise AssertionError(f"replay differs at {step}: now '{machine.state}' with {instructions!r}")
    return machine


def diagram(machine: type[Machine[Any, Any]]) -> str:
    """The machine's table as a Mermaid state diagram, for docs."""
    lines = ["stateDiagram-v2", f"    [*] --> {machine.INITIAL}"]
    arrows: dict[tuple[str, str], list[str]] = {}
    for rule in machine.TABLE:
        for target in rule.to:
            if target != rule.state:
                arrows.setdefault((rule.state, target), []).append(rule.event.__name__)
    lines += [f"    {source} --> {target}: {' / '.join(names)}" for (source, target), names in arrows.items()]
    return "\n".join(lines) + "\n"
