"""Words that were retired do not come back: in what users read, and in the names of the code. The glossary stays short."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (
    "core/**/*.py",
    "agents/**/*.py",
    "agents/**/*.json",
    "agents/**/*.html",
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
    r"(?i)\bstands for<th": "unchanged for",
    r"still speaks\b": "is still running",
    r"deleted and made again": "deleted and re-created",
    r"\blet us in\b": "accepted the connection",
    r"\b(broker|Spark) is (away|back)\b": "the broker does not answer, the broker answers again, Spark is unavailable",
    r"(written|read) anew\b": "written again, read again",
    r"what it was told\b": "what it was sent",
}
"""Each as a pattern, with what the field says in its place. The changelog keeps what it has said."""
NAMES = {
    "told": "delivered, reported, logged, notified, or text",
    "untold": "what it has not received",
    "nobody": "none, or what there is none of",
    "somebody": "what it is: owner, worker, holder",
    "anybody": "what it is: worker, holder",
    "hush": "stop, silence",
    "pulse": "heartbeat",
    "stir": "wake, moves_again",
    "stirs": "wake, moves_again",
    "restless": "unsettled",
    "astray": "unexpected, unassigned",
    "spoilt": "invalid, aborted",
    "mine": "own, local, held",
    "life": "worker, incarnation, host",
    "lives": "alive, workers, incarnations",
    "beside": "others, concurrent, in_thread",
}
"""Each as a part of a name, with what to call it instead."""
PAIRS = {"put_down": "shut_down", "give_on": "emit, forward"}
NAMED = ("core", "agents", "spark_bridge")
GLOSSARY = re.compile(r"^## Glossary$(.*?)^## ", re.M | re.S)


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


def retired_names(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, name, what to call it instead) of each name with a part that was retired."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", token.string)
            for part in parts:
                if part.lower() in NAMES:
                    yield token.start[0], token.string, NAMES[part.lower()]
            joined = "_".join(parts).lower()
            for pair, instead in PAIRS.items():
                if f"_{pair}_" in f"_{joined}_":
                    yield token.start[0], token.string, instead


def test_a_retired_name_is_not_used() -> None:
    """Whoever reads the code for the first time knows the words of Kafka and of stream processing, and no others."""
    paths = [path for room in NAMED for path in sorted((ROOT / room).rglob("*.py"))]
    named = [(path.relative_to(ROOT).as_posix(), path) for path in paths]
    found = [
        f"{where}:{line}: {name}; call it {instead}"
        for where, path in named
        for line, name, instead in retired_names(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_retired_part_of_a_name_is_found() -> None:
    """In classes as in functions; words that only contain it are others."""
    text = "class Mine: ...\n_lives, determine, put_down_all, outlives = 1, 2, 3, 4\n"
    assert [(line, name) for line, name, _ in retired_names(text)] == [(1, "Mine"), (2, "_lives"), (2, "put_down_all")]


def test_the_glossary_is_short() -> None:
    """Fifteen words can be learned before the first page is read. Each has one row."""
    (glossary,) = GLOSSARY.findall((ROOT / "docs/concepts.md").read_text(encoding="utf-8"))
    words = re.findall(r"^\| \*\*([a-z ]+)\*\* \|", glossary, re.M)
    assert len(words) == len(set(words)) <= 15
