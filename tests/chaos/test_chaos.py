"""Faults under load, the short form: kill -9, zombies, a broker that dies and one that hangs; every record counts once.

The long form is `python -m tests.chaos`, with as many faults as one likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.agents.broker.broker import Broker

from .outputs import somewhere
from .scene import MOST_S, QUICK, Scene

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


def test_every_record_counts_once_whatever_dies(private_kafka: Broker, tmp_path: Path) -> None:
    """Seven faults in four kinds: a plain reader finds each record counted once, in order, and no long silence. Each row is in a table and
    in files once, though its key was sick and its service away."""
    with somewhere(tmp_path / "out") as out:
        scene = Scene(private_kafka, tmp_path / "scene", settings=QUICK, leaving=out("chaos"))
        _tormented(scene)
    assert any("raised Sick" in process.said() for process in scene.processes), "no record has waited"


def _tormented(scene: Scene) -> None:
    try:
        watch = scene.watch()
        load = scene.load(1000)
        worker = scene.worker()
        scene.advanced("the start", worker)
        worker = scene.kill(worker)
        scene.broker_killed(worker, 0.5)
        worker = scene.kill(worker)
        worker = scene.zombie(worker, "w2")
        worker = scene.kill(worker)
        scene.broker_paused(worker, 1.2)
        worker = scene.zombie(worker, "w2")
        made = scene.settle(load)
        longest = watch.longest()
    finally:
        scene.close()
    assert scene.happened == {
        "kill -9": 3, "broker kill -9": 1, "broker SIGSTOP": 1, "zombie": 1, "zombie, same name": 1,
    }  # fmt: skip
    assert longest < 2 * MOST_S, scene.story  # tests share their machine
    assert scene.check() == made
