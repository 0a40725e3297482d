"""The one shape of all machines: its table is the law, time is an argument, and its story can be read and replayed."""

from __future__ import annotations

import doctest
from dataclasses import dataclass
from typing import ClassVar

import pytest

from headgate.core import machine as module
from headgate.core.machine import (
    IGNORED,
    STORY_LENGTH,
    IllegalEvent,
    Machine,
    Now,
    Raised,
    StoryLine,
    TableRow,
    Tick,
    arrows,
    diagram,
    replay,
    rules,
)


@dataclass(frozen=True, slots=True)
class Open:
    by: str = "anna"


@dataclass(frozen=True, slots=True)
class Close:
    pass


class Gate(Machine[object, str]):
    INITIAL = "shut"
    TABLE = rules(
        [
            ("shut", Open, ("open", "shut"), "only anna may open it"),
            ("open", Close, "shut", "anyone may close it"),
            ("open", Tick, "", "time passes"),
        ]
    )

    def on_Open(self, event, now):
        if event.by == "anna":
            self.state = "open"
            return ["water"]
        return []

    def on_Close(self, event, now):
        self.state = "shut"
        return []

    def on_Tick(self, event, now):
        return [f"open at {now.wall}"]


T = Now(1.5, 99)


def test_what_the_table_allows_is_handled():
    gate = Gate()
    assert gate.handle(Open("bert"), T) == []
    assert gate.handle(Open(), T) == ["water"]
    assert gate.handle(Tick(), T) == ["open at 99"]
    assert gate.state == "open"
    assert gate.deadline() is None


def test_what_it_does_not_allow_raises_and_changes_nothing():
    gate = Gate()
    with pytest.raises(
        IllegalEvent, match=r"Gate in state 'shut' cannot take Close\(\); its history:\n\(nothing happened yet"
    ) as caught:
        gate.handle(Close(), T)
    assert (gate.state, gate.steps(), caught.value.event, caught.value.story) == ("shut", [], Close(), "")
    gate.handle(Open(), T)
    with pytest.raises(IllegalEvent, match="shut → open"):
        gate.handle(Open(), T)


def test_a_method_that_leaves_the_table_is_found_out():
    class Loose(Gate):
        def on_Close(self, event, now):
            self.state = "gone"
            return []

    gate = Loose()
    gate.handle(Open(), T)
    with pytest.raises(AssertionError, match="led from 'open' to 'gone'"):
        gate.handle(Close(), T)


def test_a_table_with_two_rules_or_without_a_method_is_refused():
    with pytest.raises(TypeError, match="two rules for Open in 'shut'"):
        type("Twice", (Gate,), {"TABLE": rules([("shut", Open, "", ""), ("shut", Open, "open", "")])})
    with pytest.raises(TypeError, match="no method on_Open"):
        type("Without", (Machine,), {"TABLE": rules([("shut", Open, "", "")])})


def test_the_story_is_one_line_an_event_and_bounded():
    gate = Gate()
    gate.handle(Open(), T)
    gate.handle(Tick(), T)
    assert gate.story().splitlines() == [
        "     1.500  shut → open                   Open(by='anna')  ⇒  water",
        "     1.500  open                          Tick()  ⇒  open at 99",
    ]
    assert gate.steps()[0] == StoryLine(T, "shut", Open(), "open", ("water",))
    for _ in range(STORY_LENGTH):
        gate.handle(Tick(), T)
    assert len(gate.steps()) == STORY_LENGTH
    assert "⇒  -" in str(StoryLine(T, "open", Close(), "shut", ()))


def test_a_record_is_replayed_and_a_difference_is_found():
    gate = Gate()
    for event in (Open("bert"), Open(), Tick(), Close()):
        gate.handle(event, T)
    assert replay(Gate, gate.steps()).state == "shut"

    class Other(Gate):
        def on_Tick(self, event, now):
            return []

    with pytest.raises(AssertionError, match=r"replay differs at .*Tick\(\)"):
        replay(Other, gate.steps())


