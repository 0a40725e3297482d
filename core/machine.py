"""The base of all machines of `core`.

A machine decides; it never acts. It takes an event and the time, and returns instructions. The runtime carries them out, and reports the
results as further events:

    instructions = machine.handle(event, now)

The table is the dispatch: a row names states, events, and where they lead, or says that the events are ignored, and why.

What this module promises:

- A pair of state and event in the machine's table is handled by the method that its row names; any other pair raises `IllegalEvent` and
  changes nothing.
- An ignored event reaches no method. Neither does a late answer to an order that no longer counts (`stale`).
- After an event the machine is in one of the states that its row lists. The diagrams in the docs are drawn from the same table.
- Time is an argument. `deadline()` says when the machine wants a `Tick`; a machine never reads a clock.
- The last events and decisions of a machine can be read (`story`) and, from its start, replayed (`replay`). Whoever needs all of them takes
  them from the list that `record` returns.
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
class TableRow:
    """One row of a machine's table: in these states, these events lead to one of `to`; `why` is for people."""

    states: tuple[str, ...]
    events: tuple[type[Any], ...]
    to: tuple[str, ...]
    """Empty: the events are ignored. `""` means that the state stays."""
    why: str
    method: str = ""
    """What handles the events; `on_<EventName>` if it is empty."""

    def next(self, state: str) -> tuple[str, ...]:
        """The possible states after an event of this row in this state."""
        return tuple(target or state for target in self.to)


RecordedStep = tuple[Now, str, object, str, tuple[object, ...]]
"""Time, state before, event, state after, instructions: the fields of a `StoryLine`."""


@dataclass(frozen=True, slots=True)
class Raised:
    """Stands in a recorded step for its instructions: the event made the machine raise, as it was not allowed or by a mistake."""

    error: str


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
            f"{self.machine} in state '{self.state}' cannot take {event!r}; its history:\n{self.story or '(nothing happened yet)'}"
        )


IGNORED: tuple[str, ...] = ()
"""Where a row leads whose events are ignored."""
PlainRow = (
    tuple[str | Iterable[str], "type[Any] | tuple[type[Any], ...]", str | tuple[str, ...], str]
    | tuple[str | Iterable[str], "type[Any] | tuple[type[Any], ...]", str | tuple[str, ...], str, str]
)
"""States, events, next state or states, why, and the method if it is not the one that the event names."""


def rules(rows: Iterable[PlainRow]) -> tuple[TableRow, ...]:
    """A table from plain rows.

    >>> rules([("open", Tick, "", "nothing to do yet")])[0].next("open")
    ('open',)
    >>> rules([(("open", "shut"), Tick, IGNORED, "too late")])[0].next("open")
    ()
    """
    table: list[TableRow] = []
    for states, events, to, why, *method in rows:
        table.append(
            TableRow(
                (states,) if isinstance(states, str) else tuple(states),
                events if isinstance(events, tuple) else (events,),
                (to,) if isinstance(to, str) else to,
                why,
                *method,
            )
        )
    return tuple(table)


