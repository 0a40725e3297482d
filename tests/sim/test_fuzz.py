"""A check draws the same each time; chance has a run of its own, which says what it ran."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import settings

from tests.sim import fuzz
from tests.sim.blocks import ROOT


def test_a_check_of_a_change_draws_the_same_examples_each_time(request: pytest.FixtureRequest):
    """Whoever sees red looks for the fault in his change, and not for one that chance found elsewhere."""
    asked = request.config.getoption("--hypothesis-profile")
    assert settings().derandomize == (asked in (None, "fixed"))


def test_the_profile_of_chance_reaches_the_tests():
    """`make fuzz` would otherwise draw the same examples for ever: its profile comes after ours, and counts."""
    words = ["-p", "no:cacheprovider", "-q", "--hypothesis-profile=random", f"{__file__}::{PROFILE}"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout


PROFILE = test_a_check_of_a_change_draws_the_same_examples_each_time.__name__


def test_seeds_by_chance_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """What was run can be run again: the base is printed first, the range at the end."""
    monkeypatch.setattr(sys, "argv", ["fuzz", "2"])
    assert fuzz.main() == 0
    told = capsys.readouterr().out
    base = int(re.findall(r"^2 seeds from (\d+)$", told, re.MULTILINE)[0])
    assert f"2 seeds, {base} to {base + 1}:" in told
