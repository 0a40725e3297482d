"""Every block that a page marks as runnable runs, in order, page by page, and prints what the page says.

    ```console run          lines after `$ ` are commands, the others are what they print; `…` stands for anything
    ```python run           a program
    ```python file=job.py   not run, but written beside, for the commands that follow

A page has one empty directory as its home and its working directory. A command that is meant to fail says so: `# exits 2`.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forked

from .pages import Block, Page, pages, read

LIMIT_S = 240
FIRST = "docs/quickstart.md"
MARKED = [page for page in pages() if any(block.runs for block in page.blocks)]


@dataclass(frozen=True, slots=True)
class Command:
    """One line of a console block, with what it must print and how it must end."""

    where: str
    line: str
    output: tuple[str, ...]
    code: int


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block."""
    head: tuple[int, str] | None = None
    output: list[str] = []

    def done(at: int, text: str) -> Command:
        code = re.search(r"\s+# exits (\d+)\s*$", text)
        line = text[: code.start()] if code else text
        return Command(f"{block.page}:{at}", line, tuple(output), int(code[1]) if code else 0)

    for number, text in enumerate(block.text.splitlines(), block.line + 1):
        if text.startswith("$ "):
            if head is not None:
                yield done(*head)
            head, output = (number, text[2:]), []
        elif head is not None and head[1].endswith("\\") and not output:
            head = (head[0], f"{head[1]}\n{text}")
        else:
            output.append(text.rstrip())
    if head is not None:
        yield done(*head)


def agrees(wanted: tuple[str, ...], printed: str) -> bool:
    """Whether the printed text is the wanted one; `…` is anything, alone on a line any number of lines."""
    parts = [r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*") + r" *\n" for line in wanted]
    text = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    return not wanted or re.fullmatch("".join(parts), text) is not None


class Reader:
    """Somebody who types what the page says, in an empty directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HEADGATE_") or name == "HEADGATE_CACHE"
        } | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "XDG_CACHE_HOME": cache,
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_RUNTIME_DIR": str(home / ".run"),
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }
        (home / ".run").mkdir(mode=0o700)
        self._installed = self.environment["PATH"]
        self.environment["PATH"] = f"{forked.command_in(home / '.bin')}{os.pathsep}{self._installed}"
        self.groups: list[int] = []
        self.typed: list[str] = []

    def begin_anew(self) -> None:
        """From here on each command is a new interpreter, and not forked from one (`tests.forked`)."""
        self.environment["PATH"] = self._installed

    def run(self, arguments: list[str]) -> tuple[int, str]:
        """A process in a group of its own, with what it printed on either output."""
        log = self.home / ".out"
        with log.open("w+b") as out:  # a file: a daemon that keeps it open holds nobody up
            process = subprocess.Popen(
                arguments,
                cwd=self.home,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.groups.append(process.pid)
            code = process.wait(LIMIT_S)
        return code, log.read_text(encoding="utf-8", errors="replace")

    def console(self, block: Block) -> None:
        for command in commands(block):
            self.typed.append(command.line)
            code, printed = self.run(["sh", "-c", command.line])
            said = f"{command.where}: $ {command.line}\n{printed}"
            assert code == command.code, f"exit code {code}, not {command.code}\n{said}"
            assert agrees(command.output, printed), f"the page says something else\n{said}"

    def python(self, block: Block) -> None:
        program = self.home / f".block_{block.line}.py"
        program.write_text(block.text, encoding="utf-8")
        code, printed = self.run([sys.executable, str(program)])
        assert code == 0, f"{block.page}:{block.line}: exit code {code}\n{printed}"

    def follow(self, page: Page) -> None:
        """Do what the page says, from the top."""
        for block in page.blocks:
            names = [word.removeprefix("file=") for word in block.info if word.startswith("file=")]
            for name in names:
                (self.home / name).write_text(block.text, encoding="utf-8")
            if block.runs:
                {"console": self.console, "python": self.python}[block.info[0]](block)

    def leave(self) -> None:
        """End what a page left running, also after a failure."""
        if any(shlex.split(line, comments=True)[:3] == ["headgate", "kafka", "up"] for line in self.typed):
            self.run([sys.executable, "-m", "headgate.agents.cli", "kafka", "down"])
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.fixture
def reader(guarded: Path, tmp_path: Path) -> Iterator[Reader]:
    """A reader with an empty home; what he started is ended, also if this process is killed."""
    home = guarded / tmp_path.name
    home.mkdir()
    someone = Reader(home)
    try:
        yield someone
    finally:
        someone.leave()


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", MARKED, ids=[page.name for page in MARKED])
def test_what_a_page_marks_as_runnable_runs(page: Page, reader: Reader) -> None:
    """A newcomer types the page from top to bottom. One page, the first that they read, has the command that is installed."""
    if page.name == FIRST:
        reader.begin_anew()
    reader.follow(page)


def test_the_reader_notices_a_wrong_exit_code_and_a_wrong_output(reader: Reader) -> None:
    """The check is tried on pages that are right and on pages that are wrong."""
    reader.follow(
        read(
            "x.md",
            "```python file=a.py\nprint('one')\n```\n```console run\n$ python a.py\none\n$ false  # exits 1\n```\n",
        )
    )
    with pytest.raises(AssertionError, match=r"x\.md:2: \$ false"):
        reader.follow(read("x.md", "```console run\n$ false\n```\n"))
    with pytest.raises(AssertionError, match="something else"):
        reader.follow(read("x.md", "```console run\n$ echo one\ntwo\n```\n"))


def test_an_ellipsis_stands_for_anything() -> None:
    """What changes from run to run is not compared."""
    assert agrees(("port … of …", "…", "end"), "port 123 of this\na\nb\nend\n")
    assert agrees(("…", "end"), "end\n")
    assert not agrees(("port …",), "post 123\n")
