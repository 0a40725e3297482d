"""What is proven is what runs: a public name that only tests use is found, and named.

A rule that production does not call, a field that nobody reads and an event that nobody feeds are faults that have not struck yet. Names
are compared, not what they mean, so a name that two things share can hide one of them; what is found is never wrong. Fields of values
(events, instructions, messages) are told apart where a parameter or a pattern says whose they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from headgate.core.coordination.leader.leader import Leader
from headgate.core.coordination.leader.protocol import LeaderEvent, LeaderInstruction
from headgate.core.coordination.member.member import Member
from headgate.core.coordination.member.protocol import MemberEvent, MemberInstruction
from headgate.core.task.commit import Committer
from headgate.core.task.commit_protocol import CommitEvent, CommitInstruction
from headgate.core.task.protocol import TaskEvent, TaskInstruction
from headgate.core.task.task import Task

ROOT = Path(__file__).resolve().parents[2]
HOUSE = ("core", "agents", "spark_bridge", "headgate", "examples", "bench")
MACHINES = (Leader, Member, Committer, Task)

FOR_OTHERS = {
    "BatchInfo.closed_by": "a function of Spark is told it",
    "LogValue.expires_ms": "a stored value is parsed whole; what expires is found by its head alone",
    "diagram": "docs are drawn with it",
    "Broker.is_running": "asked by whoever holds an embedded broker",
    "Broker.disallow": "asked by whoever holds an embedded broker",
    "WithVerbs.format_epilog": "click calls it",
    "LazyGroup.format_commands": "click calls it",
    "CoroutineService.shortlabel": "mode calls it",
    "Counting.on_web_request_end": "Faust calls it",
}
"""Who else uses a name that the house itself does not."""


@cache
def parsed(room: str) -> list[tuple[Path, ast.Module]]:
    """Every file of a room."""
    found = (path for path in sorted((ROOT / room).rglob("*.py")) if "__pycache__" not in path.parts)
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in found]


def trees(*rooms: str) -> list[tuple[Path, ast.Module]]:
    """Every file of these rooms."""
    return [one for room in rooms for one in parsed(room)]


def read_in(files: list[tuple[Path, ast.Module]]) -> set[str]:
    """Every name that is read somewhere: as a name, an attribute, a word of a text, a class or attribute of a pattern."""
    found: set[str] = set()
    for _, tree in files:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.attr if isinstance(node, ast.Attribute) else node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(node.value.replace(".", " ").replace(":", " ").split())
            elif isinstance(node, ast.MatchClass):
                found.update(node.kwd_attrs)
                if node.patterns:
                    found.add(f"{ast.unparse(node.cls).rpartition('.')[2]}(…)")  # its fields by their places
    return found


def offered(path: Path, tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """(name, line, the word that must be read) of every public name of a file, and of every public method and field of its classes."""
    for node in tree.body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
            continue  # a verb, or whatever its decorator makes of it
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [one.id for one in node.targets if isinstance(one, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        yield from ((name, node.lineno, name) for name in names)
        if not isinstance(node, ast.ClassDef):
            continue
        for part in node.body:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{node.name}.{part.name}", part.lineno, part.name
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                yield f"{node.name}.{part.target.id}", part.lineno, part.target.id


def unused(files: list[tuple[Path, ast.Module]], read: set[str]) -> list[str]:
    """Public names that nobody reads, as `path:line: name`."""
    found: list[str] = []
    for path, tree in files:
        for name, line, word in offered(path, tree):
            owner = name.partition(".")[0]
            if word.startswith("_") or word in read or f"{owner}(…)" in read or name in FOR_OTHERS:
                continue
            if word.startswith("on_") and word[3:] in HANDLED:
                continue
            where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            found.append(f"{where}:{line}: {name} is used by tests at most")
    return found


@cache
def made() -> set[str]:
    """Whatever is called by its name."""
    calls = (node for _, tree in trees("agents", "core") for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {ast.unparse(call.func).rpartition(".")[2] for call in calls}


@cache
def named() -> set[str]:
    """Whatever the edges know by its name."""
    nodes = (node for _, tree in trees("agents") for node in ast.walk(tree))
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in nodes
        if isinstance(node, ast.Attribute | ast.Name)
    }


HANDLED = {rule.event.__name__ for machine in MACHINES for rule in machine.TABLE}


def test_every_public_name_is_used_by_the_house_itself() -> None:
    """What only tests call is proven in vain: production may do something else."""
    front = read_in(trees("headgate"))
    found = unused(trees("core", "agents", "spark_bridge"), read_in(trees(*HOUSE)) | front)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_a_name_that_nobody_reads_is_named() -> None:
    """A function, a method and a field that only its own definition knows."""
    text = "LIMIT = 1\ndef rule(): ...\nclass Box:\n    size: int = LIMIT\n    def open(self): ...\n    def _own(self): ..."
    tree = ast.parse(text)
    found = unused([(Path("x.py"), tree)], read_in([(Path("x.py"), tree)]))
    assert [one.partition(": ")[2].partition(" ")[0] for one in found] == ["rule", "Box", "Box.size", "Box.open"]


def values(files: list[tuple[Path, ast.Module]]) -> dict[str, list[str]]:
    """The fields of each dataclass and named tuple, in their order."""
    found: dict[str, list[str]] = {}
    for _, tree in files:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(
                word in ast.unparse(one)
                for one in (*node.decorator_list, *node.bases)
                for word in ("dataclass", "NamedTuple")
            ):
                found[node.name] = [
                    part.target.id
                    for part in node.body
                    if isinstance(part, ast.AnnAssign)
                    and isinstance(part.target, ast.Name)
                    and "ClassVar" not in ast.unparse(part.annotation)
                ]
    return found


class FieldsRead(ast.NodeVisitor):
    """Fields that are read: `Class.field` where a parameter or a pattern says of which class, else `.field`, of any."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        self.fields = fields
        self.found: set[str] = set()
        self._owner: list[str] = []
        self._known: list[dict[str, set[str]]] = [{}]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._owner.append(node.name)
        self.generic_visit(node)
        self._owner.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        known = dict(self._known[-1])
        for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            words = set() if one.annotation is None else words_of(one.annotation)
            if one.arg == "self" and self._owner:
                words = {self._owner[-1]}
            known.pop(one.arg, None)
            if words and words <= self.fields.keys():
                known[one.arg] = words
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                known.pop(inner.id, None)
        self._known.append(known)
        self.generic_visit(node)
        self._known.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            name = node.value.id if isinstance(node.value, ast.Name) else ""
            self.found.update(f"{owner}.{node.attr}" for owner in self._known[-1].get(name, {""}))
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        owner = ast.unparse(node.cls).rpartition(".")[2]
        for field, pattern in zip(self.fields.get(owner, ()), node.patterns, strict=False):
            if not (isinstance(pattern, ast.MatchAs) and pattern.name is None):
                self.found.add(f"{owner}.{field}")
        self.found.update(f"{owner}.{field}" for field in node.kwd_attrs)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func) == "getattr" and isinstance(node.args[1], ast.Constant):
            self.found.add(f".{node.args[1].value}")
        self.generic_visit(node)


