"""The output of verbs: a table for people, JSON for programs.

Promises: `-o json` prints exactly one JSON document on standard output and nothing else there; remarks go to standard error. Nothing that
may hold data steers a terminal: it is printed by `show_text`, `show_fields`, `show_table` or as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from ..printable import printable

F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    """Add `-o table|json`; the function gets `output`, a string."""
    choice = click.Choice(["table", "json"])
    return click.option(
        "-o", "--output", type=choice, default="table", show_default=True, help="Format of the output."
    )(command)


def said_left_out(what: str) -> None:
    """Say that records are not shown."""
    click.echo(f"Note: not shown: {what}", err=True)


def show_json(document: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2, default=str))


def shown_as_json(output: str, document: Any) -> bool:
    """Print the document if a program is to read it. Returns whether that is so."""
    if output == "json":
        show_json(document)
    return output == "json"


def as_typed(key: Any) -> str:
    """A key as a command takes it: text as it is, anything else as JSON."""
    return key if isinstance(key, str) else quoted(key)


def quoted(key: Any) -> str:
    """A key as JSON, so that the text "7" and the number 7 differ."""
    return json.dumps(key, default=str, ensure_ascii=False)


def plain(cell: object) -> str:
    """A text as a terminal may get it, in one line: what would steer the terminal is shown instead.

    >>> plain("a\\x1b[2Jb"), plain("x\\ny")
    ('a\\\\x1b[2Jb', 'x y')
    """
    return printable(" ".join(str(cell).splitlines()))


def show_text(text: object, *, err: bool = False) -> None:
    """Print a text that may hold data, with its lines.

    >>> show_text("Traceback:\\n  ValueError: a\\x1b[2Jb")
    Traceback:
      ValueError: a\\x1b[2Jb
    """
    click.echo("\n".join(map(plain, str(text).split("\n"))), err=err)


def json_line(document: Any) -> str:
    """A JSON document in one line, whose letters are readable and whose other characters are escaped.

    >>> print(json_line({"k": "\\u00fc\\x7f\\x9b2J\\x1b"}))
    {"k": "ü\\u007f\\u009b2J\\u001b"}
    """
    text = json.dumps(document, default=str, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" if c <= "\x7f" else json.dumps(c)[1:-1] for c in text)


def show_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print the fields of one thing, one name and value on each line."""
    pairs = [(name, plain(value)) for name, value in fields]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        click.echo(f"{name:<{width}}  {value}")


def show_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, none: str = "") -> None:
    """Print many things of one kind in aligned columns, a line for each, without colours or frames, so that other tools can process them.
    `none`: what to print if there are no rows, instead of headers alone.
    """
    lines = [list(headers), *([plain(cell) for cell in row] for row in rows)]
    if none and len(lines) == 1:
        click.echo(none)
        return
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e6:.1f} MB" if size < 1e9 else f"{size / 1e9:.2f} GB"


def age(seconds: float) -> str:
    """A duration for people.

    >>> age(59), age(90 * 60), age(400 * 86_400)
    ('59s', '1.5h', '400.0d')
    """
    if seconds < 60:
        return f"{seconds:.0f}s"
    if seconds < 3600:
        return f"{seconds / 60:.0f}m"
    return f"{seconds / 3600:.1f}h" if seconds < 86_400 else f"{seconds / 86_400:.1f}d"
