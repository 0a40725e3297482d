"""Pages and examples use what users may use: no block of a page and no file of examples imports a room of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import ROOT, Page, pages, read

INSIDE = ("CONTRIBUTING.md", "docs/how-it-works.md", "docs/machines/")
"""Pages whose subject is the inside."""
ROOM = re.compile(r"\bheadgate\.(?:core|agents|spark_bridge)\b|\bfrom headgate import _")
COPIED = ("examples", "docker", "agents/cli/templates")
"""Directories of files that users copy."""


def of_rooms(page: Page) -> list[str]:
    """The lines of its blocks that name a room."""
    return [
        f"{page.name}:{block.line + number}: {line.strip()}"
        for block in page.blocks
        for number, line in enumerate(block.text.splitlines(), 1)
        if block.info[:1] != ("text",) and ROOM.search(line)
    ]


def copied() -> list[Path]:
    """The files that users copy."""
    files = [path for place in COPIED for path in (ROOT / place).rglob("*") if path.is_file()]
    return [path for path in files if "__pycache__" not in path.parts]


def test_no_page_uses_what_is_not_public() -> None:
    """Whoever copies it would have to change it with the next version, and would be right to ask why it was shown."""
    assert [line for page in pages() if not page.name.startswith(INSIDE) for line in of_rooms(page)] == []


def test_no_example_uses_what_is_not_public() -> None:
    """The demo started its broker with a class that no user has."""
    assert len(copied()) > 20
    wrong = [path.relative_to(ROOT).as_posix() for path in copied() if ROOM.search(path.read_text(encoding="utf-8"))]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from headgate.agents.broker.registry import running_broker", 1),
        ("python -m headgate.agents.cli status", 1),
        ("from headgate.frames import decode", 0),
        ("import headgate as hg", 0),
    ],
)
def test_a_line_that_names_a_room_is_found(text: str, found: int) -> None:
    assert len(of_rooms(read("x.md", f"```python\n{text}\n```\n"))) == found
