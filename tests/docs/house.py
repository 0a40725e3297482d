"""What the code says about itself, for docs: settings, metrics, verbs of the command line, machines.

Each is found by import and is empty while the code does not have it; docs and code are then compared by the tests, and the
generated parts of docs are written from here.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click

from headgate.agents.cli.group import WithVerbs, main
from headgate.core.machine import Machine

VARIABLE = re.compile(r"HEADGATE_[A-Z0-9_]+")


@dataclass(frozen=True, slots=True)
class Verb:
    """One command of the command line: `("kafka", "up")`, with its click command."""

    path: tuple[str, ...]
    command: click.Command
    context: click.Context

    @property
    def words(self) -> str:
        return " ".join(("headgate", *self.path))


def _module(name: str) -> Any | None:
    """The module, or None if the code does not have it yet; an error inside it is an error."""
    try:
        if importlib.util.find_spec(name) is None:
            return None
    except ModuleNotFoundError:
        return None
    return importlib.import_module(name)


@cache
def verbs() -> list[Verb]:
    """Every command and group below `headgate`, in the order of the tree; the root comes first, with an empty path."""

    def walk(command: click.Command, path: tuple[str, ...], parent: click.Context | None) -> Iterator[Verb]:
        context = click.Context(command, info_name=path[-1] if path else "headgate", parent=parent)
        yield Verb(path, command, context)
        if isinstance(command, click.Group | WithVerbs):
            for name in sorted(command.list_commands(context)):
                child = command.get_command(context, name)
                if child is not None and not child.hidden:
                    yield from walk(child, (*path, name), context)

    return list(walk(main, (), None))


@cache
def settings() -> list[Any]:
    """The table of settings: each has at least `name` and a text that explains it."""
    table = getattr(_module("headgate.core.settings"), "SETTINGS", ())
    return list(table.values()) if isinstance(table, Mapping) else list(table)


@cache
def metrics() -> list[Any]:
    """The table of metrics: each has at least `name` and a text that explains it."""
    table = getattr(_module("headgate.agents.status.metrics"), "METRICS", ())
    return list(table.values()) if isinstance(table, Mapping) else list(table)


@cache
def read_variables() -> dict[str, str]:
    """HEADGATE_ variables that code of the rooms reads by name, besides those of settings and options: where each is read."""
    root = Path(__file__).resolve().parents[2]
    found: dict[str, str] = {}
    for room in ("headgate", "core", "agents", "spark_bridge"):
        for path in sorted((root / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value):
                    found.setdefault(node.value, path.relative_to(root).as_posix())
    return found


def explained(thing: Any) -> str:
    """The text of a setting or metric."""
    for name in ("doc", "help", "description", "why", "text", "means"):
        if isinstance(text := getattr(thing, name, None), str) and text.strip():
            return " ".join(text.split())
    return ""


@cache
def machines() -> list[type[Machine[Any, Any]]]:
    """Every machine of core that has a table."""
    import headgate.core

    for module in pkgutil.walk_packages(headgate.core.__path__, "headgate.core."):
        importlib.import_module(module.name)

    def below(kind: type[Machine[Any, Any]]) -> Iterator[type[Machine[Any, Any]]]:
        for child in kind.__subclasses__():
            if child.__module__.startswith("headgate.core.") and not inspect.isabstract(child):
                yield child
            yield from below(child)

    unique = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in below(Machine) if kind.TABLE}
    return [unique[name] for name in sorted(unique)]
