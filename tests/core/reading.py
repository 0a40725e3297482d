"""The code as trees: what the checks of the build ask of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOUSE = ("core", "agents", "spark_bridge", "headgate", "examples", "bench")


@cache
def tree_of(text: str) -> ast.Module:
    """A file as a tree: parsed once, however many checks ask."""
    return ast.parse(text)


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement, however deep. Expressions, which are most of a tree, are not looked into."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, field, ()):
            if isinstance(node, ast.stmt):
                yield node
            yield from statements(node)


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`; nothing of what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@cache
def parsed(room: str) -> list[tuple[Path, ast.Module]]:
    """Every file of a room."""
    found = (path for path in sorted((ROOT / room).rglob("*.py")) if "__pycache__" not in path.parts)
    return [(path, tree_of(path.read_text(encoding="utf-8"))) for path in found]


def trees(*rooms: str) -> list[tuple[Path, ast.Module]]:
    """Every file of these rooms."""
    return [one for room in rooms for one in parsed(room)]


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
        owner = last_name(node.cls)
        for field, pattern in zip(self.fields.get(owner, ()), node.patterns, strict=False):
            if not (isinstance(pattern, ast.MatchAs) and pattern.name is None):
                self.found.add(f"{owner}.{field}")
        self.found.update(f"{owner}.{field}" for field in node.kwd_attrs)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Call):
            self.found.add(f"{last_name(node.value.func)}(…)")  # what it returns is taken apart
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if last_name(node.func) == "getattr" and isinstance(node.args[1], ast.Constant):
            self.found.add(f".{node.args[1].value}")
        self.generic_visit(node)


def fields_read(fields: dict[str, list[str]], tree: ast.Module) -> set[str]:
    """The fields that a file reads, as `FieldsRead` names them."""
    seen = FieldsRead(fields)
    seen.visit(tree)
    return seen.found


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


class Near(ast.NodeVisitor):
    """How code comes by an object of a class: it names the class, one that keeps such objects or is derived from it, or what returns one.

    An attribute of something whose type is not written down could be anybody's. It is taken for one of a class only where the file can
    have such an object at all: else each name that is read somewhere hides all others like it.
    """

    STEPS = 3
    """From class to class: somebody reads `machine.inputs.progress.ended`, and names the machine."""

    def __init__(self, files: list[tuple[Path, ast.Module]]) -> None:
        self._next: dict[str, set[str]] = {}
        self._owner: list[str] = []
        self._nodes = [node for _, tree in files for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        self._classes = {node.name for node in self._nodes}
        for _, tree in files:
            self.visit(tree)
        self._named = {path: set(named_in(tree)) for path, tree in files}

    def files(self, owner: str) -> set[Path]:
        """The files that can have an object of this class."""
        known = {owner}
        for _ in range(self.STEPS):
            known |= {word for one in known for word in self._next.get(one, ())}
        return {path for path, named in self._named.items() if named & known}

    def derived(self, base: str) -> dict[str, set[str]]:
        """The classes that name this base, with their methods."""
        return {
            node.name: {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            for node in self._nodes
            if any(base in words_of(one) for one in node.bases)
        }

    def ways(self, owner: str) -> set[str]:
        """What keeps or returns an object of this class itself."""
        return self._next.get(owner, set())

    def _leads(self, words: set[str], to: str) -> None:
        for word in words & self._classes:
            self._next.setdefault(word, set()).add(to)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            self._leads(words_of(base), node.name)
            self._next.setdefault(node.name, set()).update(words_of(base) & self._classes)
        self._owner.append(node.name)
        self.generic_visit(node)
        self._owner.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.returns is not None:
            self._leads(words_of(node.returns), node.name)
        for one in (*node.args.args, *node.args.kwonlyargs):
            if node.name == "__init__" and one.annotation is not None:
                self._leads(words_of(one.annotation), self._owner[-1])
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if self._owner:
            self._leads(words_of(node.annotation), self._owner[-1])
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._owner and isinstance(node.value, ast.Call):
            self._leads(words_of(node.value.func), self._owner[-1])
        self.generic_visit(node)


def named_in(tree: ast.Module) -> Iterator[str]:
    """Every name that a file mentions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ClassDef | ast.alias):
            yield node.name
