"""CI uses the same examples each time; random runs are separate and print what they ran."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import settings

from tests.sim import fuzz
from tests.sim.blocks import ROOT


def test_a_check_of_a_change_draws_the_same_examples_each_time(request: pytest.FixtureRequest):
    """A red CI must point to the change under test, not to a fault that a random example found elsewhere."""
    asked = request.config.getoption("--hypothesis-profile")
    assert settings().derandomize == (asked in (None, "fixed"))


def test_the_profile_of_chance_reaches_the_tests():
    """`make fuzz` would otherwise always use the same examples: its profile overrides ours."""
    words = ["-p", "no:cacheprovider", "-q", "--hypothesis-profile=random", f"{__file__}::{PROFILE}"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout


PROFILE = test_a_check_of_a_change_draws_the_same_examples_each_time.__name__


def test_seeds_by_chance_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """A random run can be repeated: it prints the base first, and the range at the end."""
    monkeypatch.setattr(sys, "argv", ["fuzz", "2"])
    assert fuzz.main() == 0
    told = capsys.readouterr().out
    base = int(re.findall(r"^2 seeds from (\d+)$", told, re.MULTILINE)[0])
    assert f"2 seeds, {base} to {base + 1}:" in told
