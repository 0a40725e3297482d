"""`headgate kafka …` and the front door of the command line, as somebody at a terminal meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.agents.broker.broker import Broker
from headgate.agents.broker.ports import is_free
from headgate.agents.broker.process import command_of
from headgate.agents.broker.registry import running_broker, running_brokers
from headgate.agents.broker.wire import ask_cluster

from ... import forked
from ...e2e.schemas import schema, wrong

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(guarded: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user who has never started a broker; what he starts goes with the run."""
    place = guarded / tmp_path.name
    place.mkdir()
    monkeypatch.setenv("HEADGATE_HOME", str(place))
    return place


def headgate(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return forked.run(arguments, given=typed, timeout=240)


def test_help_imports_nothing_heavy() -> None:
    """Whoever asks for help does not wait for Spark."""
    code = (
        "import sys\nfrom headgate.agents.cli.group import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'faust', 'aiokafka', 'pyspark', 'pyarrow', 'aiohttp', 'rocksdict', 'rich'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "kafka" in done.stdout


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("kafak", "up"), "There is no verb `headgate kafak`. Did you mean `headgate kafka`?"),
        (("kafka", "stauts"), "Did you mean `headgate kafka status`?"),
        (("dead-letters", "lst", "sales"), "Did you mean `headgate dead-letters list`?"),
        (("topics", "frobnicate"), "There is no verb `headgate topics frobnicate`. There are adopt, create, delete"),
        (("drain", "sales", "--wiat"), "--wait"),
    ],
)
def test_an_unknown_verb_names_the_nearest(typed: tuple[str, ...], said: str) -> None:
    """A usage error, in every group; what is near to nothing is answered with what there is."""
    done = headgate(*typed)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.kafka
def test_up_status_down_reset(home: Path) -> None:
    """A broker's day."""
    assert headgate("kafka", "status").returncode == 4
    assert json.loads(headgate("kafka", "status", "-o", "json").stdout) == {
        "running": False,
        "data": str(home / "kafka"),
    }
    assert running_broker() is None

    up = headgate("kafka", "up")
    assert up.returncode == 0, up.stderr
    status = json.loads(headgate("kafka", "status", "-o", "json").stdout)
    assert wrong(status, schema("kafka-status")) == []
    assert status["running"] is True
    assert status["data"] == str(home / "kafka")
    assert status["disk_used_bytes"] > 0
    assert "headgate.node" in command_of(status["pid"])
    assert running_broker() == status["bootstrap"] == f"127.0.0.1:{status['port']}"
    assert [status["version"], status["bootstrap"], str(status["pid"])] == [
        line.split()[1].rstrip(",")
        for line in up.stdout.splitlines()
        if line.split()[0] in ("Kafka", "bootstrap", "pid")
    ]
    table = headgate("kafka", "status").stdout
    assert [line.split()[0] for line in table.splitlines()] == [
        "Kafka",
        "bootstrap",
        "port",
        "pid",
        "data",
        "disk",
        "log",
    ]

    again = headgate("kafka", "up")
    assert again.returncode == 1
    assert again.stderr.startswith("Error: a broker is already running in ")
    assert "\nTo do: " in again.stderr

    down = headgate("kafka", "down", "-o", "json")
    assert down.returncode == 0
    assert json.loads(down.stdout) == {
        "stopped": True,
        "bootstrap": status["bootstrap"],
        "data": str(home / "kafka"),
    }
    assert wrong(json.loads(down.stdout), schema("kafka-down")) == []
    assert command_of(status["pid"]) == ""
    assert ask_cluster("127.0.0.1", status["port"]) is None
    assert running_brokers() == []
    assert headgate("kafka", "down").stdout == "No broker is running.\n"
    idle = json.loads(headgate("kafka", "down", "-o", "json").stdout)
    assert idle == {"stopped": False, "bootstrap": None, "data": str(home / "kafka")}

    refused = headgate("kafka", "reset", typed="n\n")
    assert refused.returncode == 1
    assert (home / "kafka/broker.json").exists()
    reset = headgate("kafka", "reset", "--yes", "-o", "json")
    assert reset.returncode == 0
    assert "This deletes " in reset.stderr
    deleted = json.loads(reset.stdout)
    assert wrong(deleted, schema("kafka-reset")) == []
    assert (deleted["deleted"], deleted["freed_bytes"] > 0) == (True, True)
    assert not (home / "kafka").exists()
    again = json.loads(headgate("kafka", "reset", "--yes", "-o", "json").stdout)
    assert again == {"deleted": False, "data": str(home / "kafka"), "freed_bytes": 0}


@pytest.mark.kafka
def test_foreground_ends_with_its_signal_and_takes_the_told_port_and_directory(home: Path) -> None:
    """For supervisors and for the impatient. Without `--data` nobody else's broker is meant: it is named, and left alone."""
    # below what the kernel hands out by itself: nobody's connection takes it before the broker does
    port = next(port for port in range(20_000 + os.getpid() % 10_000, 32_000) if is_free(port))
    command = [sys.executable, "-m", "headgate.agents.cli", "kafka", "up", "--foreground", "--port", str(port)]
    command += ["--data", str(home / "elsewhere"), "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == "Press Ctrl-C to stop Kafka.\n"
        for verb, code in (("status", 4), ("down", 0), ("reset", 0)):
            done = headgate("kafka", verb)
            assert (done.returncode, str(home / "kafka") in done.stdout) == (code, True), done
            assert verb == "reset" or f"headgate kafka {verb} --data {home / 'elsewhere'}" in done.stderr
        status = json.loads(headgate("kafka", "status", "--data", str(home / "elsewhere"), "-o", "json").stdout)
        assert (status["port"], status["data"]) == (port, str(home / "elsewhere"))
        assert [str(broker.data) for broker in running_brokers()] == [status["data"]]
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
        assert json.loads(process.stdout.read())["port"] == port
    assert command_of(status["pid"]) == ""


@pytest.mark.kafka
def test_a_broker_that_dies_ends_its_foreground(home: Path) -> None:
    """Exit 1, and the end of the log."""
    command = [sys.executable, "-m", "headgate.agents.cli", "kafka", "up", "--foreground"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        [broker] = running_brokers()
        os.kill(broker.pids()[0], signal.SIGKILL)
        said = process.stderr.read()
        assert process.wait(240) == 1
    assert "Kafka (node 1) exited unexpectedly. From the end of its log:" in said
    assert Broker.at(home / "kafka") is not None
    assert running_broker() is None
