"""The targets of the fuzzer, a few rounds each, always of the same seed; also as sanitizers see them. `make fuzz` runs others, for long."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from headgate.agents.records.native import chosen

from . import fuzz

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
NO_SANITIZERS = shutil.which(fuzz.COMPILER) is None or sys.platform != "linux"


@needs_compiler
@pytest.mark.parametrize("target", fuzz.targets())
def test_both_ways_agree(target: str) -> None:
    """The compiled part and its plain twin, on arguments that make sense and on others."""
    fuzz.run([target], range(20), 1)


@needs_compiler
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(NO_SANITIZERS, reason="sanitizers need gcc")
def test_sanitizers_find_nothing() -> None:
    """Built from the sources that stand here, without a warning. No byte outside of a buffer is read, and nothing is done of which C does
    not say what it means. `make sanitize` also builds what machines of another kind have."""
    command = [sys.executable, "-m", "tests.agents.records.fuzz", "--short", "1000", "1", "--sanitize"]
    done = subprocess.run(command, cwd=fuzz.ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "no difference" in done.stdout
