"""Each file of core is covered by its own test file: one run of all tests, and one judgement for each file.

    python tests/core/coverage_gate.py                       all of core
    python tests/core/coverage_gate.py frames names          these files only, with the lines and branches that are missing

A file that is covered only because a neighbour's tests happen to pass through it has no tests of its own, so what counts for
`core/x.py` is what was executed while `tests/core/test_x.py` was collected and run, and what executes at import. That needs no
run per file: coverage records under a context, and here the context is the name of the test file. All of core is imported before
the first test file, under the context `import`, so that nobody gets the credit for definitions.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE, TESTS = ROOT / "core", ROOT / "tests" / "core"
WANTED = 98.0


class Contexts:
    """A pytest plugin: whatever runs, runs under the name of the test file that wants it."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.present = "import"

    def switch(self, path: Path) -> None:
        if self.present != path.name:
            self.present = path.name
            self.measured.switch_context(path.name)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        if collector.path.suffix == ".py":
            self.switch(collector.path)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.switch(item.path)
        return (yield)


def run(names: list[str], data_file: str) -> tuple[coverage.Coverage, int]:
    """Run the test files of these source files; returns what was executed under which context, and pytest's exit code."""
    # By directory: to find a package by name coverage imports it, and then msgpack would be there twice.
    measured = coverage.Coverage(data_file=data_file, branch=True, source=[str(CORE)], config_file=False)
    measured.start()
    measured.switch_context("import")
    for path in sorted(CORE.glob("*.py")):
        importlib.import_module(f"headgate.core.{path.stem}")
    files = [str(TESTS / f"test_{name}.py") for name in names]
    code = pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[Contexts(measured)])
    measured.stop()
    measured.save()
    return measured, int(code)


def covered(measured: coverage.Coverage, name: str, report: Path) -> tuple[float, list[int], list[list[int]]]:
    """Percent of lines and branches of one file that its own tests execute, and what they do not."""
    own = [r"^import$", rf"^test_{name}\.py$"]
    measured.json_report(morfs=[str(CORE / f"{name}.py")], outfile=str(report), contexts=own)
    (found,) = json.loads(report.read_text(encoding="utf-8"))["files"].values()
    return found["summary"]["percent_covered"], found["missing_lines"], found["missing_branches"]


def judge(names: list[str]) -> int:
    """Run, print a line for each file (all of them, or those that lack something), and return the exit code."""
    with tempfile.TemporaryDirectory() as directory:
        measured, code = run(names, str(Path(directory) / "data"))
        found = {name: covered(measured, name, Path(directory) / "report") for name in names}
    for name, (percent, lines, branches) in sorted(found.items(), key=lambda item: item[1][0]):
        if percent < 100:
            arrows = ", ".join(f"{source}->{to if to > 0 else 'exit'}" for source, to in branches)
            print(f"{percent:6.2f} %  core/{name}.py  lines {lines or '-'}  branches {arrows or '-'}")
    short = [name for name, (percent, _, _) in found.items() if percent < WANTED]
    print(f"{len(found)} files of core; {sum(one[0] == 100 for one in found.values())} at 100 % by their own tests")
    for name in short:
        print(f"core/{name}.py: less than {WANTED:g} % by tests/core/test_{name}.py")
    return code or int(bool(short))


if __name__ == "__main__":
    everything = [path.stem for path in sorted(CORE.glob("*.py")) if path.name != "__init__.py"]
    sys.exit(judge(sys.argv[1:] or everything))