class Machine(Generic[E, I]):
    """The base class of the machines. A subclass has a `TABLE`, an `INITIAL` state and the methods that its rows name."""

    TABLE: ClassVar[tuple[TableRow, ...]] = ()
    INITIAL: ClassVar[str] = ""
    GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """States that a diagram draws as one, where a row leads out of all of them."""
    _index: ClassVar[Mapping[tuple[str, type[Any]], tuple[frozenset[str], str]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        index: dict[tuple[str, type[Any]], tuple[frozenset[str], str]] = {}
        for rule in cls.TABLE:
            for state in rule.states:
                for event in rule.events:
                    if (state, event) in index:
                        raise TypeError(f"{cls.__name__}: two rules for {event.__name__} in '{state}'")
                    method = (rule.method or f"on_{event.__name__}") if rule.to else ""
                    if method and not hasattr(cls, method):
                        raise TypeError(f"{cls.__name__} has no method {method} for a rule of its table")
                    index[state, event] = frozenset(rule.next(state)), method
        cls._index = index

    def __init__(self) -> None:
        self.state: str = self.INITIAL
        self._steps: deque[RecordedStep] = deque(maxlen=STORY_LENGTH)
        self._tape: list[RecordedStep] | None = None

    def handle(self, event: E, now: Now) -> list[I]:
        """Take one event; return what must be done. If the table does not allow the event, raises `IllegalEvent` and changes nothing."""
        tape, before = self._tape, self.state
        known = self._index.get((before, type(event)))
        if known is None:
            illegal = IllegalEvent(self, event)
            if tape is not None:
                tape.append((now, before, event, before, (Raised(raised(illegal)),)))
            raise illegal
        allowed, name = known
        if not allowed or self.stale(event):
            step: RecordedStep = (now, before, event, before, ())
            self._steps.append(step)
            if tape is not None:
                tape.append(step)
            return []
        method: Callable[[E, Now], list[I]] = getattr(self, name)
        try:
            instructions = method(event, now)
        except Exception as error:
            if tape is not None:
                tape.append((now, before, event, self.state, (Raised(raised(error)),)))
            raise
        step = (now, before, event, self.state, tuple(instructions))
        self._steps.append(step)
        if tape is not None:
            tape.append(step)
        if self.state not in allowed:
            raise AssertionError(
                f"{type(self).__name__}: {event!r} led from '{before}' to '{self.state}', which its table does not name"
            )
        return instructions

    def stale(self, event: E) -> bool:
        """Whether an event answers an order that no longer counts: it is dropped, in every state."""
        return False

    def deadline(self) -> float | None:
        """The monotonic time at which the machine wants a `Tick`; None if it only waits for events."""
        return None

    def record(self) -> list[RecordedStep]:
        """The list that gets every step from now on, also those of events that make the machine raise. Whoever asked for it empties it."""
        self._tape = []
        return self._tape

    def steps(self) -> list[StoryLine]:
        """The last events, with what the machine decided."""
        return [StoryLine(*step) for step in self._steps]

    def story(self) -> str:
        """The last events and decisions for people, one line per event."""
        return "\n".join(map(str, self.steps()))


def raised(error: Exception) -> str:
    """How an error stands in a recorded step: its kind and what it says first.

    >>> raised(ValueError("no such grant\\nits history: …"))
    'ValueError: no such grant'
    """
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def replay(make: Callable[[], M], recorded: Iterable[StoryLine]) -> M:
    """A new machine after the recorded events; raises if it decides differently from the record."""
    machine = make()
    for step in recorded:
        instructions = tuple(machine.handle(step.event, step.now))
        if instructions != step.instructions or machine.state != step.after:
            raise AssertionError(f"replay differs at {step}: now '{machine.state}' with {instructions!r}")
    return machine


def diagram(machine: type[Machine[Any, Any]]) -> str:
    """The machine's table as a Mermaid state diagram, for docs. A group lies in a group that contains all its states."""
    lines = ["stateDiagram-v2", f"    [*] --> {machine.INITIAL}"]
    drawn: set[str] = set()

    def draw(name: str, depth: int) -> None:
        states, indent = set(machine.GROUPS[name]), "    " * depth
        drawn.add(name)
        lines.append(f"{indent}state {name} {{")
        for inner, others in machine.GROUPS.items():
            if inner not in drawn and set(others) < states:
                draw(inner, depth + 1)
                states -= set(others)
        lines.extend(f"{indent}    {state}" for state in machine.GROUPS[name] if state in states)
        lines.append(f"{indent}}}")

    for name in sorted(machine.GROUPS, key=lambda one: -len(machine.GROUPS[one])):
        if name not in drawn:
            draw(name, 1)
    lines += [f"    {one} --> {to}: {' / '.join(events)}" for (one, to), events in arrows(machine).items()]
    return "\n".join(lines) + "\n"


def arrows(machine: type[Machine[Any, Any]]) -> dict[tuple[str, str], list[str]]:
    """From where to where events lead, each with their names. What leads out of all states of a group is one arrow."""
    found: dict[tuple[str, str], list[str]] = {}
    for rule in machine.TABLE:
        for state in rule.states:
            for to in rule.to:
                if to and to != state:
                    found.setdefault((state, to), []).extend(event.__name__ for event in rule.events)
    for name, states in sorted(machine.GROUPS.items(), key=lambda one: -len(one[1])):
        for to in {to: None for _, to in found}:
            own = [found.get((state, to)) for state in states]
            if to not in states and all(own):
                found[name, to] = [event for events in own for event in events or ()]
                for state in states:
                    del found[state, to]
    return {way: list(dict.fromkeys(names)) for way, names in found.items()}
