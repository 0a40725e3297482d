"""Completeness survives a kill -9: control frames reach the end of the job behind every record, once, whoever dies on the way.

Each story kills the worker twice: while data flows, and while the end (or the drain) is on its way.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.agents.broker.broker import Broker

from .scene import MOST_S, QUICK, Process, Scene

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
RECORDS = 30_000


def closed(process: Process, seconds: float = 240.0) -> int:
    """The exit code of a worker whose run closes."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the run does not close within {seconds:g} s\n{process.tail(40)}") from None


def drain(scene: Scene, *words: str) -> subprocess.Popen[str]:
    """`headgate drain JOB`."""
    command = [sys.executable, "-m", "headgate.agents.cli", "drain", scene.job, "-b", scene.broker.bootstrap, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_bounded_input_ends_through_a_repartition_after_a_kill(private_kafka: Broker, tmp_path: Path) -> None:
    """`until="newest"`: the worker is killed twice in the middle; the run still ends, with every record counted, and exit code 0."""
    scene = Scene(private_kafka, tmp_path / "ends", job="ends", settings=QUICK)
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


def test_a_drain_goes_through_after_a_kill(private_kafka: Broker, tmp_path: Path) -> None:
    """`headgate drain --wait`: killed in the middle; what was read is counted, command and worker end with 0."""
    scene = Scene(private_kafka, tmp_path / "drains", job="drains", settings=QUICK)
    asked = None
    try:
        scene.watch()
        load = scene.load(1000)
        worker = scene.worker()
        scene.advanced("the start", worker)
        scene.flowing(1.0)
        with scene.held("by-group"):  # the drain cannot come through, however quick it is
            asked = drain(scene, "--wait", "--timeout", "300s")
            scene.until(lambda: "draining" in worker.said(), 4 * MOST_S, "the drain to be taken up", worker)
            worker = scene.killed(worker)
        code = closed(worker)
        said = asked.communicate(timeout=400)[0]
        load.end()
    finally:
        if asked is not None and asked.poll() is None:
            asked.kill()
        scene.close()
    assert scene.happened["kill -9"] == 1
    assert code == 0, worker.tail(40)
    assert asked.returncode == 0, f"{said}\n{worker.tail(40)}"
    scene.check_drained()