def words_of(annotation: ast.expr) -> set[str]:
    """The names in an annotation, without what they are looked up in.

    >>> sorted(words_of(ast.parse("t.Restored | None", mode="eval").body))
    ['Restored']
    """
    found = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    for node in ast.walk(annotation):
        if isinstance(node, ast.Attribute):
            found = (found - {ast.unparse(node.value)}) | {node.attr}
    return found


def unread(fields: dict[str, list[str]], files: list[tuple[Path, ast.Module]]) -> list[str]:
    """Fields that nobody reads."""
    seen = FieldsRead(fields)
    for _, tree in files:
        seen.visit(tree)
    return [
        f"{owner}.{field}"
        for owner, names in fields.items()
        for field in names
        if not {f"{owner}.{field}", f".{field}"} & seen.found and f"{owner}.{field}" not in FOR_OTHERS
    ]


def test_every_field_of_a_value_is_read() -> None:
    """What is filled in and never looked at is a rule that somebody believes in, and nobody keeps."""
    found = unread(values(trees("core")), trees("core", "agents", "spark_bridge", "headgate"))
    if found:
        pytest.fail("\n".join(f"{one} is filled in, and read by nobody" for one in found), pytrace=False)


def test_a_field_that_shares_its_name_with_another_that_is_read_is_named() -> None:
    """Each pattern and each parameter says whose it is."""
    text = """
@dataclass
class Asked:
    task: str
    why: str
@dataclass
class Told:
    task: str
    why: str
    at: int
def told(one: Told): return one.why
def asked(one: Asked | None): return one.task
def any(one):
    match one:
        case Told(_, _, at): return at
"""
    files = [(Path("x.py"), ast.parse(text))]
    assert unread(values(files), files) == ["Asked.why", "Told.task"]


@pytest.mark.parametrize(
    "kind",
    [*get_args(TaskEvent), *get_args(CommitEvent), *get_args(LeaderEvent), *get_args(MemberEvent)],
    ids=lambda k: k.__name__,
)
def test_every_event_is_fed_by_production(kind: type) -> None:
    """An event that only tests make is a rule that never runs. Machines make orders and reports for one another."""
    assert kind.__name__ in made()


@pytest.mark.parametrize(
    "kind",
    [
        *get_args(TaskInstruction),
        *get_args(CommitInstruction),
        *get_args(LeaderInstruction),
        *get_args(MemberInstruction),
    ],
    ids=lambda k: k.__name__,
)
def test_every_instruction_is_carried_out_by_production(kind: type) -> None:
    """An instruction that nobody knows by its name is one that nobody carries out."""
    assert kind.__name__ in named()
