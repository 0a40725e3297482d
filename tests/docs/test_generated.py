"""The generated pages are what the code says today."""

from __future__ import annotations

import pytest

from . import house
from .pages import ROOT
from .regenerate import generated

GENERATED = generated()


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    """Somebody changed a rule, a setting or a verb and forgot `make docs`: the page that differs is named."""
    path = ROOT / name
    now = path.read_text(encoding="utf-8") if path.exists() else ""
    assert now == GENERATED[name], f"{name} is out of date: run `make docs`"


def test_no_page_describes_a_machine_that_is_gone() -> None:
    """A machine that was renamed takes its page with it."""
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "machines").glob("*.md")}
    assert sorted(there - set(GENERATED)) == []


def test_every_setting_metric_and_verb_is_explained() -> None:
    """A thing that a user can set, read or type says what it is for."""
    silent = [thing.name for thing in [*house.settings(), *house.metrics()] if not house.explained(thing)]
    silent += [verb.words for verb in house.verbs() if not (verb.command.help or verb.command.short_help)]
    for verb in house.verbs():
        for parameter in verb.command.params:
            record = parameter.get_help_record(verb.context)
            if record is not None and not record[1].strip():
                silent.append(f"{verb.words} {record[0]}")
    assert silent == []


def test_every_machine_and_rule_is_explained() -> None:
    """A machine says what it decides, and each row of its table why."""
    silent = [kind.__qualname__ for kind in house.machines() if not kind.__doc__]
    silent += [
        f"{kind.__qualname__}: {rule.state} + {rule.event.__name__}"
        for kind in house.machines()
        for rule in kind.TABLE
        if not rule.why.strip()
    ]
    assert silent == []
