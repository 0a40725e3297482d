"""Writes the generated pages of docs: `make docs`. The tests compare, so that a page that is out of date fails.

Generated whole: `docs/reference/cli.md`, `settings.md`, `metrics.md`, `python.md` with its pages in `docs/reference/api`, `docs/words.md`,
one page for each machine in `docs/machines`, the dashboard in `docs/grafana`, and the plots in `docs/pictures`.
"""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import fields, is_dataclass
from typing import Any

import click

from headgate.agents.cli.group import WithVerbs
from headgate.agents.cli.see.docs import anchor_of
from headgate.core.machine import Machine, diagram
from headgate.core.words import WORDS

from . import api, dashboard, house, plots
from .pages import ROOT

NOTICE = "<!-- Generated from the code by `make docs`; change it there. -->\n"

SETTINGS_PREFACE = """\
Names and values are checked against this table; for an unknown name, the error suggests the nearest known one. If a setting has several
values, the first of these sources wins: flag (`headgate run --set NAME=VALUE`), environment, override (`headgate config set`),
`headgate.toml`, `App(settings=…)`, default. `headgate config get JOB --origin` asks the workers
and shows which one applies; where a flag or a variable of a worker masks an override, `headgate config set` and `diff` name the worker.

- *kind*: `immutable` settings decide where state is stored, and cannot change after the first run; `next-run` settings take effect when
  the next run begins; `dynamic` settings take effect immediately.
- *owner*: `job` settings can be overridden for all workers in the coordinator stream; `worker` settings belong to each worker.
"""

CLI_PREFACE = """\
## Exit codes

| code | meaning | example |
|---|---|---|
| 0 | done | the run of a worker was closed, or the worker was stopped |
| 1 | failed | no broker answers, a request was refused, a worker or a task failed |
| 2 | usage error, nothing was started | an unknown verb or setting, an invalid value, an invalid job declaration |
| 3 | timeout | `drain --wait --timeout 25s`, with a list of what is not done |
| 4 | not found | no such job, no live run, no such table or key, no broker for `headgate kafka status` |
| 130 | ended by a second Ctrl-C | |
| 128 + n | `run --workers N`: a worker was killed by signal n while it was shutting down | 137 after SIGKILL |

A command that exits with 2 will do so again until you correct it, so `headgate run --workers N` does not restart such a worker. Every error
says what is wrong on a line `Error:`, what to do on a line `To do:`, and the command that shows what is written about it on a line
`More:`, all on standard error. `HEADGATE_DEBUG=1` shows the traceback.
"""


def cell(text: object) -> str:
    """A text as one cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|") or " "


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def code(text: object) -> str:
    """In code, or nothing where there is nothing."""
    return f"`{text}`" if str(text) else ""


def paragraphs(text: str) -> str:
    """A docstring as Markdown: dedented, doctests fenced."""
    lines: list[str] = []
    inside = False
    for line in inspect.cleandoc(text).splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```python")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line.rstrip())
    if inside:
        lines.append("```")
    return "\n".join(lines)


def cli() -> str:
    """The command line, verb by verb."""
    out = [NOTICE, "# Command line\n", CLI_PREFACE]
    all_verbs = house.verbs()
    if not all_verbs:
        out.append("The command line has no verbs yet.\n")
    for verb in all_verbs:
        out.append(f"## `{verb.words}`\n")
        out.append(paragraphs(verb.command.help or verb.command.short_help or "") + "\n")
        if isinstance(verb.command, click.Group | WithVerbs):
            rows: list[tuple[object, ...]] = [
                (f"[`{other.words}`](#{anchor_of(other.words)})", other.command.get_short_help_str(120))
                for other in all_verbs
                if other.path[:-1] == verb.path and other.path
            ]
            out.append(table(("verb", "what it does"), rows))
        usage = " ".join(verb.command.collect_usage_pieces(verb.context))
        out.append(f"```text\n{verb.words} {usage}\n```\n")
        records: list[tuple[object, ...]] = []
        for parameter in verb.command.params:
            record = parameter.get_help_record(verb.context)
            if record is not None:
                variable = parameter.envvar if isinstance(parameter.envvar, str) else ""
                records.append((code(record[0]), record[1], code(variable)))
        if records:
            out.append(table(("option", "meaning", "variable"), records))
    return "\n".join(out)


def shown(value: Any) -> str:
    """A value of a table's cell, as a user would write it."""
    if value is None:
        return ""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, bool):
        return "yes" if value else ""
    if hasattr(value, "value") and hasattr(value, "name"):  # an enum's member
        return str(value.value)
    if isinstance(value, tuple | list | frozenset | set):
        return ", ".join(sorted(map(shown, value)) if isinstance(value, frozenset | set) else map(shown, value))
    if callable(value):
        return getattr(value, "__name__", "")
    return str(value)


def described(things: list[Any], first: str) -> str:
    """A table of declared things: its name, its further plain fields, and the text that explains it."""
    texts = {"doc", "help", "description", "why", "text", "means"}
    names = [
        field.name
        for field in (fields(things[0]) if is_dataclass(things[0]) else ())
        if field.name != "name" and field.name not in texts and not field.name.startswith("_")
    ]
    names = [
        name
        for name in names
        if any(shown(getattr(thing, name)) for thing in things) and not callable(getattr(things[0], name))
    ]
    rows: list[tuple[object, ...]] = [
        (code(thing.name), *(code(shown(getattr(thing, name))) for name in names), house.explained(thing))
        for thing in sorted(things, key=lambda thing: thing.name)
    ]
    return table((first, *(name.replace("_", " ") for name in names), "what it does"), rows)


