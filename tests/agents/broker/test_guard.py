"""Whatever happens to a test run, its brokers and its directory go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headgate.agents.broker.process import command_of

pytestmark = pytest.mark.kafka

RUN = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background with it ignored
from pathlib import Path
from headgate.agents.broker.broker import Broker
from headgate.agents.broker.guard import Lease
root = Path(sys.argv[1])
lease = Lease(root)
guard = Lease.guard(root)
broker = Broker.start(root / "kafka")
print(guard.pid, *broker.pids(), flush=True)
time.sleep(60)
"""

SUITE = """
import os, signal

def test_uses_the_broker(kafka, topic):
    name = topic("a")
    print(f"pids: {kafka.pids()[0]} {kafka.data.parent}")

def test_leaves_a_child():
    import subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"child: {child.pid}")
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_dies_takes_its_broker_with_it(tmp_path: Path, number: signal.Signals) -> None:
    """kill -9, or Ctrl-C; also where the tests were started with SIGINT ignored, as `nohup` and a shell's `&` do: brokers stayed behind."""
    root = tmp_path / "root"
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as run:
        assert run.stdout is not None
        guard, broker = map(int, run.stdout.readline().split())
        assert "headgate.node" in command_of(broker)
        run.send_signal(number)
        run.wait(240)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(guard).wait(240)
    assert not psutil.pid_exists(broker) or "headgate.node" not in command_of(broker)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_leaves_a_child_behind_fails_and_names_it(tmp_path: Path) -> None:
    """Two xdist workers share one broker; the child is named; afterwards broker and directory are gone."""
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_suite.py").write_text(SUITE)
    (suite / "__init__.py").touch()
    for name in ("conftest.py", "lanes.py", "forked.py"):
        (suite / name).symlink_to(Path(__file__).parents[2] / name)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("HEADGATE_TEST_ROOT", "PYTEST_XDIST_WORKER")
    }
    environment["HEADGATE_TEST_PATIENCE"] = "1"  # this child will not end
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        "-rP",
        f"--rootdir={tmp_path}",
        str(suite),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert "pids: " in done.stdout, done.stdout + done.stderr
    child = int(done.stdout.partition("child: ")[2].split()[0])
    pid, root = done.stdout.partition("pids: ")[2].split()[:2]
    os.kill(child, signal.SIGKILL)
    assert done.returncode == 1
    assert f"child processes were left behind:\n{child}: " in done.stdout.replace("E           ", "").replace(
        "E       ", ""
    )
    assert "headgate.node" not in command_of(int(pid))
    give_up = time.monotonic() + 240
    while Path(root).exists() and time.monotonic() < give_up:  # its guard may not be through with it
        time.sleep(0.1)
    assert not Path(root).exists()
