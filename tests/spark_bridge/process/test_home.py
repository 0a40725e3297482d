"""The directory of a JVM: nothing that Spark wrote outlives it, and nothing that is in use is deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headgate.spark_bridge.process.home import Home, sweep

DIES = """
import os, subprocess, sys
from headgate.spark_bridge.process.home import Home
home = Home(sys.argv[1])
(home.path / "blockmgr-1").mkdir()
if len(sys.argv) > 2:  # a JVM that inherits the lock and outlives its worker
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=0, pass_fds=(home.lock,))
    print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_it_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    """As after a JVM that was killed."""
    home = Home(str(tmp_path))
    (home.path / "spark-1" / "userFiles").mkdir(parents=True)
    home.delete()
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    """Two workers on one machine."""
    one, other = Home(str(tmp_path)), Home(str(tmp_path))
    sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([one.path, other.path])
    one.delete()
    other.delete()


def test_what_a_killed_worker_left_goes_with_the_next_start(tmp_path: Path) -> None:
    """Nobody else would ever delete it."""
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False, timeout=60)
    (left,) = tmp_path.iterdir()
    assert (left / "blockmgr-1").exists()
    home = Home(str(tmp_path))
    assert list(tmp_path.iterdir()) == [home.path]
    home.delete()


def test_it_stays_while_its_jvm_lives(tmp_path: Path) -> None:
    """A worker that was killed leaves its JVM for a moment."""
    worker = subprocess.Popen(
        [sys.executable, "-c", DIES, str(tmp_path), "with"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert int(worker.stdout.readline())
    worker.wait(60)
    sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    worker.stdin.close()
    while list(tmp_path.iterdir()):
        sweep(tmp_path)
    worker.stdout.close()


def test_what_is_no_one_s_is_left_alone(tmp_path: Path) -> None:
    """A directory without a lock is none of ours."""
    (tmp_path / "headgate-spark-of-somebody").mkdir()
    sweep(tmp_path)
    assert os.listdir(tmp_path) == ["headgate-spark-of-somebody"]
