"""Completeness survives a kill -9: control frames reach the end of the job behind every record, once, whoever dies on the way.

A drain meets its kill in `test_drains`, and in `tests/e2e/test_completeness.py`.
"""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import pytest

from headgate.agents.broker.broker import Broker

from .scene import MOST_S, QUICK, Process, Scene

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
RECORDS = 10_000


def closed(process: Process, seconds: float = 240.0) -> int:
    """The exit code of a worker whose run closes."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the run does not close within {seconds:g} s\n{process.tail(40)}") from None


def test_a_bounded_input_ends_through_a_repartition_after_a_kill(kafka: Broker, tmp_path: Path) -> None:
    """`until="newest"`: the worker is killed twice in the middle; the run still ends, with every record counted, and exit code 0."""
    scene = Scene(kafka, tmp_path / "ends", job=f"ends-{uuid.uuid4().hex[:8]}", settings=QUICK)
    try:
        load = scene.load(1 << 20, limit=RECORDS)
        load.join(120)
        made = load.end()
        watch = scene.watch()
        bounded = {"CHAOS_BOUNDED": "1"}
        with scene.held("by-group"):  # the end cannot come through, however quick they are
            worker = scene.worker(**bounded)
            scene.advanced("the start", worker)
            worker = scene.killed(worker, **bounded)
            scene.until(lambda: watch.counted == made, 4 * MOST_S, "everything to be counted by key", worker)
            # the markers of the end are on their way, or about to be
            worker = scene.killed(worker, **bounded)
        assert closed(worker) == 0, worker.tail(40)
    finally:
        scene.close()
    assert scene.happened["kill -9"] == 2
    assert scene.check(closed=True) == made == RECORDS
