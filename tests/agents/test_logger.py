"""The logger of a module: structlog comes with the first line, and a command's lines go to standard error."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_structlog_comes_with_the_first_line() -> None:
    """Until then a command has not paid for it."""
    code = """
import sys
from headgate.agents import logger
log = logger.Logger("headgate.test")
assert not logger.configured()
logger.to_stderr()
assert logger.configured() and "structlog" not in sys.modules
log.warning("it leaks", where="here")
assert "structlog" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert "it leaks" in done.stderr


def test_a_line_needs_no_more_of_standard_output_than_print_does() -> None:
    """A program may have put an object of its own there, in which a test driver or a worker runs."""
    code = """
import sys

class Copied:
    def write(self, text):
        sys.stderr.write(text)

    def flush(self):
        sys.stderr.flush()

sys.stdout = Copied()
from headgate.agents.logger import Logger
Logger("headgate.test").warning("it leaks")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "it leaks" in done.stderr


FAILS = """
import sys
from headgate.agents.logger import Logger, to_stderr
from headgate.agents.testing.quiet import quiet
log = Logger("headgate.test")

def fails(row, secret):
    raise ValueError("odd")

def says():
    try:
        fails({"name": "a person"}, "pass" + "word")
    except ValueError as error:
        log.error("it failed", exc_info=error)
"""


@pytest.mark.parametrize("where", ["says()", "to_stderr(); says()", "with quiet(): says()"])
def test_a_traceback_has_no_local_variables(where: str) -> None:
    """Those of a worker inside of another program, of a command, and of a test driver: they are rows, and drawing them takes seconds."""
    done = subprocess.run([sys.executable, "-c", FAILS + where], capture_output=True, text=True, timeout=60, check=True)
    said = done.stdout + done.stderr
    assert "it failed" in said
    assert said.rstrip().endswith("ValueError: odd")
    assert "a person" not in said
    assert "\nTraceback (most recent call last):\n" in said
    assert "password" not in said
