"""The base of all machines of `core`.

A machine decides; it never acts. It takes an event and the time, and returns instructions. The runtime carries them out, and reports the
results as further events:

    instructions = machine.handle(event, now)

What this module promises:

- A pair of state and event in the machine's table is handled; any other pair raises `IllegalEvent` and changes nothing.
- After an event the machine is in one of the states that the table lists for it. The diagrams in the docs are drawn from the same table.
- Time is an argument. `deadline()` says when the machine wants a `Tick`; a machine never reads a clock.
- The last events and decisions of a machine can be read (`story`) and, from its start, replayed (`replay`).
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
"""The log level of a machine's note: a failure, or a worker declared dead, is an error."""


@dataclass(frozen=True, slots=True)
class Now:
    """The time on two clocks: `mono` in seconds, for waiting; `wall` in milliseconds since the epoch, for what is stored or sent."""

    mono: float
    wall: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The machine's `deadline()` has passed; nothing else has happened."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of a machine's table: in `state`, `event` is allowed, and leads to one of `to`; `why` is for people."""

    state: str
    event: type[Any]
    to: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One line of a story: an event, and what the machine decided."""

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
    """An event that the machine's table does not allow in its current state. It is a bug in the caller; nothing has changed."""

    def __init__(self, machine: Machine[Any, Any], event: object) -> None:
        self.machine = type(machine).__name__
        self.state = machine.state
        self.event = event
        self.story = machine.story()
        super().__init__(
            f"{self.machine} in state '{self.state}' cannot take {event!r}; its story:\n{self.story or '(nothing happened yet)'}"
        )


def rules(rows: Iterable[tuple[str, type[Any], str | tuple[str, ...], str]]) -> tuple[Transition, ...]:
    """A table from plain rows `(state, event, next state or states, why)`; a next state of `""` means that the state stays.

    >>> rules([("open", Tick, "", "nothing to do yet")])[0].to
    ('open',)
    """
    table: list[Transition] = []
    for state, event, to, why in rows:
        targets = (to,) if isinstance(to, str) else to
        table.append(Transition(state, event, tuple(target or state for target in targets), why))
    return tuple(table)


class Machine(Generic[E, I]):
    """The base class of the machines. A subclass has a `TABLE`, an `INITIAL` state and a method `on_<EventName>` for each event type."""

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
        """Take one event; return what must be done. If the table does not allow the event, raises `IllegalEvent` and changes nothing."""
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
        """The monotonic time at which the machine wants a `Tick`; None if it only waits for events."""
        return None

    def steps(self) -> list[StoryLine]:
        """The last events, with what the machine decided."""
        return [StoryLine(*step) for step in self._steps]

    def story(self) -> str:
        """The last events and decisions for people, one line per event."""
        return "\n".join(map(str, self.steps()))


def replay(make: Callable[[], M], recorded: Iterable[StoryLine]) -> M:
    """A new machine after the recorded events; raises if it decides differently from the record."""
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
