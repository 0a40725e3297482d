"""The walks of `docs/how-it-works.md` name files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| \d+ \| `(?P<file>[\w/.]+)` \| `(?P<name>[\w.]+)` \|", re.MULTILINE)


def functions(path: Path) -> set[str]:
    """`function` and `Class.method` of a file."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


def strayed(text: str) -> list[str]:
    """Steps that lead nowhere."""
    lost: list[str] = []
    for file, name in ROW.findall(text):
        path = ROOT / file
        if not path.is_file():
            lost.append(f"no file {file}")
        elif name not in functions(path):
            lost.append(f"{file} has no {name}")
    return lost


def test_every_step_of_a_walk_leads_somewhere():
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    assert len(ROW.findall(page)) > 50
    assert strayed(page) == []


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("| 1 | `core/machine.py` | `Machine.handle` | decides |", []),
        ("| 1 | `core/machine.py` | `Machine.decide` | decides |", ["core/machine.py has no Machine.decide"]),
        ("| 2 | `core/nowhere.py` | `Machine.handle` | decides |", ["no file core/nowhere.py"]),
    ],
)
def test_a_step_that_leads_nowhere_is_named(row: str, found: list[str]):
    assert strayed(row) == found
