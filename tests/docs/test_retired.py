"""Words that were retired do not come back: in what users read, and in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (
    "core/**/*.py",
    "agents/**/*.py",
    "agents/**/*.json",
    "spark_bridge/**/*.py",
    "headgate/**/*.py",
    "docs/**/*.md",
    "*.md",
    "Makefile",
)
RETIRED = {
    r"\b[Nn]obody\b": "no one, no worker, no step, or the passive",
    r"is somebody else's\b": "belongs to another worker, user, or job",
    r"STANDS FOR": "UNCHANGED FOR",
    r"still speaks\b": "is still running",
}
"""Each as a pattern, with what the field says in its place. The changelog keeps what it has said."""


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_not_used(word: str) -> None:
    """Plain words of the field: a vocabulary of our own has to be learned first."""
    paths = sorted(path for place in PLACES for path in ROOT.glob(place) if path.name != "CHANGELOG.md")
    assert len(paths) > 300
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(word, line)
    ]
    assert found == [], f"say: {RETIRED[word]}"
