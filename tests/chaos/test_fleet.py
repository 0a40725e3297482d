"""The short form of `make chaos`: each kind of fault once, in the fleet, and every record counts once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .fleet_faults import FAULTS, FULL
from .long import right, rounds, timely, told

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200)]
SEED = 11


def test_a_fleet_that_meets_each_fault_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """In a process of its own, which may mount disks. How late time went on is measured by the long form, on a machine of its own."""
    kept = tmp_path / "chaos.jsonl"
    words = [str(word) for word in (len(FAULTS), 600, SEED, 1, 1000, kept)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.fleet", *words], capture_output=True, text=True, timeout=1100, check=False
    )
    found = rounds(kept)
    assert len(found) == 1, done.stdout[-6000:] + done.stderr[-6000:]
    [one] = found
    assert (one["lost"], one["doubled"], one["late"]) == (0, 0, 0), done.stdout
    assert FAULTS.keys() - one["faults"].keys() <= {FULL}, done.stdout
    assert one["records"] > 1000


LINE = {
    "seed": 1, "quiet": 1, "ended": "", "seconds": 3600, "faults": {FULL: 2}, "effects": {FULL: 2}, "records": 1000, "windows": 10,
    "pairs": 5, "lost": 0, "doubled": 0, "late": 0, "calms": 2, "in_time": 2, "slowest_s": 12.0, "slowest_own_s": 11.0,
}  # fmt: skip


def test_rounds_add_up(tmp_path: Path) -> None:
    """What the docs show is the sum of all rounds; a round with a loss, or one in which time stood still, is not right."""
    file = tmp_path / "chaos.jsonl"
    assert rounds(file) == []
    file.write_text("".join(json.dumps({**LINE, "seed": seed, "slowest_s": 10.0 + seed}) + "\n" for seed in (1, 2)))
    found = rounds(file)
    assert all(map(right, found))
    text = "\n".join(told(found))
    assert "4 faults in 2 rounds, 2.0 hours" in text
    assert "| disk full | 4 | 4 disks that refused a write |" in text
    assert "records 2,000" in text
    assert "in time 4 of 4 times; the latest 12.0 s" in text
    assert not right({**LINE, "lost": 1})
    assert not timely({**LINE, "in_time": 1})
