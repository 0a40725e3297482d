"""CI uses the same examples each time; random runs are separate and print what they ran."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from tests.sim import fuzz
from tests.sim.blocks import ROOT
from tests.sim.outcome import Outcome


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
    """A random run can be repeated: it prints the base first, and the range at the end. No world runs: chance must not fail CI."""
    monkeypatch.setattr(fuzz, "outcome", lambda seed: Outcome(seed, steps=5))
    monkeypatch.setattr(sys, "argv", ["fuzz", "2"])
    assert fuzz.main() == 0
    told = capsys.readouterr().out
    base = int(re.findall(r"^2 seeds from (\d+)$", told, re.MULTILINE)[0])
    assert f"2 of 2 seeds, {base} to {base + 1}: 0 failed" in told


def test_seeds_go_on_where_the_last_part_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A part that was killed leaves half a line: that seed is run again, and the others are not."""
    ran: list[int] = []

    def outcome(seed: int) -> Outcome:
        ran.append(seed)
        effects, ends = Counter({"kill": 2, "seek": 1}), Counter({"run drained": 1})
        return Outcome(seed, steps=10, effects=effects, ends=ends, violation="late" if seed == 8 else "")

    monkeypatch.setattr(fuzz, "outcome", outcome)
    file = tmp_path / "part"
    fuzz.run(7, 2, file, 60.0)
    file.write_text(file.read_text() + '{"seed": 9, "st')
    drawn = fuzz.run(7, 4, file, 60.0)
    assert ran == [7, 8, 9, 10]
    assert drawn.failed == [8]
    assert "kill 8 (in 4 worlds)" in str(drawn)
    assert "requests: seek 4 (in 4 worlds)" in str(drawn)
    assert "run drained 4" in str(drawn)
    assert fuzz.run(7, 5, file, 0.0).seeds == 4


def test_parts_are_summed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Two processes run a part each; what both have run counts once."""
    monkeypatch.setattr(fuzz, "outcome", lambda seed: Outcome(seed, steps=5))
    parts = [tmp_path / "one", tmp_path / "other"]
    for base, part in zip((0, 1), parts, strict=True):
        fuzz.run(base, 2, part, 60.0)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--sum", *map(str, parts)])
    assert fuzz.main() == 0
    assert "3 seeds: 15 steps" in capsys.readouterr().out
