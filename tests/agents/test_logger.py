"""The logger of a module: structlog comes with the first line, and a command's lines go to standard error."""

from __future__ import annotations

import subprocess
import sys


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
