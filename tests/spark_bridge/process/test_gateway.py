"""The process of a JVM and its worker: the one does not outlive the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

KILLED = """
import os, signal, sys, threading
from headgate.spark_bridge.process.gateway import child

def begin():
    process = child(["/bin/sh", "-c", 'read word; echo ended > "$0"', sys.argv[1]], os.environ, ())
    os.kill(process.pid, signal.SIGSTOP)
    print(process.pid, flush=True)

one = threading.Thread(target=begin)  # of a pool, which may end long before the process
one.start()
one.join()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_a_stopped_process_ends_with_its_worker(tmp_path: Path) -> None:
    """Its input ends, but nothing reads it: two JVMs were there after 14 minutes."""
    ended = tmp_path / "ended"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(ended)], capture_output=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    give_up = time.monotonic() + 30
    try:
        while not ended.exists():
            assert time.monotonic() < give_up, "it is still stopped"
            time.sleep(0.01)
    finally:
        if not ended.exists():
            os.killpg(int(killed.stdout), signal.SIGKILL)
