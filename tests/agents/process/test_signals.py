"""Signals of a worker, and of the processes that user code forks from it."""

from __future__ import annotations

import subprocess
import sys

FORKS = """
import multiprocessing, os, signal, sys, threading, time
from headgate.agents.process.signals import Signals

told = threading.Event()
Signals(lambda number: told.set(), lambda: 60.0).listen()

here, there = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(there, b"!")
    time.sleep(600)
os.read(here, 1)
os.kill(pid, signal.SIGTERM)
_, status = os.waitpid(pid, 0)
assert os.WTERMSIG(status) == signal.SIGTERM, status
assert not told.wait(0.2), "the parent has heard a signal of its child"

def sleeps():
    os.write(there, b"!")
    time.sleep(600)

child = multiprocessing.get_context("fork").Process(target=sleeps, daemon=True)
child.start()
os.read(here, 1)
os.kill(os.getpid(), signal.SIGTERM)
assert told.wait(30), "the parent does not hear its own"
print("ends", flush=True)  # and `multiprocessing` ends its child, and waits for it
"""


def test_a_forked_process_hears_signals_as_any_other() -> None:
    """It ignored them, so that a worker waited for the processes of its user until it was ended by force, and exited with 3."""
    found = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=240, check=False)
    assert (found.returncode, found.stdout) == (0, "ends\n"), found.stderr
