"""Docs name only what is there: verbs, options, settings, variables, metrics, make targets, names of the package.

Pages about plans are excepted (`docs/planned.md`), and say so in their first lines. The other way round (everything that is
there stands in docs) is what the generated reference pages are for.
"""

from __future__ import annotations

import re

import pytest

import headgate
from headgate.agents.cli.group import WithVerbs
from headgate.core.settings import OF_SPARK, of_spark

from . import house
from .pages import PLANNED, ROOT, Page, pages, read

FILES = re.compile(r"\.(md|py|toml|cfg|json|yaml|yml|jar|log|pid|sh|typed|txt|svg|whl)$")
VERB = re.compile(r"(?<![\w/.-])headgate((?: +[\w<][\w:./<>|-]*)*)((?: +[^;&|#]+)?)")
MIXED = {verb.path for verb in house.verbs() if isinstance(verb.command, WithVerbs)}
"""What takes verbs, and arguments of its own."""


def verb_names() -> dict[tuple[str, ...], set[str]]:
    """Every verb with its long options."""
    return {
        verb.path: {"--help", *(name for p in verb.command.params for name in [*p.opts, *p.secondary_opts])}
        for verb in house.verbs()
    }


def unknown_verbs(page: Page, verbs: dict[tuple[str, ...], set[str]]) -> list[str]:
    """Commands in code whose verb or option the command line does not have."""
    found: list[str] = []
    for line, text in page.codes():
        for match in VERB.finditer(text):
            words = match[1].split()
            path: tuple[str, ...] = ()
            while words and (*path, words[0]) in verbs:
                path = (*path, words.pop(0))
            if words and not path:
                found.append(f"{page.name}:{line}: headgate has no verb '{words[0]}'")
                continue
            is_group = path not in MIXED and any(other[:-1] == path for other in verbs if len(other) == len(path) + 1)
            if words and is_group and not all(set(word) & set("|<") for word in words[:1]):
                found.append(f"{page.name}:{line}: 'headgate {' '.join(path)}' has no verb '{words[0]}'")
            for option in re.findall(r"(?<!\S)\[?(--[a-z][a-z-]*)", match[2]):
                if option not in verbs.get(path, {"--help"}):
                    found.append(f"{page.name}:{line}: 'headgate {' '.join(path)}' has no option {option}")
    return found


def variable(setting: object) -> str:
    """The environment variable of a setting."""
    for name in ("env", "variable", "envvar"):
        if isinstance(value := getattr(setting, name, None), str) and value:
            return value
    return "HEADGATE_" + re.sub(r"[.-]", "_", str(getattr(setting, "name", ""))).upper()


def variables() -> set[str]:
    """Every HEADGATE_ variable that something reads."""
    found = {variable(setting) for setting in house.settings()} | set(house.read_variables())
    for verb in house.verbs():
        for parameter in verb.command.params:
            names = parameter.envvar
            found.update([names] if isinstance(names, str) else names or [])
    return found


def test_every_variable_that_is_read_is_explained() -> None:
    """A variable that only the source knows is a trap."""
    told = set(re.findall(r"HEADGATE_[A-Z0-9_]+", (ROOT / "docs/reference/variables.md").read_text(encoding="utf-8")))
    settings = {variable(setting) for setting in house.settings()}
    assert sorted(set(house.read_variables()) - told - settings) == []


def unknown_settings(page: Page, known: set[str]) -> list[str]:
    """Dotted names in code that look like settings (their first part is a setting's) and are none."""
    families = {name.partition(".")[0] for name in known if "." in name}
    patterns = [re.compile(re.sub(r"<[^>]+>", r"[\\w<>-]+", name)) for name in known if name != OF_SPARK]
    return [
        f"{page.name}:{line}: no setting '{text}'"
        for line, text in page.codes()
        if re.fullmatch(r"[a-z]+(\.[a-z0-9<>-]+)+", text)
        and text.partition(".")[0] in families
        and not FILES.search(text)
        and not any(pattern.fullmatch(text) for pattern in patterns)
        and not of_spark(text)
        and text != OF_SPARK
    ]


def unknown_words(page: Page, pattern: str, known: set[str], what: str) -> list[str]:
    """Words of a pattern in code that are not known."""
    return [
        f"{page.name}:{line}: no {what} '{word}'"
        for line, text in page.codes()
        for word in re.findall(pattern, text)
        if word not in known
    ]


