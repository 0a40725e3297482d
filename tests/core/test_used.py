"""What is proven is what runs: a public name that only tests use is found, and named.

A rule that production does not call, a field that nobody reads and an event that nobody feeds are faults that have not struck yet. Names
are compared, not what they mean, so a name that two things share can hide one of them; what is found is never wrong. Fields and methods
are told apart where a parameter or a pattern says whose they are, and by what a file can have at all (`reading.Near`).
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
from headgate.core.task.committer.commit import Committer
from headgate.core.task.committer.commit_protocol import CommitEvent, CommitInstruction
from headgate.core.task.protocol import TaskEvent, TaskInstruction
from headgate.core.task.task import Task

from .reading import HOUSE, ROOT, Near, fields_read, last_name, trees, values

pytestmark = pytest.mark.source
MACHINES = (Leader, Member, Committer, Task)

FOR_OTHERS = {
    "BatchInfo.closed_by": "a function of Spark is told it",
    "BatchInfo.attempt": "a function of Spark is told it",
    "BatchInfo.window_start": "a function of Spark is told it",
    "BatchInfo.window_end": "a function of Spark is told it",
    "SinkBatch.id": "a sink of the user's own is told it",
    "SinkBatch.closed_by": "a sink of the user's own is told it",
    "Merged.addInPlace": "Spark calls it",
    "_Processor.on_end": "OpenTelemetry calls it",
    "PlainRecord.timestamp_type": "aiokafka's consumers ask for it",
    "Protocol.get_buffer": "asyncio calls it",
    "Protocol.buffer_updated": "asyncio calls it",
    "QuickConnection.get_buffer": "asyncio calls it",
    "QuickConnection.buffer_updated": "asyncio calls it",
    "QuickConnection.pause_writing": "asyncio calls it",
    "QuickConnection.resume_writing": "asyncio calls it",
    "QuickConnection.eof_received": "asyncio calls it",
    "QuickConnection.connection_lost": "asyncio calls it",
    "Driver.recreate": "users' tests call it",
    "Stream.as_events": "jobs call it",
    "Stream.peek": "jobs call it",
    "Stream.branch": "jobs call it",
    "ColumnStream.branch": "jobs call it",
    "ColumnStream.with_columns": "jobs call it",
    "Expression.is_null": "jobs call it",
    "Expression.is_in": "jobs call it",
    "Expression.starts_with": "jobs call it",
    "Expression.contains": "jobs call it",
    "Setting.doc": "docs are made of it",
    "Input.arguments": "a fingerprint is made of every field, without their names",
    "LogKey.key": "a stored key is parsed whole; a replay cuts many keys of one table at once",
    "diagram": "docs are drawn with it",
    "Broker.is_running": "asked by whoever holds an embedded broker",
    "Broker.disallow": "asked by whoever holds an embedded broker",
    "WithVerbs.format_epilog": "click calls it",
    "LazyGroup.format_commands": "click calls it",
    "CoroutineService.shortlabel": "mode calls it",
    "Counting.on_web_request_end": "Faust calls it",
}
"""Who else uses a name that the house itself does not."""


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
                    found.add(f"{last_name(node.cls)}(…)")  # its fields by their places
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
    return {last_name(call.func) for call in calls}


@cache
def named() -> set[str]:
    """Whatever the edges know by its name."""
    nodes = (node for _, tree in trees("agents") for node in ast.walk(tree))
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in nodes
        if isinstance(node, ast.Attribute | ast.Name)
    }


HANDLED = {event.__name__ for machine in MACHINES for rule in machine.TABLE if rule.to for event in rule.events}
NAMED = {f"{machine.__name__}.{rule.method}" for machine in MACHINES for rule in machine.TABLE}


def test_every_public_name_is_used_by_the_house_itself() -> None:
    """What only tests call is proven in vain: production may do something else."""
    front = read_in(trees("headgate"))
    found = unused(trees("core", "agents", "spark_bridge"), read_in(trees(*HOUSE)) | front)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_a_name_that_no_one_reads_is_named() -> None:
    """A function, a method and a field that only its own definition knows."""
    text = "LIMIT = 1\ndef rule(): ...\nclass Box:\n    size: int = LIMIT\n    def open(self): ...\n    def _own(self): ..."
    tree = ast.parse(text)
    found = unused([(Path("x.py"), tree)], read_in([(Path("x.py"), tree)]))
    assert [one.partition(": ")[2].partition(" ")[0] for one in found] == ["rule", "Box", "Box.size", "Box.open"]


def unread(fields: dict[str, list[str]], files: list[tuple[Path, ast.Module]]) -> list[str]:
    """Fields that nobody reads."""
    near, seen = Near(files), {path: fields_read(fields, tree) for path, tree in files}
    return [
        f"{owner}.{field}"
        for owner, names in fields.items()
        for field in names
        if f"{owner}.{field}" not in FOR_OTHERS
        and not any({f"{owner}.{field}", *(f"{one}(…)" for one in near.ways(owner))} & found for found in seen.values())
        and not any(f".{field}" in seen[path] for path in near.files(owner))
    ]


def uncalled(rooms: list[tuple[Path, ast.Module]], files: list[tuple[Path, ast.Module]]) -> list[str]:
    """Public methods that no file reads that can have an object of their class."""
    near, fields = Near(files), values(rooms)
    read = {path: {one.partition(".")[2] for one in fields_read(fields, tree)} for path, tree in files}
    interfaces = near.derived("Protocol")
    found: list[str] = []
    for path, tree in rooms:
        for name, line, word in offered(path, tree):
            owner, dot, _ = name.partition(".")
            if (
                not dot
                or word.startswith(("_", "on_"))
                or name in NAMED
                or word in fields.get(owner, ())
                or name in FOR_OTHERS
            ):
                continue
            fits = [
                owner,
                *(one for one, methods in interfaces.items() if word in methods),
            ]  # it is called through any of these
            if not any(word in read[one] for kind in fits for one in near.files(kind)):
                found.append(f"{path}:{line}: {name} is asked for by tests at most")
    return found


def test_every_field_of_a_value_is_read() -> None:
    """What is filled in and never looked at is a rule that somebody believes in, and nobody keeps."""
    found = unread(values(trees("core")), trees("core", "agents", "spark_bridge", "headgate"))
    if found:
        pytest.fail("\n".join(f"{one} is filled in, and read by nobody" for one in found), pytrace=False)


def test_every_method_of_core_is_called_by_whoever_can_have_such_an_object() -> None:
    """A method whose name is read, of something else, is one that nobody calls."""
    found = uncalled(trees("core"), trees(*HOUSE))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_what_is_read_of_something_else_does_not_count() -> None:
    """Two files: in one the class, in the other somebody who has no such object and reads an attribute of the same name."""
    own = "@dataclass\nclass Done:\n    outputs: bool\n    def repeat(self): ...\nclass Keeps:\n    def __init__(self, last: Done): ..."
    files = [(Path("own.py"), ast.parse(own)), (Path("other.py"), ast.parse("plan.outputs, plan.repeat"))]
    assert unread(values(files), files) == ["Done.outputs"]
    assert uncalled(files[:1], files) == ["own.py:4: Done.repeat is asked for by tests at most"]
    files[1] = (Path("other.py"), ast.parse("def show(one: Keeps): return one.last.outputs, one.last.repeat"))
    assert unread(values(files), files) == uncalled(files[:1], files) == []


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
