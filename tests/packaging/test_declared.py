"""setup.cfg lists every package of the house, and maps it to the place where it stands."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {
    "headgate": "headgate",
    "core": "headgate.core",
    "agents": "headgate.agents",
    "spark_bridge": "headgate.spark_bridge",
}
PAGES = {"docs": "headgate.docs"}
"""A directory without Python that the wheel contains."""


def declared() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def standing() -> set[str]:
    """The packages that the directories show."""
    found: set[str] = set()
    for room, name in ROOMS.items():
        for path in (ROOT / room).rglob("*.py"):
            if "__pycache__" not in path.parts:
                found.add(".".join((name, *path.parent.relative_to(ROOT / room).parts)))
    return found


def test_every_directory_with_python_files_is_a_declared_package() -> None:
    """A new sub-package that nobody lists would be missing in the wheel, and only there."""
    assert sorted(standing() - set(declared()["options"]["packages"].split())) == []


def test_every_declared_package_stands_somewhere() -> None:
    """A package that was removed is removed from the list."""
    assert sorted(set(declared()["options"]["packages"].split()) - standing()) == list(PAGES.values())


def test_every_package_directory_is_marked_as_a_package() -> None:
    """Without `__init__.py` an editable install and a wheel disagree about what a directory is."""
    naked = [
        directory.relative_to(ROOT).as_posix()
        for room in ROOMS
        for directory in {path.parent for path in (ROOT / room).rglob("*.py")}
        if not (directory / "__init__.py").exists()
    ]
    assert sorted(naked) == []


def test_the_rooms_are_mapped_to_their_names() -> None:
    """The three rooms stand at the top of the repository, under one import name."""
    pairs = (line.split("=") for line in declared()["options"]["package_dir"].strip().splitlines())
    assert {place.strip(): name.strip() for name, place in pairs} == ROOMS | PAGES


def test_the_supported_pythons_are_those_of_the_pages() -> None:
    """Whoever reads one of them decides by it. A version that nobody has tried is on none."""
    meant = re.findall(r"^Programming Language :: Python :: (3\.\d+)$", declared()["metadata"]["classifiers"], re.M)
    (page,) = re.findall(r"^\| Python \| ([\d., ]+) \|", (ROOT / "docs/install.md").read_text(encoding="utf-8"), re.M)
    assert page.split(", ") == meant
    for place in ("README.md", "docs/quickstart.md"):
        assert re.search(rf"Python \(?{meant[0]} to {meant[-1]}", (ROOT / place).read_text(encoding="utf-8")), place
    assert declared()["options"]["python_requires"] == f">={meant[0]}"


@pytest.mark.parametrize("extra", ["test", "lint", "java", "arm64"])
def test_the_extras_that_make_installs_exist(extra: str) -> None:
    """`make` and setup.cfg agree on names."""
    assert extra in declared()["options.extras_require"]
