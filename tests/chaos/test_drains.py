"""Drains and stops under load, the short form: one of each, both with a kill -9. The long form is `python -m tests.chaos.drains`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from .drains import Lives, torment

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_every_record_counts_once_over_drains_stops_and_kills(kafka: Any, tmp_path: Path) -> None:
    """Three workers under a supervisor, shuffles, windows and a join; killed while the run closes, restarted, and nothing is undone."""
    lives = Lives(kafka.bootstrap, tmp_path, seed=1, per_second=400)
    try:
        made = torment(lives, 1, 1, time.monotonic() + 300)
    finally:
        lives.close()
    assert (lives.happened["kill -9 in a drain"], lives.happened["kill -9 in a stop"]) == (1, 1)
    assert lives.happened["drain"] >= 2  # one more for each that was through before the kill
    assert lives.happened["stop"] >= 1
    assert made > 0
    assert lives.account() == []
    assert lives.joined["pairs"] > 0
    assert lives.joined["alone"] > 0