def metric_names() -> set[str]:
    """Metrics as Prometheus shows them."""
    return {
        name + end for m in house.metrics() for name in [m.name] for end in ("", "_total", "_bucket", "_sum", "_count")
    }


def targets() -> set[str]:
    """What `make` can make."""
    return set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def unknown(page: Page) -> list[str]:
    """Everything that a page names and the project does not have."""
    return [
        *unknown_verbs(page, verb_names()),
        *unknown_settings(page, {setting.name for setting in house.settings()}),
        *unknown_words(page, r"\bHEADGATE_[A-Z0-9_]*[A-Z0-9]\b(?!\*)", variables(), "variable"),
        *unknown_words(page, r"\bheadgate_[a-z0-9_]+\b", metric_names(), "metric"),
        *unknown_words(page, r"\bmake ([a-z][a-z0-9-]*)\b", targets(), "make target"),
        *unknown_words(page, r"\bhg\.([A-Za-z_]\w*)", set(dir(headgate)), "name headgate."),
    ]


CHECKED = [page for page in pages() if not page.planned]


@pytest.mark.parametrize("page", CHECKED, ids=[page.name for page in CHECKED])
def test_a_page_names_only_what_is_there(page: Page) -> None:
    """Somebody renamed a verb, or praised a setting that was never written."""
    found = unknown(page)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_a_page_about_plans_says_so(name: str) -> None:
    """Nobody takes a plan for a promise."""
    lines = [text for text in (ROOT / name).read_text(encoding="utf-8").splitlines() if text.strip()][:4]
    assert "not built" in " ".join(lines)


def test_every_make_target_is_explained_to_contributors() -> None:
    """`make help` and CONTRIBUTING know the same targets."""
    told = set(re.findall(r"`make ([a-z0-9-]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert sorted(targets() - told - {"help"}) == []


def test_the_commands_of_the_readme_are_what_the_checks_run() -> None:
    """The two commands that a newcomer types are tried with every change. What a check leaves out of `make test`, another one runs."""
    (page,) = [page for page in pages() if page.name == "README.md"]
    typed = {line.removeprefix("$ ") for block in page.blocks if not block.runs for line in block.text.splitlines()}
    typed = {line for line in typed if line.startswith("make ")}
    checks = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    run = set(re.findall(r"^check \S+ (make [a-z0-9-]+)(?: ARGS=.*)?$", checks, re.M))
    assert typed == {"make demo", "make test"}
    assert typed <= run


VERBS = {(): {"--help"}, ("kafka",): {"--help"}, ("kafka", "up"): {"--help", "--port"}, ("run",): {"--workers"}}


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ("`headgate kafka up --port 9092`", []),
        ("`headgate run shop:app --workers 2`", []),
        ("`headgate.core` and `pip install headgate` and `headgate --help`", []),
        ("`headgate kafka up|down`", []),
        ("`headgate fly`", ["x.md:1: headgate has no verb 'fly'"]),
        ("`headgate kafka fly`", ["x.md:1: 'headgate kafka' has no verb 'fly'"]),
        ("`headgate kafka up --wings`", ["x.md:1: 'headgate kafka up' has no option --wings"]),
        ("```console\n$ headgate run x:app --wings 2\n```", ["x.md:2: 'headgate run' has no option --wings"]),
    ],
)
def test_a_command_that_does_not_exist_is_named(text: str, findings: list[str]) -> None:
    """The check is tried on pages that are right and on pages that are wrong."""
    assert unknown_verbs(read("x.md", text), VERBS) == findings


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ("`commit.interval` and `streams.orders.priority` and `commit.md`", []),
        ("`commit.intervall`", ["x.md:1: no setting 'commit.intervall'"]),
        ("`spark.in-flight` and `spark.executor.memory` and `spark.jars`", []),
        ("`spark.inflght`", ["x.md:1: no setting 'spark.inflght'"]),
        ("`kafka.apache.org` is nobody's setting", []),
    ],
)
def test_a_setting_that_does_not_exist_is_named(text: str, findings: list[str]) -> None:
    """A name with a placeholder stands for all its names."""
    known = {"commit.interval", "streams.<name>.priority", "spark.in-flight"}
    assert unknown_settings(read("x.md", text), known) == findings