def test_the_diagram_is_drawn_from_the_table():
    assert diagram(Gate) == "stateDiagram-v2\n    [*] --> shut\n    shut --> open: Open\n    open --> shut: Close\n"
    assert rules([("a", Tick, ("b", ""), "why")]) == (TableRow(("a",), (Tick,), ("b", ""), "why"),)
    assert rules([("a", Tick, ("b", ""), "why")])[0].next("a") == ("b", "a")


class Door(Machine[object, str]):
    """Opened by one method, shut by another, and deaf while it is shut."""

    INITIAL = "shut"
    GROUPS: ClassVar = {"there": ("open", "shut", "ajar")}
    TABLE = rules(
        [
            ("shut", Open, "open", "it opens", "opens"),
            (("open", "ajar"), (Open, Close), "shut", "it shuts", "shuts"),
            ("shut", Close, IGNORED, "it is shut"),
            (("open", "shut", "ajar"), Tick, ("", "gone"), "it may fall off"),
        ]
    )

    def opens(self, event, now):
        self.state = "open"
        return ["opened"]

    def shuts(self, event, now):
        self.state = "shut"
        return ["shut"]

    def on_Tick(self, event, now):
        return ["tick"]

    def stale(self, event):
        return isinstance(event, Tick) and self.state == "open"


def test_a_row_names_its_method_and_what_is_ignored_or_stale_reaches_none():
    door = Door()
    assert door.handle(Close(), T) == []
    assert door.handle(Open(), T) == ["opened"]
    assert door.handle(Tick(), T) == []
    assert door.handle(Open(), T) == ["shut"]
    assert door.handle(Tick(), T) == ["tick"]
    assert [line.instructions for line in door.steps()] == [(), ("opened",), (), ("shut",), ("tick",)]
    assert replay(Door, door.steps()).state == "shut"


def test_what_leads_out_of_a_whole_group_is_one_arrow():
    assert arrows(Door) == {
        ("shut", "open"): ["Open"],
        ("open", "shut"): ["Open", "Close"],
        ("ajar", "shut"): ["Open", "Close"],
        ("there", "gone"): ["Tick"],
    }
    assert "    state there {\n        open\n        shut\n        ajar\n    }\n" in diagram(Door)
    nested = type("Nested", (Door,), {"GROUPS": {**Door.GROUPS, "wide": ("open", "ajar")}})
    assert (
        "    state there {\n        state wide {\n            open\n            ajar\n        }\n        shut\n    }\n"
        in diagram(nested)
    )


class Leaky(Door):
    def on_Tick(self, event, now):
        self.state = "open"
        raise ValueError("a leak\nand more")


def test_whoever_records_a_machine_gets_every_step_also_those_that_raise():
    """Also what no story of 200 lines has: ignored and stale events, what the table refuses, and mistakes."""
    door = Leaky()
    assert door.handle(Close(), T) == []  # before anybody asked
    tape = door.record()
    door.handle(Open(), T)
    door.handle(Tick(), T)
    door.handle(Close(), T)
    with pytest.raises(ValueError, match="a leak"):
        door.handle(Tick(), T)
    with pytest.raises(IllegalEvent):
        door.handle("knock", T)
    assert tape == [
        (T, "shut", Open(), "open", ("opened",)),
        (T, "open", Tick(), "open", ()),
        (T, "open", Close(), "shut", ("shut",)),
        (T, "shut", Tick(), "open", (Raised("ValueError: a leak"),)),
        (
            T,
            "open",
            "knock",
            "open",
            (Raised("IllegalEvent: Leaky in state 'open' cannot take 'knock'; its history:"),),
        ),
    ]
    tape.clear()
    door.handle(Close(), T)
    assert [step[2] for step in tape] == [Close()]


def test_what_a_machine_refuses_is_raised_also_if_nobody_records_it():
    leaky = Leaky()
    with pytest.raises(ValueError, match="a leak"):
        leaky.handle(Tick(), T)


def test_its_examples_are_true():
    assert doctest.testmod(module).failed == 0