def settings() -> str:
    """The settings."""
    body = described(found, "setting") if (found := house.settings()) else "There are no settings yet.\n"
    return f"{NOTICE}\n# Settings\n\n{SETTINGS_PREFACE}\n{body}"


def metrics() -> str:
    """The metrics."""
    body = described(found, "metric") if (found := house.metrics()) else "There are no metrics yet.\n"
    return f"{NOTICE}\n# Metrics\n\n{body}"


WORDS_PREFACE = """\
Whoever comes from another system tries its words first. Each name below raises an error that says what headgate has in its place, and names
the page: `orders.group_by` is a `hg.DeclarationError` at its line, and also an `AttributeError`, so `hasattr` says no.

Whole programs beside each other: [from Faust](from-faust.md), [from Kafka Streams](from-kafka-streams.md), [from Quix
Streams](from-quix.md), [from Structured Streaming](from-structured-streaming.md).
"""


_CALL = r"\w*\.\w+\((?:[^()]|\([^()]*\))*\)"


def in_code(text: str) -> str:
    """A sentence with its calls set in code.

    >>> in_code(".map(fn) of rows; hg.App(…)")
    '`.map(fn)` of rows; `hg.App(…)`'
    """
    return (
        text
        if "`" in text
        else re.sub(rf"(?<!\w)~?{_CALL}(?:{_CALL})*(?: [*&<>=]+ [\d.]+)?", lambda found: f"`{found[0]}`", text)
    )


def words() -> str:
    """The words that people bring."""
    kinds = dict.fromkeys(word.on for word in WORDS)
    out = [NOTICE, "# Words of other systems\n", WORDS_PREFACE]
    for on in kinds:
        title = " and ".join([", ".join(on[:-1]), on[-1]] if on[:-1] else on)
        rows: list[tuple[object, ...]] = [
            (
                ", ".join(code(name) for name in word.names),
                ", ".join(word.of),
                in_code(word.instead),
                f"[page]({word.page.removeprefix('docs/')})",
            )
            for word in WORDS
            if word.on == on
        ]
        out += [f"## On {title}\n", table(("word", "of", "in headgate", "more"), rows)]
    return "\n".join(out)


def machine_name(kind: type[Machine[Any, Any]]) -> str:
    """The file name of a machine's page: `TaskLife` is `task-life`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def machine(kind: type[Machine[Any, Any]]) -> str:
    """A machine: what it decides, its diagram, its table of rules."""
    groups = {frozenset(states): f"*{name}*" for name, states in kind.GROUPS.items()}
    rows: list[tuple[object, ...]] = [
        (
            groups.get(frozenset(rule.states)) or ", ".join(rule.states),
            ", ".join(event.__name__ for event in rule.events),
            ", ".join(to or "the same" for to in rule.to),
            rule.why,
        )
        for rule in kind.TABLE
        if rule.to
    ]
    drops: list[tuple[object, ...]] = [
        (", ".join(rule.states), ", ".join(event.__name__ for event in rule.events), rule.why)
        for rule in kind.TABLE
        if not rule.to
    ]
    named = "".join(f"*{name}*: {', '.join(states)}. " for name, states in kind.GROUPS.items())
    source = kind.__module__.removeprefix("headgate.").replace(".", "/") + ".py"
    return (
        f"{NOTICE}\n# {kind.__name__}\n\n{paragraphs(kind.__doc__ or '')}\n\nSource: [{source}](../../{source})\n\n"
        f"```mermaid\n{diagram(kind)}```\n\n{named.strip()}\n\n"
        + table(("in state", "event", "leads to", "why"), rows)
        + "\n\nIgnored:\n\n"
        + table(("in state", "event", "why"), drops)
    )


def machine_index(kinds: list[type[Machine[Any, Any]]]) -> str:
    """The list of the machines."""
    rows: list[tuple[object, ...]] = [
        (f"[{kind.__name__}]({machine_name(kind)}.md)", (inspect.cleandoc(kind.__doc__ or "").splitlines() or [""])[0])
        for kind in kinds
    ]
    body = table(("machine", "decides"), rows) if rows else "There are no machines yet.\n"
    return (
        f"{NOTICE}\n# The machines\n\nEvery decision is made by a state machine: a table of states and events, without a"
        " clock or I/O. The diagrams are generated from the tables that run; events that change no state appear only in the"
        f" tables.\n\n{body}"
    )


def generated() -> dict[str, str]:
    """Every generated page: its path and its text."""
    kinds = house.machines()
    pages = {
        "docs/reference/cli.md": cli(),
        "docs/reference/settings.md": settings(),
        "docs/reference/metrics.md": metrics(),
        "docs/words.md": words(),
        "docs/machines/index.md": machine_index(kinds),
        "docs/grafana/dashboard.json": dashboard.text(),
    }
    pages |= api.pages(NOTICE, paragraphs)
    pages |= plots.files()
    return pages | {f"docs/machines/{machine_name(kind)}.md": machine(kind) for kind in kinds}


def main() -> int:
    """Write what differs, remove pages of machines that are gone, and say which."""
    wanted = generated()
    for path in (ROOT / "docs" / "machines").glob("*.md"):
        if path.relative_to(ROOT).as_posix() not in wanted:
            print(f"removed {path.relative_to(ROOT)}")
            path.unlink()
    for name, text in wanted.items():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
