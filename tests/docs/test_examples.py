"""Every example runs from beginning to end, and one that is interrupted leaves nothing behind."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import headgate as hg

from .pages import ROOT

HOUSE = ROOT / "examples"
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").glob("*.py")
    if 'if __name__ == "__main__"' in path.read_text(encoding="utf-8") and path.stem not in ("demo", "served_table")
)
"""Those that end by themselves. `make demo`, which CI runs, judges its own result; the web service is tried with the other workers inside
of a program, in `tests/e2e/test_inside_others`."""

pytestmark = pytest.mark.kafka


def start(example: Path, directory: Path) -> subprocess.Popen[str]:
    """The example as a process whose temporary files stand in the directory."""
    return subprocess.Popen(
        [sys.executable, str(example)],
        cwd=directory,
        env=os.environ | {"TMPDIR": str(directory), "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_of(directory: Path) -> list[str]:
    """Command lines of the processes that name the directory."""
    found: list[str] = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(directory) in line:
            found.append(line)
    return found


def assert_nothing_is_left(directory: Path) -> None:
    """Whoever was told to go may need a moment for it; nobody stays, and no file."""
    give_up = time.monotonic() + 240
    while (processes := processes_of(directory)) or (files := list(directory.iterdir())):
        assert time.monotonic() < give_up, processes or files
        time.sleep(0.05)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    """It ends by itself, says what it did, and leaves neither a process nor a file."""
    process = start(example, tmp_path)
    printed, complaints = process.communicate(timeout=540)
    assert process.returncode == 0, complaints
    assert printed.strip()
    for word in ("Traceback", "Unclosed", "never retrieved", "was destroyed", "WARN", "ERROR", "Warning:"):
        assert word not in complaints
    assert_nothing_is_left(tmp_path)


def test_every_example_is_here() -> None:
    """What `make demo` runs, the smaller one below it, and the job that the demo runs: a file of examples is run by a test."""
    assert [path.stem for path in EXAMPLES] == ["ground"]
    assert {path.stem for path in HOUSE.glob("*.py")} == {
        *("demo", "ground", "jobs_of_jobs", "joined_streams", "sales", "served_table")
    }
    assert "examples/demo.py" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_job_of_the_demo_is_the_one_of_the_readme() -> None:
    """What a reader sees first is what runs: line by line, apart from types and comments."""
    job = (HOUSE / "sales.py").read_text(encoding="utf-8")
    chain = job[job.index("(\n    orders.filter") :].strip()
    assert chain in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_job_of_the_demo_can_be_declared() -> None:
    """`headgate plan` reads it without a broker of its own; what it reads and writes stands there."""
    found = subprocess.run(
        [sys.executable, "-c", "from sales import app; print(sorted(app.graph().input), app.job)"],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert found.stdout.strip() == "['orders', 'rates'] sales/1"


def test_the_two_jobs_of_the_example_give_the_revenue_of_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOUSE))
    jobs = importlib.import_module("jobs_of_jobs")
    with hg.testing.Driver(jobs.pricing) as first, hg.testing.Driver(jobs.revenue, partitions={"priced": 2}) as second:
        first.send("rates", {"currency": "USD", "rate": 0.5}, key="USD")
        for ts in (1_000, 59_000, 61_000, 66_000, 126_000):
            first.send("orders", {"country": "US", "currency": "USD", "amount": 10, "ts": ts})
        second.follow("priced", first)
        found = [(one.key, one.value["window_start"], one.value["revenue"]) for one in second.read("revenue")]
    assert found == [("US", 0, 10.0), ("US", 60_000, 10.0)]


def test_the_example_of_a_join_says_which_orders_were_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOUSE))
    job = importlib.import_module("joined_streams")
    with hg.testing.Driver(job.app) as d:
        d.send_all(
            "orders", [{"id": id, "amount": 5, "ts": ts} for id, ts in (("a", 1_000), ("b", 2_000), ("c", 700_000))]
        )
        d.send_all("payments", [{"order": "a", "amount": 5, "ts": 601_000}, {"order": "c", "amount": 4, "ts": 700_001}])
        d.advance("1s")
        assert [(one.key, one.value["paid"]) for one in d.read("paid")] == [("a", 5), ("c", 4), ("b", None)]
        d.send("payments", {"order": "b", "amount": 5, "ts": 602_000})
        d.drain()
        assert [one.value["order"] for one in d.read("too-late")] == ["b"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", ["headgate run sales:app --workers 2", "kill -9"])
def test_an_interrupted_demo_leaves_no_worker_and_no_spark(moment: str, tmp_path: Path) -> None:
    """Ctrl-C while the job starts, or right after the kill: broker, workers and JVMs go, and so does the directory."""
    process = start(HOUSE / "demo.py", tmp_path)
    assert process.stderr is not None
    while moment not in (line := process.stderr.readline()):
        assert line, "the demo ended before the moment came"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("moment", ["start a real Kafka", "commit a transaction"])
def test_the_demo_cleans_up_when_it_is_interrupted(moment: str, number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C while Kafka starts, or in the middle: no broker and no directory stay behind."""
    process = start(ROOT / "examples" / "ground.py", tmp_path)
    assert process.stderr is not None
    while moment not in (line := process.stderr.readline()):
        assert line, "the demo ended before the moment came"
    while moment.startswith("start") and not processes_of(tmp_path):
        assert process.poll() is None, "the demo ended before Kafka was there"
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert_nothing_is_left(tmp_path)
