"""What troubleshooting promises: each message that it quotes is said by the code, and each class of errors leads to a section."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

from headgate.agents.cli.sections import CLASSES, GAP, MESSAGES, section_of
from headgate.core.errors import EnvironmentFault, HeadgateError, SettingError, UnknownName

from .pages import ROOT

HERE = "docs/troubleshooting.md"
PAGE = (ROOT / HERE).read_text(encoding="utf-8")
ROOMS = ("core", "agents", "spark_bridge")
SHORTEST = 6
"""Shorter pieces between two gaps are found anywhere, so they prove nothing."""


def section(title: str, page: str = PAGE) -> str:
    """The text of one section."""
    return page.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each row of its tables, heads left out."""
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith(("| message |", "| class |")):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def said() -> list[str]:
    """Every text of the code, with a gap for each value in it."""
    found: list[str] = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    parts = [one.value if isinstance(one, ast.Constant) else GAP for one in node.values]
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


def unsaid(page: str) -> list[str]:
    """Messages of the page that no text of the code can become."""
    texts = said()
    wrong: list[str] = []
    for cells in rows(section("By message", page)):
        for message in re.findall(r"`([^`]+)`", cells[0]):
            pieces = [piece.strip() for piece in message.split(GAP)]
            pieces = [piece for piece in pieces if len(piece) >= SHORTEST]
            pattern = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL)
            if pieces and not any(pattern.search(text) for text in texts):
                wrong.append(message)
    return wrong


def kinds() -> set[type[HeadgateError]]:
    """Every class of errors that headgate raises on purpose."""
    for room in ROOMS:
        package = importlib.import_module(f"headgate.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"headgate.{room}."):
            if not module.name.endswith(("__main__", "._columns")):
                importlib.import_module(module.name)

    def below(kind: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
        for child in kind.__subclasses__():
            if child.__module__.startswith("headgate."):
                yield child
                yield from below(child)

    return set(below(HeadgateError))


def test_every_quoted_message_is_said_by_the_code() -> None:
    """Somebody rewrote a message: whoever searches for it finds no section."""
    assert len(list(rows(section("By message")))) > 40
    assert unsaid(PAGE) == []


def test_every_class_of_errors_leads_to_a_section() -> None:
    """A class stands in the table, or one that it derives from does. A class that is gone leaves the table."""
    told = {name for cells in rows(section("By class of error")) for name in re.findall(r"`(\w+)`", cells[0])}
    known = kinds()
    lost = [kind.__name__ for kind in known if told.isdisjoint(one.__name__ for one in kind.__mro__ if one in known)]
    assert sorted(lost) == []
    assert sorted(told - {kind.__name__ for kind in known}) == []


def test_commands_lead_to_the_same_sections() -> None:
    """A line `More:` that says another section than the page does would be worse than none."""
    messages: dict[str, str] = {}
    for cells in rows(section("By message")):
        names = re.findall(r"`([^`]+)`", cells[0])
        (place,) = places(cells[-1])
        messages |= dict.fromkeys(names if " or " in cells[0] else [GAP.join(names)], place)
    assert messages == MESSAGES
    classes: dict[str, str] = {}
    for cells in rows(section("By class of error")):
        found = places(cells[-1])
        if found:
            several = f"{HERE}#by-message"
            classes |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), found[0] if len(found) == 1 else several)
    assert classes == CLASSES


def places(cell: str) -> list[str]:
    """The links of a cell, from the top of the repository."""
    return [f"{HERE}{link}" if link.startswith("#") else f"docs/{link}" for link in re.findall(r"\]\(([^)]+)\)", cell)]


def test_the_section_of_an_error_is_that_of_its_message_or_of_its_class() -> None:
    """The message is nearer; a class is always there; who names a page needs no other."""
    assert section_of(EnvironmentFault("no broker at x:1 for 10 s")) == f"{HERE}#no-broker-answers"
    assert section_of(EnvironmentFault("port 9092 is taken")) == f"{HERE}#by-message"
    assert section_of(SettingError("no setting 'x'")) == "docs/reference/settings.md"
    assert section_of(UnknownName("no 'suppress'", remedy="nothing (docs/windows.md)")) == ""


def test_every_row_leads_somewhere_and_every_section_is_led_to() -> None:
    """The tables at both ends of the page are its index."""
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    tables = [*rows(section("By message")), *rows(section("By class of error"))]
    assert [cells for cells in tables if not re.search(r"\]\([^)]+\)|log$", cells[-1])] == []
    linked = set(re.findall(r"\(#([\w-]+)\)", PAGE))
    anchors = {title.lower().replace(" ", "-").replace(",", "") for title in titles}
    outside = {"one-failure-from-the-first-look-to-going-on", "by-message", "by-class-of-error"}
    by_symptom = {"lag-grows", "nothing-is-written", "a-drain-does-not-end"}
    assert sorted(anchors - linked - outside - by_symptom) == []


@pytest.mark.parametrize("title", re.findall(r"^## (.+)$", PAGE, re.MULTILINE)[2:-1])
def test_every_section_says_what_one_sees_and_what_helps(title: str) -> None:
    """Who is woken at night finds the same order everywhere, and a command, a setting or another page."""
    text = section(title)
    assert "**You see**" in text or text.lstrip().startswith("| what |")
    assert re.search(r"`headgate |\]\(|`[a-z]+\.[a-z-]+|NTP", text)


def test_a_message_that_no_one_says_is_named() -> None:
    """The check is tried on a page that is wrong."""
    page = "\n## By message\n\n| message | section |\n|---|---|\n| `accepts no write` | x |\n| `the gate … is on fire` | x |\n"
    assert unsaid(page) == ["the gate … is on fire"]
