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


ASKED = """
import logging, os, signal, sys, threading, time
from headgate.agents.broker.java import find_java
from headgate.spark_bridge.process import gateway
from headgate.spark_bridge.process.jvm import Sessions
from py4j.protocol import Py4JNetworkError

logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
sessions = Sessions("local[1]", {}, java_home=lambda: find_java().home)
now, failed = sessions.get().sparkContext._jvm.System.currentTimeMillis, []
now()

def ask():
    try:
        now()
    except Exception as error:
        failed.append(error)

os.kill(gateway.process_of().pid, signal.SIGSTOP)  # what it has not read when it is killed makes the call fail by a reset
asking = threading.Thread(target=ask, daemon=True)
asking.start()
give_up = time.monotonic() + 60
while sys._current_frames()[asking.ident].f_code.co_name != "readinto":
    assert time.monotonic() < give_up
try:
    raise Py4JNetworkError("while it lives")
except Py4JNetworkError:
    logging.exception("an error of a JVM that nobody has ended")
gateway.let_go()()
asking.join(60)
assert failed
sessions.stop()
"""


@pytest.mark.spark
def test_a_call_that_was_under_way_when_the_jvm_was_ended_is_no_error() -> None:
    """A thread asks now and then how much memory Spark takes, also while a worker stops: py4j logged a traceback of thirty lines."""
    ran = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "an error of a JVM that nobody has ended" in ran.stdout
    assert "Exception while sending command" not in ran.stdout
