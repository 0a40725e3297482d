"""CHANGELOG keeps its grammar, and knows the version that the package has."""

from __future__ import annotations

import re

import headgate

from .pages import ROOT

ORDER = ["Security", "Removed", "Deprecated", "Added", "Changed", "Fixed"]
VERBS = {"Security": "Fixed"}
"""The verb that an entry of a kind begins with, where it is not the kind's name."""
RELEASE = re.compile(r"^## \[(?P<version>Unreleased|\d+\.\d+\.\d+)\](?: - (?P<day>\d{4}-\d\d-\d\d))?$")


def complaints(text: str) -> list[str]:
    """Lines that do not follow the grammar."""
    found: list[str] = []
    section = ""
    seen: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            match = RELEASE.match(line)
            if match is None:
                found.append(f"{number}: a release is '## [1.2.3] - 2026-01-31' or '## [Unreleased]'")
            elif (match["version"] == "Unreleased") != (match["day"] is None):
                found.append(f"{number}: a release has its day, what is unreleased has none")
            section, seen = line, []
        elif line.startswith("### "):
            kind = line.removeprefix("### ")
            if kind not in ORDER:
                found.append(f"{number}: '{kind}' is none of {', '.join(ORDER)}")
            elif seen and ORDER.index(kind) <= ORDER.index(seen[-1]):
                found.append(f"{number}: '{kind}' stands before '{seen[-1]}'")
            seen.append(kind if kind in ORDER else ORDER[0])
        elif line.startswith("- ") and (not section or not seen):
            found.append(f"{number}: an entry stands under a release and a kind")
    kind = ""
    for block in re.split(r"\n(?=- |#)", text):
        if block.startswith("#"):
            kind = block.splitlines()[0].removeprefix("### ") if block.startswith("### ") else ""
        elif block.startswith("- ") and kind in ORDER and not block.startswith(f"- {VERBS.get(kind, kind)} "):
            found.append(f"an entry of '{kind}' begins with '{VERBS.get(kind, kind)}': {block[:50]!r}")
        if block.startswith("- ") and not block.split("\n\n")[0].rstrip().endswith("."):
            found.append(f"an entry ends with a full stop: {block[:50]!r}")
    return found


def test_the_changelog_keeps_its_grammar() -> None:
    """Releases, kinds in their order, whole sentences."""
    assert complaints((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == []


def test_the_changelog_knows_the_version() -> None:
    """What is released has an entry; before the first release, what is unreleased."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = [match["version"] for line in text.splitlines() if (match := RELEASE.match(line))]
    assert versions[:1] == ["Unreleased"] or versions[:1] == [headgate.__version__]


def test_what_breaks_the_grammar_is_named() -> None:
    """The check is tried on a changelog that is wrong."""
    text = "## [1.0]\n- a thing.\n## [1.0.0] - 2026-01-01\n### Fixed\n- a bug\n### Added\n- Added a thing.\n- Fixed it.\n### Other\n"
    assert complaints(text) == [
        "1: a release is '## [1.2.3] - 2026-01-31' or '## [Unreleased]'",
        "2: an entry stands under a release and a kind",
        "6: 'Added' stands before 'Fixed'",
        "9: 'Other' is none of Security, Removed, Deprecated, Added, Changed, Fixed",
        "an entry of 'Fixed' begins with 'Fixed': '- a bug'",
        "an entry ends with a full stop: '- a bug'",
        "an entry of 'Added' begins with 'Added': '- Fixed it.'",
    ]
