"""Nothing is said to nobody: each kind of event, instruction and message is told apart by somebody, and each answer is looked at.

A value that a rule returns, and of whose kind nobody asks, is a decision that nothing follows from. It is found where the kinds that
belong together are declared (`Event = A | B`): each of them must be looked for outside of the file that makes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .reading import HOUSE, last_name, trees, values, words_of

pytestmark = pytest.mark.source
Files = list[tuple[Path, ast.Module]]

LEFT_OVER = {"Sources": "whose producers are neither the job's own nor another job's"}
"""Kinds that are meant where it is none of the others."""


def kinds(files: Files) -> dict[str, str]:
    """Each kind of value that is declared to be one of several, and the name of the declaration."""
    known = values(files)
    return {
        word: target.id
        for _, tree in files
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp)
        for target in node.targets
        if isinstance(target, ast.Name)
        for word in words_of(node.value) & known.keys()
    }


def looked_for(tree: ast.Module) -> Iterator[str]:
    """The kinds that a file tells from others: by a pattern, a question, a table of what is done, or what is done itself."""
    for node in ast.walk(tree):
        match node:
            case ast.MatchClass(cls):
                yield from words_of(cls)
            case ast.Call(ast.Name("isinstance" | "issubclass"), [_, kind]):
                yield from words_of(kind)
            case ast.Compare(ast.Call(ast.Name("type"))):
                for one in node.comparators:
                    yield from words_of(one)
            case ast.Dict():
                for key in node.keys:
                    yield from () if key is None else words_of(key)
            case ast.arg(annotation=ast.expr() as annotation) if len(words_of(annotation)) == 1:
                yield from words_of(annotation)


def made_in(tree: ast.Module) -> set[str]:
    """What is called in a file, by its name."""
    return {last_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def unheard(rooms: Files, files: Files) -> list[str]:
    """Kinds that are made, and that no other file looks for."""
    makers, seekers = (
        {path: made_in(tree) for path, tree in files},
        {path: set(looked_for(tree)) for path, tree in files},
    )
    found: list[str] = []
    for word, union in sorted(kinds(rooms).items()):
        makes = {path for path, words in makers.items() if word in words}
        seeks = {path for path, words in seekers.items() if word in words}
        if makes and not any(seeker != maker for seeker in seeks for maker in makes) and word not in LEFT_OVER:
            found.append(f"{word}, of {union}: nobody looks for one, outside of the file that makes it")
    return found


def unanswered(rooms: Files, files: Files) -> list[str]:
    """Functions that return something, and that everybody calls for nothing."""
    dropped: set[str] = set()
    taken: set[str] = set()
    for _, tree in files:
        alone = {
            node.value.func
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
                (dropped if node in alone else taken).add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return [
        f"{path}:{node.lineno}: {node.name} returns {ast.unparse(node.returns)}, and nobody looks at it"
        for path, tree in rooms
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.returns is not None and node.name in dropped - taken
        if ast.unparse(node.returns) not in ("None", "NoReturn")
    ]


def test_every_kind_of_value_is_looked_for() -> None:
    found = unheard(trees("core"), trees(*HOUSE))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_whatever_a_rule_returns_is_looked_at() -> None:
    found = unanswered(trees("core"), trees(*HOUSE))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


RULES = """
@dataclass
class Reached:
    ts: int
@dataclass
class Over:
    ts: int
@dataclass
class Ahead:
    epoch: int
Event = Reached | Over | Ahead
class Progress:
    def take(self, frame) -> list[Event]: return [Reached(1), Over(2), Ahead(3)]
    def observe(self, ts) -> list[Event]: return [event for event in self.take(ts) if isinstance(event, Over)]
    def end(self) -> None: ...
"""
EDGE = """
def heard(progress, frame):
    progress.observe(1)
    progress.end()
    return isinstance(progress.take(frame), Ahead)
"""


def test_a_kind_and_an_answer_that_no_one_wants_are_named() -> None:
    """What only its maker looks for is looked for by nobody."""
    rules, edge = (Path("rules.py"), ast.parse(RULES)), (Path("edge.py"), ast.parse(EDGE))
    assert [one.partition(",")[0] for one in unheard([rules], [rules, edge])] == ["Over", "Reached"]
    assert unanswered([rules], [rules, edge]) == ["rules.py:14: observe returns list[Event], and nobody looks at it"]


@pytest.mark.parametrize(
    "edge",
    [
        "match event:\n    case t.Reached() | Over(): ...",
        "isinstance(event, Reached | Over)",
        "type(event) in (t.Reached, Over)",
        "WAYS = {Reached: reached, t.Over: over}",
        "def on(event: Reached): ...\ndef off(event: t.Over): ...",
    ],
)
def test_whoever_looks_for_a_kind_is_seen(edge: str) -> None:
    rules = Path("rules.py"), ast.parse(RULES)
    assert [one.partition(",")[0] for one in unheard([rules], [rules, (Path("edge.py"), ast.parse(edge))])] == ["Ahead"]
