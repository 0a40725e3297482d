"""Each room of core is covered by its own tests: one run of all of them, and one judgement for each room.

    python tests/core/coverage_gate.py               all of core
    python tests/core/coverage_gate.py task graph    these rooms only (`core`: the files that stand beside the rooms)

What is covered only because a neighbour's tests happen to pass through it has no tests of its own, so what counts for `core/task`
is what was executed while tests below `tests/core/task` were collected and run, and what executes at import. That needs no run per
room: coverage records under a context, and here the context is the room of the test file. All of core is imported before the first
test file, under the context `import`, so that nobody gets the credit for definitions.

Tests that read the source (marker `source`) run none of it, and are not measured: they would take five times as long, and give nothing.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE, TESTS = ROOT / "core", ROOT / "tests" / "core"
WANTED = 98.0


def room_of(path: Path, top: Path) -> str:
    """The room of a file below `top`: the path of its directory, or `core` for what stands at the top itself."""
    below = path.parent.relative_to(top).as_posix()
    return "core" if below == "." else below


def rooms() -> dict[str, list[Path]]:
    """Every room that has files, and its files."""
    found: dict[str, list[Path]] = {}
    for path in sorted(CORE.rglob("*.py")):
        if path.name != "__init__.py":
            found.setdefault(room_of(path, CORE), []).append(path)
    return found


def tests_of(room: str) -> list[str]:
    """The test files of a room."""
    directory = TESTS if room == "core" else TESTS / room
    return [str(path) for path in sorted(directory.glob("test_*.py"))]


class Contexts:
    """A pytest plugin: whatever runs, runs under the name of the room whose test file wants it."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.present = "import"

    def switch(self, path: Path) -> None:
        room = room_of(path, TESTS)
        if self.present != room:
            self.present = room
            self.measured.switch_context(room)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        if collector.path.suffix == ".py":
            self.switch(collector.path)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if item.get_closest_marker("source") is None:
            self.switch(item.path)
            return (yield)
        self.measured.stop()
        try:
            return (yield)
        finally:
            self.measured.start()


def run(names: list[str], data_file: str) -> tuple[coverage.Coverage, int]:
    """Run the tests of these rooms; returns what was executed under which context, and pytest's exit code."""
    # By directory: to find a package by name coverage imports it, and then msgpack would be there twice.
    measured = coverage.Coverage(data_file=data_file, branch=True, source=[str(CORE)], config_file=False)
    measured.start()
    measured.switch_context("import")
    for path in sorted(CORE.rglob("*.py")):
        dotted = path.relative_to(CORE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        importlib.import_module("headgate.core" if dotted == "__init__" else f"headgate.core.{dotted}")
    files = [file for name in names for file in tests_of(name)]
    code = pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[Contexts(measured)])
    measured.stop()
    measured.save()
    return measured, int(code)


def covered(measured: coverage.Coverage, room: str, files: list[Path], report: Path) -> dict[str, Any]:
    """What a room's own tests execute of it: percent, and for each file what they do not."""
    measured.json_report(morfs=[str(path) for path in files], outfile=str(report), contexts=[r"^import$", rf"^{room}$"])
    return json.loads(report.read_text(encoding="utf-8"))


def judge(names: list[str]) -> int:
    """Run, print a line for each file that lacks something and one for each room, and return the exit code."""
    there = rooms()
    if unknown := sorted({*names} - {*there}):
        print(f"no room {', '.join(unknown)}; there are {', '.join(there)}")
        return 2
    if homeless := sorted({*map(str, TESTS.rglob("test_*.py"))} - {file for room in there for file in tests_of(room)}):
        print(f"tests of no room, which would never run here: {', '.join(homeless)}")
        return 2
    short: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        measured, code = run(names, str(Path(directory) / "data"))
        for room in names:
            found = covered(measured, room, there[room], Path(directory) / "report")
            for file, one in sorted(found["files"].items()):
                if one["summary"]["percent_covered"] < 100:
                    arrows = ", ".join(f"{a}->{b if b > 0 else 'exit'}" for a, b in one["missing_branches"])
                    percent, where = one["summary"]["percent_covered"], Path(file).resolve().relative_to(ROOT)
                    print(f"{percent:6.2f} %  {where}  lines {one['missing_lines'] or '-'}  branches {arrows or '-'}")
            percent = found["totals"]["percent_covered"]
            print(f"{percent:6.2f} %  the room {room}, {len(there[room])} files, by its own tests")
            if percent < WANTED:
                short.append(room)
    for room in short:
        print(f"{room}: less than {WANTED:g} % by its own tests")
    return code or int(bool(short))


if __name__ == "__main__":
    sys.exit(judge(sys.argv[1:] or list(rooms())))
